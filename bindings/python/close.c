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

/* The last reference to imported memory runs its producer's deleter, which may run Python code. */
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
  mf_tensor *t = tensor->t;
  if (tensor->lent || t == NULL) return;
  tensor->t = NULL;
  core_release_quietly(t);
}

const char core_close_doc[] =
    "close($self, /)\n--\n\n"
    "Ends the tensor: its memory is given back at once unless a view, another tensor or a consumer of DLPack shares\n"
    "it, and each later use but close, closed and repr raises ValueError. `with t:` closes t at the end of the block.\n"
    "The second time nothing happens. Calls of other threads that are inside go on, and the memory stays for them.\n"
    "Raises BufferError while a buffer is out, as of a memoryview or of a NumPy array made by numpy.asarray(t).";

PyObject *core_close(PyObject *self, PyObject *ignored) {
  (void)ignored;
  core_tensor *tensor = (core_tensor *)self;
  if (tensor->buffers > 0) {
    PyErr_Format(PyExc_BufferError, "close: %d buffer%s of the tensor %s out, of a memoryview or a NumPy array; "
                 "release() or del ends it",
                 (int)tensor->buffers, tensor->buffers == 1 ? "" : "s", tensor->buffers == 1 ? "is" : "are");
    return NULL;
  }
  tensor->closed = true;
  if (tensor->inside == 0) core_drop(tensor);
  Py_RETURN_NONE;
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
