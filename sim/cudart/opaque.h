/* opaque.h: launches of compiled kernels that are followed, not computed. */
#ifndef SIM_CUDART_OPAQUE_H
#define SIM_CUDART_OPAQUE_H

#include "front.h"

bool kernels_are_opaque(void);
/* cudaErrorNotSupported and why, where it is not known what the kernel's arguments are. */
cudaError_t launch_opaque(const void *image, const char *name, void **args, CUstream s, const char **why);

#endif
