/* fatbin.h: what is known of the arguments of compiled kernels. */
#ifndef SIM_CUDART_FATBIN_H
#define SIM_CUDART_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kernel_parameter {
  unsigned ordinal; /* its place among the arguments */
  unsigned nbytes;
} kernel_parameter;

/* How many a kernel of a library has, in any order, or -1 and why nobody can tell. The image is what the library
 * registered itself with. */
int kernel_parameters(const void *image, const char *name, kernel_parameter *out, int most, const char **why);
/* lz4.c: whether the block of n bytes gives exactly the wanted ones. */
bool lz4_unpack(const unsigned char *from, size_t n, unsigned char *to, size_t wanted);
/* The library is gone. */
void kernel_forget(const void *image);

#endif
