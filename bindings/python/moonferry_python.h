/* moonferry_python.h: Moonferry tensors for other CPython extensions, in C.
 *
 *   static const mf_python_api *mfpy;
 *   mfpy = mf_python_import();               // once, with the GIL; NULL with an exception
 *   PyObject *obj = mfpy->wrap(tensor);      // a moonferry.Tensor that owns the reference
 *   mf_tensor *t = mfpy->unwrap(argument);   // borrowed; NULL with TypeError
 *
 * Link the extension with libmoonferry for the mf_* functions. If it may have found another copy of that
 * library, compare `build_id` with mf_build_id().
 */
#ifndef MOONFERRY_PYTHON_H
#define MOONFERRY_PYTHON_H

#include <Python.h>
#include <moonferry.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MF_PYTHON_API_NAME "moonferry._C_API"
#define MF_PYTHON_API_VERSION 1

typedef struct mf_python_api {
  uint32_t version;     /* MF_PYTHON_API_VERSION; with another number the members have another meaning */
  uint32_t size;        /* sizeof(mf_python_api); later versions only add members at the end */
  const char *build_id; /* the build of libmoonferry that the module uses */

  /* wrap(t): returns ${t} as a new moonferry.Tensor. Owns: takes over the reference if it succeeds; on failure
   * ${t} is still the caller's. Fails: NULL with MemoryError, or with RuntimeError if moonferry was never
   * imported in this interpreter. Threads: with the GIL. */
  PyObject *(*wrap)(mf_tensor *t);

  /* unwrap(obj): returns the tensor inside a moonferry.Tensor. Owns: borrowed for as long as ${obj} lives, even if it
   * is closed meanwhile: the memory is then released with the object. Fails: NULL with TypeError for any other object,
   * ValueError for a closed tensor. Threads: with the GIL. */
  mf_tensor *(*unwrap)(PyObject *obj);

  /* check(obj): returns 1 if ${obj} is a moonferry.Tensor, otherwise 0. Never fails. Threads: with the GIL. */
  int (*check)(PyObject *obj);

  /* retain(obj): as unwrap, but returns a new reference: after close the memory lives until that is released. */
  mf_tensor *(*retain)(PyObject *obj);
} mf_python_api;

/* mf_python_import(): imports moonferry and returns the table. Owns: static storage. Fails: NULL with
 * ImportError, or AttributeError. Threads: with the GIL. */
static inline const mf_python_api *mf_python_import(void) {
  const mf_python_api *api = (const mf_python_api *)PyCapsule_Import(MF_PYTHON_API_NAME, 0);
  if (api != NULL && api->version != MF_PYTHON_API_VERSION) {
    PyErr_Format(PyExc_ImportError, "moonferry._C_API has version %u, this extension needs %u", (unsigned)api->version,
                 (unsigned)MF_PYTHON_API_VERSION);
    return NULL;
  }
  return api;
}

#ifdef __cplusplus
}
#endif

#endif /* MOONFERRY_PYTHON_H */
