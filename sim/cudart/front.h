/* front.h: what the files of the runtime share.
 *
 * Each call of calls.def is implemented by do_NAME. It calls the driver by its public names alone, as any library does;
 * what only the simulator has is sim.h's. It must not include anything of the engine's. */
#ifndef SIM_CUDART_FRONT_H
#define SIM_CUDART_FRONT_H

#include <stdbool.h>

#include "runtime.h"
#include "sim.h"

#define CALL(name, symbol, since, how, params, args) CUresult symbol params;
#define SCALL(name, symbol, since, how, params, args) CUresult symbol params;
#define DCALL(name, symbol, since, how, params, args) CUresult symbol params; CUresult symbol##_ptds params;
#include "../cuda/calls.def"
#undef CALL
#undef SCALL
#undef DCALL

enum { KEEPS_ERROR = 1 }; /* the call leaves the thread's last error alone */
/* The last of CUDA 12, the first of CUDA 13. */
enum { RUNTIME_VERSION = CUDART_MAJOR == 12 ? 12090 : 13000, MAX_DEVICES = 16 };

#define CALL(name, how, params, args) cudaError_t do_##name params;
#define SCALL CALL
#define DCALL CALL
#define REFUSE(name)
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL
#undef REFUSE

/* Leaves a function with the first failure. */
#define TRY(expression)                        \
  do {                                         \
    const cudaError_t try_rc = (expression);   \
    if (try_rc != cudaSuccess) return try_rc;  \
  } while (0)

/* The runtime's numbers for what the driver says are the driver's. */
static inline cudaError_t from(CUresult rc) {
  return (cudaError_t)rc;
}

/* entry.c: whether the call that the thread makes means the per-thread stream by the default one */
bool per_thread_default(void);
static inline CUstream stream_of(cudaStream_t s) {
  return s == NULL && per_thread_default() ? CU_STREAM_PER_THREAD : s;
}
/* A call of the driver's that uses the default stream unasked. */
#define BY_DEFAULT(symbol) (per_thread_default() ? symbol##_ptds : symbol)
/* What the simulator cannot do is a finding, because no program expects it. */
cudaError_t refuse(const char *what);

/* context.c */
cudaError_t context(void);                           /* the calling thread has one that is current */
cudaError_t primary_of(int device, CUcontext *out);  /* retained until the process ends or the device is reset */

/* device.c */
cudaError_t known_device(int device);
cudaError_t properties_of(int device, cudaDeviceProp *out);

/* Where what is known of a capture goes. */
typedef struct capture_answer {
  cudaStreamCaptureStatus *status;
  unsigned long long *id;
  cudaGraph_t *graph;
  const cudaGraphNode_t **nodes;
  const cudaGraphEdgeData **edges;
  size_t *n;
} capture_answer;

/* memory.c, stream.c: what the forms of both versions are made of */
cudaError_t prefetch(const void *p, size_t n, cudaMemLocation where, unsigned flags, cudaStream_t s);
cudaError_t capture_info(cudaStream_t s, const capture_answer *out);

#endif
