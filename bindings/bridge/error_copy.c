/* error_copy.c: how errors of Lua are pickled and copied.
 *
 * A pickle leaves out what cannot leave the process: the state, and a value that is Lua's. A copy keeps both, so that
 * it is the same error where it gets back into its state. All other attributes go along, notes included. Must not
 * know: how an error becomes an exception. */
#include "objects.h"

static const char methods[] =
    "def __reduce__(self):\n"
    "    \"\"\"For pickle: without the state, and without a value that is Lua's.\"\"\"\n"
    "    make, arguments, *rest = super(LuaError, self).__reduce__()\n"
    "    fields = dict(rest[0] or ()) if rest else {}\n"
    "    fields.pop('_state', None)\n"
    "    if isinstance(fields.get('value'), LuaObject):\n"
    "        del fields['value']\n"
    "    return make, arguments, fields, *rest[1:]\n"
    "\n"
    "def copied(self, part):\n"
    "    made = self.__reduce_ex__(4)\n"
    "    if isinstance(made, str):\n"
    "        return self\n"
    "    make, arguments, fields = (*made, None)[:3]\n"
    "    copy = make(*part(arguments, None))\n"
    "    if fields is not None:\n"
    "        copy.__setstate__(part(fields, copy))\n"
    "    own = vars(self)\n"
    "    if '_state' in own:\n"
    "        copy.__dict__['_state'] = own['_state']\n"
    "    if isinstance(own.get('value'), LuaObject):\n"
    "        copy.__dict__['value'] = own['value']\n"
    "    return copy\n"
    "\n"
    "def __copy__(self):\n"
    "    \"\"\"A copy with the same state and value.\"\"\"\n"
    "    return copied(self, lambda part, copy: part)\n"
    "\n"
    "def __deepcopy__(self, memo):\n"
    "    \"\"\"A copy with copies of its attributes. The state is the same, and so is a value that is Lua's.\"\"\"\n"
    "    from copy import deepcopy\n"
    "    def deep(part, copy):\n"
    "        if copy is not None:\n"
    "            memo[id(self)] = copy\n"
    "        return deepcopy(part, memo)\n"
    "    return copied(self, deep)\n"
    "\n"
    "for method in __reduce__, __copy__, __deepcopy__:\n"
    "    method.__qualname__ = 'LuaError.' + method.__name__\n"
    "    setattr(LuaError, method.__name__, method)\n";

int mf__error_copies_ready(void) {
  PyObject *names = Py_BuildValue("{sssOsO}", "__name__", "moonferry", "LuaError", mf__lua_error_type, "LuaObject",
                                  (PyObject *)mf__object_type);
  const int failed = names == NULL || mf__run_code(methods, names) != 0;
  Py_DecRef(names);
  return failed ? -1 : 0;
}
