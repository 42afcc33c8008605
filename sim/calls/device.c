/* device.c: what devices say of themselves and of each other.
 *
 * It must not know what a driver calls an attribute. */
#include <stdio.h>

#include "calls.h"

void sim_device_name(const sim_device *d, char *text, size_t size) {
  snprintf(text, size, "Simulated GPU %d", d->id);
}

sim_status sim_call_device_name(int device, char *text, int size) {
  sim_device *d;
  if (text == NULL || size <= 0) return SIM_INVALID;
  SIM_TRY(sim_device_given(device, &d));
  sim_device_name(d, text, (size_t)size);
  return SIM_OK;
}

sim_status sim_call_device_bus(int device, char *text, int size) {
  enum { SHORTEST = 13 };
  sim_device *d;
  if (text == NULL || size < SHORTEST) return SIM_INVALID;
  SIM_TRY(sim_device_given(device, &d));
  snprintf(text, (size_t)size, "0000:%02x:00.0", d->id + 1);
  return SIM_OK;
}

sim_status sim_call_device_uuid(int device, int filler, void *uuid) {
  enum { NBYTES = 16 };
  sim_device *d;
  if (uuid == NULL) return SIM_INVALID;
  SIM_TRY(sim_device_given(device, &d));
  memset(uuid, filler, NBYTES);
  ((unsigned char *)uuid)[NBYTES - 1] = (unsigned char)d->id;
  return SIM_OK;
}

sim_status sim_call_device_total(int device, size_t *nbytes) {
  sim_device *d;
  if (nbytes == NULL) return SIM_INVALID;
  SIM_TRY(sim_device_given(device, &d));
  *nbytes = d->total;
  return SIM_OK;
}

sim_status sim_call_device_can_access(int device, int peer, int *can) {
  sim_device *a, *b;
  if (can == NULL) return SIM_INVALID;
  SIM_TRY(sim_device_given(device, &a));
  SIM_TRY(sim_device_given(peer, &b));
  *can = a != b;
  return SIM_OK;
}

sim_status sim_peer_access(sim_context *c, int peer, bool on) {
  if (peer == c->device->id) return SIM_BAD_DEVICE;
  SIM_TRY(sim_capture_unsafe());
  if (c->peers[peer] == on) return on ? SIM_PEER_ON : SIM_PEER_OFF;
  c->peers[peer] = on;
  return SIM_OK;
}
