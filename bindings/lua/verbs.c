/* verbs.c: the functions of the bridge that are not operators of an object, and the opening of it all.
 *
 * Each is a body (guard.h says what that means) of the same name in lua/moonferry/python.lua, where users
 * read what it does. Must not know: how the interpreter came to run. */
#include <string.h>

#include "copy.h"
#include "start.h"

void (*mf__after_import)(void);

static PyObject *attribute_of(const char *module, const char *name) {
  PyObject *owner = PyImport_ImportModule(module);
  PyObject *value = owner != NULL ? PyObject_GetAttrString(owner, name) : NULL;
  Py_DecRef(owner);
  return value;
}

static PyObject *module_attribute(lua_State *L, const char *module, const char *name) {
  PyObject *value;
  MF__OUTSIDE(value, attribute_of(module, name));
  return mf__hold(L, value);
}

static int verb_import(lua_State *L) {
  if (lua_type(L, 1) != LUA_TSTRING) mf__fail(L, "py.import takes the module's name, got %s", luaL_typename(L, 1));
  PyObject *import_module = module_attribute(L, "importlib", "import_module");
  PyObject *args = mf__hold(L, mf__to_tuple(L, 1, 1));
  PyObject *module;
  MF__OUTSIDE(module, PyObject_Call(import_module, args, NULL));
  mf__hold(L, module);
  if (mf__after_import) mf__after_import();
  mf__wrap(L, mf__take());
  return 1;
}

static PyObject *field_of(lua_State *L, PyObject *object, const char *name) {
  PyObject *value;
  MF__OUTSIDE(value, PyObject_GetAttrString(object, name));
  return mf__hold(L, value);
}

/* Evaluates or executes the code at 1, in the dict or module at 2, or in __main__, with the mapping at 3 as locals. */
static int run_code(lua_State *L, const char *builtin) {
  if (lua_type(L, 1) != LUA_TSTRING)
    mf__fail(L, "py.%s takes Python code as a string, got %s", builtin, luaL_typename(L, 1));
  lua_settop(L, 3);
  PyObject *run = module_attribute(L, "builtins", builtin);
  PyObject *scope = NULL;
  if (lua_isnil(L, 2)) {
    scope = module_attribute(L, "__main__", "__dict__");
  } else {
    scope = mf__hold(L, mf__to_python(L, 2));
    if (!PyDict_Check(scope)) scope = field_of(L, scope, "__dict__");
  }
  PyObject *locals = mf__hold(L, mf__to_python(L, 3)); /* None is none */
  PyObject *code = mf__hold(L, mf__to_python(L, 1)), *result;
  MF__OUTSIDE(result, PyObject_CallFunctionObjArgs(run, code, scope, locals, NULL));
  mf__to_lua(L, result);
  return 1;
}

static int verb_eval(lua_State *L) {
  return run_code(L, "eval");
}

static int verb_exec(lua_State *L) {
  run_code(L, "exec");
  return 0;
}

static int verb_object(lua_State *L) {
  if (mf__argument(L, 1) == Py_None) {
    mf__to_lua(L, mf__take()); /* there is one userdata of None */
  } else {
    mf__wrap(L, mf__take());
  }
  return 1;
}

/* Whether the table at ${index} is a tensor, a stream or a ring, whose fields are nobody's values. */
static int is_moonferrys(lua_State *L, int index) {
  if (!lua_getmetatable(L, index)) return 0;
  lua_pushliteral(L, "moonferry_open");
  lua_rawget(L, -2);
  const int is = lua_isboolean(L, -1);
  lua_pop(L, 2);
  return is;
}

static void need_table_at(lua_State *L, int index, const char *verb) {
  if (lua_type(L, index) != LUA_TTABLE) mf__fail(L, "%s takes a table, got %s", verb, luaL_typename(L, index));
  if (is_moonferrys(L, index)) mf__fail(L, "%s takes a table of values, got a tensor, stream or ring", verb);
}

static void need_table(lua_State *L, const char *verb) {
  need_table_at(L, 1, verb);
}

static int sequence_count(lua_State *L, const char *verb) {
  need_table(L, verb);
  if (lua_isnoneornil(L, 2)) {
    const int given = mf__list_count(L, 1);
    if (given < 0) mf__fail(L, "a list is expected, not a table of other keys than 1 ... n; py.dict takes those");
    return given;
  }
  const lua_Integer count = lua_tointeger(L, 2);
  if (!lua_isnumber(L, 2) || (double)count != lua_tonumber(L, 2) || count < 0 || (int)count != count)
    mf__fail(L, "the count of elements must be 0 ... 2^31-1");
  return (int)count;
}

static int verb_list(lua_State *L) {
  mf__wrap(L, mf__to_list(L, 1, sequence_count(L, "py.list")));
  return 1;
}

static int verb_tuple(lua_State *L) {
  PyObject *list = mf__hold(L, mf__to_list(L, 1, sequence_count(L, "py.tuple")));
  mf__wrap(L, PyList_AsTuple(list));
  return 1;
}

static int verb_dict(lua_State *L) {
  need_table(L, "py.dict");
  mf__wrap(L, mf__to_dict(L, 1, 0));
  return 1;
}

static int verb_bytes(lua_State *L) {
  mf__check_interrupt(L);
  size_t size;
  const char *data = lua_type(L, 1) == LUA_TSTRING ? lua_tolstring(L, 1, &size) : NULL;
  if (data == NULL) mf__fail(L, "py.bytes takes a string, got %s", luaL_typename(L, 1));
  mf__wrap(L, PyBytes_FromStringAndSize(data, (Py_ssize_t)size));
  return 1;
}

/* Converts the number at 1 to a float or an int, new. */
static PyObject *number_at_1(lua_State *L, PyObject *(*convert)(PyObject *)) {
  PyObject *object = mf__argument(L, 1), *number;
  MF__OUTSIDE(number, convert(object));
  return number;
}

static int verb_float(lua_State *L) {
  mf__wrap(L, number_at_1(L, PyNumber_Float));
  return 1;
}

static int verb_int(lua_State *L) {
  mf__wrap(L, number_at_1(L, PyNumber_Long));
  return 1;
}

static int verb_number(lua_State *L) {
  mf__to_lua(L, number_at_1(L, PyNumber_Float));
  return 1;
}

/* The key that Lua's arguments from 2 to ${last} mean: one value, or a tuple as in o[i, j]. */
static PyObject *key_of(lua_State *L, int last) {
  if (last < 2) mf__fail(L, "a key is missing");
  return mf__hold(L, last == 2 ? mf__to_python(L, 2) : mf__to_tuple(L, 2, last));
}

static int verb_get(lua_State *L) {
  PyObject *object = mf__argument(L, 1), *value;
  PyObject *key = key_of(L, lua_gettop(L));
  MF__OUTSIDE(value, PyObject_GetItem(object, key));
  mf__to_lua(L, value);
  return 1;
}

static int verb_set(lua_State *L) {
  PyObject *object = mf__argument(L, 1);
  int last = lua_gettop(L);
  PyObject *key = key_of(L, last - 1);
  PyObject *value = mf__hold(L, mf__to_python(L, last));
  int failed;
  MF__OUTSIDE(failed, PyObject_SetItem(object, key, value));
  if (failed) mf__raise(L);
  return 0;
}

static int verb_close(lua_State *L) {
  mf__ref **box = lua_touserdata(L, 1), *ref = mf__ref_check(L, 1);
  /* None is shared by the whole state, and costs nothing to keep. */
  if (ref->object == Py_None) return 0;
  mf__weigh_closed(ref);
  *box = NULL;
  mf__close_callables(ref);
  mf__ref_retire(ref);
  mf__refs_drain();
  return 0;
}

static int verb_is(lua_State *L) {
  lua_pushboolean(L, mf__is_object(L, 1));
  return 1;
}

/* Does nothing but call Python, because every such call gives back the references that wait (mf__enter). */
static int verb_collect(lua_State *L) {
  (void)L;
  return 0;
}

/* finish_within(milliseconds): how many threads are still inside, or Python's own and no daemons, when that is over. */
static int verb_finish(lua_State *L) {
  if (!mf__python_is_guest()) mf__fail(L, "Python was not started by Lua in this process: its host ends it");
  mf_error error;
  int32_t late, rc;
  MF__OUTSIDE(rc, mf_guest_finish((int32_t)lua_tointeger(L, 1), &late, &error));
  if (rc != MF_OK) mf__fail(L, "%s", error.message);
  lua_pushinteger(L, late);
  return 1;
}

/* The userdata of None, made once: two of them would be equal, but not the same key of a table. */
static int verb_none(lua_State *L) {
  mf__push_object(L, Py_None);
  return 1;
}

/* py.call(f, positional, keywords): a table or any iterable; a table or any mapping. */
static int verb_call(lua_State *L) {
  lua_settop(L, 3);
  PyObject *callee = mf__argument(L, 1);
  PyObject *list = NULL, *keywords = NULL;
  if (!lua_isnil(L, 2)) {
    PyObject *iterable = mf__argument(L, 2);
    MF__OUTSIDE(list, PySequence_List(iterable));
    mf__hold(L, list);
  }
  PyObject *args = mf__hold(L, list ? PyList_AsTuple(list) : PyTuple_New(0));
  if (lua_type(L, 3) == LUA_TTABLE) {
    need_table_at(L, 3, "py.call");
    keywords = mf__hold(L, mf__to_dict(L, 3, 1));
  } else if (!lua_isnil(L, 3)) {
    int failed;
    PyObject *mapping = mf__argument(L, 3);
    keywords = mf__hold(L, PyDict_New());
    MF__OUTSIDE(failed, PyDict_Update(keywords, mapping));
    if (failed) mf__raise(L);
  }
  PyObject *result;
  MF__OUTSIDE(result, PyObject_Call(callee, args, keywords));
  mf__to_lua(L, result);
  return 1;
}

/* Writes the integer at 1 to the FFI value at 2, a int64_t[1] or uint64_t[1]; 3 says whether it is unsigned. */
static int verb_integer(lua_State *L) {
  PyObject *integer = mf__hold(L, number_at_1(L, PyNumber_Long));
  void *box = (void *)(uintptr_t)lua_topointer(L, 2);
  if (lua_toboolean(L, 3)) {
    unsigned long long value = PyLong_AsUnsignedLongLong(integer);
    if (PyErr_Occurred()) mf__raise(L);
    memcpy(box, &value, sizeof value);
  } else {
    long long value = PyLong_AsLongLong(integer);
    if (PyErr_Occurred()) mf__raise(L);
    memcpy(box, &value, sizeof value);
  }
  return 0;
}

/* The context that the exception had goes, which may have the last reference to anything. */
static int set_exception(PyObject *exception) {
  PyObject *type = (PyObject *)Py_TYPE(exception);
  Py_IncRef(type);
  PyErr_SetObject(type, exception);
  Py_DecRef(type);
  return -1;
}

static int raise_exception(lua_State *L, PyObject *exception) {
  int failed;
  MF__OUTSIDE(failed, set_exception(exception));
  (void)failed;
  return mf__raise(L);
}

/* Raises what was raised before, and leaves its contexts as they are. */
static int raise_again(lua_State *L, PyObject *exception) {
  mf__restore_error(exception);
  return mf__raise(L);
}

/* NULL with a TypeError where a class has no such method, or with what is no answer. */
static PyObject *method_of_manager(PyObject *type, const char *name) {
  PyObject *method = PyObject_GetAttrString(type, name);
  if (method == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
    PyErr_Format(PyExc_TypeError, "py.with takes a context manager; %S has no %s", type, name);
  return method;
}

/* Calls ${body} protected, with what is at the top; returns lua_pcall's status. It needs no memory of its own. */
static int run_protected(lua_State *L, int (*body)(lua_State *, void *), void *data, int arguments) {
  mf__top->body = body;
  mf__top->data = data;
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_RUNNER);
  lua_insert(L, -arguments - 1);
  return lua_pcall(L, arguments, 1, 0);
}

static int push_entered(lua_State *L, void *value) {
  Py_IncRef(value);
  mf__to_lua(L, value);
  return 1;
}

/* Enters the context manager at 1: what verb_leave needs, whether Lua can have what entering it gave, and that or the
 * error. A manager that was entered is left in any case, so that what leaves it is nothing that a program can close. */
static int verb_enter(lua_State *L) {
  PyObject *manager = mf__argument(L, 1), *type = (PyObject *)Py_TYPE(manager), *enter, *exit, *value;
  Py_IncRef(type);
  mf__hold(L, type); /* whatever code runs may give the manager another class */
  MF__OUTSIDE(enter, method_of_manager(type, "__enter__"));
  mf__hold(L, enter);
  MF__OUTSIDE(exit, method_of_manager(type, "__exit__"));
  mf__hold(L, exit);
  mf__wrap(L, PyTuple_Pack(2, exit, manager));
  MF__OUTSIDE(value, PyObject_CallFunctionObjArgs(enter, manager, NULL));
  const int failed = run_protected(L, push_entered, mf__hold(L, value), 0);
  lua_pushboolean(L, !failed);
  lua_insert(L, -2);
  return 3;
}

static int take_exception(lua_State *L, void *exception) {
  *(PyObject **)exception = mf__exception_of(L);
  return 0;
}

/* The exception that the error at the top is, held; MemoryError where none can be made of it. */
static PyObject *exception_of_body(lua_State *L) {
  PyObject *exception;
  if (run_protected(L, take_exception, &exception, 1) == 0) return exception;
  PyErr_NoMemory();
  return mf__pending_exception(L);
}

enum { CONTEXTS_MAX = 1000 };

/* The last of ${exception} and its contexts before ${handled}, borrowed; NULL where ${other} is one of them, or where
 * they are too many: a program can make a ring of them. */
static PyObject *last_before(PyObject *exception, const PyObject *handled, const PyObject *other) {
  PyObject *last = exception;
  for (int far = 0; far < CONTEXTS_MAX && last != other; far++) {
    PyObject *next = PyException_GetContext(last);
    Py_DecRef(next); /* the last one has it */
    if (next == NULL || (next == handled && next != other)) return last;
    last = next;
  }
  return NULL;
}

/* Puts ${context} and its contexts into those of an exception that came while it was on its way: behind what the
 * exception brought along, and before what is handled around both. */
static void came_during(PyObject *exception, PyObject *context) {
  PyObject *handled[3];
  PyErr_GetExcInfo(&handled[0], &handled[1], &handled[2]);
  PyObject *last = last_before(exception, handled[1], context);
  PyObject *end = last != NULL ? last_before(context, handled[1], last) : NULL;
  if (end != NULL) {
    PyObject *around = PyException_GetContext(last);
    if (around != NULL) PyException_SetContext(end, around);
    Py_IncRef(context);
    PyException_SetContext(last, context);
  }
  for (int i = 0; i < 3; i++) Py_DecRef(handled[i]);
}

/* Calls __exit__ with the exception, which Python's own code then sees as the one that is being handled. */
static PyObject *leave_with(PyObject *exit, PyObject *manager, PyObject *exception) {
  PyObject *type = (PyObject *)Py_TYPE(exception);
  PyObject *trace = PyException_GetTraceback(exception);
  PyObject *before[3];
  PyErr_GetExcInfo(&before[0], &before[1], &before[2]);
  Py_IncRef(type);
  Py_IncRef(exception);
  Py_IncRef(trace);
  PyErr_SetExcInfo(type, exception, trace);
  PyObject *answer =
      PyObject_CallFunctionObjArgs(exit, manager, type, exception, trace != NULL ? trace : Py_None, NULL);
  PyErr_SetExcInfo(before[0], before[1], before[2]);
  Py_DecRef(trace);
  return answer;
}

/* leave(what verb_enter gave, whether all went well, the error): whether an error is dealt with. What Ctrl-C has become
 * that came too late for the body's own code is an error of the body. */
static int verb_leave(lua_State *L) {
  PyObject *pair = mf__held_at(L, 1), *answer;
  mf__close_ref(mf__ref_check(L, 1));
  PyObject *exit = PyTuple_GetItem(pair, 0), *manager = PyTuple_GetItem(pair, 1);
  PyObject *interrupt = mf__interrupt_came() ? mf__pending_exception(L) : NULL;
  PyObject *exception = lua_toboolean(L, 2) ? NULL : exception_of_body(L);
  if (interrupt != NULL) {
    if (exception != NULL) came_during(interrupt, exception);
    exception = interrupt;
  }
  if (exception != NULL) {
    MF__OUTSIDE(answer, leave_with(exit, manager, exception));
  } else {
    MF__OUTSIDE(answer, PyObject_CallFunctionObjArgs(exit, manager, Py_None, Py_None, Py_None, NULL));
  }
  mf__hold(L, answer);
  int truth = 0;
  if (exception != NULL) MF__OUTSIDE(truth, PyObject_IsTrue(answer));
  if (truth < 0) mf__raise(L);
  if (interrupt != NULL && !truth) return raise_again(L, interrupt);
  lua_pushboolean(L, truth);
  return 1;
}

static int verb_delete(lua_State *L) {
  PyObject *object = mf__argument(L, 1);
  PyObject *key = key_of(L, lua_gettop(L));
  int failed;
  MF__OUTSIDE(failed, PyObject_DelItem(object, key));
  if (failed) mf__raise(L);
  return 0;
}

/* A table or function of Lua's as a Python object that stands for it, not as a copy. */
static int verb_live(lua_State *L) {
  need_table(L, "py.mapping, as py.sequence,");
  mf__wrap(L, mf__lua_object(L, 1));
  return 1;
}

/* Makes an exception of a class and its arguments, or takes one that is made. */
static PyObject *made(lua_State *L) {
  PyObject *what = mf__hold(L, mf__to_python(L, 1));
  if (PyExceptionClass_Check(what)) {
    PyObject *args = mf__hold(L, mf__to_tuple(L, 2, lua_gettop(L))), *exception;
    MF__OUTSIDE(exception, PyObject_Call(what, args, NULL));
    what = mf__hold(L, exception);
  }
  if (!PyExceptionInstance_Check(what)) mf__fail(L, "py.raise takes a Python exception, or its class and arguments");
  return what;
}

static int verb_raise(lua_State *L) {
  return raise_exception(L, made(L));
}

static void put_verbs(lua_State *L, int bridge) {
  mf__put_iterators(L, bridge);
  mf__put_scopes(L, bridge);
  static const luaL_Reg verbs[] = {
      {"import", verb_import}, {"evaluate", verb_eval},   {"execute", verb_exec},  {"object", verb_object},
      {"list", verb_list},     {"tuple", verb_tuple},     {"dict", verb_dict},     {"bytes", verb_bytes},
      {"float", verb_float},   {"int", verb_int},         {"number", verb_number}, {"get", verb_get},
      {"set", verb_set},       {"close", verb_close},     {"is", verb_is},         {"raise", verb_raise},
      {"call", verb_call},     {"integer", verb_integer}, {"enter", verb_enter},   {"leave", verb_leave},
      {"delete", verb_delete}, {"live", verb_live},       {"collect", verb_collect},
      {"finish_within", verb_finish}, {NULL, NULL}};
  mf__put_verbs(L, verbs, bridge);
  mf__push_release(L, bridge);
  lua_setfield(L, -2, "release");
}

int mf__bridge_open(lua_State *L) {
  static const int slots[] = {MF__BRIDGE_DESCRIBE, MF__BRIDGE_ADOPT, MF__BRIDGE_BOX, MF__BRIDGE_KEYWORDS,
                              MF__BRIDGE_SCOPES, 0};
  enum { COUNT = sizeof slots / sizeof *slots - 1, LAST };
  const int bridge = LAST + 1;
  luaL_checkany(L, LAST);
  mf__bridge_closes_with(L, LAST);
  lua_createtable(L, MF__BRIDGE_SLOTS, 0);
  for (int i = 0; slots[i] != 0; i++) {
    lua_pushvalue(L, i + 1);
    lua_rawseti(L, bridge, slots[i]);
  }
  mf__scopes_of(L, mf__bridge_new(L, bridge, &mf__copy_policy)->state, COUNT);
  lua_newtable(L);
  mf__object_metatable(L, mf__copy_events, bridge);
  mf__bridge_metatable(L, bridge, MF__BRIDGE_OBJECT);
  mf__put_fault(L, bridge);
  mf__push_verb(L, verb_none, bridge);
  lua_call(L, 0, 1);
  lua_pushvalue(L, -1);
  lua_rawseti(L, bridge, MF__BRIDGE_NONE);
  lua_newtable(L);
  lua_insert(L, -2);
  lua_setfield(L, -2, "None");
  put_verbs(L, bridge);
  return 1;
}
