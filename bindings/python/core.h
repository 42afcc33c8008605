/* core.h: the private header of the extension module moonferry._core.
 *
 * Responsible for: what its C files share. Invariant: every file includes this one, which includes the others of
 * ours. It must not know what the runtime keeps inside a mf_tensor.
 */
#ifndef MOONFERRY_PYTHON_CORE_H
#define MOONFERRY_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <moonferry.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "answer.h"
#include "aside.h"
#include "close.h"
#include "free_threads.h"
#include "moonferry_python.h"

/* One per keyword that any function of the module takes; core_state.kw holds the interned strings. */
enum {
  KW_STREAM,
  KW_MAX_VERSION,
  KW_DL_DEVICE,
  KW_COPY,
  KW_DEVICE,
  KW_SHAPE,
  KW_DTYPE,
  KW_FILL_VALUE,
  KW_BUFFER,
  KW_COUNT,
  KW_OFFSET,
  KW_AXIS,
  KW_AXIS1,
  KW_AXIS2,
  KW_WRITE,
  KW_PROGRESS,
  KW_PAGES,
  KW_OBJ,
  KW_SOURCE,
  KW_NUMBER,
  KW_POSITIONAL = 128 /* added to a name: the parameter cannot be given by it */
};

/* Other names that are looked up again and again, or first by several threads at once: a name that two threads intern
 * at the same moment is a data race in CPython 3.13 without the GIL. */
enum {
  NAME_DLPACK,
  NAME_DLPACK_DEVICE,
  NAME_EXCHANGE_API,
  NAME_REQUIRES_GRAD,
  NAME_IS_NEG,
  NAME_IS_CONJ,
  NAME_ITEM,
  NAME_CUDA_STREAM,
  NAME_CUDA_ARRAY,
  NAME_CALL,
  NAME_CODE,
  NAME_PRODUCERS, /* two keys of a thread's dictionary */
  NAME_STREAMS,
  NAME_NUMBER
};

/* What is known of a type that tensors came from: its exchange table, if it has one. Of one thread, where there is no
 * GIL. */
typedef struct core_producer {
  PyTypeObject *type; /* strong, so that its address cannot come to mean another type */
  unsigned int version;
  const DLPackExchangeAPI *api; /* NULL: has none that we can use */
  PyObject *dlpack;             /* strong: __dlpack__, if every instance has the type's; else NULL */
  bool lazy;                    /* its tensors may stand for other values than their memory holds */
  bool host;                    /* all its tensors are on the cpu: nobody needs to ask */
  bool masked;                  /* its arrays may have a mask, which none of their structs has */
  bool frozen;                  /* its arrays cannot be written, which its structs do not say */
} core_producer;

enum { CORE_PRODUCERS = 32 };

enum { CORE_SPARES = 16 };

/* What may accompany max_version in a call of __dlpack__; each sum has its tuple of keyword names. */
enum { ASK_DL_DEVICE = 1, ASK_COPY = 2, ASK_STREAM = 4, ASK_KINDS = 8 };

/* Set once when the module starts, but for what is atomic: without the GIL any thread may set that. */
typedef struct core_state {
  PyTypeObject *tensor_type;
  PyTypeObject *stream_type;
  PyObject *exchange_error;
  PyObject *driver_error;
  PyObject *dtypes;        /* DLDataType as an int -> DType */
  core_once dtype_resolve; /* moonferry._dtype.resolve, once it was needed */
  core_once cpu;           /* the Device of most tensors, once it was needed */
  PyObject *devices;       /* DLDevice as an int -> Device */
  PyObject *max_version;   /* (1, 3) */
  PyObject *cpu_pair;      /* (1, 0) */
  _Atomic(PyObject *) good_version; /* the last max_version that meant a versioned struct, or NULL */
  _Atomic(uintptr_t) good_names; /* the last keyword names of a call of our __dlpack__ that were right, plus which of
                                    them is max_version; or 0 */
  PyObject *dlpack_kw[ASK_KINDS]; /* keyword names of a call of __dlpack__ */
  PyObject *stream_kw;            /* ("stream",), for producers that know no other */
  PyObject *kw[KW_NUMBER];
  PyObject *names[NAME_NUMBER];
#ifndef Py_GIL_DISABLED
  core_tensor *spares[CORE_SPARES]; /* memory of dead tensors */
  int nspares;
  core_producer producers[CORE_PRODUCERS];
#endif
} core_state;

/* The two parts of good_names: a tuple's address leaves its lowest bits free, and __dlpack__ has four keywords. */
enum { CORE_NAMES_MAX = 4 };

static inline PyObject *core_names_of(uintptr_t good_names) {
  return (PyObject *)(good_names & ~(uintptr_t)(CORE_NAMES_MAX - 1));
}

/* module.c */
extern core_state *core_now;          /* of this interpreter's module; NULL before it is imported */
core_state *core_state_current(void); /* the same; NULL with an exception */

static inline core_state *core_state_of(PyObject *module) {
  return PyModule_GetState(module);
}

/* The comparison spares two calls into CPython for tensors of the one module that there usually is. */
static inline core_state *core_state_of_tensor(PyObject *tensor) {
  if (core_now != NULL && Py_TYPE(tensor) == core_now->tensor_type) return core_now;
  return PyType_GetModuleState(Py_TYPE(tensor));
}

/* errors.c: each sets an exception and returns -1. */
int core_raise(core_state *state, const mf_error *err);
int core_raise_exchange(core_state *state, const mf_error *err, const char *what, PyObject *producer);
int core_refuse(core_state *state, const char *format, ...);
void core_chain(PyObject *type, PyObject *value, PyObject *traceback);

/* args.c */
typedef struct core_signature {
  const char *function;
  uint8_t positional; /* how many may be given by position */
  uint8_t required;   /* the first so many must be given */
  uint8_t count;
  uint8_t kw[8];
} core_signature;

/* core_sort_args does it; the common case without keywords is worth doing at the caller's. */
int core_sort_args(core_state *state, const core_signature *signature, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **out);

static inline int core_args(core_state *state, const core_signature *signature, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames, PyObject **out) {
  if (kwnames != NULL || nargs != signature->required)
    return core_sort_args(state, signature, args, nargs, kwnames, out);
  for (int i = 0; i < signature->count; i++) out[i] = i < nargs ? args[i] : NULL;
  return 0;
}

int core_args_self(PyObject *self, const core_signature *signature, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, PyObject **out);
int core_raise_too_large(PyObject *kind, const char *what, PyObject *number);
int core_int64(PyObject *obj, const char *what, int64_t *out);
int core_axis(PyObject *obj, const char *what, int32_t *out);
int core_shape(PyObject *obj, int64_t *shape, int32_t *ndim);
int core_varargs_shape(PyObject *const *args, Py_ssize_t nargs, int64_t *shape, int32_t *ndim);
int core_dtype_name(core_state *state, PyObject *name, DLDataType *out);
int core_dtype(core_state *state, PyObject *obj, DLDataType *out);
PyObject *core_dtype_object(core_state *state, DLDataType dtype);
int core_copy_flag(PyObject *obj, int *out); /* 1, 0, or -1 for None */

/* device.c */
extern PyMethodDef core_device_functions[];
int core_device(core_state *state, PyObject *obj, DLDevice *out);
typedef struct core_device_name {
  char text[64];
} core_device_name;
core_device_name core_name_of(DLDevice device);
int core_device_pair(PyObject *pair, DLDevice *out); /* DLPack's numbers, in a tuple of two */
PyObject *core_device_object(core_state *state, DLDevice device);
DLDevice core_gpu_of(DLDevice device);
int core_gpu(core_state *state, PyObject *obj, DLDevice *out);

static inline bool core_is_cpu(DLDevice device) {
  return device.device_type == kDLCPU && device.device_id == 0;
}

static inline bool core_same_device(DLDevice a, DLDevice b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

/* Whether the host can read memory there: on the cpu, pinned, managed. */
static inline bool core_host_reads(DLDevice device) {
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost || device.device_type == kDLCUDAManaged ||
         device.device_type == kDLROCMHost;
}

/* stream.c, current.c */
typedef struct core_stream {
  PyObject ob_base;
  DLDevice device; /* a GPU */
  mf_stream stream;
  bool owned;      /* from mf_stream_create */
  PyObject *owner; /* strong: whose stream it is, or NULL */
  PyObject *weakrefs;
} core_stream;

extern PyType_Spec core_stream_spec;
void core_stream_dealloc(PyObject *self);
PyObject *core_stream_new(core_state *state, DLDevice device, mf_stream stream);
int core_stream_argument(core_state *state, PyObject *obj, const DLDevice *device, mf_stream *out);
int core_stream_number(PyObject *obj, int64_t *out);
int core_stream_handle_of(core_state *state, PyObject *obj, int64_t *out);
int core_stream_from_handle(DLDevice device, int64_t handle, mf_stream *out);
int64_t core_stream_handle(DLDevice device, mf_stream stream);
PyObject *core_stream_enter(PyObject *self, PyObject *ignored);
PyObject *core_stream_exit(PyObject *self, PyObject *args);
PyObject *core_current_stream(PyObject *module, PyObject *arg);

static inline bool core_is_stream(PyObject *obj) {
  return Py_TYPE(obj)->tp_dealloc == core_stream_dealloc;
}

/* ring.c, ring_create.c */
typedef struct core_ring {
  PyObject ob_base;
  mf_ring *ring;      /* NULL: closed, and the next four are, too */
  PyObject *slots;    /* a tuple of Tensors */
  PyObject *begun;    /* of each slot (tensor, number) */
  PyObject *stale;    /* of each slot (tensor, number, False) */
  PyObject *fresh;    /* of each slot (tensor, number, True) */
  PyObject *views;    /* what `into` was given -> a tuple of what it made of each slot */
  PyObject *weakrefs;
} core_ring;

extern PyType_Spec core_ring_spec;
PyObject *core_ring_create(PyTypeObject *type, PyObject *args, PyObject *kwargs);
PyObject *core_ring_from_handle(PyObject *type, PyObject *obj);
void core_ring_release(mf_ring *ring);

/* graphics.c */
int core_fence_take(PyObject *obj, const mf_fence **out);
void core_fence_back(PyObject *capsule, const mf_fence *fence);
PyObject *core_gl_fence(PyObject *module, PyObject *address);
PyObject *core_tensor_fence(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *core_tensor_at(PyObject *module, PyObject *address);

/* Another current stream for as long as an import runs. */
typedef struct core_swap {
  DLDevice device;
  mf_stream before;
  bool swapped;
} core_swap;

int core_swap_begin(core_swap *swap, DLDevice device, mf_stream stream, mf_error *err);
void core_swap_end(const core_swap *swap);

/* tensor.c */
extern PyType_Spec core_tensor_spec;
void core_tensor_dealloc(PyObject *self);
PyObject *core_tensor_new(core_state *state, mf_tensor *t); /* takes t over, always */
PyObject *core_tensor_lacks(PyObject *module, PyObject *names);
PyObject *core_wrap_view(PyObject *self, int status, mf_tensor *t, const mf_error *err);

/* Whether ${obj} is a Tensor of whatever instance of this module: Tensor cannot be subclassed. */
static inline bool core_is_tensor(PyObject *obj) {
  return Py_TYPE(obj)->tp_dealloc == core_tensor_dealloc;
}

PyObject *core_int_tuple(const int64_t *values, int32_t count, int64_t factor);

/* Whether the host may have to wait before it uses the memory, and another thread's Python may be what it waits for. */
static inline bool core_may_wait(const mf_tensor *t) {
  return mf_tensor_dltensor(t)->device.device_type != kDLCPU || mf_tensor_is_ordered(t);
}

/* order.c */
int core_to(mf_tensor *t, const mf_request *request, mf_tensor **out, mf_error *err);
int core_acquire(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err);
int core_wait_on_host(PyObject *self, bool write, const char *what);
int core_on_host(PyObject *self, mf_tensor **out);
int core_export(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out, mf_error *err);
PyObject *core_tensor_to(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_tensor_acquire(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_tensor_record(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* methods.c, create.c, nested.c, view.c */
PyObject *core_permute_dims(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *core_reshape(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_broadcast_to(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *core_squeeze(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_expand_dims(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_diagonal(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_reinterpret(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_as_readonly(PyObject *self, PyObject *ignored);
extern const char core_permute_doc[], core_reshape_doc[], core_broadcast_doc[], core_squeeze_doc[];
extern const char core_expand_doc[], core_diagonal_doc[], core_reinterpret_doc[], core_as_readonly_doc[];

/* arrow.c */
extern const char core_arrow_schema_doc[], core_arrow_array_doc[], core_arrow_device_array_doc[];
PyObject *core_arrow_schema(PyObject *self, PyObject *ignored);
PyObject *core_arrow_array(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *core_arrow_device_array(PyObject *self, PyObject *args, PyObject *kwargs);

extern PyMethodDef core_tensor_methods[];
extern PyMethodDef core_create_functions[];
int core_clone(mf_tensor *t, mf_tensor **out, mf_error *err);
int core_cast(mf_tensor *dst, const mf_tensor *src, mf_error *err);
int core_fill(mf_tensor *t, const mf_scalar *value, mf_error *err);
int core_create(const DLTensor *like, uint64_t flags, mf_tensor **out, mf_error *err);
PyObject *core_zeros(core_state *state, PyObject *shape, PyObject *dtype);
PyObject *core_nested_list(PyObject *self, PyObject *ignored);
PyObject *core_from_nested(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

PyObject *core_call_python(const char *module_name, const char *function, PyObject *self);

/* operators.c */
PyObject *core_add(PyObject *a, PyObject *b);
PyObject *core_subtract(PyObject *a, PyObject *b);
PyObject *core_multiply(PyObject *a, PyObject *b);
PyObject *core_matmul(PyObject *a, PyObject *b);
PyObject *core_true_divide(PyObject *a, PyObject *b);
PyObject *core_floor_divide(PyObject *a, PyObject *b);
PyObject *core_remainder(PyObject *a, PyObject *b);
PyObject *core_divmod(PyObject *a, PyObject *b);
PyObject *core_bitwise_and(PyObject *a, PyObject *b);
PyObject *core_bitwise_or(PyObject *a, PyObject *b);
PyObject *core_bitwise_xor(PyObject *a, PyObject *b);
PyObject *core_left_shift(PyObject *a, PyObject *b);
PyObject *core_right_shift(PyObject *a, PyObject *b);
PyObject *core_power(PyObject *a, PyObject *b, PyObject *modulus);
PyObject *core_negative(PyObject *a);
PyObject *core_absolute(PyObject *a);
PyObject *core_invert(PyObject *a);
PyObject *core_compare(PyObject *self, PyObject *other, int op);

/* scalar.c */
PyObject *core_scalar_to_python(const mf_scalar *value);
int core_scalar_from_python(core_state *state, PyObject *obj, mf_scalar *out);
int core_scalar_for(core_state *state, PyObject *obj, DLDataType dtype, mf_scalar *out);
int core_is_scalar(PyObject *obj);
int core_only_element(PyObject *self, mf_scalar *out);
PyObject *core_item(PyObject *self, PyObject *ignored);
PyObject *core_number_float(PyObject *self);
PyObject *core_number_int(PyObject *self);
PyObject *core_number_index(PyObject *self);
int core_number_bool(PyObject *self);
PyObject *core_number_complex(PyObject *self, PyObject *ignored);

/* copy.c */
PyObject *core_tensor_copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
int core_copy_watched(core_state *state, mf_tensor *dst, const mf_tensor *src, PyObject *progress);

/* index.c */
Py_ssize_t core_length(PyObject *self);
PyObject *core_sequence_item(PyObject *self, Py_ssize_t i);
PyObject *core_getitem(PyObject *self, PyObject *key);
int core_setitem(PyObject *self, PyObject *key, PyObject *value);
/* progress: called after each part of a copy, or NULL. */
int core_assign(PyObject *self, mf_tensor *target, PyObject *value, PyObject *progress);

/* buffer.c, format.c, hold.c, raw.c */
int core_getbuffer(PyObject *self, Py_buffer *view, int flags);
void core_releasebuffer(PyObject *self, Py_buffer *view);
const char *core_buffer_format(DLDataType dtype);
int core_format_parse(const char *format, Py_ssize_t itemsize, DLDataType *out);
PyObject *core_from_buffer(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
PyObject *core_frombuffer(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_wrap_pointer(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

PyObject *core_arrow_taken(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
int core_unlock(mf_tensor *t, mf_tensor **out, mf_error *err);
PyObject *core_raw_bytes(PyObject *module, PyObject *obj);
PyObject *core_from_raw(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* export.c */
PyObject *core_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_dlpack_device(PyObject *self, PyObject *ignored);

/* What was asked of from_dlpack, and what came of it so far. */
typedef struct core_import {
  core_state *state;
  PyObject *x;
  PyObject *method; /* borrowed: what x.__dlpack__ is, NULL where it must be looked up */
  bool host;        /* x is known to be on the cpu */
  bool masked;      /* x may have a mask */
  bool frozen;      /* x cannot be written, whatever its struct says */
  bool placed;      /* device was given */
  DLDevice device;
  int copy;       /* 1, 0, or -1 for None */
  bool promised;  /* the producer was told about copy, and said yes */
  bool versioned; /* the struct could say that it is a copy */
  bool ordered;   /* the producer was given a stream of ready_on, on which the memory is ready */
  DLDevice ready_on;
  mf_stream ready;
} core_import;

/* ask.c */
PyObject *core_ask(core_import *request);

/* import.c */
void core_delete_managed(DLManagedTensorVersioned *managed);
PyObject *core_from_dlpack(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *core_from_any(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* table.c, producer.c */
int core_table_publish(PyTypeObject *type);
const core_producer *core_producer_of(core_state *state, PyTypeObject *type);
int core_producers_traverse(core_state *state, visitproc visit, void *arg);
void core_producers_clear(core_state *state);
int core_producer_plain(core_state *state, PyObject *obj, const DLTensor *view);
PyObject *core_into(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* capi.c */
PyObject *core_capi(void);

#endif /* MOONFERRY_PYTHON_CORE_H */
