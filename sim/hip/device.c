/* device.c: initialisation, the calling thread's device, and what devices say of themselves.
 *
 * Invariant: a thread has a current device from the start, device 0, and each device one context, made when it is
 * first needed and never retained by the program. It must not know about streams or memory. */
#include <stdio.h>

#include "front.h"

static _Thread_local int current;

sim_context *device_context(void) {
  return sim_current();
}

static hipError_t context_of(sim_device *d, sim_context **out) {
  if (d->primary == NULL) {
    TRY(from(sim_primary_retain(d, out)));
    d->retains = 0;
  }
  *out = d->primary;
  return hipSuccess;
}

hipError_t device_enter(void) {
  sim_context *c;
  TRY(from(sim_init()));
  TRY(context_of(sim_device_at(current), &c));
  if (sim_current() != c) sim_context_set(c);
  return hipSuccess;
}

hipError_t device_of(int d, sim_device **out) {
  return from(sim_device_given(d, out));
}

hipError_t do_hipGetDeviceCount(int *count) {
  if (count == NULL) return hipErrorInvalidValue;
  *count = sim_conf.devices;
  return from(sim_init());
}

hipError_t do_hipGetDevice(int *device) {
  if (device == NULL) return hipErrorInvalidValue;
  *device = current;
  return hipSuccess;
}

hipError_t do_hipSetDevice(int device) {
  sim_device *d;
  TRY(from(sim_init()));
  TRY(device_of(device, &d));
  sim_log_detail("%d", device);
  current = device;
  return device_enter();
}

hipError_t do_hipDeviceGet(hipDevice_t *device, int ordinal) {
  sim_device *d;
  if (device == NULL) return hipErrorInvalidValue;
  TRY(device_of(ordinal, &d));
  *device = ordinal;
  return hipSuccess;
}

hipError_t do_hipDeviceGetName(char *name, int size, hipDevice_t device) {
  return from(sim_call_device_name(device, name, size));
}

hipError_t do_hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device) {
  return from(sim_call_device_uuid(device, 0x52, uuid));
}

hipError_t do_hipDeviceTotalMem(size_t *n, hipDevice_t device) {
  return from(sim_call_device_total(device, n));
}

/* ROCm 6 and 7 break every capture of the process at a hipDeviceSynchronize (hipErrorStreamCaptureUnsupported) and at
 * a synchronous copy or fill (hipErrorStreamCaptureImplicit), whatever the modes: ROCm/clr f9f995c6, hip_internal.hpp;
 * measured with ROCm 10 in ROCm/rocm-systems issue 11698. Until HIP 7.2.1 the modes relaxed and thread-local did not
 * save hipEventQuery and hipEventSynchronize, nor thread-local hipStreamQuery and hipStreamSynchronize, from another
 * thread's global capture (rocm-systems pull requests 3169, 3176 and 2177), and an event counted as captured as soon
 * as the stream of its last record was. A version does not tell 7.2.1 from 7.2.0, so 7.3 ends it here.
 * Of the null stream it is documented that hipStreamSynchronize waits for other streams of the device too; of
 * hipStreamLegacy, and of hipStreamQuery, it is not. */
void sim_driver_rules(sim_rules *out) {
  enum { FIXED = 70300000 };
  *out = (sim_rules){.waits_break_all = true, .null_waits_for_blocking = true, .event_first = true};
  if (runtime_version() >= FIXED) return;
  out->record_joins_capture = true;
  out->unsafe_in_thread_mode = SIM_ASKS_STREAM | SIM_ASKS_EVENT;
  out->unsafe_in_relaxed_mode = SIM_ASKS_EVENT;
}

enum { MAJOR = 9, MINOR = 0, WAVE = 64, THREADS = 1024, UNITS = 8, SHARED = 65536, REGISTERS = 65536 };
enum { KHZ = 1000000, CACHE = 4194304, RESIDENT = 2048, BUS = 256, ALIGN = 256, MAX_GRID = 65536 };
enum { MAX_INT = 2147483647 };

hipError_t do_hipDeviceComputeCapability(int *major, int *minor, hipDevice_t device) {
  sim_device *d;
  if (major == NULL || minor == NULL) return hipErrorInvalidValue;
  TRY(device_of(device, &d));
  *major = MAJOR;
  *minor = MINOR;
  return hipSuccess;
}

/* What libraries ask for before they start; everything else is 0, which means that the device cannot do it. */
static const struct {
  int which, value;
} attributes[] = {
    {2, 2},            /* copy engines */
    {3, 1},            /* can map host memory */
    {4, 1},            /* registered memory keeps its address */
    {5, KHZ},          /* clock rate */
    {8, 1},            /* concurrent kernels */
    {9, 1},            /* concurrent managed access */
    {19, CACHE},       /* L2 cache */
    {23, MAJOR},       /* compute capability, major */
    {24, 1},           /* managed memory */
    {26, THREADS},     /* block x */
    {27, THREADS},     /* block y */
    {28, THREADS},     /* block z */
    {29, MAX_INT},     /* grid x */
    {30, MAX_GRID},    /* grid y */
    {31, MAX_GRID},    /* grid z */
    {56, THREADS},     /* threads per block */
    {57, RESIDENT},    /* threads per multiprocessor */
    {59, BUS},         /* memory bus width */
    {60, KHZ},         /* memory clock rate */
    {61, MINOR},       /* compute capability, minor */
    {63, UNITS},       /* multiprocessors */
    {71, REGISTERS},   /* registers per block */
    {74, SHARED},      /* shared memory per block */
    {78, 1},           /* stream priorities */
    {81, ALIGN},       /* texture alignment */
    {83, MAX_INT},     /* constant memory */
    {85, 1},           /* unified addressing */
    {87, WAVE},        /* warp size */
    {88, 1},           /* memory pools */
    {90, 1},           /* host registration */
};

hipError_t do_hipDeviceGetAttribute(int *v, int which, int device) {
  enum { CONCURRENT_MANAGED_ACCESS = 9, MAX_PITCH = 58, PCI_BUS = 67 };
  sim_device *d;
  if (v == NULL || which < 0) return hipErrorInvalidValue;
  TRY(device_of(device, &d));
  *v = which == PCI_BUS ? device + 1 : 0;
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i].which == which) *v = attributes[i].value;
  if (which == MAX_PITCH) *v = (int)sim_conf.max_pitch;
  if (which == CONCURRENT_MANAGED_ACCESS && sim_conf.managed_exclusive) *v = 0;
  return hipSuccess;
}

static void describe(hipDeviceProp_tR0600 *p, const sim_device *d) {
  *p = (hipDeviceProp_tR0600){.totalGlobalMem = d->total, .sharedMemPerBlock = SHARED, .regsPerBlock = REGISTERS,
                              .warpSize = WAVE, .memPitch = sim_conf.max_pitch, .maxThreadsPerBlock = THREADS,
                              .maxThreadsDim = {THREADS, THREADS, THREADS}, .clockRate = KHZ,
                              .maxGridSize = {MAX_INT, MAX_GRID, MAX_GRID}, .totalConstMem = MAX_INT,
                              .major = MAJOR, .minor = MINOR, .textureAlignment = ALIGN, .deviceOverlap = 1,
                              .texturePitchAlignment = ALIGN, .multiProcessorCount = UNITS};
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->managedMemory = 1;
  p->streamPrioritiesSupported = p->canUseHostPointerForRegisteredMem = 1;
  p->concurrentManagedAccess = !sim_conf.managed_exclusive;
  p->hostRegisterSupported = p->memoryPoolsSupported = 1;
  p->pciBusID = d->id + 1;
  p->asyncEngineCount = 2;
  p->memoryClockRate = KHZ;
  p->memoryBusWidth = BUS;
  p->l2CacheSize = CACHE;
  p->maxThreadsPerMultiProcessor = RESIDENT;
  p->sharedMemPerMultiprocessor = p->maxSharedMemoryPerMultiProcessor = SHARED;
  p->regsPerMultiprocessor = REGISTERS;
  p->clockInstructionRate = KHZ;
  sim_device_name(d, p->name, sizeof p->name);
  snprintf(p->gcnArchName, sizeof p->gcnArchName, "gfx%d%d0", MAJOR, MINOR);
}

hipError_t do_hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *p, int device) {
  sim_device *d;
  if (p == NULL) return hipErrorInvalidValue;
  TRY(device_of(device, &d));
  describe(p, d);
  return do_hipDeviceGetUuid(&p->uuid, device);
}

hipError_t do_hipDeviceGetPCIBusId(char *text, int size, int device) {
  return from(sim_call_device_bus(device, text, size));
}

hipError_t do_hipDeviceCanAccessPeer(int *can, int device, int peer) {
  return from(sim_call_device_can_access(device, peer, can));
}

hipError_t do_hipDeviceGetP2PAttribute(int *v, int which, int a, int b) {
  enum { ACCESS_SUPPORTED = 1 };
  int can = 0;
  if (v == NULL || a == b) return hipErrorInvalidValue;
  TRY(do_hipDeviceCanAccessPeer(&can, a, b));
  *v = which == ACCESS_SUPPORTED ? can : 0;
  return hipSuccess;
}

static hipError_t access_to(int peer, bool on) {
  sim_device *d;
  TRY(device_of(peer, &d));
  return from(sim_peer_access(device_context(), peer, on));
}

hipError_t do_hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return flags != 0 ? hipErrorInvalidValue : access_to(peer, true);
}

hipError_t do_hipDeviceDisablePeerAccess(int peer) {
  return access_to(peer, false);
}

hipError_t do_hipDeviceSynchronize(void) {
  return from(sim_context_wait_host(device_context()));
}

hipError_t do_hipDeviceReset(void) {
  sim_device *d = device_context()->device;
  sim_primary_reset(d);
  return hipSuccess;
}
