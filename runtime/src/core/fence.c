/* fence.c: the fences of one memory of the host: what somebody else's queue, which no driver of ours knows, still does
 * there.
 *
 * Invariant: a fence is dropped once, right after its wait has said that it is done and on the thread that was told so,
 * because a queue's objects may be usable on some threads only. Its functions are called under no lock: an entry that a
 * thread looks at is pinned, and only who has the only pin takes it out. Entries are used again, so that a program that
 * sets a fence in each frame allocates nothing. It must not know whose memory it is. */
#include "core/core.h"

#include <string.h>

/* An entry's state: FREE, BUSY while one thread fills or empties it, else SET and the number of pins. */
enum { FREE = 0, BUSY = 1, SET = 2 };

typedef struct entry {
  _Atomic int32_t state;
  bool writes; /* the queue writes the memory; else it reads */
  int64_t thread;
  mf_fence fence;
} entry;

#define ENTRIES 4

/* One block of entries for a memory, and more behind it where that many are set at once. */
struct mf__fences {
  _Atomic(mf__fences *) more;
  entry entries[ENTRIES];
};

mf__fences *mf__fences_create(void) {
  mf__fences *f = mf__alloc(sizeof *f);
  if (f == NULL) return NULL;
  atomic_init(&f->more, NULL);
  for (int i = 0; i < ENTRIES; i++) atomic_init(&f->entries[i].state, FREE);
  return f;
}

void mf__fences_free(mf__fences *f) {
  while (f != NULL) {
    mf__fences *more = atomic_load_explicit(&f->more, memory_order_acquire);
    mf__free(f, sizeof *f);
    f = more;
  }
}

/* False where the entry has no fence. That, too, is news of the thread that saw the fence done: what went on in the
 * memory until then comes before what the caller does there. */
static bool pin(entry *e) {
  int32_t state = atomic_load_explicit(&e->state, memory_order_acquire);
  while (state >= SET)
    if (atomic_compare_exchange_weak_explicit(&e->state, &state, state + 1, memory_order_acquire,
                                              memory_order_acquire))
      return true;
  return false;
}

/* The fence is done. Where another thread looks at it, too, it stays for the next look. */
static void drop(entry *e) {
  int32_t state = SET + 1;
  if (!atomic_compare_exchange_strong_explicit(&e->state, &state, BUSY, memory_order_acq_rel, memory_order_relaxed)) {
    atomic_fetch_sub_explicit(&e->state, 1, memory_order_release);
    return;
  }
  const mf_fence fence = e->fence;
  atomic_store_explicit(&e->state, FREE, memory_order_release);
  if (fence.drop != NULL) fence.drop(fence.ctx, fence.value);
}

/* Waits for a pinned entry, which is unpinned then; returns what its wait said. */
static int32_t wait_for(entry *e, int64_t ns) {
  const int before = mf__uncancelled_begin();
  int32_t said;
  do said = e->fence.wait(e->fence.ctx, e->fence.value, ns);
  while (said > 0 && ns == INT64_MAX);
  if (said == 0) drop(e);
  else atomic_fetch_sub_explicit(&e->state, 1, memory_order_release);
  mf__uncancelled_end(before);
  return said;
}

static int refuse(int64_t thread, int32_t said, mf_error *err) {
  return mf__fail(err, MF_EINVAL,
                  "a fence of this memory, set by thread %lld, cannot be waited for on this thread, %lld (its wait "
                  "answered %d)",
                  (long long)thread, (long long)mf__thread_id(), said);
}

int mf__fences_wait(mf__fences *f, bool write, int64_t ns, bool *done, mf_error *err) {
  bool all = true;
  for (; f != NULL; f = atomic_load_explicit(&f->more, memory_order_acquire)) {
    for (int i = 0; i < ENTRIES; i++) {
      entry *e = &f->entries[i];
      if (!pin(e)) continue;
      if (!write && !e->writes) {
        atomic_fetch_sub_explicit(&e->state, 1, memory_order_release);
        continue;
      }
      const int64_t thread = e->thread;
      const int32_t said = wait_for(e, ns);
      if (said < 0) return refuse(thread, said, err);
      all &= said == 0;
    }
  }
  *done = all;
  return MF_OK;
}

bool mf__fences_end(mf__fences *f) {
  bool all = true;
  for (; f != NULL; f = atomic_load_explicit(&f->more, memory_order_acquire))
    for (int i = 0; i < ENTRIES; i++)
      if (pin(&f->entries[i])) all &= wait_for(&f->entries[i], 0) == 0;
  return all;
}

/* Takes a free entry of one block; done fences are dropped for that only where there is none. */
static entry *take_entry(mf__fences *f) {
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < ENTRIES; i++) {
      entry *e = &f->entries[i];
      int32_t state = FREE;
      if (round == 1 && pin(e)) (void)wait_for(e, 0);
      if (atomic_compare_exchange_strong_explicit(&e->state, &state, BUSY, memory_order_acquire, memory_order_relaxed))
        return e;
    }
  }
  return NULL;
}

/* The next block, made if there is none. */
static mf__fences *next_block(mf__fences *f) {
  mf__fences *more = atomic_load_explicit(&f->more, memory_order_acquire);
  if (more != NULL) return more;
  mf__fences *made = mf__fences_create();
  if (made == NULL) return NULL;
  if (atomic_compare_exchange_strong_explicit(&f->more, &more, made, memory_order_acq_rel, memory_order_acquire))
    return made;
  mf__fences_free(made);
  return more;
}

int mf__fences_add(mf__fences *f, const mf_fence *fence, bool writes, mf_error *err) {
  for (; f != NULL; f = next_block(f)) {
    entry *e = take_entry(f);
    if (e == NULL) continue;
    e->fence = *fence;
    e->writes = writes;
    e->thread = mf__thread_id();
    atomic_store_explicit(&e->state, SET, memory_order_release);
    return MF_OK;
  }
  return mf__fail(err, MF_ENOMEM, "no memory for %d more fences", ENTRIES);
}
