/* front.h: what the files of the HIP front end share.
 *
 * Each call of calls.def is implemented by do_NAME, which runs with the lock held and, unless NO_DEVICE, with the
 * calling thread's device initialised. It must not know how calls are entered. */
#ifndef SIM_HIP_FRONT_H
#define SIM_HIP_FRONT_H

#include "calls.h"
#include "runtime.h"

enum { NO_DEVICE = 0x100, KEEPS_ERROR = 0x200, ELSEWHERE = SIM_ENTER_ELSEWHERE };
enum { RUNTIME_VERSION = 70051831 };

int runtime_version(void);
hipError_t from(sim_status rc);
const char *error_name(hipError_t e);
const char *error_text(hipError_t e);
bool error_known(hipError_t e);

/* The calling thread's device, with its context made and current. */
hipError_t device_enter(void);
sim_context *device_context(void);
hipError_t device_of(int d, sim_device **out);

/* In the runtime's numbers: the stream that a handle means for the calling thread, the object of a handle. */
hipError_t stream_of(hipStream_t handle, sim_stream **out);
hipError_t object_of(const void *handle, sim_type type, void *out);

/* plain.c: what a kind of copy says of its two sides */
bool to_host(hipMemcpyKind kind);
bool from_host(hipMemcpyKind kind);
hipError_t known_kind(hipMemcpyKind kind);

/* copy.c: a copy that says of each side what it is. */
hipError_t described(const HIP_MEMCPY3D *c, hipStream_t q, bool sync);

#define CALL(name, version, how, params, args) hipError_t do_##name params;
#define SCALL(name, version, twin, how, params, args) hipError_t do_##name params;
#define REFUSE(name, version)
#include "calls.def"
#undef CALL
#undef SCALL
#undef REFUSE

/* Leaves a do_ function with the first failure. */
#define TRY(expression)                      \
  do {                                       \
    const hipError_t try_rc = (expression);  \
    if (try_rc != hipSuccess) return try_rc; \
  } while (0)

#endif
