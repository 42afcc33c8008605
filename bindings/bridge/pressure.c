/* pressure.c: weighs Python objects, so that Lua's collector runs before memory runs out.
 *
 * To Lua, an array of a gigabyte is a userdata of eight bytes. So the bytes that objects say they have are added up,
 * and when many have come since the last collection, everything is collected and given back at once. Where that helps
 * little the limit grows, so that a program with much live data is not slowed down. An object that comes again while
 * Lua has it, as what was given as `out` does from each call, has its weight once. Only guesses are at stake: nothing
 * but the time of a collection depends on them. */
#include "handle.h"

#define GROWTH 1.4    /* of the limit, where more than ... */
#define SURVIVORS 0.8 /* ... of the bytes outlive a collection */

/* Bytes that came since the last collection, and that may come until the next. Guarded by the GIL. */
static double added, limit = 256 << 20;

/* Whether a type has `nbytes`, as arrays do: its address, plus 1 if so. Types may die and their addresses come back;
 * then the guess is wrong until the entry is overwritten. */
static atomic_uintptr_t known[256];

/* 1, 0, or -1 where nobody has looked. */
static int known_nbytes(const PyTypeObject *type) {
  const uintptr_t entry = atomic_load_explicit(&known[((uintptr_t)type >> 6) % 256], memory_order_relaxed);
  return entry - (uintptr_t)type <= 1 ? (int)(entry - (uintptr_t)type) : -1;
}

/* What ${object} or a type says they are; NULL if nothing, or with what is no answer. */
static PyObject *nbytes_said_by(PyObject *object) {
  PyObject *value = PyObject_GetAttrString(object, "nbytes");
  if (value == NULL) (void)answer_is_no();
  return value;
}

/* 1, 0, or -1 with an exception. */
static int has_nbytes(PyTypeObject *type) {
  if (known_nbytes(type) == 1) return 1;
  PyObject *found = nbytes_said_by((PyObject *)type);
  if (PyErr_Occurred()) return -1;
  atomic_store_explicit(&known[((uintptr_t)type >> 6) % 256], (uintptr_t)type + (found != NULL), memory_order_relaxed);
  Py_DecRef(found);
  return found != NULL;
}

/* 0 where there is no guess; with an exception where what came is no answer. */
static double nbytes_of(PyObject *object) {
  const int has = has_nbytes(Py_TYPE(object));
  PyObject *value = has > 0 ? nbytes_said_by(object) : NULL;
  const double nbytes = value != NULL ? PyFloat_AsDouble(value) : 0;
  Py_DecRef(value);
  if (PyErr_Occurred() == NULL) return nbytes;
  (void)answer_is_no();
  return 0;
}

/* Where the collector is to stand still, the next object after that finds as many bytes or more. */
static void relieve(lua_State *L) {
  if (mf__top->state->collector_stops > 0) return;
  double before = mf__refs_nbytes();
  lua_gc(L, LUA_GCCOLLECT, 0);
  mf__refs_drain();
  added = 0;
  if (mf__refs_nbytes() > SURVIVORS * before) limit *= GROWTH;
}

void mf__weigh(lua_State *L, mf__ref *ref) {
  double nbytes;
  if (known_nbytes(Py_TYPE(ref->object)) == 0) return;
  if (mf__is_weighed(ref->object)) return;
  MF__OUTSIDE(nbytes, nbytes_of(ref->object));
  if (PyErr_Occurred()) mf__raise(L);
  mf__ref *const *box = lua_touserdata(L, -1);
  const int is_open = *box == ref && ref->object != NULL; /* what was asked may have closed it */
  if (!is_open || !(nbytes > 0 && nbytes < 1e18)) return;
  mf__ref_weigh(ref, nbytes);
  added += nbytes;
  if (added > limit) relieve(L);
}

void mf__weigh_closed(const mf__ref *ref) {
  added = added > ref->nbytes ? added - ref->nbytes : 0;
}
