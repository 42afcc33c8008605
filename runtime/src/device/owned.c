/* owned.c: finds the storage of ours to which an address of a device belongs, so that memory of ours which comes back
 * through another library is known again.
 *
 * Invariant: all memory that a pool has of a driver, and all that was mapped for us, is in the list, sorted by address.
 * The owner of memory is the storage that has it, and lives while it is named there: the thread that drops the last
 * reference takes the name out under the owner's lock. It must not know how memory is kept. */
#include "device/owned.h"

#include <sched.h>
#include <string.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static mf__owned **list; /* it outlives every tensor, as blocks do */
static size_t count, room;

/* The place of the first memory that begins above the address. */
static size_t above(const void *ptr) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if ((uintptr_t)list[middle]->data <= (uintptr_t)ptr) low = middle + 1;
    else high = middle;
  }
  return low;
}

int mf__owned_add(mf__owned *o, mf_error *err) {
  pthread_mutex_lock(&list_lock);
  if (count == room) {
    const size_t more = room == 0 ? 64 : room * 2;
    mf__owned **grown = mf__lasting_grow(list, more * sizeof *grown);
    if (grown != NULL) {
      list = grown;
      room = more;
    }
  }
  const bool fits = count < room;
  if (fits) {
    const size_t at = above(o->data);
    memmove(list + at + 1, list + at, (count - at) * sizeof *list);
    list[at] = o;
    count++;
  }
  pthread_mutex_unlock(&list_lock);
  return fits ? MF_OK : mf__fail(err, MF_ENOMEM, "no host memory for the list of blocks");
}

/* In a forked child the lock may have been another thread's, and nobody looks into the list any more. */
void mf__owned_remove(const mf__owned *o) {
  if (!o->backend->usable()) return;
  pthread_mutex_lock(&list_lock);
  const size_t at = above(o->data) - 1;
  memmove(list + at, list + at + 1, (count - at - 1) * sizeof *list);
  count--;
  pthread_mutex_unlock(&list_lock);
}

/* Held for a few instructions. In a forked child no thread may be left that could unlock it. */
static void lock_owner(mf__owned *o) {
  while (atomic_exchange_explicit(&o->locked, 1, memory_order_acquire) != 0 && o->backend->usable())
    sched_yield();
}

static void unlock_owner(mf__owned *o) {
  atomic_store_explicit(&o->locked, 0, memory_order_release);
}

void mf__owned_set(mf__owned *o, mf__storage *owner) {
  lock_owner(o);
  o->owner = owner;
  unlock_owner(o);
}

bool mf__owned_clear(mf__owned *o, mf__storage *owner) {
  lock_owner(o);
  const bool last = mf__storage_let_go(owner);
  if (last) o->owner = NULL;
  unlock_owner(o);
  return last;
}

mf__storage *mf__owned_find(const mf__region *memory) {
  mf__storage *found = NULL;
  if (memory->nbytes == 0) return NULL;
  pthread_mutex_lock(&list_lock);
  const size_t at = above(memory->first);
  mf__owned *o = at == 0 ? NULL : list[at - 1];
  if (o != NULL && (uintptr_t)memory->first - (uintptr_t)o->data <= (uint64_t)(o->nbytes - memory->nbytes) &&
      o->nbytes >= memory->nbytes && o->backend == memory->device.backend) {
    lock_owner(o);
    if (o->owner != NULL && mf__storage_retain_living(o->owner)) found = o->owner;
    unlock_owner(o);
  }
  pthread_mutex_unlock(&list_lock);
  return found;
}
