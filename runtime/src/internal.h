/* internal.h: what the files of the runtime share, in the order of the layers (error at the bottom). A file
 * calls only what stands above its own section. Nothing here is visible outside libmoonferry. */
#ifndef MOONFERRY_INTERNAL_H
#define MOONFERRY_INTERNAL_H

#include "moonferry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* error.c */

/* Fills err (if not NULL) and returns status, so that a failure is one statement. */
int mf__fail(mf_error *err, int32_t status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for a driver call that answered ${code}; call and text are static storage. */
int mf__fail_driver(mf_error *err, int32_t status, int32_t code, const char *call, const char *text);

/* Ends a public function: puts its name into err->call on failure, unless a driver call's is there; returns rc. */
int mf__end(int rc, const char *call, mf_error *err);

/* alloc.c */

typedef enum mf__counter { MF__TENSORS, MF__STORAGES, MF__BYTES, MF__BLOCKS, MF__NCOUNTERS } mf__counter;

/* The calling thread's own counters, NULL until it has some. Inline, because an exchange counts eight times. */
extern _Thread_local _Atomic int64_t *mf__thread_counts __attribute__((tls_model("initial-exec")));

void mf__count_first(mf__counter which, int64_t delta);

static inline void mf__count(mf__counter which, int64_t delta) {
  _Atomic int64_t *counts = mf__thread_counts;
  if (counts == NULL) {
    mf__count_first(which, delta);
    return;
  }
  const int64_t now = atomic_load_explicit(&counts[which], memory_order_relaxed);
  atomic_store_explicit(&counts[which], now + delta, memory_order_relaxed);
}

void *mf__alloc(size_t nbytes);
void mf__free(void *ptr, size_t nbytes);

/* dtype.c */

int mf__dtype_check(const DLDataType *dtype, mf_error *err);
bool mf__dtype_equal(const DLDataType *a, const DLDataType *b);

/* Room for any dtype or device name, and for any list of 64-bit extents worth showing in a message. */
#define MF__NAME_CAP 32

/* layout.c */

/* A shape with strides, and where element 0 lies, in elements from the element 0 it was derived from. */
typedef struct mf__layout {
  int32_t ndim;
  int64_t offset;
  int64_t shape[MF_MAX_NDIM];
  int64_t strides[MF_MAX_NDIM];
} mf__layout;

/* What a layout reaches, as checked sizes. */
typedef struct mf__span {
  int64_t numel;
  int64_t nbytes;  /* of the elements in compact form */
  int64_t lo_byte; /* lowest and one past the highest byte reached, from element 0's byte */
  int64_t hi_byte;
} mf__span;

int mf__shape_check(const int64_t *shape, int32_t ndim, mf_error *err);
int mf__compact_strides(const int64_t *shape, int32_t ndim, int64_t *strides, mf_error *err);
int mf__span_compute(const DLTensor *view, int64_t bits, mf__span *out, mf_error *err);
bool mf__is_compact(const DLTensor *view);
bool mf__is_empty(const DLTensor *view);
int mf__axis_check(int64_t axis, int32_t ndim, int32_t *out, mf_error *err);

void mf__layout_of(const DLTensor *view, mf__layout *out);
int mf__layout_index(mf__layout *l, const mf_index *items, int32_t nitems, mf_error *err);
int mf__layout_permute(mf__layout *l, const int32_t *axes, int32_t naxes, mf_error *err);
int mf__layout_reshape(mf__layout *l, const int64_t *shape, int32_t ndim, mf_error *err);
int mf__layout_broadcast(mf__layout *l, const int64_t *shape, int32_t ndim, mf_error *err);
int mf__layout_squeeze(mf__layout *l, const int32_t *axes, int32_t naxes, mf_error *err);
int mf__layout_expand(mf__layout *l, int32_t axis, mf_error *err);
int mf__layout_diagonal(mf__layout *l, int64_t offset, const int32_t axes[2], mf_error *err);
int mf__layout_resize(mf__layout *l, int64_t old_bits, int64_t new_bits, mf_error *err);

/* backend.c: the kinds of devices, and what each driver offers */

/* The three sorts of memory that a GPU driver gives. */
typedef enum mf__space { MF__DEVICE, MF__PINNED, MF__MANAGED, MF__NSPACES } mf__space;

/* What was current before mf__backend.enter. */
typedef struct mf__entered {
  void *context;
  int32_t ordinal;
  int32_t changed;
} mf__entered;

/* A copy of depth slices of height rows of width bytes. Pitches are in bytes from row to row, slice pitches from
 * slice to slice; a slice pitch is a multiple of the pitch. Flat: height and depth are 1. */
typedef struct mf__block_copy {
  void *dst;
  const void *src;
  int64_t width, height, depth;
  int64_t dst_pitch, src_pitch;
  int64_t dst_slice, src_slice;
} mf__block_copy;

/* What drivers accept from row to row. */
#define MF__MAX_PITCH ((int64_t)INT32_MAX)

#define MF__KERNEL_AXES 8

/* More GPUs than these are not looked at. */
#define MF__MAX_ORDINALS 64

/* A copy by kernel: element i of the row-major index space goes from src to dst; strides are in bytes, of either
 * sign, and one operand's may be 0. size is 1, 2, 4, 8 or 16, and divides both addresses and all strides. */
typedef struct mf__kernel_copy {
  void *dst;
  const void *src;
  int64_t numel;
  int32_t ndim, size;
  int64_t shape[MF__KERNEL_AXES], dst_strides[MF__KERNEL_AXES], src_strides[MF__KERNEL_AXES];
} mf__kernel_copy;

/* A driver. One table for CUDA, one for HIP; everything that is not a driver call is shared and lies elsewhere.
 * Between enter and leave the device's (primary) context is current; all slots from memory_alloc on want that, with
 * the ordinal of the streams and memory that they are given. A stream is MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD or a
 * handle. No slot waits for the host unless its name says so; none takes a lock of the runtime; each is thread-safe.
 * What gives something back (free, destroy, leave) has done so even where it fails, because drivers tell of earlier
 * failures there: it is not to be called again.
 * A slot that fails says so by mf__fail_driver: MF_ENOMEM for the driver's "out of memory", MF_ECAPTURE for what a
 * capture forbids, else MF_EDRIVER. */
typedef struct mf__backend {
  const char *name;                /* "cuda" */
  int32_t types[MF__NSPACES];      /* the DLDeviceType of each space; 0: has none */
  /* Opens the driver on first use. MF_EDEVICE with the reason where there is no driver, it is too old, or the process
   * was forked after the driver was used. */
  int (*device_count)(int32_t *out, mf_error *err);
  bool (*usable)(void); /* opened, and not in a forked child; makes no driver call */
  int (*enter)(int32_t ordinal, mf__entered *before, mf_error *err);
  void (*leave)(const mf__entered *before);

  int (*memory_alloc)(mf__space space, int64_t nbytes, mf_stream stream, void **out, mf_error *err);
  /* A device's memory is freed behind what the stream has queued, for which the host waits where the driver has no
   * pools. Pinned and managed memory may not be in use any more. */
  int (*memory_free)(mf__space space, void *ptr, mf_stream stream, mf_error *err);
  int (*memory_find)(const void *ptr, mf__space *space, int32_t *ordinal, mf_error *err); /* MF_EINVAL: unknown */
  int (*memory_trim)(mf_error *err); /* what the driver itself keeps of freed memory */
  /* Gives back what the driver holds for us on a device: pool, compiled kernels, context. Nothing of ours may be left
   * there and no thread between enter and leave; the next enter makes it all anew. Called outside enter and leave. */
  void (*device_forget)(int32_t ordinal);

  int (*stream_create)(mf_stream *out, mf_error *err);
  int (*stream_destroy)(mf_stream stream, mf_error *err);
  int (*stream_device)(mf_stream stream, int32_t *ordinal, mf_error *err); /* MF_EINVAL: no such, not primary */
  int (*stream_capture)(mf_stream stream, uint64_t *id, mf_error *err);    /* 0: is not being captured */
  int (*stream_synchronize)(mf_stream stream, mf_error *err);
  int (*stream_query)(mf_stream stream, bool *done, mf_error *err);
  int (*device_synchronize)(mf_error *err);

  int (*event_create)(void **out, mf_error *err); /* without timing */
  int (*event_destroy)(void *event, mf_error *err);
  int (*event_record)(void *event, mf_stream stream, mf_error *err);
  int (*event_wait)(void *event, mf_stream stream, mf_error *err); /* the event may be another device's */
  int (*event_synchronize)(void *event, mf_error *err);
  int (*event_query)(void *event, bool *done, mf_error *err);

  /* All asynchronous; host memory among the operands is pinned. Where there are rows, both pitches are at least the
   * width and at most MF__MAX_PITCH (as are a fill's), and both slice pitches at least height rows. */
  int (*copy)(const mf__block_copy *job, mf_stream stream, mf_error *err);
  /* Flat. */
  int (*copy_peer)(const mf__block_copy *job, int32_t dst_ordinal, int32_t src_ordinal, mf_stream stream,
                   mf_error *err);
  /* unit 1, 2 or 4 bytes of value, width units a row. */
  int (*fill)(const mf__block_copy *job, uint32_t value, int32_t unit, mf_stream stream, mf_error *err);
  /* MF_EDEVICE where the driver cannot compile it; the caller then finds another way. With numel 0 it is made ready. */
  int (*kernel_copy)(const mf__kernel_copy *job, mf_stream stream, mf_error *err);
  /* While on, this thread's calls that a capture on another stream would forbid are allowed. */
  int (*capture_relax)(bool on, mf_error *err);
} mf__backend;

extern const mf__backend mf__backend_cuda;
extern const mf__backend mf__backend_hip;

/* What a DLDevice means: no backend for the plain host. */
typedef struct mf__device {
  const mf__backend *backend; /* NULL: the cpu */
  mf__space space;
  int32_t ordinal;
} mf__device;

int mf__device_resolve(const DLDevice *device, mf__device *out, mf_error *err);
DLDevice mf__device_name(const mf__device *device);
const char *mf__device_type_name(int32_t type); /* NULL for a type without a name */
/* Where the driver says that a pointer lies. */
int mf__pointer_find(const mf__backend *backend, const void *ptr, mf__device *out, mf_error *err);

/* order.c: streams, and the record of who uses a memory on which */

/* Where work is queued, or the host (backend NULL). stream is never MF_STREAM_CURRENT. */
typedef struct mf__queue {
  const mf__backend *backend;
  int32_t ordinal;
  mf_stream stream;
} mf__queue;

/* One stream in a record. */
typedef struct mf__touch {
  int32_t ordinal;
  uint32_t thread; /* whose per-thread stream; 0 for every other stream */
  mf_stream stream;
  int32_t open_reads, open_writes; /* exports whose consumers may still queue work there */
  uint64_t last_read, last_write;  /* when it last did; 0 never */
  uint64_t seen_writes; /* it is ordered behind all writes of others up to then */
  void *event; /* retire.c's */
  int32_t tries;
} mf__touch;

#define MF__TOUCHES_INSIDE 3

/* The record of one memory. Held for every memory that a driver knows; plain host memory has none. */
typedef struct mf__access {
  const mf__backend *backend;
  mf__space space;
  int32_t ordinal;
  _Atomic int32_t locked; /* the lock of all that follows */
  void *block;          /* pool.c's, for memory of ours */
  uint64_t clock;       /* the number of the last use */
  uint64_t given;       /* uses up to this one were the producer's, who looks after them */
  int32_t count, room;
  mf__touch *touches;  /* inside, or allocated */
  mf__touch inside[MF__TOUCHES_INSIDE];
  struct mf__access *next; /* this and what follows are retire.c's, which so needs no memory of its own */
  uint64_t number;
  void (*finish)(void *ctx);
  void *ctx;
} mf__access;

int mf__access_create(const mf__device *device, mf__access **out, mf_error *err);
void mf__access_free(mf__access *a);
mf__device mf__access_device(const mf__access *a);

typedef struct mf__usage {
  mf__access *access; /* NULL is allowed: plain host memory */
  bool write;
} mf__usage;

/* Locks the records and makes the queue (or the host) wait for what it must. On failure nothing is locked. After it,
 * queue the work and call mf__order_end, which enters the uses (if anything was queued) and unlocks. The same record
 * may be there twice. At most 3 uses. */
int mf__order_begin(const mf__queue *on, mf__usage *uses, int count, mf_error *err);
void mf__order_end(const mf__queue *on, mf__usage *uses, int count, bool queued);
/* Whether a handle is in the record, and of which device it is: then it need not be checked again. */
bool mf__order_knows(mf__access *a, mf_stream stream, int32_t *ordinal);
/* Begin and end in one, where the queue's stream is all that the record knows, which is the usual case; else false, and
 * nothing was done. */
bool mf__order_again(const mf__queue *on, mf__access *a, bool write);
/* Enters without waiting. */
int mf__order_enter(const mf__queue *on, mf__access *a, bool write, mf_error *err);
/* An export's stay on a stream: opened by begin and end with open, closed by its deleter. */
int mf__order_open(const mf__queue *on, mf__access *a, bool write, mf_error *err);
void mf__order_close(const mf__queue *on, uint32_t thread, mf__access *a, bool write);
uint32_t mf__thread_number(void); /* of the calling thread, never 0 */

/* Events come from a pool for each device; take and give make no driver call after warming up. */
int mf__event_take(const mf__backend *backend, int32_t ordinal, void **out, mf_error *err);
void mf__event_give(const mf__backend *backend, int32_t ordinal, void *event);
void mf__event_trim(const mf__backend *backend, int32_t ordinal); /* kept events to the driver */
/* Counts who may name a stream later: records, and kept memory with a home. Streams of ours stay while there is one. */
void mf__holders_add(const mf__backend *backend, int64_t delta);
int64_t mf__holders(const mf__backend *backend);
/* An event recorded behind everything that the touch's stream has queued. *out NULL: nothing to wait for. MF_ECAPTURE
 * while that stream is being captured. */
int mf__touch_record(const mf__backend *backend, const mf__touch *touch, void **out, mf_error *err);
/* Whether all that the touch's stream has queued is known to be done. */
bool mf__touch_done(const mf__backend *backend, const mf__touch *touch);
/* Makes one stream wait for another, by one record and one wait; refuses what a capture makes impossible. */
int mf__queue_wait(const mf__queue *on, const mf__queue *other, mf_error *err);

/* stream.c: which stream a number or a name means */

/* A device, and where work for it is queued. */
typedef struct mf__place {
  mf__device device;
  mf__queue on;
} mf__place;

/* The queue that a stream of this device means; for MF_STREAM_CURRENT the thread's own. A handle is asked for its
 * device  * if check. */
int mf__queue_resolve(const mf__device *device, mf_stream stream, bool check, mf__queue *out, mf_error *err);
/* The record of memory that comes in, ready on the current stream; NULL for plain host memory. */
int mf__record_given(const mf__device *device, mf__access **out, mf_error *err);
bool mf__stream_is_current(const mf__device *device, mf_stream stream);
/* Kept streams to the driver, if nobody may name them. */
void mf__stream_trim(const mf__backend *backend, int32_t ordinal);

/* Whether a handle is a stream of ours, given back or not: then it stays valid while a holder is counted. */
bool mf__stream_owned(const mf__backend *backend, int32_t ordinal, mf_stream stream);

/* retire.c: what was released while queued work may still use it */

/* Driver calls on a device that a capture elsewhere does not forbid: enter and capture_relax, and back. */
typedef struct mf__scope {
  const mf__backend *backend;
  mf__entered before;
  bool relaxed;
} mf__scope;

int mf__scope_open(mf__scope *s, const mf__backend *backend, int32_t ordinal, mf_error *err);
void mf__scope_close(const mf__scope *s);

/* Leaves one stream in the record if that is ordered behind all others. The record must be nobody else's. */
void mf__access_prune(mf__access *a);

typedef void (*mf__finish_fn)(void *ctx);

/* Calls finish(ctx) once all work that the record knows of is done: now, if it is; else from a later call of
 * mf__retire_poll. Never fails, never waits, calls finish under no lock. In a forked child it calls finish at once. The
 * record is lent until then, and nobody else may use it: finish frees it. */
void mf__retire(mf__access *record, mf__finish_fn finish, void *ctx);
/* Looks at some of what waits; costs one load when nothing does. Every operation on a device calls it. */
void mf__retire_poll(void);
/* Looks at all that waits. */
void mf__retire_drain(const mf__backend *backend);
/* Around a wait for all work of a device: what was retired before ${mark} has nothing left to wait for there. */
uint64_t mf__retire_mark(void);
void mf__retire_reached(const mf__backend *backend, int32_t ordinal, uint64_t mark);
/* The host waits for all that can be waited for. Allocations that found no memory call it. */
void mf__retire_wait(const mf__backend *backend);
int64_t mf__retire_count(const mf__device *device);

/* pool.c: memory of devices, kept for reuse */

/* Memory that is ready on the queue's stream (and, pinned or managed, for the host), and the block that pool_give wants
 * back. Refused with MF_ECAPTURE while the stream is being captured and nothing fitting is kept. */
int mf__pool_take(const mf__queue *on, mf__space space, int64_t nbytes, void **data, void **block, mf_error *err);
/* Takes the block back; the record says who may still use it. Never fails, never waits. Takes the record over, too: the
 * pool frees it. */
void mf__pool_give(void *block, mf__access *record);

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
} mf__stage_job;

/* Returns when the host memory may be used again: read to the end, or written. The stream is not being captured. */
int mf__stage_copy(const mf__queue *on, const mf__stage_job *job, mf_error *err);
void mf__stage_trim(const mf__backend *backend, int32_t ordinal);

/* storage.c */

typedef struct mf__storage mf__storage;

/* room is how many bytes the storage's first tensor takes; mf__storage_room is where. It lives as long as the
 * storage. */
int mf__storage_create(size_t room, int64_t nbytes, void **data, mf__storage **out, mf_error *err);
/* The same on a device, ready on the queue's stream, which the record then begins with. */
int mf__storage_create_on(size_t room, int64_t nbytes, const mf__place *place, void **data, mf__storage **out,
                          mf_error *err);
int mf__storage_wrap(size_t room, int64_t nbytes, mf_release_fn release, void *ctx, mf__storage **out,
                     mf_error *err);
int mf__storage_import(size_t room, int64_t nbytes, DLManagedTensorVersioned *managed, mf__storage **out,
                       mf_error *err);
int mf__storage_import_legacy(size_t room, int64_t nbytes, DLManagedTensor *managed, mf__storage **out,
                              mf_error *err);
void *mf__storage_room(mf__storage *s);
void mf__storage_retain(mf__storage *s);
void mf__storage_release(mf__storage *s);
int mf__storage_invalidate(mf__storage *s, mf_error *err);
bool mf__storage_is_shared(mf__storage *s);
bool mf__storage_is_closed(const mf__storage *s);
/* The record of a memory that a driver knows; NULL for plain host memory. */
mf__access *mf__storage_access(const mf__storage *s);
/* Gives a storage that was just made its record, which it owns from then on. */
void mf__storage_attach(mf__storage *s, mf__access *access);

/* tensor.c */

struct mf_tensor {
  DLTensor dl; /* first, and complete: data of element 0, strides filled, byte_offset 0 */
  _Atomic int64_t refs;
  mf__storage *storage;
  uint64_t flags;
  int64_t extents[]; /* shape, then strides */
};

#define MF__FLAGS_KNOWN                                                                              \
  ((uint64_t)(DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED |                        \
              DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED))

/* The bytes of a tensor of this rank. */
size_t mf__tensor_nbytes(int32_t ndim);
/* A storage's first tensor, in its room: takes over the reference that making the storage gave. view->strides
 * may be NULL only for ndim 0; view->byte_offset is added to data. */
mf_tensor *mf__tensor_first(const DLTensor *view, uint64_t flags, mf__storage *storage);
/* A further tensor, with a reference of its own. */
int mf__tensor_view(const DLTensor *view, uint64_t flags, mf__storage *storage, mf_tensor **out, mf_error *err);
int mf__tensor_open(const mf_tensor *t, mf_error *err);
int mf__tensor_writable(const mf_tensor *t, mf_error *err);
bool mf__tensor_padded(const mf_tensor *t);
int64_t mf__tensor_bits(const mf_tensor *t);

/* A new compact tensor like ${like} (dtype, ndim, shape) at a place; host memory where the place has no driver. */
int mf__tensor_create_at(const DLTensor *like, uint64_t flags, const mf__place *place, mf_tensor **out, mf_error *err);
/* Where a tensor's memory is, whatever its label; no backend for plain host memory. */
mf__device mf__tensor_device(const mf_tensor *t);

/* dlpack.c */

/* A DLTensor that was checked: strides filled, what it reaches, and where its memory is. */
typedef struct mf__resolved {
  DLTensor view;
  mf__span span;
  mf__device device;
  int64_t strides[MF_MAX_NDIM];
} mf__resolved;

int mf__dltensor_resolve(const DLTensor *view, uint64_t flags, mf__resolved *out, mf_error *err);
/* Whether a struct without flags can carry the tensor. */
int mf__flagless_check(const mf_tensor *t, mf_error *err);
/* An export whose consumer works on the queue. */
int mf__export(mf_tensor *t, uint64_t flags, const mf__queue *on, DLManagedTensorVersioned **out, mf_error *err);
int mf__export_legacy(mf_tensor *t, const mf__queue *on, DLManagedTensor **out, mf_error *err);

/* number.c: one element's bits to a value and back */

/* A float format by its field widths; what the all-ones exponent means differs. */
typedef enum mf__special {
  MF__IEEE,   /* infinity, and NaN above it */
  MF__FN,     /* no infinity; all ones is NaN */
  MF__FNUZ,   /* no infinity, no negative zero, whose code is NaN */
  MF__FINITE, /* neither infinity nor NaN */
  MF__SCALE   /* float8_e8m0fnu: an exponent alone, all ones is NaN */
} mf__special;

typedef struct mf__float_format {
  uint8_t exponent_bits;
  uint8_t mantissa_bits;
  uint8_t special; /* an mf__special */
  uint8_t bias;
} mf__float_format;

double mf__float_decode(const mf__float_format *f, uint32_t bits);
uint32_t mf__float_encode(const mf__float_format *f, double value);
double mf__int_to_double_odd(int64_t value);
double mf__uint_to_double_odd(uint64_t value);
int64_t mf__double_to_int(double value, int bits);
uint64_t mf__double_to_uint(double value, int bits);

/* codec.c: one element in memory to a value and back */

/* How the elements of one dtype are read and written. A bit is counted from `data`, the least significant
 * bit of a byte first; the padding of a slot is left alone. */
typedef struct mf__codec {
  DLDataType dtype;
  mf__float_format format; /* of every float narrower than 32 bits, complex parts included */
  int64_t slot_bits;
  int32_t kind; /* mf_kind */
} mf__codec;

int mf__codec_find(const DLDataType *dtype, uint64_t flags, mf__codec *out, mf_error *err);
int mf__scalar_check(const mf_scalar *value, mf_error *err);
int mf__codec_accepts(const mf__codec *c, int32_t kind, mf_error *err);
void mf__codec_load(const mf__codec *c, const void *data, int64_t bit, mf_scalar *out);
void mf__codec_store(const mf__codec *c, void *data, int64_t bit, const mf_scalar *value);

/* convert.c: rows of common dtypes, fast */

typedef struct mf__convert {
  bool real; /* the source is a float */
  void (*load)(const char *src, int64_t stride, int64_t n, void *to);
  void (*store)(char *dst, int64_t stride, int64_t n, const void *from);
} mf__convert;

/* A row in memory; the stride is in bytes. */
typedef struct mf__strided {
  char *data;
  int64_t stride;
} mf__strided;

/* False where the pair is not a common one. */
bool mf__convert_find(const DLDataType *to, const DLDataType *from, mf__convert *out);
void mf__convert_row(const mf__convert *c, const mf__strided *dst, const mf__strided *src, int64_t n);
/* Whether two rows of the source dtype hold the same numbers. */
bool mf__convert_same_row(const mf__convert *c, const mf__strided *a, const mf__strided *b, int64_t n);

/* walk.c: two layouts of one shape, row by row */

typedef struct mf__walk {
  int32_t ndim;
  int64_t shape[MF_MAX_NDIM];
  int64_t strides[2][MF_MAX_NDIM];
} mf__walk;

/* A row of n elements; at and step are in elements, one per operand. False ends the walk. */
typedef bool (*mf__row_fn)(void *ctx, const int64_t at[2], int64_t n, const int64_t step[2]);

/* strides[1] NULL is a second operand that repeats one element. With keep_order the rows come in row-major
 * order; otherwise axes are sorted and joined so that rows are long and operand 0 is walked compactly. */
void mf__walk_plan(mf__walk *w, const DLTensor *first, const int64_t *second_strides, bool keep_order);
bool mf__walk_rows(const mf__walk *w, mf__row_fn row, void *ctx);
/* Whether several coordinates may share one place. */
bool mf__walk_repeats(const DLTensor *view);

/* plan.c: a copy between two layouts as few driver copies */

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

/* Elements of whole bytes, or two compact layouts, whose last byte is then copied whole. */
void mf__plan_copy(mf__plan *p, const mf_tensor *dst, const mf_tensor *src);
void mf__plan_fill(mf__plan *p, const mf_tensor *dst);
/* How many driver calls it takes as rows and slices, and by kernel. */
int64_t mf__plan_count(const mf__plan *p);
int64_t mf__plan_count_kernels(const mf__plan *p);
/* Queue them; the queue's context is current. */
int mf__plan_run_boxes(const mf__plan *p, const mf__queue *on, mf_error *err);
int mf__plan_run_kernels(const mf__plan *p, const mf__queue *on, mf_error *err);
/* A fill with the element at slot: how many driver calls, or INT64_MAX where there is no direct way. */
int64_t mf__plan_count_fill(const mf__plan *p, const void *slot);
int mf__plan_run_fill(const mf__plan *p, const void *slot, const mf__queue *on, mf_error *err);
/* The same by kernel; MF_EDEVICE where there is none. */
int mf__plan_run_fill_kernels(const mf__plan *p, const void *slot, const mf__queue *on, mf_error *err);

/* transfer.c: copies and fills in which a device takes part */

/* Both have passed the checks of mf_tensor_copy (shape, dtype, writable, open), have elements, and one at least has a
 * record whose memory the host cannot read. on: the stream to do it on; NULL chooses (the destination's current
 * stream, or the source's if the destination is on the host). */
int mf__transfer(mf_tensor *dst, const mf_tensor *src, const mf__queue *on, mf_error *err);
/* Every element becomes the one at slot (host memory, laid out as dst's own). */
int mf__transfer_fill(mf_tensor *dst, const void *slot, mf_error *err);

/* copy.c */

/* Whether the host can read and write the elements: on the cpu, pinned, managed. */
bool mf__tensor_on_host(const mf_tensor *t);
/* Host memory for the host's use: waits for what the record demands. MF_EDEVICE for a device's memory, saying that
 * mf_tensor_to copies it. */
int mf__tensor_host_use(const mf_tensor *t, bool write, mf_error *err);
/* Host to host, after the waiting. */
int mf__copy_host(mf_tensor *dst, const mf_tensor *src, mf_error *err);
/* The n elements of whole bytes from first on, in row-major order, to compact memory, and from it. */
void mf__gather(const mf_tensor *t, int64_t first, int64_t n, char *to);
void mf__scatter(const mf_tensor *t, int64_t first, int64_t n, const char *from);

/* Copies bits that need not begin at a byte; the ranges must not overlap. */
void mf__bits_copy(void *dst, int64_t dst_bit, const void *src, int64_t src_bit, int64_t nbits);
int mf__same_shape(const mf_tensor *dst, const mf_tensor *src, mf_error *err);
bool mf__overlap(const mf_tensor *a, const mf_tensor *b);
/* Every element of dst becomes the one at `slot`, which is laid out as dst's own. */
void mf__repeat(mf_tensor *dst, const void *slot);

#endif
