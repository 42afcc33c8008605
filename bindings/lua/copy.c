/* copy.c: the conversions of moonferry.python, which copies plain values and tables.
 *
 *   Lua -> Python                                     Python -> Lua
 *   nil                     None                      None               py.None, always: nil would vanish from
 *   boolean                 bool                                         argument lists, tables and loops
 *   number, whole and at    int (but -0 is a float)   bool               boolean
 *   most 2^53 in size                                 int                number up to 2^53 in size, where a double
 *   other number            float                                        is exact; else a Python object
 *   string                  str; it must be UTF-8     float              number
 *   table 1 ... n           list, and so on inside    str                string in UTF-8; one with lone surrogates
 *   table without such keys dict                                         stays a Python object
 *   int64_t, uint64_t cdata int; complex: complex;    bytes              string
 *                           other numbers: as such    moonferry.Tensor   a Lua tensor over the same memory
 *   tensor, stream          moonferry's, the same     a Lua object       the Lua value that it stands for
 *   Python object           itself                    anything else      a Python object; so are instances of
 *   anything else           an object that stands                        subclasses, which know more than their value
 *                           for it (lua_object.c)
 *
 * What is plain of these is plain.c's. Tables nested more than 80 deep, as one is that contains itself, are an error.
 * Must not know: who calls, and why. */
#include "copy.h"

/* Python -> Lua. */

static void push(lua_State *L, PyObject *object) {
  if (Py_TYPE(object) == &PyBytes_Type) {
    mf__push_bytes(L, object);
  } else if (Py_TYPE(object) == &PyUnicode_Type) {
    if (mf__push_utf8(L, object)) return;
    if (!answer_is_no()) mf__raise(L);
    mf__push_object(L, object);
  } else if (!mf__push_lua_object(L, object) && !mf__tensor_to_lua(L, object)) {
    mf__push_object(L, object);
  }
}

static int push_thrown(lua_State *L, PyObject *exception) {
  PyObject *value = mf__thrown_value(exception);
  if (value == NULL) return 0;
  mf__push_thrown(L, value);
  return 1;
}

/* Lua -> Python. */

/* Begins the copying of a table; raises if tables are nested so deeply that one most likely contains itself. */
static void nest(lua_State *L) {
  mf__check_interrupt(L);
  if (mf__top->nesting == MF__NESTING_MAX)
    mf__fail(L, "a table is nested more than %d deep, or contains itself", MF__NESTING_MAX);
  mf__top->nesting++;
  luaL_checkstack(L, 8, "a table is nested too deeply");
}

static void unnest(void) {
  mf__top->nesting--;
}

PyObject *mf__to_list(lua_State *L, int index, int count) {
  nest(L);
  PyObject *list = mf__hold(L, PyList_New(count));
  for (int i = 0; i < count; i++) {
    lua_rawgeti(L, index, i + 1);
    if (PyList_SetItem(list, i, mf__to_python(L, lua_gettop(L))) != 0) mf__raise(L);
    lua_pop(L, 1);
  }
  unnest();
  return mf__take();
}

/* What is entered is compared with the keys that the dict has. */
PyObject *mf__to_dict(lua_State *L, int index, int keywords) {
  nest(L);
  PyObject *dict = mf__hold(L, PyDict_New());
  Py_ssize_t count = 0;
  int inert = 1;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    int at = lua_gettop(L);
    if (keywords && lua_type(L, at - 1) != LUA_TSTRING)
      mf__fail(L, "a keyword must be a string, got %s", luaL_typename(L, at - 1));
    PyObject *key = mf__hold(L, mf__to_python(L, at - 1));
    PyObject *value = mf__hold(L, mf__to_python(L, at));
    int failed;
    inert = inert && mf__is_inert(key);
    if (inert) {
      failed = PyDict_SetItem(dict, key, value);
    } else {
      MF__OUTSIDE(failed, PyDict_SetItem(dict, key, value));
    }
    if (failed) mf__raise(L);
    if (PyDict_Size(dict) != ++count) mf__fail(L, "two keys of a table are equal in Python, as true and 1 are");
    mf__drop();
    mf__drop();
  }
  unnest();
  return mf__take();
}

/* Whether the number at the top but one is one of 1 ... ${count}. */
static int is_place(lua_State *L, int count) {
  const double key = lua_tonumber(L, -2);
  return key >= 1 && key <= count && key == (int)key;
}

/* Decides what a table becomes in Python: returns the length of a list, or -1 for a dict. A list has the keys 1 ... n
 * and no others, a dict has none of them. Where a table has holes, Lua takes any of them for its end, so that its keys
 * are counted. */
int mf__list_count(lua_State *L, int index) {
  int count = (int)lua_objlen(L, index);
  int places = 0, numbers = 0, other = 0;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TNUMBER) {
      places += is_place(L, count);
      numbers++;
    } else {
      other++;
    }
  }
  if (numbers == 0 && other > 0) return -1;
  if (other > 0) {
    mf__fail(L,
             "a table with keys both of 1 ... n and others cannot be passed to Python as it is: "
             "say py.dict, or py.kw for keyword arguments (which come last)");
  }
  if (places != count || numbers != count)
    mf__fail(L, "a list with holes cannot be passed to Python: fill them with py.None, or say py.list(t, n), py.dict");
  return count;
}

static PyObject *from_table(lua_State *L, int index) {
  if (lua_getmetatable(L, index)) {
    lua_pop(L, 1);
    return mf__described_to_python(L, index);
  }
  int count = mf__list_count(L, index);
  return count < 0 ? mf__to_dict(L, index, 0) : mf__to_list(L, index, count);
}

static PyObject *from_userdata(lua_State *L, int index) {
  mf__ref *ref = mf__ref_at(L, index);
  if (ref == NULL) return mf__lua_object(L, index);
  Py_IncRef(ref->object);
  return ref->object;
}

static PyObject *take(lua_State *L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TTABLE:
      return from_table(L, index);
    case LUA_TUSERDATA:
      return from_userdata(L, index);
    case LUA_TFUNCTION:
    case LUA_TTHREAD:
      return mf__lua_object(L, index);
    default:
      return mf__described_to_python(L, index);
  }
}

const mf__policy mf__copy_policy = {
    .push = push, .take = take, .thrown = push_thrown, .whole_below = 0x1p53 + 2, .binds_functions = 1};
