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
 *   Status      A function that can fail returns MF_OK (0) or a negative mf_status and takes an mf_error *
 *               last (NULL is allowed), which is written on failure only. After a failure every output
 *               pointer is NULL, every input is as it was, and no ownership has moved.
 *   Ownership   Create, wrap, import, view and retain each give one reference, and release returns it.
 *               A function that takes an argument over takes it only when it returns MF_OK. A borrowed
 *               pointer lives until the tensor that it came from is released. The deleter of an exported
 *               tensor is plain C: it runs on any thread, needs no interpreter and no lock.
 *   Callbacks   Deleters of imported structs and release callbacks of wrapped memory run within
 *               mf_tensor_release, the deleter of an exported struct, mf_releases_run, mf_pool_trim,
 *               mf_pools_trim, mf_stream_synchronize and mf_device_synchronize, and within no other
 *               function: elsewhere they become due, and the next of these calls runs them. They must
 *               return, and may call this library. mf_release_mark and mf_release_defer are none of them, but ours.
 *   Threads     A tensor's description never changes, so every function may be called on any thread and on
 *               one tensor from several threads at once. Its elements are the caller's to guard: two
 *               threads that write the same bytes race, as with memcpy.
 *   Pointers    NULL is MF_EINVAL where a pointer is needed, and the message names the argument; a function
 *               without a status then does nothing, or returns 0 or NULL. Other pointers must be good for what
 *               the signature says; C cannot check that. In an imported struct that goes for the struct,
 *               `shape`, `strides`, `data` over the declared extent and `deleter`: a producer's pointers are
 *               trusted, its numbers are not.
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

/* A flag of mf_tensor_create, of ours and not of DLPack's: memory of the cpu in whole pages of the system's, beginning
 * at one, as VK_EXT_external_memory_host and GL_AMD_pinned_memory import it. */
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
  MF_ECAPTURE = -12, /* a stream is being captured into a graph, and this cannot be part of it */
  MF_ETIMEOUT = -13  /* what was waited for did not happen in the time that was given */
} mf_status;

typedef struct mf_error {
  int32_t status;      /* an mf_status */
  int32_t driver_code; /* the driver's own number where a driver call failed, else 0 */
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

/* mf_dtype_parse(name, out, err): ${name} to ${out}.
 * Owns: nothing. Fails: MF_EDTYPE for a name that is none. Threads: any. Standard: DLPack 1.3, DLDataType. */
MF_API int mf_dtype_parse(const char *name, DLDataType *out, mf_error *err);

/* mf_dtype_format(dtype, buf, cap, err): writes the name of ${dtype} and a terminating 0 to ${buf}.
 * Owns: nothing. Fails: MF_EDTYPE for no dtype of DLPack 1.3, MF_EINVAL if ${cap} is too small (32 is enough).
 * Threads: any. Standard: DLPack 1.3, DLDataType. */
MF_API int mf_dtype_format(const DLDataType *dtype, char *buf, size_t cap, mf_error *err);

/* mf_dtype_bits(dtype, flags): bits from one element to the next in compact memory. A dtype narrower than a byte is
 * packed, bits x lanes apart from the least significant bit on, unless ${flags} has
 * DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED; everything else takes whole bytes.
 * Owns: nothing. Fails: never; a dtype that is none gives a number that means nothing. Threads: any. Standard:
 * DLPack 1.3, DLDataType and the sub-byte flag. */
MF_API int64_t mf_dtype_bits(const DLDataType *dtype, uint64_t flags);

typedef enum mf_kind {
  MF_KIND_BOOL = 0,
  MF_KIND_INT = 1,
  MF_KIND_UINT = 2,
  MF_KIND_FLOAT = 3,
  MF_KIND_COMPLEX = 4
} mf_kind;

/* One element's value, whatever its dtype. Every dtype with lanes 1 but handles converts to it exactly. */
typedef struct mf_scalar {
  int32_t kind; /* an mf_kind: says which members below count */
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

/* Runs once, when the last tensor and the last export over wrapped memory are gone, on whichever thread
 * dropped it: a thread of Python's among them, where no context of a graphics API is current. What only one thread
 * may do is handed on from here, by mf_release_mark or mf_release_defer. It may call this library. */
typedef void (*mf_release_fn)(void *ctx);

/* mf_release_mark(ctx): an mf_release_fn for languages that cannot be called back from C: sets the int32_t that
 * ${ctx} points to, to 1. What was written to the memory before is then visible.
 * Owns: ${ctx} is the caller's from then on. Fails: never. Threads: any. Standard: none. */
MF_API void mf_release_mark(void *ctx);

/* Release callbacks that wait for the thread that may run them, such as a renderer's: a list of the program's, empty
 * while it is zero, and an entry in the program's memory for each wrapped memory, with what to call there. */
typedef struct mf_release_list {
  struct mf_release_entry *first; /* the library's */
} mf_release_list;

typedef struct mf_release_entry {
  mf_release_fn release;
  void *ctx;
  mf_release_list *list;
  struct mf_release_entry *next; /* the library's */
} mf_release_entry;

/* mf_release_defer(entry): an mf_release_fn, to give to mf_tensor_wrap with an mf_release_entry as its ctx: puts that
 * into its list, and does nothing else.
 * Owns: the entry and its list must stay until mf_release_list_run has called its release. Fails: never. Threads: any;
 * takes no lock, allocates nothing. Standard: none. */
MF_API void mf_release_defer(void *entry);

/* mf_release_list_run(list): calls the release of each entry that is in ${list}, the first one first; returns how many.
 * A release may free its entry, and may call this library. What comes into the list meanwhile is for the next call.
 * Owns: the entries are the program's again. Fails: never. Threads: any; the functions run on the calling one.
 * Standard: none. */
MF_API int64_t mf_release_list_run(mf_release_list *list);

/* mf_tensor_create(like, flags, out, err): a new compact row-major tensor with ${like}'s dtype, ndim, shape and
 * device (device_type 0 means the CPU); the other fields are not read. Its elements are not initialised. ${flags}:
 * a sum of DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED and, on the cpu, MF_CREATE_PAGES. A GPU's memory is ready on the
 * current stream; pinned and managed memory at once.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL, MF_EDTYPE, MF_EOVERFLOW, MF_EDEVICE, MF_ENOMEM,
 * MF_EDRIVER, MF_ECAPTURE while the current stream is captured and no kept memory fits. Threads: any. Standard: data
 * is aligned to 256. */
MF_API int mf_tensor_create(const DLTensor *like, uint64_t flags, mf_tensor **out, mf_error *err);

/* mf_tensor_wrap(view, flags, release, ctx, out, err): a tensor over memory that is somebody else's, as ${view}
 * describes it: data + byte_offset is element 0, NULL strides mean compact row-major, device_type 0 the CPU.
 * ${flags}: any of READ_ONLY, IS_COPIED and IS_SUBBYTE_TYPE_PADDED. A device's memory is taken to be ready on the
 * current stream; mf_tensor_record adds other streams that still use it.
 * Owns: the memory must stay until ${release} (which may be NULL) is called with ${ctx}: once the last reference is
 * gone and what the record knows of is done, in a later call of this library if need be. On failure ${release} is
 * not called. Fails: as mf_dltensor_check, MF_ENOMEM. Threads: any. Standard: DLPack 1.3, DLTensor. */
MF_API int mf_tensor_wrap(const DLTensor *view, uint64_t flags, mf_release_fn release, void *ctx,
                          mf_tensor **out, mf_error *err);

/* mf_tensor_retain(t): one more reference to ${t}; returns ${t}. NULL is allowed.
 * Owns: the new reference is the caller's. Fails: never. Threads: any. Standard: none. */
MF_API mf_tensor *mf_tensor_retain(mf_tensor *t);

/* mf_tensor_release(t): returns one reference; the last one frees ${t}, and the memory with its last tensor. NULL is
 * allowed.
 * Owns: the caller's reference is gone. Fails: never. Threads: any, whoever made it. Standard: none. */
MF_API void mf_tensor_release(mf_tensor *t);

/* mf_tensor_release_later(t): the same for a caller below whom no foreign code may run, such as compiled code of a
 * language that a deleter may call. Returns 1 if a deleter or a release callback is due, of whichever memory: then
 * call mf_releases_run as soon as foreign code may run. Else 0.
 * Owns: the caller's reference is gone. Fails: never. Threads: any, whoever made it. Standard: none. */
MF_API int32_t mf_tensor_release_later(mf_tensor *t);

/* mf_releases_run(): calls the deleters and release callbacks that are due. What one of them makes due in its turn
 * is called after it, by the outermost call on this thread.
 * Owns: nothing. Fails: never. Threads: any; they run on the calling one. Standard: none. */
MF_API void mf_releases_run(void);

/* mf_tensor_invalidate(t, in_use, err): for an engine that takes its memory back. From now on every function that
 * would touch the memory of ${t} or of any tensor that shares it fails with MF_ECLOSED. ${in_use} (may be NULL)
 * becomes 1 if other references, views or exports are alive: those hold a raw pointer that nobody can revoke, so the
 * memory must then stay. The release callback still runs once, with the last reference.
 * Owns: references stay as they are. Fails: MF_EINVAL for memory that Moonferry allocated or imported. Threads: any,
 * but an operation that is already running on that memory goes on; make sure there is none. Standard: none. */
MF_API int mf_tensor_invalidate(mf_tensor *t, int32_t *in_use, mf_error *err);

/* mf_tensor_is_valid(t): 1, or 0 once the memory was invalidated.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_tensor_is_valid(const mf_tensor *t);

/* mf_tensor_dltensor(t): the description: data (of element 0), device, ndim, dtype, shape, strides (never NULL for
 * ndim > 0), byte_offset 0.
 * Owns: borrowed from ${t}; it never changes and must not be written. Fails: never. Threads: any. Standard: DLPack
 * 1.3, DLTensor. */
MF_API const DLTensor *mf_tensor_dltensor(const mf_tensor *t);

/* mf_tensor_flags(t): the DLPACK_FLAG_BITMASK_* bits of ${t}. READ_ONLY and IS_SUBBYTE_TYPE_PADDED go on to views
 * and exports; IS_COPIED is what the producer said of an imported tensor, and goes on to views only, because whoever
 * re-exports a tensor is one of its owners.
 * Owns: nothing. Fails: never. Threads: any. Standard: DLPack 1.3, DLManagedTensorVersioned.flags. */
MF_API uint64_t mf_tensor_flags(const mf_tensor *t);

/* mf_tensor_size(t): the product of the shape; 1 for ndim 0.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int64_t mf_tensor_size(const mf_tensor *t);

/* mf_tensor_nbytes(t): the bytes that ${t}'s elements take in compact form.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int64_t mf_tensor_nbytes(const mf_tensor *t);

/* mf_tensor_is_contiguous(t): 1 if ${t} is compact row-major. Strides of axes of extent 1 do not count, and a tensor
 * without elements always is.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_tensor_is_contiguous(const mf_tensor *t);

/* Views: a new tensor over the same memory, never a copy. */

/* All views keep dtype, flags and memory unless said otherwise; each gives a new reference in ${out}.
 * Axes count from 0, negative ones from the end. All fail with MF_ECLOSED and MF_ENOMEM. A view of a packed
 * sub-byte tensor must begin at a whole byte: MF_ELAYOUT. */

typedef enum mf_index_kind {
  MF_INDEX_AT = 0,       /* one coordinate (start); the axis goes. Negative counts from the end */
  MF_INDEX_SLICE = 1,    /* start:stop:step with Python's meaning; MF_INDEX_NONE leaves one out */
  MF_INDEX_NEWAXIS = 2,  /* a new axis of extent 1 */
  MF_INDEX_ELLIPSIS = 3  /* as many whole axes as are left; once at most */
} mf_index_kind;

#define MF_INDEX_NONE INT64_MIN

typedef struct mf_index {
  int32_t kind; /* an mf_index_kind */
  int32_t zero; /* must be 0 */
  int64_t start;
  int64_t stop;
  int64_t step;
} mf_index;

/* mf_tensor_index(t, items, nitems, out, err): basic indexing: each item takes the next axis; axes left over are
 * kept whole.
 * Owns: ${out} is the caller's reference. Fails: MF_EBOUNDS for a coordinate out of range or too many items,
 * MF_EINVAL for a step of 0, an unknown kind, a negative ${nitems} or a rank above MF_MAX_NDIM. Threads: any.
 * Standard: none. */
MF_API int mf_tensor_index(const mf_tensor *t, const mf_index *items, int32_t nitems, mf_tensor **out,
                           mf_error *err);

/* mf_tensor_permute_dims(t, axes, naxes, out, err): axis i of the result is axis ${axes}[i] of ${t}. NULL axes with
 * naxes 0 reverse all of them (transpose).
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL unless ${axes} is a permutation, MF_EBOUNDS for an axis
 * out of range. Threads: any. Standard: none. */
MF_API int mf_tensor_permute_dims(const mf_tensor *t, const int32_t *axes, int32_t naxes, mf_tensor **out,
                             mf_error *err);

/* mf_tensor_reshape(t, shape, ndim, out, err): the same elements in row-major order under another shape; one extent
 * may be -1.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL if the counts differ, MF_ELAYOUT where it needs a copy,
 * MF_EOVERFLOW. Threads: any. Standard: none. */
MF_API int mf_tensor_reshape(const mf_tensor *t, const int64_t *shape, int32_t ndim, mf_tensor **out,
                             mf_error *err);

/* mf_tensor_broadcast_to(t, shape, ndim, out, err): ${t} repeated to ${shape} with strides of 0. The result is
 * read-only where an element is repeated.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL if the shapes do not fit, MF_EOVERFLOW. Threads: any.
 * Standard: none. */
MF_API int mf_tensor_broadcast_to(const mf_tensor *t, const int64_t *shape, int32_t ndim, mf_tensor **out,
                               mf_error *err);

/* mf_tensor_squeeze(t, axes, naxes, out, err): without the given axes, which must have extent 1; NULL axes with
 * naxes 0 drop every such axis.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL, MF_EBOUNDS. Threads: any. Standard: none. */
MF_API int mf_tensor_squeeze(const mf_tensor *t, const int32_t *axes, int32_t naxes, mf_tensor **out,
                             mf_error *err);

/* mf_tensor_expand_dims(t, axis, out, err): with a new axis of extent 1 at ${axis}, in 0 ... ndim.
 * Owns: ${out} is the caller's reference. Fails: MF_EBOUNDS. Threads: any. Standard: none. */
MF_API int mf_tensor_expand_dims(const mf_tensor *t, int32_t axis, mf_tensor **out, mf_error *err);

/* mf_tensor_diagonal(t, offset, axes, out, err): the diagonal of the planes that the two ${axes} span, ${offset}
 * above (or below, negative) the main one, as a new last axis.
 * Owns: ${out} is the caller's reference. Fails: MF_EBOUNDS, MF_EINVAL. Threads: any. Standard: none. */
MF_API int mf_tensor_diagonal(const mf_tensor *t, int64_t offset, const int32_t axes[2], mf_tensor **out,
                              mf_error *err);

/* mf_tensor_reinterpret(t, dtype, out, err): the same bytes as another dtype. Where the element size differs, the
 * last axis must be compact and is made longer or shorter.
 * Owns: ${out} is the caller's reference. Fails: MF_EDTYPE, MF_ELAYOUT, MF_EOVERFLOW. Threads: any. Standard: none. */
MF_API int mf_tensor_reinterpret(const mf_tensor *t, const DLDataType *dtype, mf_tensor **out,
                                 mf_error *err);

/* mf_tensor_as_readonly(t, out, err): the same view, read-only.
 * Owns: ${out} is the caller's reference. Fails: MF_ECLOSED, MF_ENOMEM. Threads: any. Standard: DLPack 1.3,
 * DLPACK_FLAG_BITMASK_READ_ONLY. */
MF_API int mf_tensor_as_readonly(const mf_tensor *t, mf_tensor **out, mf_error *err);

/* Elements. Copies and fills work on every device, queued on the destination's current stream, or on the source's if
 * the destination is the host; what ends in pageable host memory is complete on return. So do conversions where one
 * side is a GPU's: on CUDA by kernels, for bool, integers, float16, bfloat16, float32, float64 and 8-bit floats but
 * float8_e8m0fnu; other dtypes, elements at no multiple of their size, and all on ROCm go through the host, which
 * waits, and which no capture allows. A comparison, and the value of one element, are answers that the host waits for:
 * what a GPU compares gives one number back, and one element's bytes are all that is copied for it. Where both sides
 * are memory that the host can read (cpu, pinned, managed), it converts and compares, after it has waited for them.
 * All of them may fail with MF_EDRIVER and MF_ECAPTURE where a driver's memory takes part. */

/* mf_tensor_copy(dst, src, err): every element of ${src} to the same place of ${dst}; shapes and dtypes (and the
 * padding of sub-byte dtypes) must be equal, layouts need not be. Overlapping memory is handled as if ${src} had
 * been read first. Where strides map several elements of ${dst} to one place, the last in row-major order stays.
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
 *   to bool        is "not zero" (NaN is not zero); from bool gives 0 or 1, or the same byte as a bool
 *   to complex     the imaginary part is 0; from complex to a dtype that is not complex is refused
 * Owns: nothing moves. Fails: also MF_EDTYPE for handles, lanes other than 1 and widths that no arithmetic is known
 * for. Threads: any. Standard: none. */
MF_API int mf_tensor_astype(mf_tensor *dst, const mf_tensor *src, mf_error *err);

/* mf_tensor_copy_part(dst, src, at, err): the next part of a copy, for whoever shows how far it is, or stops it. ${*at}
 * is how many elements have been copied: 0 before the first call, mf_tensor_size(dst) behind the last one, which need
 * not be made. As mf_tensor_astype in all else, but that ${src} and ${dst} may not reach into the same memory. A part
 * is some 16 MiB, so that a copy in parts takes no longer than one at once; between two calls nothing is held.
 * Owns: nothing moves. Fails: as mf_tensor_astype; also MF_EINVAL for an ${*at} that no call has left there, and for
 * memory that both reach into. ${*at} then stays. Threads: any. Standard: none. */
MF_API int mf_tensor_copy_part(mf_tensor *dst, const mf_tensor *src, int64_t *at, mf_error *err);

/* mf_tensor_fill(t, value, err): every element becomes ${value}, converted as by mf_tensor_astype.
 * Owns: nothing moves. Fails: MF_EREADONLY, MF_ECLOSED, MF_EDTYPE, MF_EINVAL for an unknown kind. Threads: any.
 * Standard: none. */
MF_API int mf_tensor_fill(mf_tensor *t, const mf_scalar *value, mf_error *err);

/* mf_tensor_get(t, coords, ncoords, out, err): one element, converted exactly. ${ncoords} must be ndim; negative
 * coordinates count from the end.
 * Owns: nothing. Fails: MF_EBOUNDS, MF_EINVAL, MF_EDTYPE, MF_ECLOSED. Threads: any. Standard: none. */
MF_API int mf_tensor_get(const mf_tensor *t, const int64_t *coords, int32_t ncoords, mf_scalar *out,
                         mf_error *err);

/* mf_tensor_put(t, coords, ncoords, value, err): sets one element, converted as by mf_tensor_astype.
 * Owns: nothing. Fails: as mf_tensor_get, and MF_EREADONLY. Threads: any. Standard: none. */
MF_API int mf_tensor_put(mf_tensor *t, const int64_t *coords, int32_t ncoords, const mf_scalar *value,
                         mf_error *err);

/* mf_tensor_clone(t, out, err): a new compact row-major tensor on the same device with a copy of the elements; never
 * read-only.
 * Owns: ${out} is the caller's reference. Fails: MF_ECLOSED, MF_EOVERFLOW, MF_ENOMEM. Threads: any. Standard: none. */
MF_API int mf_tensor_clone(const mf_tensor *t, mf_tensor **out, mf_error *err);

/* mf_tensor_equal(a, b, out, err): ${out} becomes 1 if shapes and dtypes are equal and so are all elements, as
 * numbers (NaN differs from itself, -0 equals 0); dtypes without arithmetic are compared bit by bit.
 * Owns: nothing. Fails: MF_ECLOSED. Threads: any. Standard: none. */
MF_API int mf_tensor_equal(const mf_tensor *a, const mf_tensor *b, int32_t *out, mf_error *err);

/* The kernels that copies, casts, fills and comparisons of host memory are made of. There is a set for each instruction
 * set of the processor; all of them give the same bits. */

/* mf_simd(): the name of the set in use: plain, sse2, avx2, avx512 or neon. The best that this machine has, until
 * mf_simd_set names another.
 * Owns: nothing; the string is static. Fails: never. Threads: any. Standard: none. */
MF_API const char *mf_simd(void);

/* mf_simd_set(name, err): that set from now on, in the whole process; ${name} plain is for no kernels: element by
 * element. For specs and measurements.
 * Owns: nothing. Fails: MF_EINVAL for a name that is none of a set that this machine has. Threads: any; what runs in
 * another thread goes on as it began. Standard: none. */
MF_API int mf_simd_set(const char *name, mf_error *err);

/* How many threads share one large copy, cast, fill or comparison of host memory. They are the library's own: the first
 * work that is worth it starts them, they run none of the program's code and have its signals blocked (faults aside),
 * and they end with the process. A child of fork begins without any. What is small, and what another thread asks for
 * meanwhile, is done by the thread that asks. A handler that leaves a fault of such memory by longjmp needs 1 here. */
#define MF_THREADS_MAX 64

/* mf_threads(): that number, the asking thread included. At first what the environment variable MOONFERRY_THREADS says,
 * if that is a number from 1 to MF_THREADS_MAX; else as many as the process has processors, 8 at most.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_threads(void);

/* mf_threads_set(n, err): that number from now on, in the whole process; 1 is for none but the asking thread, 0 for
 * the number at first. Threads beyond it end, at once or behind the work that they have.
 * Owns: nothing. Fails: MF_EINVAL for a number below 0 or above MF_THREADS_MAX. Threads: any. Standard: none. */
MF_API int mf_threads_set(int32_t n, mf_error *err);

/* Exchange: DLPack 1.3. */

/* mf_dltensor_check(view, flags, err): what every import and wrap checks, and nothing else does. In order:
 * device_type known and one with a backend, device_id one of its devices; dtype code up to 17, bits and lanes not 0,
 * bits 6 or 4 for float6 and float4; 0 <= ndim <= MF_MAX_NDIM; shape given if ndim > 0; no negative extent; the
 * element count, the byte count and every reachable byte offset within range; data given if there are elements, and
 * data + byte_offset within the address space; for a driver's memory, that the driver knows the pointer as memory of
 * that device (managed and pinned memory may be labelled as a GPU's).
 * Owns: nothing. Fails: MF_EINVAL, MF_EDTYPE, MF_EDEVICE, MF_EOVERFLOW, MF_EDRIVER; the message names the field, the
 * value, the rule. Threads: any. Standard: DLPack 1.3; strides may be NULL, as before 1.2. */
MF_API int mf_dltensor_check(const DLTensor *view, uint64_t flags, mf_error *err);

/* mf_tensor_import(managed, out, err): takes ${managed} over. Flags, strides and dtype are kept exactly; NULL
 * strides become compact ones, byte_offset becomes part of data, unknown flag bits are dropped. A device's memory is
 * taken to be ready on the current stream (tell the producer its number, mf_stream_to_number; or make the producer's
 * stream current for this call).
 * Owns: on MF_OK the tensor calls ${managed}->deleter (if not NULL) once, when its memory's last reference is gone
 * and what this library queued on it is done, in a later call if need be. On failure ${managed} is untouched and
 * still the caller's. Fails: MF_EVERSION, having read nothing but the version; as mf_dltensor_check; MF_ENOMEM.
 * Threads: the deleter runs on whichever thread drops the last reference. Standard: DLPack 1.3,
 * DLManagedTensorVersioned; array API 2025.12, from_dlpack. */
MF_API int mf_tensor_import(DLManagedTensorVersioned *managed, mf_tensor **out, mf_error *err);

/* mf_tensor_import_legacy(managed, out, err): the same for the struct before 1.0, which has no version and no flags:
 * it counts as writable and packed. A UInt of one bit and one lane is what such structs call bool, a byte each: it
 * becomes kDLBool.
 * Owns: as mf_tensor_import. Fails: as mf_tensor_import, but for MF_EVERSION. Threads: as mf_tensor_import.
 * Standard: DLPack 1.3, DLManagedTensor (deprecated there). */
MF_API int mf_tensor_import_legacy(DLManagedTensor *managed, mf_tensor **out, mf_error *err);

/* mf_tensor_export(t, flags, out, err): a struct stamped 1.3 for any consumer. shape and strides are always filled
 * (NULL for ndim 0), byte_offset is 0, data is NULL if there are no elements. ${flags}: 0, or
 * DLPACK_FLAG_BITMASK_IS_COPIED if the caller gives its only reference to a fresh copy away. The consumer of a
 * device's memory works on the caller's current stream, which is made to wait for others; of memory labelled as the
 * cpu's on the host, which waits. mf_tensor_export_to takes other streams.
 * Owns: the struct is the caller's until it calls out->deleter(out), once, on any thread; until then the memory
 * lives. ${t} stays the caller's. Fails: MF_ECLOSED, MF_EINVAL for other flags, MF_ENOMEM. Threads: any; the
 * deleter, too. Standard: DLPack 1.3, DLManagedTensorVersioned. */
MF_API int mf_tensor_export(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out, mf_error *err);

/* mf_tensor_export_legacy(t, out, err): the struct before 1.0, for consumers that know no other. It has no flags, so
 * read-only (MF_EREADONLY) and padded sub-byte (MF_EDTYPE) tensors are refused, and so is packed uint1 (MF_EDTYPE),
 * which its consumers would read as a byte each.
 * Owns: as mf_tensor_export. Fails: MF_EREADONLY, MF_EDTYPE as said; MF_ECLOSED, MF_ENOMEM. Threads: as
 * mf_tensor_export. Standard: DLPack 1.3, DLManagedTensor (deprecated there). */
MF_API int mf_tensor_export_legacy(mf_tensor *t, DLManagedTensor **out, mf_error *err);

/* mf_export_delete_later(managed): from now on the deleter of ${managed}, which this library exported, calls no
 * foreign code: it gives its reference back as mf_tensor_release_later does. For a taker that may call it where no
 * foreign code may run, such as compiled code of a language that a deleter may call. A struct of another library is
 * left as it is.
 * Owns: nothing moves. Fails: never. Threads: any, before the struct is given to its taker. Standard: none. */
MF_API void mf_export_delete_later(DLManagedTensorVersioned *managed);

/* mf_export_delete_later_legacy(managed): the same for the struct before 1.0.
 * Owns: nothing moves. Fails: never. Threads: as mf_export_delete_later. Standard: none. */
MF_API void mf_export_delete_later_legacy(DLManagedTensor *managed);

/* What a consumer asks for. Zero means: as it is, if need be copied, on the current stream. */

typedef enum mf_copy {
  MF_COPY_IF_NEEDED = 0, /* None */
  MF_COPY_NEVER = 1,     /* False */
  MF_COPY_ALWAYS = 2     /* True */
} mf_copy;

/* A number that stands for a stream of a device; 0 is the calling thread's current one. See Streams. */
typedef int64_t mf_stream;

typedef struct mf_request {
  DLDevice device;  /* where to; device_type 0: where the tensor is */
  int32_t copy;     /* an mf_copy */
  int32_t zero;     /* must be 0 */
  mf_stream stream; /* on which it is to be ready: of the target, or of the source where the target has none;
                       MF_STREAM_HOST for the cpu, where 0 means the same */
} mf_request;

/* mf_tensor_to(t, request, out, err): ${t} on another device: itself, a view under another label where the memory is
 * the same (pinned as cpu, managed as cpu or as any GPU), or a compact copy that is made on the stream. A copy to
 * the cpu is complete on return; so is the reading of pageable host memory.
 * Owns: ${out} is the caller's reference. A foreign stream must live until the memory of ${out} is released. Fails:
 * MF_ELAYOUT where MF_COPY_NEVER would need a copy, MF_EDEVICE, MF_EINVAL, MF_ECLOSED, MF_ECAPTURE, MF_EDRIVER,
 * MF_ENOMEM. Threads: any. Standard: array API 2025.12, from_dlpack, device and copy. */
MF_API int mf_tensor_to(mf_tensor *t, const mf_request *request, mf_tensor **out, mf_error *err);

/* mf_tensor_export_to(t, request, out, err): mf_tensor_to and mf_tensor_export in one, with IS_COPIED where it is a
 * copy. The memory is ready on request->stream, and is taken to be in use there until the deleter is called: for
 * writing, unless it is read-only. A consumer that was given MF_STREAM_NO_ORDER is on its own: it must order itself
 * behind the producer, and be done before it calls the deleter.
 * Owns: as mf_tensor_export. A foreign stream must live until the deleter was called, and while it is being
 * captured. Fails: as mf_tensor_to. Threads: any; the deleter, too. Standard: array API 2025.12, __dlpack__. */
MF_API int mf_tensor_export_to(mf_tensor *t, const mf_request *request, DLManagedTensorVersioned **out,
                               mf_error *err);

/* mf_tensor_export_legacy_to(t, request, out, err): the same with the struct before 1.0.
 * Owns: as mf_tensor_export_to. Fails: as mf_tensor_export_to and mf_tensor_export_legacy. Threads: any. Standard:
 * as mf_tensor_export_legacy. */
MF_API int mf_tensor_export_legacy_to(mf_tensor *t, const mf_request *request, DLManagedTensor **out,
                                      mf_error *err);

/* mf_tensor_borrow(t, out, err): fills ${out} with the description alone, without an allocation. A device's memory
 * may be used by what the caller queues on the current stream before its next call here.
 * Owns: borrowed; it lives as long as ${t}. Fails: MF_ECLOSED; MF_EREADONLY and MF_EDTYPE as
 * mf_tensor_export_legacy, because a DLTensor cannot carry flags; as mf_tensor_acquire. Threads: any. Standard:
 * DLPack 1.3, DLPackDLTensorFromPyObjectNoSync. */
MF_API int mf_tensor_borrow(const mf_tensor *t, DLTensor *out, mf_error *err);

/* Devices. */

/* mf_device_count(device_type, out, err): how many devices of the DLDeviceType ${device_type} there are.
 * Owns: nothing. Fails: MF_EDEVICE, saying why, where there are none. Threads: any. Standard: DLPack 1.3,
 * DLDeviceType. */
MF_API int mf_device_count(int32_t device_type, int32_t *out, mf_error *err);

/* mf_device_of_pointer(device_type, ptr, out, err): where the driver says that ${ptr} lies: on a GPU, in pinned or
 * in managed memory. ${device_type} is any device type of that driver's (kDLCUDA or kDLROCM, say). Where it fails
 * ${out} is the cpu.
 * Owns: nothing. Fails: MF_EINVAL for a pointer that the driver does not know, MF_EDEVICE, MF_EDRIVER. Threads: any.
 * Standard: CUDA array interface 3, data. */
MF_API int mf_device_of_pointer(int32_t device_type, const void *ptr, DLDevice *out, mf_error *err);

/* mf_device_synchronize(device, err): the host waits until all work that was queued on ${device}, by whomever, is
 * done, and gives back what waited for that (see mf_pool_trim). While a stream of ${device} is being captured, by
 * whomever, this breaks the capture and fails; nothing else in this library waits for a whole device.
 * Owns: nothing. Fails: MF_EDEVICE, MF_ECAPTURE, MF_EDRIVER. Threads: any. Standard: none. */
MF_API int mf_device_synchronize(const DLDevice *device, mf_error *err);

/* mf_device_parse(name, out, err): "cpu", or a device type's name with an ordinal, such as "cuda:1".
 * Owns: nothing. Fails: MF_EDEVICE for a name that is none. Whether the device exists is not asked. Threads: any.
 * Standard: DLPack 1.3, DLDevice. */
MF_API int mf_device_parse(const char *name, DLDevice *out, mf_error *err);

/* mf_device_format(device, buf, cap, err): the name that mf_device_parse reads; "type:id" in numbers for a device
 * type without a name.
 * Owns: nothing. Fails: MF_EINVAL if ${cap} is too small (32 is enough). Threads: any. Standard: DLPack 1.3,
 * DLDevice. */
MF_API int mf_device_format(const DLDevice *device, char *buf, size_t cap, mf_error *err);

/* Streams: in which order a device does what was queued on it. */

/* A stream is a number that goes with a device: one of the names below, or the driver's own handle (CUstream,
 * cudaStream_t, hipStream_t) as an integer. It is a value; to copy it owns nothing. The rule that everything here
 * keeps: after an exchange, work queued on the consumer's stream sees what the producer's streams wrote before, and the
 * host waits for nothing unless the host is the consumer. Each memory has a record of the streams that read and wrote
 * it; an operation on another stream waits for those that it must, on the device, by an event. A stream that a consumer
 * named need only live until its deleter was called; one that was made current or acquired, until the memory is
 * released. Where it is gone earlier, and the driver notices, the next use of the memory that has to wait for it is
 * refused (MF_EINVAL) until mf_device_synchronize has waited for what it had queued. */
#define MF_STREAM_CURRENT ((mf_stream)0)    /* the calling thread's current stream; mf_stream_swap changes it */
#define MF_STREAM_DEFAULT ((mf_stream)1)    /* the legacy default stream, which is current at first */
#define MF_STREAM_PER_THREAD ((mf_stream)2) /* the calling thread's own default stream */
#define MF_STREAM_NO_ORDER ((mf_stream)-1)  /* as a consumer: nothing is ordered, and nothing is recorded */
#define MF_STREAM_HOST ((mf_stream)-2)      /* as a consumer: the host, which waits */

/* mf_stream_create(device, out, err): a new stream that is not ordered with the legacy default stream.
 * Owns: the caller gives it back with mf_stream_destroy. Fails: MF_EDEVICE, MF_EDRIVER, MF_ENOMEM. Threads: any.
 * Standard: none. */
MF_API int mf_stream_create(const DLDevice *device, mf_stream *out, mf_error *err);

/* mf_stream_destroy(device, stream, err): gives back a stream that mf_stream_create made. Its work goes on. The
 * driver's stream is kept for the next mf_stream_create, so memory that it touched may be released later.
 * Owns: the stream is gone. Fails: MF_EINVAL for a stream that was not created here or is gone. Threads: any; no
 * thread may still have it as its current stream. Standard: none. */
MF_API int mf_stream_destroy(const DLDevice *device, mf_stream stream, mf_error *err);

/* mf_stream_check(device, stream, err): that ${stream} is a name, or a living handle of that device's primary
 * context.
 * Owns: nothing. Fails: MF_EINVAL, saying what it is; MF_EDEVICE, MF_EDRIVER. Threads: any. Standard: none. */
MF_API int mf_stream_check(const DLDevice *device, mf_stream stream, mf_error *err);

/* mf_stream_current(device, out, err): the calling thread's current stream of ${device}: a name or a handle, never
 * MF_STREAM_CURRENT.
 * Owns: nothing. Fails: MF_EDEVICE. Threads: each has its own. Standard: DLPack 1.3, DLPackCurrentWorkStream. */
MF_API int mf_stream_current(const DLDevice *device, mf_stream *out, mf_error *err);

/* mf_stream_swap(device, stream, old, err): makes ${stream} the calling thread's current one; ${old} (may be NULL)
 * gets the one before.
 * Owns: a foreign ${stream} must live while it is current, and until memory that it touched was released. Fails: as
 * mf_stream_check; MF_EINVAL for MF_STREAM_NO_ORDER and MF_STREAM_HOST. Threads: each has its own. Standard: none. */
MF_API int mf_stream_swap(const DLDevice *device, mf_stream stream, mf_stream *old, mf_error *err);

/* mf_stream_synchronize(device, stream, err): the host waits until what was queued on ${stream} is done, and gives
 * back what waited for that.
 * Owns: nothing. Fails: MF_EINVAL, MF_EDEVICE, MF_ECAPTURE, MF_EDRIVER. Threads: any. Standard: none. */
MF_API int mf_stream_synchronize(const DLDevice *device, mf_stream stream, mf_error *err);

/* mf_stream_query(device, stream, out, err): ${out} becomes 1 if what was queued on ${stream} is done, else 0.
 * Owns: nothing. Fails: as mf_stream_synchronize. Threads: any. Standard: none. */
MF_API int mf_stream_query(const DLDevice *device, mf_stream stream, int32_t *out, mf_error *err);

/* mf_stream_wait(device, stream, other_device, other, err): work queued on ${stream} from now on waits for what was
 * queued on ${other} until now. The host does not wait.
 * Owns: nothing. Fails: MF_EINVAL for devices of two different drivers, MF_EDEVICE, MF_EDRIVER, MF_ECAPTURE where
 * one is captured and the other is not in the same capture. Threads: any. Standard: none. */
MF_API int mf_stream_wait(const DLDevice *device, mf_stream stream, const DLDevice *other_device, mf_stream other,
                          mf_error *err);

/* Work that the caller queues itself. */

typedef enum mf_use { MF_READ = 1, MF_WRITE = 2 } mf_use;

/* mf_tensor_acquire(t, stream, use, err): for work that the caller queues itself: makes ${stream} wait until it may
 * read (MF_READ) or also write (MF_WRITE) the memory of ${t}, and enters it into the memory's record, so that later
 * uses on other streams, and the release of the memory, wait for what is on ${stream} by then. The grant lasts: what
 * is queued there for reading is waited for until another stream or the host writes, what is queued for writing
 * until another stream or the host uses the memory at all; after that, acquire again. With MF_STREAM_HOST the host
 * waits, and may then use the memory until the next operation on it. The stream is one of the device that ${t} is
 * on, or of any device of that driver's for pinned and managed memory.
 * Owns: a foreign ${stream} must live until the memory is released. Fails: MF_EINVAL, MF_EREADONLY, MF_ECLOSED,
 * MF_ECAPTURE, MF_EDRIVER; MF_EDEVICE for the host and managed memory that it may not use while the device works
 * (CUDA: CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0). Threads: any; queue the work before another thread
 * uses ${t}. Standard: none. */
MF_API int mf_tensor_acquire(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err);

/* mf_tensor_record(t, stream, use, err): enters ${stream} into the record without waiting: somebody's work there
 * already uses the memory of ${t}.
 * Owns: as mf_tensor_acquire. Fails: MF_EINVAL, also for names that are not a stream; MF_ENOMEM. Threads: any.
 * Standard: none. */
MF_API int mf_tensor_record(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err);

/* mf_tensor_is_ordered(t): 1 if the memory of ${t} has a record, because a driver knows it, whatever device ${t}
 * names, or a list of fences (mf_tensor_fence); 0 for other host memory, which the host may use without
 * mf_tensor_acquire.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_tensor_is_ordered(const mf_tensor *t);

/* Fences: host memory that somebody else's queue still uses. */

/* A point in a queue that this library does not know, such as OpenGL's or Vulkan's, or an engine's own. Both functions
 * are plain C: they call no interpreter and do not use the memory. They may be called on any thread that uses the
 * memory, several at once for `wait`. */
typedef struct mf_fence {
  void *ctx;
  uint64_t value; /* the functions' own, such as a GLsync, or the value of a timeline */
  /* Waits for ${ns} nanoseconds at most; 0 only asks. Returns 0 if the point was reached, also when asked again; 1 if
   * not yet; a negative number if it cannot be known on this thread. */
  int32_t (*wait)(void *ctx, uint64_t value, int64_t ns);
  /* Gives the fence back: once, right after `wait` returned 0, on the same thread. May be NULL. */
  void (*drop)(void *ctx, uint64_t value);
} mf_fence;

/* mf_tensor_fence(t, fence, use, err): the memory of ${t}, which no GPU's driver knows, is in use until ${fence}: read
 * there (MF_READ), or also written (MF_WRITE). What reads the memory from now on (get, copies from it, exports,
 * mf_tensor_acquire for MF_READ) first waits for fences of MF_WRITE, what may write it for all of them; and the memory
 * ends, and its release callback or deleter is called, when all are done: where the last release may not wait, in a
 * later mf_tensor_release, mf_tensor_release_later or mf_releases_run on a thread that may. Pointers that were given
 * out before are not held up. With ${fence} NULL nothing waits yet, but the memory counts as ordered
 * (mf_tensor_is_ordered) from now on.
 * Owns: on MF_OK the fence is the library's until it is dropped; on failure the caller's. Fails: MF_EINVAL for another
 * ${use}, a fence without `wait`, memory that a driver knows; MF_ENOMEM. From then on uses of the memory can fail with
 * MF_EINVAL, naming the thread that set a fence, where that cannot be waited for on the calling thread. Threads: any.
 * Standard: none. */
MF_API int mf_tensor_fence(mf_tensor *t, const mf_fence *fence, int32_t use, mf_error *err);

/* mf_tensor_fence_wait(t, use, ns, out, err): waits, for each fence ${ns} nanoseconds at most, until the host may read
 * the memory of ${t} (MF_READ) or also write it (MF_WRITE). ${out} becomes 1 if it may by then, else 0. ${ns} 0 only
 * asks; INT64_MAX waits for ever.
 * Owns: nothing. Fails: MF_EINVAL for another ${use}, a negative ${ns}, memory that a driver knows, and where a fence
 * cannot be waited for on this thread. Threads: any. Standard: none. */
MF_API int mf_tensor_fence_wait(const mf_tensor *t, int32_t use, int64_t ns, int32_t *out, mf_error *err);

/* mf_fence_epoch(): a number that changes whenever some memory begins to count as ordered because of mf_tensor_fence,
 * for a language that keeps pointers to elements: one to memory that was not ordered is good as long as the number is
 * what it was before mf_tensor_is_ordered was asked.
 * Owns: the number lives as long as the library; it is read alone. Fails: never. Threads: any. Standard: none. */
MF_API const uint32_t *mf_fence_epoch(void);

/* Rings: some memories in turn, so that one is written while others are still drawn. */

typedef struct mf_ring mf_ring;

#define MF_RING_MAX 64

/* mf_ring_create(slots, n, out, err): a ring of the ${n} tensors in ${slots} (1 to MF_RING_MAX), which are plain host
 * memory and count as ordered from now on. There is one writer at a time, and one reader. Where both are the same
 * thread, as in a renderer: mf_ring_begin, write, draw, mf_ring_end with a fence behind what was drawn. Where a worker
 * writes for a renderer: the worker calls mf_ring_begin, writes, mf_ring_publish; the renderer calls mf_ring_latest,
 * draws, mf_ring_fence. With four slots neither waits for the other: one is written, one is the latest, one is drawn,
 * one waits for its fence. None of these calls takes a lock or allocates (but for a memory's fifth fence at once).
 * Owns: ${out} is the caller's reference; the ring has one to each slot. Fails: MF_EINVAL for another ${n}, for slots
 * that overlap or are views of one memory, for memory that a driver knows; MF_ECLOSED, MF_ENOMEM. Threads: any.
 * Standard: none. */
MF_API int mf_ring_create(mf_tensor *const *slots, int32_t n, mf_ring **out, mf_error *err);

/* mf_ring_retain(r): one more reference to ${r}, for another thread say; returns ${r}. NULL is allowed.
 * Owns: the new reference is the caller's. Fails: never. Threads: any. Standard: none. */
MF_API mf_ring *mf_ring_retain(mf_ring *r);

/* mf_ring_release(r): returns one reference; the last one frees the ring, which gives its slots back: each lives until
 * its fences are done. NULL is allowed.
 * Owns: the caller's reference is gone. Fails: never. Threads: any. Standard: none. */
MF_API void mf_ring_release(mf_ring *r);

/* mf_ring_count(r): how many slots it has.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_ring_count(const mf_ring *r);

/* mf_ring_slot(r, i): slot ${i}, counted from 0; NULL for another number.
 * Owns: borrowed from the ring. Fails: never. Threads: any. Standard: none. */
MF_API mf_tensor *mf_ring_slot(const mf_ring *r, int32_t i);

/* mf_ring_begin(r, ns, slot, err): the slot to write next: the one that has been free for longest; where each of the
 * others is in use, the latest one, if nobody has taken it yet; else it waits for ${ns} nanoseconds at most (INT64_MAX:
 * for ever) for the fence of the slot that was given back first. A fence that cannot be waited for here is left to
 * mf_ring_latest, which looks at it on the reader's thread, and is looked at again until the time is over.
 * Owns: the slot's elements are the writer's until mf_ring_end or mf_ring_publish. ${slot} is -1 after a failure.
 * Fails: MF_EINVAL while a slot is being written and for a negative ${ns}; MF_ETIMEOUT. Threads: one writer at a time.
 * Standard: none. */
MF_API int mf_ring_begin(mf_ring *r, int64_t ns, int32_t *slot, mf_error *err);

/* mf_ring_end(r, fence, use, err): the slot that is being written goes to the end of the ring, in use until ${fence}
 * (NULL: free at once), for MF_READ or MF_WRITE as in mf_tensor_fence.
 * Owns: as mf_tensor_fence. Fails: MF_EINVAL where none is being written, and as mf_tensor_fence: then it still is.
 * Threads: the writer. Standard: none. */
MF_API int mf_ring_end(mf_ring *r, const mf_fence *fence, int32_t use, mf_error *err);

/* mf_ring_publish(r, err): the slot that is being written is the latest from now on. The one that was, if nobody took
 * it, is free again.
 * Owns: the slot's elements are the reader's from then on; what was written before is visible to it. Fails: MF_EINVAL
 * where none is being written. Threads: the writer. Standard: none. */
MF_API int mf_ring_publish(mf_ring *r, mf_error *err);

/* mf_ring_latest(r, slot, fresh, err): the slot that was published last, for the reader; -1 if none was yet. ${fresh}
 * (may be NULL) becomes 1 if it is another one than the last time. The slot that the reader had before goes back, and
 * is free when its fences are done. Never waits.
 * Owns: the slot's elements are the reader's until the next call finds a fresh one. Fails: MF_EINVAL for NULL. Threads:
 * one reader at a time. Standard: none. */
MF_API int mf_ring_latest(mf_ring *r, int32_t *slot, int32_t *fresh, mf_error *err);

/* mf_ring_fence(r, fence, use, err): mf_tensor_fence for the slot that the reader has.
 * Owns: as mf_tensor_fence. Fails: MF_EINVAL where the reader has none, and as mf_tensor_fence. Threads: the reader.
 * Standard: none. */
MF_API int mf_ring_fence(mf_ring *r, const mf_fence *fence, int32_t use, mf_error *err);

/* OpenGL's sync objects as fences. */

typedef struct mf_gl mf_gl; /* one context of OpenGL's */

/* Where the program's functions are, as SDL_GL_GetProcAddress and its like find them. */
typedef struct mf_gl_calls {
  void *(*fence_sync)(uint32_t condition, uint32_t flags);                        /* glFenceSync */
  uint32_t (*client_wait_sync)(void *sync, uint32_t flags, uint64_t timeout_ns); /* glClientWaitSync */
  void (*delete_sync)(void *sync);                                                /* glDeleteSync */
  void *(*current_context)(void); /* eglGetCurrentContext, SDL_GL_GetCurrentContext, glXGetCurrentContext ... */
} mf_gl_calls;

/* mf_gl_create(calls, out, err): the context that is current on the calling thread, for fences.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL where none is current or a function is NULL, MF_ENOMEM.
 * Threads: the one that the context is current on. Standard: OpenGL 4.6, 4.1. */
MF_API int mf_gl_create(const mf_gl_calls *calls, mf_gl **out, mf_error *err);

/* mf_gl_release(gl): returns the reference; fences go on. NULL is allowed.
 * Owns: the caller's reference is gone. Fails: never. Threads: any. Standard: none. */
MF_API void mf_gl_release(mf_gl *gl);

/* mf_gl_end(gl): the context is about to be destroyed, and the program has called glFinish: all its fences count as
 * done on every thread, and OpenGL is not called for them any more.
 * Owns: nothing. Fails: never. Threads: any; none may be inside of a wait. Standard: none. */
MF_API void mf_gl_end(mf_gl *gl);

/* mf_gl_fence(gl, out, err): a fence behind all that the context was told to draw until now, for mf_ring_end,
 * mf_ring_fence or mf_tensor_fence. It can be waited for on threads on which the context is current.
 * Owns: ${out} is the caller's, until one of those takes it or the caller calls out->drop. Fails: MF_EINVAL where the
 * context is not current here or has ended; MF_EDRIVER. Threads: as said. Standard: OpenGL 4.6, 4.1. */
MF_API int mf_gl_fence(mf_gl *gl, mf_fence *out, mf_error *err);

/* Memory of another graphics API as a GPU's. */

/* mf_tensor_from_fd(like, fd, nbytes, out, err): a tensor of a GPU over memory that another API has exported as an
 * opaque file descriptor, such as Vulkan's vkGetMemoryFdKHR does: ${nbytes} of it as it was allocated there; compact,
 * with ${like}'s dtype, ndim, shape and device, from its byte_offset on; data and strides are not read. The memory is
 * taken to be ready on the current stream: what the other API still does there is waited for before.
 * Owns: on MF_OK ${fd} is the library's, and the driver's import ends when the last tensor and export over the memory
 * are gone and their work is done. Fails: MF_EINVAL for another device than a GPU, a tensor that does not fit or a
 * descriptor that is none; as mf_tensor_create; MF_EDEVICE for a driver without these calls; MF_EDRIVER where it cannot
 * import this memory, as that of another GPU. Threads: any. Standard: CUDA Driver API, "External Resource
 * Interoperability"; HIP, the same. */
MF_API int mf_tensor_from_fd(const DLTensor *like, int32_t fd, uint64_t nbytes, mf_tensor **out, mf_error *err);

/* Semaphores of another graphics API, for streams of a GPU. */

typedef struct mf_semaphore mf_semaphore;

#define MF_SEMAPHORE_BINARY 1u /* it is signalled or not, and has no value; else a timeline, whose value rises */

/* mf_semaphore_from_fd(device, fd, flags, out, err): a semaphore for streams of ${device} (cuda:N or rocm:N) that
 * another API has exported as an opaque file descriptor, such as Vulkan's vkGetSemaphoreFdKHR does. ${flags}: 0 for a
 * timeline, or MF_SEMAPHORE_BINARY.
 * Owns: on MF_OK ${fd} is the library's, and ${out} the caller's, until mf_semaphore_release. Fails: MF_EINVAL for
 * another device than a GPU, other flags or a descriptor that is none; MF_EDEVICE for no such device, or a driver
 * without these calls: then the host waits instead (mf_tensor_fence, mf_stream_synchronize); MF_EDRIVER where it cannot
 * import this one, as ROCm on Linux; MF_ENOMEM. Threads: any. Standard: CUDA Driver API, "External Resource
 * Interoperability"; HIP, the same. */
MF_API int mf_semaphore_from_fd(const DLDevice *device, int32_t fd, uint32_t flags, mf_semaphore **out, mf_error *err);

/* mf_semaphore_wait(s, stream, value, err): what is queued on ${stream} from now on comes after the semaphore has
 * ${value} or more (a binary one: after it was signalled, which it then is no more). What the other API wrote before is
 * then there for ${stream}; mf_tensor_record says so of a memory, so that other streams wait for ${stream}. Never waits
 * on the host, and a value that nobody signals keeps ${stream} for ever.
 * Owns: nothing. Fails: MF_EINVAL for a stream that is none of the device's; MF_ECAPTURE while it is captured, because
 * each launch would wait for the same value; MF_EDRIVER, MF_ENOMEM. Threads: any. Standard: the same. */
MF_API int mf_semaphore_wait(mf_semaphore *s, mf_stream stream, uint64_t value, mf_error *err);

/* mf_semaphore_signal(s, stream, value, err): the semaphore gets ${value}, which must be more than it has by then (a
 * binary one: is signalled), when all that ${stream} has queued until now is done. mf_tensor_acquire makes ${stream}
 * wait for what other streams do with a memory, before.
 * Owns: nothing. Fails: as mf_semaphore_wait. Threads: any. Standard: the same. */
MF_API int mf_semaphore_signal(mf_semaphore *s, mf_stream stream, uint64_t value, mf_error *err);

/* mf_semaphore_release(s): gives the semaphore back to the driver when the work that was queued with it is done; nobody
 * waits for that. NULL is allowed.
 * Owns: ${s} is gone. Fails: never. Threads: any. Standard: the same. */
MF_API void mf_semaphore_release(mf_semaphore *s);

/* OpenGL's buffers as tensors of a GPU, and its textures beside them. */

#define MF_GL_READ 1u    /* the GPU only reads it: a buffer's tensors are read-only */
#define MF_GL_DISCARD 2u /* the GPU writes all of it: what was there need not be kept */

typedef struct mf_gl_buffer mf_gl_buffer; /* a buffer that is registered with a GPU's driver */

/* mf_gl_buffer_open(device, buffer, flags, out, err): registers OpenGL's ${buffer} with the driver of ${device}
 * (cuda:N or rocm:N), which takes long: once for a buffer, not in each frame. ${flags}: 0, or MF_GL_READ or
 * MF_GL_DISCARD.
 * Owns: ${out} is the caller's, until mf_gl_buffer_close; the buffer must live and keep its storage until then. Fails:
 * MF_EINVAL; MF_EDEVICE for no such device, or a driver without these calls; MF_EDRIVER where no context of OpenGL is
 * current here, it is of another GPU, or the buffer is none; MF_ENOMEM. Threads: the one that OpenGL's context is
 * current on. Standard: CUDA Driver API, "OpenGL Interoperability"; HIP, the same. */
MF_API int mf_gl_buffer_open(const DLDevice *device, uint32_t buffer, uint32_t flags, mf_gl_buffer **out,
                             mf_error *err);

/* mf_gl_buffer_map(b, stream, like, out, err): the buffer is the GPU's from now on, and ${out} a tensor over it:
 * compact, with ${like}'s dtype, ndim and shape, from its byte_offset on; the other fields are not read. What OpenGL
 * was told before is done for what is queued on ${stream} from now on, and for the tensor's uses on other streams.
 * Owns: ${out} is borrowed from ${b}, until mf_gl_buffer_unmap. OpenGL must not use the buffer until then. Fails:
 * MF_EINVAL for one that is mapped or that another thread's call has, another ${stream}, or a tensor that does not fit;
 * MF_ECAPTURE where ${stream} is being captured, which stays whole; MF_EDRIVER, MF_ENOMEM. Threads: as
 * mf_gl_buffer_open, one at a time. Standard: the same. */
MF_API int mf_gl_buffer_map(mf_gl_buffer *b, mf_stream stream, const DLTensor *like, mf_tensor **out, mf_error *err);

/* mf_gl_buffer_unmap(b, in_use, err): the buffer is OpenGL's again, for what it is told from now on, after all that the
 * record of the tensor knows of: the stream of mf_gl_buffer_map waits for that, the host does not. The tensor and its
 * views fail with MF_ECLOSED from then on. ${in_use} (may be NULL) becomes 1 if references, views or exports are
 * alive: those of another library, which has the pointer, must not be used.
 * Owns: references stay as they are. Fails: MF_EINVAL for one that is not mapped or that another thread's call has;
 * MF_ECAPTURE while that stream, or one that used the tensor, is being captured, after which it is mapped as before;
 * MF_EDRIVER, after which it is not mapped either. Threads: as mf_gl_buffer_map, and the same for a per-thread stream.
 * Standard: the same. */
MF_API int mf_gl_buffer_unmap(mf_gl_buffer *b, int32_t *in_use, mf_error *err);

/* mf_gl_buffer_close(b, err): unmaps it if need be, and gives it back to OpenGL alone. NULL is allowed.
 * Owns: ${b} is gone, also after MF_EDRIVER. Fails: MF_EDRIVER; MF_ECAPTURE, as mf_gl_buffer_unmap, and MF_EINVAL where
 * another thread's call has it: ${b} is there as before. Threads: as mf_gl_buffer_open. Standard: the same. */
MF_API int mf_gl_buffer_close(mf_gl_buffer *b, mf_error *err);

typedef struct mf_gl_texture mf_gl_texture; /* a texture that is registered with a GPU's driver */

/* mf_gl_texture_open(device, texture, target, flags, out, err): registers OpenGL's ${texture}, bound as ${target} (0:
 * GL_TEXTURE_2D; GL_TEXTURE_RECTANGLE), with the driver of ${device} (cuda:N or rocm:N), which takes long: once for a
 * texture. Its storage has one, two or four channels of 8, 16 or 32 bits (GL_R8 to GL_RGBA32F and the integer formats;
 * no sRGB, no three channels). ${flags}: 0, or MF_GL_READ or MF_GL_DISCARD.
 * Owns: ${out} is the caller's, until mf_gl_texture_close; the texture must live and keep its storage until then.
 * Fails: as mf_gl_buffer_open. Threads: the one that OpenGL's context is current on. Standard: CUDA Driver API, "OpenGL
 * Interoperability"; HIP, the same. */
MF_API int mf_gl_texture_open(const DLDevice *device, uint32_t texture, uint32_t target, uint32_t flags,
                              mf_gl_texture **out, mf_error *err);

/* mf_gl_texture_upload(texture, t, x, y, stream, err): the elements of ${t}, height x width x channels (or height x
 * width of one channel) with the texture's dtype (uint8 for GL_RGBA8), to level 0 of the texture, from pixel ${x},
 * ${y} on. Row 0 is OpenGL's lowest; strides may be any, and what is not on the device in compact rows goes by way of
 * compact memory of the device. The channels are in the texture's order, red first. Queued on ${stream}, behind what
 * OpenGL was told before and what used ${t}; what OpenGL is told next is behind it, and the host waits for nothing.
 * With MF_GL_DISCARD the rest of the texture is undefined afterwards.
 * Owns: nothing. Fails: MF_EDTYPE, MF_EINVAL for a shape that does not fit, another ${stream}, a texture that is only
 * read, or that another thread's call has; MF_ECAPTURE where ${stream} is being captured, which stays whole;
 * MF_ECLOSED, MF_EDRIVER, MF_ENOMEM. OpenGL has the texture back in each case. Threads: as mf_gl_texture_open.
 * Standard: the same. */
MF_API int mf_gl_texture_upload(mf_gl_texture *texture, mf_tensor *t, int64_t x, int64_t y, mf_stream stream,
                                mf_error *err);

/* mf_gl_texture_download(texture, t, x, y, stream, err): the other way, from the texture to ${t}. What ends in pageable
 * host memory is complete on return, for which the host waits.
 * Owns: nothing. Fails: as mf_gl_texture_upload; MF_EREADONLY; MF_EINVAL for a texture that was opened with
 * MF_GL_DISCARD. Threads: as mf_gl_texture_open. Standard: the same. */
MF_API int mf_gl_texture_download(mf_gl_texture *texture, mf_tensor *t, int64_t x, int64_t y, mf_stream stream,
                                  mf_error *err);

/* mf_gl_texture_close(texture, err): gives it back to OpenGL alone. NULL is allowed.
 * Owns: ${texture} is gone, also after MF_EDRIVER; after MF_EINVAL, where another thread's call has it, it is there as
 * before. Fails: those two. Threads: as mf_gl_texture_open. Standard: the same. */
MF_API int mf_gl_texture_close(mf_gl_texture *texture, mf_error *err);

/* Streams in the Python protocol. */

/* What __dlpack__(stream=None) means for memory of a GPU; None for memory that the host reads is the host. */
typedef enum mf_none {
  MF_NONE_DEFAULT = 0,  /* the legacy default stream, as the array API says */
  MF_NONE_NO_ORDER = 1, /* as -1: no order at all; what a capture needs */
  MF_NONE_REFUSE = 2    /* an error */
} mf_none;

/* mf_stream_none_set(meaning, err): what None means from now on, in the whole process.
 * Owns: nothing. Fails: MF_EINVAL. Threads: any. Standard: array API 2025.12, __dlpack__, stream. */
MF_API int mf_stream_none_set(int32_t meaning, mf_error *err);

/* mf_stream_none(): the mf_none of now.
 * Owns: nothing. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_stream_none(void);

#define MF_NUMBER_NONE INT64_MIN

/* mf_stream_from_number(device, number, out, err): what the ${number} that a consumer gave to __dlpack__ (or
 * MF_NUMBER_NONE for None) means for memory on ${device}:
 *                          None       -1        0        1        2           above         below -1
 *   cpu                    host       host      refused  refused  refused     refused       refused
 *   cuda                   mf_none    no order  refused  default  per thread  a handle      refused
 *   cuda_host, managed     host       no order  refused  default  per thread  a handle      refused
 *   rocm                   mf_none    no order  default  refused  refused     a handle      refused
 *   rocm_host              host       no order  default  refused  refused     a handle      refused
 * Owns: nothing. Fails: MF_EINVAL. A handle is not looked at. Threads: any. Standard: array API 2025.12, __dlpack__,
 * stream. */
MF_API int mf_stream_from_number(const DLDevice *device, int64_t number, mf_stream *out, mf_error *err);

/* mf_stream_to_number(device, stream, out, err): the number to give to a producer's __dlpack__ so that the memory is
 * ready on ${stream}; MF_NUMBER_NONE for the cpu. ROCm's per-thread stream has no number: MF_EINVAL.
 * Owns: nothing. Fails: MF_EINVAL, MF_EDEVICE. Threads: any. Standard: as mf_stream_from_number. */
MF_API int mf_stream_to_number(const DLDevice *device, mf_stream stream, int64_t *out, mf_error *err);

/* Memory of devices is kept for the next tensor when its last one is gone. */

typedef struct mf_pool_stats {
  int64_t used_bytes;   /* in living tensors */
  int64_t cached_bytes; /* kept for the next ones */
  int64_t limit_bytes;  /* of both together; 0: none */
  int64_t deferred;     /* released memories that wait for queued work before they are given back */
  int64_t hits, misses; /* allocations that needed no driver call, and that did */
} mf_pool_stats;

/* mf_pool_read(device, out, err): of the memory of ${device} (a GPU, or pinned or managed memory).
 * Owns: nothing. Fails: MF_EDEVICE. Threads: any. Standard: none. */
MF_API int mf_pool_read(const DLDevice *device, mf_pool_stats *out, mf_error *err);

/* mf_pool_limit(device, nbytes, err): allocations that would exceed ${nbytes} in living tensors and cache together
 * fail with MF_ENOMEM, after the cache was emptied; 0: no limit.
 * Owns: nothing. Fails: MF_EINVAL for a negative limit, MF_EDEVICE. Threads: any. Standard: none. */
MF_API int mf_pool_limit(const DLDevice *device, int64_t nbytes, mf_error *err);

/* mf_pool_trim(device, err): gives everything back to the driver that is not in use: cached memory, kept streams and
 * events, the staging buffers; and calls the deleters that waited for work which is done by now. Where then nothing
 * of this library is left on any device of the driver, it gives back what the driver holds for it, too: its memory
 * pools, kernels and primary contexts, which the next use makes anew. This library waits for no work of a stream; a
 * driver may do so where it frees pinned memory, and does where it has no memory pools. The end of the process does
 * as much by itself, but calls no deleter, and waits for a tenth of a second at most. Owns: nothing. Fails:
 * MF_EDEVICE, MF_EDRIVER. Threads: any. Standard: none. */
MF_API int mf_pool_trim(const DLDevice *device, mf_error *err);

/* mf_pools_trim(wait_ms, err): mf_pool_trim for every device of the drivers that this process has opened; opens
 * none. Work that what was released still waits for is given ${wait_ms} to end, so that deleters are called before a
 * language goes that they need; 0: no time.
 * Owns: nothing. Fails: with the first failure, MF_EDRIVER; MF_EINVAL. Threads: any. Standard: none. */
MF_API int mf_pools_trim(int32_t wait_ms, mf_error *err);

/* A guest: a language that another one brought into this process, as moonferry.python does with Python. An engine that
 * embeds Lua can speak to it here, without a Lua state. */

typedef struct mf_guest {
  int (*collect)(mf_error *err);                                /* see mf_guest_collect */
  int (*finish)(int32_t wait_ms, int32_t *late, mf_error *err); /* see mf_guest_finish */
  void (*leave)(void); /* the main thread ends the process: nothing that was loaded is torn down yet; or NULL */
} mf_guest;

/* mf_guest_set(guest): for the binding that brings the language in, once; NULL: there is none any more. Returns 1 if
 * ${leave} will be called, which is with glibc where the main thread had loaded this library; else 0.
 * Owns: ${guest} must stay. Fails: never. Threads: any. Standard: none. */
MF_API int32_t mf_guest_set(const mf_guest *guest);

/* mf_guest_collect(err): the guest gives back at once what its host has dropped, such as views of an engine's memory
 * that a closed Lua state had. Without a guest there is nothing to do.
 * Owns: nothing. Fails: never yet. Threads: any that may wait for the guest; deleters and finalizers run here.
 * Standard: none. */
MF_API int mf_guest_collect(mf_error *err);

/* mf_guest_finish(wait_ms, late, err): ends the guest now, on this thread, so that the end of the process has nothing
 * left to do: no new call gets into it, calls that are inside have ${wait_ms} to come out, and so have its own threads
 * that a program of it would wait for; then its exit functions run. Whoever has not come out is left behind; ${late}
 * (may be NULL) becomes their count. The second call does nothing. Without a guest there is nothing to do.
 * Owns: nothing. Fails: MF_EINVAL for a negative ${wait_ms}, and from inside of a call of the guest. Threads: any.
 * Standard: none. */
MF_API int mf_guest_finish(int32_t wait_ms, int32_t *late, mf_error *err);

/* The library itself: which one it is, what is alive, where its memory comes from. */

/* mf_version_string(): the version of the loaded library, "major.minor.patch".
 * Owns: static storage. Fails: never. Threads: any. Standard: none. */
MF_API const char *mf_version_string(void);

/* mf_build_id(): names the runtime sources and the header that the loaded library was built from. A binding compares
 * it with its own, so that two different builds in one process are refused.
 * Owns: static storage. Fails: never. Threads: any. Standard: none. */
MF_API const char *mf_build_id(void);

/* What is alive in this process. A program that has released everything reads zero everywhere. */
typedef struct mf_ledger {
  int64_t tensors;  /* live mf_tensor objects; an export keeps its tensor alive */
  int64_t storages; /* live memory blocks: allocated, wrapped or imported */
  int64_t bytes;    /* bytes of element memory that live storages hold, others' memory included, modulo 2^64 */
  int64_t blocks;   /* live blocks of Moonferry's host allocator, descriptions included */
} mf_ledger;

/* mf_ledger_read(out): fills ${out}.
 * Owns: nothing. Fails: never. Threads: any; exact when no other thread is inside the library. Standard: none. */
MF_API void mf_ledger_read(mf_ledger *out);

/* Shaped like realloc, as Lua's: ptr NULL allocates, new_nbytes 0 frees and returns NULL. It must be
 * thread-safe and return memory aligned as malloc does, or NULL. */
typedef void *(*mf_realloc_fn)(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes);

/* mf_allocator_set(fn, ctx, err): all host memory of the library comes from ${fn} from now on; NULL restores malloc.
 * Owns: ${ctx} stays the caller's and must outlive every block. Fails: MF_EINVAL while any block is alive. Threads:
 * before any other use. Standard: none. */
MF_API int mf_allocator_set(mf_realloc_fn fn, void *ctx, mf_error *err);

/* mf_fault_arm(nth, sticky): for tests. The ${nth} allocation from now on this thread (0 is the next one) fails, and
 * with ${sticky} every later one too. A negative ${nth} disarms.
 * Owns: nothing. Fails: never. Threads: the calling one. Standard: none. */
MF_API void mf_fault_arm(int64_t nth, int32_t sticky);

/* mf_fault_hits(): how many allocations mf_fault_arm has made fail on this thread since it was armed.
 * Owns: nothing. Fails: never. Threads: the calling one. Standard: none. */
MF_API int64_t mf_fault_hits(void);

#ifdef __cplusplus
}
#endif

#endif /* MOONFERRY_H */
