/* return_spec.c: memory of ours that goes out to another library and comes back, in a struct of that library's or in
 * ours, is known again: both tensors have one record, so that a use of either waits for what the other's streams do. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "device.h"

enum { NBYTES = 4096, LAST = NBYTES - 1 };

/* Out by DLPack, and in again as another library's tensor: a struct of its own that holds ours, or ours as it is. */
typedef struct passing {
  DLManagedTensorVersioned managed;
  DLManagedTensorVersioned *inner;
  int deleted;
} passing;

static void passing_deleter(DLManagedTensorVersioned *self) {
  passing *p = (passing *)self;
  p->deleted++;
  p->inner->deleter(p->inner);
}

/* From the offset on; the last byte comes first where that is LAST. */
static mf_tensor *take_back(passing *p, bool as_it_is, uint64_t offset) {
  mf_tensor *back;
  p->managed = (DLManagedTensorVersioned){.version = {1, 0}, .deleter = passing_deleter};
  p->managed.dl_tensor = p->inner->dl_tensor;
  p->deleted = as_it_is;
  DLManagedTensorVersioned *managed = as_it_is ? p->inner : &p->managed;
  managed->dl_tensor.byte_offset = offset;
  managed->dl_tensor.shape = (int64_t[]){offset == LAST ? NBYTES : NBYTES - (int64_t)offset};
  managed->dl_tensor.strides = (int64_t[]){offset == LAST ? -1 : 1};
  OK(mf_tensor_import(managed, &back, &err));
  return back;
}

/* The other library is done on ${stream} with what it does there. */
static mf_tensor *pass(passing *p, mf_tensor *t, mf_stream stream, bool as_it_is, uint64_t offset) {
  const mf_request request = {.stream = stream};
  OK(mf_tensor_export_to(t, &request, &p->inner, &err));
  return take_back(p, as_it_is, offset);
}

typedef struct scene {
  mf_stream ours, theirs;
  mf_tensor *t, *back;
  passing *p; /* stays where it is: the tensor has its address */
} scene;

static scene open_at(DLDevice device, bool as_it_is, uint64_t offset) {
  scene s = {.ours = stream_new(0), .theirs = stream_new(0), .t = create(device, NBYTES)};
  s.p = calloc(1, sizeof *s.p);
  write_on(s.t, s.ours, 1);
  use_stream(0, s.theirs);
  s.back = pass(s.p, s.t, s.theirs, as_it_is, offset);
  use_stream(0, MF_STREAM_DEFAULT);
  return s;
}

static void close_scene(scene *s) {
  mf_tensor_release(s->back);
  mf_tensor_release(s->t);
  other_sync_all(0);
  mf_releases_run();
  assert_int_equal(s->p->deleted, 1);
  assert_int_equal(sim_ask_findings(), 0);
  free(s->p);
  stream_end(0, s->ours);
  stream_end(0, s->theirs);
}

static void each_order(void (*play)(scene *s)) {
  for (uint64_t seed = 0; seed < seeds(20); seed++) {
    for (int way = 0; way < 4; way++) {
      sim_ask_seed(seed);
      scene s = open_at(way & 1 ? pinned() : gpu(0), way & 2, seed % 2 == 0 ? 0 : 256);
      play(&s);
      close_scene(&s);
    }
  }
}

static void write_the_returned(scene *s) {
  write_on(s->back, s->theirs, 2);
  write_on(s->t, s->ours, 3);
  expect_filled(s->back, 3);
}

static void write_the_original(scene *s) {
  write_on(s->t, s->ours, 2);
  write_on(s->back, s->theirs, 3);
  const mf_request on_host = {.device = {kDLCPU, 0}, .copy = MF_COPY_ALWAYS};
  mf_tensor *host;
  OK(mf_tensor_to(s->t, &on_host, &host, &err));
  assert_int_equal(((unsigned char *)data_of(host))[NBYTES - 1], 3);
  mf_tensor_release(host);
}

static void copy_between_them(scene *s) {
  mf_tensor *copy;
  write_on(s->back, s->theirs, 4);
  OK(mf_tensor_clone(s->t, &copy, &err));
  write_on(s->t, s->ours, 5);
  OK(mf_tensor_copy(s->back, s->back, &err));
  expect_filled(s->back, 5);
  mf_tensor_release(copy);
}

static void either_waits_for_the_other(void **state) {
  (void)state;
  each_order(write_the_returned);
  each_order(write_the_original);
  each_order(copy_between_them);
}

/* What the other library did without a word is on the stream that is current when the memory comes back. */
static void it_comes_back_on_the_current_stream(void **state) {
  const mf_request unordered = {.stream = MF_STREAM_NO_ORDER};
  (void)state;
  for (uint64_t seed = 0; seed < seeds(20); seed++) {
    sim_ask_seed(seed);
    unsigned char *seen = other_pinned(NBYTES);
    scene s = {.ours = stream_new(0), .theirs = stream_new(0), .t = create(gpu(0), NBYTES)};
    s.p = calloc(1, sizeof *s.p);
    other_sync_all(0); /* who asks for no order takes care of it */
    OK(mf_tensor_export_to(s.t, &unordered, &s.p->inner, &err));
    for (int i = 0; i < 20; i++) other_fill(0, s.p->inner->dl_tensor.data, 5, NBYTES, s.theirs);
    use_stream(0, s.theirs);
    s.back = take_back(s.p, seed % 2, 0);
    use_stream(0, MF_STREAM_DEFAULT);
    OK(mf_tensor_acquire(s.t, s.ours, MF_READ, &err));
    other_copy(0, seen, data_of(s.t), NBYTES, s.ours);
    other_sync_all(0);
    for (int i = 0; i < NBYTES; i++) assert_int_equal(seen[i], 5);
    other_pinned_free(seen);
    close_scene(&s);
  }
}

static void it_comes_back_with_the_last_byte_first(void **state) {
  (void)state;
  unsigned char *seen = other_pinned(1);
  for (uint64_t seed = 0; seed < seeds(20); seed++) {
    sim_ask_seed(seed);
    scene s = open_at(gpu(0), false, LAST);
    write_on(s.t, s.ours, (int)seed + 2);
    OK(mf_tensor_acquire(s.back, s.theirs, MF_READ, &err));
    other_copy(0, seen, data_of(s.back), 1, s.theirs);
    other_sync_all(0);
    assert_int_equal(*seen, seed + 2);
    close_scene(&s);
  }
  other_pinned_free(seen);
}

/* The memory lives for the one that came back, and is reused behind all of its uses. */
static void the_original_goes_first(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(20); seed++) {
    sim_ask_seed(seed);
    scene s = open_at(gpu(0), seed % 2, 0);
    void *data = data_of(s.t);
    mf_tensor_release(s.t);
    write_on(s.back, s.theirs, 2);
    mf_tensor_release(s.back);
    mf_releases_run();
    assert_int_equal(s.p->deleted, 1); /* its own work is the original's to wait for */
    use_stream(0, s.ours);
    s.t = create(gpu(0), NBYTES);
    if (data_of(s.t) == data) other_fill(0, data, 7, NBYTES, s.ours);
    use_stream(0, MF_STREAM_DEFAULT);
    s.back = NULL;
    close_scene(&s);
  }
}

/* Even where somebody gave the address away without a promise: who wraps it keeps it. */
static void a_wrapped_address_keeps_the_memory(void **state) {
  (void)state;
  const mf_stream s = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES), *wrapped;
  write_on(t, s, 1);
  OK(mf_tensor_wrap(mf_tensor_dltensor(t), 0, NULL, NULL, &wrapped, &err));
  void *data = data_of(t);
  mf_tensor_release(t);
  t = create(gpu(0), NBYTES);
  assert_ptr_not_equal(data_of(t), data);
  mf_tensor_release(t);
  expect_filled(wrapped, 1);
  mf_tensor_release(wrapped);
  stream_end(0, s);
}

/* Also memory that is not ours has one record, as long as it comes back in our struct. */
static void wrapped_memory_in_a_struct_of_ours(void **state) {
  (void)state;
  const DLTensor view = {.data = other_alloc(0, NBYTES), .device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1},
                         .shape = (int64_t[]){NBYTES}};
  const mf_request request = {.stream = MF_STREAM_DEFAULT};
  const mf_stream ours = stream_new(0), theirs = stream_new(0);
  mf_tensor *t, *back, *none;
  passing p;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  back = pass(&p, t, MF_STREAM_DEFAULT, true, 0);
  write_on(back, theirs, 1);
  write_on(t, ours, 2);
  expect_filled(back, 2);
  OK(mf_tensor_export_to(t, &request, &p.inner, &err));
  OK(mf_tensor_invalidate(back, NULL, &err));
  REFUSED(mf_tensor_import(p.inner, &none, &err), MF_ECLOSED, "taken back");
  p.inner->deleter(p.inner);
  mf_tensor_release(t);
  mf_tensor_release(back);
  other_sync_all(0);
  mf_releases_run();
  other_free(0, view.data);
  stream_end(0, ours);
  stream_end(0, theirs);
  assert_int_equal(sim_ask_findings(), 0);
}

/* An address that has been ours is not, once the pool has it. */
static void memory_that_is_kept_is_nobodys(void **state) {
  (void)state;
  mf_tensor *t = create(gpu(0), NBYTES), *wrapped;
  const DLTensor view = {.data = data_of(t), .device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1},
                         .shape = (int64_t[]){NBYTES}};
  mf_tensor_release(t);
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &wrapped, &err));
  mf_tensor_release(wrapped);
  t = create(gpu(0), NBYTES);
  assert_ptr_equal(data_of(t), view.data);
  mf_tensor_release(t);
}

/* One look-up, in a list that many blocks do not make slow to read, nor wrong. */
static void among_many(void **state) {
  (void)state;
  enum { MANY = 300 };
  mf_tensor *all[MANY];
  passing p[MANY];
  mf_tensor *back[MANY];
  const mf_stream s = stream_new(0);
  const int second = other_devices() > 1;
  for (int i = 0; i < MANY; i++) all[i] = create(i % 3 == 0 ? pinned() : gpu(i % 2 * second), NBYTES);
  for (int i = 0; i < MANY; i += 7) {
    mf_tensor_release(all[i]);
    all[i] = create(gpu(0), NBYTES * 3);
    mf_tensor_release(all[i]);
    all[i] = create(gpu(0), NBYTES);
  }
  for (int i = 0; i < MANY; i++) back[i] = pass(&p[i], all[i], MF_STREAM_NO_ORDER, i % 2, 0);
  for (int i = 0; i < MANY; i++) {
    mf_ledger before, after;
    mf_ledger_read(&before);
    mf_tensor_release(all[i]);
    mf_tensor_release(back[i]);
    mf_ledger_read(&after);
    assert_int_equal(before.storages - after.storages, i % 2 ? 1 : 2);
    assert_int_equal(p[i].deleted, 1);
  }
  stream_end(0, s);
}

static void overwrite_freed_memory(int byte) {
#ifdef M_PERTURB
  (void)mallopt(M_PERTURB, byte);
#else
  (void)byte;
#endif
}

/* What the driver had back is looked up no more: not its address, and not what Moonferry knew of it. */
static void what_was_trimmed_is_no_longer_known(void **state) {
  enum { MANY = 40 };
  mf_tensor *t[MANY], *wrapped[MANY];
  (void)state;
  overwrite_freed_memory(0xa5);
  for (int i = 0; i < MANY; i++) t[i] = create(gpu(0), NBYTES * (i + 1));
  for (int i = 0; i < MANY; i++) mf_tensor_release(t[i]);
  synchronize(0);
  trim_all();
  for (int i = 0; i < MANY; i++) t[i] = create(gpu(0), NBYTES * (MANY - i));
  const int64_t used = stats(gpu(0)).used_bytes;
  for (int i = 0; i < MANY; i++) OK(mf_tensor_wrap(mf_tensor_dltensor(t[i]), 0, NULL, NULL, &wrapped[i], &err));
  for (int i = 0; i < MANY; i++) mf_tensor_release(t[i]);
  assert_int_equal(stats(gpu(0)).used_bytes, used); /* each was known, and is kept */
  for (int i = 0; i < MANY; i++) mf_tensor_release(wrapped[i]);
  assert_int_equal(stats(gpu(0)).used_bytes, 0);
  overwrite_freed_memory(0);
}

/* Memory whose neighbours went back to the driver. */
static void after_a_trim(void **state) {
  (void)state;
  enum { SOME = 9 };
  mf_tensor *all[SOME];
  for (int i = 0; i < SOME; i++) all[i] = create(gpu(0), NBYTES);
  for (int i = 0; i < SOME; i += 2) mf_tensor_release(all[i]);
  trim(gpu(0));
  for (int i = 1; i < SOME; i += 2) {
    const int64_t used = stats(gpu(0)).used_bytes;
    mf_tensor *wrapped;
    OK(mf_tensor_wrap(mf_tensor_dltensor(all[i]), 0, NULL, NULL, &wrapped, &err));
    mf_tensor_release(all[i]);
    assert_int_equal(stats(gpu(0)).used_bytes, used);
    mf_tensor_release(wrapped);
    assert_int_equal(stats(gpu(0)).used_bytes, used - NBYTES);
  }
}

/* Threads release, pass on and take back at once. */
enum { NTHREADS = 4, ROUNDS = 200 };

static mf_tensor *shared_tensor[NTHREADS];
static atomic_int wrong;

static void *take_and_release(void *arg) {
  const int which = (int)(intptr_t)arg;
  mf_error mine;
  for (int i = 0; i < ROUNDS; i++) {
    mf_tensor *t = shared_tensor[which], *wrapped;
    if (mf_tensor_wrap(mf_tensor_dltensor(t), 0, NULL, NULL, &wrapped, &mine) != MF_OK) atomic_fetch_add(&wrong, 1);
    mf_tensor *old = t;
    int64_t nbytes = NBYTES;
    const DLTensor like = {.device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &nbytes};
    if (mf_tensor_create(&like, 0, &shared_tensor[which], &mine) != MF_OK) atomic_fetch_add(&wrong, 1);
    mf_tensor_release(old);
    mf_tensor_release(wrapped);
  }
  return NULL;
}

static void threads(void **state) {
  pthread_t all[NTHREADS];
  (void)state;
  atomic_store(&wrong, 0);
  for (int i = 0; i < NTHREADS; i++) shared_tensor[i] = create(gpu(0), NBYTES);
  for (int i = 0; i < NTHREADS; i++)
    assert_int_equal(pthread_create(&all[i], NULL, take_and_release, (void *)(intptr_t)i), 0);
  for (int i = 0; i < NTHREADS; i++) pthread_join(all[i], NULL);
  assert_int_equal(atomic_load(&wrong), 0);
  for (int i = 0; i < NTHREADS; i++) mf_tensor_release(shared_tensor[i]);
}

/* One thread makes and releases what is mostly the same memory, while another wraps its address. */
static DLTensor known;

static void *make_and_release(void *arg) {
  mf_error mine;
  mf_tensor *t;
  int64_t nbytes = NBYTES;
  const DLTensor like = {.device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &nbytes};
  (void)arg;
  for (int i = 0; i < 5 * ROUNDS; i++) {
    if (mf_tensor_create(&like, 0, &t, &mine) == MF_OK) mf_tensor_release(t);
    else atomic_fetch_add(&wrong, 1);
  }
  return NULL;
}

static void *wrap_and_release(void *arg) {
  mf_error mine;
  mf_tensor *t;
  (void)arg;
  for (int i = 0; i < 5 * ROUNDS; i++) {
    if (mf_tensor_wrap(&known, 0, NULL, NULL, &t, &mine) == MF_OK) mf_tensor_release(t);
    else atomic_fetch_add(&wrong, 1);
  }
  return NULL;
}

static void threads_with_one_memory(void **state) {
  static int64_t shape[] = {NBYTES};
  pthread_t maker, wrapper;
  (void)state;
  atomic_store(&wrong, 0);
  mf_tensor *t = create(gpu(0), NBYTES);
  known = (DLTensor){.data = data_of(t), .device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor_release(t);
  assert_int_equal(pthread_create(&maker, NULL, make_and_release, NULL), 0);
  assert_int_equal(pthread_create(&wrapper, NULL, wrap_and_release, NULL), 0);
  pthread_join(maker, NULL);
  pthread_join(wrapper, NULL);
  assert_int_equal(atomic_load(&wrong), 0);
}

static mf_tensor *of_the_parent;

static void wrap_again(void) {
  mf_tensor *t;
  const int rc = mf_tensor_wrap(mf_tensor_dltensor(of_the_parent), 0, NULL, NULL, &t, &err);
  if (rc != MF_EDEVICE || strstr(err.message, "forked after") == NULL) _exit(1);
}

static void in_a_forked_child_nothing_is_looked_up(void **state) {
  (void)state;
  of_the_parent = create(gpu(0), NBYTES);
  in_fork(wrap_again);
  mf_tensor_release(of_the_parent);
}

/* A child of fork has no driver, but a struct that its parent exported is its own to delete, and host memory comes back
 * there as it does in the parent. */
static DLManagedTensorVersioned *out_there;

static void import_in_child(void) {
  mf_tensor *back;
  alarm(HANGS_SECONDS);
  const bool is_of_host = (int)out_there->dl_tensor.device.device_type == kDLCPU;
  const int rc = mf_tensor_import(out_there, &back, &err);
  if (rc != (is_of_host ? MF_OK : MF_EDEVICE)) _exit(1);
  if (is_of_host && *(char *)mf_tensor_dltensor(back)->data != 7) _exit(2);
  if (!is_of_host) out_there->deleter(out_there);
  mf_tensor_release(back);
}

static void a_struct_that_was_exported_before_a_fork(void **state) {
  const DLDevice devices[] = {{kDLCPU, 0}, gpu(0), pinned()};
  (void)state;
  for (size_t i = 0; i < COUNT(devices); i++) {
    mf_tensor *t = create(devices[i], NBYTES), *back;
    if (i == 0) *(char *)mf_tensor_dltensor(t)->data = 7;
    OK(mf_tensor_export(t, 0, &out_there, &err));
    in_fork(import_in_child);
    OK(mf_tensor_import(out_there, &back, &err));
    mf_tensor_release(t);
    mf_tensor_release(back);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(either_waits_for_the_other),     SPEC(the_original_goes_first),
      SPEC(it_comes_back_on_the_current_stream), SPEC(it_comes_back_with_the_last_byte_first),
      SPEC(a_wrapped_address_keeps_the_memory),
      SPEC(memory_that_is_kept_is_nobodys), SPEC(among_many),
      SPEC(wrapped_memory_in_a_struct_of_ours),
      SPEC(what_was_trimmed_is_no_longer_known), SPEC(after_a_trim),
      SPEC(threads),                        SPEC(threads_with_one_memory),
      SPEC(in_a_forked_child_nothing_is_looked_up),
      SPEC(a_struct_that_was_exported_before_a_fork),
  };
  return RUN(tests);
}
