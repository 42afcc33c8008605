/* refs.c: who gives a Python reference back, and when.
 *
 * Lua collects its values whenever it likes, on a thread that may not hold the GIL and may never get it. So a
 * finalizer only moves a node, which was allocated with the value, onto a list; whoever comes next with the GIL, from
 * Lua into Python or from Python into Lua, empties it. Invariant: a node is alive, on that list once, or spare; until
 * it is emptied it is in its state's list, where Python's collector sees what Lua keeps alive.
 * Must not know: Lua, and who waits for its lock. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "lifetime.h"

#ifdef Py_GIL_DISABLED
PyObject mf__shared; /* for its mutex alone */
#endif

static _Atomic(mf__ref *) retired;

/* The weight of all living references, in bytes, and those that have some, by their objects' addresses. Guarded by the
 * GIL. */
static double nbytes_alive;
static mf__ref *weighed[256];

/* Nodes to use again, guarded by the GIL. As many as were ever alive at once; never given back. */
static mf__ref *spare;

static mf__ref *take_node(void) {
  mf__ref *ref = spare;
  if (ref == NULL) return malloc(sizeof *ref);
  spare = ref->next;
  return ref;
}

mf__ref *mf__ref_new(mf__ref **newest, PyObject *object) {
  mf__ref *ref = take_node();
  if (ref == NULL) return NULL;
  *ref = (mf__ref){.object = object, .older = *newest, .newest = newest};
  if (*newest != NULL) (*newest)->newer = ref;
  *newest = ref;
  return ref;
}

static void unlink_ref(mf__ref *ref) {
  if (ref->older != NULL) ref->older->newer = ref->newer;
  if (ref->newer != NULL) {
    ref->newer->older = ref->older;
  } else if (ref->newest != NULL) {
    *ref->newest = ref->older;
  }
}

void mf__ref_read_from(mf__ref *ref, mf__ref *source) {
  Py_IncRef(source->object);
  ref->origin = source->object;
  ref->source = source;
  ref->next_callable = source->callables;
  if (source->callables != NULL) source->callables->last_callable = ref;
  source->callables = ref;
}

static void leave_source(mf__ref *ref) {
  if (ref->source == NULL) return;
  if (ref->next_callable != NULL) ref->next_callable->last_callable = ref->last_callable;
  *(ref->last_callable != NULL ? &ref->last_callable->next_callable : &ref->source->callables) = ref->next_callable;
  ref->source = ref->next_callable = ref->last_callable = NULL;
}

static void leave_scope(mf__ref *ref) {
  if (ref->scope == NULL) return;
  if (ref->next_made != NULL) ref->next_made->last_made = ref->last_made;
  *(ref->last_made != NULL ? &ref->last_made->next_made : &ref->scope->made) = ref->next_made;
  ref->scope = NULL;
  ref->next_made = ref->last_made = NULL;
}

void mf__ref_enter(mf__ref *ref, mf__scope *scope) {
  leave_scope(ref);
  if (scope == NULL) return;
  ref->scope = scope;
  ref->next_made = scope->made;
  if (scope->made != NULL) scope->made->last_made = ref;
  scope->made = ref;
}

void mf__scopes_free(mf__scope **scopes) {
  while (*scopes != NULL) {
    mf__scope *scope = *scopes;
    *scopes = scope->next;
    while (scope->made != NULL) leave_scope(scope->made);
    free(scope);
  }
}

/* From every list but its state's. */
static void leave_others(mf__ref *ref) {
  leave_source(ref);
  leave_scope(ref);
  while (ref->callables != NULL) leave_source(ref->callables);
}

static mf__ref **weighed_at(const PyObject *object) {
  return &weighed[((uintptr_t)object >> 4) % (sizeof weighed / sizeof *weighed)];
}

void mf__ref_weigh(mf__ref *ref, double nbytes) {
  mf__ref **at = weighed_at(ref->object);
  ref->nbytes = nbytes;
  ref->next_weighed = *at;
  *at = ref;
  nbytes_alive += nbytes;
}

int mf__is_weighed(const PyObject *object) {
  const mf__ref *ref = *weighed_at(object);
  while (ref != NULL && ref->object != object) ref = ref->next_weighed;
  return ref != NULL;
}

void mf__ref_unweigh(mf__ref *ref) {
  if (ref->nbytes == 0) return;
  mf__ref **at = weighed_at(ref->object);
  while (*at != ref) at = &(*at)->next_weighed;
  *at = ref->next_weighed;
  nbytes_alive -= ref->nbytes;
  ref->nbytes = 0;
}

void mf__ref_empty(mf__ref *ref, PyObject *held[2]) {
  leave_others(ref);
  mf__ref_unweigh(ref);
  held[0] = ref->object;
  held[1] = ref->origin;
  ref->object = ref->origin = NULL;
}

/* The references stay linked with one another: each leaves its neighbours when it is given back. */
void mf__refs_forget(mf__ref **newest) {
  for (mf__ref *ref = *newest; ref != NULL; ref = ref->older) ref->newest = NULL;
}

void mf__ref_retire(mf__ref *ref) {
  ref->next = atomic_load_explicit(&retired, memory_order_relaxed);
  while (
      !atomic_compare_exchange_weak_explicit(&retired, &ref->next, ref, memory_order_release, memory_order_relaxed)) {
  }
}

static void give_back(mf__ref *ref) {
  while (ref != NULL) {
    mf__ref *next = ref->next;
    mf__section section;
    mf__section_begin(&section);
    PyObject *object = ref->object, *origin = ref->origin;
    mf__ref_unweigh(ref);
    unlink_ref(ref);
    leave_others(ref);
    ref->next = spare;
    spare = ref;
    mf__section_end(&section);
    /* May run any Python code, this function included. */
    Py_DecRef(object);
    Py_DecRef(origin);
    ref = next;
  }
}

int mf__refs_wait(void) {
  return atomic_load_explicit(&retired, memory_order_relaxed) != NULL;
}

/* The whole list is taken at once: no node can come back to its head meanwhile. */
void mf__refs_give_back(void) {
  give_back(atomic_exchange_explicit(&retired, NULL, memory_order_acquire));
}

double mf__refs_nbytes(void) {
  return nbytes_alive;
}
