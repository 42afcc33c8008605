/* moonferry.h: the whole public C API of Moonferry. Read from top to bottom, it teaches the library.
 *
 *   DLTensor like = {.ndim = 2, .shape = (int64_t[]){480, 640}, .dtype = {kDLFloat, 32, 1}};
 *   mf_tensor *t;
 *   mf_error err;
 *   if (mf_tensor_create(&like, 0, &t, &err) != MF_OK) { puts(err.message); return 1; }
 *   DLManagedTensorVersioned *m;
 *   mf_tensor_export(t, 0, &m, &err);   // hand m to any DLPack consumer; it calls m->deleter(m)
 *   mf_tensor_release(t);               // the memory lives until the consumer is done with it
 *
 * Conventions
 *   Units       Strides are in elements, as in DLPack; names ending in nbytes or byte_offset are in bytes.
 *   Compact     Elements are compact if they lie in row-major order without gaps.
 *   Status      A function that can fail returns MF_OK (0) or a negative mf_status. Its last parameter is an
 *               mf_error * (NULL is allowed), which it writes only if it fails. After a failure every output
 *               pointer is NULL, every input is as it was, and no ownership has moved.
 *   Ownership   Create, wrap, import, view and retain each give one reference, and release returns it.
 *               The caller holds each argument until the call returns: a fence that the call asks must not
 *               release the last reference to it (a ring's may: the call holds the ring).
 *               A function that takes over an argument does so only if it returns MF_OK. A borrowed
 *               pointer lives until the tensor that it came from is released. The deleter of an exported
 *               tensor is plain C: it runs on any thread, and needs no interpreter and no lock.
 *   Callbacks   Deleters of imported structs and release callbacks of wrapped memory run inside
 *               mf_tensor_release, mf_ring_release, the deleter of an exported struct, mf_releases_run,
 *               mf_pool_trim, mf_pools_trim, mf_stream_synchronize and mf_device_synchronize, and inside no
 *               other function: elsewhere they become due, and the next of these calls runs them. They must
 *               return, and may call this library. (mf_release_mark and mf_release_defer run at once.)
 *   Threads     A tensor's description never changes, so every function may be called on any thread, and on
 *               one tensor from several threads at once. The caller must guard the elements: two threads
 *               that write the same bytes race, as with memcpy. A thread that is cancelled inside of a call
 *               (pthread_cancel) leaves nothing locked or half done: it ends behind the call, or inside of a
 *               callback of the program's, if that is a cancellation point.
 *   Pointers    Where a pointer is needed, NULL is MF_EINVAL and the message names the argument; a function
 *               without a status then does nothing, or returns 0 or NULL. Any other pointer must be valid:
 *               C cannot check that. This includes a producer's struct, its `shape`, `strides` and
 *               `deleter`, and its `data` over the declared extent. A producer's numbers are checked.
 *
 * Each function's comment has five parts: what it does; Owns, who owns what afterwards; Fails, with which
 * status; Threads, which may call it; Standard, the text that it implements.
 */
#ifndef MOONFERRY_H
#define MOONFERRY_H

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MF_API
#ifdef _WIN32
#define MF_API __declspec(dllimport)
#else
#define MF_API __attribute__((visibility("default")))
#endif
#endif

#define MF_VERSION_STRING "0.1.0"

/* The highest rank that any function accepts or returns. */
#define MF_MAX_NDIM 64

/* The alignment, in bytes, of memory that Moonferry allocates (DLTensor.data asks for 256). */
#define MF_ALIGNMENT 256

/* A flag of mf_tensor_create that DLPack does not have: allocates host memory in whole pages, beginning at a page, as
 * VK_EXT_external_memory_host and GL_AMD_pinned_memory require. */
#define MF_CREATE_PAGES 0x100

/* Status and errors. */

typedef enum mf_status {
  MF_OK = 0,
  MF_EINVAL = -1,    /* an argument or a field has a value that is not allowed */
  MF_ENOMEM = -2,    /* memory could not be allocated */
  MF_EOVERFLOW = -3, /* a size, an extent or a stride leaves the range of int64_t or of memory */
  MF_EBOUNDS = -4,   /* a coordinate or an axis is out of range */
  MF_EREADONLY = -5, /* a write, or an export that cannot say "read-only", of read-only memory */
  MF_ECLOSED = -6,   /* the memory was taken back with mf_tensor_invalidate */
  MF_EDTYPE = -7,    /* the operation is not defined for this dtype */
  MF_ELAYOUT = -8,   /* this layout cannot be expressed without a copy */
  MF_EDEVICE = -9,   /* no such device, or no backend for it */
  MF_EVERSION = -10, /* a DLPack major version that this library does not know */
  MF_EDRIVER = -11,  /* a driver call failed; mf_error says which, and with what code */
  MF_ECAPTURE = -12, /* a stream is being captured into a graph, which cannot contain this */
  MF_ETIMEOUT = -13  /* the time limit passed */
} mf_status;

typedef struct mf_error {
  int32_t status;      /* an mf_status */
  int32_t driver_code; /* the driver's number if a driver call failed, otherwise 0 */
  const char *call;    /* the public function, or the driver call, that failed; static storage */
  char message[240];   /* names the field, its value, and what was expected; always terminated */
} mf_error;

/* mf_status_name(status): the constant's name, such as "MF_EINVAL", or "MF_E?" for a number that is no status.
 * Owns: static storage. Fails: never. Threads: any. Standard: none. */
MF_API const char *mf_status_name(int32_t status);

/* Dtypes: DLDataType, kept exactly. */

/* Names are NumPy's and ml_dtypes': "bool", "int8" ... "uint64", "float16", "bfloat16", "float32",
 * "float64", "complex64", "complex128", "float8_e4m3fn", "float6_e2m3fn", "float4_e2m1fn", "handle64".
 * Any other width is written the same way ("int4", "uint2", "bool1", "complex32"), lanes as a suffix
 * ("float32x4"), so every DLDataType of DLPack 1.3 has one name and every name one DLDataType. */

/* mf_dtype_parse(name, out, err): writes the dtype that ${name} names to ${out}.
 * Owns: nothing. Fails: MF_EDTYPE for an unknown name. Threads: any. Standard: DLPack 1.3, DLDataType. */
MF_API int mf_dtype_parse(const char *name, DLDataType *out, mf_error *err);

/* mf_dtype_format(dtype, buf, cap, err): writes the name of ${dtype} and a terminating 0 to ${buf}.
 * Owns: nothing. Fails: MF_EDTYPE for a dtype that DLPack 1.3 does not have, MF_EINVAL if ${cap} is too small (32 is
 * enough). Threads: any. Standard: DLPack 1.3, DLDataType. */
MF_API int mf_dtype_format(const DLDataType *dtype, char *buf, size_t cap, mf_error *err);

/* mf_dtype_bits(dtype, flags): returns the bits from one element to the next in compact memory. Elements narrower than
 * a byte are packed, bits x lanes apart, from the least significant bit on, unless ${flags} has
 * DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED; all others take whole bytes.
 * Owns: nothing. Fails: never; for an invalid dtype the number has no meaning. Threads: any. Standard: DLPack 1.3,
 * DLDataType and the sub-byte flag. */
MF_API int64_t mf_dtype_bits(const DLDataType *dtype, uint64_t flags);

typedef enum mf_kind {
  MF_KIND_BOOL = 0,
  MF_KIND_INT = 1,
  MF_KIND_UINT = 2,
  MF_KIND_FLOAT = 3,
  MF_KIND_COMPLEX = 4
} mf_kind;

/* The value of one element. Every dtype converts to it exactly, except handles and dtypes with several lanes. */
typedef struct mf_scalar {
  int32_t kind; /* an mf_kind: which of the members below is used */
  int32_t zero; /* must be 0 */
  union {
    int64_t i; /* MF_KIND_INT, and MF_KIND_BOOL as 0 or 1 */
    uint64_t u; /* MF_KIND_UINT */
    double f;  /* MF_KIND_FLOAT; the real part of MF_KIND_COMPLEX */
  };
  double imag; /* MF_KIND_COMPLEX */
} mf_scalar;

/* Tensors: an immutable description over shared memory. */

typedef struct mf_tensor mf_tensor;

/* Runs once, when the last tensor and the last export over wrapped memory are gone, on the thread that dropped the
 * last one. That may be one of Python's threads, where no context of a graphics API is current. If only a certain
 * thread may release the memory, use mf_release_mark or mf_release_defer. The function may call this library. */
typedef void (*mf_release_fn)(void *ctx);

/* mf_release_mark(ctx): an mf_release_fn for languages that cannot be called from C: sets the int32_t that ${ctx}
 * points to, to 1. A thread that sees the 1 also sees what was written to the memory before.
 * Owns: ${ctx} must stay until then. Fails: never. Threads: any. Standard: none. */
MF_API void mf_release_mark(void *ctx);

/* Release callbacks for a thread of the program's choice, such as its renderer: a list, which is empty if it is all
 * zeros, and an entry, in the program's memory, for each wrapped memory. */
typedef struct mf_release_list {
  struct mf_release_entry *first; /* the library's */
} mf_release_list;

typedef struct mf_release_entry {
  mf_release_fn release;
  void *ctx;
  mf_release_list *list;
  struct mf_release_entry *next; /* the library's */
} mf_release_entry;

/* mf_release_defer(entry): an mf_release_fn that adds ${entry}, an mf_release_entry, to its list and does nothing
 * else. Give the entry to mf_tensor_wrap as ctx.
 * Owns: the entry and its list must stay until mf_release_list_run has called its release. Fails: never. Threads: any;
 * takes no lock, allocates nothing. Standard: none. */
MF_API void mf_release_defer(void *entry);

/* mf_release_list_run(list): calls the release function of each entry in ${list}, the oldest first, and returns how
 * many it called. A release function may free its entry and may call this library. Entries that are added meanwhile
 * wait for the next call.
 * Owns: the entries are the program's again. Fails: never. Threads: any; the functions run on the calling one.
 * Standard: none. */
MF_API int64_t mf_release_list_run(mf_release_list *list);

/* mf_tensor_create(like, flags, out, err): makes a new compact tensor with ${like}'s dtype, ndim, shape and device
 * (device_type 0 means the CPU); it reads no other field. The elements are not initialised. ${flags} is a sum of
 * DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED and, on the CPU, MF_CREATE_PAGES. A GPU's memory may be used on the
 * current stream at once; pinned and managed memory on any stream.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL, MF_EDTYPE, MF_EOVERFLOW, MF_EDEVICE, MF_ENOMEM,
 * MF_EDRIVER, MF_ECAPTURE if the current stream is being captured and no cached memory fits. Threads: any. Standard:
 * data is aligned to 256. */
MF_API int mf_tensor_create(const DLTensor *like, uint64_t flags, mf_tensor **out, mf_error *err);

/* mf_tensor_wrap(view, flags, release, ctx, out, err): makes a tensor over memory that somebody else owns, as ${view}
 * describes it: element 0 is at data + byte_offset, NULL strides mean compact, device_type 0 means the CPU. ${flags}
 * is a sum of READ_ONLY, IS_COPIED and IS_SUBBYTE_TYPE_PADDED. A device's memory must be ready on the current stream;
 * mf_tensor_record adds other streams that still use it.
 * Owns: the memory must stay until ${release} (which may be NULL) is called with ${ctx}: when the last reference is
 * gone and the recorded work is done, if necessary in a later call of this library. On failure ${release} is not
 * called. Fails: as mf_dltensor_check, MF_ENOMEM. Threads: any. Standard: DLPack 1.3, DLTensor. */
MF_API int mf_tensor_wrap(const DLTensor *view, uint64_t flags, mf_release_fn release, void *ctx,
                          mf_tensor **out, mf_error *err);

/* mf_tensor_retain(t): adds one reference to ${t}, and returns ${t}. NULL is allowed.
 * Owns: the new reference is the caller's. Fails: never. Threads: any. Standard: none. */
MF_API mf_tensor *mf_tensor_retain(mf_tensor *t);

/* mf_tensor_release(t): returns one reference. The last one frees ${t}; the memory's last tensor frees the memory.
 * NULL is allowed.
 * Owns: the caller's reference is gone. Fails: never. Threads: any, whoever made it. Standard: none. */
MF_API void mf_tensor_release(mf_tensor *t);

/* mf_tensor_release_later(t): as mf_tensor_release, but runs no foreign code, for a caller that must not be called
 * back, such as compiled Lua code. Returns 1 if a deleter or a release callback of any memory is due: then call
 * mf_releases_run as soon as foreign code may run. Otherwise returns 0.
 * Owns: the caller's reference is gone. Fails: never. Threads: any, whoever made it. Standard: none. */
MF_API int32_t mf_tensor_release_later(mf_tensor *t);

/* mf_releases_run(): calls the deleters and release callbacks that are due. If one of them makes another one due, the
 * outermost call on this thread calls that, too.
 * Owns: nothing. Fails: never. Threads: any; they run on the calling one. Standard: none. */
MF_API void mf_releases_run(void);

/* mf_tensor_invalidate(t, in_use, err): call this before an engine takes wrapped memory back. From now on every
 * function that would use the memory of ${t}, or of any tensor that shares it, fails with MF_ECLOSED. ${in_use} (may
 * be NULL) becomes 1 if other references, views or exports are alive: they may hold raw pointers, which nobody can
 * revoke, so the memory must then stay. The release callback still runs once, after the last reference.
 * Owns: references stay as they are. Fails: MF_EINVAL for memory that Moonferry allocated or imported. Threads: any,
 * but no other thread may be using the memory: an operation that already runs on it goes on. Standard: none. */
MF_API int mf_tensor_invalidate(mf_tensor *t, int32_t *in_use, mf_error *err);

/* mf_tensor_is_valid(t): returns 1, or 0 if the memory was invalidated.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_tensor_is_valid(const mf_tensor *t);

/* mf_tensor_dltensor(t): returns the description: data (the address of element 0), device, ndim, dtype, shape, strides
 * (never NULL if ndim > 0), byte_offset 0.
 * Owns: borrowed from ${t}; it never changes and must not be written. Fails: never. Threads: any. Standard: DLPack
 * 1.3, DLTensor. */
MF_API const DLTensor *mf_tensor_dltensor(const mf_tensor *t);

/* mf_tensor_flags(t): returns the DLPACK_FLAG_BITMASK_* bits of ${t}. Views and exports inherit READ_ONLY and
 * IS_SUBBYTE_TYPE_PADDED. IS_COPIED is what the producer of an imported tensor said; only views inherit it, because
 * the consumer of an export is not the only owner.
 * Owns: nothing. Fails: never. Threads: any. Standard: DLPack 1.3, DLManagedTensorVersioned.flags. */
MF_API uint64_t mf_tensor_flags(const mf_tensor *t);

/* mf_tensor_size(t): returns the number of elements: the product of the shape, 1 for ndim 0.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int64_t mf_tensor_size(const mf_tensor *t);

/* mf_tensor_nbytes(t): returns the bytes that the elements take in compact form.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int64_t mf_tensor_nbytes(const mf_tensor *t);

/* mf_tensor_is_contiguous(t): returns 1 if ${t} is compact. Strides of axes of extent 1 do not matter, and a tensor
 * without elements is always compact.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_tensor_is_contiguous(const mf_tensor *t);

/* Views: a new tensor over the same memory, never a copy. */

/* A view keeps dtype, flags and memory unless its comment says otherwise, and is a new reference in ${out}. Axes count
 * from 0, negative ones from the end. Every function fails with MF_ECLOSED, MF_ENOMEM, and with MF_ELAYOUT for a view
 * of a packed sub-byte tensor that does not begin at a whole byte. */

typedef enum mf_index_kind {
  MF_INDEX_AT = 0,       /* one coordinate (start), which drops the axis; negative ones count from the end */
  MF_INDEX_SLICE = 1,    /* start:stop:step as in Python; MF_INDEX_NONE omits one */
  MF_INDEX_NEWAXIS = 2,  /* a new axis of extent 1 */
  MF_INDEX_ELLIPSIS = 3  /* the axes that are left, whole; at most once */
} mf_index_kind;

#define MF_INDEX_NONE INT64_MIN

typedef struct mf_index {
  int32_t kind; /* an mf_index_kind */
  int32_t zero; /* must be 0 */
  int64_t start;
  int64_t stop;
  int64_t step;
} mf_index;

/* mf_tensor_index(t, items, nitems, out, err): basic indexing: each item applies to the next axis; axes without an
 * item are kept whole.
 * Owns: ${out} is the caller's reference. Fails: MF_EBOUNDS for a coordinate out of range or too many items, MF_EINVAL
 * for a step of 0, an unknown kind, a negative ${nitems} or a rank above MF_MAX_NDIM. Threads: any. Standard: none. */
MF_API int mf_tensor_index(const mf_tensor *t, const mf_index *items, int32_t nitems, mf_tensor **out,
                           mf_error *err);

/* mf_tensor_permute_dims(t, axes, naxes, out, err): makes a view whose axis i is axis ${axes}[i] of ${t}. NULL axes
 * with naxes 0 reverse all axes (transpose).
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL unless ${axes} is a permutation, MF_EBOUNDS for an axis out
 * of range. Threads: any. Standard: none. */
MF_API int mf_tensor_permute_dims(const mf_tensor *t, const int32_t *axes, int32_t naxes, mf_tensor **out,
                             mf_error *err);

/* mf_tensor_reshape(t, shape, ndim, out, err): makes a view of the same elements, in row-major order, in another
 * shape; one extent may be -1.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL if the numbers of elements differ, MF_ELAYOUT if it needs a
 * copy, MF_EOVERFLOW. Threads: any. Standard: none. */
MF_API int mf_tensor_reshape(const mf_tensor *t, const int64_t *shape, int32_t ndim, mf_tensor **out,
                             mf_error *err);

/* mf_tensor_broadcast_to(t, shape, ndim, out, err): makes a view of ${shape} that repeats elements by strides of 0. It
 * is read-only if it repeats elements.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL if the shapes do not fit, MF_EOVERFLOW. Threads: any.
 * Standard: none. */
MF_API int mf_tensor_broadcast_to(const mf_tensor *t, const int64_t *shape, int32_t ndim, mf_tensor **out,
                               mf_error *err);

/* mf_tensor_squeeze(t, axes, naxes, out, err): makes a view without the given axes, which must have extent 1. NULL
 * axes with naxes 0 drop every such axis.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL, MF_EBOUNDS. Threads: any. Standard: none. */
MF_API int mf_tensor_squeeze(const mf_tensor *t, const int32_t *axes, int32_t naxes, mf_tensor **out,
                             mf_error *err);

/* mf_tensor_expand_dims(t, axis, out, err): makes a view with a new axis of extent 1 at position ${axis}, in 0 ...
 * ndim.
 * Owns: ${out} is the caller's reference. Fails: MF_EBOUNDS. Threads: any. Standard: none. */
MF_API int mf_tensor_expand_dims(const mf_tensor *t, int32_t axis, mf_tensor **out, mf_error *err);

/* mf_tensor_diagonal(t, offset, axes, out, err): makes a view of the diagonal of the planes that the two ${axes} span,
 * as a new last axis. ${offset} 0 is the main diagonal; positive is above it, negative below.
 * Owns: ${out} is the caller's reference. Fails: MF_EBOUNDS, MF_EINVAL. Threads: any. Standard: none. */
MF_API int mf_tensor_diagonal(const mf_tensor *t, int64_t offset, const int32_t axes[2], mf_tensor **out,
                              mf_error *err);

/* mf_tensor_reinterpret(t, dtype, out, err): makes a view of the same bytes as another dtype. If the element size
 * changes, the last axis must be compact, and its extent changes accordingly.
 * Owns: ${out} is the caller's reference. Fails: MF_EDTYPE, MF_ELAYOUT, MF_EOVERFLOW. Threads: any. Standard: none. */
MF_API int mf_tensor_reinterpret(const mf_tensor *t, const DLDataType *dtype, mf_tensor **out,
                                 mf_error *err);

/* mf_tensor_as_readonly(t, out, err): makes a read-only view.
 * Owns: ${out} is the caller's reference. Fails: MF_ECLOSED, MF_ENOMEM. Threads: any. Standard: DLPack 1.3,
 * DLPACK_FLAG_BITMASK_READ_ONLY. */
MF_API int mf_tensor_as_readonly(const mf_tensor *t, mf_tensor **out, mf_error *err);

/* Elements. Copies and fills work on every device. They are queued on the current stream of the destination, or of the
 * source if the destination is host memory; a result in pageable host memory is complete on return.
 * Conversions with a GPU on one side are queued in the same way on CUDA, where kernels convert bool, integers,
 * float16, bfloat16, float32, float64 and 8-bit floats except float8_e8m0fnu. Other dtypes, elements that are not
 * aligned to their size, and every conversion on ROCm pass through the host, which waits; a capture cannot contain
 * them.
 * A comparison, and reading one element, wait on the host: a GPU's comparison returns one number, and only one
 * element's bytes are copied. If the host can read both sides (cpu, pinned, managed), it waits for them and converts
 * or compares itself. All functions may fail with MF_EDRIVER and MF_ECAPTURE if a driver's memory takes part. */

/* mf_tensor_copy(dst, src, err): copies every element of ${src} to the same place of ${dst}. Shapes and dtypes (and
 * the padding of sub-byte dtypes) must be equal; layouts may differ. Overlapping memory is copied as if ${src} had
 * been read first. If strides map several elements of ${dst} to one place, the last in row-major order stays.
 * Owns: nothing moves. Fails: MF_EINVAL, MF_EDTYPE, MF_EREADONLY, MF_ECLOSED, MF_ENOMEM (when overlap needs a
 * temporary). Threads: any. Standard: none. */
MF_API int mf_tensor_copy(mf_tensor *dst, const mf_tensor *src, mf_error *err);

/* mf_tensor_astype(dst, src, err): as mf_tensor_copy, with conversion between numeric dtypes:
 *   to a float     rounds to nearest, ties to even, once; too large becomes infinity, or NaN in an 8-bit
 *                  float that has no infinity, or the largest value in one that has neither, where NaN
 *                  becomes -0; float8_e8m0fnu has no sign and no zero, which become NaN
 *   NaN            stays one; from and to floats of 16 bits and less, the positive one without a payload
 *   float to int   rounds toward zero and saturates; NaN becomes 0
 *   int to int     keeps the low bits
 *   to bool        is "not zero" (NaN is not zero); from bool to a number gives 0 or 1
 *   to complex     the imaginary part is 0; from complex to a dtype that is not complex is refused
 * Owns: nothing moves. Fails: also MF_EDTYPE for handles, lanes other than 1 and widths that no arithmetic is known
 * for. Threads: any. Standard: none. */
MF_API int mf_tensor_astype(mf_tensor *dst, const mf_tensor *src, mf_error *err);

/* mf_tensor_copy_part(dst, src, at, err): copies the next part, some 16 MiB, so that the caller can show progress or
 * stop. ${*at} is how many elements have been copied: set it to 0 before the first call; the copy is complete when it
 * is mf_tensor_size(dst). Otherwise as mf_tensor_astype, except that ${src} and ${dst} must not share memory. All
 * parts together take no longer than one whole copy, and nothing is locked between two calls.
 * Owns: nothing moves. Fails: as mf_tensor_astype; also MF_EINVAL for an ${*at} that no call has set, and for memory
 * that both share. ${*at} then stays as it was. Threads: any. Standard: none. */
MF_API int mf_tensor_copy_part(mf_tensor *dst, const mf_tensor *src, int64_t *at, mf_error *err);

/* mf_tensor_fill(t, value, err): sets every element to ${value}, converted as by mf_tensor_astype.
 * Owns: nothing moves. Fails: MF_EREADONLY, MF_ECLOSED, MF_EDTYPE, MF_EINVAL for an unknown kind. Threads: any.
 * Standard: none. */
MF_API int mf_tensor_fill(mf_tensor *t, const mf_scalar *value, mf_error *err);

/* mf_tensor_get(t, coords, ncoords, out, err): reads one element, converted exactly. ${ncoords} must be ndim; negative
 * coordinates count from the end.
 * Owns: nothing. Fails: MF_EBOUNDS, MF_EINVAL, MF_EDTYPE, MF_ECLOSED. Threads: any. Standard: none. */
MF_API int mf_tensor_get(const mf_tensor *t, const int64_t *coords, int32_t ncoords, mf_scalar *out,
                         mf_error *err);

/* mf_tensor_put(t, coords, ncoords, value, err): sets one element, converted as by mf_tensor_astype.
 * Owns: nothing. Fails: as mf_tensor_get, and MF_EREADONLY. Threads: any. Standard: none. */
MF_API int mf_tensor_put(mf_tensor *t, const int64_t *coords, int32_t ncoords, const mf_scalar *value,
                         mf_error *err);

/* mf_tensor_clone(t, out, err): makes a new compact, writable tensor on the same device with a copy of the elements.
 * Owns: ${out} is the caller's reference. Fails: MF_ECLOSED, MF_EOVERFLOW, MF_ENOMEM. Threads: any. Standard: none. */
MF_API int mf_tensor_clone(const mf_tensor *t, mf_tensor **out, mf_error *err);

/* mf_tensor_equal(a, b, out, err): sets ${out} to 1 if shapes, dtypes and all elements are equal, otherwise to 0.
 * Elements are compared as numbers (NaN differs from itself, -0 equals 0); dtypes without arithmetic are compared bit
 * by bit.
 * Owns: nothing. Fails: MF_ECLOSED. Threads: any. Standard: none. */
MF_API int mf_tensor_equal(const mf_tensor *a, const mf_tensor *b, int32_t *out, mf_error *err);

/* Copies, casts, fills and comparisons in host memory use kernels, of which there is a set for each instruction set of
 * the processor. All sets give the same bits. */

/* mf_simd(): returns the name of the set in use: plain, sse2, avx2, avx512 or neon. It is the best one for this
 * machine, until mf_simd_set chooses another.
 * Owns: nothing; the string is static. Fails: never. Threads: any. Standard: none. */
MF_API const char *mf_simd(void);

/* mf_simd_set(name, err): chooses a set for the whole process, for tests and measurements. "plain" uses no kernels,
 * but one element after another.
 * Owns: nothing. Fails: MF_EINVAL if this machine has no set of that name. Threads: any; work that already runs on
 * another thread goes on with the old set. Standard: none. */
MF_API int mf_simd_set(const char *name, mf_error *err);

/* One large copy, cast, fill or comparison in host memory is shared by several threads. The library starts them with
 * the first large work; they run none of the program's code, block its signals (except faults), and end with the
 * process; once the main thread has left by pthread_exit, with their work. A child of fork begins without any. Small
 * work, and work that comes while the threads are busy, is done by the thread that asks. If a handler leaves a fault in
 * such memory by longjmp, the number must be 1. */
#define MF_THREADS_MAX 64

/* mf_threads(): returns how many threads share large work, including the asking one. The first setting is the
 * environment variable MOONFERRY_THREADS if that is a number from 1 to MF_THREADS_MAX, otherwise the number of
 * processors of the process, at most 8.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_threads(void);

/* mf_threads_set(n, err): sets that number for the whole process. 1 uses only the asking thread; 0 restores the first
 * setting. Surplus threads end as soon as their work is done.
 * Owns: nothing. Fails: MF_EINVAL for a number below 0 or above MF_THREADS_MAX. Threads: any. Standard: none. */
MF_API int mf_threads_set(int32_t n, mf_error *err);

/* Exchange: DLPack 1.3. */

/* mf_dltensor_check(view, flags, err): makes all the checks of every import and wrap. In order: device_type is known
 * and has a backend, device_id is one of its devices; dtype code up to 17, bits and lanes not 0, bits 6 or 4 for
 * float6 and float4; 0 <= ndim <= MF_MAX_NDIM; shape is given if ndim > 0; no negative extent; the element count, the
 * byte count and every reachable byte offset are within range; data is given if there are elements, and data +
 * byte_offset is within the address space; for a driver's memory, the driver knows the pointer as memory of that
 * device (managed and pinned memory may be labelled as a GPU's).
 * Owns: nothing. Fails: MF_EINVAL, MF_EDTYPE, MF_EDEVICE, MF_EOVERFLOW, MF_EDRIVER; the message names the field, the
 * value and the rule. Threads: any. Standard: DLPack 1.3; strides may be NULL, as before 1.2. */
MF_API int mf_dltensor_check(const DLTensor *view, uint64_t flags, mf_error *err);

/* mf_tensor_import(managed, out, err): takes over ${managed}. Flags, strides and dtype are kept exactly; NULL strides
 * become compact ones, byte_offset is added to data, and unknown flag bits are dropped. A device's memory must be
 * ready on the current stream: tell the producer that stream's number (mf_stream_to_number), or make the producer's
 * stream current for this call.
 * Owns: on MF_OK the tensor calls ${managed}->deleter (if not NULL) once, when the memory's last reference is gone and
 * the work that this library queued on it is done, if necessary in a later call. A struct of this library's own is
 * deleted at once: the tensor then shares the memory with the one that was exported. On failure ${managed} is untouched
 * and still the caller's. Fails: MF_EVERSION, after reading only the version; as mf_dltensor_check; MF_ECLOSED for a
 * struct of this library's whose memory was taken back; MF_ENOMEM.
 * Threads: any; the deleter runs on the thread that drops the last reference. Standard: DLPack 1.3,
 * DLManagedTensorVersioned; array API 2025.12, from_dlpack. */
MF_API int mf_tensor_import(DLManagedTensorVersioned *managed, mf_tensor **out, mf_error *err);

/* mf_tensor_import_legacy(managed, out, err): as mf_tensor_import, for the struct before 1.0. That has no version and
 * no flags, so the tensor is writable and packed. Such structs describe bool as a UInt of one bit and one lane, one
 * byte each: it becomes kDLBool.
 * Owns: as mf_tensor_import. Fails: as mf_tensor_import, except MF_EVERSION. Threads: as mf_tensor_import. Standard:
 * DLPack 1.3, DLManagedTensor (deprecated there). */
MF_API int mf_tensor_import_legacy(DLManagedTensor *managed, mf_tensor **out, mf_error *err);

/* mf_tensor_export(t, flags, out, err): makes a struct of DLPack 1.3 for any consumer. shape and strides are always
 * filled (NULL for ndim 0), byte_offset is 0, and data is NULL if there are no elements. ${flags} is 0, or
 * DLPACK_FLAG_BITMASK_IS_COPIED if ${t} is a fresh copy to which the caller keeps no other reference. The consumer of
 * a device's memory must work on the caller's current stream, which waits for other streams; the consumer of memory
 * labelled as the CPU's works on the host, which waits. mf_tensor_export_to takes other streams.
 * Owns: the struct is the caller's until it calls out->deleter(out), once, on any thread; until then the memory lives.
 * ${t} stays the caller's. Fails: MF_ECLOSED, MF_EINVAL for other flags, MF_ENOMEM. Threads: any; the deleter, too.
 * Standard: DLPack 1.3, DLManagedTensorVersioned. */
MF_API int mf_tensor_export(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out, mf_error *err);

/* mf_tensor_export_legacy(t, out, err): makes the struct before 1.0, for consumers that know no other. It has no
 * flags, so read-only and padded sub-byte tensors are refused, and so is packed uint1, which consumers would read as a
 * byte each.
 * Owns: as mf_tensor_export. Fails: MF_EREADONLY for a read-only tensor; MF_EDTYPE for the others; MF_ECLOSED,
 * MF_ENOMEM. Threads: as mf_tensor_export. Standard: DLPack 1.3, DLManagedTensor (deprecated there). */
MF_API int mf_tensor_export_legacy(mf_tensor *t, DLManagedTensor **out, mf_error *err);

/* mf_export_delete_later(managed): makes the deleter of ${managed}, which this library exported, run no foreign code:
 * it returns its reference as mf_tensor_release_later does. Call this for a consumer that may call the deleter where
 * no foreign code may run. A struct of another library is left as it is.
 * Owns: nothing moves. Fails: never. Threads: any, before the struct is given to its taker. Standard: none. */
MF_API void mf_export_delete_later(DLManagedTensorVersioned *managed);

/* mf_export_delete_later_legacy(managed): as mf_export_delete_later, for the struct before 1.0.
 * Owns: nothing moves. Fails: never. Threads: as mf_export_delete_later. Standard: none. */
MF_API void mf_export_delete_later_legacy(DLManagedTensor *managed);

/* What a consumer asks for. All zeros mean: on the same device, copied only if needed, on the current stream. */

typedef enum mf_copy {
  MF_COPY_IF_NEEDED = 0, /* None */
  MF_COPY_NEVER = 1,     /* False */
  MF_COPY_ALWAYS = 2     /* True */
} mf_copy;

/* A number that stands for a stream of a device; 0 is the calling thread's current one. See Streams. */
typedef int64_t mf_stream;

typedef struct mf_request {
  DLDevice device;  /* the target; device_type 0: the tensor's own device */
  int32_t copy;     /* an mf_copy */
  int32_t zero;     /* must be 0 */
  mf_stream stream; /* the stream on which it is used: of the target, or of the source if the target has none;
                       MF_STREAM_HOST for the cpu, where 0 means the same */
} mf_request;

/* mf_tensor_to(t, request, out, err): makes ${t} available on another device: as itself, as a view under another label
 * if the memory is the same (pinned as cpu, managed as cpu or as any GPU), or as a compact copy that is made on the
 * stream. A copy to the CPU is complete on return; so is the reading of pageable host memory.
 * Owns: ${out} is the caller's reference. A foreign stream must live until the memory of ${out} is released. Fails:
 * MF_ELAYOUT if MF_COPY_NEVER is asked for and a copy is needed, MF_EDEVICE, MF_EINVAL, MF_ECLOSED, MF_ECAPTURE,
 * MF_EDRIVER, MF_ENOMEM. Threads: any. Standard: array API 2025.12, from_dlpack, device and copy. */
MF_API int mf_tensor_to(mf_tensor *t, const mf_request *request, mf_tensor **out, mf_error *err);

/* mf_tensor_export_to(t, request, out, err): mf_tensor_to and mf_tensor_export in one call; a copy has the flag
 * IS_COPIED. The memory is ready on request->stream, and counts as in use there until the deleter is called: for
 * writing, unless it is read-only. With MF_STREAM_NO_ORDER nothing is ordered: the consumer itself must wait for the
 * producer, and finish its work before it calls the deleter.
 * Owns: as mf_tensor_export. A foreign stream must live until the deleter was called, and while it is being captured.
 * Fails: as mf_tensor_to. Threads: any; the deleter, too. Standard: array API 2025.12, __dlpack__. */
MF_API int mf_tensor_export_to(mf_tensor *t, const mf_request *request, DLManagedTensorVersioned **out,
                               mf_error *err);

/* mf_tensor_export_legacy_to(t, request, out, err): as mf_tensor_export_to, with the struct before 1.0.
 * Owns: as mf_tensor_export_to. Fails: as mf_tensor_export_to and mf_tensor_export_legacy. Threads: any. Standard: as
 * mf_tensor_export_legacy. */
MF_API int mf_tensor_export_legacy_to(mf_tensor *t, const mf_request *request, DLManagedTensor **out,
                                      mf_error *err);

/* mf_tensor_borrow(t, out, err): fills ${out} with the description, without an allocation. A device's memory may be
 * used by work that the caller queues on the current stream before its next call of this library.
 * Owns: borrowed; it lives as long as ${t}. Fails: MF_ECLOSED; MF_EREADONLY and MF_EDTYPE as mf_tensor_export_legacy,
 * because a DLTensor cannot carry flags; as mf_tensor_acquire. Threads: any. Standard: DLPack 1.3,
 * DLPackDLTensorFromPyObjectNoSync. */
MF_API int mf_tensor_borrow(const mf_tensor *t, DLTensor *out, mf_error *err);

/* Devices. */

/* mf_device_count(device_type, out, err): sets ${out} to the number of devices of the DLDeviceType ${device_type}.
 * Owns: nothing. Fails: MF_EDEVICE if there are none; the message says why. Threads: any. Standard: DLPack 1.3,
 * DLDeviceType. */
MF_API int mf_device_count(int32_t device_type, int32_t *out, mf_error *err);

/* mf_device_of_pointer(device_type, ptr, out, err): asks the driver where ${ptr} lies: on a GPU, in pinned or in
 * managed memory. ${device_type} is any device type of that driver (such as kDLCUDA or kDLROCM). If the call fails,
 * ${out} is the CPU.
 * Owns: nothing. Fails: MF_EINVAL for a pointer that the driver does not know, MF_EDEVICE, MF_EDRIVER. Threads: any.
 * Standard: CUDA array interface 3, data. */
MF_API int mf_device_of_pointer(int32_t device_type, const void *ptr, DLDevice *out, mf_error *err);

/* mf_device_synchronize(device, err): waits until all work queued on ${device} is done, whoever queued it, and returns
 * the memory that waited for it (see mf_pool_trim). For pinned and managed memory it waits for each GPU of the driver
 * that this library uses. If anyone is capturing a stream of a GPU that is waited for, this call breaks the capture and
 * fails. No other function of this library waits for a whole device.
 * Owns: nothing. Fails: MF_EDEVICE, MF_ECAPTURE, MF_EDRIVER. Threads: any. Standard: none. */
MF_API int mf_device_synchronize(const DLDevice *device, mf_error *err);

/* mf_device_parse(name, out, err): reads "cpu", or a device type's name with an ordinal, such as "cuda:1". It does not
 * check whether the device exists.
 * Owns: nothing. Fails: MF_EDEVICE for an unknown name. Threads: any. Standard: DLPack 1.3, DLDevice. */
MF_API int mf_device_parse(const char *name, DLDevice *out, mf_error *err);

/* mf_device_format(device, buf, cap, err): writes the name that mf_device_parse reads; for a device type without a
 * name, "type:id" in numbers.
 * Owns: nothing. Fails: MF_EINVAL if ${cap} is too small (32 suffice). Threads: any. Standard: DLPack 1.3, DLDevice. */
MF_API int mf_device_format(const DLDevice *device, char *buf, size_t cap, mf_error *err);

/* Streams: the order in which a device does queued work. */

/* A stream is a number that belongs to a device: one of the names below, or the driver's own handle (CUstream,
 * cudaStream_t, hipStream_t) as an integer. It is a value, which can be copied freely. Every function here keeps one
 * rule: after an exchange, work queued on the consumer's stream sees what the producer's streams wrote before, and the
 * host waits only if it is the consumer. Each memory has a record of the streams that read and wrote it; an operation
 * on another stream waits for those that it must, on the device, by an event.
 * A stream that a consumer named must live until its deleter was called; one that was made current or acquired, until
 * the memory is released. If it is destroyed earlier and the driver notices, the next use of the memory that has to
 * wait for it fails with MF_EINVAL, until mf_device_synchronize has waited for its work. */
#define MF_STREAM_CURRENT ((mf_stream)0)    /* the calling thread's current stream; mf_stream_swap changes it */
#define MF_STREAM_DEFAULT ((mf_stream)1)    /* the legacy default stream, which is current at first */
#define MF_STREAM_PER_THREAD ((mf_stream)2) /* the calling thread's own default stream, for which it waits at its end */
#define MF_STREAM_NO_ORDER ((mf_stream)-1)  /* as a consumer: nothing is ordered, and nothing is recorded */
#define MF_STREAM_HOST ((mf_stream)-2)      /* as a consumer: the host, which waits */

/* MF_STREAM_DEFAULT or MF_STREAM_PER_THREAD of one GPU, by its device_id. Pinned and managed memory may be used on the
 * streams of any GPU; a name alone means there that of the GPU which was current when the memory was made. */
#define MF_STREAM_OF(device_id, name) (-4096 - 4 * (mf_stream)(device_id) - (name))

/* mf_stream_create(device, out, err): makes a new stream, which does not wait for the legacy default stream.
 * Owns: the caller must destroy it with mf_stream_destroy. Fails: MF_EDEVICE, MF_EDRIVER, MF_ENOMEM. Threads: any.
 * Standard: none. */
MF_API int mf_stream_create(const DLDevice *device, mf_stream *out, mf_error *err);

/* mf_stream_destroy(device, stream, err): destroys a stream that mf_stream_create made. Its queued work goes on. The
 * driver's stream is kept for the next mf_stream_create, so memory that it used may be released later.
 * Owns: the stream is gone. Fails: MF_EINVAL for a stream that mf_stream_create did not make or that was destroyed.
 * Threads: any; no thread may still have it as its current stream. Standard: none. */
MF_API int mf_stream_destroy(const DLDevice *device, mf_stream stream, mf_error *err);

/* mf_stream_check(device, stream, err): checks that ${stream} is a name, or a living handle of the device's primary
 * context.
 * Owns: nothing. Fails: MF_EINVAL, whose message says what it is; MF_EDEVICE, MF_EDRIVER. Threads: any. Standard:
 * none. */
MF_API int mf_stream_check(const DLDevice *device, mf_stream stream, mf_error *err);

/* mf_stream_current(device, out, err): returns the calling thread's current stream of ${device} in ${out}: a name or a
 * handle, never MF_STREAM_CURRENT.
 * Owns: nothing. Fails: MF_EDEVICE. Threads: each has its own. Standard: DLPack 1.3, DLPackCurrentWorkStream. */
MF_API int mf_stream_current(const DLDevice *device, mf_stream *out, mf_error *err);

/* mf_stream_swap(device, stream, old, err): makes ${stream} the calling thread's current stream; ${old} (may be NULL)
 * becomes the previous one.
 * Owns: a foreign ${stream} must live while it is current, and until memory that it used is released. Fails: as
 * mf_stream_check; MF_EINVAL for MF_STREAM_NO_ORDER and MF_STREAM_HOST. Threads: each has its own. Standard: none. */
MF_API int mf_stream_swap(const DLDevice *device, mf_stream stream, mf_stream *old, mf_error *err);

/* mf_stream_synchronize(device, stream, err): waits until all work queued on ${stream} is done, and returns the memory
 * that waited for it.
 * Owns: nothing. Fails: MF_EINVAL, MF_EDEVICE, MF_ECAPTURE, MF_EDRIVER. Threads: any. Standard: none. */
MF_API int mf_stream_synchronize(const DLDevice *device, mf_stream stream, mf_error *err);

/* mf_stream_query(device, stream, out, err): sets ${out} to 1 if all work queued on ${stream} is done, otherwise to 0.
 * Owns: nothing. Fails: as mf_stream_synchronize. Threads: any. Standard: none. */
MF_API int mf_stream_query(const DLDevice *device, mf_stream stream, int32_t *out, mf_error *err);

/* mf_stream_wait(device, stream, other_device, other, err): makes work that is queued on ${stream} from now on wait
 * for the work that was queued on ${other} until now. The host does not wait.
 * Owns: nothing. Fails: MF_EINVAL for devices of two different drivers, MF_EDEVICE, MF_EDRIVER, MF_ECAPTURE if one is
 * being captured and the other is not in the same capture. Threads: any. Standard: none. */
MF_API int mf_stream_wait(const DLDevice *device, mf_stream stream, const DLDevice *other_device, mf_stream other,
                          mf_error *err);

/* Work that the caller queues itself. */

typedef enum mf_use { MF_READ = 1, MF_WRITE = 2 } mf_use;

/* mf_tensor_acquire(t, stream, use, err): call this before you queue work of your own on the memory of ${t}. ${stream}
 * then waits until it may read (MF_READ) or also write (MF_WRITE) the memory, and is added to the memory's record:
 * later uses on other streams, and the release of the memory, wait for the work that is on ${stream} by then. This
 * lasts until another stream or the host writes the memory, and for MF_WRITE until another stream or the host uses it
 * at all; after that, acquire again. With MF_STREAM_HOST the host waits, and may use the memory until the next
 * operation on it. ${stream} belongs to the device of ${t}; for pinned and managed memory, to any device of that
 * driver.
 * Owns: a foreign ${stream} must live until the memory is released. Fails: MF_EINVAL, MF_EREADONLY, MF_ECLOSED,
 * MF_ECAPTURE, MF_EDRIVER; MF_EDEVICE if the host may not use managed memory while the device works (CUDA:
 * CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0). Threads: any; queue the work before another thread uses ${t}.
 * Standard: none. */
MF_API int mf_tensor_acquire(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err);

/* mf_tensor_record(t, stream, use, err): as mf_tensor_acquire, but ${stream} does not wait. Call this after work that
 * uses the memory of ${t} was queued there.
 * Owns: as mf_tensor_acquire. Fails: MF_EINVAL, also for a name that is not a stream; MF_ENOMEM. Threads: any.
 * Standard: none. */
MF_API int mf_tensor_record(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err);

/* mf_tensor_is_ordered(t): returns 1 if the memory of ${t} has a record, because a driver knows it (whatever device
 * ${t} names) or because it has fences (mf_tensor_fence); 0 for other host memory, which the host may use without
 * mf_tensor_acquire.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_tensor_is_ordered(const mf_tensor *t);

/* Fences: host memory that a queue of another API still uses. */

/* A point in a queue that this library does not know, such as OpenGL's, Vulkan's or an engine's own. Both functions
 * are plain C: they call no interpreter and do not use the memory. They may be called on any thread that uses the
 * memory, and `wait` on several at once. */
typedef struct mf_fence {
  void *ctx;
  uint64_t value; /* the functions' own, such as a GLsync, or the value of a timeline */
  /* Waits for ${ns} nanoseconds at most; 0 only asks. Returns 0 if the point was reached, also when asked again; 1 if
   * not yet; a negative number if it cannot be known on this thread. */
  int32_t (*wait)(void *ctx, uint64_t value, int64_t ns);
  /* Gives the fence back: once, right after `wait` returned 0, on the same thread. May be NULL. */
  void (*drop)(void *ctx, uint64_t value);
} mf_fence;

/* mf_tensor_fence(t, fence, use, err): marks the memory of ${t} as in use until ${fence} is reached: it is read there
 * (MF_READ), or also written (MF_WRITE). The memory must not belong to a GPU's driver. From now on whatever reads the
 * memory (get, copies from it, exports, mf_tensor_acquire for MF_READ) first waits for fences of MF_WRITE, and
 * whatever may write it waits for all fences. The memory ends, and its release callback or deleter is called, when all
 * fences are done: if the last release may not wait, in a later mf_tensor_release, mf_tensor_release_later or
 * mf_releases_run on a thread that may. Pointers that were taken earlier do not wait. If ${fence} is NULL, nothing
 * waits yet, but the memory counts as ordered (mf_tensor_is_ordered) from now on.
 * Owns: on MF_OK the fence is the library's until it is dropped; on failure the caller's. Fails: MF_EINVAL for another
 * ${use}, a fence without `wait`, memory that a driver knows; MF_ENOMEM. Afterwards uses of the memory can fail with
 * MF_EINVAL, if the calling thread cannot wait for a fence; the message names the thread that set it. Threads: any.
 * Standard: none. */
MF_API int mf_tensor_fence(mf_tensor *t, const mf_fence *fence, int32_t use, mf_error *err);

/* mf_tensor_fence_wait(t, use, ns, out, err): waits, at most ${ns} nanoseconds for each fence, until the host may read
 * the memory of ${t} (MF_READ) or also write it (MF_WRITE). ${out} becomes 1 if it may, otherwise 0. ${ns} 0 does not
 * wait; INT64_MAX waits without a limit.
 * Owns: nothing. Fails: MF_EINVAL for another ${use}, a negative ${ns}, memory that a driver knows, and if this thread
 * cannot wait for a fence. Threads: any. Standard: none. */
MF_API int mf_tensor_fence_wait(const mf_tensor *t, int32_t use, int64_t ns, int32_t *out, mf_error *err);

/* mf_fence_epoch(): returns the address of a number that changes whenever some memory begins to count as ordered
 * because of mf_tensor_fence, or is taken back by mf_tensor_invalidate. It is for a language that keeps pointers to
 * elements: a pointer to memory that was not ordered may be used as long as the number is what it was before
 * mf_tensor_is_ordered was called.
 * Owns: the number lives as long as the library; the caller must not write it. Fails: never. Threads: any. Standard:
 * none. */
MF_API const uint32_t *mf_fence_epoch(void);

/* Rings: several memories that are used in turn, so that one is written while others are still drawn. */

typedef struct mf_ring mf_ring;

#define MF_RING_MAX 64

/* mf_ring_create(slots, n, out, err): makes a ring of the ${n} tensors in ${slots} (1 to MF_RING_MAX), which are plain
 * host memory and count as ordered from now on. One thread at a time may write, and one may read. If both are the same
 * thread, such as a renderer: mf_ring_begin, write, draw, mf_ring_end with a fence behind the drawing. If a worker
 * writes for a renderer: the worker calls mf_ring_begin, writes, mf_ring_publish; the renderer calls mf_ring_latest,
 * draws, mf_ring_fence. With four slots neither waits for the other: one is written, one is the latest, one is drawn,
 * one waits for its fence. None of these calls takes a lock or allocates (except for a memory's fifth simultaneous
 * fence). A fence that is asked within one of them may call them, too; while a slot is given a fence it can neither be
 * given back, nor leave the reader.
 * Owns: ${out} is the caller's reference; the ring has one to each slot. Fails: MF_EINVAL for another ${n}, for slots
 * that overlap or are views of one memory, for memory that a driver knows; MF_ECLOSED, MF_ENOMEM. Threads: any.
 * Standard: none. */
MF_API int mf_ring_create(mf_tensor *const *slots, int32_t n, mf_ring **out, mf_error *err);

/* mf_ring_retain(r): adds one reference to ${r}, such as for another thread, and returns ${r}. NULL is allowed.
 * Owns: the new reference is the caller's. Fails: never. Threads: any. Standard: none. */
MF_API mf_ring *mf_ring_retain(mf_ring *r);

/* mf_ring_release(r): returns one reference. The last one frees the ring and releases its slots; each lives until its
 * fences are done. NULL is allowed.
 * Owns: the caller's reference is gone. Fails: never. Threads: any. Standard: none. */
MF_API void mf_ring_release(mf_ring *r);

/* mf_ring_count(r): returns the number of slots.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_ring_count(const mf_ring *r);

/* mf_ring_slot(r, i): returns slot ${i}, counted from 0; NULL if there is none.
 * Owns: borrowed from the ring. Fails: never. Threads: any. Standard: none. */
MF_API mf_tensor *mf_ring_slot(const mf_ring *r, int32_t i);

/* mf_ring_begin(r, ns, slot, err): sets ${slot} to the slot to write next: the one that has been free for longest. If
 * no other slot is free, it is the latest one, if the reader has not taken that; otherwise the call waits, at most
 * ${ns} nanoseconds (INT64_MAX: without a limit), for the fence of the slot that was given back first. If this thread
 * cannot wait for that fence, the reader's mf_ring_latest checks it, and this call looks again until the time is over.
 * Owns: the slot's elements are the writer's until mf_ring_end or mf_ring_publish. ${slot} is -1 after a failure.
 * Fails: MF_EINVAL while a slot is being written and for a negative ${ns}; MF_ETIMEOUT. Threads: one writer at a time.
 * Standard: none. */
MF_API int mf_ring_begin(mf_ring *r, int64_t ns, int32_t *slot, mf_error *err);

/* mf_ring_end(r, fence, use, err): ends the writing that mf_ring_begin started, and puts the slot at the end of the
 * ring. It stays in use until ${fence} is done (NULL: it is free at once), for MF_READ or MF_WRITE as in
 * mf_tensor_fence.
 * Owns: as mf_tensor_fence. Fails: MF_EINVAL if no slot is being written, and as mf_tensor_fence; the slot is then
 * still being written. Threads: the writer. Standard: none. */
MF_API int mf_ring_end(mf_ring *r, const mf_fence *fence, int32_t use, mf_error *err);

/* mf_ring_publish(r, err): ends the writing that mf_ring_begin started, and makes the slot the latest. If the reader
 * did not take the previous latest slot, that is free again.
 * Owns: the slot's elements are the reader's from then on; what was written before is visible to it. Fails: MF_EINVAL
 * if no slot is being written. Threads: the writer. Standard: none. */
MF_API int mf_ring_publish(mf_ring *r, mf_error *err);

/* mf_ring_latest(r, slot, fresh, err): sets ${slot} to the slot that was published last; -1 if none was. ${fresh} (may
 * be NULL) becomes 1 if it differs from the last call's. The reader's previous slot goes back, and is free when its
 * fences are done. Never waits.
 * Owns: the slot's elements are the reader's until the next call finds a fresh one. Fails: MF_EINVAL for NULL.
 * Threads: one reader at a time. Standard: none. */
MF_API int mf_ring_latest(mf_ring *r, int32_t *slot, int32_t *fresh, mf_error *err);

/* mf_ring_fence(r, fence, use, err): calls mf_tensor_fence for the reader's slot.
 * Owns: as mf_tensor_fence. Fails: MF_EINVAL if the reader has no slot, and as mf_tensor_fence. Threads: the reader.
 * Standard: none. */
MF_API int mf_ring_fence(mf_ring *r, const mf_fence *fence, int32_t use, mf_error *err);

/* OpenGL's sync objects as fences. */

typedef struct mf_gl mf_gl; /* one context of OpenGL's */

/* The program's OpenGL functions, as SDL_GL_GetProcAddress and the like find them. */
typedef struct mf_gl_calls {
  void *(*fence_sync)(uint32_t condition, uint32_t flags);                        /* glFenceSync */
  uint32_t (*client_wait_sync)(void *sync, uint32_t flags, uint64_t timeout_ns); /* glClientWaitSync */
  void (*delete_sync)(void *sync);                                                /* glDeleteSync */
  void *(*current_context)(void); /* eglGetCurrentContext, SDL_GL_GetCurrentContext, glXGetCurrentContext ... */
} mf_gl_calls;

/* mf_gl_create(calls, out, err): makes an object for the context that is current on the calling thread, from which
 * fences can be made.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL if none is current or a function is NULL, MF_ENOMEM.
 * Threads: the one that the context is current on. Standard: OpenGL 4.6, 4.1. */
MF_API int mf_gl_create(const mf_gl_calls *calls, mf_gl **out, mf_error *err);

/* mf_gl_release(gl): returns the reference. Fences that were made stay valid. NULL is allowed.
 * Owns: the caller's reference is gone. Fails: never. Threads: any. Standard: none. */
MF_API void mf_gl_release(mf_gl *gl);

/* mf_gl_end(gl): call this before the context is destroyed and after glFinish: all its fences then count as done on
 * every thread, and OpenGL is not called for them any more.
 * Owns: nothing. Fails: never. Threads: any; none may be inside a fence's wait. Standard: none. */
MF_API void mf_gl_end(mf_gl *gl);

/* mf_gl_fence(gl, out, err): makes a fence behind all drawing commands that the context got until now, for
 * mf_ring_end, mf_ring_fence or mf_tensor_fence. Only threads on which the context is current can wait for it.
 * Owns: ${out} is the caller's, until one of those takes it or the caller calls out->drop. Fails: MF_EINVAL if the
 * context is not current here or has ended; MF_EDRIVER. Threads: those on which the context is current. Standard:
 * OpenGL 4.6, 4.1. */
MF_API int mf_gl_fence(mf_gl *gl, mf_fence *out, mf_error *err);

/* Memory of another graphics API as a GPU tensor. */

/* mf_tensor_from_fd(like, fd, nbytes, out, err): makes a GPU tensor over memory that another API exported as an opaque
 * file descriptor, as Vulkan's vkGetMemoryFdKHR does. ${nbytes} is the size of the whole allocation there. The tensor
 * is compact and has ${like}'s dtype, ndim, shape, device and byte_offset; data and strides are not read. The memory
 * must be ready on the current stream: wait for the other API's work first.
 * Owns: on MF_OK ${fd} is the library's, and the driver's import ends when the last tensor and export over the memory
 * are gone and their work is done. Fails: MF_EINVAL if the device is not a GPU, the tensor does not fit or the
 * descriptor is invalid; as mf_tensor_create; MF_EDEVICE for a driver without these calls; MF_EDRIVER if it cannot
 * import this memory, such as that of another GPU. Threads: any. Standard: CUDA Driver API, "External Resource
 * Interoperability"; HIP, the same. */
MF_API int mf_tensor_from_fd(const DLTensor *like, int32_t fd, uint64_t nbytes, mf_tensor **out, mf_error *err);

/* Semaphores of another graphics API, for a GPU's streams. */

typedef struct mf_semaphore mf_semaphore;

#define MF_SEMAPHORE_BINARY 1u /* signalled or not; without this flag a timeline, whose value rises */

/* mf_semaphore_from_fd(device, fd, flags, out, err): makes a semaphore for streams of ${device} (cuda:N or rocm:N)
 * from one that another API exported as an opaque file descriptor, as Vulkan's vkGetSemaphoreFdKHR does. ${flags} is 0
 * for a timeline, or MF_SEMAPHORE_BINARY.
 * Owns: on MF_OK ${fd} is the library's, and ${out} the caller's, until mf_semaphore_release. Fails: MF_EINVAL if the
 * device is not a GPU, for other flags, or if the descriptor is invalid; MF_EDEVICE if there is no such device, or the
 * driver lacks these calls: then the host must wait instead (mf_tensor_fence, mf_stream_synchronize); MF_EDRIVER if
 * the driver cannot import this one, as ROCm on Linux; MF_ENOMEM. Threads: any. Standard: CUDA Driver API, "External
 * Resource Interoperability"; HIP, the same. */
MF_API int mf_semaphore_from_fd(const DLDevice *device, int32_t fd, uint32_t flags, mf_semaphore **out, mf_error *err);

/* mf_semaphore_wait(s, stream, value, err): makes work that is queued on ${stream} from now on wait until the
 * semaphore has ${value} or more (a binary one: until it is signalled, which resets it). ${stream} then sees what the
 * other API wrote before; call mf_tensor_record for a memory so that other streams wait for ${stream}. The host never
 * waits. If nobody signals the value, ${stream} waits without end.
 * Owns: nothing. Fails: MF_EINVAL for a stream that does not belong to the device; MF_ECAPTURE while it is being
 * captured, because each launch would wait for the same value; MF_EDRIVER, MF_ENOMEM. Threads: any. Standard: the
 * same. */
MF_API int mf_semaphore_wait(mf_semaphore *s, mf_stream stream, uint64_t value, mf_error *err);

/* mf_semaphore_signal(s, stream, value, err): sets the semaphore to ${value}, which must be more than it has by then
 * (a binary one is signalled), when all work that was queued on ${stream} until now is done. Call mf_tensor_acquire
 * before, so that ${stream} waits for other streams that use a memory.
 * Owns: nothing. Fails: as mf_semaphore_wait. Threads: any. Standard: the same. */
MF_API int mf_semaphore_signal(mf_semaphore *s, mf_stream stream, uint64_t value, mf_error *err);

/* mf_semaphore_release(s): returns the semaphore to the driver when the work that was queued with it is done; nobody
 * waits for that. NULL is allowed.
 * Owns: ${s} is gone. Fails: never. Threads: any. Standard: the same. */
MF_API void mf_semaphore_release(mf_semaphore *s);

/* OpenGL's buffers as GPU tensors, and copies between GPU tensors and its textures. */

#define MF_GL_READ 1u    /* the GPU only reads it; a buffer's tensor is read-only */
#define MF_GL_DISCARD 2u /* the GPU writes all of it; the old content may be lost */

typedef struct mf_gl_buffer mf_gl_buffer; /* a buffer that is registered with a GPU's driver */

/* mf_gl_buffer_open(device, buffer, flags, out, err): registers OpenGL's ${buffer} with the driver of ${device}
 * (cuda:N or rocm:N). That is slow: do it once for a buffer, not in each frame. ${flags} is 0, MF_GL_READ or
 * MF_GL_DISCARD.
 * Owns: ${out} is the caller's, until mf_gl_buffer_close; the buffer must live and keep its storage until then. Fails:
 * MF_EINVAL; MF_EDEVICE if there is no such device, or the driver lacks these calls; MF_EDRIVER if no OpenGL context
 * is current here, it belongs to another GPU, or the buffer does not exist; MF_ENOMEM. Threads: the one that OpenGL's
 * context is current on. Standard: CUDA Driver API, "OpenGL Interoperability"; HIP, the same. */
MF_API int mf_gl_buffer_open(const DLDevice *device, uint32_t buffer, uint32_t flags, mf_gl_buffer **out,
                             mf_error *err);

/* mf_gl_buffer_map(b, stream, like, out, err): gives the buffer to the GPU; ${out} is a compact tensor over it, with
 * ${like}'s dtype, ndim, shape and byte_offset; the other fields are not read. Work that is queued on ${stream} from
 * now on, and later uses of the tensor on other streams, come after all earlier OpenGL commands.
 * Owns: ${out} is borrowed from ${b}, until mf_gl_buffer_unmap. OpenGL must not use the buffer until then. Fails:
 * MF_EINVAL if the buffer is mapped or in use by another thread's call, for another ${stream}, or if the tensor does
 * not fit; MF_ECAPTURE if ${stream} is being captured, and the capture goes on; MF_EDRIVER, MF_ENOMEM. Threads: as
 * mf_gl_buffer_open, one at a time. Standard: the same. */
MF_API int mf_gl_buffer_map(mf_gl_buffer *b, mf_stream stream, const DLTensor *like, mf_tensor **out, mf_error *err);

/* mf_gl_buffer_unmap(b, in_use, err): gives the buffer back to OpenGL: its next commands come after all recorded work
 * on the tensor. The stream of mf_gl_buffer_map waits for that work, and the host only where the driver fails to make
 * it wait. From now on the tensor, its views, and what came back of it through other libraries fail with MF_ECLOSED.
 * ${in_use} (may be NULL) becomes 1 if references, views or exports are alive; arrays of other libraries over the
 * memory must not be used any more.
 * Owns: references stay as they are. Fails: MF_EINVAL if the buffer is not mapped or another thread's call uses it;
 * MF_ECAPTURE while that stream, or one that used the tensor, is being captured: the buffer then stays mapped;
 * MF_EDRIVER: the buffer then is not mapped any more. Threads: as mf_gl_buffer_map, and the same for a per-thread
 * stream. Standard: the same. */
MF_API int mf_gl_buffer_unmap(mf_gl_buffer *b, int32_t *in_use, mf_error *err);

/* mf_gl_buffer_close(b, err): unmaps the buffer if necessary, and unregisters it. NULL is allowed.
 * Owns: ${b} is gone, also after MF_EDRIVER. Fails: MF_EDRIVER; MF_ECAPTURE, as mf_gl_buffer_unmap, and MF_EINVAL if
 * another thread's call uses it: ${b} then stays as it was. Threads: as mf_gl_buffer_open. Standard: the same. */
MF_API int mf_gl_buffer_close(mf_gl_buffer *b, mf_error *err);

typedef struct mf_gl_texture mf_gl_texture; /* a texture that is registered with a GPU's driver */

/* mf_gl_texture_open(device, texture, target, flags, out, err): registers OpenGL's ${texture}, bound as ${target} (0:
 * GL_TEXTURE_2D; GL_TEXTURE_RECTANGLE), with the driver of ${device} (cuda:N or rocm:N). That is slow: do it once for
 * a texture. The texture has one, two or four channels of 8, 16 or 32 bits (GL_R8 to GL_RGBA32F and the integer
 * formats; not sRGB, not three channels). ${flags} is 0, MF_GL_READ or MF_GL_DISCARD.
 * Owns: ${out} is the caller's, until mf_gl_texture_close; the texture must live and keep its storage until then.
 * Fails: as mf_gl_buffer_open. Threads: the one that OpenGL's context is current on. Standard: CUDA Driver API,
 * "OpenGL Interoperability"; HIP, the same. */
MF_API int mf_gl_texture_open(const DLDevice *device, uint32_t texture, uint32_t target, uint32_t flags,
                              mf_gl_texture **out, mf_error *err);

/* mf_gl_texture_upload(texture, t, x, y, stream, err): copies the elements of ${t} to level 0 of the texture, from
 * pixel ${x}, ${y} on. The shape of ${t} is height x width x channels (or height x width for one channel), red first;
 * its dtype is the texture's (uint8 for GL_RGBA8). Row 0 is OpenGL's lowest. Any strides are allowed; elements that
 * are not in compact rows on the device are first copied into such. The copy is queued on ${stream}: after earlier
 * OpenGL commands and earlier uses of ${t}, and before later OpenGL commands. The host does not wait. With
 * MF_GL_DISCARD the rest of the texture is undefined afterwards.
 * Owns: nothing. Fails: MF_EDTYPE, MF_EINVAL for a shape that does not fit, another ${stream}, a texture opened with
 * MF_GL_READ, or one that another thread's call uses; MF_ECAPTURE if ${stream} is being captured, and the capture goes
 * on; MF_ECLOSED, MF_EDRIVER, MF_ENOMEM. OpenGL has the texture back in each case. Threads: as mf_gl_texture_open.
 * Standard: the same. */
MF_API int mf_gl_texture_upload(mf_gl_texture *texture, mf_tensor *t, int64_t x, int64_t y, mf_stream stream,
                                mf_error *err);

/* mf_gl_texture_download(texture, t, x, y, stream, err): as mf_gl_texture_upload, from the texture to ${t}. A result
 * in pageable host memory is complete on return, so the host waits.
 * Owns: nothing. Fails: as mf_gl_texture_upload; MF_EREADONLY; MF_EINVAL for a texture that was opened with
 * MF_GL_DISCARD. Threads: as mf_gl_texture_open. Standard: the same. */
MF_API int mf_gl_texture_download(mf_gl_texture *texture, mf_tensor *t, int64_t x, int64_t y, mf_stream stream,
                                  mf_error *err);

/* mf_gl_texture_close(texture, err): unregisters the texture. NULL is allowed.
 * Owns: ${texture} is gone, also after MF_EDRIVER; after MF_EINVAL, because another thread's call uses it, it stays as
 * it was. Fails: those two. Threads: as mf_gl_texture_open. Standard: the same. */
MF_API int mf_gl_texture_close(mf_gl_texture *texture, mf_error *err);

/* Streams in the Python protocol. */

/* What __dlpack__(stream=None) means for memory of a GPU. For memory that the host reads, None means the host. */
typedef enum mf_none {
  MF_NONE_DEFAULT = 0,  /* the legacy default stream, as the array API says */
  MF_NONE_NO_ORDER = 1, /* as -1: no order at all; what a capture needs */
  MF_NONE_REFUSE = 2    /* an error */
} mf_none;

/* mf_stream_none_set(meaning, err): sets what None means from now on, in the whole process.
 * Owns: nothing. Fails: MF_EINVAL. Threads: any. Standard: array API 2025.12, __dlpack__, stream. */
MF_API int mf_stream_none_set(int32_t meaning, mf_error *err);

/* mf_stream_none(): returns the mf_none that is set.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_stream_none(void);

#define MF_NUMBER_NONE INT64_MIN

/* mf_stream_from_number(device, number, out, err): translates the ${number} that a consumer gave to __dlpack__
 * (MF_NUMBER_NONE for None) for memory on ${device}. It does not check a handle:
 *                          None       -1        0        1        2           above         below -1
 *   cpu                    host       host      refused  refused  refused     refused       refused
 *   cuda                   mf_none    no order  refused  default  per thread  a handle      refused
 *   cuda_host, managed     host       no order  refused  default  per thread  a handle      refused
 *   rocm                   mf_none    no order  default  refused  refused     a handle      refused
 *   rocm_host              host       no order  default  refused  refused     a handle      refused
 * Owns: nothing. Fails: MF_EINVAL; MF_EDEVICE for a device that has no streams here. Threads: any.
 * Standard: array API 2025.12, __dlpack__, stream. */
MF_API int mf_stream_from_number(const DLDevice *device, int64_t number, mf_stream *out, mf_error *err);

/* mf_stream_to_number(device, stream, out, err): returns in ${out} the number to pass to a producer's __dlpack__ so
 * that the memory is ready on ${stream}; MF_NUMBER_NONE for the CPU.
 * Owns: nothing. Fails: MF_EINVAL for ROCm's per-thread stream, which has no number; MF_EDEVICE. Threads: any.
 * Standard: as mf_stream_from_number. */
MF_API int mf_stream_to_number(const DLDevice *device, mf_stream stream, int64_t *out, mf_error *err);

/* Pools: released memory of a device is kept for the next tensor. */

typedef struct mf_pool_stats {
  int64_t used_bytes;   /* held by tensors */
  int64_t cached_bytes; /* kept for the next ones */
  int64_t limit_bytes;  /* the limit of both together; 0: none */
  int64_t deferred;     /* released memories that wait for queued work */
  int64_t hits, misses; /* allocations that the cache served, and that called the driver */
} mf_pool_stats;

/* mf_pool_read(device, out, err): fills ${out} for the memory of ${device} (a GPU, or pinned or managed memory).
 * Owns: nothing. Fails: MF_EDEVICE. Threads: any. Standard: none. */
MF_API int mf_pool_read(const DLDevice *device, mf_pool_stats *out, mf_error *err);

/* mf_pool_limit(device, nbytes, err): limits living tensors and cache together to ${nbytes}; 0 removes the limit. An
 * allocation that would exceed it first empties the cache, and then fails with MF_ENOMEM.
 * Owns: nothing. Fails: MF_EINVAL for a negative limit, MF_EDEVICE. Threads: any. Standard: none. */
MF_API int mf_pool_limit(const DLDevice *device, int64_t nbytes, mf_error *err);

/* mf_pool_trim(device, err): returns everything that is not in use to the driver: cached memory, kept streams and
 * events, the staging buffers; and calls the deleters whose awaited work is done. If nothing of this library is then
 * left on any device of the driver, it also returns the driver's memory pools, kernels and primary contexts, which the
 * next use makes anew. This library waits for no stream's work; a driver may do so when it frees pinned memory, and
 * does if it has no memory pools. The end of the process does the same by itself, but calls no deleter and waits at
 * most a tenth of a second. ROCm may drop the work of a stream that is destroyed: there, a kept stream stays until a
 * trim finds its work done. The frees that a trim has queued on it are such work.
 * Owns: nothing. Fails: MF_EDEVICE, MF_EDRIVER. Threads: any. Standard: none. */
MF_API int mf_pool_trim(const DLDevice *device, mf_error *err);

/* mf_pools_trim(wait_ms, err): calls mf_pool_trim for every device of the drivers that this process has opened; it
 * opens none. What released memory and kept streams wait for has ${wait_ms} milliseconds to end, so that deleters are
 * called before the language that they need ends; 0 does not wait.
 * Owns: nothing. Fails: with the first failure, MF_EDRIVER; MF_EINVAL. Threads: any. Standard: none. */
MF_API int mf_pools_trim(int32_t wait_ms, mf_error *err);

/* A guest: a language that another one started in this process, as moonferry.python starts Python. These functions let
 * an engine that embeds Lua control it without a Lua state. */

typedef struct mf_guest {
  int (*collect)(mf_error *err);                                /* see mf_guest_collect */
  int (*finish)(int32_t wait_ms, int32_t *late, mf_error *err); /* see mf_guest_finish */
  void (*leave)(void); /* may be NULL; the main thread ends the process, before any library is torn down */
} mf_guest;

/* mf_guest_set(guest): sets the guest, for the binding that starts the language; NULL removes it. Returns 1 if
 * ${leave} will be called (with glibc, if the main thread loaded this library), otherwise 0.
 * Owns: ${guest} must stay. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_guest_set(const mf_guest *guest);

/* mf_guest_collect(err): makes the guest release at once the objects that its host has dropped, such as views of an
 * engine's memory that a closed Lua state held. Without a guest it does nothing.
 * Owns: nothing. Fails: never so far. Threads: any that may wait for the guest; deleters and finalizers run here.
 * Standard: none. */
MF_API int mf_guest_collect(mf_error *err);

/* mf_guest_finish(wait_ms, late, err): ends the guest on this thread, before the process exits. No new call can enter
 * it. Calls that are inside, and those of its own threads that it would wait for, have ${wait_ms} milliseconds to come
 * out; then its exit functions run. Threads that are still inside are left behind; ${late} (may be NULL) becomes their
 * number. A second call does nothing, nor does a call without a guest.
 * Owns: nothing. Fails: MF_EINVAL for a negative ${wait_ms}, and from inside a call of the guest. Threads: any.
 * Standard: none. */
MF_API int mf_guest_finish(int32_t wait_ms, int32_t *late, mf_error *err);

/* The library itself: which one it is, what is alive, where its memory comes from. */

/* mf_version_string(): returns the version of the loaded library, "major.minor.patch".
 * Owns: static storage. Fails: never. Threads: any. Standard: none. */
MF_API const char *mf_version_string(void);

/* mf_build_id(): returns an identifier of the runtime sources and the header that the loaded library was built from. A
 * binding compares it with its own, so that two different builds in one process are refused.
 * Owns: static storage. Fails: never. Threads: any. Standard: none. */
MF_API const char *mf_build_id(void);

/* What is alive in this process. All fields are zero after a program has released everything. */
typedef struct mf_ledger {
  int64_t tensors;  /* live mf_tensor objects; an export keeps its tensor alive */
  int64_t storages; /* live memory blocks: allocated, wrapped or imported */
  int64_t bytes;    /* bytes of element memory that live storages hold, others' memory included, modulo 2^64 */
  int64_t blocks;   /* live blocks of Moonferry's host allocator, descriptions included */
} mf_ledger;

/* mf_ledger_read(out): fills ${out}.
 * Owns: nothing. Fails: never. Threads: any; exact when no other thread is inside the library. Standard: none. */
MF_API void mf_ledger_read(mf_ledger *out);

/* Has the signature of Lua's allocator: ptr NULL allocates, new_nbytes 0 frees and returns NULL. It must be
 * thread-safe and return memory aligned as malloc does, or NULL. */
typedef void *(*mf_realloc_fn)(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes);

/* mf_allocator_set(fn, ctx, err): makes all host memory of the library come from ${fn} from now on; NULL restores
 * malloc.
 * Owns: ${ctx} stays the caller's and must outlive every block. Fails: MF_EINVAL while any block is alive. Threads:
 * before any other use. Standard: none. */
MF_API int mf_allocator_set(mf_realloc_fn fn, void *ctx, mf_error *err);

/* mf_fault_arm(nth, sticky): for tests: makes the ${nth} allocation from now on this thread fail (0 is the next one),
 * and with ${sticky} every later one, too. A negative ${nth} disarms.
 * Owns: nothing. Fails: never. Threads: the calling one. Standard: none. */
MF_API void mf_fault_arm(int64_t nth, int32_t sticky);

/* mf_fault_hits(): returns how many allocations mf_fault_arm has made fail on this thread since it was armed.
 * Owns: nothing. Fails: never. Threads: the calling one. Standard: none. */
MF_API int64_t mf_fault_hits(void);

#ifdef __cplusplus
}
#endif

#endif /* MOONFERRY_H */
