/* module.c: the extension module moonferry._lua, which moonferry/luajit.py makes moonferry.Lua of.
 *
 * Each function takes the state first. Must not know: how values cross. */
#include <luajit.h>

#include "runtime.h"

static mf__state *state_argument(PyObject *object) {
  if (PyObject_TypeCheck(object, mf__state_type)) return (mf__state *)object;
  PyErr_SetString(PyExc_TypeError, "a Lua state is expected");
  return NULL;
}

static PyObject *refuse_closed(void) {
  PyErr_SetString(PyExc_RuntimeError, "this Lua state was closed, or never opened");
  return NULL;
}

static PyObject *call_in(mf__state *state, int (*body)(lua_State *, void *), void *data) {
  if (state == NULL) return NULL;
  if (state->bridge == NULL || state->bridge->state == NULL) return refuse_closed();
  if (mf__call_in(state->bridge, body, data) != 0) return NULL;
  Py_IncRef(Py_None);
  return Py_None;
}

struct request {
  const char *text, *name, *mode;
  Py_ssize_t size;
  PyObject *object, *result, *extra;
  int what;
};

static PyObject *result_of(mf__state *state, int (*body)(lua_State *, void *), struct request *request) {
  PyObject *none = call_in(state, body, request);
  if (none == NULL) return NULL;
  Py_DecRef(none);
  return request->result;
}

static int load_body(lua_State *L, void *data) {
  struct request *request = data;
  int status = mf__load(L, &(mf__chunk){request->text, (size_t)request->size, request->name, request->mode});
  if (status == LUA_ERRSYNTAX) {
    size_t size;
    const char *text = lua_tolstring(L, -1, &size);
    PyObject *message = mf__hold(L, mf__text_of_error(text, size)), *error;
    MF__OUTSIDE(error, mf__error_new(mf__lua_syntax_error_type, message, message, NULL));
    mf__hold(L, error);
    PyErr_SetObject(mf__lua_syntax_error_type, error); /* stays pending: as an error in Lua it would be its text */
    return 0;
  }
  if (status != 0) return lua_error(L);
  request->result = mf__to_python(L, lua_gettop(L));
  return 0;
}

static PyObject *load(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *state;
  struct request request = {.result = NULL};
  if (!PyArg_ParseTuple(arguments, "Oy#yz", &state, &request.text, &request.size, &request.name, &request.mode))
    return NULL;
  return result_of(state_argument(state), load_body, &request);
}

static int globals_body(lua_State *L, void *data) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  ((struct request *)data)->result = mf__lua_object(L, lua_gettop(L));
  return 0;
}

static PyObject *globals(PyObject *module, PyObject *state) {
  (void)module;
  struct request request = {.result = NULL};
  return result_of(state_argument(state), globals_body, &request);
}

/* What the key's conversion runs may take the pair out of its list. */
static void put_pair(lua_State *L, int table, PyObject *pair) {
  if (pair == NULL) mf__raise(L);
  if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) mf__fail(L, "an item of a mapping is no pair");
  Py_IncRef(pair);
  mf__hold(L, pair);
  PyObject *value = PyTuple_GetItem(pair, 1);
  mf__key_to_lua(L, PyTuple_GetItem(pair, 0));
  Py_IncRef(value);
  mf__to_lua(L, value);
  lua_rawset(L, table);
  mf__drop();
}

/* ${object}: a list of values for 1 ... n; ${extra}: a list of (key, value). */
static int table_body(lua_State *L, void *data) {
  struct request *request = data;
  Py_ssize_t count = PyList_Size(request->object), pairs = PyList_Size(request->extra);
  if (count > 0x7fffffff || pairs > 0x7fffffff) mf__fail(L, "too many values for a table");
  lua_createtable(L, (int)count, (int)pairs);
  int table = lua_gettop(L);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PyList_GetItem(request->object, i);
    Py_IncRef(item);
    mf__to_lua(L, item);
    lua_rawseti(L, table, (int)i + 1);
  }
  for (Py_ssize_t i = 0; i < pairs; i++) put_pair(L, table, PyList_GetItem(request->extra, i));
  request->result = mf__lua_object(L, table);
  return 0;
}

static PyObject *table(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *state;
  struct request request = {.result = NULL};
  if (!PyArg_ParseTuple(arguments, "OOO", &state, &request.object, &request.extra)) return NULL;
  if (!PyList_Check(request.object) || !PyList_Check(request.extra)) {
    PyErr_SetString(PyExc_TypeError, "two lists are expected");
    return NULL;
  }
  return result_of(state_argument(state), table_body, &request);
}

/* ${object}: a list, which gets an entry when the collector has been stopped for its owner; only such an owner lets it
 * go on. Those whose blocks nest, or overlap in several threads, are counted. */
static int collector_body(lua_State *L, void *data) {
  const struct request *request = data;
  mf__state *state = mf__top->state;
  if (request->what == LUA_GCSTOP) {
    if (PyList_Append(request->object, Py_None) != 0) mf__raise(L);
    state->collector_stops++;
  } else if (request->what == LUA_GCRESTART && (PyList_Size(request->object) == 0 || --state->collector_stops > 0)) {
    return 0;
  }
  lua_gc(L, request->what, 0);
  mf__collected(L, state);
  return 0;
}

static PyObject *collector(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *state;
  struct request request = {.result = NULL};
  if (!PyArg_ParseTuple(arguments, "OiO!", &state, &request.what, &PyList_Type, &request.object)) return NULL;
  PyObject *none = call_in(state_argument(state), collector_body, &request);
  if (none != NULL) mf__refs_drain();
  return none;
}

static int handler_body(lua_State *L, void *data) {
  struct request *request = data;
  Py_IncRef(request->object);
  mf__to_lua(L, request->object);
  lua_rawseti(L, lua_upvalueindex(1), MF__BRIDGE_OVERFLOW);
  return 0;
}

static PyObject *set_overflow_handler(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *state;
  struct request request = {.result = NULL};
  if (!PyArg_ParseTuple(arguments, "OO", &state, &request.object)) return NULL;
  return call_in(state_argument(state), handler_body, &request);
}

static PyObject *close_state(PyObject *module, PyObject *object) {
  (void)module;
  mf__state *state = state_argument(object);
  return state != NULL && mf__state_close(state) == 0 ? Py_BuildValue("") : NULL;
}

/* The account of an open state, copied; 0, or -1 with an exception. It changes while Lua runs. */
static int read_memory(mf__state *state, mf__memory *account) {
  mf__section section;
  mf__section_begin(&section);
  const int is_open = state->L != NULL;
  if (is_open && state->memory != NULL) {
    const size_t limit = __atomic_load_n(&state->memory->limit, __ATOMIC_RELAXED);
    *account = (mf__memory){.base = state->memory->base, .limit = limit};
    account->used = __atomic_load_n(&state->memory->used, __ATOMIC_RELAXED);
    account->counted = state->memory->counted;
  }
  mf__section_end(&section);
  if (!is_open) (void)refuse_closed();
  return is_open ? 0 : -1;
}

/* (used, base, limit) in bytes, or None for a state whose memory is not counted. */
static PyObject *memory(PyObject *module, PyObject *object) {
  (void)module;
  mf__state *state = state_argument(object);
  mf__memory account = {.counted = 0};
  if (state == NULL || read_memory(state, &account) < 0) return NULL;
  if (!account.counted) return Py_BuildValue("");
  return Py_BuildValue("nnn", (Py_ssize_t)account.used, (Py_ssize_t)account.base, (Py_ssize_t)account.limit);
}

static PyObject *set_limit(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *object;
  Py_ssize_t limit;
  if (!PyArg_ParseTuple(arguments, "On", &object, &limit)) return NULL;
  mf__state *state = state_argument(object);
  if (state == NULL) return NULL;
  mf__memory account = {.counted = 0};
  if (read_memory(state, &account) < 0) return NULL;
  if (!account.counted || limit < 0) {
    PyErr_SetString(PyExc_RuntimeError, "max_memory must be set on creation of the Lua state");
    return NULL;
  }
  __atomic_store_n(&state->memory->limit, (size_t)limit, __ATOMIC_RELAXED);
  return Py_BuildValue("");
}

static PyObject *interrupt(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *object, *reason;
  if (!PyArg_ParseTuple(arguments, "OO", &object, &reason)) return NULL;
  mf__state *state = state_argument(object);
  if (state == NULL) return NULL;
  mf__stop(state, reason);
  return Py_BuildValue("");
}

/* The encoding of strings, or None. */
static PyObject *encoding(PyObject *module, PyObject *object) {
  (void)module;
  mf__state *state = state_argument(object);
  return state != NULL ? Py_BuildValue("z", state->options.encoding) : NULL;
}

static PyObject *type_name(PyObject *module, PyObject *object) {
  (void)module;
  if (!mf__is_value(object)) return Py_BuildValue("");
  return PyUnicode_FromString(mf__kind_name((mf__value *)object));
}

static PyObject *view(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *object;
  int flags;
  return PyArg_ParseTuple(arguments, "Oi", &object, &flags) ? mf__view_new(object, flags) : NULL;
}

static int arguments_body(lua_State *L, void *data) {
  struct request *request = data;
  mf__table_push(L, (mf__value *)request->object);
  PyObject *positional, *keywords;
  mf__arguments_of(L, lua_gettop(L), &positional, &keywords);
  request->result = PyTuple_Pack(2, positional, keywords); /* its exception, if any, stays pending */
  return 0;
}

/* The positional and keyword arguments that a LuaTable means. */
static PyObject *arguments_of(PyObject *module, PyObject *object) {
  (void)module;
  if (!mf__is_value(object)) {
    PyErr_SetString(PyExc_TypeError, "a LuaTable is expected");
    return NULL;
  }
  struct request request = {.result = NULL};
  request.object = object;
  return result_of(((mf__value *)object)->state, arguments_body, &request);
}

static PyMethodDef functions[] = {{"open", mf__open, METH_VARARGS, NULL},
                                  {"load", load, METH_VARARGS, NULL},
                                  {"globals", globals, METH_O, NULL},
                                  {"table", table, METH_VARARGS, NULL},
                                  {"close", close_state, METH_O, NULL},
                                  {"collector", collector, METH_VARARGS, NULL},
                                  {"set_overflow_handler", set_overflow_handler, METH_VARARGS, NULL},
                                  {"memory", memory, METH_O, NULL},
                                  {"set_limit", set_limit, METH_VARARGS, NULL},
                                  {"interrupt", interrupt, METH_VARARGS, NULL},
                                  {"encoding", encoding, METH_O, NULL},
                                  {"lua_type", type_name, METH_O,
                                   "lua_type(obj, /)\n--\n\n"
                                   "Returns the name of a Lua object's type in Lua; None for any other object."},
                                  {"view", view, METH_VARARGS, NULL},
                                  {"arguments_of", arguments_of, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

static int add(PyObject *module, const char *name, PyObject *object) {
  Py_IncRef(object);
  if (PyModule_AddObject(module, name, object) == 0) return 0;
  Py_DecRef(object);
  return -1;
}

static int fill(PyObject *module) {
  if (mf__types_ready() != 0 || mf__arguments_type_ready() != 0 || mf__view_type_ready() != 0) return -1;
  const struct {
    const char *name;
    PyObject *object;
  } entries[] = {{"State", (PyObject *)mf__state_type},
                 {"LuaObject", (PyObject *)mf__object_type},
                 {"LuaTable", (PyObject *)mf__table_type},
                 {"LuaFunction", (PyObject *)mf__function_type},
                 {"LuaCoroutineFunction", (PyObject *)mf__factory_type},
                 {"LuaThread", (PyObject *)mf__thread_type},
                 {"LuaError", mf__lua_error_type},
                 {"LuaSyntaxError", mf__lua_syntax_error_type},
                 {"LuaMemoryError", mf__lua_memory_error_type}};
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    if (add(module, entries[i].name, entries[i].object) != 0) return -1;
  }
  return PyModule_AddStringConstant(module, "implementation", LUAJIT_VERSION);
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "moonferry._lua",
                                        "What moonferry.luajit is made of.",
                                        -1,
                                        functions,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

/* Needs the GIL no more than _core does; 0, or -1 with an exception. */
static int declare_threads(PyObject *module) {
#ifdef Py_GIL_DISABLED
  return PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#else
  (void)module;
  return 0;
#endif
}

PyMODINIT_FUNC PyInit__lua(void) {
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL || (fill(module) == 0 && declare_threads(module) == 0)) return module;
  Py_DecRef(module);
  return NULL;
}
