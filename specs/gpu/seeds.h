/* seeds.h: under how many orders of the queued work a spec runs: MOONFERRY_SPEC_SEEDS, if it is set. */
#ifndef MOONFERRY_SPEC_SEEDS_H
#define MOONFERRY_SPEC_SEEDS_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t seeds(uint64_t otherwise) {
  const char *text = getenv("MOONFERRY_SPEC_SEEDS");
  return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

#endif
