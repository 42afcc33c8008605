/* error.c: what the engine answers, in the runtime's numbers.
 *
 * It must not know which call failed. */
#include "front.h"

hipError_t from(sim_status rc) {
  static const hipError_t codes[] = {
      [SIM_OK] = hipSuccess,
      [SIM_INVALID] = hipErrorInvalidValue,
      [SIM_NOMEM] = hipErrorOutOfMemory,
      [SIM_NOT_INITIALIZED] = hipErrorNotInitialized,
      [SIM_NO_DEVICE] = hipErrorNoDevice,
      [SIM_BAD_DEVICE] = hipErrorInvalidDevice,
      [SIM_BAD_CONTEXT] = hipErrorInvalidContext,
      [SIM_DEAD_CONTEXT] = hipErrorContextIsDestroyed,
      [SIM_BAD_HANDLE] = hipErrorInvalidHandle,
      /* A bad stream or event crashes the runtime of ROCm 7; here it is reported, with the status of ROCm 6. */
      [SIM_BAD_STREAM] = hipErrorContextIsDestroyed,
      [SIM_NOT_FOUND] = hipErrorNotFound,
      [SIM_NOT_READY] = hipErrorNotReady,
      [SIM_NOT_SUPPORTED] = hipErrorNotSupported,
      [SIM_NOT_PERMITTED] = hipErrorIllegalState,
      [SIM_ILLEGAL_STATE] = hipErrorIllegalState,
      [SIM_PEER_ON] = hipErrorPeerAccessAlreadyEnabled,
      [SIM_PEER_OFF] = hipErrorPeerAccessNotEnabled,
      [SIM_PEER_NONE] = hipErrorPeerAccessUnsupported,
      [SIM_REGISTERED] = hipErrorHostMemoryAlreadyRegistered,
      [SIM_NOT_REGISTERED] = hipErrorHostMemoryNotRegistered,
      [SIM_MAPPED] = hipErrorAlreadyMapped,
      [SIM_NOT_MAPPED] = hipErrorNotMapped,
      [SIM_NOT_ARRAY] = hipErrorNotMappedAsArray,
      [SIM_NOT_POINTER] = hipErrorNotMappedAsPointer,
      [SIM_NO_GRAPHICS] = hipErrorInvalidGraphicsContext,
      [SIM_PRIMARY_ACTIVE] = hipErrorSetOnActiveProcess,
      [SIM_CAP_UNSUPPORTED] = hipErrorStreamCaptureUnsupported,
      [SIM_CAP_INVALIDATED] = hipErrorStreamCaptureInvalidated,
      [SIM_CAP_MERGE] = hipErrorStreamCaptureMerge,
      [SIM_CAP_UNMATCHED] = hipErrorStreamCaptureUnmatched,
      [SIM_CAP_UNJOINED] = hipErrorStreamCaptureUnjoined,
      [SIM_CAP_ISOLATION] = hipErrorStreamCaptureIsolation,
      [SIM_CAP_IMPLICIT] = hipErrorStreamCaptureImplicit,
      [SIM_CAP_EVENT] = hipErrorCapturedEvent,
      [SIM_CAP_THREAD] = hipErrorStreamCaptureWrongThread,
  };
  return rc == SIM_STUCK ? (hipError_t)sim_stuck_code() : codes[rc];
}
