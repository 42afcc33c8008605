/* forward.h: what the files of the forwarding HIP runtime share.
 *
 * Each HIP call is implemented by do_NAME and made of calls of the CUDA driver, with the context of the calling
 * thread's device current. It must not know whether that driver is a simulated one. */
#ifndef SIM_FORWARD_H
#define SIM_FORWARD_H

#include "driver.h"
#include "front.h"

/* The driver's functions, by their symbols; one that the driver lacks stays NULL. */
#define CALL(name, symbol, since, how, params, args) CUresult(*symbol) params;
#define SCALL CALL
#define DCALL(name, symbol, since, how, params, args) CUresult(*symbol) params; CUresult(*symbol##_ptds) params;
typedef struct driver {
#include "cuda/calls.def"
} driver;
#undef CALL
#undef SCALL
#undef DCALL

extern driver cu;

hipError_t forward_status(CUresult rc);
CUstream forward_stream(hipStream_t s);
/* The driver's context of a device, retained for good when it is first asked for. */
hipError_t forward_context(int device, CUcontext *c);
void forward_forget(int device);
int forward_device(void);

/* The HIP status of one driver call. */
#define DO(symbol, ...) (cu.symbol == NULL ? hipErrorNotSupported : forward_status(cu.symbol(__VA_ARGS__)))
/* The same for a call that uses the default stream unasked. */
#define DO_DEFAULT(symbol, ...) (sim_default_is_per_thread() ? DO(symbol##_ptds, __VA_ARGS__) : DO(symbol, __VA_ARGS__))

#endif
