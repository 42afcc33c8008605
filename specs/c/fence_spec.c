/* fence_spec.c: fences of host memory: who waits for which, that each is dropped once on a thread that could wait, that
 * memory ends after them, and that a frame's fence costs no allocation. */
#include "spec.h"

#include <pthread.h>
#include <stdatomic.h>

/* A fence that the test moves by hand; thread 0: it can be waited for anywhere. */
typedef struct point {
  atomic_int reached, asked, waited, dropped;
  int early; /* waits that come back before it is reached, whatever time they were given */
  bool opens; /* a wait with time reaches it */
  pthread_t only;
  bool bound;
} point;

static int32_t point_wait(void *ctx, uint64_t value, int64_t ns) {
  point *p = ctx;
  if (value != 7) abort();
  if (p->bound && !pthread_equal(p->only, pthread_self())) return -5;
  atomic_fetch_add(ns == 0 ? &p->asked : &p->waited, 1);
  if (ns > 0 && p->opens && p->early-- <= 0) atomic_store(&p->reached, 1);
  return atomic_load(&p->reached) ? 0 : 1;
}

static void point_drop(void *ctx, uint64_t value) {
  point *p = ctx;
  if (value != 7 || (p->bound && !pthread_equal(p->only, pthread_self()))) abort();
  atomic_fetch_add(&p->dropped, 1);
}

static mf_fence fence_of(point *p) {
  return (mf_fence){.ctx = p, .value = 7, .wait = point_wait, .drop = point_drop};
}

static void set_fence(mf_tensor *t, point *p, int32_t use) {
  const mf_fence f = fence_of(p);
  OK(mf_tensor_fence(t, &f, use, &spec_err));
}

/* Each use of the memory, and whether it writes. */
typedef struct use {
  const char *name;
  int (*run)(mf_tensor *t, mf_error *err);
  bool writes;
} use;

static int use_get(mf_tensor *t, mf_error *err) {
  mf_scalar v;
  return mf_tensor_get(t, (int64_t[]){1}, 1, &v, err);
}

static int use_put(mf_tensor *t, mf_error *err) {
  const mf_scalar v = {.kind = MF_KIND_FLOAT, .f = 2};
  return mf_tensor_put(t, (int64_t[]){1}, 1, &v, err);
}

static int use_fill(mf_tensor *t, mf_error *err) {
  const mf_scalar v = {.kind = MF_KIND_FLOAT, .f = 2};
  return mf_tensor_fill(t, &v, err);
}

static int with_other(mf_tensor *t, mf_error *err, int (*call)(mf_tensor *, const mf_tensor *, mf_error *),
                      const char *dtype, bool from) {
  mf_tensor *other = spec_create(dtype, DIMS(4));
  const mf_scalar v = {.kind = MF_KIND_FLOAT, .f = 2};
  if (mf_tensor_fill(other, &v, NULL) != MF_OK) abort();
  const int rc = from ? call(other, t, err) : call(t, other, err);
  mf_tensor_release(other);
  return rc;
}

static int use_copy_from(mf_tensor *t, mf_error *err) { return with_other(t, err, mf_tensor_copy, "float32", true); }
static int use_copy_to(mf_tensor *t, mf_error *err) { return with_other(t, err, mf_tensor_copy, "float32", false); }
static int use_cast_from(mf_tensor *t, mf_error *err) { return with_other(t, err, mf_tensor_astype, "int8", true); }
static int use_cast_to(mf_tensor *t, mf_error *err) { return with_other(t, err, mf_tensor_astype, "int8", false); }

static int are_equal(mf_tensor *a, const mf_tensor *b, mf_error *err) {
  int32_t same = 1;
  const int rc = mf_tensor_equal(a, b, &same, err);
  if (rc != MF_OK && same != 0) abort(); /* what was not compared is not equal */
  return rc;
}
static int use_equal(mf_tensor *t, mf_error *err) { return with_other(t, err, are_equal, "float32", false); }
static int use_equal_to(mf_tensor *t, mf_error *err) { return with_other(t, err, are_equal, "float32", true); }

static int use_clone(mf_tensor *t, mf_error *err) {
  mf_tensor *out;
  const int rc = mf_tensor_clone(t, &out, err);
  mf_tensor_release(out);
  return rc;
}

static int use_to_copy(mf_tensor *t, mf_error *err) {
  mf_tensor *out;
  const int rc = mf_tensor_to(t, &(mf_request){.copy = MF_COPY_ALWAYS}, &out, err);
  mf_tensor_release(out);
  return rc;
}

static int use_to_itself(mf_tensor *t, mf_error *err) {
  mf_tensor *out;
  const int rc = mf_tensor_to(t, &(mf_request){0}, &out, err);
  mf_tensor_release(out);
  return rc;
}

static int use_export(mf_tensor *t, mf_error *err) {
  DLManagedTensorVersioned *m;
  const int rc = mf_tensor_export(t, 0, &m, err);
  if (m != NULL) m->deleter(m);
  return rc;
}

static int use_export_legacy(mf_tensor *t, mf_error *err) {
  DLManagedTensor *m;
  const int rc = mf_tensor_export_legacy(t, &m, err);
  if (m != NULL) m->deleter(m);
  return rc;
}

static int use_export_to(mf_tensor *t, mf_error *err) {
  DLManagedTensorVersioned *m;
  const int rc = mf_tensor_export_to(t, &(mf_request){0}, &m, err);
  if (m != NULL) m->deleter(m);
  return rc;
}

static int use_export_readonly(mf_tensor *t, mf_error *err) {
  mf_tensor *view;
  if (mf_tensor_as_readonly(t, &view, NULL) != MF_OK) abort();
  const int rc = use_export(view, err);
  mf_tensor_release(view);
  return rc;
}

static int use_borrow(mf_tensor *t, mf_error *err) {
  DLTensor d;
  return mf_tensor_borrow(t, &d, err);
}

static int use_acquire_read(mf_tensor *t, mf_error *err) { return mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, err); }
static int use_acquire_write(mf_tensor *t, mf_error *err) {
  return mf_tensor_acquire(t, MF_STREAM_HOST, MF_WRITE, err);
}

static int use_wait(mf_tensor *t, mf_error *err) {
  int32_t done;
  return mf_tensor_fence_wait(t, MF_WRITE, INT64_MAX, &done, err);
}

static const use uses[] = {
    {"get", use_get, false},
    {"put", use_put, true},
    {"fill", use_fill, true},
    {"copy from", use_copy_from, false},
    {"copy to", use_copy_to, true},
    {"cast from", use_cast_from, false},
    {"cast to", use_cast_to, true},
    {"equal", use_equal, false},
    {"equal to", use_equal_to, false},
    {"clone", use_clone, false},
    {"to, copied", use_to_copy, false},
    {"to, itself", use_to_itself, true},
    {"export", use_export, true},
    {"export legacy", use_export_legacy, true},
    {"export to", use_export_to, true},
    {"export read-only", use_export_readonly, false},
    {"borrow", use_borrow, true},
    {"acquire to read", use_acquire_read, false},
    {"acquire to write", use_acquire_write, true},
    {"fence wait", use_wait, true},
};

static void uses_wait_for_what_they_must(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(uses); i++) {
    for (int32_t kind = MF_READ; kind <= MF_WRITE; kind++) {
      point p = {.opens = true};
      const bool waits = uses[i].writes || kind == MF_WRITE;
      mf_tensor *t = spec_create("float32", DIMS(4));
      const mf_scalar v = {.kind = MF_KIND_FLOAT, .f = 1};
      OK(mf_tensor_fill(t, &v, &spec_err));
      set_fence(t, &p, kind);
      if (uses[i].run(t, &spec_err) != MF_OK) fail_msg("%s: %s", uses[i].name, spec_err.message);
      if (atomic_load(&p.waited) != waits || atomic_load(&p.dropped) != waits)
        fail_msg("%s after a fence of use %d: waited %d, dropped %d", uses[i].name, kind, p.waited, p.dropped);
      atomic_store(&p.reached, 1);
      mf_tensor_release(t);
      assert_int_equal(p.dropped, 1);
    }
  }
}

static void a_wait_that_comes_back_early_is_asked_again(void **state) {
  (void)state;
  point p = {.opens = true, .early = 2};
  mf_tensor *t = spec_create("float32", DIMS(4));
  set_fence(t, &p, MF_READ);
  OK(use_put(t, &spec_err));
  assert_int_equal(p.waited, 3);
  assert_int_equal(p.dropped, 1);
  mf_tensor_release(t);
}

static void views_make_no_wait(void **state) {
  (void)state;
  point p = {0};
  mf_tensor *t = spec_create("float32", DIMS(4)), *v;
  set_fence(t, &p, MF_WRITE);
  OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
  assert_int_equal(p.waited + p.asked, 0);
  assert_int_equal(mf_tensor_is_ordered(v), 1);
  atomic_store(&p.reached, 1);
  mf_tensor_release(v);
  mf_tensor_release(t);
  assert_int_equal(p.dropped, 1);
}

static void it_says_whether_it_is_done(void **state) {
  (void)state;
  point p = {0};
  int32_t done = -1;
  const uint32_t *epoch = mf_fence_epoch(), before = *epoch;
  mf_tensor *t = spec_create("float32", DIMS(4));
  assert_int_equal(mf_tensor_is_ordered(t), 0);
  OK(mf_tensor_fence(t, NULL, MF_READ, &spec_err));
  assert_int_equal(mf_tensor_is_ordered(t), 1);
  assert_int_not_equal(*epoch, before);
  const uint32_t ordered = *epoch;
  set_fence(t, &p, MF_READ);
  assert_int_equal(*epoch, ordered);
  OK(mf_tensor_fence_wait(t, MF_WRITE, 0, &done, &spec_err));
  assert_int_equal(done, 0);
  OK(mf_tensor_fence_wait(t, MF_READ, 0, &done, &spec_err));
  assert_int_equal(done, 1); /* it is only read there */
  assert_int_equal(p.dropped, 0);
  atomic_store(&p.reached, 1);
  OK(mf_tensor_fence_wait(t, MF_WRITE, 0, &done, &spec_err));
  assert_int_equal(done, 1);
  assert_int_equal(p.dropped, 1);
  mf_tensor_release(t);
}

static void a_pointer_is_looked_at_again_when_memory_was_taken_back(void **state) {
  (void)state;
  float memory[4] = {0};
  const uint32_t *epoch = mf_fence_epoch();
  mf_tensor *own = spec_create("float32", DIMS(4)), *t = spec_wrap(memory, "float32", DIMS(4), NULL);
  const uint32_t before = *epoch;
  assert_int_equal(mf_tensor_invalidate(own, NULL, &spec_err), MF_EINVAL);
  assert_int_equal(*epoch, before);
  OK(mf_tensor_invalidate(t, NULL, &spec_err));
  assert_int_not_equal(*epoch, before);
  mf_tensor_release(t);
  mf_tensor_release(own);
}

static void memory_ends_after_its_fences(void **state) {
  (void)state;
  float memory[4] = {0};
  point first = {0}, second = {0};
  spec_once *once = spec_once_new();
  DLTensor view = {.data = memory, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = (int64_t[]){4}};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, spec_once_run, once, &t, &spec_err));
  set_fence(t, &first, MF_READ);
  set_fence(t, &second, MF_WRITE);
  mf_tensor_release(t);
  assert_int_equal(spec_once_calls(once), 0);
  atomic_store(&first.reached, 1);
  mf_releases_run();
  assert_int_equal(first.dropped, 1);
  assert_int_equal(spec_once_calls(once), 0);
  atomic_store(&second.reached, 1);
  mf_releases_run();
  assert_int_equal(second.dropped, 1);
  assert_int_equal(spec_once_calls(once), 1);
}

/* Another thread, which the fence cannot be waited for on. */
static int64_t elsewhere;

static void *use_elsewhere(void *arg) {
  mf_error *err = malloc(sizeof *err);
  mf_tensor *t = arg;
  elsewhere = spec_thread_id();
  if (use_put(t, err) != MF_EINVAL) abort();
  mf_tensor_release(t);
  return err;
}

static void another_thread_is_refused_by_name(void **state) {
  (void)state;
  point p = {.bound = true, .only = pthread_self()};
  char expected[160];
  void *err;
  pthread_t other;
  mf_tensor *t = spec_create("float32", DIMS(4));
  set_fence(t, &p, MF_READ);
  assert_int_equal(pthread_create(&other, NULL, use_elsewhere, t), 0);
  pthread_join(other, &err);
  snprintf(expected, sizeof expected,
           "a fence of this memory, set by thread %d, cannot be waited for on this thread, %d (its wait answered -5)",
           (int)spec_thread_id(), (int)elsewhere);
  assert_string_equal(((mf_error *)err)->message, expected);
  assert_string_equal(((mf_error *)err)->call, "mf_tensor_put");
  free(err);
  assert_int_equal(p.dropped, 0); /* the last reference went there, where nobody could know */
  atomic_store(&p.reached, 1);
  assert_int_equal(mf_tensor_release_later(NULL), 0);
  assert_int_equal(p.dropped, 1);
}

static void *every_use_elsewhere(void *arg) {
  mf_error err;
  for (size_t i = 0; i < COUNT(uses); i++)
    if (uses[i].run(arg, &err) != MF_EINVAL) return (void *)(uintptr_t)uses[i].name;
  return NULL;
}

/* What cannot be waited for is not touched: the memory is a page without access. */
static void nobody_uses_what_he_cannot_wait_for(void **state) {
  (void)state;
  point p = {.bound = true, .only = pthread_self()};
  const spec_region pages = spec_guarded(1);
  mf_tensor *t = spec_wrap(pages.start + pages.nbytes, "float32", DIMS(4), NULL);
  void *failed;
  pthread_t other;
  set_fence(t, &p, MF_WRITE);
  assert_int_equal(pthread_create(&other, NULL, every_use_elsewhere, t), 0);
  pthread_join(other, &failed);
  if (failed != NULL) fail_msg("%s: not refused", (const char *)failed);
  atomic_store(&p.reached, 1);
  mf_tensor_release(t);
  assert_int_equal(p.dropped, 1);
  spec_unguard(pages);
}

/* Two that look at one fence at the same time: here the second one while the first is inside of its wait. */
static mf_tensor *looked_at;
static int dropped_by_all;

static int32_t look_once_more(void *ctx, uint64_t value, int64_t ns) {
  int32_t done;
  if (ctx != NULL || value != 0) abort();
  if (ns > 0 && mf_tensor_fence_wait(looked_at, MF_WRITE, 0, &done, NULL) != MF_OK) abort();
  return 0;
}

static void drop_for_all(void *ctx, uint64_t value) {
  if (ctx != NULL || value != 0) abort();
  dropped_by_all++;
}

static void two_that_look_at_once_drop_it_once(void **state) {
  (void)state;
  const mf_fence f = {.wait = look_once_more, .drop = drop_for_all};
  looked_at = spec_create("float32", DIMS(4));
  for (int i = 0; i < 6; i++) OK(mf_tensor_fence(looked_at, &f, MF_READ, &spec_err));
  OK(use_put(looked_at, &spec_err));
  assert_int_equal(dropped_by_all, 6);
  mf_tensor_release(looked_at);
}

static void many_fences_at_once(void **state) {
  (void)state;
  point points[19] = {{0}};
  mf_ledger before, after;
  mf_tensor *t = spec_create("float32", DIMS(4));
  OK(mf_tensor_fence(t, NULL, MF_READ, &spec_err));
  mf_ledger_read(&before);
  for (size_t i = 0; i < 4; i++) set_fence(t, &points[i], MF_READ);
  for (size_t i = 0; i < 4; i++) assert_int_equal(points[i].asked, 0); /* while there is room, nobody is asked */
  for (size_t i = 4; i < COUNT(points); i++) set_fence(t, &points[i], MF_READ);
  mf_ledger_read(&after);
  assert_true(after.blocks > before.blocks);
  for (size_t i = 0; i < COUNT(points); i++) atomic_store(&points[i].reached, 1);
  mf_tensor_release(t);
  for (size_t i = 0; i < COUNT(points); i++) assert_int_equal(points[i].dropped, 1);
}

static void a_frame_allocates_nothing(void **state) {
  (void)state;
  point points[3] = {{0}};
  mf_tensor *t = spec_create("float32", DIMS(4));
  OK(mf_tensor_fence(t, NULL, MF_READ, &spec_err));
  mf_fault_arm(0, 1);
  for (int frame = 0; frame < 1000; frame++) {
    point *p = &points[frame % 3];
    atomic_store(&p->reached, 0);
    set_fence(t, p, MF_READ);
    atomic_store(&points[(frame + 2) % 3].reached, 1); /* the queue is a frame behind */
  }
  assert_int_equal(mf_fault_hits(), 0);
  mf_fault_arm(-1, 0);
  for (int i = 0; i < 3; i++) atomic_store(&points[i].reached, 1);
  mf_tensor_release(t);
  assert_int_equal(points[0].dropped + points[1].dropped + points[2].dropped, 1000);
}

static int set_many(void *ctx, mf_error *err) {
  point *p = ctx;
  const mf_fence f = fence_of(p);
  mf_tensor *t = spec_create("float32", DIMS(0));
  int rc = MF_OK;
  atomic_store(&p->reached, 0);
  for (int i = 0; rc == MF_OK && i < 6; i++) rc = mf_tensor_fence(t, &f, MF_READ, err);
  atomic_store(&p->reached, 1);
  mf_tensor_release(t);
  return rc;
}

/* Those that were set before are dropped, the one that was not is the caller's. */
static void no_memory(void **state) {
  (void)state;
  mf_tensor *t = spec_create("float32", DIMS(0));
  point p = {0};
  const mf_fence f = fence_of(&p);
  mf_fault_arm(0, 1);
  FAILS(MF_ENOMEM, mf_tensor_fence(t, &f, MF_READ, &spec_err));
  FAILS(MF_ENOMEM, mf_tensor_fence(t, NULL, MF_READ, &spec_err));
  mf_fault_arm(-1, 0);
  assert_int_equal(mf_tensor_is_ordered(t), 0);
  assert_int_equal(set_many(&p, &spec_err), MF_OK);
  assert_int_equal(p.dropped, 6);
  OK(mf_tensor_fence(t, NULL, MF_READ, &spec_err));
  atomic_store(&p.reached, 0);
  for (int i = 0; i < 4; i++) set_fence(t, &p, MF_READ);
  mf_fault_arm(0, 1);
  FAILS(MF_ENOMEM, mf_tensor_fence(t, &f, MF_READ, &spec_err));
  mf_fault_arm(-1, 0);
  atomic_store(&p.reached, 1);
  mf_tensor_release(t);
  assert_int_equal(p.dropped, 10);
}

/* What was made for more fences than usual is there the next time, too. */
static void many_again_allocate_nothing(void **state) {
  (void)state;
  point p = {0};
  int32_t done;
  mf_tensor *t = spec_create("float32", DIMS(4));
  for (int i = 0; i < 6; i++) set_fence(t, &p, MF_READ);
  atomic_store(&p.reached, 1);
  OK(mf_tensor_fence_wait(t, MF_WRITE, 0, &done, &spec_err));
  atomic_store(&p.reached, 0);
  mf_fault_arm(0, 1);
  for (int i = 0; i < 6; i++) set_fence(t, &p, MF_READ);
  assert_int_equal(mf_fault_hits(), 0);
  mf_fault_arm(-1, 0);
  atomic_store(&p.reached, 1);
  mf_tensor_release(t);
  assert_int_equal(p.dropped, 12);
}

static void misuse(void **state) {
  (void)state;
  point p = {0};
  int32_t done;
  mf_fence f = fence_of(&p);
  mf_tensor *t = spec_create("float32", DIMS(4));
  SAYS(MF_EINVAL, "use is 3", mf_tensor_fence(t, &f, 3, &spec_err));
  SAYS(MF_EINVAL, "ns is -1", mf_tensor_fence_wait(t, MF_READ, -1, &done, &spec_err));
  SAYS(MF_EINVAL, "use is 0", mf_tensor_fence_wait(t, 0, -1, &done, &spec_err));
  OK(mf_tensor_fence_wait(t, MF_WRITE, 0, &done, &spec_err));
  assert_int_equal(done, 1);
  f.wait = NULL;
  SAYS(MF_EINVAL, "fence.wait is NULL", mf_tensor_fence(t, &f, MF_READ, &spec_err));
  SAYS(MF_EINVAL, "use is 3", mf_tensor_fence(t, &f, 3, &spec_err));
  p.opens = true;
  set_fence(t, &p, MF_READ);
  SAYS(MF_EINVAL, "use is 0", mf_tensor_fence_wait(t, 0, INT64_MAX, &done, &spec_err));
  SAYS(MF_EINVAL, "ns is -1", mf_tensor_fence_wait(t, MF_WRITE, -1, &done, &spec_err));
  assert_int_equal(p.waited + p.asked + p.dropped, 0); /* who is refused waits for nothing */
  assert_int_equal(done, 0);
  atomic_store(&p.reached, 1);
  mf_tensor_release(t);
  assert_int_equal(p.dropped, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(uses_wait_for_what_they_must),
      SPEC(a_wait_that_comes_back_early_is_asked_again),
      SPEC(views_make_no_wait),
      SPEC(it_says_whether_it_is_done),
      SPEC(a_pointer_is_looked_at_again_when_memory_was_taken_back),
      SPEC(memory_ends_after_its_fences),
      SPEC(another_thread_is_refused_by_name),
      SPEC(nobody_uses_what_he_cannot_wait_for),
      SPEC(two_that_look_at_once_drop_it_once),
      SPEC(many_fences_at_once),
      SPEC(a_frame_allocates_nothing),
      SPEC(no_memory),
      SPEC(many_again_allocate_nothing),
      SPEC(misuse),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
