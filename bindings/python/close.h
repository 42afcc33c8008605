/* close.h: a moonferry.Tensor and its door.
 *
 * Responsible for: who is inside of a tensor. Invariant: the handle stays for whoever is inside, for each buffer and
 * for whom it was lent to. With the GIL the door is four fields; without it they are one atomic number, because they
 * change together. It needs Python.h before it. */
#ifndef MOONFERRY_PYTHON_CLOSE_H
#define MOONFERRY_PYTHON_CLOSE_H

#include <moonferry.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct core_tensor {
  PyObject ob_base;
  mf_tensor *t; /* one reference; NULL once it is closed and nobody is inside */
  PyObject *weakrefs;
#ifdef Py_GIL_DISABLED
  _Atomic(uint64_t) door; /* the next four in one: CORE_INSIDE, CORE_BUFFER, CORE_CLOSED, CORE_LENT */
#else
  int32_t inside;  /* how many calls, on all threads, use t now: it stays until the last one leaves */
  int32_t buffers; /* how many are out: they point into t, so that it cannot be closed */
  bool closed;     /* no call may enter */
  bool lent;       /* somebody was promised t for as long as the object lives */
#endif
} core_tensor;

/* close.c: the door of a tensor. What uses its handle while Python code, a collection or another thread may run is
 * between core_enter and core_leave: each of these may close it, and then it ends when the last call has left. */
int core_refuse_closed(void);
void core_release_quietly(mf_tensor *t);
void core_drop(core_tensor *tensor);
PyObject *core_close(PyObject *self, PyObject *ignored);
PyObject *core_tensor_enter(PyObject *self, PyObject *ignored);
PyObject *core_tensor_exit(PyObject *self, PyObject *args);
PyObject *core_get_closed(PyObject *self, void *closure);
extern const char core_close_doc[];

/* What the door counts, and its two marks; without the GIL they change together. */
#define CORE_INSIDE UINT64_C(1)
#define CORE_BUFFER (UINT64_C(1) << 32)
#define CORE_CLOSED (UINT64_C(1) << 31)
#define CORE_LENT (UINT64_C(1) << 63)

#ifdef Py_GIL_DISABLED

static inline _Atomic(uint64_t) *core_door(PyObject *tensor) {
  return &((core_tensor *)tensor)->door;
}

static inline bool core_is_closed(PyObject *tensor) {
  return (atomic_load(core_door(tensor)) & CORE_CLOSED) != 0;
}

static inline void core_leave(PyObject *tensor) {
  const uint64_t left = atomic_fetch_sub(core_door(tensor), CORE_INSIDE) - CORE_INSIDE;
  if ((left & CORE_CLOSED) != 0 && (left & (CORE_CLOSED - 1)) == 0) core_drop((core_tensor *)tensor);
}

/* 0, or -1 with a ValueError where ${tensor} is closed. */
static inline int core_enter(PyObject *tensor) {
  if ((atomic_fetch_add(core_door(tensor), CORE_INSIDE) & CORE_CLOSED) == 0) return 0;
  core_leave(tensor);
  return core_refuse_closed();
}

/* Somebody was given the handle, or an address, for as long as ${tensor} lives: closed, it keeps its memory. Inside. */
static inline void core_lend(PyObject *tensor) {
  atomic_fetch_or(core_door(tensor), CORE_LENT);
}

/* A buffer goes out, inside: 0, or -1 with a ValueError where ${tensor} was closed meanwhile. From then on nothing
 * closes it until the buffer comes back. */
static inline int core_buffer_out(PyObject *tensor) {
  uint64_t door = atomic_load(core_door(tensor));
  do {
    if ((door & CORE_CLOSED) != 0) return core_refuse_closed();
  } while (!atomic_compare_exchange_weak(core_door(tensor), &door, door + CORE_BUFFER));
  return 0;
}

static inline void core_buffer_back(PyObject *tensor) {
  atomic_fetch_sub(core_door(tensor), CORE_BUFFER);
}

#else

static inline bool core_is_closed(PyObject *tensor) {
  return ((core_tensor *)tensor)->closed;
}

static inline int core_enter(PyObject *tensor) {
  if (core_is_closed(tensor)) return core_refuse_closed();
  ((core_tensor *)tensor)->inside++;
  return 0;
}

static inline void core_leave(PyObject *tensor) {
  core_tensor *self = (core_tensor *)tensor;
  if (--self->inside == 0 && self->closed) core_drop(self);
}

static inline void core_lend(PyObject *tensor) {
  ((core_tensor *)tensor)->lent = true;
}

static inline int core_buffer_out(PyObject *tensor) {
  if (core_is_closed(tensor)) return core_refuse_closed();
  ((core_tensor *)tensor)->buffers++;
  return 0;
}

static inline void core_buffer_back(PyObject *tensor) {
  ((core_tensor *)tensor)->buffers--;
}

#endif

/* core_enter and core_leave around what runs no other code: with the GIL nobody can come in between, so that nothing is
 * counted. */
static inline int core_look(PyObject *tensor) {
#ifdef Py_GIL_DISABLED
  return core_enter(tensor);
#else
  return core_is_closed(tensor) ? core_refuse_closed() : 0;
#endif
}

static inline void core_look_end(PyObject *tensor) {
#ifdef Py_GIL_DISABLED
  core_leave(tensor);
#else
  (void)tensor;
#endif
}

/* Methods whose bodies run inside of the door. */
#define CORE_METHOD(name, body, parameters, arguments)       \
  PyObject *name parameters {                                \
    if (core_enter(self) < 0) return NULL;                   \
    PyObject *core_result = body arguments;                  \
    core_leave(self);                                        \
    return core_result;                                      \
  }
#define CORE_PLAIN(name, body) CORE_METHOD(name, body, (PyObject * self, PyObject * arg), (self, arg))
#define CORE_TUPLE(name, body) \
  CORE_METHOD(name, body, (PyObject * self, PyObject * args, PyObject * kwargs), (self, args, kwargs))
#define CORE_VECTOR(name, body) \
  CORE_METHOD(name, body, (PyObject * self, PyObject *const *args, Py_ssize_t nargs), (self, args, nargs))
#define CORE_KEYWORDS(name, body)                                                                              \
  CORE_METHOD(name, body, (PyObject * self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames), \
              (self, args, nargs, kwnames))

/* Borrowed, and not NULL between core_enter and core_leave, or core_look and core_look_end. */
static inline mf_tensor *core_handle(PyObject *tensor) {
  return ((core_tensor *)tensor)->t;
}

static inline const DLTensor *core_view(PyObject *tensor) {
  return mf_tensor_dltensor(core_handle(tensor));
}

#endif
