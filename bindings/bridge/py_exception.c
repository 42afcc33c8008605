/* py_exception.c: shows Lua a Python exception that was raised there.
 *
 * A Python exception becomes a userdata that owns the exception, so that it is the same one when it gets back into
 * Python, and that remembers where in Lua it was raised:
 *
 *   e.type, e.message          "package.Type" and str(exception), as strings
 *   e.traceback                Python's traceback and, below it, Lua's stack
 *   e.where, e.class, e.value  "file:line: "; the exception's class; the exception as a plain Python object
 *   e:is(class or name, ...)   isinstance
 *   e.anything_else            an attribute of the exception
 *   tostring(e)                where, type and message, then the traceback as Python prints it
 *
 * In a sandbox there is no e.class, and no traceback of Python's: only Lua's stack.
 * Texts are made when they are asked for: most errors are caught and never read.
 * Invariant: no Python exception is pending afterwards. */
#include <string.h>

#include "objects.h"

/* How the strings of this state are encoded; NULL: as UTF-8. */
static const char *encoding_here(void) {
  const mf__options *options = &mf__top->bridge->state->options;
  if (mf__is_utf8(mf__top->bridge)) return NULL;
  return options->encoding != NULL ? options->encoding : options->source_encoding;
}

/* Pushes the text of ${text}, a str that may be NULL after a failure, and takes the reference over. */
static void push_text(lua_State *L, PyObject *text, const char *otherwise) {
  PyObject *bytes = NULL;
  if (text != NULL) MF__OUTSIDE(bytes, PyUnicode_AsEncodedString(text, encoding_here(), "backslashreplace"));
  mf__let_go(text);
  if (bytes == NULL) {
    if (PyErr_Occurred() != NULL && !answer_is_set()) mf__raise(L);
    mf__clear_error();
    lua_pushstring(L, otherwise);
    return;
  }
  mf__push_bytes(L, mf__hold(L, bytes));
}

/* "package.Type", and "Type" alone for what needs no package or has none: a class may say anything of itself, and may
 * lose its last instance meanwhile. */
static PyObject *type_name(PyObject *type) {
  Py_IncRef(type);
  PyObject *name = PyObject_GetAttrString(type, "__qualname__");
  PyObject *module = name != NULL ? PyObject_GetAttrString(type, "__module__") : NULL;
  Py_DecRef(type);
  if (name == NULL) return NULL;
  if (module == NULL && !answer_is_no()) {
    Py_DecRef(name);
    return NULL;
  }
  const int is_alone = module == NULL || !PyUnicode_Check(module) ||
                       PyUnicode_CompareWithASCIIString(module, "builtins") == 0 ||
                       PyUnicode_CompareWithASCIIString(module, "__main__") == 0;
  PyObject *full = is_alone ? PyObject_Str(name) : PyUnicode_FromFormat("%U.%S", module, name);
  Py_DecRef(module);
  Py_DecRef(name);
  return full;
}

/* The name alone where the exception has no text, or none that can be had. */
static PyObject *headline(PyObject *type, PyObject *value) {
  PyObject *name = type_name(type);
  PyObject *text = name ? PyObject_Str(value) : NULL;
  PyObject *line = text && PyUnicode_GetLength(text) ? PyUnicode_FromFormat("%U: %U", name, text) : NULL;
  Py_DecRef(text);
  if (line == NULL && answer_is_no()) return name;
  Py_DecRef(name);
  return line;
}

static PyObject *formatted(PyObject *type, PyObject *value, PyObject *trace) {
  PyObject *module = PyImport_ImportModule("traceback");
  if (module == NULL) return NULL;
  PyObject *lines = PyObject_CallMethod(module, "format_exception", "OOO", type, value, trace);
  Py_DecRef(module);
  PyObject *empty = lines ? PyUnicode_FromString("") : NULL;
  PyObject *joined = empty ? PyUnicode_Join(empty, lines) : NULL;
  PyObject *text = joined ? PyObject_CallMethod(joined, "rstrip", "s", "\n") : NULL;
  Py_DecRef(joined);
  Py_DecRef(empty);
  Py_DecRef(lines);
  return text;
}

static void push_slot(lua_State *L, int index, int slot) {
  lua_getfenv(L, index);
  lua_rawgeti(L, -1, slot);
  lua_remove(L, -2);
}

/* The exception of the error at 1, held; raises for anything else, because only errors have these fields. */
static PyObject *exception_of(lua_State *L) {
  int same = lua_type(L, 1) == LUA_TUSERDATA && lua_getmetatable(L, 1);
  if (same) {
    lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_FAULT);
    same = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  if (!same) mf__fail(L, "the error of a Python exception is expected, not a %s", luaL_typename(L, 1));
  PyObject *exception = mf__ref_check(L, 1)->object;
  Py_IncRef(exception);
  return mf__hold(L, exception);
}

static PyObject *class_of(PyObject *exception) {
  return (PyObject *)Py_TYPE(exception);
}

static void push_headline(lua_State *L, PyObject *exception) {
  PyObject *text;
  MF__OUTSIDE(text, headline(class_of(exception), exception));
  push_text(L, text, "a Python exception that cannot be printed");
}

static int in_sandbox(void) {
  return mf__top->bridge->state->options.sandbox;
}

/* Python's traceback, or nothing if there is none: the exception was not raised by Python code. In a sandbox nothing
 * either: it names the host's files and shows their lines. */
static int push_trace(lua_State *L, PyObject *exception) {
  PyObject *trace = in_sandbox() ? NULL : PyException_GetTraceback(exception);
  if (trace == NULL) return 0;
  PyObject *text;
  mf__hold(L, trace);
  MF__OUTSIDE(text, formatted(class_of(exception), exception, trace));
  push_text(L, text, "(its traceback cannot be printed)");
  return 1;
}

/* The fields that are not the exception's own. Each pushes one value; the error is at 1. */

static void field_type(lua_State *L, PyObject *exception) {
  PyObject *name;
  MF__OUTSIDE(name, type_name(class_of(exception)));
  push_text(L, name, "?");
}

static void field_message(lua_State *L, PyObject *exception) {
  PyObject *text;
  MF__OUTSIDE(text, PyObject_Str(exception));
  push_text(L, text, "(its message cannot be printed)");
}

static void field_traceback(lua_State *L, PyObject *exception) {
  if (!push_trace(L, exception)) push_headline(L, exception);
  lua_pushliteral(L, "\n");
  push_slot(L, 1, MF__FAULT_STACK);
  lua_concat(L, 3);
}

static void field_where(lua_State *L, PyObject *exception) {
  (void)exception;
  push_slot(L, 1, MF__FAULT_WHERE);
}

static void field_class(lua_State *L, PyObject *exception) {
  if (in_sandbox()) {
    PyErr_SetString(PyExc_AttributeError, "a sandboxed script may not use the attribute 'class'");
    mf__raise(L);
  }
  Py_IncRef(class_of(exception));
  mf__wrap(L, class_of(exception));
}

static void field_value(lua_State *L, PyObject *exception) {
  Py_IncRef(exception);
  mf__wrap(L, exception);
}

static void field_is(lua_State *L, PyObject *exception) {
  (void)exception;
  lua_getmetatable(L, 1);
  lua_getfield(L, -1, "is");
}

static int fault_index(lua_State *L) {
  static const struct {
    const char *name;
    void (*push)(lua_State *, PyObject *);
  } fields[] = {{"type", field_type},
                {"message", field_message},
                {"traceback", field_traceback},
                {"where", field_where},
                {"class", field_class},
                {"value", field_value},
                {"is", field_is},
                {NULL, NULL}};
  PyObject *exception = exception_of(L);
  size_t size;
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tolstring(L, 2, &size) : NULL;
  if (name == NULL) mf__fail(L, "an exception's fields have names");
  for (int i = 0; fields[i].name; i++) {
    if (strcmp(name, fields[i].name) != 0 || strlen(name) != size) continue;
    fields[i].push(L, exception);
    return 1;
  }
  PyObject *key = mf__hold(L, mf__to_python(L, 2));
  mf__to_lua(L, mf__attribute_get(L, exception, key));
  return 1;
}

static int fault_tostring(lua_State *L) {
  PyObject *exception = exception_of(L);
  lua_settop(L, 1);
  push_slot(L, 1, MF__FAULT_WHERE);
  push_headline(L, exception);
  lua_pushliteral(L, "\n");
  if (!push_trace(L, exception)) lua_pop(L, 1);
  lua_concat(L, lua_gettop(L) - 1);
  return 1;
}

/* Whether ${name} is what a class is called, with its module or without; -1 with an exception. */
static int has_name(PyObject *class, PyObject *name) {
  PyObject *full = type_name(class);
  PyObject *bare = full != NULL ? PyObject_GetAttrString(class, "__name__") : NULL;
  int same = bare == NULL ? -1 : PyObject_RichCompareBool(full, name, Py_EQ);
  if (same == 0) same = PyObject_RichCompareBool(bare, name, Py_EQ);
  Py_DecRef(full);
  Py_DecRef(bare);
  return same;
}

/* What a script calls something; bytes in a state without an encoding. A new reference. */
static PyObject *name_of(PyObject *given) {
  if (PyBytes_Check(given))
    return PyUnicode_FromEncodedObject(given, mf__top->bridge->state->options.source_encoding, NULL);
  Py_IncRef(given);
  return given;
}

static int is_called(PyObject *exception, PyObject *given) {
  PyObject *name = name_of(given);
  PyObject *order = name != NULL ? PyObject_GetAttrString(class_of(exception), "__mro__") : NULL;
  PyObject *classes = order != NULL ? PySequence_Tuple(order) : NULL; /* a metaclass may say anything of it */
  Py_ssize_t count = classes != NULL ? PyTuple_Size(classes) : -1;
  int found = count < 0 ? -1 : 0;
  for (Py_ssize_t i = 0; i < count && found == 0; i++) found = has_name(PyTuple_GetItem(classes, i), name);
  Py_DecRef(classes);
  Py_DecRef(order);
  Py_DecRef(name);
  return found;
}

static int fault_is(lua_State *L) {
  PyObject *exception = exception_of(L);
  int count = lua_gettop(L);
  int answer = 0;
  for (int i = 2; i <= count && !answer; i++) {
    PyObject *what = mf__hold(L, mf__to_python(L, i));
    int named = lua_type(L, i) == LUA_TSTRING;
    MF__OUTSIDE(answer, named ? is_called(exception, what) : PyObject_IsInstance(exception, what));
    if (answer < 0) mf__raise(L);
    mf__drop();
  }
  lua_pushboolean(L, answer);
  return 1;
}

void mf__fault_metatable(lua_State *L, int bridge) {
  static const luaL_Reg events[] = {
      {"__index", fault_index}, {"__tostring", fault_tostring}, {"is", fault_is}, {NULL, NULL}};
  mf__put_verbs(L, events, bridge);
}
