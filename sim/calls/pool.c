/* pool.c: memory pools and stream-ordered allocation.
 *
 * It must not know what a pool does. */
#include "calls.h"

sim_status sim_located(const void *location, int kind, int *device) {
  sim_location at;
  sim_device *d;
  if (location == NULL) return SIM_INVALID;
  memcpy(&at, location, sizeof at);
  if (at.type != SIM_AT_DEVICE || kind != SIM_PINNED_TO_IT) return SIM_NOT_SUPPORTED;
  *device = at.id;
  return sim_device_given(at.id, &d);
}

sim_status sim_call_pool_default(int device, void *out) {
  sim_device *d;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_device_given(device, &d));
  sim_put(out, sim_pool_default(d)->o.handle);
  return SIM_OK;
}

sim_status sim_call_pool_current(int device, void *out) {
  sim_device *d;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_device_given(device, &d));
  sim_put(out, sim_pool_current(d)->o.handle);
  return SIM_OK;
}

sim_status sim_call_pool_choose(int device, const void *pool) {
  sim_device *d;
  sim_pool *p;
  SIM_TRY(sim_device_given(device, &d));
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  return sim_pool_choose(d, p);
}

sim_status sim_call_pool_new(const void *location, int kind, unsigned handles, void *out) {
  int device;
  if (out == NULL) return SIM_INVALID;
  if ((handles & ~(unsigned)SIM_POSIX_FD) != 0) return SIM_NOT_SUPPORTED;
  SIM_TRY(sim_located(location, kind, &device));
  sim_pool *p = sim_pool_new(sim_device_at(device), false);
  p->exportable = handles != 0;
  sim_put(out, p->o.handle);
  return SIM_OK;
}

sim_status sim_call_pool_end(const void *pool) {
  sim_pool *p;
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  return sim_pool_end(p);
}

sim_status sim_call_pool_get(const void *pool, int which, void *value) {
  sim_pool *p;
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  return sim_pool_get(p, which, value);
}

sim_status sim_call_pool_set(const void *pool, int which, const void *value) {
  sim_pool *p;
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  return sim_pool_set(p, which, value);
}

sim_status sim_call_pool_trim(const void *pool, size_t keep) {
  sim_pool *p;
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  return sim_pool_trim(p, keep);
}

sim_status sim_call_pool_permit(const void *pool, const void *permits, size_t n) {
  sim_pool *p;
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  if (permits == NULL && n > 0) return SIM_INVALID;
  for (size_t i = 0; i < n; i++) {
    sim_permit permit;
    memcpy(&permit, (const char *)permits + i * sizeof permit, sizeof permit);
    if (permit.where.type != SIM_AT_DEVICE) return SIM_INVALID;
    SIM_TRY(sim_pool_allow(p, permit.where.id, (unsigned)permit.flags));
  }
  return SIM_OK;
}

sim_status sim_call_pool_permitted(const void *pool, const void *location, int *flags) {
  sim_pool *p;
  int device;
  if (flags == NULL) return SIM_INVALID;
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  SIM_TRY(sim_located(location, SIM_PINNED_TO_IT, &device));
  *flags = (int)p->access[device];
  return SIM_OK;
}

/* Outside of the captured streams it is as unsafe as any other allocation: measured, see do_cuStreamGetId. */
static sim_status allocate(sim_pool *p, size_t nbytes, sim_stream *s, void *out) {
  uintptr_t at;
  if (s->capture == NULL) SIM_TRY(sim_capture_unsafe());
  SIM_TRY(sim_pool_alloc(p, s, nbytes, &at));
  sim_put(out, at);
  return SIM_OK;
}

sim_status sim_call_pool_alloc(const void *pool, size_t nbytes, const void *stream, void *out) {
  sim_pool *p;
  sim_stream *s;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_stream_given(stream, &s));
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  return allocate(p, nbytes, s, out);
}

sim_status sim_call_alloc_async(size_t nbytes, const void *stream, void *out) {
  sim_stream *s;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_stream_given(stream, &s));
  return allocate(sim_pool_current(s->ctx->device), nbytes, s, out);
}

sim_status sim_call_free_async(uintptr_t p, const void *stream) {
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  return sim_pool_free(s, p);
}
