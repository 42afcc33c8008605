/* compile.h: what the files that take code share: reading it, and saying why it is refused.
 *
 * It must not be included by what runs code. */
#ifndef SIM_CUDA_COMPILE_H
#define SIM_CUDA_COMPILE_H

#include "driver.h"
#include "ptx.h"

/* Where the program wants to read why its text was refused. */
typedef struct error_log {
  char *text;
  size_t size;
  void **length; /* in: the size, out: what was written */
} error_log;

CUresult log_of(unsigned n, const int *options, void **values, error_log *out);
CUresult compile(const void *image, const error_log *log, ptx_program **out);

#endif
