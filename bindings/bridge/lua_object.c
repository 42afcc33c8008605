/* lua_object.c: makes the Python type of any Lua value: fields and items where Lua has some, text, length.
 *
 *   LuaObject                            the base of all: str, ==, hash, fields, items, calls
 *   LuaFunction, LuaCoroutineFunction    lua_function.c
 *   LuaTable                             lua_table.c
 *   LuaThread                            lua_thread.c
 *
 * Two objects are equal if they stand for the same Lua value. */
#include <stddef.h>

#include "objects.h"
/* Needs Python.h before it. */
#include <structmember.h>

static mf__value *value_of(PyObject *object) {
  return (mf__value *)object;
}

/* Fields. */

struct access {
  mf__value *value;
  PyObject *key;   /* borrowed */
  PyObject *other; /* the value to set, borrowed; or the result, new */
};

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
    mf__key_to_lua(L, access->key);
    mf__run_begin(mf__top);
    lua_gettable(L, at);
    mf__run_done(L);
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
static int get_unprotected(const mf__value *value, PyObject *key, PyObject **result) {
  if (value->kind != LUA_TTABLE) return 0;
  mf__section section;
  lua_State *L = mf__peek_begin(value->state, &section);
  if (L == NULL) return 0;
  int top = lua_gettop(L), found = 0;
  if (mf__peek_table(L, value) && mf__peek_key(L, value->bridge, key)) {
    lua_rawget(L, top + 1);
    found = mf__peek_take(L, value->bridge, top + 2, result);
  }
  mf__peek_end(value->state, L, top, &section);
  return found;
}

PyObject *mf__value_get(PyObject *self, PyObject *key) {
  struct access access = {value_of(self), key, NULL};
  if (get_unprotected(access.value, key, &access.other)) return access.other;
  if (!has_fields(access.value, PyExc_TypeError)) return NULL;
  if (PyObject_TypeCheck(key, &PySlice_Type)) {
    PyErr_SetString(PyExc_TypeError, "a Lua table has no slices; list(table.values())[...] takes one");
    return NULL;
  }
  return mf__call_in_by(access.value, get_body, &access) == 0 ? access.other : NULL;
}

int mf__is_dunder(PyObject *name) {
  Py_ssize_t size = PyUnicode_GetLength(name);
  if (size < 4) return 0;
  return PyUnicode_ReadChar(name, 0) == '_' && PyUnicode_ReadChar(name, 1) == '_' &&
         PyUnicode_ReadChar(name, size - 1) == '_' && PyUnicode_ReadChar(name, size - 2) == '_';
}

/* What the types have as methods: asking Python for anything else first would cost an exception each time. */
static PyObject *method_names;

static int name_methods(void) {
  if (method_names != NULL) return 0;
  PyObject *names = Py_BuildValue("(sssssss)", "keys", "values", "items", "coroutine", "send", "throw", "close");
  method_names = names != NULL ? PyFrozenSet_New(names) : NULL;
  Py_DecRef(names);
  return method_names != NULL ? 0 : -1;
}

/* What Python knows comes first; what it does not know may be a field in Lua. Who asks by __getattribute__, or by
 * __getattr__ as programs for lupa do, may ask for anything. */
static PyObject *value_getattro(PyObject *self, PyObject *name) {
  if (!PyUnicode_Check(name)) {
    PyErr_SetString(PyExc_TypeError, "attribute name must be string");
    return NULL;
  }
  const int is_dunder = mf__is_dunder(name), is_method = is_dunder ? 0 : PySet_Contains(method_names, name);
  if (is_method < 0) return NULL; /* the name is of a class with a __hash__ of its own */
  if (is_dunder || is_method) {
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found != NULL || is_dunder || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
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
  access->other = mf__hold(L, mf__text_of_error(text, size));
  mf__take();
  return 0;
}

static PyObject *value_str(PyObject *self) {
  struct access access = {value_of(self), NULL, NULL};
  return mf__call_in_by(access.value, str_body, &access) == 0 ? access.other : NULL;
}

/* Never negative, so that it is none of the hashes which mean an error. */
static Py_hash_t value_hash(PyObject *self) {
  return (Py_hash_t)((uintptr_t)value_of(self)->identity >> 4);
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
  if (mf__call_in_by(access.value, length_body, &access) != 0) return -1;
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

static PyMethodDef object_methods[] = {{"__getattr__", value_getattro, METH_O, "A field of the Lua value."},
                                       {NULL, NULL, 0, NULL}};

static PyMemberDef object_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(mf__value, weakrefs), READONLY, NULL}, {NULL, 0, 0, 0, NULL}};

static PyType_Slot object_slots[] = {{Py_tp_dealloc, mf__value_dealloc},
                                     {Py_tp_traverse, mf__value_traverse},
                                     {Py_tp_getattro, value_getattro},
                                     {Py_tp_new, mf__no_new},
                                     {Py_tp_methods, object_methods},
                                     {Py_tp_members, object_members},
                                     {Py_tp_call, mf__value_tp_call},
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

int mf__object_type_ready(void) {
  if (name_methods() != 0) return -1;
  if (mf__object_type == NULL)
    mf__object_type = mf__value_subtype("moonferry.LuaObject", sizeof(mf__value), object_slots, Py_TPFLAGS_BASETYPE);
  return mf__object_type != NULL ? 0 : -1;
}
