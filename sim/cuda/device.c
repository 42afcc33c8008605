/* device.c: initialisation, the names of errors, and devices.
 *
 * It must not know about streams or memory. */
#include "front.h"
#include "function.h"

static const struct {
  CUresult code;
  const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for the device"},
    {CUDA_ERROR_NOT_MAPPED, "CUDA_ERROR_NOT_MAPPED", "resource not mapped"},
    {CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "resource not mapped as array"},
    {CUDA_ERROR_NOT_MAPPED_AS_POINTER, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "resource not mapped as pointer"},
    {CUDA_ERROR_UNSUPPORTED_LIMIT, "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT",
     "invalid OpenGL or DirectX context"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is active"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the memory is already registered"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the memory is not registered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would merge two captures"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not begun in this stream"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CUresult from(sim_status rc) {
  static const CUresult codes[] = {
      [SIM_OK] = CUDA_SUCCESS,
      [SIM_INVALID] = CUDA_ERROR_INVALID_VALUE,
      [SIM_NOMEM] = CUDA_ERROR_OUT_OF_MEMORY,
      [SIM_NOT_INITIALIZED] = CUDA_ERROR_NOT_INITIALIZED,
      [SIM_NO_DEVICE] = CUDA_ERROR_NO_DEVICE,
      [SIM_BAD_DEVICE] = CUDA_ERROR_INVALID_DEVICE,
      [SIM_BAD_CONTEXT] = CUDA_ERROR_INVALID_CONTEXT,
      [SIM_DEAD_CONTEXT] = CUDA_ERROR_CONTEXT_IS_DESTROYED,
      [SIM_BAD_HANDLE] = CUDA_ERROR_INVALID_HANDLE,
      [SIM_BAD_STREAM] = CUDA_ERROR_INVALID_HANDLE,
      [SIM_NOT_FOUND] = CUDA_ERROR_NOT_FOUND,
      [SIM_NOT_READY] = CUDA_ERROR_NOT_READY,
      [SIM_NOT_SUPPORTED] = CUDA_ERROR_NOT_SUPPORTED,
      [SIM_NOT_PERMITTED] = CUDA_ERROR_NOT_PERMITTED,
      [SIM_ILLEGAL_STATE] = CUDA_ERROR_ILLEGAL_STATE,
      [SIM_PEER_ON] = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
      [SIM_PEER_OFF] = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
      [SIM_PEER_NONE] = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
      [SIM_REGISTERED] = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
      [SIM_NOT_REGISTERED] = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
      [SIM_MAPPED] = CUDA_ERROR_ALREADY_MAPPED,
      [SIM_NOT_MAPPED] = CUDA_ERROR_NOT_MAPPED,
      [SIM_NOT_ARRAY] = CUDA_ERROR_NOT_MAPPED_AS_ARRAY,
      [SIM_NOT_POINTER] = CUDA_ERROR_NOT_MAPPED_AS_POINTER,
      [SIM_NO_GRAPHICS] = CUDA_ERROR_INVALID_GRAPHICS_CONTEXT,
      [SIM_PRIMARY_ACTIVE] = CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
      [SIM_CAP_UNSUPPORTED] = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
      [SIM_CAP_INVALIDATED] = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
      [SIM_CAP_MERGE] = CUDA_ERROR_STREAM_CAPTURE_MERGE,
      [SIM_CAP_UNMATCHED] = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
      [SIM_CAP_UNJOINED] = CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
      [SIM_CAP_ISOLATION] = CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
      [SIM_CAP_IMPLICIT] = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
      [SIM_CAP_EVENT] = CUDA_ERROR_CAPTURED_EVENT,
      [SIM_CAP_THREAD] = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
  };
  return rc == SIM_STUCK ? (CUresult)sim_stuck_code() : codes[rc];
}

/* The rules of cuThreadExchangeStreamCaptureMode and of the CUDA Programming Guide: a wait breaks the captures of its
 * own context, and a thread that is not in global mode need not mind other threads' captures. */
void sim_driver_rules(sim_rules *out) {
  *out = (sim_rules){.waits_break_all = false};
}

static int index_of(CUresult e) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == e) return (int)i;
  return -1;
}

CUresult do_cuGetErrorName(CUresult e, const char **text) {
  const int i = index_of(e);
  if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
  *text = i < 0 ? NULL : errors[i].name;
  return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult do_cuGetErrorString(CUresult e, const char **text) {
  const int i = index_of(e);
  if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
  *text = i < 0 ? NULL : errors[i].text;
  return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult do_cuInit(unsigned flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : from(sim_init());
}

CUresult do_cuDriverGetVersion(int *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = version();
  return CUDA_SUCCESS;
}

CUresult device_of(CUdevice d, sim_device **out) {
  return from(sim_device_given(d, out));
}

CUresult do_cuDeviceGetCount(int *count) {
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = sim_conf.devices;
  return CUDA_SUCCESS;
}

CUresult do_cuDeviceGet(CUdevice *d, int ordinal) {
  if (d == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (sim_device_at(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  *d = ordinal;
  return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetName(char *name, int size, CUdevice d) {
  return from(sim_call_device_name(d, name, size));
}

CUresult do_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice d) {
  return from(sim_call_device_uuid(d, 0x51, uuid));
}

CUresult do_cuDeviceGetUuid(CUuuid *uuid, CUdevice d) {
  return do_cuDeviceGetUuid_v2(uuid, d);
}

CUresult do_cuDeviceTotalMem_v2(size_t *n, CUdevice d) {
  return from(sim_call_device_total(d, n));
}

CUresult do_cuDeviceComputeCapability(int *major, int *minor, CUdevice d) {
  sim_device *device;
  if (major == NULL || minor == NULL) return CUDA_ERROR_INVALID_VALUE;
  TRY(device_of(d, &device));
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetPCIBusId(char *text, int size, CUdevice d) {
  return from(sim_call_device_bus(d, text, size));
}

/* What libraries ask for before they start; everything else is 0, which means that the device cannot do it. */
static const struct {
  int which, value;
} attributes[] = {
    {1, 1024},          /* threads per block */
    {2, 1024},          /* block x */
    {3, 1024},          /* block y */
    {4, 64},            /* block z */
    {5, 2147483647},    /* grid x */
    {6, 65535},         /* grid y */
    {7, 65535},         /* grid z */
    {8, 49152},         /* shared memory per block */
    {9, 65536},         /* constant memory */
    {10, 32},           /* warp size */
    {12, 65536},        /* registers per block */
    {13, 1000000},      /* clock rate, kHz */
    {14, 512},          /* texture alignment */
    {15, 1},            /* overlap */
    {16, MULTIPROCESSORS}, /* multiprocessors */
    {19, 1},            /* can map host memory */
    {31, 1},            /* concurrent kernels */
    {36, 1000000},      /* memory clock rate, kHz */
    {37, 256},          /* memory bus width */
    {38, 4194304},      /* L2 cache */
    {39, 2048},         /* threads per multiprocessor */
    {40, 2},            /* copy engines */
    {41, 1},            /* unified addressing */
    {51, 32},           /* texture pitch alignment */
    {75, 9},            /* compute capability, major */
    {76, 0},            /* compute capability, minor */
    {78, 1},            /* stream priorities */
    {81, 102400},       /* shared memory per multiprocessor */
    {82, 65536},        /* registers per multiprocessor */
    {83, 1},            /* managed memory */
    {89, 1},            /* concurrent managed access */
    {90, 1},            /* compute preemption */
    {91, 1},            /* registered memory keeps its address */
    {95, 1},            /* cooperative launches */
    {97, 49152},        /* shared memory per block, opt-in */
    {99, 1},            /* host registration */
    {102, 1},           /* virtual memory */
    {103, 1},           /* exported as a descriptor */
    {106, 32},          /* blocks per multiprocessor */
    {115, 1},           /* memory pools */
    {119, 1},           /* pools exported as a descriptor */
    {125, 1},           /* events of several processes */
};

CUresult do_cuDeviceGetAttribute(int *v, int which, CUdevice d) {
  enum { MAX_PITCH = 11, CONCURRENT_MANAGED_ACCESS = 89 };
  sim_device *device;
  if (v == NULL || which < 1) return CUDA_ERROR_INVALID_VALUE;
  TRY(device_of(d, &device));
  *v = which == 33 ? d + 1 : 0;
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i].which == which) *v = attributes[i].value;
  if (which == 115 && version() < 11020) *v = 0;
  if (which == MAX_PITCH) *v = (int)sim_conf.max_pitch;
  if (which == CONCURRENT_MANAGED_ACCESS && sim_conf.managed_exclusive) *v = 0;
  return CUDA_SUCCESS;
}

CUresult do_cuDeviceCanAccessPeer(int *can, CUdevice d, CUdevice peer) {
  return from(sim_call_device_can_access(d, peer, can));
}

CUresult do_cuDeviceGetP2PAttribute(int *v, int which, CUdevice a, CUdevice b) {
  enum { ACCESS_SUPPORTED = 2 };
  int can = 0;
  if (v == NULL || a == b) return CUDA_ERROR_INVALID_VALUE;
  TRY(do_cuDeviceCanAccessPeer(&can, a, b));
  *v = which == ACCESS_SUPPORTED ? can : 0;
  return CUDA_SUCCESS;
}
