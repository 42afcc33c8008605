/* memory.c: allocation, pinned and registered memory, and what a pointer is.
 *
 * Asking about a pointer that is nobody's is no mistake and leaves no finding. It must not know about streams, except
 * that prefetching is an operation in one. */
#include "calls.h"

sim_alloc *sim_live(uintptr_t p) {
  sim_alloc *a = sim_alloc_find(p);
  if (a == NULL || a->freed || (a->maps != NULL && sim_map_at(a, p) == NULL)) return NULL;
  return a;
}

sim_alloc *sim_host_memory(uintptr_t p) {
  sim_alloc *a = sim_live(p);
  return a != NULL && (a->space == SIM_PINNED || a->space == SIM_FOREIGN) ? a : NULL;
}

sim_status sim_call_alloc(sim_space space, size_t nbytes, unsigned flags, void *out) {
  sim_context *c;
  sim_alloc *a;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_context_of(&c));
  SIM_TRY(sim_capture_unsafe());
  if (nbytes == 0) return SIM_INVALID;
  SIM_TRY(sim_alloc_new(space, c->device->id, nbytes, NULL, &a));
  a->ctx = c;
  a->flags = flags;
  sim_poison(a, SIM_FRESH);
  sim_log_detail("%zu bytes at %#zx", nbytes, (size_t)a->base);
  sim_put(out, a->base);
  return SIM_OK;
}

sim_status sim_call_free(uintptr_t p, bool pinned) {
  sim_context *c;
  if (p == 0) return SIM_OK;
  SIM_TRY(sim_context_of(&c));
  sim_alloc *a = sim_alloc_find(p);
  const bool whole = a != NULL && a->base == p && a->maps == NULL;
  const bool known = whole && a->space != SIM_FOREIGN && a->kept == NULL && a->opened == 0;
  const bool fits = known && (a->space == SIM_PINNED) == pinned;
  sim_log_detail("%#zx", (size_t)p);
  if (fits) return sim_free_host(a);
  sim_found(SIM_STALE, "%s of %#zx, which %s", sim_here().call, (size_t)p,
            a == NULL        ? "is nobody's"
            : a->maps != NULL ? "lies in reserved addresses, which unmapping ends"
            : a->base != p ? "is inside an allocation"
            : a->opened > 0 ? "is another process's memory, which is closed"
            : a->kept != NULL ? a->kept
                           : "is memory of another kind");
  return SIM_INVALID;
}

sim_status sim_call_address_range(uintptr_t p, void *base, size_t *nbytes) {
  const sim_alloc *a = sim_live(p);
  if (a == NULL) return SIM_NOT_FOUND;
  const sim_map *m = a->maps == NULL ? NULL : sim_map_at(a, p);
  if (base != NULL) sim_put(base, m != NULL ? m->at : a->base);
  if (nbytes != NULL) *nbytes = m != NULL ? m->nbytes : a->nbytes;
  return SIM_OK;
}

sim_status sim_call_register(void *p, size_t nbytes, unsigned flags) {
  enum { ALL_FLAGS = 15 };
  sim_context *c;
  sim_alloc *a;
  SIM_TRY(sim_context_of(&c));
  if (p == NULL || nbytes == 0 || flags > ALL_FLAGS) return SIM_INVALID;
  SIM_TRY(sim_capture_unsafe());
  SIM_TRY(sim_register(p, nbytes, &a));
  a->device = c->device->id;
  a->ctx = c;
  a->flags = flags;
  return SIM_OK;
}

sim_status sim_call_host_address(void *p, unsigned flags, void *out) {
  if (out == NULL || flags != 0 || sim_host_memory((uintptr_t)p) == NULL) return SIM_INVALID;
  sim_put(out, (uintptr_t)p);
  return SIM_OK;
}

sim_status sim_call_host_flags(void *p, unsigned *flags) {
  const sim_alloc *a = sim_host_memory((uintptr_t)p);
  if (flags == NULL || a == NULL) return SIM_INVALID;
  *flags = a->flags;
  return SIM_OK;
}

sim_status sim_call_prefetch(const void *stream, uintptr_t p, size_t nbytes) {
  const sim_work empty = {.kind = SIM_EMPTY};
  const sim_alloc *a = sim_live(p);
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  SIM_TRY(sim_capture_implicit(s));
  if (sim_conf.managed_exclusive) return SIM_BAD_DEVICE;
  if (a == NULL || a->space != SIM_MANAGED || nbytes > a->nbytes - (p - a->base)) return SIM_INVALID;
  return sim_submit(s, &empty, NULL);
}
