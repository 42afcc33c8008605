/* arguments.c: positional and keyword arguments in one Lua table: {1, 2, name = 3}.
 *
 * The keys 1 ... #t are positional, strings are keywords, any other key is an error. */
#include <math.h>

#include "runtime.h"

struct arguments {
  PyObject ob_base;
  PyObject *positional, *keywords;
};

static PyTypeObject *arguments_type;

/* A list, so that nil between does not end it; #t says how long it is. */
static void put_positional(lua_State *L, PyObject *list, double key, PyObject *value) {
  if (key != floor(key)) {
    PyErr_SetString(PyExc_TypeError, "table key is neither an integer nor a string");
    mf__raise(L);
  }
  if (key < 1 || key > (double)PyList_Size(list)) {
    PyErr_SetString(PyExc_IndexError, "table index out of range");
    mf__raise(L);
  }
  Py_IncRef(value);
  (void)PyList_SetItem(list, (Py_ssize_t)key - 1, value);
}

static void put_keyword(lua_State *L, PyObject *keywords, int key, PyObject *value) {
  const mf__options *options = &mf__top->bridge->state->options;
  size_t size;
  const char *text = lua_tolstring(L, key, &size);
  PyObject *name;
  MF__OUTSIDE(name, PyUnicode_Decode(text, (Py_ssize_t)size, options->source_encoding, NULL));
  mf__hold(L, name);
  if (Py_TYPE(name) != &PyUnicode_Type) {
    PyErr_SetString(PyExc_TypeError, "the codec of names gave a keyword that is no plain str");
    mf__raise(L);
  }
  const int there = PyDict_Contains(keywords, name);
  if (there > 0) PyErr_Format(PyExc_TypeError, "the codec of names gave the keyword '%U' for two keys", name);
  if (there != 0 || PyDict_SetItem(keywords, name, value) != 0) mf__raise(L);
  mf__drop();
}

/* Lua takes any index before a nil for the length, and finds it by doubling: 30 values are enough for one of 2^29,
 * whose nils take no memory of Lua's, but would take ours. */
static Py_ssize_t positional_count(lua_State *L, int index) {
  enum { FEW = 7000 };
  const Py_ssize_t count = (Py_ssize_t)lua_objlen(L, index);
  Py_ssize_t numbers = 0;
  if (count <= FEW) return count;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) numbers += lua_type(L, -2) == LUA_TNUMBER;
  if (numbers >= count / 2) return count;
  PyErr_Format(PyExc_ValueError, "the table means %zd arguments, most of which are nil", count);
  return mf__raise(L);
}

static PyObject *list_of_none(lua_State *L, Py_ssize_t count) {
  PyObject *list = mf__hold(L, PyList_New(count));
  for (Py_ssize_t i = 0; i < count; i++) {
    Py_IncRef(Py_None);
    (void)PyList_SetItem(list, i, Py_None);
  }
  return list;
}

void mf__arguments_of(lua_State *L, int index, PyObject **positional, PyObject **keywords) {
  mf__check_interrupt(L);
  PyObject *list = list_of_none(L, positional_count(L, index));
  *keywords = mf__hold(L, PyDict_New());
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    int key = lua_gettop(L) - 1;
    PyObject *value = mf__hold(L, mf__to_python(L, key + 1));
    if (lua_type(L, key) == LUA_TNUMBER) {
      put_positional(L, list, lua_tonumber(L, key), value);
    } else if (lua_type(L, key) == LUA_TSTRING) {
      put_keyword(L, *keywords, key, value);
    } else {
      PyErr_SetString(PyExc_TypeError, "table key is neither an integer nor a string");
      mf__raise(L);
    }
    mf__drop();
  }
  *positional = mf__hold(L, PyList_AsTuple(list));
}

PyObject *mf__arguments_new(PyObject *positional, PyObject *keywords) {
  struct arguments *made = (struct arguments *)PyType_GenericAlloc(arguments_type, 0);
  if (made == NULL) return NULL;
  Py_IncRef(positional);
  Py_IncRef(keywords);
  made->positional = positional;
  made->keywords = keywords;
  return (PyObject *)made;
}

int mf__arguments_in(PyObject *object, PyObject **positional, PyObject **keywords) {
  if (Py_TYPE(object) != arguments_type) return 0;
  *positional = ((struct arguments *)object)->positional;
  *keywords = ((struct arguments *)object)->keywords;
  return 1;
}

static void arguments_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_DecRef(((struct arguments *)self)->positional);
  Py_DecRef(((struct arguments *)self)->keywords);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DecRef((PyObject *)type);
}

static int arguments_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((struct arguments *)self)->positional);
  Py_VISIT(((struct arguments *)self)->keywords);
  return 0;
}

static PyType_Slot slots[] = {{Py_tp_dealloc, arguments_dealloc},
                              {Py_tp_traverse, arguments_traverse},
                              {Py_tp_new, mf__no_new},
                              {Py_tp_doc, "Arguments that python.args packed in Lua."},
                              {0, NULL}};

static PyType_Spec spec = {.name = "moonferry.LuaArguments",
                           .basicsize = sizeof(struct arguments),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           .slots = slots};

int mf__arguments_type_ready(void) {
  if (arguments_type == NULL) arguments_type = (PyTypeObject *)PyType_FromSpec(&spec);
  return arguments_type != NULL ? 0 : -1;
}
