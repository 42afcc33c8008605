/* block.c: does what must be done before the memory of a pool's block may be used again.
 *
 * The home of a block is a stream behind whose work the memory may be used at once. Its events are behind all other
 * work; there is one behind the home's work, too, where others than the stream that took the block may want it. A block
 * without a home may be taken by any stream once its events are done; the home field then only tells where to look for
 * it. Only streams that cannot vanish are homes, the named ones and our own, because the handle of a foreign stream may
 * be another stream's tomorrow: a foreign stream always leaves an event, and so does everything that used pinned or
 * managed memory, which the host can use.
 *
 * Invariant: an event goes when it was found done, or when the one stream that was made to wait for it gets the block.
 * It must not know how blocks are kept. */
#include "device/block.h"

#include <stdlib.h>

/* Homes */

static mf__home home_of(const mf__entry *t) {
  return (mf__home){t->stream, t->ordinal, t->thread};
}

static mf__entry entry_of(const mf__home *h) {
  return (mf__entry){.stream = h->stream, .ordinal = h->ordinal, .thread = h->thread};
}

bool mf__home_same(const mf__home *a, const mf__home *b) {
  return a->stream == b->stream && a->ordinal == b->ordinal && a->thread == b->thread;
}

static bool can_be_home(const mf__block *b, const mf__home *h) {
  if (b->device.space != MF__DEVICE || h->ordinal != b->device.ordinal) return false;
  return h->stream == MF_STREAM_DEFAULT || h->stream == MF_STREAM_PER_THREAD ||
         mf__stream_owned(b->device.backend, h->ordinal, h->stream);
}

/* A home that is a handle is a holder, for as long as the block has it: its stream must not be destroyed. */
static void set_home(mf__block *b, bool has_home, const mf__home *at) {
  const mf__home home = *at; /* which may be the block's */
  const bool held = b->has_home && b->home.stream > MF_STREAM_PER_THREAD;
  const bool holds = has_home && home.stream > MF_STREAM_PER_THREAD;
  b->has_home = has_home;
  b->home = home;
  if (held != holds) mf__holders_add(b->device.backend, holds ? 1 : -1);
}

static void drop_event(mf__block *b, int32_t i) {
  mf__block_event *m = &b->events[i];
  mf__event_give(b->device.backend, m->ordinal, m->event);
  *m = b->events[--b->nevents];
}

void mf__block_take(mf__block *b, const mf__block_request *r) {
  while (b->nevents > 0) drop_event(b, 0);
  set_home(b, false, &r->home);
}

/* Requests */

mf__block_request mf__block_request_make(const mf__queue *on) {
  return (mf__block_request){.on = on, .home = {on->stream, on->ordinal, on->thread}};
}

int mf__block_request_ask_capture(mf__block_request *r, mf_error *err) {
  uint64_t id;
  const int rc = mf__capture_of(r->on, &id, err);
  r->captured = id != 0;
  return rc;
}

/* Events */

/* Moves the entry's event to the block. */
static void take_event(mf__block *b, const mf__entry *t, bool of_home) {
  b->events[b->nevents++] = (mf__block_event){t->event, t->ordinal, of_home};
}

/* Records the entry's event, if it has none yet. */
static bool ensure_event(const mf__block *b, mf__entry *t) {
  return t->event != NULL || mf__entry_event(b->device.backend, t, &t->event, NULL) == MF_OK;
}

static bool has_home_event(const mf__block *b) {
  for (int32_t i = 0; i < b->nevents; i++)
    if (b->events[i].of_home) return true;
  return false;
}

/* Prefers the stream that the block was taken on; else takes any other that can be a home. */
static const mf__entry *choose_home(const mf__block *b, const mf__record *record) {
  const mf__entry *found = NULL;
  for (int32_t i = 0; i < record->count; i++) {
    const mf__home h = home_of(&record->entries[i]);
    if (record->entries[i].event != NULL || record->entries[i].destroyed || !can_be_home(b, &h)) continue;
    if (mf__home_same(&h, &b->home)) return &record->entries[i];
    if (found == NULL) found = &record->entries[i];
  }
  return found;
}

/* The stream that the block was taken on may have it back with no event. Another home gets one as well, so that the
 * stream which allocates can have the block back. */
static bool needs_event(const mf__entry *t, const mf__entry *home, const mf__home *taken) {
  const mf__home h = home_of(t);
  return t != home || !mf__home_same(&h, taken);
}

/* Events that were recorded stay in the record if another cannot be. */
bool mf__block_take_events(mf__block *b, mf__record *record) {
  const mf__entry *home = choose_home(b, record);
  const mf__home at = home != NULL ? home_of(home) : b->home;
  int needed = 0;
  for (int32_t i = 0; i < record->count; i++) {
    if (!needs_event(&record->entries[i], home, &b->home)) continue;
    if (++needed > MF__ENTRIES_INSIDE || !ensure_event(b, &record->entries[i])) return false;
  }
  for (int32_t i = 0; i < record->count; i++) {
    mf__entry *t = &record->entries[i];
    const mf__home h = home_of(t);
    if (needs_event(t, home, &b->home)) take_event(b, t, mf__home_same(&h, &at));
  }
  set_home(b, home != NULL, &at);
  return true;
}

/* Which stream may have a block */

bool mf__block_is_clean(const mf__block *b, const mf__block_request *r) {
  if (!mf__home_same(&b->home, &r->home)) return false;
  return b->nevents == 0 || (b->has_home && b->nevents == 1 && b->events[0].of_home);
}

bool mf__block_is_candidate(const mf__block *b, const mf__block_request *r) {
  return !b->has_home || r->may_block || mf__home_same(&b->home, &r->home) || has_home_event(b);
}

/* What is known of an event of a block: neither, that the requesting stream is behind it, or that it is done. */
typedef enum standing { PENDING, ORDERED, DONE } standing;

/* The requesting stream waits for the block's work, and so has something to do, however idle it was before. */
static bool wait_on_stream(mf__block *b, void *event, const mf__block_request *r) {
  if (r->on->backend->event_wait(event, r->on->stream, NULL) != MF_OK) return false;
  b->may_run = true;
  return true;
}

/* The requesting stream may wait for its earlier work at no cost, for the work of others only if it must. */
static standing wait_for_event(mf__block *b, const mf__block_event *m, const mf__block_request *r) {
  const mf__backend *backend = r->on->backend;
  const bool of_requester = m->of_home && mf__home_same(&b->home, &r->home);
  bool done;
  if (b->has_home && of_requester) return ORDERED;
  (void)backend->event_query(m->event, &done, NULL);
  if (done) return DONE;
  if (r->captured) return PENDING;
  if (!r->may_block && !(of_requester && b->device.space == MF__DEVICE)) return PENDING;
  if (b->device.space != MF__DEVICE) return backend->event_synchronize(m->event, NULL) == MF_OK ? DONE : PENDING;
  return wait_on_stream(b, m->event, r) ? ORDERED : PENDING;
}

/* Makes the requesting stream wait for a home that has no event. */
static bool wait_for_home(mf__block *b, const mf__block_request *r) {
  const mf__entry t = entry_of(&b->home);
  void *event;
  if (!r->may_block || r->captured || mf__entry_event(r->on->backend, &t, &event, NULL) != MF_OK) return false;
  const bool ordered = wait_on_stream(b, event, r);
  mf__event_give(r->on->backend, t.ordinal, event);
  return ordered;
}

/* On failure only events that were found done may go, because the next request does not wait where this one did. */
bool mf__block_ready(mf__block *b, const mf__block_request *r) {
  for (int32_t i = b->nevents - 1; i >= 0; i--) {
    const standing now = wait_for_event(b, &b->events[i], r);
    if (now == PENDING) return false;
    if (now == ORDERED) continue;
    if (b->events[i].of_home) set_home(b, false, &b->home);
    drop_event(b, i);
  }
  return !b->has_home || has_home_event(b) || mf__home_same(&b->home, &r->home) || wait_for_home(b, r);
}

/* Giving to the driver */

/* Blocks whose memory the driver has, each with an event behind the work that may have used it: a kernel of ours must
 * not be unloaded before it has run. */
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static mf__block *left;

void mf__block_look(mf__block *b, const mf__queue *on) {
  const bool may_run = b->device.space == MF__DEVICE && b->device.backend->kernels_loaded(on->ordinal);
  b->may_run = may_run && !mf__queue_done(on);
}

int mf__block_free(mf__block *b, const mf__block_request *r, bool *freed, mf_error *err) {
  mf__scope scope;
  void *behind = NULL;
  int rc = mf__enter_relaxed(&scope, r->on->backend, r->on->ordinal, err);
  if (rc != MF_OK) return rc;
  if (b->device.space == MF__DEVICE) rc = mf__capture_refuse_inside(r->on, "no memory can be given back on it", err);
  const bool ready = rc == MF_OK && mf__block_ready(b, r);
  if (ready && b->may_run) rc = mf__queue_record_event(r->on, &behind, NULL, err);
  if (ready && rc == MF_OK) {
    mf__owned_remove(&b->memory);
    rc = mf__memory_free(r->on, b->device.space, &b->memory.data, err);
    *freed = true;
  }
  mf__leave(&scope);
  if (!*freed) return rc;
  mf__block_take(b, r);
  if (behind != NULL) b->events[b->nevents++] = (mf__block_event){behind, r->on->ordinal, false};
  return rc;
}

void mf__block_leave(mf__block *b) {
  if (b->nevents == 0) {
    free(b);
    return;
  }
  pthread_mutex_lock(&left_lock);
  b->next = left;
  left = b;
  pthread_mutex_unlock(&left_lock);
}

static bool left_on(const mf__block *b, const mf__backend *backend, int32_t ordinal) {
  return b->device.backend == backend && b->events[0].ordinal == ordinal;
}

bool mf__blocks_left(const mf__backend *backend, int32_t ordinal) {
  pthread_mutex_lock(&left_lock);
  const mf__block *b = left;
  while (b != NULL && !left_on(b, backend, ordinal)) b = b->next;
  pthread_mutex_unlock(&left_lock);
  return b != NULL;
}

/* Takes those of the device out of the list. */
static mf__block *take_left(const mf__backend *backend, int32_t ordinal) {
  mf__block *taken = NULL;
  pthread_mutex_lock(&left_lock);
  for (mf__block **link = &left, *b; (b = *link) != NULL;) {
    if (!left_on(b, backend, ordinal)) {
      link = &b->next;
      continue;
    }
    *link = b->next;
    b->next = taken;
    taken = b;
  }
  pthread_mutex_unlock(&left_lock);
  return taken;
}

/* To ask about an event is to enter the device, for which no lock may be held: a thread that has shut the device wants
 * it. So the caller has the blocks, and is a holder meanwhile. */
void mf__blocks_left_end(const mf__backend *backend, int32_t ordinal) {
  mf__holders_add(backend, 1);
  for (mf__block *b = take_left(backend, ordinal), *next; b != NULL; b = next) {
    next = b->next;
    if (mf__event_done(backend, ordinal, b->events[0].event)) drop_event(b, 0);
    mf__block_leave(b);
  }
  mf__holders_add(backend, -1);
}

/* Nothing can be freed on another thread's stream, so that an event is recorded in its place. */
mf__queue mf__block_queue(mf__block *b) {
  mf__entry t = entry_of(&b->home);
  const mf__queue home = {b->device.backend, b->ordinal, t.thread, t.stream};
  const mf__queue legacy = mf__queue_make(b->device.backend, b->ordinal, MF_STREAM_DEFAULT);
  if (!b->has_home) return legacy;
  if (!mf__queue_is_elsewhere(&home)) return home;
  if (!has_home_event(b) && b->nevents < MF__ENTRIES_INSIDE && ensure_event(b, &t)) take_event(b, &t, true);
  return legacy;
}
