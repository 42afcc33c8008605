/* front.h: what the files of the CUDA front end share.
 *
 * Each call of calls.def is implemented by do_SYMBOL, which runs with the lock held and a driver that is
 * initialised (unless NO_INIT). It must not know how calls are entered. */
#ifndef SIM_CUDA_FRONT_H
#define SIM_CUDA_FRONT_H

#include "calls.h"
#include "driver.h"

enum { NO_INIT = 0x100, ELSEWHERE = SIM_ENTER_ELSEWHERE };
enum { DRIVER_VERSION = 13000 };

CUresult from(sim_status rc);
int version(void);

/* In the driver's numbers: the stream that a handle means for the calling thread, the object of a handle, a device. */
CUresult stream_of(CUstream handle, sim_stream **out);
CUresult object_of(const void *handle, sim_type type, void *out);
CUresult device_of(CUdevice d, sim_device **out);

#define CALL(name, symbol, since, how, params, args) CUresult do_##symbol params;
#define SCALL CALL
#define DCALL CALL
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL

/* Leaves a do_ function with the first failure. */
#define TRY(expression)                        \
  do {                                         \
    const CUresult try_rc = (expression);      \
    if (try_rc != CUDA_SUCCESS) return try_rc; \
  } while (0)

#endif
