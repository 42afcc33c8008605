/* virtual.c: memory without an address, addresses without memory, and the one at the other.
 *
 * It must not know what either is made of. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

#include "calls.h"

sim_status sim_call_granularity(int device, size_t *out) {
  sim_device *d;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_device_given(device, &d));
  *out = SIM_GRANULARITY;
  return SIM_OK;
}

sim_status sim_call_physical_new(int device, size_t nbytes, bool exportable, void *out) {
  sim_device *d;
  sim_physical *p;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_device_given(device, &d));
  SIM_TRY(sim_capture_unsafe());
  SIM_TRY(sim_physical_new(device, nbytes, exportable, &p));
  sim_log_detail("%zu bytes of device %d", nbytes, device);
  sim_put(out, p->o.handle);
  return SIM_OK;
}

sim_status sim_call_physical_end(const void *handle) {
  sim_physical *p;
  SIM_TRY(sim_given(handle, SIM_PHYSICAL, &p));
  sim_physical_release(p);
  return SIM_OK;
}

sim_status sim_call_physical_facts(const void *handle, int *device, bool *exportable) {
  sim_physical *p;
  SIM_TRY(sim_given(handle, SIM_PHYSICAL, &p));
  *device = p->memory->device;
  *exportable = p->exportable;
  return SIM_OK;
}

sim_status sim_call_physical_at(uintptr_t at, void *out) {
  const sim_alloc *a = sim_live(at);
  const sim_map *m = out == NULL || a == NULL || a->maps == NULL ? NULL : sim_map_at(a, at);
  if (m == NULL || m->of->refs == 0) return SIM_INVALID;
  m->of->refs++;
  sim_put(out, m->of->o.handle);
  return SIM_OK;
}

sim_status sim_call_physical_export(const void *handle, unsigned kind, unsigned long long flags, int *out) {
  sim_physical *p;
  if (out == NULL || flags != 0) return SIM_INVALID;
  SIM_TRY(sim_given(handle, SIM_PHYSICAL, &p));
  if (kind != SIM_POSIX_FD || !p->exportable) return SIM_INVALID;
  *out = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
  return *out < 0 ? SIM_NOMEM : SIM_OK;
}

/* The descriptor stays the program's. */
sim_status sim_call_physical_import(int fd, unsigned kind, void *out) {
  sim_physical *p;
  if (out == NULL || kind != SIM_POSIX_FD) return SIM_INVALID;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return SIM_INVALID;
  const sim_status rc = sim_physical_import(own, &p);
  if (rc != SIM_OK) close(own);
  if (rc == SIM_OK) sim_put(out, p->o.handle);
  return rc;
}

sim_status sim_call_reserve(size_t nbytes, size_t align, unsigned long long flags, void *out) {
  uintptr_t at;
  if (out == NULL || flags != 0) return SIM_INVALID;
  SIM_TRY(sim_reserve(nbytes, align, &at));
  sim_log_detail("%zu bytes at %#zx", nbytes, (size_t)at);
  sim_put(out, at);
  return SIM_OK;
}

sim_status sim_call_map(uintptr_t at, size_t nbytes, size_t offset, const void *handle, unsigned long long flags) {
  sim_physical *p;
  if (offset != 0 || flags != 0) return SIM_INVALID;
  SIM_TRY(sim_given(handle, SIM_PHYSICAL, &p));
  SIM_TRY(sim_capture_unsafe());
  sim_log_detail("%zu bytes at %#zx", nbytes, (size_t)at);
  return sim_map_add(at, nbytes, p);
}

sim_status sim_call_unmap(uintptr_t at, size_t nbytes) {
  SIM_TRY(sim_capture_unsafe());
  sim_log_detail("%zu bytes at %#zx", nbytes, (size_t)at);
  return sim_map_end(at, nbytes);
}

sim_status sim_call_map_permit(uintptr_t at, size_t nbytes, const void *permits, size_t n) {
  if (permits == NULL || n == 0) return SIM_INVALID;
  for (size_t i = 0; i < n; i++) {
    sim_permit permit;
    sim_device *d;
    memcpy(&permit, (const char *)permits + i * sizeof permit, sizeof permit);
    if (permit.where.type != SIM_AT_DEVICE) return SIM_NOT_SUPPORTED;
    if (permit.flags != 0 && permit.flags != 1 && permit.flags != 3) return SIM_INVALID;
    SIM_TRY(sim_device_given(permit.where.id, &d));
    SIM_TRY(sim_map_allow(at, nbytes, d->id, (unsigned)permit.flags));
  }
  return SIM_OK;
}

sim_status sim_call_map_permitted(uintptr_t at, const void *location, unsigned long long *flags) {
  int device;
  if (flags == NULL) return SIM_INVALID;
  SIM_TRY(sim_located(location, SIM_PINNED_TO_IT, &device));
  const sim_alloc *a = sim_live(at);
  const sim_map *m = a == NULL || a->maps == NULL ? NULL : sim_map_at(a, at);
  if (m == NULL) return SIM_INVALID;
  *flags = m->access[device];
  return SIM_OK;
}
