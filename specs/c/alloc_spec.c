/* alloc_spec.c: running out of memory. Every public function that allocates is called with its first, second,
 * ... allocation failing, once and from then on; each time it fails with MF_ENOMEM, gives NULL, and leaves
 * everything as it was. Also: the allocator itself, and how it is changed. */
#define _POSIX_C_SOURCE 200809L
#include "spec.h"

#include <pthread.h>
#include <stdatomic.h>
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
#include <malloc.h>
#define HAS_COUNTS
#endif

static mf_tensor *subject;
static mf_tensor *other;
static spec_loan *lent;

/* The output of a view: released on success, NULL on failure. */
static int view(int rc, mf_tensor *out) {
  if (rc == MF_OK) mf_tensor_release(out);
  else assert_null(out);
  return rc;
}

#define VIEW(name, call)                             \
  static int name(void *ctx, mf_error *err) {        \
    mf_tensor *out = (mf_tensor *)(uintptr_t)16;     \
    (void)ctx;                                       \
    int rc = (call);                                 \
    return view(rc, out);                            \
  }

static const mf_index first = {.kind = MF_INDEX_AT};
static DLDataType bytes = {kDLUInt, 8, 1};
static int64_t six[] = {6};
static int64_t wide[] = {4, 2, 3};

VIEW(indexes, mf_tensor_index(subject, &first, 1, &out, err))
VIEW(permutes, mf_tensor_permute_dims(subject, NULL, 0, &out, err))
VIEW(reshapes, mf_tensor_reshape(subject, six, 1, &out, err))
VIEW(broadcasts, mf_tensor_broadcast_to(subject, wide, 3, &out, err))
VIEW(squeezes, mf_tensor_squeeze(subject, NULL, 0, &out, err))
VIEW(expands, mf_tensor_expand_dims(subject, 0, &out, err))
VIEW(diagonals, mf_tensor_diagonal(subject, 0, (int32_t[]){0, 1}, &out, err))
VIEW(reinterprets, mf_tensor_reinterpret(subject, &bytes, &out, err))
VIEW(makes_readonly, mf_tensor_as_readonly(subject, &out, err))
VIEW(clones, mf_tensor_clone(subject, &out, err))
VIEW(creates, mf_tensor_create(mf_tensor_dltensor(subject), 0, &out, err))
VIEW(creates_nothing, mf_tensor_create(&(DLTensor){.ndim = 1, .dtype = bytes, .shape = (int64_t[]){0}}, 0, &out, err))

static int wraps(void *ctx, mf_error *err) {
  spec_once *once = spec_once_new();
  mf_tensor *out = (mf_tensor *)(uintptr_t)16;
  (void)ctx;
  int rc = mf_tensor_wrap(mf_tensor_dltensor(subject), 0, spec_once_run, once, &out, err);
  if (rc != MF_OK) spec_once_never(once);
  return view(rc, out);
}

static int imports_either(bool legacy, mf_error *err) {
  mf_tensor *out = (mf_tensor *)(uintptr_t)16;
  lent = spec_lend_compact("float32", DIMS(2, 3), legacy);
  int rc = spec_import(lent, &out, err);
  if (rc != MF_OK) spec_loan_refused(lent);
  return view(rc, out);
}

static int imports(void *ctx, mf_error *err) {
  (void)ctx;
  return imports_either(false, err);
}

static int imports_legacy(void *ctx, mf_error *err) {
  (void)ctx;
  return imports_either(true, err);
}

static int exports(void *ctx, mf_error *err) {
  DLManagedTensorVersioned *m = (DLManagedTensorVersioned *)(uintptr_t)16;
  (void)ctx;
  int rc = mf_tensor_export(subject, 0, &m, err);
  if (rc == MF_OK) m->deleter(m);
  else assert_null(m);
  return rc;
}

static int exports_a_copy(void *ctx, mf_error *err) {
  DLManagedTensorVersioned *m = (DLManagedTensorVersioned *)(uintptr_t)16;
  (void)ctx;
  int rc = mf_tensor_export(subject, DLPACK_FLAG_BITMASK_IS_COPIED, &m, err);
  if (rc == MF_OK) m->deleter(m);
  else assert_null(m);
  return rc;
}

static int exports_legacy(void *ctx, mf_error *err) {
  DLManagedTensor *m = (DLManagedTensor *)(uintptr_t)16;
  (void)ctx;
  int rc = mf_tensor_export_legacy(subject, &m, err);
  if (rc == MF_OK) m->deleter(m);
  else assert_null(m);
  return rc;
}

/* A copy within one memory, which needs a temporary; after a failure the elements are as they were. */
static int32_t plane[2][2];

static int copies_in_place(void *ctx, mf_error *err) {
  static const int32_t before[2][2] = {{1, 2}, {3, 4}};
  (void)ctx;
  memcpy(plane, before, sizeof plane);
  int rc = mf_tensor_copy(subject, other, err);
  if (rc != MF_OK) assert_memory_equal(plane, before, sizeof plane);
  else assert_true(plane[0][1] == 3 && plane[1][0] == 2);
  return rc;
}

static int casts_in_place(void *ctx, mf_error *err) {
  static const int32_t before[2][2] = {{1, 2}, {3, 4}};
  (void)ctx;
  memcpy(plane, before, sizeof plane);
  int rc = mf_tensor_astype(subject, other, err);
  if (rc != MF_OK) assert_memory_equal(plane, before, sizeof plane);
  else assert_true(plane[0][0] != 1);
  return rc;
}

static void every_call_that_allocates(void **state) {
  static const spec_call calls[] = {
      indexes,   permutes,     reshapes,      broadcasts, squeezes,        expands, diagonals, reinterprets,
      clones,    makes_readonly, creates,     creates_nothing, wraps,      imports, imports_legacy,
      exports,   exports_a_copy, exports_legacy,
  };
  (void)state;
  subject = spec_create("float32", DIMS(2, 3));
  for (size_t i = 0; i < COUNT(calls); i++)
    assert_true(spec_each_failure(calls[i], NULL) > 0);
  mf_tensor_release(subject);
}

static void copies_that_need_a_temporary(void **state) {
  (void)state;
  subject = spec_wrap(plane, "int32", DIMS(2, 2), NULL);
  OK(mf_tensor_permute_dims(subject, NULL, 0, &other, &spec_err));
  assert_true(spec_each_failure(copies_in_place, NULL) > 0);
  mf_tensor_release(other);
  other = spec_wrap(plane, "float32", DIMS(2, 2), (int64_t[]){1, 2});
  assert_true(spec_each_failure(casts_in_place, NULL) > 0);
  mf_tensor_release(other);
  mf_tensor_release(subject);
}

/* The others allocate nothing: they succeed although every allocation would fail. */
static void what_needs_no_memory(void **state) {
  mf_ledger_read(NULL); /* who asks for nothing gets nothing */
  mf_scalar value = {.kind = MF_KIND_INT, .i = 3};
  mf_tensor *t = spec_create("float32", DIMS(2, 3));
  mf_tensor *u = spec_create("float32", DIMS(2, 3));
  mf_tensor *i = spec_create("int64", DIMS(2, 3));
  DLManagedTensorVersioned *m;
  DLTensor d;
  DLDataType dtype;
  DLDevice device;
  char name[32];
  int32_t n;
  (void)state;
  OK(mf_tensor_export(t, 0, &m, &spec_err));
  mf_fault_arm(0, 1);
  OK(mf_tensor_fill(t, &value, &spec_err));
  OK(mf_tensor_put(t, (int64_t[]){0, 0}, 2, &value, &spec_err));
  OK(mf_tensor_get(t, (int64_t[]){0, 0}, 2, &value, &spec_err));
  OK(mf_tensor_copy(u, t, &spec_err));
  OK(mf_tensor_astype(i, t, &spec_err));
  OK(mf_tensor_equal(u, t, &n, &spec_err));
  assert_int_equal(n, 1);
  OK(mf_tensor_borrow(t, &d, &spec_err));
  OK(mf_dltensor_check(&d, 0, &spec_err));
  OK(mf_dtype_parse("float32", &dtype, &spec_err));
  OK(mf_dtype_format(&dtype, name, sizeof name, &spec_err));
  OK(mf_device_parse("cpu", &device, &spec_err));
  OK(mf_device_format(&device, name, sizeof name, &spec_err));
  OK(mf_device_count(kDLCPU, &n, &spec_err));
  FAILS(MF_EINVAL, mf_tensor_invalidate(t, &n, &spec_err));
  m->deleter(m);
  mf_tensor_release(mf_tensor_retain(t));
  assert_int_equal(mf_fault_hits(), 0);
  mf_fault_arm(-1, 0);
  mf_tensor_release(t);
  mf_tensor_release(u);
  mf_tensor_release(i);
}

/* A view is one allocation. */
static void arming(void **state) {
  mf_tensor *v;
  mf_tensor *t = spec_create("int8", DIMS(2, 3));
  (void)state;
  mf_fault_arm(2, 0);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(mf_fault_hits(), i > 2);
    if (i == 2) {
      REFUSES(MF_ENOMEM, v, mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
    } else {
      OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
      mf_tensor_release(v);
    }
  }
  mf_fault_arm(0, 1);
  assert_int_equal(mf_fault_hits(), 0);
  for (int i = 0; i < 3; i++) REFUSES(MF_ENOMEM, v, mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
  assert_int_equal(mf_fault_hits(), 3);
  assert_int_equal(mf_tensor_permute_dims(t, NULL, 0, &v, NULL), MF_ENOMEM);
  static const int64_t never[] = {-1, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < COUNT(never); i++) {
    mf_fault_arm(never[i], 1);
    OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
    mf_tensor_release(v);
    assert_int_equal(mf_fault_hits(), 0);
  }
  mf_tensor_release(t);
}

/* An allocator with a context, which counts and refuses on its own. */
typedef struct counting {
  atomic_llong calls;
  bool empty;
} counting;

static void *count_realloc(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes) {
  counting *c = ctx;
  atomic_fetch_add(&c->calls, 1);
  return c->empty && new_nbytes > 0 ? NULL : spec_strict_realloc(NULL, ptr, old_nbytes, new_nbytes);
}

/* Whole pages: an importer (VK_EXT_external_memory_host, GL_AMD_pinned_memory) may take all of the last one. */
static void pages_begin_and_end_with_the_memory(void **state) {
  const size_t page = spec_page_nbytes();
  (void)state;
  for (int64_t n = 1; n < 20000; n = 3 * n + 1) {
    DLTensor like = {.ndim = 1, .dtype = bytes, .shape = &n};
    mf_tensor *tensors[8];
    for (int i = 0; i < 8; i++) {
      OK(mf_tensor_create(&like, MF_CREATE_PAGES, &tensors[i], &spec_err));
      char *data = mf_tensor_dltensor(tensors[i])->data;
      assert_int_equal((uintptr_t)data % page, 0);
      memset(data, i, ((size_t)n + page - 1) / page * page);
      assert_int_equal(mf_tensor_flags(tensors[i]), 0);
      assert_int_equal(mf_tensor_nbytes(tensors[i]), n);
    }
    for (int i = 0; i < 8; i++) {
      assert_int_equal(*(char *)mf_tensor_dltensor(tensors[i])->data, i);
      mf_tensor_release(tensors[i]);
    }
  }
  mf_tensor *t;
  DLTensor wrong = {.ndim = 0, .dtype = bytes};
  REFUSES(MF_EINVAL, t, mf_tensor_create(&wrong, MF_CREATE_PAGES | 1, &t, &spec_err));
  assert_non_null(strstr(spec_err.message, "flags has 0x1; a sum of"));
}

static void the_allocator_changes_only_while_nothing_lives(void **state) {
  counting c = {0};
  mf_tensor *t = spec_create("int8", DIMS(4));
  (void)state;
  SAYS(MF_EINVAL, "alive", mf_allocator_set(count_realloc, &c, &spec_err));
  assert_int_equal(mf_allocator_set(count_realloc, &c, NULL), MF_EINVAL);
  mf_tensor_release(t);
  assert_int_equal(c.calls, 0);
  OK(mf_allocator_set(count_realloc, &c, &spec_err));
  t = spec_create("int8", DIMS(4));
  mf_tensor_release(t);
  assert_true(c.calls > 0 && c.calls % 2 == 0);
  c.empty = true;
  DLTensor like = {.ndim = 0, .dtype = bytes};
  REFUSES(MF_ENOMEM, t, mf_tensor_create(&like, 0, &t, &spec_err));
  OK(mf_allocator_set(NULL, NULL, &spec_err));
  t = spec_create("int8", DIMS(4));
  assert_int_equal(spec_strict_live(), 0);
  assert_int_equal((uintptr_t)mf_tensor_dltensor(t)->data % MF_ALIGNMENT, 0);
  mf_tensor_release(t);
  OK(mf_allocator_set(spec_strict_realloc, NULL, &spec_err));
}

/* Creates and releases two tensors of each size around the one up to which free blocks are kept, so that a
 * spare is kept, used again, and given up for another; each byte of a used block is written. */
static void *use_blocks(void *failures) {
  for (int64_t n = 0; n < 400; n++) {
    mf_tensor *t[2];
    DLTensor like = {.ndim = 1, .shape = &n, .dtype = {kDLUInt, 8, 1}};
    const mf_scalar value = {.kind = MF_KIND_INT, .i = n % 251};
    for (int i = 0; i < 2; i++) {
      *(int *)failures += mf_tensor_create(&like, 0, &t[i], NULL) != MF_OK;
      *(int *)failures += mf_tensor_fill(t[i], &value, NULL) != MF_OK;
    }
    *(int *)failures += n > 0 && mf_tensor_dltensor(t[0])->data == mf_tensor_dltensor(t[1])->data;
    for (int i = 0; i < 2; i++) {
      mf_tensor *view;
      *(int *)failures += mf_tensor_as_readonly(t[i], &view, NULL) != MF_OK;
      mf_tensor_release(t[i]);
      mf_tensor_release(view);
    }
  }
  return NULL;
}

/* More threads, one after another and at once, than have counters and spare blocks of their own. */
static void blocks_of_malloc_are_used_again(void **state) {
  enum { THREADS = 140 };
  int failures[THREADS + 1] = {0};
  pthread_t threads[THREADS];
  (void)state;
  OK(mf_allocator_set(NULL, NULL, &spec_err));
  use_blocks(&failures[THREADS]);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, use_blocks, &failures[i]), 0);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i <= THREADS; i++) assert_int_equal(failures[i], 0);
  OK(mf_allocator_set(spec_strict_realloc, NULL, &spec_err));
}

/* By malloc's own count, of all its arenas. A sanitizer's malloc counts nothing there, and tells of leaks itself. */
#ifdef HAS_COUNTS
static void no_block_is_lost(void **state) {
  int failures = 0;
  size_t before = 0;
  (void)state;
  OK(mf_allocator_set(NULL, NULL, &spec_err));
  for (int i = 0; i < 16; i++) {
    pthread_t thread;
    if (i == 8) before = mallinfo2().uordblks; /* what is made once is there */
    assert_int_equal(pthread_create(&thread, NULL, use_blocks, &failures), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
  }
  assert_int_equal(failures, 0);
  assert_int_equal(mallinfo2().uordblks, before);
  OK(mf_allocator_set(spec_strict_realloc, NULL, &spec_err));
}
#endif

static pthread_barrier_t both;

/* One block, of a size that is kept. */
static int wrap_one(mf_tensor **out) {
  static unsigned char memory[8];
  const DLTensor view = {.data = memory, .ndim = 1, .shape = (int64_t[]){8}, .dtype = {kDLUInt, 8, 1}};
  return mf_tensor_wrap(&view, 0, NULL, NULL, out, NULL);
}

/* A thread whose counters were given back goes on in another library's destructor, beside a thread that begins. Windows
 * calls such destructors under the loader's lock, where no thread can wait for one that begins. */
#ifndef _WIN32
enum { GOING_ON = 400000 };

static pthread_key_t later;

static void *go_on(void *failures) {
  (void)pthread_barrier_wait(&both);
  for (int i = 0; i < ROUNDS_OF(GOING_ON); i++) {
    mf_tensor *t;
    *(int *)failures += wrap_one(&t) != MF_OK;
    mf_tensor_release(t);
  }
  return NULL;
}

/* Under sanitizers the library keeps no block, so that they see each use of one that was freed. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { KEEPS_BLOCKS = false };
#else
enum { KEEPS_BLOCKS = true };
#endif

/* First in turn: the block that the one that begins has given back is there for it alone. */
static void *begin_and_go_on(void *failures) {
  mf_tensor *kept, *again;
  (void)pthread_barrier_wait(&both);
  *(int *)failures += wrap_one(&kept) != MF_OK;
  mf_tensor_release(kept);
  (void)pthread_barrier_wait(&both);
  (void)pthread_barrier_wait(&both);
  *(int *)failures += wrap_one(&again) != MF_OK || (KEEPS_BLOCKS && again != kept);
  (void)pthread_barrier_wait(&both);
  mf_tensor_release(again);
  return go_on(failures);
}

static void go_on_at_the_end(void *failures) {
  mf_tensor *t;
  (void)pthread_barrier_wait(&both);
  (void)pthread_barrier_wait(&both);
  *(int *)failures += wrap_one(&t) != MF_OK;
  (void)pthread_barrier_wait(&both);
  (void)pthread_barrier_wait(&both);
  mf_tensor_release(t);
  (void)go_on(failures);
}

static void *end_and_go_on(void *failures) {
  use_blocks(failures);
  *(int *)failures += pthread_setspecific(later, failures) != 0;
  return NULL;
}

static void a_thread_that_has_ended_counts_apart(void **state) {
  int failures[2] = {0};
  pthread_t ends, begins;
  (void)state;
  OK(mf_allocator_set(NULL, NULL, &spec_err));
  mf_tensor_release(spec_create("int8", DIMS(4))); /* the library's own key is older */
  assert_int_equal(pthread_key_create(&later, go_on_at_the_end), 0);
  assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
  assert_int_equal(pthread_create(&ends, NULL, end_and_go_on, &failures[0]), 0);
  assert_int_equal(pthread_create(&begins, NULL, begin_and_go_on, &failures[1]), 0);
  assert_int_equal(pthread_join(ends, NULL), 0);
  assert_int_equal(pthread_join(begins, NULL), 0);
  assert_int_equal(failures[0] + failures[1], 0);
  (void)pthread_key_delete(later);
  (void)pthread_barrier_destroy(&both);
  OK(mf_allocator_set(spec_strict_realloc, NULL, &spec_err));
}
#endif

/* More threads at once than have counters of their own: what they hold is counted. */
enum { HOLDERS = 135 };

static void *hold(void *failures) {
  mf_tensor *t;
  *(int *)failures += wrap_one(&t) != MF_OK;
  (void)pthread_barrier_wait(&both); /* all hold theirs */
  (void)pthread_barrier_wait(&both); /* they were counted */
  mf_tensor_release(t);
  return NULL;
}

static void what_many_threads_hold_is_counted(void **state) {
  int failures[HOLDERS] = {0};
  pthread_t threads[HOLDERS];
  mf_ledger alive;
  (void)state;
  assert_int_equal(pthread_barrier_init(&both, NULL, HOLDERS + 1), 0);
  for (int i = 0; i < HOLDERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, hold, &failures[i]), 0);
  (void)pthread_barrier_wait(&both);
  mf_ledger_read(&alive);
  (void)pthread_barrier_wait(&both);
  for (int i = 0; i < HOLDERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < HOLDERS; i++) assert_int_equal(failures[i], 0);
  assert_int_equal(alive.tensors, HOLDERS);
  assert_int_equal(alive.storages, HOLDERS);
  assert_int_equal(alive.blocks, HOLDERS);
  assert_int_equal(alive.bytes, 8 * HOLDERS);
  (void)pthread_barrier_destroy(&both);
}

/* A free block that the thread keeps is no way around an allocation that is to fail. */
static void *fail_the_second(void *failures) {
  mf_tensor *t;
  mf_fault_arm(1, 0);
  for (int i = 0; i < 4; i++) {
    const int rc = wrap_one(&t);
    *(int *)failures += rc != (i == 1 ? MF_ENOMEM : MF_OK);
    mf_tensor_release(t);
  }
  *(int *)failures += mf_fault_hits() != 1;
  return NULL;
}

static void kept_blocks_fail_as_well(void **state) {
  int failures = 0;
  pthread_t fresh;
  (void)state;
  OK(mf_allocator_set(NULL, NULL, &spec_err));
  assert_int_equal(pthread_create(&fresh, NULL, fail_the_second, &failures), 0);
  assert_int_equal(pthread_join(fresh, NULL), 0);
  mf_tensor *t;
  assert_int_equal(wrap_one(&t), MF_OK);
  mf_tensor_release(t);
  (void)fail_the_second(&failures);
  assert_int_equal(failures, 0);
  OK(mf_allocator_set(spec_strict_realloc, NULL, &spec_err));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(every_call_that_allocates),
      SPEC(copies_that_need_a_temporary),
      SPEC(what_needs_no_memory),
      SPEC(arming),
      SPEC(pages_begin_and_end_with_the_memory),
      SPEC(the_allocator_changes_only_while_nothing_lives),
      SPEC(blocks_of_malloc_are_used_again),
#ifdef HAS_COUNTS
      SPEC(no_block_is_lost),
#endif
#ifndef _WIN32
      SPEC(a_thread_that_has_ended_counts_apart),
#endif
      SPEC(what_many_threads_hold_is_counted),
      SPEC(kept_blocks_fail_as_well),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
