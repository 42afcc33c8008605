/* device.h: declares the layers between a driver and a tensor: devices, streams, the order between them, pools, and
 * copies in which a device takes part. It must not name a driver, nor know what a consumer may ask for. */
#ifndef MOONFERRY_DEVICE_H
#define MOONFERRY_DEVICE_H

#include "core/core.h"
#include "device/backend.h"

/* device.c: devices and their names */

/* A DLDevice, resolved; without a backend for the plain host. */
typedef struct mf__device {
  const mf__backend *backend; /* NULL: the cpu */
  mf__space space;
  int32_t ordinal; /* of pinned and managed memory: the device that calls about it are made on */
} mf__device;

int mf__device_resolve(const DLDevice *device, mf__device *out, mf_error *err);
/* Resolves the label of memory: pinned and managed memory may carry the number of a GPU, as CuPy's does, and gets the
 * number 0 here. */
int mf__device_resolve_label(DLDevice *device, mf__device *out, mf_error *err);
DLDevice mf__device_name(const mf__device *device);
const char *mf__device_type_name(int32_t type); /* NULL for a type without a name */
int mf__device_type_refuse(int32_t type, mf_error *err); /* one that no backend has */
/* Asks the driver, on a device, where a pointer lies. */
int mf__pointer_find(const mf__device *at, const void *ptr, mf__device *out, mf_error *err);

/* scope.c: driver calls on a device, and captures */

uint32_t mf__thread_number(void); /* of the calling thread, never 0 */

/* Where work is queued, or the host (backend NULL). stream is never MF_STREAM_CURRENT. */
typedef struct mf__queue {
  const mf__backend *backend;
  int32_t ordinal;
  uint32_t thread; /* whose per-thread stream; 0 for every other stream */
  mf_stream stream;
} mf__queue;

/* stream.c: the calling thread's number, as that of a thread that uses its own default stream there. */
uint32_t mf__own_stream(const mf__backend *backend, int32_t ordinal);

/* The queue of a stream as the calling thread names it. */
static inline mf__queue mf__queue_make(const mf__backend *backend, int32_t ordinal, mf_stream stream) {
  const uint32_t thread = stream == MF_STREAM_PER_THREAD ? mf__own_stream(backend, ordinal) : 0;
  return (mf__queue){backend, ordinal, thread, stream};
}

static inline mf__queue mf__queue_host(void) {
  return (mf__queue){.stream = MF_STREAM_HOST};
}

/* Whether the queue is another thread's per-thread stream. */
static inline bool mf__queue_is_elsewhere(const mf__queue *q) {
  return q->thread != 0 && q->thread != mf__thread_number();
}

/* Counts holders, which may name a stream later: records, and kept blocks with a home. Streams of ours stay while there
 * is a holder. */
void mf__holders_add(const mf__backend *backend, int64_t delta);
int64_t mf__holders(const mf__backend *backend);
/* The same in 32 bits and, above these, how often it has changed. */
uint64_t mf__holders_state(const mf__backend *backend);

/* Driver calls on a device are made between enter and leave. A relaxed scope allows also the calls that a capture
 * elsewhere forbids: all but those that queue work on a stream. */
typedef struct mf__scope {
  const mf__backend *backend;
  mf__entered before;
  bool relaxed;
  int cancelling; /* what mf__uncancelled_end wants */
} mf__scope;

int mf__enter(mf__scope *s, const mf__backend *backend, int32_t ordinal, mf_error *err);
int mf__enter_relaxed(mf__scope *s, const mf__backend *backend, int32_t ordinal, mf_error *err);
/* Enters a relaxed scope to give something back, or a plain one where the driver fails to relax, so that one failure
 * leaves nothing with the driver. */
int mf__enter_to_end(mf__scope *s, const mf__backend *backend, int32_t ordinal, mf_error *err);
/* Enters to queue work; refuses the legacy stream while a capture forbids its use. */
int mf__queue_enter(mf__scope *s, const mf__queue *on, mf_error *err);
void mf__leave(const mf__scope *s);
/* Makes one driver call: enters, calls if that succeeded, and leaves; rc becomes the first failure. */
#define MF__CALL(rc, enter, backend, ordinal, err, call)         \
  do {                                                           \
    mf__scope call_scope;                                        \
    (rc) = enter(&call_scope, (backend), (ordinal), (err));      \
    if ((rc) == MF_OK) {                                         \
      (rc) = (call);                                             \
      mf__leave(&call_scope);                                    \
    }                                                            \
  } while (0)

/* The queue whose stream can be named from this thread: the legacy one for another thread's per-thread stream. */
mf__queue mf__queue_named(const mf__queue *q);
/* Finds the capture that the queue's stream is in; 0: none. Refuses the legacy stream while it may not be used. */
int mf__capture_of(const mf__queue *q, uint64_t *id, mf_error *err);
/* MF_ECAPTURE, saying why, while the queue is being captured; "and ..." follows the queue's name. The second is called
 * between enter and leave: another thread may begin a capture at any time, so that it is asked about in the scope of a
 * call that would break it. */
int mf__capture_refuse(const mf__queue *q, const char *why, mf_error *err);
int mf__capture_refuse_inside(const mf__queue *q, const char *why, mf_error *err);

/* Frees *ptr behind the work of the queue and sets it to NULL, also where the driver reports a failure: after it has
 * freed the memory it may still report an earlier error. NULL is allowed. Called within mf__enter_relaxed. */
int mf__memory_free(const mf__queue *on, mf__space space, void **ptr, mf_error *err);

/* queue.c: events, and waits for them */

/* Events come from a pool for each device; take and give make no driver call after warming up. One that is given is
 * kept until the driver can be asked to destroy it. */
int mf__event_take(const mf__backend *backend, int32_t ordinal, void **out, mf_error *err);
void mf__event_give(const mf__backend *backend, int32_t ordinal, void *event);
bool mf__events_exist(const mf__backend *backend, int32_t ordinal); /* whether any is kept */
void mf__event_trim(const mf__backend *backend, int32_t ordinal);   /* gives kept events to the driver */
/* Whether an event is known to be done; and a wait of the host for it. */
bool mf__event_done(const mf__backend *backend, int32_t ordinal, void *event);
int mf__event_synchronize(const mf__backend *backend, int32_t ordinal, void *event, mf_error *err);

/* Makes one stream wait for another, by one record and one wait; refuses what a capture makes impossible. */
int mf__queue_wait(const mf__queue *on, const mf__queue *other, mf_error *err);
/* The same in two steps. An event recorded behind everything that the queue has, and the stream's name if asked for;
 * MF_ECAPTURE while it is being captured. Then a wait for an event of a device. */
int mf__queue_record_event(const mf__queue *q, void **event, uint64_t *name, mf_error *err);
int mf__queue_wait_event(const mf__queue *on, int32_t ordinal, void *event, mf_error *err);
/* Whether all work of the queue is done; mf__queue_done asks only where no event is needed. The last one makes the host
 * wait for it. */
int mf__queue_query(const mf__queue *q, bool *done, mf_error *err); /* *done is false where it fails */
bool mf__queue_done(const mf__queue *q);
int mf__queue_synchronize(const mf__queue *q, mf_error *err);
/* Whether the driver says that the handle is no living stream of that device. Drivers need not be able to say so. */
bool mf__queue_is_destroyed(const mf__queue *q);
uint64_t mf__queue_name(const mf__queue *q); /* mf__backend.stream_name */

/* The host waits for all that a device has to do, because a program asked for that: it breaks any capture there. */
int mf__device_synchronize(const mf__backend *backend, int32_t ordinal, mf_error *err);
/* How many such waits have begun; and whether one that began after ${since} has ended. */
uint64_t mf__device_waits(const mf__backend *backend, int32_t ordinal);
bool mf__device_waited(const mf__backend *backend, int32_t ordinal, uint64_t since);

/* stream.c: streams by name or handle */

/* A device, and where work for it is queued. */
typedef struct mf__place {
  mf__device device;
  mf__queue on;
  bool temporary; /* what is made there ends with the call that makes it */
} mf__place;

/* The queue that a stream of this device means; for MF_STREAM_CURRENT the thread's own. A handle is asked for its
 * device if check. */
int mf__queue_resolve(const mf__device *device, mf_stream stream, bool check, mf__queue *out, mf_error *err);
mf__queue mf__queue_current(const mf__device *device); /* the thread's own; for the cpu the host */
bool mf__stream_is_current(const mf__device *device, mf_stream stream);

/* stream_own.c: the streams that we make */

bool mf__streams_exist(const mf__backend *backend); /* of ours, kept ones included */
/* Whether a trim has left any to its work, which a later one could give to the driver. */
bool mf__streams_busy(const mf__backend *backend);
/* Gives kept streams to the driver, if no holder may name them. */
void mf__stream_trim(const mf__backend *backend, int32_t ordinal);
/* Whether a handle is a stream of ours, given back or not: then it stays valid while a holder is counted. */
bool mf__stream_owned(const mf__backend *backend, int32_t ordinal, mf_stream stream);

/* record.c: the streams that used one memory */

/* One stream in a record. */
typedef struct mf__entry {
  int32_t ordinal;
  uint32_t thread; /* whose per-thread stream; 0 for every other stream */
  mf_stream stream;
  uint64_t id; /* of this entry in its record, never 0 */
  bool owner_may_destroy; /* nobody promised that the stream lives as long as the memory: the entry is detached when
                             its consumers are done */
  bool granted; /* its owner may queue more reads without a word, until somebody else writes */
  bool destroyed; /* the stream was destroyed with its work unknown: the handle is not used again */
  int32_t open_reads, open_writes; /* exports whose consumers may still queue work there */
  uint64_t last_read, last_write;  /* when it last did; 0 never */
  uint64_t seen_writes; /* it is ordered behind all writes of others up to then */
  void *event;          /* of a detached entry: behind all that the stream did */
  uint64_t stream_name; /* of a foreign stream, which tells it from a later one of the same handle; 0: unknown */
  uint64_t waits;       /* mf__device_waits when the stream was found destroyed, or the record retired */
  int32_t tries;        /* retire.c's */
} mf__entry;

#define MF__ENTRIES_INSIDE 3

typedef struct mf__owned mf__owned;

/* The record of one memory. Held for every memory that a driver knows; plain host memory has none. */
struct mf__record {
  const mf__record_ops *ops; /* first */
  const mf__backend *backend;
  mf__space space;
  int32_t ordinal;
  bool on_host;           /* the host can read and write the memory */
  bool temporary;         /* no graph may use it: when that is launched, the memory is another tensor's */
  _Atomic bool taken_back; /* no use of it begins any more: who has passed the check before and waits for the lock */
  _Atomic bool wanted;    /* a thread sleeps that waits for the lock */
  _Atomic int32_t locked; /* the lock of all that follows */
  /* The stream of the record's only entry, which has a write to it that nobody else has seen: another use by it would
   * change nothing. 0 where that is not known. Written under the lock. */
  _Atomic mf_stream sole_writer;
  void *block;          /* pool.c's, for memory of the pool's */
  mf__owned *owned;     /* owned.c's, for memory that is known again when it comes back */
  uint64_t clock;       /* the number of the last use */
  uint64_t producer_uses; /* uses up to this one were the producer's, who looks after them */
  uint64_t last_id;     /* the last entry's id */
  int32_t count, room;
  mf__entry *entries;  /* inside, or allocated */
  mf__entry inside[MF__ENTRIES_INSIDE];
  struct mf__record *next; /* this and what follows are retire.c's, which so needs no memory of its own */
  void (*finish)(void *ctx);
  void *ctx;
};

extern const mf__record_ops mf__device_ops; /* numbers.c's, which stands above all that it calls */

int mf__record_create(const mf__device *device, mf__record **out, mf_error *err);
/* The caller has taken or given back the events of its entries. */
void mf__record_free(mf__record *a);
mf__device mf__record_device(const mf__record *a);
/* Takes entry i out; the last one then has its place. No other thread uses the record. */
void mf__record_drop(mf__record *a, int32_t i);

mf__queue mf__entry_queue(const mf__backend *backend, const mf__entry *entry);
/* Records an event behind everything that the stream of an entry has queued. MF_ECAPTURE while that is being captured.
 */
int mf__entry_event(const mf__backend *backend, const mf__entry *entry, void **out, mf_error *err);
/* Whether all that its stream has queued is known to be done. */
bool mf__entry_done(const mf__backend *backend, const mf__entry *entry);

/* order.c: which stream waits for which */

typedef struct mf__usage {
  mf__record *record; /* NULL is allowed: plain host memory */
  bool write;
  bool grants; /* the caller may queue more there later, without a word, until somebody else writes (after a
                  read) or uses the memory at all (after a write); and has promised that the stream lives on */
} mf__usage;

/* Locks the records and makes the queue (or the host) wait for what it must. On failure nothing is locked. After it,
 * queue the work and call mf__order_end, which enters the uses (if anything was queued) and unlocks. The same record
 * may be there twice. At most 3 uses. The queue is the host, or of the records' driver. */
int mf__order_begin(const mf__queue *on, mf__usage *uses, int count, mf_error *err);
void mf__order_end(const mf__queue *on, mf__usage *uses, int count, bool queued);
/* Begin and end in one, for a use that is the caller's alone: what follows on the queue needs no lock. */
int mf__order_use(const mf__queue *on, mf__usage *use, mf_error *err);
/* Whether a handle is in the record, and of which device it is: then it need not be checked again. */
bool mf__order_knows(mf__record *a, mf_stream stream, int32_t *ordinal);
/* Enters to queue work that has these uses, of which a temporary one is refused while the queue is being captured. */
int mf__order_scope(mf__scope *s, const mf__queue *on, const mf__usage *uses, int count, mf_error *err);
/* Queues work for which the queue waits: begins, enters, calls, leaves and ends; rc becomes the first failure. The uses
 * count where the call was made and ${queued} is true. */
#define MF__ORDERED(rc, on, uses, count, queued, err, call)                 \
  do {                                                                      \
    mf__scope ordered_scope;                                                \
    (rc) = mf__order_begin((on), (uses), (count), (err));                   \
    if ((rc) == MF_OK) {                                                    \
      (rc) = mf__order_scope(&ordered_scope, (on), (uses), (count), (err)); \
      const bool ordered_call = (rc) == MF_OK;                              \
      if (ordered_call) {                                                   \
        (rc) = (call);                                                      \
        mf__leave(&ordered_scope);                                          \
      }                                                                     \
      mf__order_end((on), (uses), (count), ordered_call && (queued));       \
    }                                                                       \
  } while (0)
/* Begin and end in one, where the queue's stream is all that the record knows, which is the usual case; else false, and
 * nothing was done. */
bool mf__order_repeat(const mf__queue *on, const mf__usage *use);
/* Whether the stream is the record's sole writer, so that even mf__order_repeat would change nothing. */
static inline bool mf__order_is_sole_writer(const mf__record *a, mf_stream stream) {
  return atomic_load_explicit(&a->sole_writer, memory_order_acquire) == stream;
}
/* Enters without waiting. The queue is a stream's: neither the host nor MF_STREAM_NO_ORDER. */
int mf__order_enter(const mf__queue *on, const mf__usage *use, mf_error *err);
/* An export's stay on a stream: opened by begin and end with open, closed by its deleter. *id is 0 where there is
 * nothing to close. */
int mf__order_open(const mf__queue *on, mf__record *a, bool write, uint64_t *id, mf_error *err);
void mf__order_close(mf__record *a, uint64_t id, bool write);
/* The consumer that named the queue is done with this memory, and may destroy the stream. */
void mf__order_detach(const mf__queue *on, mf__record *a);
/* Makes a record of a driver's memory that is imported, ready on the current stream; and enters the import of memory
 * that has a record already. */
int mf__record_import(const mf__device *device, mf__record **out, mf_error *err);
int mf__record_reimport(const mf__device *device, mf__record *a, mf_error *err);

/* retire.c: memory that was released while queued work may still use it */

/* Leaves one stream in the record if that is ordered behind all others. The caller is the only user of the record. */
void mf__record_prune(mf__record *a);

typedef void (*mf__finish_fn)(void *ctx);

/* Calls finish(ctx) once all work that the record knows of is done: now, if it is; else from a later call of
 * mf__retire_poll. Never fails, never waits, calls finish under no lock. In a forked child it calls finish at once. The
 * record is nobody else's until then, and finish frees it. finish calls no foreign code, because any operation on a
 * device may poll. */
void mf__retire(mf__record *record, mf__finish_fn finish, void *ctx);
/* Looks at some of what waits; costs one load when nothing does. Every operation on a device calls it. */
void mf__retire_poll(void);
/* Looks at all that waits. */
void mf__retire_drain(const mf__backend *backend);
/* The host waits for all that an event can be waited for. Allocations that found no memory call it. */
void mf__retire_wait(const mf__backend *backend);
int64_t mf__retire_count(const mf__device *device);
bool mf__retire_waits(const mf__backend *backend); /* whether anything waits */

/* pool.c: memory of devices, kept for reuse */

/* Memory that is ready on the queue's stream (and, pinned or managed, for the host), and the block that pool_give wants
 * back. Refused with MF_ECAPTURE while the stream is being captured and nothing fitting is kept. */
int mf__pool_take(const mf__queue *on, mf__space space, int64_t nbytes, void **data, void **block, mf_error *err);
/* Takes the block back; the record says who may still use it. Never fails, never waits. Takes the record over, too: the
 * pool frees it. */
void mf__pool_give(void *block, mf__record *record);
mf__owned *mf__pool_owned(void *block);

/* Gives kept blocks to the driver, as far as nothing uses them any more. */
int mf__pool_trim(const mf__device *device, mf_error *err);
bool mf__pools_cache(const mf__backend *backend); /* whether anything is kept */
/* block.c: whether kernels may still use memory that was given back to the driver. It asks no driver. */
bool mf__blocks_left(const mf__backend *backend, int32_t ordinal);
/* Asks the driver which of them are done, and forgets those. */
void mf__blocks_left_end(const mf__backend *backend, int32_t ordinal);

/* stage.c: pageable host memory to and from a device, through pinned buffers */

/* Bytes at .. at + nbytes of the host's part in compact form, to the buffer or from it. Called on several threads. */
typedef void (*mf__stage_fn)(const void *ctx, int64_t at, int64_t nbytes, char *buffer);

typedef struct mf__stage_job {
  char *device;
  int64_t nbytes;
  int64_t grain; /* what at and nbytes of move are multiples of */
  bool to_device;
  mf__stage_fn move;
  const void *ctx;
  bool queued; /* becomes true where a part was, even if the copy fails then */
} mf__stage_job;

/* Returns when the host memory may be used again: read to the end, or written. The stream is not being captured. */
int mf__stage_copy(const mf__queue *on, mf__stage_job *job, mf_error *err);
bool mf__stage_exists(const mf__backend *backend, int32_t ordinal); /* whether there is a buffer */
void mf__stage_trim(const mf__backend *backend, int32_t ordinal);

/* memory.c: storages and tensors whose memory a driver knows */

/* Memory of others: its bytes, and the device that it is on. */
typedef struct mf__region {
  mf__device device; /* where it really is */
  const void *first; /* the lowest byte */
  int64_t nbytes;
} mf__region;

/* Does what mf__storage_create does, at a place that has a driver: ready on the queue's stream, with which the record
 * begins. */
int mf__memory_create(size_t room, int64_t nbytes, const mf__place *place, void **data, mf__storage **out,
                      mf_error *err);
/* Says that the memory of a tensor that was just wrapped is part of those bytes, which the driver has mapped for us; of
 * memory that is known already it says nothing new. On failure the tensor is given back, and *t is NULL. */
int mf__memory_own(mf_tensor **t, void *data, int64_t nbytes, mf_error *err);
/* It is another's again, whoever has tensors of it. Called by one that has a reference, by one thread at a time; once
 * more it does nothing. */
void mf__memory_disown(mf_tensor *t);
/* Does what mf__storage_adopt does, with a record where the memory is a driver's. */
int mf__memory_adopt(size_t room, const mf__region *memory, const mf__foreign *from, mf__storage **out, mf_error *err);
/* A tensor that shares the memory of ${of}, as if it had been imported: a view, of memory that is labelled as being on
 * the device, whose current stream may use it at once. Without a backend it is the host's, which has waited. */
int mf__memory_share(const mf_tensor *of, const DLTensor *view, uint64_t flags, const mf__device *device,
                     mf_tensor **out, mf_error *err);
/* A new compact tensor like ${like} (dtype, ndim, shape) at a place; host memory where the place has no driver. */
int mf__tensor_create_at(const DLTensor *like, uint64_t flags, const mf__place *place, mf_tensor **out, mf_error *err);
/* The device that a tensor's memory is on, whatever its label; without a backend for plain host memory. */
mf__device mf__tensor_device(const mf_tensor *t);
/* Whether the host can read and write the elements: on the cpu, pinned, and managed where host and devices may use it
 * at once. */
bool mf__tensor_on_host(const mf_tensor *t);
/* MF_EDEVICE for managed memory that the host may not use while its devices work, because they have no concurrent
 * managed access (CUDA Programming Guide, "Unified Memory Programming"). */
int mf__tensor_shared_check(const mf_tensor *t, mf_error *err);
/* Before the host reads or writes memory that it can: it waits for what a record or fences demand. */
int mf__host_wait(const mf_tensor *t, bool write, mf_error *err);
/* A member of mf__device_ops. */
void mf__memory_release(mf__storage *s);

/* plan.c: copies between two layouts by few driver copies */

/* Bytes from src to dst: runs of width bytes, contiguous on both sides, along ndim axes with strides in bytes. */
typedef struct mf__plan {
  char *dst;
  const char *src; /* NULL for a fill */
  int64_t size;    /* of an element */
  int64_t width;
  bool repeats;    /* several coordinates may share one place of dst */
  int32_t ndim;
  int64_t shape[MF_MAX_NDIM], dst_strides[MF_MAX_NDIM], src_strides[MF_MAX_NDIM];
} mf__plan;

/* A copy, or a fill where src is NULL. Elements of whole bytes, or compact layouts, whose last byte is then written
 * whole. */
void mf__plan_make(mf__plan *p, const mf_tensor *dst, const mf_tensor *src);
/* How many driver calls it takes as rows and slices, and by kernel. */
int64_t mf__plan_count(const mf__plan *p);
int64_t mf__plan_count_kernels(const mf__plan *p);
/* Whether each row is whole units of the most bytes that a thread of a kernel copies at once. */
bool mf__plan_is_aligned(const mf__plan *p);
/* Queue the copies; the queue's context is current. */
int mf__plan_run_boxes(const mf__plan *p, const mf__queue *on, mf_error *err);
int mf__plan_run_kernels(const mf__plan *p, const mf__queue *on, mf_error *err);
/* Casts, which write dst and read src, and comparisons, which read both. */
typedef struct mf__numbers {
  mf__codec to, from;
  uint32_t *differs; /* of a comparison, memory of the device; NULL: a cast */
} mf__numbers;

/* False where an element lies at no multiple of its size. Elements of whole bytes. */
bool mf__plan_make_numbers(mf__plan *p, const mf_tensor *dst, const mf_tensor *src);
/* By kernel; MF_EDEVICE where there is none, and nothing was queued. */
int mf__plan_run_numbers(const mf__plan *p, const mf__numbers *numbers, const mf__queue *on, mf_error *err);
/* A fill with the element at slot: how many driver calls, or INT64_MAX where there is no direct way. */
int64_t mf__plan_count_fill(const mf__plan *p, const void *slot);
int mf__plan_run_fill(const mf__plan *p, const void *slot, const mf__queue *on, mf_error *err);
/* The same by kernel; MF_EDEVICE where there is none. */
int mf__plan_run_fill_kernels(const mf__plan *p, const void *slot, const mf__queue *on, mf_error *err);

/* move.c: the steps that copies with a device are made of */

/* The number of driver copies in a row that cost about as much as the way through the host. */
#define MF__CALLS_MAX 4096
/* Up to here pageable memory goes through pinned memory in one piece. */
#define MF__SMALL_NBYTES (INT64_C(64) << 10)

/* The given queue if it is one of the memory's device, else that device's current one. */
mf__queue mf__queue_for(const mf_tensor *t, const mf__queue *on);
/* Where what a call needs for a while is made: memory of the queue's device, or pinned for it. */
mf__place mf__temporary_place(const mf__queue *on, mf__space space);
/* A compact tensor like t there. */
int mf__temporary(const mf_tensor *t, mf__space space, const mf__queue *on, mf_tensor **out, mf_error *err);
/* Between memories that the queue's driver knows, which do not overlap; kernels and few driver copies. *undone, false
 * before, becomes true where that is not enough: nothing failed, and nothing was queued. */
int mf__move(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, bool *undone, mf_error *err);
/* The same for elements of whole bytes, by driver copies alone, however many it takes. */
int mf__move_boxes(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err);
/* Between memory of the queue's device and pageable memory that the host may use: both are contiguous in the same
 * order, and the queue is not being captured. */
int mf__move_bytes(const mf__queue *on, mf_tensor *dst, const mf_tensor *src, mf_error *err);
/* A staged copy, ordered by the record of its device's side. */
int mf__move_staged(const mf__queue *on, mf__stage_job *job, const mf_tensor *device, mf_error *err);

/* image.c: copies and fills by the host for a device */

/* A compact tensor, and a view of it that has the shape of like and whose elements lie in the order of like's memory:
 * between the two, rows stay rows. Elements of whole bytes. */
int mf__arranged_create(const mf_tensor *like, const mf__place *place, mf_tensor **all, mf_tensor **out, mf_error *err);
/* ${nbytes} bytes of t's memory from ${first} on, over the same storage. */
int mf__bytes_of(const mf_tensor *t, char *first, int64_t nbytes, mf_tensor **out, mf_error *err);
/* Copies and fills that a transfer has no other way for. */
int mf__image_copy(mf_tensor *dst, const mf_tensor *src, const mf__queue *on, mf_error *err);
int mf__image_fill(mf_tensor *dst, const void *slot, const mf__queue *on, mf_error *err);

/* transfer.c: copies and fills in which a device takes part */

/* Both have passed the checks of mf_tensor_copy (shape, dtype, writable, open), have elements, and one at least has a
 * record. on: the stream to do it on; NULL chooses (the destination's current stream, or the source's if the
 * destination is on the host and the source is not). */
int mf__transfer(mf_tensor *dst, const mf_tensor *src, const mf__queue *on, mf_error *err);
/* The stream of a copy, as ${on} of mf__transfer says. */
mf__queue mf__transfer_queue(const mf_tensor *dst, const mf_tensor *src, const mf__queue *on);
/* Two members of mf__device_ops. */
int mf__transfer_copy(mf_tensor *dst, const mf_tensor *src, mf_error *err);
int mf__transfer_fill(mf_tensor *dst, const void *slot, mf_error *err);
/* Whether a copy is the host's: it can read and write both, and no driver knows both. Else a driver does it, on a
 * stream. */
bool mf__copied_by_host(const mf_tensor *dst, const mf_tensor *src);

/* numbers.c: casts and comparisons in which a device takes part, and bytes of an element: members of mf__device_ops */

int mf__numbers_cast(mf_tensor *dst, const mf_tensor *src, mf_error *err);
int mf__numbers_equal(const mf_tensor *a, const mf_tensor *b, bool *out, mf_error *err);
int mf__numbers_read(const mf_tensor *t, int64_t first, int64_t nbytes, void *buffer, mf_error *err);
int mf__numbers_write(mf_tensor *t, int64_t first, int64_t nbytes, const void *buffer, mf_error *err);

/* trim.c: giving back to the drivers what is not in use */

void mf__trim_at_exit(void);

#endif
