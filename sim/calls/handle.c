/* handle.c: what a handle or a device's number stands for.
 *
 * Invariant: the handles 0, 1 and 2 are resolved when the call is made, for the calling thread's current context. It
 * must not know what the objects do. */
#include "calls.h"

sim_status sim_given(const void *handle, sim_type type, void *out) {
  void *object = sim_object_find(handle, type);
  *(void **)out = object;
  if (object != NULL) return SIM_OK;
  const bool was = sim_object_was(handle);
  if (handle != NULL && !was)
    sim_found(SIM_MISUSE, "%s is given %p as a %s", sim_here().call, handle, sim_type_name(type));
  if (type == SIM_CONTEXT) return was ? SIM_DEAD_CONTEXT : SIM_BAD_CONTEXT;
  return type == SIM_STREAM ? SIM_BAD_STREAM : SIM_BAD_HANDLE;
}

sim_status sim_stream_given(const void *handle, sim_stream **out) {
  enum { DEFAULT = 0, LEGACY = 1, PER_THREAD = 2 };
  const uintptr_t number = (uintptr_t)handle;
  sim_context *c;
  SIM_TRY(sim_context_of(&c));
  if (number == PER_THREAD || (number == DEFAULT && sim_default_is_per_thread()))
    *out = sim_stream_per_thread(c);
  else if (number == DEFAULT || number == LEGACY)
    *out = c->legacy;
  else
    return sim_given(handle, SIM_STREAM, out);
  return SIM_OK;
}

sim_status sim_device_given(int number, sim_device **out) {
  *out = sim_device_at(number);
  return *out == NULL ? SIM_BAD_DEVICE : SIM_OK;
}
