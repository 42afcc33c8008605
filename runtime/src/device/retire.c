/* retire.c: keeps memory that was released while queued work may still use it.
 *
 * Invariant: finish is called once, under no lock, when all that was queued on the record's streams before the release
 * is done. The record itself is the entry of the list, so that nothing has to be allocated and nothing can be lost.
 *
 * A stream that is being captured is asked again at every poll. A stream that fails otherwise (its consumer destroyed
 * it before it called the deleter, say) is tried twice and then not again, because the handle may be nobody's by now;
 * then only a wait for the whole device tells, mf_device_synchronize. Nothing is released earlier, and nothing stays
 * beyond such a wait.
 *
 * It must not know what is released. */
#include "device/device.h"

enum { RECORDS_PER_POLL = 4, MAX_TRIES = 2 };

/* One thread that looks, and has one record after the other out of the list meanwhile. */
typedef struct look {
  struct look *next;
  uint64_t number; /* later ones have higher numbers */
  uint32_t thread;
  bool waits;   /* for events, for as long as the work of another device may take: nobody waits for it */
  bool has_one; /* record out of the list, of that memory */
  mf__space of_space;
  int32_t of_ordinal;
} look;

typedef struct waiting_list {
  pthread_mutex_t lock;
  mf__record *first;
  mf__record *last;
  look *looks;
  uint64_t last_look; /* its number */
  _Atomic int64_t count; /* those included that a thread is just looking at, or ending */
} waiting_list;

#define MF__BACKEND(name) {.lock = PTHREAD_MUTEX_INITIALIZER},
static waiting_list lists[MF__NBACKENDS] = {MF__BACKENDS(MF__BACKEND)};
#undef MF__BACKEND

static waiting_list *list_of(const mf__backend *backend) {
  return &lists[backend->index];
}

/* Whether the entry's last write, or what it waited for, is behind all that the others did. */
static bool is_behind_all(const mf__record *a, const mf__entry *t) {
  for (int32_t i = 0; i < a->count; i++) {
    const mf__entry *other = &a->entries[i];
    if (other == t) continue;
    if (other->open_reads > 0 || other->open_writes > 0) return false;
    if (other->granted || other->last_read > 0 || other->last_write > t->seen_writes) return false;
  }
  return true;
}

void mf__record_prune(mf__record *a) {
  for (int32_t i = 0; i < a->count && a->count > 1; i++) {
    if (!is_behind_all(a, &a->entries[i])) continue;
    const mf__entry last = a->entries[i];
    a->entries[i] = a->entries[0];
    a->entries[0] = last;
    while (a->count > 1) mf__record_drop(a, a->count - 1);
  }
}

/* The list */

static void push(waiting_list *l, mf__record *a, look *mine) {
  a->next = NULL;
  pthread_mutex_lock(&l->lock);
  if (l->first == NULL) l->first = a;
  else l->last->next = a;
  l->last = a;
  if (mine != NULL) mine->has_one = false;
  pthread_mutex_unlock(&l->lock);
}

static mf__record *pop(waiting_list *l, look *mine) {
  pthread_mutex_lock(&l->lock);
  mf__record *a = l->first;
  mine->has_one = a != NULL;
  if (a != NULL) {
    l->first = a->next;
    mine->of_space = a->space;
    mine->of_ordinal = a->ordinal;
  }
  pthread_mutex_unlock(&l->lock);
  return a;
}

/* Looks */

static void look_begin(waiting_list *l, look *mine, bool wait) {
  pthread_mutex_lock(&l->lock);
  *mine = (look){.next = l->looks, .number = ++l->last_look, .thread = mf__thread_number(), .waits = wait};
  l->looks = mine;
  pthread_mutex_unlock(&l->lock);
}

static void look_end(waiting_list *l, const look *mine) {
  pthread_mutex_lock(&l->lock);
  look **at = &l->looks;
  while (*at != mine) at = &(*at)->next;
  *at = mine->next;
  pthread_mutex_unlock(&l->lock);
}

/* Whether another thread is in a look that began by then. */
static bool is_looked_at(waiting_list *l, uint64_t until) {
  const uint32_t me = mf__thread_number();
  pthread_mutex_lock(&l->lock);
  const look *other = l->looks;
  while (other != NULL && (other->waits || other->number > until || other->thread == me)) other = other->next;
  pthread_mutex_unlock(&l->lock);
  return other != NULL;
}

/* Waits until all looks have ended that other threads are in: a few driver calls each. */
static void looks_await(waiting_list *l) {
  pthread_mutex_lock(&l->lock);
  const uint64_t until = l->last_look;
  pthread_mutex_unlock(&l->lock);
  while (is_looked_at(l, until)) mf__nap(20000);
}

/* One record */

/* Records an event for an entry that has none, unless its work is known to be done without one. */
static bool entry_is_done(const mf__record *a, mf__entry *t, bool wait) {
  if (t->event == NULL) {
    if (mf__device_waited(a->backend, t->ordinal, t->waits)) return true;
    if (t->destroyed || t->tries >= MAX_TRIES) return false;
    if (mf__entry_done(a->backend, t)) return true;
    const int rc = mf__entry_event(a->backend, t, &t->event, NULL);
    if (rc != MF_OK && rc != MF_ECAPTURE) t->tries++;
    if (rc != MF_OK) return false;
  }
  return wait ? mf__event_synchronize(a->backend, t->ordinal, t->event, NULL) == MF_OK
              : mf__event_done(a->backend, t->ordinal, t->event);
}

static bool is_done(mf__record *a, bool wait) {
  for (int32_t i = 0; i < a->count;) {
    if (entry_is_done(a, &a->entries[i], wait)) mf__record_drop(a, i);
    else i++;
  }
  return a->count == 0;
}

/* Ends those of the first n records in the list whose work is done. */
static void poll_list(const mf__backend *backend, int64_t n, bool wait) {
  waiting_list *l = list_of(backend);
  look mine;
  look_begin(l, &mine, wait);
  for (mf__record *a; n > 0 && (a = pop(l, &mine)) != NULL; n--) {
    if (!is_done(a, wait)) {
      push(l, a, &mine);
      continue;
    }
    a->finish(a->ctx);
    atomic_fetch_sub_explicit(&l->count, 1, memory_order_release);
  }
  look_end(l, &mine);
}

/* That nothing waits is news of the thread that ended the last one, and comes behind all that it did for that. */
bool mf__retire_waits(const mf__backend *backend) {
  return atomic_load_explicit(&list_of(backend)->count, memory_order_acquire) != 0 && backend->usable();
}

void mf__retire(mf__record *record, mf__finish_fn finish, void *ctx) {
  record->finish = finish;
  record->ctx = ctx;
  mf__record_prune(record);
  for (int32_t i = 0; i < record->count; i++) {
    mf__entry *t = &record->entries[i];
    if (!t->destroyed) t->waits = mf__device_waits(record->backend, t->ordinal);
  }
  if (record->count == 0 || !record->backend->usable() || is_done(record, false)) {
    finish(ctx);
    return;
  }
  waiting_list *l = list_of(record->backend);
  atomic_fetch_add_explicit(&l->count, 1, memory_order_relaxed);
  push(l, record, NULL);
}

void mf__retire_poll(void) {
  for (int i = 0; i < MF__NBACKENDS; i++)
    if (mf__retire_waits(mf__backends[i])) poll_list(mf__backends[i], RECORDS_PER_POLL, false);
}

static void poll_all(const mf__backend *backend, bool wait) {
  const int64_t all = atomic_load_explicit(&list_of(backend)->count, memory_order_relaxed);
  if (mf__retire_waits(backend)) poll_list(backend, all, wait);
}

/* What another thread has out of the list is not found there. Who began to look before may not have seen what is done
 * by now, and puts it back; who began later ends it. */
void mf__retire_drain(const mf__backend *backend) {
  if (!mf__retire_waits(backend)) return;
  looks_await(list_of(backend));
  poll_all(backend, false);
  looks_await(list_of(backend));
}

void mf__retire_wait(const mf__backend *backend) {
  poll_all(backend, true);
}

static bool is_of(mf__space space, int32_t ordinal, const mf__device *device) {
  return space == device->space && (space != MF__DEVICE || ordinal == device->ordinal);
}

int64_t mf__retire_count(const mf__device *device) {
  waiting_list *l = list_of(device->backend);
  int64_t n = 0;
  if (!mf__retire_waits(device->backend)) return 0;
  pthread_mutex_lock(&l->lock);
  for (const mf__record *a = l->first; a != NULL; a = a->next) n += is_of(a->space, a->ordinal, device);
  for (const look *other = l->looks; other != NULL; other = other->next)
    n += other->has_one && is_of(other->of_space, other->of_ordinal, device);
  pthread_mutex_unlock(&l->lock);
  return n;
}
