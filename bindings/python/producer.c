/* producer.c: what is known of the types that tensors come from and go to.
 *
 * Invariant: an entry answers for a type only while the type is unchanged (its version tag says so), and
 * holds a reference to it, so that no other type can take its address. The cache has a fixed size: it keeps
 * no more types alive than that, without the GIL in each thread. It must not know how tensors are imported.
 *
 * Standard: DLPack 1.3, C exchange API: looked up on the type, version checked before any slot is read.
 */
#include "core.h"

#include <string.h>

/* Changes whenever an attribute of the type does; 0 while CPython has not numbered it. */
static unsigned int version_of(PyTypeObject *type) {
#if PY_VERSION_HEX < 0x030D0000
  if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return __atomic_load_n(&type->tp_version_tag, __ATOMIC_RELAXED);
}

/* The first table in the chain whose layout we know. Only the header may be read before. A chain has at most
 * one table per major version, so one that goes on and on is broken. */
static const DLPackExchangeAPI *usable(const DLPackExchangeAPIHeader *header) {
  for (int hops = 0; header != NULL && hops < 64; hops++) {
    if (header->version.major == DLPACK_MAJOR_VERSION) return (const DLPackExchangeAPI *)header;
    header = header->prev_api;
  }
  return NULL;
}

/* PyTorch's table hands out lazily negated, conjugated and differentiable tensors as if they were plain
 * ones. A type is taken to have such tensors if it has all three of PyTorch's attributes. */
static int find_guards(core_state *state, core_producer *out) {
  static const int names[3] = {NAME_REQUIRES_GRAD, NAME_IS_NEG, NAME_IS_CONJ};
  int found = 1;
  for (int i = 0; i < 3 && found == 1; i++) found = answer_has((PyObject *)out->type, state->names[names[i]]);
  out->lazy = found == 1;
  return found < 0 ? -1 : 0;
}

/* An instance without a dictionary, of a type without attribute hooks, has no methods of its own. */
static int find_method(core_state *state, core_producer *out) {
  PyTypeObject *type = out->type;
  if (type->tp_dictoffset != 0 || type->tp_getattro != PyObject_GenericGetAttr) return 0;
  PyObject *method = PyObject_GetAttr((PyObject *)type, state->names[NAME_DLPACK]);
  if (method == NULL) return answer_is_no() ? 0 : -1;
  if (PyType_HasFeature(Py_TYPE(method), Py_TPFLAGS_METHOD_DESCRIPTOR))
    out->dlpack = method;
  else
    Py_DECREF(method);
  return 0;
}

/* Sets ${out} to whether ${type} is the class of that name or derived from it. A module that was not imported has no
 * arrays. */
static int find_class(PyTypeObject *type, const char *module, const char *class, bool *out) {
  PyObject *name = PyUnicode_FromString(module);
  PyObject *numpy = name == NULL ? NULL : PyImport_GetModule(name);
  PyObject *array = numpy == NULL || !PyModule_Check(numpy) ? NULL : PyObject_GetAttrString(numpy, class);
  const int known = array != NULL || answer_is_no() ? 0 : -1;
  if (array != NULL && PyType_Check(array)) *out = PyType_IsSubtype(type, (PyTypeObject *)array);
  Py_XDECREF(name);
  Py_XDECREF(numpy);
  Py_XDECREF(array);
  return known;
}

/* NumPy's arrays, subclasses included, are on the cpu, and of these some have a mask. */
static int find_numpy(core_producer *out) {
  if (find_class(out->type, "numpy", "ndarray", &out->host) < 0) return -1;
  return out->host ? find_class(out->type, "numpy.ma", "MaskedArray", &out->masked) : 0;
}

/* JAX's arrays never change, and leave in the struct that cannot say so. */
static int find_frozen(core_producer *out) {
  PyObject *module = PyObject_GetAttrString((PyObject *)out->type, "__module__");
  const char *name = module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
  const int known = name != NULL || answer_is_no() ? 0 : -1;
  out->frozen = name != NULL && strncmp(name, "jaxlib.", 7) == 0;
  Py_XDECREF(module);
  return known;
}

static int find_table(core_state *state, core_producer *out) {
  PyObject *capsule = PyObject_GetAttr((PyObject *)out->type, state->names[NAME_EXCHANGE_API]);
  if (capsule == NULL) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear();
    return 0;
  }
  if (PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
    out->api = usable(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  Py_DECREF(capsule);
  return out->api == NULL ? 0 : find_guards(state, out);
}

/* What there is to know of a type that has no table is found by looking it up. */
static int find_all(core_state *state, core_producer *out) {
  if (find_table(state, out) < 0) return -1;
  if (out->api != NULL) return 0;
  if (find_method(state, out) == 0 && find_numpy(out) == 0 && find_frozen(out) == 0) return 0;
  Py_CLEAR(out->dlpack);
  return -1;
}

static void clear(core_producer *producer) {
  Py_CLEAR(producer->type);
  Py_CLEAR(producer->dlpack);
}

/* Looking up attributes may run Python code that uses the cache, so the entry is written last. */
static __attribute__((noinline)) const core_producer *learn(core_state *state, core_producer *place,
                                                            PyTypeObject *type) {
  core_producer found = {.type = type};
  const unsigned int before = version_of(type);
  if (find_all(state, &found) < 0) return NULL;
  found.version = version_of(type) == before ? before : 0; /* it may have changed meanwhile: it is asked again */
  Py_INCREF(type);
  core_producer old = *place;
  *place = found;
  clear(&old);
  return place->type == type ? place : learn(state, place, type);
}

#ifdef Py_GIL_DISABLED

/* Each thread learns by itself, so that none waits for another at each exchange. The dictionary of the thread's state
 * owns what it learned, and ends with it. */
static _Thread_local core_producer *own;

static void forget_thread(PyObject *capsule) {
  core_producer *producers = PyCapsule_GetPointer(capsule, NULL);
  if (own == producers) own = NULL;
  for (int i = 0; i < CORE_PRODUCERS; i++) clear(&producers[i]);
  PyMem_Free(producers);
}

/* NULL with an exception. */
static __attribute__((noinline)) core_producer *begin_thread(core_state *state) {
  PyObject *dict = PyThreadState_GetDict();
  core_producer *producers = dict == NULL ? NULL : PyMem_Calloc(CORE_PRODUCERS, sizeof *producers);
  PyObject *capsule = producers == NULL ? NULL : PyCapsule_New(producers, NULL, forget_thread);
  const int rc = capsule == NULL ? -1 : PyDict_SetItem(dict, state->names[NAME_PRODUCERS], capsule);
  if (rc == 0) own = producers;
  if (capsule == NULL) PyMem_Free(producers);
  Py_XDECREF(capsule);
  if (rc < 0 && !PyErr_Occurred()) PyErr_NoMemory();
  return rc < 0 ? NULL : own;
}

static inline core_producer *producers_of(core_state *state) {
  return own != NULL ? own : begin_thread(state);
}

int core_producers_traverse(core_state *state, visitproc visit, void *arg) {
  (void)state;
  (void)visit;
  (void)arg;
  return 0;
}

void core_producers_clear(core_state *state) {
  (void)state;
}

#else

static inline core_producer *producers_of(core_state *state) {
  return state->producers;
}

int core_producers_traverse(core_state *state, visitproc visit, void *arg) {
  for (int i = 0; i < CORE_PRODUCERS; i++) {
    Py_VISIT(state->producers[i].type);
    Py_VISIT(state->producers[i].dlpack);
  }
  return 0;
}

void core_producers_clear(core_state *state) {
  for (int i = 0; i < CORE_PRODUCERS; i++) clear(&state->producers[i]);
}

#endif

/* What is known of ${type}. Borrowed until Python code runs; NULL with an exception. Code that is asked may take the
 * type from its last object, so that it is held meanwhile. */
const core_producer *core_producer_of(core_state *state, PyTypeObject *type) {
  size_t bits = (size_t)type;
  core_producer *producers = producers_of(state);
  if (producers == NULL) return NULL;
  core_producer *place = &producers[((bits >> 4) ^ (bits >> 10)) % CORE_PRODUCERS];
  if (place->type == type && place->version != 0 && place->version == version_of(type)) return place;
  Py_INCREF(type);
  const core_producer *learned = learn(state, place, type);
  Py_DECREF(type);
  return learned;
}

/* 1 if the attribute is true, or if calling it is; 0; or -1 with an exception. */
static int is_true(PyObject *obj, PyObject *name, bool call) {
  PyObject *value = call ? PyObject_CallMethodNoArgs(obj, name) : PyObject_GetAttr(obj, name);
  if (value == NULL) return -1;
  int truth = PyObject_IsTrue(value);
  Py_DECREF(value);
  return truth;
}

/* A negative bit comes about as the imaginary part of a conjugate, whose strides are those of complex
 * numbers, counted in halves. Asking costs as much as the rest of an import, so a tensor with an odd stride
 * is not asked. */
static bool may_be_negative(const DLTensor *view) {
  if (view->dtype.code == kDLComplex) return true;
  if (view->dtype.code != kDLFloat && view->dtype.code != kDLBfloat) return false;
  if (view->ndim > 0 && view->strides == NULL) return false;
  for (int32_t i = 0; i < view->ndim; i++)
    if (view->shape[i] > 1 && view->strides[i] % 2 != 0) return false;
  return true;
}

/* Whether ${view}, which the table gave of ${obj}, is all that there is to it: 1 if so, 0 if its __dlpack__
 * must be asked instead (which refuses, or knows better), or -1 with an exception. */
int core_producer_plain(core_state *state, PyObject *obj, const DLTensor *view) {
  int lazy = is_true(obj, state->names[NAME_REQUIRES_GRAD], false);
  if (lazy == 0 && view->dtype.code == kDLComplex) lazy = is_true(obj, state->names[NAME_IS_CONJ], true);
  if (lazy != 0) return lazy < 0 ? -1 : 0;
  if (may_be_negative(view)) lazy = is_true(obj, state->names[NAME_IS_NEG], true);
  if (lazy == 0) return 1;
  /* PyTorch's __dlpack__ would hand this one out with the wrong sign, too. */
  if (lazy > 0)
    core_refuse(state,
                "from_dlpack: a '%s' with the negative bit set cannot be exchanged; "
                "its resolve_neg() can",
                Py_TYPE(obj)->tp_name);
  return -1;
}
