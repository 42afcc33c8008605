/* nested.c: nested Python sequences to a tensor and back.
 *
 * Invariant: the shape is that of the first element at each depth, and every other element must agree with
 * it. Python code that runs while a sequence is read may change it, so lengths are checked again when the
 * elements are stored. It must not know of arrays: whatever is not a number here is a sequence.
 */
#include "core.h"

/* What the numbers in a nested sequence need, as far as they have been seen. */
typedef struct survey {
  core_state *state;
  int32_t kind;
  int negative;
  int large; /* an integer above INT64_MAX */
} survey;

/* 1, 0, or -1 with an exception. */
static int is_sequence(PyObject *obj) {
  if (PyList_Check(obj) || PyTuple_Check(obj)) return 1;
  if (PyUnicode_Check(obj) || PyBytes_Check(obj) || PyByteArray_Check(obj)) return 0;
  if (PyDict_Check(obj) || !(PySequence_Check(obj) || PyMapping_Check(obj))) return 0;
  if (PyObject_Size(obj) >= 0) return 1;
  /* An array without axes looks like a sequence, but has no length. */
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
  PyErr_Clear();
  return 0;
}

/* Without the GIL a list may change between any two looks at it. */
static PyObject *items_of(PyObject *obj) {
#ifdef Py_GIL_DISABLED
  PyObject *items = PySequence_Tuple(obj);
#else
  PyObject *items = PySequence_Fast(obj, "");
#endif
  if (items == NULL && Py_TYPE(obj)->tp_iter == NULL && PyErr_ExceptionMatches(PyExc_TypeError))
    PyErr_Format(PyExc_TypeError, "a '%s' is no sequence of numbers", Py_TYPE(obj)->tp_name);
  return items;
}

/* ${ndim}: 0 at first. */
static int find_shape(PyObject *obj, int64_t *shape, int32_t *ndim) {
  Py_INCREF(obj);
  int is;
  while ((is = is_sequence(obj)) > 0) {
    PyObject *items = items_of(obj);
    Py_DECREF(obj);
    if (items == NULL) return -1;
    if (*ndim == MF_MAX_NDIM) {
      PyErr_Format(PyExc_ValueError, "sequences are nested more than %d deep", MF_MAX_NDIM);
      Py_DECREF(items);
      return -1;
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    shape[(*ndim)++] = n;
    obj = n == 0 ? Py_None : PySequence_Fast_GET_ITEM(items, 0);
    Py_INCREF(obj);
    Py_DECREF(items);
  }
  Py_DECREF(obj);
  return is;
}

typedef int (*leaf_fn)(void *ctx, PyObject *leaf, const int64_t *coords);

typedef struct walk {
  const int64_t *shape;
  int32_t ndim;
  leaf_fn on_leaf;
  void *ctx;
  int64_t coords[MF_MAX_NDIM];
} walk;

static int ragged(const walk *w, int32_t depth) {
  PyErr_Format(PyExc_ValueError, "the sequence is ragged: at depth %d not every element has length %lld", (int)depth,
               (long long)w->shape[depth]);
  return -1;
}

static int walk_leaf(walk *w, PyObject *obj) {
  const int is = is_sequence(obj);
  if (is < 0) return -1;
  if (is > 0) {
    PyErr_Format(PyExc_ValueError, "the sequence is ragged: a sequence where depth %d has numbers", (int)w->ndim);
    return -1;
  }
  return w->on_leaf(w->ctx, obj, w->coords);
}

static int walk_depth(walk *w, PyObject *obj, int32_t depth) {
  if (depth == w->ndim) return walk_leaf(w, obj);
  const int is = is_sequence(obj);
  if (is <= 0) return is < 0 ? -1 : ragged(w, depth);
  PyObject *items = items_of(obj);
  if (items == NULL) return -1;
  int rc = PySequence_Fast_GET_SIZE(items) == w->shape[depth] ? 0 : ragged(w, depth);
  for (int64_t i = 0; rc == 0 && i < w->shape[depth]; i++) {
    if (i >= PySequence_Fast_GET_SIZE(items)) {
      rc = ragged(w, depth);
      break;
    }
    PyObject *item = PySequence_Fast_GET_ITEM(items, (Py_ssize_t)i);
    Py_INCREF(item);
    w->coords[depth] = i;
    rc = walk_depth(w, item, depth + 1);
    Py_DECREF(item);
  }
  Py_DECREF(items);
  return rc;
}

static int survey_leaf(void *ctx, PyObject *leaf, const int64_t *coords) {
  (void)coords;
  survey *s = ctx;
  mf_scalar value;
  if (core_scalar_from_python(s->state, leaf, &value) < 0) return -1;
  if (value.kind == MF_KIND_UINT && value.u > INT64_MAX) s->large = 1;
  if (value.kind == MF_KIND_INT && value.i < 0) s->negative = 1;
  if (value.kind > s->kind) s->kind = value.kind;
  return 0;
}

static int inferred_dtype(const survey *s, DLDataType *out) {
  switch (s->kind) {
    case MF_KIND_BOOL:
      *out = (DLDataType){kDLBool, 8, 1};
      return 0;
    case MF_KIND_INT:
      *out = (DLDataType){kDLInt, 64, 1};
      return 0;
    case MF_KIND_UINT:
      *out = (DLDataType){s->large ? kDLUInt : kDLInt, 64, 1};
      break;
    case MF_KIND_COMPLEX:
      *out = (DLDataType){kDLComplex, 128, 1};
      return 0;
    default:
      *out = (DLDataType){kDLFloat, 64, 1};
      return 0;
  }
  if (!s->large || !s->negative) return 0;
  PyErr_SetString(PyExc_OverflowError,
                  "no integer dtype holds both negative numbers and numbers above "
                  "2**63 - 1; say which dtype is meant");
  return -1;
}

typedef struct store {
  core_state *state;
  mf_tensor *target;
  int32_t ndim;
} store;

static int store_leaf(void *ctx, PyObject *leaf, const int64_t *coords) {
  store *s = ctx;
  mf_scalar value;
  mf_error err;
  if (core_scalar_for(s->state, leaf, mf_tensor_dltensor(s->target)->dtype, &value) < 0) return -1;
  if (mf_tensor_put(s->target, coords, s->ndim, &value, &err) == MF_OK) return 0;
  return core_raise(s->state, &err);
}

static PyObject *store_all(core_state *state, walk *w, PyObject *obj, DLDataType dtype) {
  int64_t shape[MF_MAX_NDIM];
  for (int32_t i = 0; i < w->ndim; i++) shape[i] = w->shape[i];
  DLTensor like = {.dtype = dtype, .ndim = w->ndim, .shape = shape};
  mf_error err;
  store target = {.state = state, .ndim = w->ndim};
  if (mf_tensor_create(&like, 0, &target.target, &err) != MF_OK) {
    core_raise(state, &err);
    return NULL;
  }
  w->on_leaf = store_leaf;
  w->ctx = &target;
  if (walk_depth(w, obj, 0) < 0) {
    core_release_quietly(target.target);
    return NULL;
  }
  return core_tensor_new(state, target.target);
}

/* What is neither an array nor a sequence and no number either is named as what it is, not as an element. */
static int check_alone(core_state *state, PyObject *obj) {
  const int number = PyType_Check(obj) ? 0 : PyNumber_Check(obj) ? 1 : answer_has(obj, state->names[NAME_ITEM]);
  if (number < 0) return -1;
  if (number > 0) return 0;
  const bool several = Py_TYPE(obj)->tp_iter != NULL && !PyUnicode_Check(obj);
  const char *remedy = several                        ? "; list() of it is taken where lists are"
                       : PyCapsule_CheckExact(obj) ? "; from_dlpack takes capsules"
                                                      : "";
  PyErr_Format(PyExc_TypeError,
               "elements come from an array, a number or nested sequences of numbers, not from a '%s'%s",
               Py_TYPE(obj)->tp_name, remedy);
  return -1;
}

/* _from_nested(obj, dtype): dtype None is inferred as NumPy does: bool, int64, float64, complex128. */
PyObject *core_from_nested(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  core_state *state = core_state_of(module);
  int64_t shape[MF_MAX_NDIM];
  DLDataType dtype;
  survey seen = {.state = state, .kind = -1};
  walk w = {.shape = shape, .on_leaf = survey_leaf, .ctx = &seen};
  if (nargs != 2) {
    PyErr_SetString(PyExc_TypeError, "_from_nested() takes 2 arguments");
    return NULL;
  }
  if (find_shape(args[0], shape, &w.ndim) < 0) return NULL;
  if (w.ndim == 0 && check_alone(state, args[0]) < 0) return NULL;
  if (args[1] != Py_None) {
    if (core_dtype(state, args[1], &dtype) < 0) return NULL;
  } else if (walk_depth(&w, args[0], 0) < 0 || inferred_dtype(&seen, &dtype) < 0) {
    return NULL;
  }
  return store_all(state, &w, args[0], dtype);
}

static PyObject *list_depth(core_state *state, const mf_tensor *t, int64_t *coords, int32_t depth) {
  const DLTensor *view = mf_tensor_dltensor(t);
  if (depth == view->ndim) {
    mf_scalar value;
    mf_error err;
    if (mf_tensor_get(t, coords, depth, &value, &err) == MF_OK) return core_scalar_to_python(&value);
    core_raise(state, &err);
    return NULL;
  }
  PyObject *list = PyList_New((Py_ssize_t)view->shape[depth]);
  for (int64_t i = 0; list != NULL && i < view->shape[depth]; i++) {
    coords[depth] = i;
    PyObject *item = list_depth(state, t, coords, depth + 1);
    if (item == NULL)
      Py_CLEAR(list);
    else
      PyList_SET_ITEM(list, (Py_ssize_t)i, item);
  }
  return list;
}

static PyObject *nested_list(PyObject *self, PyObject *ignored) {
  (void)ignored;
  int64_t coords[MF_MAX_NDIM] = {0};
  mf_tensor *t;
  if (core_on_host(self, &t) < 0) return NULL;
  PyObject *list = list_depth(core_state_of_tensor(self), t, coords, 0);
  core_release_quietly(t);
  return list;
}

CORE_PLAIN(core_nested_list, nested_list)
