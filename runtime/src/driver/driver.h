/* driver.h: declares what the GPU backends share. It includes no toolkit's header and links nothing: the few
 * declarations of the drivers' interfaces have the names, values and layouts of the public interfaces, and
 * specs/gpu/types compares each with the real headers. */
#ifndef MOONFERRY_DRIVER_H
#define MOONFERRY_DRIVER_H

#include "device/device.h"

#include <pthread.h>

/* A driver library, opened once. Once refused, it stays refused, with the reason. */
typedef struct mf__driver {
  const char *name;         /* "CUDA" */
  const char *device;       /* "cuda" */
  const char *variable;     /* the environment variable that names the file instead */
  const char *const *files; /* tried in turn; NULL ends them */
  /* Finds the functions and starts the driver; called once, under the lock. */
  int (*start)(struct mf__driver *driver, mf_error *err);
  pthread_mutex_t lock;
  _Atomic int32_t state;
  int32_t count; /* of devices */
  void *library;
  const char *file; /* the one that was opened */
  bool absent;      /* where it was refused: no file is there */
  mf_error why;     /* refused */
  mf__gate gates[MF__MAX_ORDINALS];
} mf__driver;

#define MF__DRIVER(kind, dev, env, list, begin)                                           \
  {.name = (kind), .device = (dev), .variable = (env), .files = (list), .start = (begin), \
   .lock = PTHREAD_MUTEX_INITIALIZER}

/* Returns MF_OK once the driver is loaded and started, in this process and not before a fork. */
int mf__driver_open(mf__driver *driver, mf_error *err);
/* Answers the same without opening the driver. */
bool mf__driver_usable(const mf__driver *driver);
/* How many devices there are; opens the driver. */
int mf__driver_count(mf__driver *driver, int32_t *out, mf_error *err);
/* Count a thread as inside while it makes calls for a device. Entering waits while the device is shut; MF_EDEVICE for a
 * device that does not exist. */
int mf__driver_enter(mf__driver *driver, int32_t ordinal, mf_error *err);
void mf__driver_leave(mf__driver *driver, int32_t ordinal);
typedef void (*mf__function)(void);

/* A function, and the place in the table where it goes. */
typedef struct mf__symbol {
  const char *name;
  int32_t version;
  bool optional; /* NULL in the table where it is not there */
  size_t offset;
} mf__symbol;

typedef mf__function (*mf__lookup_fn)(void *from, const char *name, int32_t version);

/* A library's own symbol. */
mf__function mf__driver_symbol(void *library, const char *name, int32_t version);

typedef struct mf__symbols {
  const mf__symbol *list;
  size_t count;
  mf__lookup_fn lookup;
  void *from;
} mf__symbols;

/* Fills the table. MF_EDEVICE names the first required function that is missing. */
int mf__driver_fill(const mf__driver *driver, const mf__symbols *symbols, void *table, mf_error *err);

/* Translates a driver's code to a status. Both drivers use the same numbers (CUDA Driver API, CUresult; HIP
 * documentation, hipError_t). */
int mf__driver_status(int32_t code);

/* Refuses a number that cannot be a stream's handle. Streams with a name have no handle. */
int mf__driver_handle_check(mf_stream stream, mf_error *err);

/* Puts the meaning of a driver call's failure before its message; the status becomes ${status}, which is returned. */
int mf__driver_explain(mf_error *err, int32_t status, const char *format, ...) __attribute__((MF__PRINTF(3, 4)));

/* Explains the failure of a call about a stream's handle, which has filled err and returned rc: MF_EINVAL where the
 * driver blames the handle, else rc. */
int mf__driver_dead_stream(mf_stream stream, int32_t code, int rc, mf_error *err);

/* Explains the failure of a query of the legacy stream, which returned ${code} and became rc. */
int mf__driver_implicit(int rc, int32_t code, mf_error *err);

/* Checks the capture of a stream: MF_OK while it is valid and has an id. */
int mf__driver_captured(mf_stream stream, bool invalidated, const uint64_t *id, mf_error *err);

/* The dtype of a channel of a driver's array; both drivers use the same numbers (CUDA Driver API, CUarray_format). */
int mf__driver_array_dtype(int32_t format, DLDataType *out, mf_error *err);

/* A descriptor of the same file, for a driver to take over. */
int mf__driver_copy_fd(int fd, int *out, mf_error *err);

/* Whether a device's memory comes from a driver's pool, decided once for each device. */
typedef struct mf__pooling {
  _Atomic int32_t state; /* 0 until it is decided */
  void *pool;            /* NULL: there are no pools */
} mf__pooling;

/* *out NULL: the driver has no pools there. */
typedef int (*mf__pool_create_fn)(int32_t ordinal, void **out, mf_error *err);

/* Gives the device's pool, or NULL, and creates it at the first call. A failure decides nothing. */
int mf__driver_pool(mf__pooling *p, int32_t ordinal, mf__pool_create_fn create, void **out, mf_error *err);
/* The pool if it was made. */
void *mf__driver_pool_made(mf__pooling *p);
/* Takes the pool out, to be destroyed. */
void *mf__driver_pool_forget(mf__pooling *p);

/* A thread's depth in mf__backend.capture_relax, the capture mode that it had before, and whether the driver failed to
 * restore that mode. */
typedef struct mf__relaxation {
  int32_t depth, former;
  bool owed;
} mf__relaxation;

typedef int (*mf__exchange_fn)(int *mode, mf_error *err);

/* Exchanges the thread's mode in the outermost pair (CUDA Driver API, "Stream Management",
 * cuThreadExchangeStreamCaptureMode). Leaving counts even if it fails; the next pair makes up for it. */
int mf__driver_relax(mf__relaxation *r, bool on, mf__exchange_fn exchange, mf_error *err);

/* A slab of equal rows, which remains of a block that is filled. */
typedef struct mf__rows {
  char *at;
  size_t width, height, pitch, slice;
  int64_t depth;
} mf__rows;

/* Makes rows of a fill: slices that follow each other without a gap are one. Width is in units. */
mf__rows mf__driver_rows(const mf__block_copy *job, int32_t unit);

/* The CUDA driver. */

typedef int CUresult;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef int CUpointer_attribute;
typedef int CUmemPool_attribute;
typedef int CUjit_option;
typedef int CUstreamCaptureStatus;
typedef int CUstreamCaptureMode;
typedef int CUmemorytype;
typedef int CUarray_format;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUarray_st *CUarray;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraphicsResource_st *CUgraphicsResource;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_JIT_COMPILATION_DISABLED = 223,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_NOT_SUPPORTED = 801
};

enum {
  CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1,
  CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1,
  CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD = 1,
  CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD = 9,
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTALLOC_DEVICEMAP = 2,
  CU_MEM_ATTACH_GLOBAL = 1,
  CU_MEMORYTYPE_HOST = 1,
  CU_MEMORYTYPE_DEVICE = 2,
  CU_MEMORYTYPE_ARRAY = 3,
  CU_MEMORYTYPE_UNIFIED = 4,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
  CU_MEM_ALLOCATION_TYPE_PINNED = 1,
  CU_MEM_LOCATION_TYPE_DEVICE = 1,
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
};

typedef struct CUmemLocation {
  int type;
  int id;
} CUmemLocation;

typedef struct CUmemPoolProps {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void *win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;

typedef struct CUDA_ARRAY_DESCRIPTOR {
  size_t Width, Height;
  CUarray_format Format;
  unsigned NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct CUDA_MEMCPY2D {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct CUDA_MEMCPY3D {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void *reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void *reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  int type;
  union {
    int fd;
    struct {
      void *handle;
      const void *name;
    } win32;
    const void *object;
  } handle;
  unsigned long long size;
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

typedef struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
  unsigned long long offset, size;
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

typedef struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
  int type;
  union {
    int fd;
    struct {
      void *handle;
      const void *name;
    } win32;
    const void *object;
  } handle;
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;

/* A signal's and a wait's begin with the value; what follows differs, and is 0 for semaphores. */
typedef struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
  struct {
    struct {
      unsigned long long value;
    } fence;
    unsigned long long object, key;
    unsigned reserved[12];
  } params;
  unsigned flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
typedef CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;

/* The HIP runtime. */

typedef int hipError_t;
typedef int hiprtcResult;
typedef int hipMemcpyKind;
typedef int hipDeviceAttribute_t;
typedef int hipMemPoolAttr;
typedef int hipStreamCaptureStatus;
typedef int hipStreamCaptureMode;
typedef int hipDevice_t;
typedef void *hipDeviceptr_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct _hiprtcProgram *hiprtcProgram;
typedef struct ihipMemPoolHandle_t *hipMemPool_t;
typedef struct _hipGraphicsResource *hipGraphicsResource_t;
typedef struct hipArray *hipArray_t;
typedef const struct hipArray *hipArray_const_t;
typedef void *hipExternalMemory_t;
typedef void *hipExternalSemaphore_t;

enum {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorNotReady = 600,
  hipErrorNotSupported = 801,
  hipMemcpyDefault = 4,
  hipDeviceAttributeMaxPitch = 58, /* from ROCm 5 on */
  hipExternalMemoryHandleTypeOpaqueFd = 1,
  hipExternalSemaphoreHandleTypeOpaqueFd = 1,
  hipExternalSemaphoreHandleTypeTimelineSemaphoreFd = 9, /* from ROCm 6 on */
  hipStreamNonBlocking = 1,
  hipEventDisableTiming = 2,
  hipHostMallocPortable = 1,
  hipHostMallocMapped = 2,
  hipStreamCaptureStatusNone = 0,
  hipStreamCaptureStatusInvalidated = 2,
  hipMemAllocationTypePinned = 1,
  hipMemLocationTypeDevice = 1,
  hipMemPoolAttrReleaseThreshold = 4,
  /* From ROCm 6.0 on; before, host memory was 0 and a device's 1 (HIP documentation, hipMemoryType). */
  hipMemoryTypeHost = 1,
  hipMemoryTypeDevice = 2,
  hipMemoryTypeManaged = 3
};

#define hipStreamPerThread ((hipStream_t)2)

/* The first member was called memoryType before ROCm 6. */
typedef struct hipPointerAttribute_t {
  int type;
  int device;
  void *devicePointer;
  void *hostPointer;
  int isManaged;
  unsigned allocationFlags;
} hipPointerAttribute_t;

/* HIP lays them out as CUDA does. */
typedef CUDA_ARRAY_DESCRIPTOR HIP_ARRAY_DESCRIPTOR;
typedef CUDA_EXTERNAL_MEMORY_HANDLE_DESC hipExternalMemoryHandleDesc;
typedef CUDA_EXTERNAL_MEMORY_BUFFER_DESC hipExternalMemoryBufferDesc;
typedef CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC hipExternalSemaphoreHandleDesc;
typedef CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS hipExternalSemaphoreSignalParams;
typedef CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS hipExternalSemaphoreWaitParams;

typedef struct hipPitchedPtr {
  void *ptr;
  size_t pitch, xsize, ysize;
} hipPitchedPtr;

typedef struct hipExtent {
  size_t width, height, depth;
} hipExtent;

typedef struct hipPos {
  size_t x, y, z;
} hipPos;

typedef struct hipMemcpy3DParms {
  void *srcArray;
  hipPos srcPos;
  hipPitchedPtr srcPtr;
  void *dstArray;
  hipPos dstPos;
  hipPitchedPtr dstPtr;
  hipExtent extent;
  hipMemcpyKind kind;
} hipMemcpy3DParms;

typedef struct hipMemLocation {
  int type;
  int id;
} hipMemLocation;

typedef struct hipMemPoolProps {
  int allocType;
  int handleTypes;
  hipMemLocation location;
  void *win32SecurityAttributes;
  unsigned char reserved[64];
} hipMemPoolProps;

#endif
