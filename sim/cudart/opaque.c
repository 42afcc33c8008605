/* opaque.c: launches of compiled kernels, which cannot run, as accesses to all memory that their arguments reach.
 *
 * With SIM_KERNELS=opaque each whole allocation that a word of an argument points into counts as written, in the
 * stream's order, and holds poison after. Nothing is known of pointers that lie in memory. It must not know how a
 * kernel is registered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fatbin.h"
#include "front.h"
#include "opaque.h"

enum { MOST = 256, WORDS = 1024, POISON = 0xeb };

bool kernels_are_opaque(void) {
  const char *set = getenv("SIM_KERNELS");
  return set != NULL && strcmp(set, "opaque") == 0;
}

/* A set of the allocations that words of an argument point into. */
typedef struct reached {
  CUdeviceptr at[WORDS];
  size_t nbytes[WORDS];
  size_t n;
} reached;

/* The range that the address lies in, or false where nothing lives there, or it was reached before. */
static bool reach_at(reached *r, CUdeviceptr address, size_t *at) {
  CUdeviceptr base = 0;
  size_t size = 0, k = 0;
  if (address == 0 || r->n == WORDS || cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS) return false;
  while (k < r->n && r->at[k] != base) k++;
  if (k < r->n) return false;
  *at = r->n++;
  r->at[*at] = base;
  r->nbytes[*at] = size;
  return true;
}

/* Memory that is mapped piece by piece is one to a kernel: ranges without a gap between them are reached together.
 * Other allocations have gaps. */
static void reach_pointer(reached *r, CUdeviceptr pointer) {
  size_t first, at;
  if (!reach_at(r, pointer, &first)) return;
  at = first;
  while (reach_at(r, r->at[at] - 1, &at)) {
  }
  at = first;
  while (reach_at(r, r->at[at] + r->nbytes[at], &at)) {
  }
}

static void reach(reached *r, const unsigned char *argument, size_t nbytes) {
  for (size_t i = 0; i + sizeof(CUdeviceptr) <= nbytes; i += sizeof(CUdeviceptr)) {
    CUdeviceptr word;
    memcpy(&word, argument + i, sizeof word);
    reach_pointer(r, word);
  }
}

static void mark(const char *name, size_t n) {
  char text[1400];
  snprintf(text, sizeof text, "kernel %s is compiled code: it was followed, not computed. The %zu allocation%s that "
           "its arguments reach count as written, and what they hold is not known (0x%x)", name, n, n == 1 ? "" : "s",
           POISON);
  sim_add_finding(SIM_WARNING, text);
}

cudaError_t launch_opaque(const void *image, const char *name, void **args, CUstream s, const char **why) {
  kernel_parameter parameters[MOST];
  reached *r = calloc(1, sizeof *r);
  if (r == NULL) return cudaErrorMemoryAllocation;
  const int n = kernel_parameters(image, name, parameters, MOST, why);
  for (int i = 0; i < n && args != NULL; i++) reach(r, args[parameters[i].ordinal], parameters[i].nbytes);
  cudaError_t rc = n < 0 ? cudaErrorNotSupported : cudaSuccess;
  for (size_t i = 0; i < r->n && rc == cudaSuccess; i++)
    rc = from(cuMemsetD8Async(r->at[i], POISON, r->nbytes[i], s));
  if (n >= 0) mark(name, r->n);
  free(r);
  return rc;
}
