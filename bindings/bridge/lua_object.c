/* lua_object.c: a Lua value as a Python object, and calls of it.
 *
 *   LuaObject                 any value: str, ==, hash, fields and items where Lua lets one index it, calls
 *   LuaFunction               and .coroutine(*arguments), which makes a LuaThread
 *   LuaCoroutineFunction      of a coroutine that has not begun: each call makes another one
 *   LuaTable                  lua_table.c
 *   LuaThread                 lua_thread.c
 *
 * Two objects are equal if they stand for the same Lua value. Invariant: an object keeps its value and its state alive,
 * and holds a registry reference that is queued, not given back, when Python drops it: on any thread, at any time. */
#include <stddef.h>

#include "state.h"
/* Needs Python.h before it. */
#include <structmember.h>

PyTypeObject *mf__object_type, *mf__function_type, *mf__factory_type;

static mf__value *value_of(PyObject *object) {
  return (mf__value *)object;
}

PyObject *mf__value_new(lua_State *L, int index, PyTypeObject *type) {
  mf__kit *kit = mf__top->kit;
  mf__state *state = mf__top->state;
  const void *identity = lua_topointer(L, index);
  mf__kit_retain(L, kit, lua_upvalueindex(1));
  lua_pushvalue(L, index);
  int ref = mf__anchor(L, state);
  mf__value *value = (mf__value *)PyType_GenericAlloc(type, 0);
  if (value == NULL) {
    mf__state_unref(state, ref);
    mf__kit_release(kit, state);
    mf__raise(L);
  }
  value->kit = kit;
  value->state = state;
  Py_IncRef((PyObject *)state);
  value->ref = ref;
  value->kind = lua_type(L, index);
  value->identity = identity;
  value->vectorcall = mf__value_call;
  return (PyObject *)value;
}

void mf__value_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  mf__value *value = value_of(self);
  PyObject_GC_UnTrack(self);
  if (value->weakrefs != NULL) PyObject_ClearWeakRefs(self);
  if (value->state != NULL) {
    mf__state_unref(value->state, value->ref);
    mf__kit_release(value->kit, value->state);
  }
  Py_DecRef((PyObject *)value->state);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DecRef((PyObject *)type);
}

int mf__value_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)value_of(self)->state);
  return 0;
}

void mf__value_push(lua_State *L, mf__value *value) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, value->ref);
  if (lua_isnil(L, -1)) mf__fail(L, "the reference to this Lua value is lost");
}

const char *mf__kind_name(const mf__value *value) {
  static const char *const names[] = {"nil",      "boolean",  "userdata", "number", "string", "table",
                                      "function", "userdata", "thread",   "proto",  "cdata"};
  return value->kind >= 0 && value->kind <= MF__LUA_TCDATA ? names[value->kind] : "value";
}

void mf__table_push(lua_State *L, mf__value *value) {
  if (value->kind != LUA_TTABLE) {
    PyErr_Format(PyExc_TypeError, "a Lua table is expected, not a Lua %s", mf__kind_name(value));
    mf__raise(L);
  }
  mf__value_push(L, value);
}

PyObject *mf__lua_object(lua_State *L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TTABLE:
      return mf__value_new(L, index, mf__table_type);
    case LUA_TFUNCTION:
      return mf__value_new(L, index, mf__function_type);
    case LUA_TTHREAD:
      return mf__thread_object(L, index);
    default:
      return mf__value_new(L, index, mf__object_type);
  }
}

int mf__push_lua_object(lua_State *L, PyObject *object) {
  if (!mf__is_value(object)) return 0;
  if (value_of(object)->state != mf__top->kit->state) {
    PyErr_SetString(mf__lua_error_type, "cannot mix objects from different Lua runtimes");
    mf__raise(L);
  }
  mf__value_push(L, value_of(object));
  return 1;
}

/* Calls. */

PyObject *mf__results(lua_State *L, int first) {
  int last = lua_gettop(L);
  if (last < first) {
    Py_IncRef(Py_None);
    return Py_None;
  }
  return last == first ? mf__to_python(L, first) : mf__to_tuple(L, first, last);
}

int mf__call_body(lua_State *L, void *data) {
  mf__call *call = data;
  int first = lua_gettop(L) + 1;
  if (call->count > 7000) mf__fail(L, "too many arguments");
  luaL_checkstack(L, (int)call->count + LUA_MINSTACK, "too many arguments");
  mf__value_push(L, call->callee);
  for (Py_ssize_t i = 0; i < call->count; i++) {
    Py_IncRef(call->arguments[i]);
    mf__to_lua(L, call->arguments[i]);
  }
  mf__run(L, (int)call->count, LUA_MULTRET);
  call->result = mf__results(L, first);
  return 0;
}

/* Handler, function and arguments, if nothing about them can raise; else the stack is as before. */
static int push_quickly(mf__frame *frame, mf__call *call) {
  lua_State *L = frame->L;
  if (call->count > LUA_MINSTACK || !mf__has_room(L, (int)call->count + MF__VISIT_ROOM)) return 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, frame->kit->handler);
  int pushed = mf__quick_push(L, frame->kit, (PyObject *)call->callee);
  for (Py_ssize_t i = 0; pushed && i < call->count; i++) pushed = mf__quick_push(L, frame->kit, call->arguments[i]);
  if (!pushed) lua_settop(L, frame->top);
  return pushed;
}

static int results_body(lua_State *L, void *data) {
  ((mf__call *)data)->result = mf__results(L, 1);
  return 0;
}

static int call_quickly(mf__frame *frame, mf__call *call) {
  lua_State *L = frame->L;
  mf__run_begin(frame);
  int status = lua_pcall(L, (int)call->count, LUA_MULTRET, frame->top + 1);
  if (mf__run_end(frame) && status == 0) return LUA_ERRRUN;
  if (status != 0) return status;
  int results = lua_gettop(L) - frame->top - 1;
  if (results <= 1 && mf__quick_take(L, frame->kit, frame->top + 2, &call->result)) return 0;
  status = mf__room(L, MF__VISIT_ROOM);
  return status == 0 ? mf__visit_body(frame, results_body, call, results) : status;
}

PyObject *mf__value_call(PyObject *self, PyObject *const *arguments, size_t flags, PyObject *names) {
  if (names != NULL && PyTuple_Size(names) > 0) {
    PyErr_SetString(PyExc_TypeError, "a Lua function takes no keyword arguments");
    return NULL;
  }
  size_t count = flags & ~((size_t)1 << (8 * sizeof flags - 1));
  mf__call call = {.callee = value_of(self), .arguments = arguments, .count = (Py_ssize_t)count};
  mf__frame frame;
  if (mf__visit_begin(call.callee->kit, &frame) == NULL) return NULL;
  int status =
      push_quickly(&frame, &call) ? call_quickly(&frame, &call) : mf__visit_body(&frame, mf__call_body, &call, 0);
  if (status != 0) mf__visit_fail(&frame, status);
  mf__visit_end(&frame);
  return status == 0 ? call.result : NULL;
}

/* For callers that know no vectorcall. */
static PyObject *value_tp_call(PyObject *self, PyObject *arguments, PyObject *keywords) {
  if (keywords != NULL && PyDict_Size(keywords) > 0) {
    PyErr_SetString(PyExc_TypeError, "a Lua function takes no keyword arguments");
    return NULL;
  }
  Py_ssize_t count = PyTuple_Size(arguments);
  PyObject **items = PyMem_Malloc(sizeof *items * (size_t)(count + 1));
  if (items == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) items[i] = PyTuple_GetItem(arguments, i);
  PyObject *result = PyObject_TypeCheck(self, mf__factory_type) ? mf__thread_start(self, arguments)
                                                                : mf__value_call(self, items, (size_t)count, NULL);
  PyMem_Free(items);
  return result;
}

/* Fields. */

struct access {
  mf__value *value;
  PyObject *key;   /* borrowed */
  PyObject *other; /* the value to set, borrowed; or the result, new */
};

static int index_now(lua_State *L) {
  lua_settop(L, 2);
  lua_gettable(L, 1);
  return 1;
}

static int get_body(lua_State *L, void *data) {
  struct access *access = data;
  mf__value_push(L, access->value);
  int at = lua_gettop(L);
  if (access->value->kind == LUA_TTABLE && !lua_getmetatable(L, at)) {
    mf__key_to_lua(L, access->key);
    mf__key_remember(L, access->key);
    lua_rawget(L, at);
  } else {
    lua_settop(L, at);
    lua_pushcfunction(L, index_now);
    lua_insert(L, at);
    mf__key_to_lua(L, access->key);
    mf__run(L, 2, 1);
  }
  access->other = mf__to_python(L, lua_gettop(L));
  return 0;
}

static int has_fields(mf__value *value, PyObject *error) {
  if (value->kind != LUA_TFUNCTION && value->kind != LUA_TTHREAD) return 1;
  PyErr_Format(error, "a Lua %s has no items or fields", value->kind == LUA_TFUNCTION ? "function" : "thread");
  return 0;
}

/* A field of a table without a metatable, by a key that is remembered or needs no memory. */
static int get_quickly(const mf__value *value, PyObject *key, PyObject **result) {
  if (value->kind != LUA_TTABLE) return 0;
  lua_State *L = mf__glance_begin(value->state);
  if (L == NULL) return 0;
  int top = lua_gettop(L), found = 0;
  if (mf__glance_table(L, value) && mf__glance_key(L, value->kit, key)) {
    lua_rawget(L, top + 1);
    found = mf__quick_take(L, value->kit, top + 2, result);
  }
  mf__glance_end(value->state, L, top);
  return found;
}

PyObject *mf__value_get(PyObject *self, PyObject *key) {
  struct access access = {value_of(self), key, NULL};
  if (get_quickly(access.value, key, &access.other)) return access.other;
  if (!has_fields(access.value, PyExc_TypeError)) return NULL;
  return mf__visit(access.value->kit, get_body, &access) == 0 ? access.other : NULL;
}

int mf__is_dunder(PyObject *name) {
  Py_ssize_t size = PyUnicode_GetLength(name);
  if (size < 4) return 0;
  return PyUnicode_ReadChar(name, 0) == '_' && PyUnicode_ReadChar(name, 1) == '_' &&
         PyUnicode_ReadChar(name, size - 1) == '_' && PyUnicode_ReadChar(name, size - 2) == '_';
}

/* What the types have as methods: asking Python for anything else first would cost an exception each time. */
static PyObject *method_names, *method_type;

static int find_method_type(void) {
  if (method_type != NULL) return 0;
  PyObject *types = PyImport_ImportModule("types");
  method_type = types != NULL ? PyObject_GetAttrString(types, "MethodType") : NULL;
  Py_DecRef(types);
  return method_type != NULL ? 0 : -1;
}

static int name_methods(void) {
  static const char *const names[] = {"keys", "values", "items", "coroutine", "send"};
  if (method_names != NULL) return 0;
  PyObject *list = PyList_New(0);
  for (int i = 0; list != NULL && i < 5; i++) {
    PyObject *name = PyUnicode_InternFromString(names[i]);
    if (name == NULL || PyList_Append(list, name) != 0) Py_CLEAR(list);
    Py_DecRef(name);
  }
  method_names = list != NULL ? PyFrozenSet_New(list) : NULL;
  Py_DecRef(list);
  return method_names != NULL ? 0 : -1;
}

/* What Python knows comes first; what it does not know may be a field in Lua. */
static PyObject *value_getattro(PyObject *self, PyObject *name) {
  if (mf__is_dunder(name) || PySet_Contains(method_names, name)) {
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found != NULL || mf__is_dunder(name) || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();
  }
  if (!has_fields(value_of(self), PyExc_AttributeError)) return NULL;
  PyObject *key = mf__source_name(value_of(self)->state, name);
  PyObject *result = key != NULL ? mf__value_get(self, key) : NULL;
  Py_DecRef(key);
  return result;
}

/* Text. */

static PyObject *value_repr(PyObject *self) {
  return PyUnicode_FromFormat("<Lua %s at %p>", mf__kind_name(value_of(self)), value_of(self)->identity);
}

static int str_body(lua_State *L, void *data) {
  struct access *access = data;
  mf__value_push(L, access->value);
  int at = lua_gettop(L);
  if (!luaL_getmetafield(L, at, "__tostring")) {
    access->other = mf__hold(L, value_repr((PyObject *)access->value));
    mf__take();
    return 0;
  }
  lua_insert(L, at);
  mf__run(L, 1, 1);
  size_t size;
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &size) : NULL;
  if (text == NULL) {
    PyErr_SetString(PyExc_TypeError, "__tostring returned non-string object");
    mf__raise(L);
  }
  access->other = mf__text_of_error(text, size);
  if (access->other == NULL) mf__raise(L);
  return 0;
}

static PyObject *value_str(PyObject *self) {
  struct access access = {value_of(self), NULL, NULL};
  return mf__visit(access.value->kit, str_body, &access) == 0 ? access.other : NULL;
}

static Py_hash_t value_hash(PyObject *self) {
  Py_hash_t hash = (Py_hash_t)((uintptr_t)value_of(self)->identity >> 4);
  return hash == -1 ? -2 : hash;
}

static PyObject *value_compare(PyObject *self, PyObject *other, int operation) {
  if (!mf__is_value(other) || (operation != Py_EQ && operation != Py_NE)) {
    Py_IncRef(Py_NotImplemented);
    return Py_NotImplemented;
  }
  mf__value *left = value_of(self), *right = value_of(other);
  int same = left->state == right->state && left->identity == right->identity;
  return PyBool_FromLong(same == (operation == Py_EQ));
}

static int value_bool(PyObject *self) {
  (void)self;
  return 1;
}

/* Length. */

static int length_body(lua_State *L, void *data) {
  struct access *access = data;
  mf__value_push(L, access->value);
  int at = lua_gettop(L);
  if (access->value->kind != LUA_TTABLE && luaL_getmetafield(L, at, "__len")) {
    lua_insert(L, at);
    mf__run(L, 1, 1);
  } else if (access->value->kind == LUA_TTABLE) {
    lua_pushnumber(L, (double)lua_objlen(L, at));
  } else {
    PyErr_Format(PyExc_TypeError, "a Lua %s has no length", mf__kind_name(access->value));
    mf__raise(L);
  }
  access->other = mf__to_python(L, lua_gettop(L));
  return 0;
}

static Py_ssize_t value_length(PyObject *self) {
  struct access access = {value_of(self), NULL, NULL};
  if (mf__visit(access.value->kit, length_body, &access) != 0) return -1;
  Py_ssize_t length = PyLong_AsSsize_t(access.other);
  Py_DecRef(access.other);
  if (length >= 0) return length;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the length of a Lua value is negative");
  return -1;
}

static PyObject *value_iter(PyObject *self) {
  const char *kind = mf__kind_name(value_of(self));
  PyErr_Format(PyExc_TypeError, "iteration is only supported for tables, not for a Lua %s", kind);
  return NULL;
}

/* Programs for lupa call it by this name. */
static PyObject *value_getattr_method(PyObject *self, PyObject *name) {
  if (PyUnicode_Check(name)) return value_getattro(self, name);
  PyErr_SetString(PyExc_TypeError, "attribute name must be string");
  return NULL;
}

static PyMethodDef object_methods[] = {{"__getattr__", value_getattr_method, METH_O, "A field of the Lua value."},
                                       {NULL, NULL, 0, NULL}};

static PyObject *function_coroutine(PyObject *self, PyObject *arguments) {
  return mf__thread_start(self, arguments);
}

PyObject *mf__no_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  (void)arguments;
  (void)keywords;
  PyErr_Format(PyExc_TypeError, "Lua makes these objects: %S cannot be called", (PyObject *)type);
  return NULL;
}

static PyMemberDef object_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(mf__value, weakrefs), READONLY, NULL}, {NULL, 0, 0, 0, NULL}};

static PyType_Slot object_slots[] = {{Py_tp_dealloc, mf__value_dealloc},
                                     {Py_tp_traverse, mf__value_traverse},
                                     {Py_tp_getattro, value_getattro},
                                     {Py_tp_new, mf__no_new},
                                     {Py_tp_methods, object_methods},
                                     {Py_tp_members, object_members},
                                     {Py_tp_call, value_tp_call},
                                     {Py_tp_repr, value_repr},
                                     {Py_tp_str, value_str},
                                     {Py_tp_hash, value_hash},
                                     {Py_tp_richcompare, value_compare},
                                     {Py_tp_iter, value_iter},
                                     {Py_nb_bool, value_bool},
                                     {Py_mp_length, value_length},
                                     {Py_mp_subscript, mf__value_get},
                                     {Py_tp_doc, "A Lua value in Python."},
                                     {0, NULL}};

/* A function of a Lua program is a method of the class that it is put into, as Python's are; one that Python got from
 * its own moonferry.Lua is none, as in lupa. */
static PyObject *function_bind(PyObject *self, PyObject *object, PyObject *type) {
  (void)type;
  int method = object != NULL && object != Py_None && value_of(self)->kit->policy->binds_functions;
  if (method) return PyObject_CallFunctionObjArgs(method_type, self, object, NULL);
  Py_IncRef(self);
  return self;
}

/* Spelt out: the limited API names them from 3.12 on, CPython has had them since 3.9. */
#define HAVE_VECTORCALL (1UL << 11)

static PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(mf__value, vectorcall), READONLY, NULL}, {NULL, 0, 0, 0, NULL}};

static PyMethodDef function_methods[] = {
    {"coroutine", function_coroutine, METH_VARARGS,
     "coroutine(*arguments): a coroutine of this function, which begins with them when it is first asked for a value."},
    {"__copy__", mf__function_itself, METH_NOARGS, "The function itself."},
    {"__deepcopy__", mf__function_itself, METH_O, "The function itself."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef function_fields[] = {
    {"__signature__", mf__function_signature, NULL, "The parameters by name.", NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot function_slots[] = {
    {Py_tp_dealloc, mf__value_dealloc}, {Py_tp_traverse, mf__value_traverse},    {Py_tp_call, value_tp_call},
    {Py_tp_descr_get, function_bind},   {Py_tp_members, function_members},       {Py_tp_getset, function_fields},
    {Py_tp_methods, function_methods},  {Py_tp_doc, "A Lua function: call it."}, {0, NULL}};

static PyType_Slot factory_slots[] = {{Py_tp_dealloc, mf__value_dealloc},
                                      {Py_tp_traverse, mf__value_traverse},
                                      {Py_tp_call, value_tp_call},
                                      {Py_tp_methods, function_methods},
                                      {Py_tp_doc, "A Lua coroutine that has not begun: each call begins another one."},
                                      {0, NULL}};

PyTypeObject *mf__value_subtype(const char *name, int basicsize, PyType_Slot *slots, unsigned long flags) {
  PyType_Spec spec = {.name = name,
                      .basicsize = basicsize,
                      .flags = (unsigned int)(Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | flags),
                      .slots = slots};
  PyObject *bases = mf__object_type != NULL ? PyTuple_Pack(1, mf__object_type) : NULL;
  PyObject *type = mf__object_type == NULL || bases != NULL ? PyType_FromSpecWithBases(&spec, bases) : NULL;
  Py_DecRef(bases);
  return (PyTypeObject *)type;
}

/* To a library (pandas asks so) what has __iter__ is a list of things, not a function. */
static int not_iterable(PyTypeObject *type) {
  return type != NULL ? PyObject_SetAttrString((PyObject *)type, "__iter__", Py_None) : -1;
}

int mf__object_types_ready(void) {
  int size = (int)sizeof(mf__value);
  if (name_methods() != 0 || find_method_type() != 0) return -1;
  if (mf__object_type == NULL) {
    mf__object_type = mf__value_subtype("moonferry.LuaObject", size, object_slots, Py_TPFLAGS_BASETYPE);
    if (mf__object_type == NULL) return -1;
  }
  if (mf__function_type == NULL) {
    mf__function_type = mf__value_subtype("moonferry.LuaFunction", size, function_slots, HAVE_VECTORCALL);
    if (not_iterable(mf__function_type) != 0) return -1;
  }
  if (mf__function_type != NULL && mf__factory_type == NULL)
    mf__factory_type = mf__value_subtype("moonferry.LuaCoroutineFunction", size, factory_slots, 0);
  return mf__factory_type != NULL ? 0 : -1;
}
