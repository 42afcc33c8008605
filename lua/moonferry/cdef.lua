-- LuaJIT's view of moonferry.h and dlpack.h. Written by lua/generate_cdef.py; do not edit.
-- Each part is declared only if its name is still unknown: another library may have declared
-- DLPack's structs, and a second run of this module in one process must not declare ours again.
return {
  header_hash = "1813fb8d5221f994",
  constants = {
    MF_MAX_NDIM = 64,
    MF_ALIGNMENT = 256,
    MF_CREATE_PAGES = 256,
    MF_RING_MAX = 64,
    DLPACK_MAJOR_VERSION = 1,
    DLPACK_MINOR_VERSION = 3,
    DLPACK_FLAG_BITMASK_READ_ONLY = 1,
    DLPACK_FLAG_BITMASK_IS_COPIED = 2,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED = 4,
    MF_STREAM_CURRENT = 0,
    MF_STREAM_DEFAULT = 1,
    MF_STREAM_PER_THREAD = 2,
    MF_STREAM_NO_ORDER = -1,
    MF_STREAM_HOST = -2,
  },
  parts = {
    { "DLPackVersion", [[
typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;
]] },
    { "DLDevice", [[
typedef struct {
  int32_t device_type;
  int32_t device_id;
} DLDevice;
]] },
    { "DLDataType", [[
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
]] },
    { "DLTensor", [[
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} DLTensor;
]] },
    { "DLManagedTensor", [[
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
]] },
    { "DLManagedTensorVersioned", [[
typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;
]] },
    { "mf_error", [[
typedef enum mf_status {
  MF_OK = 0,
  MF_EINVAL = -1,
  MF_ENOMEM = -2,
  MF_EOVERFLOW = -3,
  MF_EBOUNDS = -4,
  MF_EREADONLY = -5,
  MF_ECLOSED = -6,
  MF_EDTYPE = -7,
  MF_ELAYOUT = -8,
  MF_EDEVICE = -9,
  MF_EVERSION = -10,
  MF_EDRIVER = -11,
  MF_ECAPTURE = -12,
  MF_ETIMEOUT = -13,
} mf_status;
typedef struct mf_error {
  int32_t status;
  int32_t driver_code;
  const char *call;
  char message[240];
} mf_error;
const char *mf_status_name(int32_t status);
int mf_dtype_parse(const char *name, DLDataType *out, mf_error *err);
int mf_dtype_format(const DLDataType *dtype, char *buf, size_t cap, mf_error *err);
int64_t mf_dtype_bits(const DLDataType *dtype, uint64_t flags);
typedef enum mf_kind {
  MF_KIND_BOOL = 0,
  MF_KIND_INT = 1,
  MF_KIND_UINT = 2,
  MF_KIND_FLOAT = 3,
  MF_KIND_COMPLEX = 4,
} mf_kind;
typedef struct mf_scalar {
  int32_t kind;
  int32_t zero;
  union { int64_t i; uint64_t u; double f; };
  double imag;
} mf_scalar;
typedef struct mf_tensor mf_tensor;
typedef void (*mf_release_fn)(void *ctx);
void mf_release_mark(void *ctx);
typedef struct mf_release_list {
  struct mf_release_entry *first;
} mf_release_list;
typedef struct mf_release_entry {
  mf_release_fn release;
  void *ctx;
  mf_release_list *list;
  struct mf_release_entry *next;
} mf_release_entry;
void mf_release_defer(void *entry);
int64_t mf_release_list_run(mf_release_list *list);
int mf_tensor_create(const DLTensor *like, uint64_t flags, mf_tensor **out, mf_error *err);
int mf_tensor_wrap(const DLTensor *view, uint64_t flags, mf_release_fn release, void *ctx,
  mf_tensor **out, mf_error *err);
mf_tensor *mf_tensor_retain(mf_tensor *t);
void mf_tensor_release(mf_tensor *t);
int32_t mf_tensor_release_later(mf_tensor *t);
void mf_releases_run(void);
int mf_tensor_invalidate(mf_tensor *t, int32_t *in_use, mf_error *err);
int32_t mf_tensor_is_valid(const mf_tensor *t);
const DLTensor *mf_tensor_dltensor(const mf_tensor *t);
uint64_t mf_tensor_flags(const mf_tensor *t);
int64_t mf_tensor_size(const mf_tensor *t);
int64_t mf_tensor_nbytes(const mf_tensor *t);
int32_t mf_tensor_is_contiguous(const mf_tensor *t);
typedef enum mf_index_kind {
  MF_INDEX_AT = 0,
  MF_INDEX_SLICE = 1,
  MF_INDEX_NEWAXIS = 2,
  MF_INDEX_ELLIPSIS = 3,
} mf_index_kind;
typedef struct mf_index {
  int32_t kind;
  int32_t zero;
  int64_t start;
  int64_t stop;
  int64_t step;
} mf_index;
int mf_tensor_index(const mf_tensor *t, const mf_index *items, int32_t nitems, mf_tensor **out,
  mf_error *err);
int mf_tensor_permute_dims(const mf_tensor *t, const int32_t *axes, int32_t naxes,
  mf_tensor **out, mf_error *err);
int mf_tensor_reshape(const mf_tensor *t, const int64_t *shape, int32_t ndim, mf_tensor **out,
  mf_error *err);
int mf_tensor_broadcast_to(const mf_tensor *t, const int64_t *shape, int32_t ndim,
  mf_tensor **out, mf_error *err);
int mf_tensor_squeeze(const mf_tensor *t, const int32_t *axes, int32_t naxes, mf_tensor **out,
  mf_error *err);
int mf_tensor_expand_dims(const mf_tensor *t, int32_t axis, mf_tensor **out, mf_error *err);
int mf_tensor_diagonal(const mf_tensor *t, int64_t offset, const int32_t axes[2],
  mf_tensor **out, mf_error *err);
int mf_tensor_reinterpret(const mf_tensor *t, const DLDataType *dtype, mf_tensor **out,
  mf_error *err);
int mf_tensor_as_readonly(const mf_tensor *t, mf_tensor **out, mf_error *err);
int mf_tensor_copy(mf_tensor *dst, const mf_tensor *src, mf_error *err);
int mf_tensor_astype(mf_tensor *dst, const mf_tensor *src, mf_error *err);
int mf_tensor_copy_part(mf_tensor *dst, const mf_tensor *src, int64_t *at, mf_error *err);
int mf_tensor_fill(mf_tensor *t, const mf_scalar *value, mf_error *err);
int mf_tensor_get(const mf_tensor *t, const int64_t *coords, int32_t ncoords, mf_scalar *out,
  mf_error *err);
int mf_tensor_put(mf_tensor *t, const int64_t *coords, int32_t ncoords, const mf_scalar *value,
  mf_error *err);
int mf_tensor_clone(const mf_tensor *t, mf_tensor **out, mf_error *err);
int mf_tensor_equal(const mf_tensor *a, const mf_tensor *b, int32_t *out, mf_error *err);
const char *mf_simd(void);
int mf_simd_set(const char *name, mf_error *err);
int32_t mf_threads(void);
int mf_threads_set(int32_t n, mf_error *err);
int mf_dltensor_check(const DLTensor *view, uint64_t flags, mf_error *err);
int mf_tensor_import(DLManagedTensorVersioned *managed, mf_tensor **out, mf_error *err);
int mf_tensor_import_legacy(DLManagedTensor *managed, mf_tensor **out, mf_error *err);
int mf_tensor_export(mf_tensor *t, uint64_t flags, DLManagedTensorVersioned **out,
  mf_error *err);
int mf_tensor_export_legacy(mf_tensor *t, DLManagedTensor **out, mf_error *err);
void mf_export_delete_later(DLManagedTensorVersioned *managed);
void mf_export_delete_later_legacy(DLManagedTensor *managed);
typedef enum mf_copy {
  MF_COPY_IF_NEEDED = 0,
  MF_COPY_NEVER = 1,
  MF_COPY_ALWAYS = 2,
} mf_copy;
typedef int64_t mf_stream;
typedef struct mf_request {
  DLDevice device;
  int32_t copy;
  int32_t zero;
  mf_stream stream;
} mf_request;
int mf_tensor_to(mf_tensor *t, const mf_request *request, mf_tensor **out, mf_error *err);
int mf_tensor_export_to(mf_tensor *t, const mf_request *request, DLManagedTensorVersioned **out,
  mf_error *err);
int mf_tensor_export_legacy_to(mf_tensor *t, const mf_request *request, DLManagedTensor **out,
  mf_error *err);
int mf_tensor_borrow(const mf_tensor *t, DLTensor *out, mf_error *err);
int mf_device_count(int32_t device_type, int32_t *out, mf_error *err);
int mf_device_of_pointer(int32_t device_type, const void *ptr, DLDevice *out, mf_error *err);
int mf_device_synchronize(const DLDevice *device, mf_error *err);
int mf_device_parse(const char *name, DLDevice *out, mf_error *err);
int mf_device_format(const DLDevice *device, char *buf, size_t cap, mf_error *err);
int mf_stream_create(const DLDevice *device, mf_stream *out, mf_error *err);
int mf_stream_destroy(const DLDevice *device, mf_stream stream, mf_error *err);
int mf_stream_check(const DLDevice *device, mf_stream stream, mf_error *err);
int mf_stream_current(const DLDevice *device, mf_stream *out, mf_error *err);
int mf_stream_swap(const DLDevice *device, mf_stream stream, mf_stream *old, mf_error *err);
int mf_stream_synchronize(const DLDevice *device, mf_stream stream, mf_error *err);
int mf_stream_query(const DLDevice *device, mf_stream stream, int32_t *out, mf_error *err);
int mf_stream_wait(const DLDevice *device, mf_stream stream, const DLDevice *other_device,
  mf_stream other, mf_error *err);
typedef enum mf_use {
  MF_READ = 1,
  MF_WRITE = 2,
} mf_use;
int mf_tensor_acquire(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err);
int mf_tensor_record(mf_tensor *t, mf_stream stream, int32_t use, mf_error *err);
int32_t mf_tensor_is_ordered(const mf_tensor *t);
typedef struct mf_fence {
  void *ctx;
  uint64_t value;
  int32_t (*wait)(void *ctx, uint64_t value, int64_t ns);
  void (*drop)(void *ctx, uint64_t value);
} mf_fence;
int mf_tensor_fence(mf_tensor *t, const mf_fence *fence, int32_t use, mf_error *err);
int mf_tensor_fence_wait(const mf_tensor *t, int32_t use, int64_t ns, int32_t *out,
  mf_error *err);
const uint32_t *mf_fence_epoch(void);
typedef struct mf_ring mf_ring;
int mf_ring_create(mf_tensor *const *slots, int32_t n, mf_ring **out, mf_error *err);
mf_ring *mf_ring_retain(mf_ring *r);
void mf_ring_release(mf_ring *r);
int32_t mf_ring_count(const mf_ring *r);
mf_tensor *mf_ring_slot(const mf_ring *r, int32_t i);
int mf_ring_begin(mf_ring *r, int64_t ns, int32_t *slot, mf_error *err);
int mf_ring_end(mf_ring *r, const mf_fence *fence, int32_t use, mf_error *err);
int mf_ring_publish(mf_ring *r, mf_error *err);
int mf_ring_latest(mf_ring *r, int32_t *slot, int32_t *fresh, mf_error *err);
int mf_ring_fence(mf_ring *r, const mf_fence *fence, int32_t use, mf_error *err);
typedef struct mf_gl mf_gl;
typedef struct mf_gl_calls {
  void *(*fence_sync)(uint32_t condition, uint32_t flags);
  uint32_t (*client_wait_sync)(void *sync, uint32_t flags, uint64_t timeout_ns);
  void (*delete_sync)(void *sync);
  void *(*current_context)(void);
} mf_gl_calls;
int mf_gl_create(const mf_gl_calls *calls, mf_gl **out, mf_error *err);
void mf_gl_release(mf_gl *gl);
void mf_gl_end(mf_gl *gl);
int mf_gl_fence(mf_gl *gl, mf_fence *out, mf_error *err);
int mf_tensor_from_fd(const DLTensor *like, int32_t fd, uint64_t nbytes, mf_tensor **out,
  mf_error *err);
typedef struct mf_semaphore mf_semaphore;
int mf_semaphore_from_fd(const DLDevice *device, int32_t fd, uint32_t flags, mf_semaphore **out,
  mf_error *err);
int mf_semaphore_wait(mf_semaphore *s, mf_stream stream, uint64_t value, mf_error *err);
int mf_semaphore_signal(mf_semaphore *s, mf_stream stream, uint64_t value, mf_error *err);
void mf_semaphore_release(mf_semaphore *s);
typedef struct mf_gl_buffer mf_gl_buffer;
int mf_gl_buffer_open(const DLDevice *device, uint32_t buffer, uint32_t flags,
  mf_gl_buffer **out, mf_error *err);
int mf_gl_buffer_map(mf_gl_buffer *b, mf_stream stream, const DLTensor *like, mf_tensor **out,
  mf_error *err);
int mf_gl_buffer_unmap(mf_gl_buffer *b, int32_t *in_use, mf_error *err);
int mf_gl_buffer_close(mf_gl_buffer *b, mf_error *err);
typedef struct mf_gl_texture mf_gl_texture;
int mf_gl_texture_open(const DLDevice *device, uint32_t texture, uint32_t target,
  uint32_t flags, mf_gl_texture **out, mf_error *err);
int mf_gl_texture_upload(mf_gl_texture *texture, mf_tensor *t, int64_t x, int64_t y,
  mf_stream stream, mf_error *err);
int mf_gl_texture_download(mf_gl_texture *texture, mf_tensor *t, int64_t x, int64_t y,
  mf_stream stream, mf_error *err);
int mf_gl_texture_close(mf_gl_texture *texture, mf_error *err);
typedef enum mf_none {
  MF_NONE_DEFAULT = 0,
  MF_NONE_NO_ORDER = 1,
  MF_NONE_REFUSE = 2,
} mf_none;
int mf_stream_none_set(int32_t meaning, mf_error *err);
int32_t mf_stream_none(void);
int mf_stream_from_number(const DLDevice *device, int64_t number, mf_stream *out,
  mf_error *err);
int mf_stream_to_number(const DLDevice *device, mf_stream stream, int64_t *out, mf_error *err);
typedef struct mf_pool_stats {
  int64_t used_bytes;
  int64_t cached_bytes;
  int64_t limit_bytes;
  int64_t deferred;
  int64_t hits, misses;
} mf_pool_stats;
int mf_pool_read(const DLDevice *device, mf_pool_stats *out, mf_error *err);
int mf_pool_limit(const DLDevice *device, int64_t nbytes, mf_error *err);
int mf_pool_trim(const DLDevice *device, mf_error *err);
int mf_pools_trim(int32_t wait_ms, mf_error *err);
typedef struct mf_guest {
  int (*collect)(mf_error *err);
  int (*finish)(int32_t wait_ms, int32_t *late, mf_error *err);
  void (*leave)(void);
} mf_guest;
int32_t mf_guest_set(const mf_guest *guest);
int mf_guest_collect(mf_error *err);
int mf_guest_finish(int32_t wait_ms, int32_t *late, mf_error *err);
const char *mf_version_string(void);
const char *mf_build_id(void);
typedef struct mf_ledger {
  int64_t tensors;
  int64_t storages;
  int64_t bytes;
  int64_t blocks;
} mf_ledger;
void mf_ledger_read(mf_ledger *out);
typedef void *(*mf_realloc_fn)(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes);
int mf_allocator_set(mf_realloc_fn fn, void *ctx, mf_error *err);
void mf_fault_arm(int64_t nth, int32_t sticky);
int64_t mf_fault_hits(void);
]] },
  },
}
