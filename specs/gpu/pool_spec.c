/* pool_spec.c: memory that is kept for reuse: who gets it, when, at what cost, and how it goes back. */
#include "device.h"

enum { NBYTES = 4096 };

static uint64_t calls(void) {
  return sim_ask_calls(NULL);
}

/* Creates and releases on a stream; the driver calls that the second time takes. */
static uint64_t cost_of_reuse(mf_stream s) {
  use_stream(0, s);
  mf_tensor_release(create(gpu(0), NBYTES));
  const uint64_t before = calls();
  const mf_pool_stats first = stats(gpu(0));
  mf_tensor *t = create(gpu(0), NBYTES);
  mf_tensor_release(t);
  const uint64_t cost = calls() - before;
  const mf_pool_stats second = stats(gpu(0));
  assert_int_equal(second.hits - first.hits, 1);
  assert_int_equal(second.misses - first.misses, 0);
  return cost;
}

static void reuse_on_one_stream_makes_no_driver_call(void **state) {
  (void)state;
  const mf_stream own = stream_new(0);
  assert_int_equal(cost_of_reuse(MF_STREAM_DEFAULT), 0);
  assert_int_equal(cost_of_reuse(MF_STREAM_PER_THREAD), 0);
  assert_int_equal(cost_of_reuse(own), 0);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, own);
}

static void reuse_after_work_makes_no_driver_call(void **state) {
  (void)state;
  const mf_stream s = stream_new(0);
  use_stream(0, s);
  mf_tensor *t = create(gpu(0), NBYTES);
  void *data = data_of(t);
  write_on(t, s, 1);
  const uint64_t before = calls();
  mf_tensor_release(t);
  t = create(gpu(0), NBYTES);
  assert_int_equal(calls() - before, 0);
  assert_ptr_equal(data_of(t), data);
  write_on(t, s, 2);
  expect_filled(t, 2);
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, s);
}

static void little_is_wasted(void **state) {
  (void)state;
  for (int64_t nbytes = 1; nbytes < (int64_t)40 << 20; nbytes += nbytes / 3 + 1) {
    mf_tensor *t = create(gpu(0), nbytes);
    const int64_t used = stats(gpu(0)).used_bytes;
    assert_true(used >= nbytes && used >= 512);
    if (nbytes > 512) assert_true(used <= nbytes + nbytes / 4);
    if (nbytes > 16 << 20) assert_true(used < nbytes + (2 << 20));
    mf_tensor_release(t);
    assert_int_equal(stats(gpu(0)).used_bytes, 0);
    assert_true(stats(gpu(0)).cached_bytes >= used);
    trim(gpu(0));
    assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  }
}

/* Where the steps begin: enough, and no more than said above. */
static void the_first_size_of_a_step_fits(void **state) {
  const int64_t sizes[] = {512, 513, 1024, 1025, 4 << 20, (4 << 20) + 1, (8 << 20) + 1, (16 << 20) + 1, (20 << 20) + 1};
  (void)state;
  for (size_t i = 0; i < COUNT(sizes); i++) {
    mf_tensor *t = create(gpu(0), sizes[i]);
    const int64_t used = stats(gpu(0)).used_bytes;
    if (used < sizes[i] || used > sizes[i] + sizes[i] / 4 || used > sizes[i] + (2 << 20))
      fail_msg("%lld bytes for %lld", (long long)used, (long long)sizes[i]);
    mf_tensor_release(t);
    trim(gpu(0));
  }
}

static void what_had_to_be_made_is_counted(void **state) {
  (void)state;
  const mf_pool_stats before = stats(gpu(0));
  mf_tensor *t[] = {create(gpu(0), NBYTES), create(gpu(0), NBYTES)};
  for (int i = 0; i < 2; i++) mf_tensor_release(t[i]);
  mf_tensor_release(create(gpu(0), NBYTES));
  const mf_pool_stats after = stats(gpu(0));
  assert_int_equal(after.misses - before.misses, 2);
  assert_int_equal(after.hits - before.hits, 1);
}

static void sizes_of_one_step_share_blocks(void **state) {
  (void)state;
  mf_tensor *t = create(gpu(0), 1000);
  void *data = data_of(t);
  mf_tensor_release(t);
  t = create(gpu(0), 1024);
  assert_ptr_equal(data_of(t), data);
  mf_tensor_release(t);
  t = create(gpu(0), 1025);
  assert_ptr_not_equal(data_of(t), data);
  mf_tensor_release(t);
}

/* Memory that another stream still uses is not given out, though the stream that asks is the one that made it. */
static void others_work_keeps_a_block(void **state) {
  (void)state;
  const mf_stream a = stream_new(0), b = stream_new(0);
  use_stream(0, a);
  mf_tensor *t = create(gpu(0), NBYTES);
  void *data = data_of(t);
  write_on(t, b, 1);
  mf_tensor_release(t);
  t = create(gpu(0), NBYTES);
  assert_ptr_not_equal(data_of(t), data);
  other_sync(0, b);
  mf_tensor *again = create(gpu(0), NBYTES);
  assert_ptr_equal(data_of(again), data);
  mf_tensor_release(again);
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, a);
  stream_end(0, b);
}

/* The stream that made a block need not wait for its own work to have it again. */
static void only_others_work_counts(void **state) {
  (void)state;
  const mf_stream a = stream_new(0), b = stream_new(0);
  use_stream(0, a);
  mf_tensor *t = create(gpu(0), NBYTES);
  char *seen = other_pinned(2);
  void *data = data_of(t);
  write_on(t, b, 1);
  OK(mf_tensor_acquire(t, a, MF_READ, &err));
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  other_copy(0, seen, data, 1, b);
  other_sync(0, b);
  for (int i = 0; i < 300; i++) other_copy(0, seen + 1, data, 1, a);
  mf_tensor_release(t);
  /* A simulator says "not yet" the first time. */
  mf_tensor *first = create(gpu(0), NBYTES);
  t = data_of(first) == data ? mf_tensor_retain(first) : create(gpu(0), NBYTES);
  assert_ptr_equal(data_of(t), data);
  mf_tensor_release(first);
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
  other_sync(0, a);
  other_pinned_free(seen);
  stream_end(0, a);
  stream_end(0, b);
}

/* One event for the stream that is behind the others. */
static void who_waited_for_all_speaks_for_all(void **state) {
  (void)state;
  const mf_stream s = other_stream(0, false), b = stream_new(0);
  use_stream(0, s);
  mf_tensor *t = create(gpu(0), NBYTES);
  OK(mf_tensor_fill(t, &(mf_scalar){.kind = MF_KIND_UINT, .u = 1}, &err));
  OK(mf_tensor_acquire(t, b, MF_READ, &err));
  const uint64_t before = sim_ask_calls(named("cuEventRecord", "hipEventRecord"));
  mf_tensor_release(t);
  if (other_is_simulated())
    assert_int_equal(sim_ask_calls(named("cuEventRecord", "hipEventRecord")) - before, 1);
  use_stream(0, MF_STREAM_DEFAULT);
  other_stream_end(s);
  stream_end(0, b);
}

/* What a loop hands to another stream comes back: the pool does not grow with each round. */
static DLManagedTensorVersioned *given_to(mf_tensor *t, mf_stream s) {
  const mf_request request = {.stream = s};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(t, &request, &given, &err));
  return given;
}

/* Wherever in the record: after two consumers on streams of their own it is the third. Another that is kept in its
 * place would have the block back too early. */
static void the_last_of_many_speaks_for_all(void **state) {
  unsigned char *seen = other_pinned(NBYTES);
  mf_stream s[3];
  (void)state;
  for (int i = 0; i < 3; i++) s[i] = stream_new(0);
  for (int next = 1; next < 3; next++) {
    use_stream(0, s[0]);
    mf_tensor *t = create(gpu(0), NBYTES);
    DLManagedTensorVersioned *given[] = {given_to(t, s[1]), given_to(t, s[2])};
    for (int i = 0; i < 2; i++) given[i]->deleter(given[i]);
    OK(mf_tensor_acquire(t, s[0], MF_READ, &err));
    other_copy(0, seen, data_of(t), NBYTES, s[0]);
    mf_tensor_release(t);
    use_stream(0, s[next]);
    t = create(gpu(0), NBYTES);
    write_on(t, s[next], 2);
    mf_tensor_release(t);
    synchronize(0);
  }
  use_stream(0, MF_STREAM_DEFAULT);
  for (int i = 0; i < 3; i++) stream_end(0, s[i]);
  other_pinned_free(seen);
}

static void a_loop_that_hands_over_does_not_grow(void **state) {
  (void)state;
  const mf_stream a = stream_new(0), b = stream_new(0);
  use_stream(0, a);
  for (int i = 0; i < 50; i++) {
    mf_tensor *t = create(gpu(0), NBYTES);
    write_on(t, a, 1);
    write_on(t, b, 2);
    mf_tensor_release(t);
    if (i % 3 == 0) other_sync(0, b);
  }
  assert_true(stats(gpu(0)).cached_bytes <= 4 * NBYTES);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, a);
  stream_end(0, b);
}

/* A program drawn at random: tensors made on, written on and released from streams of every sort. */
enum { NTENSORS = 6, NSTREAMS = 6, NSTEPS = 150 };

typedef struct world {
  uint64_t random;
  mf_stream streams[NSTREAMS];
  mf_tensor *tensors[NTENSORS];
  int bytes[NTENSORS];
} world;

static DLDevice any_device(world *w) {
  const uint64_t draw = random_of(&w->random) % 6;
  if (draw == 0 && other_managed_type() != 0) return managed();
  return draw == 1 ? pinned() : gpu(0);
}

static void step(world *w) {
  const int i = (int)(random_of(&w->random) % NTENSORS);
  const mf_stream s = w->streams[random_of(&w->random) % NSTREAMS];
  if (w->tensors[i] == NULL) {
    use_stream(0, s);
    w->tensors[i] = create(any_device(w), NBYTES >> random_of(&w->random) % 2);
    w->bytes[i] = -1;
    return;
  }
  switch (random_of(&w->random) % 4) {
    case 0:
      mf_tensor_release(w->tensors[i]);
      w->tensors[i] = NULL;
      return;
    case 1:
      if (w->bytes[i] >= 0) expect_filled(w->tensors[i], w->bytes[i]);
      return;
    default:
      w->bytes[i] = (int)(random_of(&w->random) % 256);
      write_on(w->tensors[i], s, w->bytes[i]);
  }
}

static void world_run(uint64_t seed) {
  world w = {.random = seed, .streams = {MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD}};
  for (int i = 2; i < 4; i++) w.streams[i] = stream_new(0);
  for (int i = 4; i < 6; i++) w.streams[i] = other_stream(0, i == 5);
  sim_ask_seed(seed);
  for (int i = 0; i < NSTEPS; i++) step(&w);
  for (int i = 0; i < NTENSORS; i++) {
    if (w.tensors[i] != NULL && w.bytes[i] >= 0) expect_filled(w.tensors[i], w.bytes[i]);
    mf_tensor_release(w.tensors[i]);
  }
  use_stream(0, MF_STREAM_DEFAULT);
  for (int i = 2; i < 4; i++) stream_end(0, w.streams[i]);
  for (int i = 4; i < 6; i++) other_stream_end(w.streams[i]);
  if (seed % 3 == 0) trim_all();
  if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
}

static void programs_at_random(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < seeds(50); seed++) world_run(seed);
}

/* A foreign stream may be destroyed once the memory that it touched was released, its work still queued. */
static void a_foreign_stream_may_go(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    const mf_stream s = other_stream(0, false);
    use_stream(0, s);
    mf_tensor *t = create(gpu(0), NBYTES);
    write_on(t, s, 1);
    mf_tensor_release(t);
    use_stream(0, MF_STREAM_DEFAULT);
    other_stream_end(s);
    if (i == 1) trim_all();
    t = create(gpu(0), NBYTES);
    write_on(t, MF_STREAM_DEFAULT, 2);
    expect_filled(t, 2);
    mf_tensor_release(t);
  }
}

/* The stream of a foreign library gets its own memory back in the order of its work. */
static void a_foreign_stream_gets_its_block_back(void **state) {
  (void)state;
  const mf_stream s = other_stream(0, false);
  use_stream(0, s);
  mf_tensor *t = create(gpu(0), NBYTES);
  void *data = data_of(t);
  write_on(t, s, 1);
  mf_tensor_release(t);
  t = create(gpu(0), NBYTES);
  assert_ptr_equal(data_of(t), data);
  write_on(t, s, 2);
  expect_filled(t, 2);
  mf_tensor_release(t);
  use_stream(0, MF_STREAM_DEFAULT);
  other_stream_end(s);
}

static void pinned_memory_is_the_hosts_at_once(void **state) {
  (void)state;
  const mf_stream s = stream_new(0);
  use_stream(0, s);
  mf_tensor *t = create(pinned(), NBYTES);
  void *data = data_of(t);
  keep_busy(t, s);
  mf_tensor_release(t);
  t = create(pinned(), NBYTES);
  assert_ptr_not_equal(data_of(t), data);
  memset(data_of(t), 2, NBYTES);
  sim_ask_host(data_of(t), NBYTES, true);
  other_sync(0, s);
  mf_tensor *again = create(pinned(), NBYTES);
  assert_ptr_equal(data_of(again), data);
  sim_ask_host(data_of(again), NBYTES, true);
  mf_tensor_release(t);
  mf_tensor_release(again);
  use_stream(0, MF_STREAM_DEFAULT);
  stream_end(0, s);
}

static void memory_of_two_devices_is_kept_apart(void **state) {
  (void)state;
  needs_devices(2);
  mf_tensor_release(create(gpu(0), NBYTES));
  assert_int_equal(stats(gpu(0)).cached_bytes, NBYTES);
  assert_int_equal(stats(gpu(1)).cached_bytes, 0);
  mf_tensor_release(create(gpu(1), NBYTES));
  trim(gpu(0));
  assert_int_equal(stats(gpu(0)).cached_bytes, 0);
  assert_int_equal(stats(gpu(1)).cached_bytes, NBYTES);
}

/* A copy to another device runs on a stream of that one, which then has used the source. */
static void another_device_keeps_a_block(void **state) {
  (void)state;
  needs_devices(2);
  const DLDevice second = gpu(1);
  mf_stream there;
  OK(mf_stream_create(&second, &there, &err));
  OK(mf_stream_swap(&second, there, NULL, &err));
  for (uint64_t seed = 0; seed < seeds(50); seed++) {
    sim_ask_seed(seed);
    for (int i = 0; i < 3; i++) {
      mf_tensor *a = create(gpu(0), NBYTES), *b = create(second, NBYTES);
      write_on(a, MF_STREAM_DEFAULT, i);
      OK(mf_tensor_copy(b, a, &err));
      mf_tensor_release(a);
      a = create(gpu(0), NBYTES);
      write_on(a, MF_STREAM_DEFAULT, 9);
      mf_tensor_release(a);
      if (i == 2) expect_filled(b, i);
      mf_tensor_release(b);
    }
    assert_int_equal(sim_ask_findings(), 0);
  }
  OK(mf_stream_swap(&second, MF_STREAM_DEFAULT, NULL, &err));
  OK(mf_stream_destroy(&second, there, &err));
}

static void use_an_event(int ordinal) {
  const DLDevice device = gpu(ordinal);
  const mf_stream a = stream_new(ordinal), b = stream_new(ordinal);
  OK(mf_stream_wait(&device, a, &device, b, &err));
  stream_end(ordinal, a);
  stream_end(ordinal, b);
}

/* Pinned memory is marked by events of any GPU. A driver refuses an event on a stream of another GPU. */
static void the_event_of_a_block_goes_back_to_its_device(void **state) {
  (void)state;
  needs_devices(2);
  for (int used = 1; used >= 0; used--) {
    const mf_stream s = stream_new(used);
    mf_tensor *t = create(pinned(), NBYTES);
    OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
    other_fill(used, data_of(t), 1, NBYTES, s);
    mf_tensor_release(t);
    other_sync(used, s);
    mf_tensor_release(create(pinned(), NBYTES)); /* has the block, and so no need of the event */
    for (int i = 0; i < 2; i++) use_an_event(i);
    stream_end(used, s);
  }
}

/* Where the limit has room for all of a rounded block, the next larger tensor can have it as well. */
static void a_rounded_block_that_fits_is_whole(void **state) {
  enum { ASKED = 1001 };
  const DLDevice device = gpu(0);
  (void)state;
  mf_tensor *t = create(device, ASKED);
  const int64_t rounded = stats(device).used_bytes;
  mf_tensor_release(t);
  trim_all();
  assert_true(rounded > ASKED);
  OK(mf_pool_limit(&device, rounded, &err));
  t = create(device, ASKED);
  assert_int_equal(stats(device).used_bytes, rounded);
  mf_tensor_release(t);
  OK(mf_pool_limit(&device, 0, &err));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(reuse_on_one_stream_makes_no_driver_call),
      SPEC(reuse_after_work_makes_no_driver_call),
      SPEC(little_is_wasted),
      SPEC(the_first_size_of_a_step_fits),
      SPEC(what_had_to_be_made_is_counted),
      SPEC(sizes_of_one_step_share_blocks),
      SPEC(others_work_keeps_a_block),
      SPEC(only_others_work_counts),
      SPEC(who_waited_for_all_speaks_for_all),
      SPEC(the_last_of_many_speaks_for_all),
      SPEC(a_loop_that_hands_over_does_not_grow),
      SPEC(programs_at_random),
      SPEC(a_foreign_stream_may_go),
      SPEC(a_foreign_stream_gets_its_block_back),
      SPEC(pinned_memory_is_the_hosts_at_once),
      SPEC(memory_of_two_devices_is_kept_apart),
      SPEC(another_device_keeps_a_block),
      SPEC(the_event_of_a_block_goes_back_to_its_device),
      SPEC(a_rounded_block_that_fits_is_whole),
  };
  return RUN(tests);
}
