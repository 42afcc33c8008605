/* order.c: decides which stream waits for which. Each memory that a driver knows has a record of the streams that used
 * it; an operation waits on the device for those streams that it must, and for no other.
 *
 * Invariant: between mf__order_begin and mf__order_end the record is locked, so that the work of a stream is queued by
 * the time that another thread finds the stream in a record. Events are recorded when a stream or the host has to wait,
 * never at a use: a use on one stream costs no driver call. Only when the consumers on a foreign stream are done an
 * event is recorded there, because the owner may then destroy the stream; such an entry is detached: the event stands
 * for it, and the handle is not used again.
 *
 * It must not know about tensors, or what the numbers of the Python protocol mean. */
#include "device/device.h"

#include <sched.h>
#include <string.h>

static void nap(void) {
  mf__nap(20000);
}

static void nap_for(mf__record *a) {
  atomic_store_explicit(&a->wanted, true, memory_order_relaxed);
  nap();
}

/* Takes one atomic exchange, where a mutex takes two, because every use of a tensor pays for it. A thread that finds
 * the record locked sleeps: a staged copy keeps it locked until the host's part is done. That cannot deadlock: the copy
 * waits for buffers and queued work, which need no record, and records are locked in the order of their addresses. In a
 * forked child no thread is left that could unlock it.
 *
 * A thread that copies in a loop has the record locked nearly always, and who sleeps would hardly ever wake while it is
 * free. So a thread that comes lets a sleeper go first. It waits for that a few naps at most: a sleeper may be late. */
static void lock(mf__record *a) {
  for (int n = 0; n < 10 && atomic_load_explicit(&a->wanted, memory_order_relaxed); n++) nap();
  for (int tries = 0; atomic_exchange_explicit(&a->locked, 1, memory_order_acquire) != 0; tries++) {
    if (tries < 100) sched_yield();
    else nap_for(a);
    if (!a->backend->usable()) break;
  }
  atomic_store_explicit(&a->wanted, false, memory_order_relaxed);
  atomic_store_explicit(&a->sole_writer, MF_STREAM_CURRENT, memory_order_relaxed);
}

static void unlock(mf__record *a) {
  atomic_store_explicit(&a->locked, 0, memory_order_release);
}

static bool is_detached(const mf__entry *t) {
  return t->event != NULL;
}

/* Makes room for one more entry. Where there is none, entries of work that is done go first: streams that come and go
 * would otherwise stay in the record of memory that is only read. */
static int reserve(mf__record *a, mf_error *err) {
  const bool full = a->count == a->room;
  for (int32_t i = 0; full && i < a->count;) {
    const mf__entry *t = &a->entries[i];
    if (is_detached(t) && mf__event_done(a->backend, t->ordinal, t->event)) mf__record_drop(a, i);
    else i++;
  }
  if (a->count < a->room) return MF_OK;
  mf__entry *grown = mf__alloc((size_t)a->room * 2 * sizeof *grown);
  if (grown == NULL) return mf__fail(err, MF_ENOMEM, "no memory for a record of %d streams", a->room * 2);
  memcpy(grown, a->entries, (size_t)a->count * sizeof *grown);
  if (a->entries != a->inside) mf__free(a->entries, (size_t)a->room * sizeof *grown);
  a->entries = grown;
  a->room *= 2;
  return MF_OK;
}

/* Whether the entry was made under the queue's name, which may be that of another stream by now if it is detached. */
static bool is_namesake(const mf__entry *t, const mf__queue *q) {
  return t->stream == q->stream && t->ordinal == q->ordinal && t->thread == q->thread;
}

static mf__entry *find(mf__record *a, const mf__queue *q, bool detached) {
  for (int32_t i = 0; i < a->count; i++) {
    mf__entry *t = &a->entries[i];
    if (is_detached(t) == detached && !t->destroyed && is_namesake(t, q)) return t;
  }
  return NULL;
}

/* The queue's attached entry; there is room for a new one. The owner of a foreign stream may destroy it, and the driver
 * may then give its handle to another; but the owner of a current stream has promised that it stays. */
static mf__entry *attached_entry(mf__record *a, const mf__queue *q) {
  const mf__device device = {.backend = q->backend, .space = MF__DEVICE, .ordinal = q->ordinal};
  mf__entry *t = find(a, q, false);
  if (t != NULL) return t;
  t = &a->entries[a->count++];
  *t = (mf__entry){.ordinal = q->ordinal, .thread = q->thread, .stream = q->stream, .id = ++a->last_id};
  if (q->stream > MF_STREAM_PER_THREAD && !mf__stream_owned(q->backend, q->ordinal, q->stream)) {
    t->owner_may_destroy = !mf__stream_is_current(&device, q->stream);
    t->stream_name = mf__queue_name(q);
  }
  return t;
}

/* The queue's attached entry, once the queue has waited for its detached namesakes, which are merged into it. Their
 * reads need not be kept: the use that comes now reads as well, or writes behind them. */
static mf__entry *resumed_entry(mf__record *a, const mf__queue *q) {
  uint64_t last_write = 0;
  for (mf__entry *t; (t = find(a, q, true)) != NULL; mf__record_drop(a, (int32_t)(t - a->entries)))
    if (t->last_write > last_write) last_write = t->last_write;
  mf__entry *self = attached_entry(a, q);
  if (last_write > self->last_write) self->last_write = last_write;
  return self;
}

bool mf__order_knows(mf__record *a, mf_stream stream, int32_t *ordinal) {
  bool known = false;
  if (a == NULL || stream <= MF_STREAM_PER_THREAD) return false;
  lock(a);
  for (int32_t i = 0; i < a->count && !known; i++) {
    known = a->entries[i].stream == stream && !is_detached(&a->entries[i]) && !a->entries[i].destroyed;
    if (known) *ordinal = a->entries[i].ordinal;
  }
  unlock(a);
  return known;
}

static bool is_open(const mf__entry *t) {
  return t->open_reads > 0 || t->open_writes > 0;
}

static bool must_wait(const mf__entry *t, const mf__entry *self, bool write) {
  const uint64_t seen_writes = self == NULL ? 0 : self->seen_writes;
  if (t == self) return false;
  if (t->open_writes > 0 || t->last_write > seen_writes) return true;
  return write && (t->open_reads > 0 || t->last_read > 0 || t->granted);
}

/* Whether the stream of an attached entry was destroyed: the driver says so, or has given the handle to another. Ours
 * live as long as any record, whatever a driver that fails may answer. */
static bool find_destroyed(const mf__record *a, mf__entry *t) {
  const mf__queue q = mf__entry_queue(a->backend, t);
  if (t->destroyed || is_detached(t) || t->stream <= MF_STREAM_PER_THREAD) return t->destroyed;
  if (mf__stream_owned(a->backend, t->ordinal, t->stream)) return false;
  const uint64_t name = t->stream_name == 0 ? 0 : mf__queue_name(&q);
  t->destroyed = name != 0 ? name != t->stream_name : mf__queue_is_destroyed(&q);
  if (t->destroyed) t->waits = mf__device_waits(a->backend, t->ordinal);
  return t->destroyed;
}

/* Only a wait for the whole device covers the work that a destroyed stream had queued, and that would break any capture
 * there: the program has to ask for it. */
static int refuse_destroyed(const mf__record *a, const mf__entry *t, mf_error *err) {
  return mf__fail(err, MF_EINVAL,
                  "stream 0x%llx of %s:%d used this memory and was destroyed; mf_device_synchronize waits for what it "
                  "had queued",
                  (unsigned long long)t->stream, a->backend->name, t->ordinal);
}

/* The record is locked. */
static int check_kept(const mf__record *a, mf_error *err) {
  return atomic_load_explicit(&a->taken_back, memory_order_relaxed) ? mf__taken_back(err) : MF_OK;
}

static void drop_destroyed(mf__record *a) {
  for (int32_t i = 0; i < a->count;) {
    const mf__entry *t = &a->entries[i];
    if (t->destroyed && mf__device_waited(a->backend, t->ordinal, t->waits)) mf__record_drop(a, i);
    else i++;
  }
}

/* Makes the queue, or the host, wait for an entry. Where the stream has a name that tells it from later ones of the
 * same handle it is looked at first; else only if the wait fails. */
static int wait_for(const mf__queue *on, const mf__record *a, mf__entry *t, mf_error *err) {
  const mf__queue other = mf__entry_queue(a->backend, t);
  mf_error failed;
  int rc;
  if (t->stream_name != 0 && !is_detached(t)) (void)find_destroyed(a, t);
  if (t->destroyed) return refuse_destroyed(a, t, err);
  if (on->backend == NULL)
    rc = is_detached(t) ? mf__event_synchronize(a->backend, t->ordinal, t->event, &failed)
                        : mf__queue_synchronize(&other, &failed);
  else
    rc = is_detached(t) ? mf__queue_wait_event(on, t->ordinal, t->event, &failed) : mf__queue_wait(on, &other, &failed);
  if (rc == MF_OK) return rc;
  if (find_destroyed(a, t)) return refuse_destroyed(a, t, err);
  if (err != NULL) *err = failed;
  return rc;
}

static int wait_on_device(const mf__queue *on, mf__record *a, bool write, mf_error *err) {
  int rc = reserve(a, err);
  const mf__entry *self = find(a, on, false);
  if (self == NULL) self = find(a, on, true);
  for (int32_t i = 0; rc == MF_OK && i < a->count; i++) {
    mf__entry *t = &a->entries[i];
    bool waits = must_wait(t, self, write);
    /* The handle of a detached entry may be a new stream's by now, unless the driver says that it is not. */
    if (is_detached(t) && is_namesake(t, on)) waits = t->stream_name == 0 || t->stream_name != mf__queue_name(on);
    if (waits) rc = wait_for(on, a, t, err);
  }
  return rc;
}

/* Work that the host has seen finished need not be waited for again; but a stream with a grant may go on reading until
 * another one writes. */
static int wait_on_host(mf__record *a, bool write, mf_error *err) {
  const mf__queue host = mf__queue_host();
  for (int32_t i = 0; i < a->count;) {
    mf__entry *t = &a->entries[i];
    const bool waits = must_wait(t, NULL, write);
    const int rc = waits ? wait_for(&host, a, t, err) : MF_OK;
    if (rc != MF_OK) return rc;
    if (waits && !is_open(t) && (write || !t->granted)) {
      mf__record_drop(a, i);
      continue;
    }
    if (waits && t->granted && !is_open(t)) t->last_write = 0;
    i++;
  }
  return MF_OK;
}

/* Records in the order of their addresses, each once, so that two threads cannot wait for each other. */
static int sort_uses(mf__usage *uses, int count, mf__usage *sorted) {
  int n = 0;
  sorted[0] = uses[0];
  if (count == 1) return uses[0].record != NULL;
  for (int i = 0; i < count; i++) {
    int at = 0;
    if (uses[i].record == NULL) continue;
    while (at < n && (uintptr_t)sorted[at].record < (uintptr_t)uses[i].record) at++;
    if (at < n && sorted[at].record == uses[i].record) {
      sorted[at].write |= uses[i].write;
      sorted[at].grants |= uses[i].grants;
      continue;
    }
    memmove(sorted + at + 1, sorted + at, (size_t)(n - at) * sizeof *sorted);
    sorted[at] = uses[i];
    n++;
  }
  return n;
}

#define MAX_USES 3

int mf__order_begin(const mf__queue *on, mf__usage *uses, int count, mf_error *err) {
  mf__usage sorted[MAX_USES];
  const int n = sort_uses(uses, count, sorted);
  int rc = MF_OK;
  mf__retire_poll();
  for (int i = 0; i < n; i++) {
    lock(sorted[i].record);
    drop_destroyed(sorted[i].record);
    if (rc == MF_OK) rc = check_kept(sorted[i].record, err);
  }
  for (int i = 0; rc == MF_OK && i < n; i++)
    rc = on->backend == NULL ? wait_on_host(sorted[i].record, sorted[i].write, err)
                             : wait_on_device(on, sorted[i].record, sorted[i].write, err);
  if (rc != MF_OK)
    for (int i = 0; i < n; i++) unlock(sorted[i].record);
  return rc;
}

/* The caller has promised that the stream lives, and may queue more there. */
static void grant(mf__entry *t) {
  t->owner_may_destroy = false;
  t->granted = true;
}

/* Enters a use for which the queue has waited; returns the queue's attached entry. */
static mf__entry *enter_use(const mf__queue *on, const mf__usage *use) {
  mf__record *a = use->record;
  mf__entry *self = resumed_entry(a, on);
  if (use->grants) grant(self);
  self->seen_writes = a->clock;
  a->clock++;
  if (!use->write) {
    self->last_read = a->clock;
    return self;
  }
  self->last_write = a->clock;
  self->last_read = 0;
  /* A wait for this write covers all that came before it, so that older entries need not be kept. */
  for (int32_t i = 0; i < a->count;) {
    const mf__entry *t = &a->entries[i];
    if (is_namesake(t, on) || is_open(t)) i++;
    else mf__record_drop(a, i);
  }
  return find(a, on, false);
}

void mf__order_end(const mf__queue *on, mf__usage *uses, int count, bool queued) {
  mf__usage sorted[MAX_USES];
  const int n = sort_uses(uses, count, sorted);
  for (int i = 0; i < n; i++) {
    if (queued && on->backend != NULL) (void)enter_use(on, &sorted[i]);
    unlock(sorted[i].record);
  }
}

/* The call was checked when it began, but another thread may begin a capture at any time. */
int mf__order_scope(mf__scope *s, const mf__queue *on, const mf__usage *uses, int count, mf_error *err) {
  bool temporary = false;
  int rc = mf__queue_enter(s, on, err);
  if (rc != MF_OK) return rc;
  for (int i = 0; i < count; i++) temporary = temporary || (uses[i].record != NULL && uses[i].record->temporary);
  if (temporary) rc = mf__capture_refuse_inside(on, "memory that is needed for a while cannot take part", err);
  if (rc != MF_OK) mf__leave(s);
  return rc;
}

int mf__order_use(const mf__queue *on, mf__usage *use, mf_error *err) {
  const int rc = mf__order_begin(on, use, 1, err);
  if (rc == MF_OK) mf__order_end(on, use, 1, true);
  return rc;
}

bool mf__order_repeat(const mf__queue *on, const mf__usage *use) {
  mf__record *a = use->record;
  if (atomic_exchange_explicit(&a->locked, 1, memory_order_acquire) != 0) return false;
  mf__entry *t = a->entries;
  const bool same = a->count == 1 && t->stream == on->stream && t->ordinal == on->ordinal &&
                     on->stream != MF_STREAM_PER_THREAD && !is_detached(t) && !t->destroyed &&
                     !atomic_load_explicit(&a->taken_back, memory_order_relaxed);
  if (same) {
    a->clock++;
    if (use->write) t->last_write = a->clock;
    else t->last_read = a->clock;
    if (use->grants) grant(t);
    /* The next use on another queue waits for the write, and so for all that is queued until then. */
    const bool stays = use->write && use->grants && a->space == MF__DEVICE;
    atomic_store_explicit(&a->sole_writer, stays ? t->stream : MF_STREAM_CURRENT, memory_order_release);
  }
  unlock(a);
  return same;
}

int mf__order_enter(const mf__queue *on, const mf__usage *use, mf_error *err) {
  mf__record *a = use->record;
  lock(a);
  int rc = check_kept(a, err);
  if (rc == MF_OK) rc = reserve(a, err);
  if (rc == MF_OK) {
    mf__entry *self = attached_entry(a, on);
    a->clock++;
    if (use->write) self->last_write = a->clock;
    else self->last_read = a->clock;
    if (use->grants) grant(self);
  }
  unlock(a);
  return rc;
}

int mf__order_open(const mf__queue *on, mf__record *a, bool write, uint64_t *id, mf_error *err) {
  mf__usage use = {.record = a, .write = write};
  *id = 0;
  if (on->stream == MF_STREAM_NO_ORDER) return MF_OK;
  const int rc = mf__order_begin(on, &use, 1, err);
  if (rc != MF_OK) return rc;
  if (on->backend != NULL) {
    mf__entry *self = enter_use(on, &use);
    *id = self->id;
    if (write) self->open_writes++;
    else self->open_reads++;
  }
  unlock(a);
  return MF_OK;
}

/* From here on an event stands for what the stream has queued, so that the handle is not used again. Where none can
 * be recorded, as while the stream is being captured, the handle stays. */
static void detach(const mf__record *a, mf__entry *t) {
  const mf__queue q = mf__entry_queue(a->backend, t);
  if (!t->owner_may_destroy || is_open(t) || t->destroyed || !a->backend->usable()) return;
  (void)mf__queue_record_event(&q, &t->event, &t->stream_name, NULL);
}

void mf__order_detach(const mf__queue *on, mf__record *a) {
  if (a == NULL) return;
  lock(a);
  mf__entry *t = find(a, on, false);
  if (t != NULL) detach(a, t);
  unlock(a);
}

/* The entry is gone if its stream was found destroyed. Others have seen less than the clock, so that they will wait for
 * all that came until now. */
void mf__order_close(mf__record *a, uint64_t id, bool write) {
  lock(a);
  for (int32_t i = 0; i < a->count; i++) {
    mf__entry *t = &a->entries[i];
    if (t->id != id) continue;
    if (write) t->open_writes--;
    else t->open_reads--;
    if (write) t->last_write = a->clock;
    else t->last_read = a->clock;
    detach(a, t);
    break;
  }
  unlock(a);
}

int mf__record_reimport(const mf__device *device, mf__record *a, mf_error *err) {
  const mf__queue on = mf__queue_current(device);
  return mf__order_enter(&on, &(mf__usage){.record = a, .write = true}, err);
}

int mf__record_import(const mf__device *device, mf__record **out, mf_error *err) {
  const mf__queue on = mf__queue_current(device);
  const int rc = mf__record_create(device, out, err);
  if (rc != MF_OK) return rc;
  (void)mf__order_enter(&on, &(mf__usage){.record = *out, .write = true}, NULL); /* a new record has room */
  (*out)->producer_uses = (*out)->clock;
  return MF_OK;
}
