/* context.c: contexts, as the program sees them.
 *
 * It must not know about memory or streams beyond waiting for all of a context's. */
#include "front.h"

CUresult object_of(const void *handle, sim_type type, void *out) {
  return from(sim_given(handle, type, out));
}

static CUcontext handle_of(const sim_context *c) {
  return c == NULL ? NULL : (CUcontext)c->o.handle;
}

static CUresult current(sim_context **out) {
  return from(sim_context_of(out));
}

CUresult do_cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
  sim_device *device;
  sim_context *context;
  if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(device_of(d, &device));
  TRY(from(sim_device_verdict(device)));
  TRY(from(sim_primary_retain(device, &context)));
  *c = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxRelease_v2(CUdevice d) {
  sim_device *device;
  TRY(device_of(d, &device));
  TRY(from(sim_primary_release(device)));
  return from(sim_device_verdict(device));
}

CUresult do_cuDevicePrimaryCtxReset_v2(CUdevice d) {
  sim_device *device;
  TRY(device_of(d, &device));
  sim_primary_reset(device);
  return from(sim_device_verdict(device));
}

CUresult do_cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
  sim_device *device;
  if (flags == NULL || active == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(device_of(d, &device));
  *flags = device->primary_flags;
  *active = device->primary != NULL;
  return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags) {
  sim_device *device;
  TRY(device_of(d, &device));
  device->primary_flags = flags;
  return CUDA_SUCCESS;
}

CUresult do_cuCtxCreate_v2(CUcontext *c, unsigned flags, CUdevice d) {
  sim_device *device;
  sim_context *context;
  if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(device_of(d, &device));
  TRY(from(sim_context_new(device, flags, &context)));
  TRY(from(sim_context_stack(context)));
  *c = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult do_cuCtxCreate_v4(CUcontext *c, CUctxCreateParams *p, unsigned flags, CUdevice d) {
  return p != NULL ? CUDA_ERROR_NOT_SUPPORTED : do_cuCtxCreate_v2(c, flags, d);
}

CUresult do_cuCtxDestroy_v2(CUcontext c) {
  sim_context *context;
  TRY(object_of(c, SIM_CONTEXT, &context));
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (sim_current() == context) sim_context_set(NULL);
  sim_context_end(context);
  return CUDA_SUCCESS;
}

CUresult do_cuCtxPushCurrent_v2(CUcontext c) {
  sim_context *context;
  TRY(object_of(c, SIM_CONTEXT, &context));
  return from(sim_context_push(context));
}

CUresult do_cuCtxPopCurrent_v2(CUcontext *c) {
  sim_context *context;
  TRY(from(sim_context_pop(&context)));
  if (c != NULL) *c = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult do_cuCtxSetCurrent(CUcontext c) {
  sim_context *context = NULL;
  if (c != NULL) TRY(object_of(c, SIM_CONTEXT, &context));
  sim_context_set(context);
  return CUDA_SUCCESS;
}

CUresult do_cuCtxGetCurrent(CUcontext *c) {
  if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
  *c = handle_of(sim_current());
  return CUDA_SUCCESS;
}

/* Libraries ask this to learn whether there is a context, so an answer of "no" is no finding. */
CUresult do_cuCtxGetDevice(CUdevice *d) {
  if (d == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (sim_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *d = sim_current()->device->id;
  return CUDA_SUCCESS;
}

CUresult do_cuCtxGetDevice_v2(CUdevice *d, CUcontext c) {
  sim_context *context;
  if (c == NULL) return do_cuCtxGetDevice(d);
  if (d == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(object_of(c, SIM_CONTEXT, &context));
  *d = context->device->id;
  return CUDA_SUCCESS;
}

CUresult do_cuCtxGetFlags(unsigned *flags) {
  sim_context *c;
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(current(&c));
  *flags = c->flags;
  return CUDA_SUCCESS;
}

CUresult do_cuCtxGetId(CUcontext c, unsigned long long *id) {
  sim_context *context;
  if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (c == NULL) TRY(current(&context));
  if (c != NULL) TRY(object_of(c, SIM_CONTEXT, &context));
  *id = context->o.id;
  return CUDA_SUCCESS;
}

CUresult do_cuCtxGetApiVersion(CUcontext c, unsigned *out) {
  sim_context *context;
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (c != NULL) TRY(object_of(c, SIM_CONTEXT, &context));
  *out = 3020;
  return CUDA_SUCCESS;
}

CUresult do_cuCtxSynchronize(void) {
  sim_context *c;
  TRY(current(&c));
  return from(sim_context_wait_host(c));
}

CUresult do_cuCtxSynchronize_v2(CUcontext c) {
  sim_context *context;
  if (c == NULL) return do_cuCtxSynchronize();
  TRY(object_of(c, SIM_CONTEXT, &context));
  return from(sim_context_wait_host(context));
}

CUresult do_cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  sim_context *c;
  TRY(current(&c));
  if (least != NULL) *least = 0;
  if (greatest != NULL) *greatest = -5;
  return CUDA_SUCCESS;
}

/* There is nobody who profiles. */
CUresult do_cuProfilerStart(void) {
  sim_context *c;
  return current(&c);
}

CUresult do_cuProfilerStop(void) {
  return do_cuProfilerStart();
}

/* What a device of this kind has as a limit: what it begins with, the most there can be, and what it is rounded up to.
 * Beyond the most a driver takes less, which it says when it is asked. */
static const struct limit {
  bool known;
  uint64_t first, most, unit;
} limits[] = {
    [CU_LIMIT_STACK_SIZE] = {true, 1024, 512 * 1024, 16},
    [CU_LIMIT_PRINTF_FIFO_SIZE] = {true, 1 << 20, UINT64_MAX, 1 << 20},
    [CU_LIMIT_MALLOC_HEAP_SIZE] = {true, 8 << 20, UINT64_MAX, 4 << 20},
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = {true, 2048, UINT32_MAX, 1},
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = {true, 64, 128, 32},
    [CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = {true, 0, 0, 1}, /* as the device's attribute says */
};

static CUresult limit_of(CUlimit which, const struct limit **out, sim_context **c) {
  if ((unsigned)which > CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED) return CUDA_ERROR_INVALID_VALUE;
  TRY(current(c));
  if ((unsigned)which >= sizeof limits / sizeof *limits || !limits[which].known) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *out = &limits[which];
  return CUDA_SUCCESS;
}

CUresult do_cuCtxSetLimit(CUlimit which, size_t value) {
  const struct limit *l;
  sim_context *c;
  TRY(limit_of(which, &l, &c));
  const bool takes_memory = which == CU_LIMIT_PRINTF_FIFO_SIZE || which == CU_LIMIT_MALLOC_HEAP_SIZE;
  if (takes_memory && value > c->device->total - c->device->used) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t rounded = value / l->unit * l->unit + (value % l->unit != 0 ? l->unit : 0);
  c->limits[which].value = value > l->most ? l->most : rounded;
  c->limits[which].set = true;
  return CUDA_SUCCESS;
}

CUresult do_cuCtxGetLimit(size_t *value, CUlimit which) {
  const struct limit *l;
  sim_context *c;
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(limit_of(which, &l, &c));
  *value = (size_t)(c->limits[which].set ? c->limits[which].value : l->first);
  return CUDA_SUCCESS;
}

static CUresult access_to(CUcontext handle, bool on) {
  sim_context *c, *peer;
  TRY(current(&c));
  TRY(object_of(handle, SIM_CONTEXT, &peer));
  return from(sim_peer_access(c, peer->device->id, on));
}

CUresult do_cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : access_to(handle, true);
}

CUresult do_cuCtxDisablePeerAccess(CUcontext handle) {
  return access_to(handle, false);
}
