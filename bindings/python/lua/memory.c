/* memory.c: an allocator that keeps account, for states with max_memory.
 *
 * Invariant: `used` is what Lua has; where that and an allocation would reach the limit, the allocation fails, and Lua
 * raises its memory error. Exempt from that is the bridge's own list of references. Other threads may read the account
 * and set the limit meanwhile. Must not know: Lua. */
#include <stdlib.h>

#include "runtime.h"

void *mf__memory_allocate(void *account, void *block, size_t before, size_t after) {
  mf__memory *memory = account;
  const size_t used = __atomic_load_n(&memory->used, __ATOMIC_RELAXED);
  if (after == 0) {
    free(block);
    __atomic_store_n(&memory->used, used - before, __ATOMIC_RELAXED);
    return NULL;
  }
  if (memory->refuse && after > before) {
    memory->refuse = 0;
    return NULL;
  }
  const size_t limit = __atomic_load_n(&memory->limit, __ATOMIC_RELAXED);
  int limited = limit != 0 && !memory->exempt && after > before;
  const int fits = !limited || limit > used + (after - before);
  void *moved = fits ? realloc(block, after) : NULL;
  if (moved != NULL) __atomic_store_n(&memory->used, used - before + after, __ATOMIC_RELAXED);
  else memory->refused++;
  return moved;
}
