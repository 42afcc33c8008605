/* theirs.c: the table as the toolkit's header has it. */
#include <cuda.h>

#include "types.h"

const entry *their_entries(size_t *n);
const entry *their_entries(size_t *n) {
  *n = sizeof entries / sizeof *entries;
  return entries;
}
