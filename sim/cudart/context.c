/* context.c: which context a call of the runtime works in.
 *
 * It is the calling thread's current one, whoever made that; a thread that has none gets the primary one of the device
 * that it chose, or of device 0. Invariant: each primary context is retained once, from its first use until the process
 * ends or the program resets the device. It must not know what is done there. */
#include <pthread.h>

#include "front.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[MAX_DEVICES];
static _Thread_local int chosen;

cudaError_t known_device(int device) {
  int n = 0;
  TRY(from(cuInit(0)));
  TRY(from(cuDeviceGetCount(&n)));
  return device < 0 || device >= n || device >= MAX_DEVICES ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t primary_of(int device, CUcontext *out) {
  cudaError_t rc = cudaSuccess;
  TRY(known_device(device));
  pthread_mutex_lock(&lock);
  if (primary[device] == NULL) rc = from(cuDevicePrimaryCtxRetain(&primary[device], device));
  if (rc != cudaSuccess) primary[device] = NULL;
  *out = primary[device];
  pthread_mutex_unlock(&lock);
  return rc;
}

static cudaError_t make_current(int device) {
  CUcontext c;
  TRY(primary_of(device, &c));
  return from(cuCtxSetCurrent(c));
}

cudaError_t context(void) {
  CUcontext c = NULL;
  const CUresult rc = cuCtxGetCurrent(&c);
  if (rc == CUDA_SUCCESS && c != NULL) return cudaSuccess;
  if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_NOT_INITIALIZED) return from(rc);
  return make_current(chosen);
}

cudaError_t do_cudaSetDevice(int device) {
  TRY(known_device(device));
  TRY(make_current(device));
  chosen = device;
  return cudaSuccess;
}

cudaError_t do_cudaGetDevice(int *device) {
  CUdevice d;
  if (device == NULL) return cudaErrorInvalidValue;
  TRY(known_device(chosen));
  *device = cuCtxGetDevice(&d) == CUDA_SUCCESS ? d : chosen;
  return cudaSuccess;
}

/* Flags say how a host thread waits, which makes no difference here. */
cudaError_t do_cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  CUcontext c;
  (void)device_flags;
  return flags > 1 ? cudaErrorInvalidValue : primary_of(device, &c);
}

cudaError_t do_cudaDeviceReset(void) {
  int device = 0;
  TRY(do_cudaGetDevice(&device));
  pthread_mutex_lock(&lock);
  cudaError_t rc = from(cuDevicePrimaryCtxReset_v2(device));
  if (primary[device] != NULL) {
    (void)cuCtxSetCurrent(NULL);
    const CUresult released = cuDevicePrimaryCtxRelease_v2(device);
    if (rc == cudaSuccess) rc = from(released);
  }
  primary[device] = NULL;
  pthread_mutex_unlock(&lock);
  return rc;
}

/* The driver draws up its ledger after this: it depends on no library, and this one depends on it. */
__attribute__((destructor)) static void at_end(void) {
  sim_from("the end of the CUDA runtime", NULL);
  for (int i = 0; i < MAX_DEVICES; i++)
    if (primary[i] != NULL) (void)cuDevicePrimaryCtxRelease_v2(i);
  sim_from(NULL, NULL);
}
