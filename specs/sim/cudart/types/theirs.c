/* theirs.c: the table as the toolkit's header has it, with names for C. */
#include <cuda_runtime_api.h>
#if CUDART_VERSION / 1000 != CUDART_MAJOR
#error the header is of another version
#endif
#if CUDART_MAJOR == 12
#define IN_12(...) __VA_ARGS__
#define IN_13(...)
#else
#define IN_12(...)
#define IN_13(...) __VA_ARGS__
#endif
typedef struct cudaMemPoolProps cudaMemPoolProps;
typedef struct cudaMemAccessDesc cudaMemAccessDesc;
typedef struct cudaMemLocation cudaMemLocation;

#include "types.h"

const entry *their_entries(size_t *n);
const entry *their_entries(size_t *n) {
  *n = sizeof entries / sizeof *entries;
  return entries;
}
