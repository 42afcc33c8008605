/* operations.h: every public operation that a driver takes part in, each as one call on the same few objects, for specs
 * that do something to all of them: beside a capture, with something happening inside each driver call. */
#ifndef MOONFERRY_SPEC_OPERATIONS_H
#define MOONFERRY_SPEC_OPERATIONS_H

#include "../sim/gl_texture.h"
#include "loan.h"

#include <unistd.h>

enum { LARGE = (17 << 20) + 1000 }; /* through the staging ring, with helpers */

static mf_stream mine; /* the other thread's, where it works */
static mf_tensor *on_gpu, *on_host, *small_gpu, *small_host, *square, *strided, *wide;
enum { NLENT = 4 };

static loan *lent[NLENT];
static int nlent; /* that were imported */

typedef int (*operation)(mf_error *e);

static inline int copy(mf_tensor *dst, const mf_tensor *src, mf_error *e) {
  return mf_tensor_copy(dst, src, e);
}

static inline int upload(mf_error *e) { return copy(on_gpu, on_host, e); }
static inline int download(mf_error *e) { return copy(on_host, on_gpu, e); }
static inline int upload_little(mf_error *e) { return copy(small_gpu, small_host, e); }
static inline int download_little(mf_error *e) { return copy(small_host, small_gpu, e); }
static inline int copy_strided(mf_error *e) { return copy(square, strided, e); }

/* By way of memory that is made for it. */
static inline int copy_overlapping(mf_error *e) {
  mf_index part = {.kind = MF_INDEX_SLICE, .start = 0, .stop = NBYTES - 1, .step = 1};
  mf_tensor *first = NULL, *second = NULL;
  int rc = mf_tensor_index(small_gpu, &part, 1, &first, e);
  part.start++, part.stop++;
  if (rc == MF_OK) rc = mf_tensor_index(small_gpu, &part, 1, &second, e);
  if (rc == MF_OK) rc = copy(second, first, e);
  mf_tensor_release(first);
  mf_tensor_release(second);
  return rc;
}

/* By way of the host, which alone writes half a byte. */
static inline int copy_half_bytes(mf_error *e) {
  const DLTensor like = {.device = gpu(0), .ndim = 1, .dtype = {kDLInt, 4, 1}, .shape = (int64_t[]){64}};
  const mf_index part = {.kind = MF_INDEX_SLICE, .start = 0, .stop = 33, .step = 1};
  mf_tensor *all[4] = {NULL};
  int rc = mf_tensor_create(&like, 0, &all[0], e);
  if (rc == MF_OK) rc = mf_tensor_create(&like, 0, &all[1], e);
  if (rc == MF_OK) rc = mf_tensor_index(all[0], &part, 1, &all[2], e);
  if (rc == MF_OK) rc = mf_tensor_index(all[1], &part, 1, &all[3], e);
  if (rc == MF_OK) rc = copy(all[2], all[3], e);
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
  return rc;
}

static inline int copy_to_another_gpu(mf_error *e) {
  const mf_request there = {.device = {gpu(0).device_type, 1}};
  mf_tensor *t;
  if (other_devices() < 2) return MF_OK;
  int rc = mf_tensor_to(small_gpu, &there, &t, e);
  if (rc != MF_OK) return rc;
  rc = copy(small_gpu, t, e);
  mf_tensor_release(t);
  return rc;
}

static inline int fill_small(mf_error *e) {
  const mf_scalar one = {.kind = MF_KIND_UINT, .u = 1};
  return mf_tensor_fill(small_gpu, &one, e);
}

/* By kernels, where the driver has them. */
static inline int convert(mf_error *e) {
  const int rc = mf_tensor_astype(wide, strided, e);
  return rc == MF_OK ? mf_tensor_astype(square, wide, e) : rc;
}

static inline int compare(mf_error *e) {
  int32_t same;
  return mf_tensor_equal(square, strided, &same, e);
}

static inline int put_and_get(mf_error *e) {
  const int64_t at[] = {3, 5};
  const mf_scalar seven = {.kind = MF_KIND_UINT, .u = 7};
  mf_scalar got;
  int rc = mf_tensor_put(square, at, 2, &seven, e);
  if (rc == MF_OK) rc = mf_tensor_get(square, at, 2, &got, e);
  return rc;
}

static inline int synchronize_stream(mf_error *e) {
  const DLDevice device = gpu(0);
  return mf_stream_synchronize(&device, mine, e);
}

static inline int query_stream(mf_error *e) {
  const DLDevice device = gpu(0);
  int32_t done;
  return mf_stream_query(&device, mine, &done, e);
}

static inline int wait_for_stream(mf_error *e) {
  const DLDevice device = gpu(0);
  mf_stream s;
  int rc = mf_stream_create(&device, &s, e);
  if (rc != MF_OK) return rc;
  rc = mf_stream_wait(&device, s, &device, mine, e);
  (void)mf_stream_destroy(&device, s, NULL);
  return rc;
}

static inline int create_and_release(DLDevice device, mf_error *e) {
  static int64_t shape[] = {123457};
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *t;
  const int rc = mf_tensor_create(&like, 0, &t, e);
  if (rc == MF_OK) mf_tensor_release(t);
  return rc;
}

static inline int create_on_gpu(mf_error *e) { return create_and_release(gpu(0), e); }
static inline int create_pinned(mf_error *e) { return create_and_release(pinned(), e); }
static inline int create_managed(mf_error *e) {
  return other_managed_type() == 0 ? MF_OK : create_and_release(managed(), e);
}

static inline int trim_gpu(mf_error *e) {
  const DLDevice device = gpu(0);
  return mf_pool_trim(&device, e);
}

static inline int trim_pinned(mf_error *e) {
  const DLDevice device = pinned();
  return mf_pool_trim(&device, e);
}

static inline int trim_everything(mf_error *e) { return mf_pools_trim(0, e); }

static inline int find_no_memory(mf_error *e) {
  const DLDevice device = gpu(0);
  mf_tensor *t;
  int64_t shape[] = {1 << 20};
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  int rc = mf_pool_limit(&device, 1, e);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_create(&like, 0, &t, e);
  if (rc == MF_OK) abort();
  (void)mf_pool_limit(&device, 0, NULL);
  return rc == MF_ENOMEM ? MF_OK : rc;
}

/* What is created when the pool may not grow. That there is no memory for it is no failure. */
static inline int create_without_growth(const DLTensor *like, mf_error *e) {
  mf_pool_stats s;
  mf_tensor *t;
  int rc = mf_pool_read(&like->device, &s, e);
  if (rc == MF_OK) rc = mf_pool_limit(&like->device, s.used_bytes + s.cached_bytes, e);
  if (rc == MF_OK) rc = mf_tensor_create(like, 0, &t, e);
  if (rc == MF_OK) mf_tensor_release(t);
  (void)mf_pool_limit(&like->device, 0, NULL);
  return rc == MF_ENOMEM ? MF_OK : rc;
}

/* The pool may not grow, so that it takes a block with which another stream is not done. */
static inline int take_a_block_of_another(mf_error *e) {
  const DLDevice device = gpu(0);
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = (int64_t[]){3 << 20}};
  mf_stream other;
  mf_tensor *t = NULL;
  int rc = mf_stream_create(&device, &other, e);
  if (rc != MF_OK) return rc;
  rc = mf_stream_swap(&device, other, NULL, e);
  if (rc == MF_OK) rc = mf_tensor_create(&like, 0, &t, e);
  if (t != NULL) other_fill(0, data_of(t), 1, NBYTES, other);
  mf_tensor_release(t);
  (void)mf_stream_swap(&device, mine, NULL, NULL);
  if (rc == MF_OK) rc = create_without_growth(&like, e);
  (void)mf_stream_destroy(&device, other, NULL);
  return rc;
}

/* The pool may not grow, and what it keeps is too small, so that this goes back to the driver first; another stream is
 * not done with it. */
static inline int free_what_is_kept(mf_error *e) {
  const DLDevice device = gpu(0);
  const DLTensor small = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = (int64_t[]){2 << 20}};
  const DLTensor large = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = (int64_t[]){3 << 20}};
  mf_stream other;
  mf_tensor *a = NULL, *b = NULL;
  int rc = mf_stream_create(&device, &other, e);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_create(&small, 0, &a, e);
  if (rc == MF_OK) rc = mf_tensor_create(&small, 0, &b, e);
  if (rc == MF_OK) rc = mf_tensor_acquire(a, other, MF_READ, e);
  if (rc == MF_OK) rc = mf_tensor_acquire(b, other, MF_WRITE, e);
  if (rc == MF_OK) other_copy(0, data_of(b), data_of(a), NBYTES, other);
  mf_tensor_release(a);
  mf_tensor_release(b);
  if (rc == MF_OK) rc = create_without_growth(&large, e);
  (void)mf_stream_destroy(&device, other, NULL);
  return rc;
}

static inline int find_pointer(mf_error *e) {
  DLDevice found;
  return mf_device_of_pointer(other_device_type(), data_of(small_gpu), &found, e);
}

static inline int import_and_release(mf_error *e) {
  mf_tensor *t;
  loan *l = lent[nlent++]; /* at once: inside of the import somebody else may take the next one */
  int rc = mf_tensor_import(&l->managed, &t, e);
  if (rc != MF_OK) nlent--;
  if (rc != MF_OK) return rc;
  rc = mf_tensor_acquire(t, mine, MF_WRITE, e);
  if (rc == MF_OK) other_fill(0, data_of(t), 1, NBYTES, mine);
  mf_tensor_release(t);
  return rc;
}

static inline int export_and_delete(mf_error *e) {
  DLManagedTensorVersioned *m;
  const mf_request request = {.stream = mine};
  const int rc = mf_tensor_export_to(small_gpu, &request, &m, e);
  if (rc != MF_OK) return rc;
  other_fill(0, m->dl_tensor.data, 1, NBYTES, mine);
  m->deleter(m);
  return rc;
}

static inline int to_the_host(mf_error *e) {
  const mf_request request = {.device = {kDLCPU, 0}};
  mf_tensor *t;
  const int rc = mf_tensor_to(small_gpu, &request, &t, e);
  if (rc == MF_OK) mf_tensor_release(t);
  return rc;
}

static inline int acquire_for_the_host(mf_error *e) {
  return mf_tensor_acquire(small_gpu, MF_STREAM_HOST, MF_WRITE, e);
}

/* On the record of work of a stream of its own that the host never waited for. */
static inline int use_from_two_streams(mf_error *e) {
  const DLDevice device = gpu(0);
  mf_stream s;
  int rc = mf_stream_create(&device, &s, e);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_acquire(small_gpu, s, MF_WRITE, e);
  if (rc == MF_OK) other_fill(0, data_of(small_gpu), 1, NBYTES, s);
  if (rc == MF_OK) rc = mf_tensor_acquire(small_gpu, mine, MF_WRITE, e);
  (void)mf_stream_destroy(&device, s, NULL);
  return rc;
}

/* A semaphore that this signals before it waits for it. The other API is the simulator, which alone has one. */
static inline int use_a_semaphore(mf_error *e) {
  const DLDevice device = gpu(0);
  mf_semaphore *s;
  if (!other_is_simulated()) return MF_OK;
  const int fd = sim_ask_semaphore(0, false);
  int rc = mf_semaphore_from_fd(&device, fd, 0, &s, e);
  if (rc != MF_OK) {
    close(fd);
    return rc;
  }
  rc = mf_semaphore_signal(s, mine, 1, e);
  if (rc == MF_OK) rc = mf_semaphore_wait(s, mine, 1, e);
  mf_semaphore_release(s);
  return rc;
}

/* Up as it is and down by way of memory that is made for it, with OpenGL's context current on this thread alone. */
static inline int use_a_texture(mf_error *e) {
  enum { WIDTH = 64, HEIGHT = 16 };
  static unsigned texture;
  const DLDevice device = gpu(0);
  mf_gl_texture *x = NULL;
  mf_tensor *pixels = NULL, *upside_down = NULL;
  const mf_index flip = {.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = -1};
  if (!other_is_simulated()) return MF_OK;
  if (gl_of.context == NULL) gl_open();
  gl_current(1);
  if (texture == 0) texture = gl_texture(&gl_forms[2], WIDTH, HEIGHT, NULL);
  int rc = mf_gl_texture_open(&device, texture, 0, 0, &x, e);
  if (rc == MF_OK) rc = mf_tensor_reshape(square, (int64_t[]){HEIGHT, WIDTH, 4}, 3, &pixels, e);
  if (rc == MF_OK) rc = mf_tensor_index(pixels, &flip, 1, &upside_down, e);
  if (rc == MF_OK) rc = mf_gl_texture_upload(x, pixels, 0, 0, mine, e);
  if (rc == MF_OK) rc = mf_gl_texture_download(x, upside_down, 0, 0, mine, e);
  if (rc == MF_OK) rc = mf_gl_texture_upload(x, upside_down, 0, 0, mine, e);
  mf_tensor_release(upside_down);
  mf_tensor_release(pixels);
  const int closed = mf_gl_texture_close(x, rc == MF_OK ? e : NULL);
  gl_current(0);
  return rc != MF_OK ? rc : closed;
}

/* Written there by a copy, on another stream than the one that maps. Where a capture keeps it mapped, the next call
 * ends that. */
static inline int use_a_buffer(mf_error *e) {
  static unsigned buffer;
  static mf_gl_buffer *b;
  const DLDevice device = gpu(0);
  mf_tensor *mapped = NULL;
  if (!other_is_simulated()) return MF_OK;
  if (gl_of.context == NULL) gl_open();
  gl_current(1);
  if (buffer == 0) buffer = gl_buffer(NULL, NBYTES, 0);
  int rc = mf_gl_buffer_close(b, e);
  if (rc == MF_OK) b = NULL;
  if (rc == MF_OK) rc = mf_gl_buffer_open(&device, buffer, 0, &b, e);
  if (rc == MF_OK) rc = mf_gl_buffer_map(b, MF_STREAM_PER_THREAD, mf_tensor_dltensor(small_gpu), &mapped, e);
  if (rc == MF_OK) rc = mf_tensor_copy(mapped, small_gpu, e);
  const int closed = mf_gl_buffer_close(b, rc == MF_OK ? e : NULL);
  if (closed != MF_ECAPTURE) b = NULL;
  gl_current(0);
  return rc != MF_OK ? rc : closed;
}

static const struct {
  const char *name;
  operation run;
} operations[] = {
    {"upload", upload},
    {"download", download},
    {"upload_little", upload_little},
    {"download_little", download_little},
    {"copy_strided", copy_strided},
    {"copy_overlapping", copy_overlapping},
    {"copy_half_bytes", copy_half_bytes},
    {"copy_to_another_gpu", copy_to_another_gpu},
    {"fill", fill_small},
    {"convert", convert},
    {"compare", compare},
    {"put_and_get", put_and_get},
    {"synchronize_stream", synchronize_stream},
    {"query_stream", query_stream},
    {"wait_for_stream", wait_for_stream},
    {"create_on_gpu", create_on_gpu},
    {"create_pinned", create_pinned},
    {"create_managed", create_managed},
    {"find_no_memory", find_no_memory},
    {"take_a_block_of_another", take_a_block_of_another},
    {"free_what_is_kept", free_what_is_kept},
    {"find_pointer", find_pointer},
    {"import_and_release", import_and_release},
    {"export_and_delete", export_and_delete},
    {"to_the_host", to_the_host},
    {"acquire_for_the_host", acquire_for_the_host},
    {"use_from_two_streams", use_from_two_streams},
    {"use_a_semaphore", use_a_semaphore},
    {"use_a_texture", use_a_texture},
    {"use_a_buffer", use_a_buffer},
    {"trim_gpu", trim_gpu},
    {"trim_pinned", trim_pinned},
    {"trim_everything", trim_everything},
};

static inline void open_tensors(void) {
  const int64_t flat[] = {NBYTES};
  const DLTensor like = {.device = gpu(0), .ndim = 2, .dtype = {kDLUInt, 8, 1}, .shape = (int64_t[]){64, 64}};
  mf_tensor *source;
  mine = stream_new(0);
  on_gpu = create(gpu(0), LARGE);
  on_host = create((DLDevice){kDLCPU, 0}, LARGE);
  memset(data_of(on_host), 7, LARGE);
  small_host = create((DLDevice){kDLCPU, 0}, NBYTES);
  memset(data_of(small_host), 7, NBYTES);
  OK(mf_tensor_create(&like, 0, &square, &err));
  OK(mf_tensor_reshape(square, flat, 1, &small_gpu, &err));
  const DLTensor floats = {.device = gpu(0), .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = like.shape};
  OK(mf_tensor_create(&floats, 0, &wide, &err));
  OK(mf_tensor_create(&like, 0, &source, &err));
  OK(mf_tensor_permute_dims(source, NULL, 0, &strided, &err));
  mf_tensor_release(source);
  for (int i = 0; i < NLENT; i++) lent[i] = loan_new();
  nlent = 0;
}

static inline void close_tensors(void) {
  mf_tensor *all[] = {on_gpu, on_host, small_gpu, small_host, square, strided, wide};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
  synchronize(0);
  for (int i = 0; i < NLENT; i++) {
    if (i >= nlent) atomic_store(&lent[i]->deleted, 1);
    loan_end(lent[i]);
  }
  stream_end(0, mine);
}

#endif
