/* owned.c: finds the storage of ours to which an address of a device belongs, so that memory of ours which comes back
 * through another library is known again.
 *
 * Invariant: every block that a pool has of a driver is in the list, sorted by address. The owner of a block is the
 * storage that has its memory, and lives while the block names it: the thread that drops the last reference takes the
 * name out under the owner's lock. It must not know how blocks are kept. */
#include "device/block.h"

#include <sched.h>
#include <string.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static mf__block **list; /* it outlives every tensor, as blocks do */
static size_t count, room;

/* The place of the first block that begins above the address. */
static size_t above(const void *ptr) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if ((uintptr_t)list[middle]->data <= (uintptr_t)ptr) low = middle + 1;
    else high = middle;
  }
  return low;
}

int mf__owned_add(mf__block *b, mf_error *err) {
  pthread_mutex_lock(&list_lock);
  if (count == room) {
    const size_t more = room == 0 ? 64 : room * 2;
    mf__block **grown = mf__lasting_grow(list, more * sizeof *grown);
    if (grown != NULL) {
      list = grown;
      room = more;
    }
  }
  const bool fits = count < room;
  if (fits) {
    const size_t at = above(b->data);
    memmove(list + at + 1, list + at, (count - at) * sizeof *list);
    list[at] = b;
    count++;
  }
  pthread_mutex_unlock(&list_lock);
  return fits ? MF_OK : mf__fail(err, MF_ENOMEM, "no host memory for the list of blocks");
}

void mf__owned_remove(const mf__block *b) {
  pthread_mutex_lock(&list_lock);
  const size_t at = above(b->data) - 1;
  memmove(list + at, list + at + 1, (count - at - 1) * sizeof *list);
  count--;
  pthread_mutex_unlock(&list_lock);
}

/* Held for a few instructions. In a forked child no thread may be left that could unlock it. */
static void lock_owner(mf__block *b) {
  while (atomic_exchange_explicit(&b->owner_locked, 1, memory_order_acquire) != 0 && b->device.backend->usable())
    sched_yield();
}

static void unlock_owner(mf__block *b) {
  atomic_store_explicit(&b->owner_locked, 0, memory_order_release);
}

void mf__owned_set(void *block, mf__storage *owner) {
  mf__block *b = block;
  lock_owner(b);
  b->owner = owner;
  unlock_owner(b);
}

bool mf__owned_clear(void *block, mf__storage *owner) {
  mf__block *b = block;
  lock_owner(b);
  const bool last = mf__storage_let_go(owner);
  if (last) b->owner = NULL;
  unlock_owner(b);
  return last;
}

mf__storage *mf__owned_find(const mf__region *memory) {
  mf__storage *found = NULL;
  if (memory->nbytes == 0) return NULL;
  pthread_mutex_lock(&list_lock);
  const size_t at = above(memory->first);
  mf__block *b = at == 0 ? NULL : list[at - 1];
  if (b != NULL && (uintptr_t)memory->first - (uintptr_t)b->data <= (uint64_t)(b->nbytes - memory->nbytes) &&
      b->nbytes >= memory->nbytes && b->device.backend == memory->device.backend) {
    lock_owner(b);
    if (b->owner != NULL && mf__storage_retain_living(b->owner)) found = b->owner;
    unlock_owner(b);
  }
  pthread_mutex_unlock(&list_lock);
  return found;
}
