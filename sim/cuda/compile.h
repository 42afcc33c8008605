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
/* A text of PTX, or what the linker made of several. */
CUresult compile(const void *image, const error_log *log, ptx_program **out);
/* `whole`: nothing is missing that a text names. */
CUresult compile_texts(const char *const *texts, size_t n, bool whole, const error_log *log, ptx_program **out);

/* What the linker gives out: this, then each text with its end, then an empty one. No text begins so. */
#define LINKED "\177PTX texts:"

#endif
