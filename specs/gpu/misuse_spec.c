/* misuse_spec.c: each known wrong way to exchange is reported by the checker of the simulated driver with Moonferry in
 * the loop, and the right way beside it is not: what docs/streams.md says of a consumer that is on its own can be
 * found out. Also which memory has a record at all. Needs a simulator. */
#include "device.h"

#include "sim.h"

enum { NBYTES = 1024 };

/* Others' memory on gpu 0, with a deleter that frees at once. */
typedef struct loan {
  DLManagedTensorVersioned managed;
  int64_t shape[1], strides[1];
} loan;

static void loan_deleter(DLManagedTensorVersioned *self) {
  if (self->dl_tensor.data != NULL) other_free(0, self->dl_tensor.data);
  free(self);
}

/* Written on the producer's stream; our current one waits if the producer does as it must. */
static mf_tensor *borrow(loan **out, int64_t producer, mf_stream ours, bool ordered) {
  loan *l = calloc(1, sizeof *l);
  mf_tensor *t;
  *l = (loan){.shape = {NBYTES}, .strides = {1}};
  l->managed.version = (DLPackVersion){1, 0};
  l->managed.deleter = loan_deleter;
  l->managed.dl_tensor = (DLTensor){.data = other_alloc(0, NBYTES), .device = gpu(0), .ndim = 1,
                                    .dtype = {kDLUInt, 8, 1}, .shape = l->shape, .strides = l->strides};
  other_fill(0, l->managed.dl_tensor.data, 1, NBYTES, producer);
  if (ordered) other_after(0, ours, producer);
  OK(mf_tensor_import(&l->managed, &t, &err));
  *out = l;
  return t;
}

typedef struct pair {
  mf_stream ours;
  int64_t theirs, third;
  mf_tensor *copy;
} pair;

static pair open_pair(void) {
  const pair p = {stream_new(0), other_stream(0, false), other_stream(0, false), NULL};
  use_stream(0, p.ours);
  return p;
}

static void close_pair(pair *p) {
  const DLDevice device = gpu(0);
  mf_tensor_release(p->copy);
  OK(mf_device_synchronize(&device, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  give_all_back();
  other_stream_end(p->theirs);
  other_stream_end(p->third);
  stream_end(0, p->ours);
}

static DLManagedTensorVersioned *give(mf_tensor *t, mf_stream stream) {
  const mf_request request = {.stream = stream};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(t, &request, &given, &err));
  return given;
}

static mf_tensor *filled(void) {
  mf_tensor *t = create(gpu(0), NBYTES);
  fill(t, 1);
  return t;
}

static void read_ours(pair *p, mf_tensor *t) {
  OK(mf_tensor_clone(t, &p->copy, &err));
}

/* Each does it the right way or the wrong one. */

static void given_no_order(pair *p, bool wrong) {
  mf_tensor *t = filled();
  DLManagedTensorVersioned *given = give(t, MF_STREAM_NO_ORDER);
  if (!wrong) other_after(0, p->theirs, p->ours);
  other_fill(0, given->dl_tensor.data, 2, NBYTES, p->theirs);
  other_sync(0, p->theirs);
  given->deleter(given);
  mf_tensor_release(t);
}

static void given_no_order_and_not_done(pair *p, bool wrong) {
  mf_tensor *t = filled();
  DLManagedTensorVersioned *given = give(t, MF_STREAM_NO_ORDER);
  other_after(0, p->theirs, p->ours);
  other_fill(0, given->dl_tensor.data, 2, NBYTES, p->theirs);
  if (!wrong) other_sync(0, p->theirs);
  given->deleter(given);
  read_ours(p, t);
  mf_tensor_release(t);
}

static void on_another_stream(pair *p, bool wrong) {
  mf_tensor *t = filled();
  DLManagedTensorVersioned *given = give(t, p->theirs);
  other_fill(0, given->dl_tensor.data, 2, NBYTES, wrong ? p->third : p->theirs);
  given->deleter(given);
  read_ours(p, t);
  mf_tensor_release(t);
}

static void after_its_deleter(pair *p, bool wrong) {
  mf_tensor *t = filled();
  DLManagedTensorVersioned *given = give(t, p->theirs);
  void *data = given->dl_tensor.data;
  if (!wrong) other_fill(0, data, 2, NBYTES, p->theirs);
  given->deleter(given);
  read_ours(p, t);
  if (wrong) other_fill(0, data, 2, NBYTES, p->theirs);
  mf_tensor_release(t);
}

static void the_producer_does_not_wait(pair *p, bool wrong) {
  loan *l;
  mf_tensor *t = borrow(&l, p->theirs, p->ours, !wrong);
  read_ours(p, t);
  mf_tensor_release(t);
}

static void the_producer_writes_on(pair *p, bool wrong) {
  loan *l;
  mf_tensor *t = borrow(&l, p->theirs, p->ours, true);
  if (!wrong) OK(mf_tensor_acquire(t, p->theirs, MF_WRITE, &err)); /* says so, and is ordered */
  other_fill(0, data_of(t), 3, NBYTES, p->theirs);
  read_ours(p, t);
  mf_tensor_release(t);
}

static void the_owner_frees_early(pair *p, bool wrong) {
  loan *l;
  mf_tensor *t = borrow(&l, p->theirs, p->ours, true);
  read_ours(p, t);
  if (wrong) {
    other_free(0, l->managed.dl_tensor.data);
    l->managed.dl_tensor.data = NULL;
  }
  mf_tensor_release(t);
}

static void the_host_does_not_ask(pair *p, bool wrong) {
  mf_tensor *t = create(pinned(), NBYTES);
  OK(mf_tensor_acquire(t, p->theirs, MF_WRITE, &err));
  other_fill(0, data_of(t), 2, NBYTES, p->theirs);
  if (!wrong) OK(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err));
  sim_ask_host(data_of(t), NBYTES, false);
  mf_tensor_release(t);
}

static void writes_and_said_reads(pair *p, bool wrong) {
  mf_tensor *t = filled();
  OK(mf_tensor_acquire(t, p->theirs, MF_READ, &err));
  if (!wrong) OK(mf_tensor_acquire(t, p->theirs, MF_WRITE, &err));
  other_fill(0, data_of(t), 2, NBYTES, p->theirs);
  read_ours(p, t); /* readers do not wait for each other */
  mf_tensor_release(t);
}

typedef void (*way)(pair *p, bool wrong);

static uint64_t reported(void) {
  return sim_ask_found(SIM_RACE) + sim_ask_found(SIM_STALE);
}

static void is_reported(way w) {
  skip_unless(sim_ask_is_there(), "a real driver reports nothing");
  for (uint64_t seed = 0; seed < 20; seed++)
    for (int wrong = 0; wrong < 2; wrong++) {
      sim_ask_seed(seed);
      sim_ask_reset();
      pair p = open_pair();
      w(&p, wrong != 0);
      close_pair(&p);
      if (!wrong && sim_ask_findings() != 0) fail_msg("seed %d: the right way is reported, see above", (int)seed);
      if (wrong && reported() == 0) fail_msg("seed %d: the wrong way is not reported", (int)seed);
      sim_ask_reset();
    }
}

#define WAY(name)                                \
  static void name##_is_reported(void **state) { \
    (void)state;                                 \
    is_reported(name);                           \
  }

WAY(given_no_order)
WAY(given_no_order_and_not_done)
WAY(on_another_stream)
WAY(after_its_deleter)
WAY(the_producer_does_not_wait)
WAY(the_producer_writes_on)
WAY(the_owner_frees_early)
WAY(the_host_does_not_ask)
WAY(writes_and_said_reads)

/* Which memory has a record */

static void expect_ordered(mf_tensor *t, int want) {
  assert_int_equal(mf_tensor_is_ordered(t), want);
  mf_tensor_release(t);
}

static mf_tensor *empty(DLDevice device) {
  static int64_t none[] = {0};
  const DLTensor like = {.device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = none};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  return t;
}

static mf_tensor *labelled(mf_tensor *t, DLDevice device) {
  const mf_request request = {.device = device, .copy = MF_COPY_NEVER};
  mf_tensor *out;
  OK(mf_tensor_to(t, &request, &out, &err));
  mf_tensor_release(t);
  return out;
}

static mf_tensor *wrapped(void *data, DLDevice device) {
  static int64_t shape[] = {NBYTES};
  const DLTensor view = {.data = data, .device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  return t;
}

/* It is the memory that counts, not what device the tensor names. */
static void memory_that_a_driver_knows_is_ordered(void **state) {
  static unsigned char plain[NBYTES];
  const DLDevice cpu = {kDLCPU, 0};
  mf_tensor *turned, *t = create(gpu(0), NBYTES);
  (void)state;
  OK(mf_tensor_permute_dims(t, NULL, 0, &turned, &err));
  mf_tensor_release(t);
  expect_ordered(turned, 1);
  expect_ordered(create(pinned(), NBYTES), 1);
  expect_ordered(labelled(create(pinned(), NBYTES), cpu), 1);
  if (other_managed_type() != 0)
    expect_ordered(labelled(create(managed(), NBYTES), cpu), 1);
  void *theirs = other_pinned(NBYTES);
  expect_ordered(wrapped(theirs, pinned()), 1);
  expect_ordered(wrapped(theirs, cpu), 0); /* whoever labels it so says that only the host uses it */
  other_pinned_free(theirs);
  expect_ordered(create(cpu, NBYTES), 0);
  expect_ordered(wrapped(plain, cpu), 0);
  expect_ordered(empty(gpu(0)), 0);
}

static int32_t never_asked(void *ctx, uint64_t value, int64_t ns) {
  fail_msg("%p, %llu, %lld", ctx, (unsigned long long)value, (long long)ns);
  return 0;
}

/* What a driver knows has streams; the fence stays its owner's. */
static void memory_that_a_driver_knows_takes_no_fence(void **state) {
  const mf_fence fence = {.wait = never_asked};
  const DLDevice devices[] = {gpu(0), pinned()};
  (void)state;
  for (int i = 0; i < 2; i++) {
    int32_t done = 7;
    mf_tensor *t = create(devices[i], NBYTES);
    REFUSED(mf_tensor_fence(t, &fence, MF_READ, &err), MF_EINVAL, "the memory is a GPU driver's, which has streams");
    REFUSED(mf_tensor_fence(t, NULL, MF_READ, &err), MF_EINVAL, "the memory is a GPU driver's, which has streams");
    REFUSED(mf_tensor_fence_wait(t, MF_READ, 0, &done, &err), MF_EINVAL, "the memory is a GPU driver's");
    assert_int_equal(done, 0);
    mf_ring *none;
    REFUSED(mf_ring_create(&t, 1, &none, &err), MF_EINVAL, "slots[0] is a GPU driver's memory");
    mf_tensor_release(t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(given_no_order_is_reported),
      SPEC(given_no_order_and_not_done_is_reported),
      SPEC(on_another_stream_is_reported),
      SPEC(after_its_deleter_is_reported),
      SPEC(the_producer_does_not_wait_is_reported),
      SPEC(the_producer_writes_on_is_reported),
      SPEC(the_owner_frees_early_is_reported),
      SPEC(the_host_does_not_ask_is_reported),
      SPEC(writes_and_said_reads_is_reported),
      SPEC(memory_that_a_driver_knows_is_ordered),
      SPEC(memory_that_a_driver_knows_takes_no_fence),
  };
  return RUN(tests);
}
