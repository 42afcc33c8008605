/* release.c: release callbacks for programs that cannot be called on just any thread: a mark, and a list of what waits
 * for the right one.
 *
 * Invariant: an entry's release is called once, after all that was written to its memory before. It must not know whose
 * memory it is. */
#include "core/core.h"

typedef _Atomic(mf_release_entry *) list_head;
_Static_assert(sizeof(list_head) == sizeof(mf_release_entry *), "an atomic pointer is read as a plain one");

static list_head *head_of(mf_release_list *list) {
  return (list_head *)&list->first;
}

void mf_release_mark(void *ctx) {
  if (ctx != NULL) atomic_store_explicit((_Atomic int32_t *)ctx, 1, memory_order_release);
}

/* Another thread may run the entry, and free it, as soon as it is in the list. */
void mf_release_defer(void *entry) {
  mf_release_entry *e = entry;
  if (e == NULL || e->list == NULL) return;
  list_head *head = head_of(e->list);
  e->next = atomic_load_explicit(head, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(head, &e->next, e, memory_order_release, memory_order_relaxed)) {
  }
}

int64_t mf_release_list_run(mf_release_list *list) {
  mf_release_entry *first = NULL, *next;
  int64_t count = 0;
  if (list == NULL) return 0;
  for (mf_release_entry *e = atomic_exchange_explicit(head_of(list), NULL, memory_order_acquire); e != NULL; e = next) {
    next = e->next;
    e->next = first;
    first = e;
  }
  const int before = mf__uncancelled_begin(); /* the rest is in no list */
  for (; first != NULL; first = next, count++) {
    next = first->next;
    first->release(first->ctx);
  }
  mf__uncancelled_end(before);
  return count;
}
