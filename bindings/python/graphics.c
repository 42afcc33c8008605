/* graphics.c: fences in capsules, and what moonferry.gl needs of this library in one step each: an exception, such as
 * that of Ctrl-C, may come between any two steps of Python's.
 *
 * Invariant: a capsule named mf_fence owns its fence; who takes that renames the capsule. It must not know what is
 * drawn.
 */
#include "core.h"

#define CAPSULE "mf_fence"
#define USED_CAPSULE "used_mf_fence"

/* Takes the fence out of a capsule; NULL for None. Other fences may run any code while it is set, which does not find
 * it there any more. -1 with an exception. */
int core_fence_take(PyObject *obj, const mf_fence **out) {
  *out = NULL;
  if (obj == NULL || obj == Py_None) return 0;
  if (!PyCapsule_IsValid(obj, CAPSULE)) {
    PyErr_Format(PyExc_TypeError, "fence must be None or a capsule named \"%s\" that nobody has used, not %R", CAPSULE,
                 obj);
    return -1;
  }
  *out = PyCapsule_GetPointer(obj, CAPSULE);
  return PyCapsule_SetName(obj, USED_CAPSULE);
}

/* The fence was not set, and is the capsule's again. */
void core_fence_back(PyObject *capsule, const mf_fence *fence) {
  if (fence != NULL) (void)PyCapsule_SetName(capsule, CAPSULE);
}

/* The end of a capsule of core_gl_fence. An exception may be on its way. */
static void capsule_ends(PyObject *capsule) {
  const aside exception = aside_begin();
  mf_fence *fence = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
  if (PyCapsule_IsValid(capsule, CAPSULE)) fence->drop(fence->ctx, fence->value);
  PyMem_Free(fence);
  aside_end(exception);
}

static PyObject *fence_in_capsule(core_state *state, mf_gl *gl, mf_fence *fence) {
  mf_error err;
  if (mf_gl_fence(gl, fence, &err) != MF_OK) {
    core_raise(state, &err);
    return NULL;
  }
  PyObject *capsule = PyCapsule_New(fence, CAPSULE, capsule_ends);
  if (capsule == NULL) fence->drop(fence->ctx, fence->value);
  return capsule;
}

/* _gl_fence(gl): a capsule with a fence behind what OpenGL was told until now; ${gl} is the address of an mf_gl. */
PyObject *core_gl_fence(PyObject *module, PyObject *address) {
  mf_gl *gl = PyLong_AsVoidPtr(address);
  if (gl == NULL && PyErr_Occurred()) return NULL;
  mf_fence *fence = PyMem_Malloc(sizeof *fence);
  if (fence == NULL) return PyErr_NoMemory();
  PyObject *capsule = fence_in_capsule(core_state_of(module), gl, fence);
  if (capsule == NULL) PyMem_Free(fence);
  return capsule;
}

/* 0, or -1 with an exception. */
static int fence_tensor(core_state *state, PyObject *tensor, PyObject *capsule, int32_t use) {
  const mf_fence *fence;
  mf_error err;
  if (core_enter(tensor) < 0) return -1;
  int rc = core_fence_take(capsule, &fence);
  if (rc == 0 && mf_tensor_fence(core_handle(tensor), fence, use, &err) != MF_OK) {
    core_fence_back(capsule, fence);
    rc = core_raise(state, &err);
  }
  core_leave(tensor);
  return rc;
}

/* _tensor_fence(t, fence, write): mf_tensor_fence with a fence in a capsule. */
PyObject *core_tensor_fence(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  if (nargs != 3) {
    PyErr_SetString(PyExc_TypeError, "_tensor_fence() takes 3 arguments");
    return NULL;
  }
  if (!core_is_tensor(args[0])) {
    PyErr_Format(PyExc_TypeError, "expected a moonferry.Tensor, not '%s'", Py_TYPE(args[0])->tp_name);
    return NULL;
  }
  const int write = PyObject_IsTrue(args[2]);
  if (write < 0) return NULL;
  const int32_t use = write ? MF_WRITE : MF_READ;
  if (fence_tensor(core_state_of(module), args[0], args[1], use) < 0) return NULL;
  Py_RETURN_NONE;
}

/* _tensor_at(handle): a Tensor of the mf_tensor at an address, with a reference of its own. */
PyObject *core_tensor_at(PyObject *module, PyObject *address) {
  mf_tensor *t = PyLong_AsVoidPtr(address);
  if (t == NULL && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "handle is 0; an mf_tensor expected");
  return t == NULL ? NULL : core_tensor_new(core_state_of(module), mf_tensor_retain(t));
}
