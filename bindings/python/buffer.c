/* buffer.c: Tensor's side of the buffer protocol.
 *
 * Invariant: a buffer holds the tensor and is counted from before anything is waited for, so that nothing closes it,
 * and its memory and description never move; only the strides, which PEP 3118 wants in bytes, need a block of their
 * own. It must not know who asked.
 *
 * Standard: PEP 3118.
 */
#include "core.h"

#include <assert.h>

static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "shapes are handed out as they are");

static bool is_column_major(const DLTensor *view) {
  int64_t expected = 1;
  for (int32_t i = 0; i < view->ndim; i++)
    if (view->shape[i] == 0) return true;
  for (int32_t i = 0; i < view->ndim; i++) {
    if (view->shape[i] > 1 && view->strides[i] != expected) return false;
    expected *= view->shape[i];
  }
  return true;
}

static bool wants(int flags, int request) {
  return (flags & request) == request;
}

/* NULL, or why a buffer of this layout cannot be had with ${flags}. */
static const char *layout_problem(const mf_tensor *t, int flags) {
  const int contiguous = PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS;
  if (wants(flags, PyBUF_STRIDES) && (flags & contiguous & ~PyBUF_STRIDES) == 0) return NULL;
  bool rows = mf_tensor_is_contiguous(t);
  bool columns = is_column_major(mf_tensor_dltensor(t));
  if (wants(flags, PyBUF_C_CONTIGUOUS) && !rows) return "is not contiguous in row-major order";
  if (wants(flags, PyBUF_F_CONTIGUOUS) && !columns) return "is not contiguous in column-major order";
  if (wants(flags, PyBUF_ANY_CONTIGUOUS) && !rows && !columns) return "is not contiguous";
  if (!wants(flags, PyBUF_STRIDES) && !rows)
    return "is not contiguous, and the buffer was asked for without strides; copy() makes a compact tensor";
  return NULL;
}

static const char *buffer_problem(const mf_tensor *t, int flags) {
  if (!mf_tensor_is_valid(t)) return "has memory that was taken back by its owner";
  if (!core_host_reads(mf_tensor_dltensor(t)->device)) return "is in the memory of a device; to(\"cpu\") copies it";
  if (wants(flags, PyBUF_WRITABLE) && (mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_READ_ONLY) != 0) return "is read-only";
  return layout_problem(t, flags);
}

/* Strides in bytes: the tensor's own where an element is one byte, else a block that view->internal owns. One that no
 * number holds is cut off: it is of an axis without a second element, for which it means nothing. */
static int fill_strides(Py_buffer *view, const DLTensor *from) {
  if (view->itemsize == 1) {
    view->strides = (Py_ssize_t *)from->strides;
    return 0;
  }
  view->internal = PyMem_Malloc((size_t)from->ndim * sizeof(Py_ssize_t));
  if (view->internal == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  view->strides = view->internal;
  for (int32_t i = 0; i < from->ndim; i++)
    (void)__builtin_mul_overflow(from->strides[i], view->itemsize, &view->strides[i]);
  return 0;
}

static int refuse_dtype(core_state *state, DLDataType dtype) {
  char name[64];
  mf_error err;
  if (mf_dtype_format(&dtype, name, sizeof name, &err) != MF_OK) return core_raise(state, &err);
  return core_refuse(state,
                     "PEP 3118 has no format for dtype %s; reinterpret() gives a dtype that has "
                     "one",
                     name);
}

static void describe(Py_buffer *view, const mf_tensor *t, const char *format, int flags) {
  const DLTensor *from = mf_tensor_dltensor(t);
  static char nothing; /* what an empty buffer points to */
  bool shaped = wants(flags, PyBUF_ND);
  view->buf = from->data == NULL ? &nothing : from->data;
  view->itemsize = from->dtype.bits / 8;
  view->len = view->itemsize * (Py_ssize_t)mf_tensor_size(t);
  view->format = wants(flags, PyBUF_FORMAT) ? (char *)format : NULL;
  view->ndim = shaped ? from->ndim : 1;
  view->shape = shaped && from->ndim > 0 ? (Py_ssize_t *)from->shape : NULL;
  view->strides = NULL;
  view->suboffsets = NULL;
  view->internal = NULL;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
  const mf_tensor *t = core_handle(self);
  const DLTensor *from = mf_tensor_dltensor(t);
  const char *problem = buffer_problem(t, flags);
  if (problem != NULL) return core_refuse(core_state_of_tensor(self), "the tensor %s", problem);
  const char *format = core_buffer_format(from->dtype);
  if (format == NULL) return refuse_dtype(core_state_of_tensor(self), from->dtype);
  describe(view, t, format, flags);
  view->readonly = (mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  if (core_buffer_out(self) < 0) return -1;
  if (core_wait_on_host(self, view->readonly == 0, "buffer") < 0 ||
      (wants(flags, PyBUF_STRIDES) && from->ndim > 0 && fill_strides(view, from) < 0)) {
    core_buffer_back(self);
    return -1;
  }
  Py_INCREF(self);
  view->obj = self;
  return 0;
}

int core_getbuffer(PyObject *self, Py_buffer *view, int flags) {
  if (view == NULL) {
    PyErr_SetString(PyExc_BufferError, "a buffer was asked for without a place to describe it");
    return -1;
  }
  view->obj = NULL;
  if (core_enter(self) < 0) return -1;
  const int rc = get_buffer(self, view, flags);
  core_leave(self);
  return rc;
}

void core_releasebuffer(PyObject *self, Py_buffer *view) {
  core_buffer_back(self);
  PyMem_Free(view->internal);
}
