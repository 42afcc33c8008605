/* index.c: t[key], t[key] = value, len(t): basic indexing, with NumPy's meaning.
 *
 * Invariant: a key becomes mf_index items in one pass, and the runtime gets all of them in one call; what
 * an index means is decided there. It must not know how elements are stored.
 */
#include "core.h"

enum { MAX_ITEMS = 2 * MF_MAX_NDIM + 1 };

typedef struct index_key {
  int32_t count;
  int32_t coordinates; /* how many items are plain integers */
  mf_index items[MAX_ITEMS];
} index_key;

static int read_bound(PyObject *obj, int64_t *out) {
  *out = MF_INDEX_NONE;
  if (obj == Py_None) return 0;
  if (!PyIndex_Check(obj)) {
    PyErr_Format(PyExc_TypeError, "a slice takes integers or None, not '%s'", Py_TYPE(obj)->tp_name);
    return -1;
  }
  Py_ssize_t value = PyNumber_AsSsize_t(obj, NULL); /* clips, as Python's slices do */
  if (value == -1 && PyErr_Occurred()) return -1;
  *out = value == INT64_MIN ? INT64_MIN + 1 : value;
  return 0;
}

static int read_slice(PyObject *obj, mf_index *item) {
  PySliceObject *slice = (PySliceObject *)obj;
  item->kind = MF_INDEX_SLICE;
  if (read_bound(slice->start, &item->start) < 0) return -1;
  if (read_bound(slice->stop, &item->stop) < 0) return -1;
  return read_bound(slice->step, &item->step);
}

/* An array of one element with axes, which may have __index__, as PyTorch's: NumPy takes it as an array. 1, 0 or -1. */
static int has_axes(PyObject *obj) {
  const PySequenceMethods *sequence = Py_TYPE(obj)->tp_as_sequence;
  const PyMappingMethods *mapping = Py_TYPE(obj)->tp_as_mapping;
  const bool has_length =
      (sequence != NULL && sequence->sq_length != NULL) || (mapping != NULL && mapping->mp_length != NULL);
  return PyLong_Check(obj) || !has_length ? 0 : answer_has_length(obj);
}

/* An array or a list of coordinates or of bools, which NumPy would take. */
static int refuse_coordinate(PyObject *obj) {
  const int axes = PySequence_Check(obj) ? 1 : has_axes(obj);
  if (axes < 0) return -1;
  const bool several = axes > 0 && !PyUnicode_Check(obj) && !PyBytes_Check(obj);
  PyErr_Format(PyExc_IndexError, "an index must be an integer, a slice, ... or None, not '%s'%s", Py_TYPE(obj)->tp_name,
               several ? "; np.asarray(t)[...] takes lists, masks and arrays" : "");
  return -1;
}

static int read_coordinate(PyObject *obj, mf_index *item) {
  const int axes = PyBool_Check(obj) || !PyIndex_Check(obj) ? 1 : has_axes(obj);
  if (axes < 0) return -1;
  if (axes > 0) return refuse_coordinate(obj);
  PyObject *number = PyNumber_Index(obj);
  if (number == NULL) {
    const bool array = PyErr_ExceptionMatches(PyExc_TypeError) && PySequence_Check(obj);
    return array ? refuse_coordinate(obj) : -1;
  }
  int overflow;
  item->start = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow != 0) core_raise_too_large(PyExc_IndexError, "an index", number);
  Py_DECREF(number);
  return overflow != 0 ? -1 : 0;
}

static int read_item(index_key *key, PyObject *obj) {
  if (key->count == MAX_ITEMS) {
    PyErr_Format(PyExc_IndexError, "an index has more than %d items", MAX_ITEMS);
    return -1;
  }
  mf_index *item = &key->items[key->count++];
  *item = (mf_index){.kind = MF_INDEX_AT};
  if (PySlice_Check(obj)) return read_slice(obj, item);
  if (obj == Py_None || obj == Py_Ellipsis) {
    item->kind = obj == Py_None ? MF_INDEX_NEWAXIS : MF_INDEX_ELLIPSIS;
    return 0;
  }
  key->coordinates++;
  return read_coordinate(obj, item);
}

static int read_key(PyObject *obj, index_key *key) {
  key->count = key->coordinates = 0;
  if (!PyTuple_Check(obj)) return read_item(key, obj);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(obj); i++)
    if (read_item(key, PyTuple_GET_ITEM(obj, i)) < 0) return -1;
  return 0;
}

/* Whether the key names one element: then NumPy gives a scalar, not a view. */
static int names_element(const index_key *key, const mf_tensor *t) {
  return key->coordinates == key->count && key->count == mf_tensor_dltensor(t)->ndim;
}

static void read_coordinates(const index_key *key, int64_t *coords) {
  for (int32_t i = 0; i < key->count; i++) coords[i] = key->items[i].start;
}

static PyObject *get_view(PyObject *self, const index_key *key) {
  mf_error err;
  mf_tensor *out;
  int status = mf_tensor_index(core_handle(self), key->items, key->count, &out, &err);
  return core_wrap_view(self, status, out, &err);
}

/* Memory that a driver knows may have to be waited for, and another thread's Python may be what it waits for. */
static int get_element(const mf_tensor *t, const int64_t *coords, int32_t n, mf_scalar *out, mf_error *err) {
  if (!mf_tensor_is_ordered(t)) return mf_tensor_get(t, coords, n, out, err);
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_tensor_get(t, coords, n, out, err);
  PyEval_RestoreThread(saved);
  return status;
}

static int set_element(mf_tensor *t, const int64_t *coords, int32_t n, const mf_scalar *value, mf_error *err) {
  if (!mf_tensor_is_ordered(t)) return mf_tensor_put(t, coords, n, value, err);
  PyThreadState *saved = PyEval_SaveThread();
  const int status = mf_tensor_put(t, coords, n, value, err);
  PyEval_RestoreThread(saved);
  return status;
}

static PyObject *get_by_key(PyObject *self, const index_key *key) {
  mf_tensor *t = core_handle(self);
  if (!names_element(key, t)) return get_view(self, key);
  int64_t coords[MF_MAX_NDIM];
  mf_scalar value;
  mf_error err;
  read_coordinates(key, coords);
  int status = get_element(t, coords, key->count, &value, &err);
  if (status == MF_OK) return core_scalar_to_python(&value);
  /* A dtype without arithmetic has no Python number: a view of the one element is what is left. */
  if (status == MF_EDTYPE) return get_view(self, key);
  core_raise(core_state_of_tensor(self), &err);
  return NULL;
}

static PyObject *getitem(PyObject *self, PyObject *obj) {
  index_key key;
  return read_key(obj, &key) < 0 ? NULL : get_by_key(self, &key);
}

CORE_PLAIN(core_getitem, getitem)

PyObject *core_sequence_item(PyObject *self, Py_ssize_t i) {
  index_key key;
  key.count = key.coordinates = 1;
  key.items[0] = (mf_index){.kind = MF_INDEX_AT, .start = i};
  if (core_enter(self) < 0) return NULL;
  PyObject *item = get_by_key(self, &key);
  core_leave(self);
  return item;
}

static int put_element(PyObject *self, const index_key *key, PyObject *value) {
  core_state *state = core_state_of_tensor(self);
  int64_t coords[MF_MAX_NDIM];
  mf_scalar scalar;
  mf_error err;
  if (core_scalar_for(state, value, core_view(self)->dtype, &scalar) < 0) return -1;
  read_coordinates(key, coords);
  const int status = set_element(core_handle(self), coords, key->count, &scalar, &err);
  return status == MF_OK ? 0 : core_raise(state, &err);
}

static int fill_with(core_state *state, mf_tensor *target, PyObject *value) {
  mf_scalar scalar;
  mf_error err;
  if (core_scalar_for(state, value, mf_tensor_dltensor(target)->dtype, &scalar) < 0) return -1;
  return core_fill(target, &scalar, &err) == MF_OK ? 0 : core_raise(state, &err);
}

/* ${source} without the leading axes of extent 1 that ${target} has no place for. */
static int drop_leading(mf_tensor *source, int32_t ndim, mf_tensor **out, mf_error *err) {
  const DLTensor *view = mf_tensor_dltensor(source);
  int32_t axes[MF_MAX_NDIM];
  int32_t n = 0;
  while (view->ndim - n > ndim && view->shape[n] == 1) {
    axes[n] = n;
    n++;
  }
  if (n == 0) {
    *out = mf_tensor_retain(source);
    return MF_OK;
  }
  return mf_tensor_squeeze(source, axes, n, out, err);
}

static int refuse_shape(const mf_tensor *source, const DLTensor *to) {
  const DLTensor *from = mf_tensor_dltensor(source);
  PyObject *given = core_int_tuple(from->shape, from->ndim, 1), *wanted = core_int_tuple(to->shape, to->ndim, 1);
  if (given != NULL && wanted != NULL)
    PyErr_Format(PyExc_ValueError, "elements of shape %R do not broadcast to shape %R", given, wanted);
  Py_XDECREF(given);
  Py_XDECREF(wanted);
  return -1;
}

static bool same_shape(const DLTensor *a, const DLTensor *b) {
  if (a->ndim != b->ndim) return false;
  for (int32_t i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i]) return false;
  return true;
}

/* ${source} with the shape of ${to}: itself where it has that already, or a view. */
static int broadcast(core_state *state, mf_tensor *source, const DLTensor *to, mf_tensor **out) {
  mf_error err;
  mf_tensor *fitting;
  if (same_shape(mf_tensor_dltensor(source), to)) {
    *out = mf_tensor_retain(source);
    return 0;
  }
  if (drop_leading(source, to->ndim, &fitting, &err) != MF_OK) return core_raise(state, &err);
  const int status = mf_tensor_broadcast_to(fitting, to->shape, to->ndim, out, &err);
  mf_tensor_release(fitting);
  if (status == MF_EINVAL) return refuse_shape(source, to);
  return status == MF_OK ? 0 : core_raise(state, &err);
}

static int copy_broadcast(core_state *state, mf_tensor *target, mf_tensor *source, PyObject *progress) {
  mf_error err;
  mf_tensor *wide;
  if (broadcast(state, source, mf_tensor_dltensor(target), &wide) < 0) return -1;
  int rc;
  if (progress != NULL)
    rc = core_copy_watched(state, target, wide, progress);
  else
    rc = core_cast(target, wide, &err) == MF_OK ? 0 : core_raise(state, &err);
  core_release_quietly(wide);
  return rc;
}

/* An array as it is, to be cast; numbers in sequences as elements of ${dtype}, each of which must fit. */
static PyObject *as_tensor(core_state *state, DLDataType dtype, PyObject *value) {
  if (core_is_tensor(value)) {
    Py_INCREF(value);
    return value;
  }
  PyObject *name = core_dtype_object(state, dtype);
  PyObject *module = name != NULL ? PyImport_ImportModule("moonferry._convert") : NULL;
  PyObject *made = module != NULL ? PyObject_CallMethod(module, "source_for", "OO", value, name) : NULL;
  Py_XDECREF(module);
  Py_XDECREF(name);
  if (made != NULL && !core_is_tensor(made)) {
    PyErr_SetString(PyExc_TypeError, "moonferry._convert.source_for did not give a Tensor");
    Py_CLEAR(made);
  }
  return made;
}

/* Sets every element of ${target}, broadcast and converted; ${self} only says which module this is. */
int core_assign(PyObject *self, mf_tensor *target, PyObject *value, PyObject *progress) {
  core_state *state = core_state_of_tensor(self);
  if (core_is_scalar(value)) return fill_with(state, target, value);
  PyObject *source = as_tensor(state, mf_tensor_dltensor(target)->dtype, value);
  if (source == NULL) return -1;
  int rc = core_enter(source);
  if (rc == 0) {
    rc = copy_broadcast(state, target, core_handle(source), progress);
    core_leave(source);
  }
  Py_DECREF(source);
  return rc;
}

static int setitem(PyObject *self, PyObject *obj, PyObject *value) {
  index_key key;
  mf_tensor *target;
  mf_error err;
  if (read_key(obj, &key) < 0) return -1;
  if (names_element(&key, core_handle(self)) && core_is_scalar(value)) return put_element(self, &key, value);
  if (mf_tensor_index(core_handle(self), key.items, key.count, &target, &err) != MF_OK)
    return core_raise(core_state_of_tensor(self), &err);
  int rc = core_assign(self, target, value, NULL);
  core_release_quietly(target);
  return rc;
}

int core_setitem(PyObject *self, PyObject *obj, PyObject *value) {
  if (value == NULL) {
    PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
    return -1;
  }
  if (core_enter(self) < 0) return -1;
  const int rc = setitem(self, obj, value);
  core_leave(self);
  return rc;
}

Py_ssize_t core_length(PyObject *self) {
  if (core_look(self) < 0) return -1;
  const DLTensor *view = core_view(self);
  const int64_t length = view->ndim > 0 ? view->shape[0] : -1;
  core_look_end(self);
  if (length >= 0) return (Py_ssize_t)length;
  PyErr_SetString(PyExc_TypeError, "len() of a tensor without axes");
  return -1;
}
