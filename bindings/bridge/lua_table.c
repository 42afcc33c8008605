/* lua_table.c: makes the Python type of Lua tables: items, fields, and iteration over keys, values or both.
 *
 * A lookup of an absent key gives None, as Lua gives nil; None as a key is the bridge's None, because nil cannot be a
 * key. Metamethods are honoured, and run without the GIL. */
#include <math.h>

#include "objects.h"

struct access {
  mf__value *table;
  PyObject *key, *value; /* borrowed; without a value the key is removed */
  int found;
};

static mf__value *table_of(PyObject *object) {
  return (mf__value *)object;
}

/* Begins with an empty stack, so that the table is at 1. */
static int set_body(lua_State *L, void *data) {
  struct access *access = data;
  mf__table_push(L, access->table);
  mf__key_to_lua(L, access->key);
  mf__key_remember(L, access->key);
  if (access->value != NULL) {
    Py_IncRef(access->value);
    mf__to_lua(L, access->value);
  } else {
    lua_pushnil(L);
  }
  if (!lua_getmetatable(L, 1)) {
    lua_rawset(L, 1);
    return 0;
  }
  lua_pop(L, 1);
  mf__run_begin(mf__top);
  lua_settable(L, 1);
  mf__run_done(L);
  return 0;
}

/* A field that is there already, so that the table need not grow. */
static int set_unprotected(const mf__value *table, PyObject *key, PyObject *value) {
  mf__section section;
  lua_State *L = value != NULL ? mf__peek_begin(table->state, &section) : NULL;
  if (L == NULL) return 0;
  int top = lua_gettop(L), there = 0;
  if (mf__peek_table(L, table) && mf__peek_key(L, table->bridge, key)) {
    lua_pushvalue(L, top + 2);
    lua_rawget(L, top + 1);
    there = !lua_isnil(L, -1);
    lua_settop(L, top + 2);
    there = there && mf__peek_push(L, table->bridge, value);
    if (there) lua_rawset(L, top + 1);
  }
  mf__peek_end(table->state, L, top, &section);
  return there;
}

static int table_set(PyObject *self, PyObject *key, PyObject *value) {
  struct access access = {table_of(self), key, value, 0};
  if (set_unprotected(access.table, key, value)) return 0;
  return mf__call_in_by(access.table, set_body, &access);
}

static int table_setattro(PyObject *self, PyObject *name, PyObject *value) {
  if (!PyUnicode_Check(name) || mf__is_dunder(name)) return PyObject_GenericSetAttr(self, name, value);
  PyObject *key = mf__source_name(table_of(self)->state, name);
  int status = key != NULL ? table_set(self, key, value) : -1;
  Py_DecRef(key);
  return status;
}

static int has_body(lua_State *L, void *data) {
  struct access *access = data;
  mf__table_push(L, access->table);
  mf__key_to_lua(L, access->key);
  lua_rawget(L, -2);
  access->found = !lua_isnil(L, -1);
  return 0;
}

static int table_contains(PyObject *self, PyObject *key) {
  struct access access = {table_of(self), key, NULL, 0};
  return mf__call_in_by(access.table, has_body, &access) == 0 ? access.found : -1;
}

/* Iteration. */

enum { KEYS, VALUES, ITEMS };

struct iterator {
  PyObject ob_base;
  mf__value *table; /* NULL at the end */
  int what;
  int length;   /* of the elements 1 ... n, which come first; -1 until the first step */
  int index;    /* the last of them */
  int in_order; /* lua_next gives 1, 2 ... index first of all, so that nothing was passed over */
  int ref;      /* then the last key in the registry; LUA_NOREF before the first step */
};

struct step {
  struct iterator *iterator;
  PyObject *result;
};

static PyObject *item_at(lua_State *L, int key, int what) {
  if (what == KEYS) return mf__to_python(L, key);
  if (what == VALUES) return mf__to_python(L, key + 1);
  return mf__to_tuple(L, key, key + 1);
}

/* What was taken out of the iterator ends with it. */
static void finish(struct iterator *iterator) {
  mf__value *table = iterator->table;
  iterator->table = NULL;
  if (table == NULL) return;
  if (iterator->ref != LUA_NOREF) mf__state_unref(table->state, iterator->ref);
  Py_DecRef((PyObject *)table);
}

/* Whether the pair at the top came before as an element; then its value is popped. */
static int was_element(lua_State *L, const struct iterator *iterator) {
  double key = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
  if (!(key >= 1 && key <= iterator->index) || key != floor(key)) return 0;
  lua_pop(L, 1);
  return 1;
}

/* Where lua_next goes on: after the elements if they came first, else from the beginning. */
static void push_last_key(lua_State *L, const struct iterator *iterator, int table) {
  if (iterator->ref != LUA_NOREF) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, iterator->ref);
    return;
  }
  lua_rawgeti(L, table, iterator->index);
  int there = iterator->in_order && iterator->index > 0 && !lua_isnil(L, -1);
  lua_pop(L, 1);
  if (there) {
    lua_pushnumber(L, iterator->index);
  } else {
    lua_pushnil(L);
  }
}

static int step_body(lua_State *L, void *data) {
  struct step *step = data;
  struct iterator *iterator = step->iterator;
  if (iterator->table == NULL) return 0;
  mf__table_push(L, iterator->table);
  int table = lua_gettop(L);
  push_last_key(L, iterator, table);
  do {
    if (!lua_next(L, table)) {
      finish(iterator);
      return 0;
    }
  } while (was_element(L, iterator));
  /* What the conversion runs may step further, or to the end. */
  lua_pushvalue(L, table + 1);
  if (iterator->ref == LUA_NOREF) {
    iterator->ref = mf__anchor(L, mf__top->state);
  } else {
    lua_rawseti(L, LUA_REGISTRYINDEX, iterator->ref);
  }
  step->result = item_at(L, table + 1, iterator->what);
  return 0;
}

/* Pushes the element after the last one if it is also what lua_next gives after that; else pushes anything. What is
 * there is a key that lua_next takes, so this does not raise. */
static int push_in_order(lua_State *L, const struct iterator *iterator, int table) {
  if (iterator->index == 0) {
    lua_pushnil(L);
  } else {
    lua_rawgeti(L, table, iterator->index);
    if (lua_isnil(L, -1)) return 0;
    lua_pushnumber(L, iterator->index);
  }
  return lua_next(L, table) && lua_type(L, -2) == LUA_TNUMBER && lua_tonumber(L, -2) == iterator->index + 1;
}

/* Pushes the table, maybe more, and the next one of the elements 1 ... n; returns 0 after the last. Never raises. */
static int push_element(lua_State *L, struct iterator *iterator) {
  if (iterator->ref != LUA_NOREF || iterator->index == iterator->length) return 0;
  lua_rawgeti(L, LUA_REGISTRYINDEX, iterator->table->ref);
  if (!lua_istable(L, -1)) return 0;
  int table = lua_gettop(L);
  if (iterator->length < 0) iterator->length = (int)lua_objlen(L, table);
  if (iterator->index == iterator->length) return 0;
  if (iterator->in_order) {
    iterator->in_order = push_in_order(L, iterator, table);
    if (iterator->in_order) return ++iterator->index;
    lua_settop(L, table);
  }
  lua_rawgeti(L, table, iterator->index + 1);
  if (!lua_isnil(L, -1)) return ++iterator->index;
  iterator->length = iterator->index;
  return 0;
}

/* What the step to the element at ${at} gives, of its ${value}: taken over, unused for keys, maybe NULL with an
 * exception. */
static PyObject *element(int what, int at, PyObject *value) {
  if (what == KEYS) return PyLong_FromLong(at);
  if (what == VALUES || value == NULL) return value;
  PyObject *index = PyLong_FromLong(at);
  PyObject *pair = index != NULL ? PyTuple_New(2) : NULL;
  if (pair == NULL) {
    Py_DecRef(index);
    Py_DecRef(value);
    return NULL;
  }
  PyTuple_SetItem(pair, 0, index);
  PyTuple_SetItem(pair, 1, value);
  return pair;
}

/* An element that can be had without a call into Lua, and without running Python code, which might end the iterator. */
static int next_unprotected(struct iterator *iterator, PyObject **value) {
  mf__state *state = iterator->table->state;
  const mf__bridge *bridge = iterator->table->bridge;
  mf__section section;
  lua_State *L = mf__peek_begin(state, &section);
  if (L == NULL) return 0;
  int top = lua_gettop(L), before = iterator->index;
  int taken =
      push_element(L, iterator) && (iterator->what == KEYS || mf__peek_take(L, bridge, lua_gettop(L), value));
  if (!taken) iterator->index = before;
  mf__peek_end(state, L, top, &section);
  return taken;
}

static int next_body(lua_State *L, void *data) {
  struct step *step = data;
  struct iterator *iterator = step->iterator;
  if (iterator->table == NULL) return 0;
  int top = lua_gettop(L);
  if (!push_element(L, iterator)) {
    lua_settop(L, top);
    return step_body(L, step);
  }
  /* Kept here, because what the conversion runs may step further. */
  const int at = iterator->index;
  PyObject *value = iterator->what == KEYS ? NULL : mf__to_python(L, lua_gettop(L));
  step->result = element(iterator->what, at, value);
  if (step->result == NULL) mf__raise(L);
  return 0;
}

/* Whether there is a step left to do; then the caller has a reference to the table, because the iterator lets go of it
 * at the end. Else ${result} is what the step gives. */
static int has_step_left(struct iterator *iter, mf__value **table, PyObject **result) {
  mf__section section;
  PyObject *value = NULL;
  mf__section_begin(&section);
  const int at_end = iter->table == NULL, taken = !at_end && next_unprotected(iter, &value);
  if (taken) *result = element(iter->what, iter->index, value);
  *table = iter->table;
  if (!at_end && !taken) Py_IncRef((PyObject *)*table);
  mf__section_end(&section);
  return !at_end && !taken;
}

static PyObject *iterator_next(PyObject *self) {
  struct step step = {(struct iterator *)self, NULL};
  mf__value *table;
  if (!has_step_left(step.iterator, &table, &step.result)) return step.result;
  /* What runs meanwhile may let go of the iterator. */
  Py_IncRef(self);
  (void)mf__call_in(table->bridge, next_body, &step); /* which makes the result at its very end, or none */
  Py_DecRef((PyObject *)table);
  Py_DecRef(self);
  return step.result;
}

static PyObject *new_iterator(PyObject *self, int what) {
  struct iterator *iter = (struct iterator *)PyType_GenericAlloc(mf__iterator_type, 0);
  if (iter == NULL) return NULL;
  Py_IncRef(self);
  iter->table = table_of(self);
  iter->ref = LUA_NOREF;
  iter->length = -1;
  iter->in_order = 1;
  iter->what = what;
  return (PyObject *)iter;
}

static PyObject *table_keys(PyObject *self, PyObject *ignored) {
  (void)ignored;
  return new_iterator(self, KEYS);
}

static PyObject *table_values(PyObject *self, PyObject *ignored) {
  (void)ignored;
  return new_iterator(self, VALUES);
}

static PyObject *table_items(PyObject *self, PyObject *ignored) {
  (void)ignored;
  return new_iterator(self, ITEMS);
}

static PyObject *table_iter(PyObject *self) {
  return new_iterator(self, KEYS);
}

static void iterator_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  mf__section section;
  PyObject_GC_UnTrack(self);
  mf__section_begin(&section);
  finish((struct iterator *)self);
  mf__section_end(&section);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DecRef((PyObject *)type);
}

static int iterator_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)((struct iterator *)self)->table);
  return 0;
}

static PyObject *iterator_repr(PyObject *self) {
  mf__section section;
  mf__section_begin(&section);
  const mf__value *table = ((struct iterator *)self)->table;
  PyObject *text = PyUnicode_FromFormat("LuaIter(%R)", table != NULL ? (const PyObject *)table : Py_None);
  mf__section_end(&section);
  return text;
}

static PyMethodDef methods[] = {
    {"keys", table_keys, METH_NOARGS, "Returns an iterator over the keys, as iter(table) does."},
    {"values", table_values, METH_NOARGS, "Returns an iterator over the values."},
    {"items", table_items, METH_NOARGS, "Returns an iterator over the pairs (key, value)."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot table_slots[] = {
    {Py_tp_dealloc, mf__value_dealloc},
    {Py_tp_traverse, mf__value_traverse},
    {Py_tp_setattro, table_setattro},
    {Py_tp_iter, table_iter},
    {Py_tp_methods, methods},
    {Py_mp_ass_subscript, table_set},
    {Py_mp_subscript, mf__value_get},
    {Py_sq_contains, table_contains},
    {Py_tp_doc, "A Lua table. t[key] and, for names, t.name are its items. Indices count from 1."},
    {0, NULL}};

static PyType_Slot iterator_slots[] = {{Py_tp_dealloc, iterator_dealloc}, {Py_tp_traverse, iterator_traverse},
                                       {Py_tp_iter, PyObject_SelfIter},   {Py_tp_iternext, iterator_next},
                                       {Py_tp_repr, iterator_repr},       {Py_tp_doc, "Goes through a Lua table."},
                                       {Py_tp_new, mf__no_new},           {0, NULL}};

static PyType_Spec iterator_spec = {.name = "moonferry.LuaIter",
                                    .basicsize = sizeof(struct iterator),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                    .slots = iterator_slots};

int mf__table_types_ready(void) {
  if (mf__table_type == NULL)
    mf__table_type = mf__value_subtype("moonferry.LuaTable", sizeof(mf__value), table_slots, 0);
  if (mf__table_type == NULL) return -1;
  mf__iterator_type = (PyTypeObject *)PyType_FromSpec(&iterator_spec);
  return mf__iterator_type != NULL ? 0 : -1;
}
