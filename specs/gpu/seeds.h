/* seeds.h: under how many orders of the queued work a spec runs: MOONFERRY_SPEC_SEEDS, if it is set; and which ones:
 * MOONFERRY_SPEC_SEED moves all but the first, which is strictly lazy. specs/run sets it to another number for each
 * commit, and for one suite to 0. */
#ifndef MOONFERRY_SPEC_SEEDS_H
#define MOONFERRY_SPEC_SEEDS_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t seeds(uint64_t otherwise) {
  const char *text = getenv("MOONFERRY_SPEC_SEEDS");
  return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static inline uint64_t seed_of(uint64_t number) {
  const char *text = getenv("MOONFERRY_SPEC_SEED");
  return number == 0 || text == NULL ? number : number + strtoull(text, NULL, 10);
}

#endif
