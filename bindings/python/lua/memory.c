/* memory.c: an allocator that keeps account, for states with max_memory.
 *
 * Invariant: `used` is what Lua has; where that and an allocation would reach the limit, the allocation fails, and Lua
 * raises its memory error. Exempt from that is the bridge's own list of references. Must not know: Lua. */
#include <stdlib.h>

#include "runtime.h"

void *mf__memory_allocate(void *account, void *block, size_t before, size_t after) {
  mf__memory *memory = account;
  if (block == NULL) before = 0;
  if (after == 0) {
    free(block);
    memory->used -= before;
    return NULL;
  }
  if (memory->refuse && after > before) {
    memory->refuse = 0;
    return NULL;
  }
  int limited = memory->limit != 0 && !memory->exempt && after > before;
  if (limited && memory->limit <= memory->used + (after - before)) return NULL;
  void *moved = realloc(block, after);
  if (moved != NULL) memory->used = memory->used - before + after;
  return moved;
}
