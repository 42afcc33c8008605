/* error.c: the names and texts of errors.
 *
 * The texts are the driver's. It must not know where an error comes from. */
#include "front.h"

#define ERROR(e) {e, #e}
static const struct {
  cudaError_t code;
  const char *name;
} errors[] = {
    ERROR(cudaSuccess), ERROR(cudaErrorInvalidValue), ERROR(cudaErrorMemoryAllocation),
    ERROR(cudaErrorInitializationError), ERROR(cudaErrorCudartUnloading), ERROR(cudaErrorInvalidConfiguration),
    ERROR(cudaErrorInvalidPitchValue), ERROR(cudaErrorInvalidSymbol), ERROR(cudaErrorInvalidMemcpyDirection),
    ERROR(cudaErrorMissingConfiguration), ERROR(cudaErrorInvalidDeviceFunction), ERROR(cudaErrorNoDevice),
    ERROR(cudaErrorInvalidDevice), ERROR(cudaErrorInvalidKernelImage), ERROR(cudaErrorDeviceUninitialized),
    ERROR(cudaErrorNoKernelImageForDevice), ERROR(cudaErrorUnsupportedLimit), ERROR(cudaErrorPeerAccessUnsupported),
    ERROR(cudaErrorInvalidPtx), ERROR(cudaErrorUnsupportedPtxVersion), ERROR(cudaErrorInvalidResourceHandle),
    ERROR(cudaErrorIllegalState), ERROR(cudaErrorFileNotFound), ERROR(cudaErrorSymbolNotFound),
    ERROR(cudaErrorNotReady), ERROR(cudaErrorAssert),
    ERROR(cudaErrorIllegalAddress), ERROR(cudaErrorLaunchTimeout), ERROR(cudaErrorPeerAccessAlreadyEnabled),
    ERROR(cudaErrorPeerAccessNotEnabled), ERROR(cudaErrorSetOnActiveProcess), ERROR(cudaErrorContextIsDestroyed),
    ERROR(cudaErrorHostMemoryAlreadyRegistered), ERROR(cudaErrorHostMemoryNotRegistered),
    ERROR(cudaErrorMisalignedAddress), ERROR(cudaErrorLaunchFailure), ERROR(cudaErrorCooperativeLaunchTooLarge),
    ERROR(cudaErrorNotPermitted),
    ERROR(cudaErrorNotSupported), ERROR(cudaErrorStreamCaptureUnsupported), ERROR(cudaErrorStreamCaptureInvalidated),
    ERROR(cudaErrorStreamCaptureMerge), ERROR(cudaErrorStreamCaptureUnmatched), ERROR(cudaErrorStreamCaptureUnjoined),
    ERROR(cudaErrorStreamCaptureIsolation), ERROR(cudaErrorStreamCaptureImplicit), ERROR(cudaErrorCapturedEvent),
    ERROR(cudaErrorStreamCaptureWrongThread), ERROR(cudaErrorUnknown),
};

/* What the runtime alone can answer with. */
static const char *own_text(cudaError_t e) {
  switch (e) {
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidPitchValue: return "invalid pitch argument";
    case cudaErrorInvalidSymbol: return "invalid device symbol";
    case cudaErrorInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case cudaErrorMissingConfiguration: return "__global__ function call is not configured";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    default: return "unrecognized error code";
  }
}

SIM_PUBLIC const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == e) return errors[i].name;
  return "unrecognized error code";
}

SIM_PUBLIC const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e) {
  const char *text = NULL;
  return cuGetErrorString((CUresult)e, &text) == CUDA_SUCCESS && text != NULL ? text : own_text(e);
}
