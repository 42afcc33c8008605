/* copy.c: which side of a copy is whose, and fills.
 *
 * It must not know when a copy happens. */
#include "calls.h"

static bool is_device(uintptr_t p) {
  return sim_ours(p) || sim_alloc_find(p) != NULL;
}

static bool is_host(uintptr_t p) {
  const sim_alloc *a = sim_alloc_find(p);
  return a == NULL ? !sim_ours(p) : a->space != SIM_DEVICE;
}

sim_status sim_on_side(uintptr_t p, bool host) {
  if (host ? is_host(p) : is_device(p)) return SIM_OK;
  sim_found(SIM_BOUNDS, "%s: %#zx is not %s memory", sim_here().call, (size_t)p, host ? "host" : "device");
  return SIM_INVALID;
}

sim_region sim_plane(uintptr_t base, size_t pitch, size_t width, size_t rows) {
  return (sim_region){base, width, pitch, rows, pitch * rows, 1};
}

sim_status sim_call_fill(const void *stream, const sim_region *r, uint32_t value, unsigned unit, bool sync) {
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  sim_status rc = sync ? sim_capture_sync(s) : SIM_OK;
  sim_log_detail("%#zx <- %#x, %zu x %zu bytes, %s", (size_t)r->base, value, r->width, r->rows, s->name);
  if (rc == SIM_OK) rc = sim_fill(s, r, value, unit);
  if (rc != SIM_OK || !sync || sim_region_empty(r) || !is_host(r->base)) return rc;
  return sim_stream_wait_host(s);
}
