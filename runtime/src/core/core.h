/* core.h: declares what the files of core/ share and offer to the rooms above: tensors on the host. It names no device,
 * stream or driver; the functions of mf__record_ops look after memory that a driver knows. Nothing of it is visible
 * outside of libmoonferry. */
#ifndef MOONFERRY_CORE_H
#define MOONFERRY_CORE_H

#include "core/system.h"
#include "moonferry.h"

#include <stdatomic.h>

/* error.c */

/* Fills err (if not NULL) and returns status, so that a failure is one statement. */
int mf__fail(mf_error *err, int32_t status, const char *format, ...) __attribute__((cold, MF__PRINTF(3, 4)));

/* The same for a driver call that answered ${code}; call and text are static storage. */
int mf__fail_driver(mf_error *err, int32_t status, int32_t code, const char *call, const char *text);

/* What a public function that has a status says, first of all, of a pointer that is NULL where it must not be. */
int mf__missing(const char *argument, const char *call, mf_error *err) __attribute__((cold));

#define MF__NEED(argument)                                                     \
  do {                                                                         \
    if ((argument) == NULL) return mf__missing(#argument, __func__, err);      \
  } while (0)

/* The same of the place for an object, which is NULL from then on until there is one. */
#define MF__NEED_OUT(argument) \
  do {                         \
    MF__NEED(argument);        \
    *(argument) = NULL;        \
  } while (0)

/* Ends a public function: puts its name into err->call on failure, unless a driver call's is there; returns rc. */
int mf__end(int rc, const char *call, mf_error *err);

/* alloc.c */

typedef enum mf__counter { MF__TENSORS, MF__STORAGES, MF__BYTES, MF__BLOCKS, MF__NCOUNTERS } mf__counter;

#ifndef __has_feature
#define __has_feature(name) 0
#endif

/* Blocks up to this size are kept. The sanitizers must see every free. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
  __has_feature(thread_sanitizer)
#define MF__SPARE_MAX 0
#else
#define MF__SPARE_MAX 256
#endif

/* A thread's own counters, and its free block of each small size. */
typedef struct mf__slot {
  _Alignas(64) _Atomic int64_t counts[MF__NCOUNTERS];
  _Atomic int taken;
  void *spares[MF__SPARE_MAX / 8 + 1]; /* by size in units of 8 bytes */
} mf__slot;

/* The calling thread's own counters, NULL until it has some; and its slot, NULL also while allocations are to fail.
 * Inline, because an exchange counts eight times and allocates twice. */
extern _Thread_local _Atomic int64_t *mf__thread_counts MF__TLS;
extern _Thread_local mf__slot *mf__thread_slot MF__TLS;
extern mf_realloc_fn mf__allocator; /* the user's, or NULL */

void mf__count_first(mf__counter which, int64_t delta);

/* Adds modulo 2^64: a foreign struct may say that it has more bytes than exist, and they are subtracted again. */
static inline int64_t mf__count_sum(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline void mf__count_in(_Atomic int64_t *counts, mf__counter which, int64_t delta) {
  const int64_t now = atomic_load_explicit(&counts[which], memory_order_relaxed);
  atomic_store_explicit(&counts[which], mf__count_sum(now, delta), memory_order_relaxed);
}

static inline void mf__count(mf__counter which, int64_t delta) {
  _Atomic int64_t *counts = mf__thread_counts;
  if (counts == NULL)
    mf__count_first(which, delta);
  else
    mf__count_in(counts, which, delta);
}

/* Memory that may outlive every tensor, and any allocator that a program sets: zeroed, in no ledger, and given back to
 * free. It can be made to fail like all other memory. */
void *mf__lasting_alloc(size_t nbytes);
/* Works as realloc does: NULL, and ${ptr} as it was, where there is no memory. */
void *mf__lasting_grow(void *ptr, size_t nbytes);

/* Without a kept block. */
void *mf__alloc_any(size_t nbytes);
void mf__free_any(void *ptr, size_t nbytes);

/* Where this thread keeps a block of a size; NULL where it keeps none. */
static inline void **mf__spare_place(mf__slot *slot, size_t nbytes) {
  return slot == NULL || mf__allocator != NULL || nbytes > MF__SPARE_MAX ? NULL : &slot->spares[(nbytes + 7) / 8];
}

static inline void *mf__alloc(size_t nbytes) {
  mf__slot *slot = mf__thread_slot;
  void **place = mf__spare_place(slot, nbytes);
  if (place == NULL || *place == NULL) return mf__alloc_any(nbytes);
  void *ptr = *place;
  *place = NULL;
  mf__count_in(slot->counts, MF__BLOCKS, 1);
  return ptr;
}

static inline void mf__free(void *ptr, size_t nbytes) {
  mf__slot *slot = mf__thread_slot;
  void **place = mf__spare_place(slot, nbytes);
  if (place == NULL || *place != NULL) {
    mf__free_any(ptr, nbytes);
    return;
  }
  *place = ptr;
  mf__count_in(slot->counts, MF__BLOCKS, -1);
}

/* References */

/* Gives a reference back; true if it was the last. Whoever holds the only one need not lock the bus: nobody else is
 * there to take or give another. */
static inline bool mf__refs_drop(_Atomic int64_t *refs) {
  if (atomic_load_explicit(refs, memory_order_acquire) == 1) return true;
  return atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

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

/* The sizes of a layout and the bytes that it reaches, checked. */
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

/* The axes in the order of their strides, those that go farthest first; where they are equal in the order of ${ties}
 * (NULL: none), and then as they are. False where that is the order that they have. */
bool mf__axes_sort(int32_t ndim, const int64_t *strides, const int64_t *ties, int32_t *order);

void mf__layout_of(const DLTensor *view, mf__layout *out);
int mf__layout_index(mf__layout *l, const mf_index *items, int32_t nitems, mf_error *err);
int mf__layout_permute(mf__layout *l, const int32_t *axes, int32_t naxes, mf_error *err);
int mf__layout_reshape(mf__layout *l, const int64_t *shape, int32_t ndim, mf_error *err);
int mf__layout_broadcast(mf__layout *l, const int64_t *shape, int32_t ndim, mf_error *err);
int mf__layout_squeeze(mf__layout *l, const int32_t *axes, int32_t naxes, mf_error *err);
int mf__layout_expand(mf__layout *l, int32_t axis, mf_error *err);
int mf__layout_diagonal(mf__layout *l, int64_t offset, const int32_t axes[2], mf_error *err);
int mf__layout_resize(mf__layout *l, int64_t old_bits, int64_t new_bits, mf_error *err);

/* Memory that a driver knows */

/* The record of who used a memory on which stream, which is device/'s. Plain host memory has none. */
typedef struct mf__record mf__record;
typedef struct mf__storage mf__storage;

/* The operations on memory with a record, which queued work may still use. A record begins with a pointer to
 * this table, so that core/ calls nothing of device/ by name. */
typedef struct mf__record_ops {
  /* The last reference to the storage was dropped; mf__storage_end is to be called when nothing uses the memory. */
  void (*release)(mf__storage *s);
  /* One side at least has a record; checked as for mf_tensor_copy, and with elements. */
  int (*copy)(mf_tensor *dst, const mf_tensor *src, mf_error *err);
  /* Every element becomes the one at slot (host memory, laid out as dst's own). */
  int (*fill)(mf_tensor *dst, const void *slot, mf_error *err);
  /* One side at least has a record; checked as for mf_tensor_astype, of different dtypes, and with elements. */
  int (*cast)(mf_tensor *dst, const mf_tensor *src, mf_error *err);
  /* One side at least has a record; the same dtype and shape, with elements. */
  int (*equal)(const mf_tensor *a, const mf_tensor *b, bool *out, mf_error *err);
  /* A few bytes of the tensor's, from ${first} on as counted from element 0. */
  int (*read)(const mf_tensor *t, int64_t first, int64_t nbytes, void *buffer, mf_error *err);
  int (*write)(mf_tensor *t, int64_t first, int64_t nbytes, const void *buffer, mf_error *err);
} mf__record_ops;

static inline const mf__record_ops *mf__ops_of(const mf__record *record) {
  return *(const mf__record_ops *const *)(const void *)record;
}

/* fence.c: the fences of one memory, the program's (mf_fence) */

typedef struct mf__fences mf__fences;

mf__fences *mf__fences_create(void); /* NULL where there is no memory */
void mf__fences_free(mf__fences *f); /* without a fence by then */
/* Takes the fence over. writes: the queue that it is of writes the memory, and does not only read. */
int mf__fences_add(mf__fences *f, const mf_fence *fence, bool writes, mf_error *err);
/* Waits, each fence for ns at most, INT64_MAX being for ever, until the host may read, or also write. *done: it may. */
int mf__fences_wait(mf__fences *f, bool write, int64_t ns, bool *done, mf_error *err);
/* Drops what is done, of memory that nobody else has any more; true where that is all. Never waits. */
bool mf__fences_end(mf__fences *f);

/* storage.c */

/* room is how many bytes the storage's first tensor takes; mf__storage_room is where. It lives as long as the
 * storage. No bytes have no place: *data then stays as it was. */
int mf__storage_create(size_t room, int64_t nbytes, bool pages, void **data, mf__storage **out, mf_error *err);
/* Memory of ours whose elements lie elsewhere. */
int mf__storage_create_apart(size_t room, int64_t nbytes, mf__storage **out, mf_error *err);

/* One of these three: a struct of either sort, or a release callback, which may be NULL, with its context. */
typedef struct mf__foreign {
  DLManagedTensorVersioned *versioned;
  DLManagedTensor *legacy;
  mf_release_fn release;
  void *ctx;
} mf__foreign;

/* Memory of others, nbytes as the ledger counts it. On failure nothing was taken over. */
int mf__storage_adopt(size_t room, int64_t nbytes, const mf__foreign *from, mf__storage **out, mf_error *err);
/* Gives a new storage the record of its memory. base: the storage of ours whose memory and record it is, if that came
 * back through another library; its reference goes with it. */
void mf__storage_set_record(mf__storage *s, mf__record *record, mf__storage *base);
mf__record *mf__storage_record(const mf__storage *s); /* NULL for plain host memory */
mf__storage *mf__storage_base(const mf__storage *s);
void *mf__storage_room(mf__storage *s);
void mf__storage_retain(mf__storage *s);
/* The release callback or deleter of the last reference is called at once if it may be and no device uses the memory;
 * else it is due for mf_releases_run. */
void mf__storage_release(mf__storage *s, bool foreign_allowed);
/* The storage has no reference left, its record belongs to somebody else, and nothing uses the memory. Called from
 * anywhere, so that foreign code has to wait for mf_releases_run. */
void mf__storage_end(mf__storage *s);
bool mf__foreign_is_due(void);
int mf__storage_invalidate(mf__storage *s, mf_error *err);
bool mf__storage_is_shared(const mf__storage *s);
bool mf__storage_is_own(const mf__storage *s); /* the memory is ours */
/* Both under the lock of whoever may find the storage again: a reference if the storage lives; and whether the last one
 * is gone. */
bool mf__storage_retain_living(mf__storage *s);
bool mf__storage_let_go(mf__storage *s);
bool mf__storage_is_closed(const mf__storage *s);
bool mf__storage_is_marked(const mf__storage *s); /* closed, or with a list of fences */
mf__fences *mf__storage_fences(const mf__storage *s); /* NULL: none was ever set */
/* Gives the storage the list, unless it has one; returns the one that it has. */
mf__fences *mf__storage_set_fences(mf__storage *s, mf__fences *fences);

/* tensor.c */

struct mf_tensor {
  DLTensor dl; /* first, and complete: data of element 0, strides filled, byte_offset 0 */
  _Atomic int64_t refs;
  mf__storage *storage;
  uint32_t flags; /* of MF__FLAGS_KNOWN */
  bool empty;     /* has no elements */
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
int mf__taken_back(mf_error *err); /* MF_ECLOSED, in the words of mf__tensor_open */
int mf__tensor_writable(const mf_tensor *t, mf_error *err);
/* The flag of elements that are padded to bytes, or 0: what a tensor needs that takes the same elements. */
uint64_t mf__tensor_padded(const mf_tensor *t);
int64_t mf__tensor_bits(const mf_tensor *t);

static inline mf__record *mf__tensor_record(const mf_tensor *t) {
  return mf__storage_record(t->storage);
}

/* A tensor's layout that was checked: strides filled, and what it reaches. */
typedef struct mf__checked {
  DLTensor view;
  mf__span span;
  int64_t strides[MF_MAX_NDIM];
} mf__checked;

/* All of a tensor of others but its device, and whether data lies there. */
int mf__checked_view(const DLTensor *view, uint64_t flags, mf__checked *out, mf_error *err);
/* The compact layout for a new tensor like ${like}: its dtype, ndim and shape. */
int mf__checked_new(const DLTensor *like, uint64_t flags, mf__checked *out, mf_error *err);
/* A new compact tensor like ${like} in plain host memory. */
int mf__tensor_create_host(const DLTensor *like, uint64_t flags, mf_tensor **out, mf_error *err);

/* view.c */

/* A view of so many places of each axis from ${first} on, which are there. */
int mf__tensor_narrow(const mf_tensor *t, const int64_t *first, const int64_t *count, mf_tensor **out, mf_error *err);

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

/* The number types of which rows and kernels convert many at once. */
enum {
  MF__N_BOOL, MF__N_I8, MF__N_I16, MF__N_I32, MF__N_I64, MF__N_U8, MF__N_U16, MF__N_U32, MF__N_U64,
  MF__N_SMALL8, MF__N_BF16, MF__N_F16, MF__N_F32, MF__N_F64, MF__NNUMBERS
};

/* convert.c: which of them a dtype is, or -1. */
int mf__number_of(const mf__codec *c);

/* A float format of 8 or 16 bits, in the bits of a float, from which and to which it is converted. A code without sign
 * that the format does not have is UINT32_MAX here. */
typedef struct mf__small {
  uint32_t sign;       /* the bit of a code */
  uint32_t shift;      /* from a mantissa to a float's */
  uint32_t rebias;     /* of the exponent, in place in a code */
  uint32_t half, step; /* what rounds a normal number and one below */
  uint32_t least_normal;
  float scale;
  uint32_t max_finite, infinity, overflow; /* codes without sign */
  uint32_t nan;
  uint32_t unsigned_zero; /* codes that take no sign: zero, where there is one alone, */
  uint32_t nan_alone;     /* and NaN, where it stands in place of the other zero: that sign's bit alone */
} mf__small;

/* number.c: for the formats of 8 and 16 bits but float8_e8m0fnu, which is no number with a sign. */
void mf__small_of(const mf__float_format *f, mf__small *out);

/* From so many bytes on, what was written first has left the cache at the end, and it is worth to wake threads. */
#define MF__LARGE (INT64_C(2) << 20)

/* walk.c: two layouts of one shape, row by row */

typedef struct mf__walk {
  int32_t ndim;
  int64_t first[2]; /* where it begins, in elements */
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

/* shared_walk.c */

/* Whether parts of the first operand that begin at multiples of 8 places share no byte: of packed elements that go
 * backwards, the first one of a part lies in a byte with the last one of the part before. */
static inline bool mf__walk_is_apart(const mf__walk *w, int64_t bits) {
  return bits % 8 == 0 || (w->ndim == 1 && w->strides[0][0] > 0);
}
/* Does what mf__walk_rows does, by several threads where so many bytes are worth it: rows then come in any order, some
 * of them at once, and may be parts of rows. Parts begin at multiples of ${unit} along an axis. A row allocates
 * nothing. */
bool mf__walk_share(const mf__walk *w, int64_t nbytes, int64_t unit, mf__row_fn row, void *ctx);

/* workers.c: one piece of work by several threads */

typedef void (*mf__part_fn)(void *ctx, int64_t part);

/* Calls part(ctx, i) for each i below nparts, in any order and on any thread, and returns when all have returned. A
 * part allocates nothing and calls nothing of others. */
void mf__share(int64_t nparts, mf__part_fn part, void *ctx);

/* use.c */

/* Waits for the fences of memory without a record, until the host may read, or also write. */
int mf__fences_settle(const mf_tensor *t, bool write, mf_error *err);
/* Makes the lists of fences of ${n} memories, MF_RING_MAX at most, that have none: all of them or, without memory,
 * none. */
int mf__fences_open(mf_tensor *const *tensors, int32_t n, mf_error *err);

/* copy.c */

/* Host to host, after the waiting. */
int mf__copy_host(mf_tensor *dst, const mf_tensor *src, mf_error *err);
int mf__cast_host(mf_tensor *dst, const mf_tensor *src, mf_error *err); /* cast.c */
bool mf__equal_host(const mf_tensor *a, const mf_tensor *b);            /* element.c */
/* The record of one of them; NULL where both are plain host memory. */
const mf__record *mf__either_record(const mf_tensor *a, const mf_tensor *b);
/* Does what mf_tensor_copy does after its checks; dst is new, so that nothing overlaps it. */
int mf__copy_new(mf_tensor *dst, const mf_tensor *src, mf_error *err);
/* The n elements of whole bytes from first on, in row-major order, to compact memory, and from it. */
void mf__gather(const mf_tensor *t, int64_t first, int64_t n, char *to);
void mf__scatter(const mf_tensor *t, int64_t first, int64_t n, const char *from);

/* Copies bits that need not begin at a byte; the ranges must not overlap. */
void mf__bits_copy(void *dst, int64_t dst_bit, const void *src, int64_t src_bit, int64_t nbits);
int mf__same_shape(const mf_tensor *dst, const mf_tensor *src, mf_error *err);
bool mf__overlap(const mf_tensor *a, const mf_tensor *b);
/* Every element of dst, which has some, becomes the one at `slot`, which is laid out as dst's own. */
void mf__repeat(mf_tensor *dst, const void *slot);

#endif
