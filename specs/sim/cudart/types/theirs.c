/* theirs.c: the table as the toolkit's header has it, with names for C. */
#include <cuda_runtime_api.h>
typedef struct cudaMemPoolProps cudaMemPoolProps;
typedef struct cudaMemAccessDesc cudaMemAccessDesc;
typedef struct cudaMemLocation cudaMemLocation;

#include "types.h"

const entry *their_entries(size_t *n);
const entry *their_entries(size_t *n) {
  *n = sizeof entries / sizeof *entries;
  return entries;
}
