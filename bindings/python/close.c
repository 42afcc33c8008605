/* close.c: the end of a tensor before the end of its object: close, `with`, and who keeps the handle until then.
 *
 * Invariant: the handle is given back once, when the tensor is closed and no call is inside, or with the object; never
 * while a buffer points into it. It must not know what a call does with the handle.
 */
#include "core.h"

int core_refuse_closed(void) {
  PyErr_SetString(PyExc_ValueError, "the tensor is closed, by close() or at the end of its with block");
  return -1;
}

/* Each release may run Python code: the deleter of imported memory, or of some that became due before. */
void core_release_quietly(mf_tensor *t) {
  if (!PyErr_Occurred()) {
    mf_tensor_release(t);
    return;
  }
  const aside exception = aside_begin();
  mf_tensor_release(t);
  aside_end(exception);
}

/* Of a closed tensor: gives the handle back, unless somebody counts on it. */
void core_drop(core_tensor *tensor) {
#ifdef Py_GIL_DISABLED
  const bool lent = (atomic_load(&tensor->door) & CORE_LENT) != 0;
#else
  const bool lent = tensor->lent;
#endif
  mf_tensor *t = lent ? NULL : __atomic_exchange_n(&tensor->t, NULL, __ATOMIC_ACQ_REL);
  if (t != NULL) core_release_quietly(t);
}

const char core_close_doc[] =
    "close($self, /)\n--\n\n"
    "Closes the tensor. Its memory is released at once unless a view, another tensor or a DLPack consumer uses it.\n"
    "`with t:` closes t at the end of the block.\n"
    "\n"
    "Afterwards everything but close, closed and repr raises ValueError. Calls that other threads have already made\n"
    "go on and keep the memory. A second close does nothing.\n"
    "Raises BufferError while a buffer is exported, such as a memoryview or the NumPy array of numpy.asarray(t).";

/* Closes the door, unless a buffer is out: returns how many are. */
static int32_t shut(core_tensor *tensor) {
#ifdef Py_GIL_DISABLED
  uint64_t door = atomic_load(&tensor->door);
  do {
    const int32_t buffers = (int32_t)((door & ~CORE_LENT) >> 32);
    if (buffers > 0) return buffers;
  } while (!atomic_compare_exchange_weak(&tensor->door, &door, door | CORE_CLOSED));
  if ((door & (CORE_CLOSED - 1)) == 0) core_drop(tensor);
#else
  if (tensor->buffers > 0) return tensor->buffers;
  tensor->closed = true;
  if (tensor->inside == 0) core_drop(tensor);
#endif
  return 0;
}

PyObject *core_close(PyObject *self, PyObject *ignored) {
  (void)ignored;
  const int32_t buffers = shut((core_tensor *)self);
  if (buffers == 0) Py_RETURN_NONE;
  PyErr_Format(PyExc_BufferError, "close: %d buffer%s of the tensor %s out, of a memoryview or a NumPy array; "
               "release() or del ends it",
               (int)buffers, buffers == 1 ? "" : "s", buffers == 1 ? "is" : "are");
  return NULL;
}

static PyObject *enter(PyObject *self, PyObject *ignored) {
  (void)ignored;
  Py_INCREF(self);
  return self;
}

CORE_PLAIN(core_tensor_enter, enter)

PyObject *core_tensor_exit(PyObject *self, PyObject *args) {
  return core_close(self, args);
}

PyObject *core_get_closed(PyObject *self, void *closure) {
  (void)closure;
  return PyBool_FromLong(core_is_closed(self));
}
