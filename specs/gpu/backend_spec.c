/* backend_spec.c: every slot of a backend's table but for kernels (kernel_spec.c), on whichever driver is there. Built
 * once for each backend.
 *
 * Each spec ends as it began: no context of ours current, nothing of ours left in the driver. */
#include "spec.h"

enum { NBYTES = 4096 };

static mf__entered before;

static int begin(void **state) {
  (void)state;
  sim_ask_reset();
  OK(gpu->enter(0, &before, &err));
  return 0;
}

static int end(void **state) {
  (void)state;
  OK(gpu->device_synchronize(&err));
  gpu->leave(&before);
  gpu->device_forget(0); /* with the streams that the backend itself has */
  expect_clean_driver();
  return 0;
}

static void *take(mf__space space, mf_stream stream) {
  void *p = NULL;
  OK(gpu->memory_alloc(space, NBYTES, stream, &p, &err));
  assert_non_null(p);
  return p;
}

static void give(mf__space space, void *p, mf_stream stream) {
  OK(gpu->memory_free(space, p, stream, &err));
}

static mf_stream stream(void) {
  mf_stream s = 0;
  OK(gpu->stream_create(&s, &err));
  assert_true(s > MF_STREAM_PER_THREAD);
  return s;
}

static mf__block_copy flat(void *dst, const void *src, int64_t nbytes) {
  return (mf__block_copy){.dst = dst, .src = src, .width = nbytes, .height = 1, .depth = 1};
}

static void devices_are_counted(void **state) {
  int32_t n = 0;
  (void)state;
  OK(gpu->device_count(&n, &err));
  assert_true(n > 0);
  assert_true(gpu->usable());
}

static void an_ordinal_out_of_range_is_refused(void **state) {
  mf__entered none;
  (void)state;
  FAILS(gpu->enter(-1, &none, &err), MF_EDEVICE);
  SAYS("-1");
  FAILS(gpu->enter(99, &none, &err), MF_EDEVICE);
  SAYS("99");
}

static void memory_of_each_space_is_found_again(void **state) {
  (void)state;
  for (mf__space space = MF__DEVICE; space < MF__NSPACES; space++) {
    mf__space found = MF__NSPACES;
    int32_t ordinal = -1;
    if (gpu->types[space] == 0) continue;
    char *p = take(space, MF_STREAM_DEFAULT);
    OK(gpu->memory_find(p + NBYTES / 2, &found, &ordinal, &err));
    assert_int_equal(found, space);
    assert_int_equal(ordinal, 0);
    give(space, p, MF_STREAM_DEFAULT);
  }
}

static void an_unknown_pointer_is_refused(void **state) {
  mf__space found;
  int32_t ordinal, local = 0;
  (void)state;
  FAILS(gpu->memory_find(&local, &found, &ordinal, &err), MF_EINVAL);
  SAYS("does not know");
}

static void bytes_go_there_and_back(void **state) {
  (void)state;
  const mf_stream s = stream();
  char *host = take(MF__PINNED, s), *device = take(MF__DEVICE, s);
  memset(host, 7, NBYTES);
  mf__block_copy job = flat(device, host, NBYTES / 2);
  OK(gpu->copy(&job, s, &err));
  job = flat(host + NBYTES / 2, device, NBYTES / 2);
  memset(host + NBYTES / 2, 0, NBYTES / 2);
  OK(gpu->copy(&job, s, &err));
  OK(gpu->stream_synchronize(s, &err));
  for (int i = 0; i < NBYTES; i++) assert_int_equal(host[i], 7);
  give(MF__DEVICE, device, s);
  OK(gpu->stream_synchronize(s, &err));
  give(MF__PINNED, host, s);
  OK(gpu->stream_destroy(s, &err));
}

/* Where a byte of a block lies. */
static int64_t place(int64_t z, int64_t y, int64_t x, int64_t pitch, int64_t slice) {
  return z * slice + y * pitch + x;
}

static void copy_block(const mf__block_copy *shape) {
  const mf_stream s = stream();
  char *host = take(MF__PINNED, s), *device = take(MF__DEVICE, s), *back = take(MF__PINNED, s);
  for (int i = 0; i < NBYTES; i++) host[i] = (char)(i * 7 + i / 64);
  memset(back, 0, NBYTES);
  mf__block_copy job = *shape;
  job.dst = device;
  job.src = host;
  OK(gpu->copy(&job, s, &err));
  job = (mf__block_copy){back, device, shape->width, shape->height, shape->depth,
                         shape->src_pitch, shape->dst_pitch, shape->src_slice, shape->dst_slice};
  OK(gpu->copy(&job, s, &err));
  OK(gpu->stream_synchronize(s, &err));
  for (int64_t z = 0; z < shape->depth; z++)
    for (int64_t y = 0; y < shape->height; y++)
      for (int64_t x = 0; x < shape->width; x++) {
        const int64_t at = place(z, y, x, shape->src_pitch, shape->src_slice);
        assert_int_equal(back[at], host[at]);
        back[at] = 0;
      }
  for (int i = 0; i < NBYTES; i++) assert_int_equal(back[i], 0);
  give(MF__DEVICE, device, s);
  OK(gpu->stream_synchronize(s, &err));
  give(MF__PINNED, host, s);
  give(MF__PINNED, back, s);
  OK(gpu->stream_destroy(s, &err));
}

static void planes_and_boxes_are_copied(void **state) {
  (void)state;
  const mf__block_copy plane = {.width = 24, .height = 9, .depth = 1, .dst_pitch = 32, .src_pitch = 56};
  const mf__block_copy box = {.width = 12, .height = 5, .depth = 4, .dst_pitch = 16, .src_pitch = 40,
                              .dst_slice = 80, .src_slice = 280};
  const mf__block_copy lines = {.width = 12, .height = 1, .depth = 2, .dst_pitch = 16, .src_pitch = 40,
                                .dst_slice = 32, .src_slice = 280};
  const mf__block_copy two_rows = {.width = 24, .height = 2, .depth = 1, .dst_pitch = 32, .src_pitch = 56};
  const mf__block_copy two_slices = {.width = 12, .height = 5, .depth = 2, .dst_pitch = 16, .src_pitch = 40,
                                     .dst_slice = 96, .src_slice = 280};
  copy_block(&two_rows);
  copy_block(&two_slices);
  copy_block(&plane);
  copy_block(&box);
  copy_block(&lines);
}

static void fill_block(int32_t unit, const mf__block_copy *shape) {
  const uint32_t value = 0x01020304;
  char want[NBYTES];
  char *host = take(MF__PINNED, MF_STREAM_DEFAULT);
  mf__block_copy job = *shape;
  memset(host, 9, NBYTES);
  memset(want, 9, NBYTES);
  for (int64_t z = 0; z < shape->depth; z++)
    for (int64_t y = 0; y < shape->height; y++)
      for (int64_t x = 0; x < shape->width; x++)
        memcpy(want + place(z, y, x * unit, shape->dst_pitch, shape->dst_slice), &value, (size_t)unit);
  job.dst = host;
  OK(gpu->fill(&job, value, unit, MF_STREAM_DEFAULT, &err));
  OK(gpu->stream_synchronize(MF_STREAM_DEFAULT, &err));
  assert_memory_equal(host, want, NBYTES);
  give(MF__PINNED, host, MF_STREAM_DEFAULT);
}

static void blocks_are_filled(void **state) {
  (void)state;
  for (int32_t unit = 1; unit <= 4; unit *= 2) {
    const mf__block_copy shapes[] = {
        {.width = 10, .height = 1, .depth = 1},
        {.width = 5, .height = 7, .depth = 1, .dst_pitch = 32},
        {.width = 8, .height = 4, .depth = 1, .dst_pitch = 8 * unit},
        {.width = 5, .height = 3, .depth = 4, .dst_pitch = 32, .dst_slice = 96},
        {.width = 5, .height = 3, .depth = 4, .dst_pitch = 32, .dst_slice = 128},
        {.width = 5, .height = 2, .depth = 1, .dst_pitch = 32},
        {.width = 5, .height = 2, .depth = 2, .dst_pitch = 32, .dst_slice = 128},
        {.width = 5, .height = 1, .depth = 4, .dst_pitch = 32, .dst_slice = 64},
    };
    for (size_t i = 0; i < COUNT(shapes); i++) fill_block(unit, &shapes[i]);
  }
}

/* Whichever slice of several cannot be filled. */
static void a_fill_that_fails_in_part_is_told(void **state) {
  enum { SLICES = 3 };
  (void)state;
  needs_simulator();
  char *host = take(MF__PINNED, MF_STREAM_DEFAULT);
  const mf__block_copy job = {.dst = host, .width = 5, .height = 2, .depth = SLICES, .dst_pitch = 32, .dst_slice = 128};
  for (int i = 1; i <= SLICES; i++) {
    char rule[64];
    snprintf(rule, sizeof rule, "%s@%d:999:once", IS_HIP ? "hipMemset2DAsync" : "cuMemsetD2D8Async", i);
    sim_ask_reset();
    sim_ask_fail(rule);
    FAILS(gpu->fill(&job, 1, 1, MF_STREAM_DEFAULT, &err), MF_EDRIVER);
  }
  sim_ask_reset();
  OK(gpu->stream_synchronize(MF_STREAM_DEFAULT, &err));
  give(MF__PINNED, host, MF_STREAM_DEFAULT);
}

static void a_stream_knows_its_device(void **state) {
  int32_t ordinal = -1, n = 0;
  mf__entered inner;
  (void)state;
  OK(gpu->device_count(&n, &err));
  for (int32_t i = 0; i < n && i < 2; i++) {
    OK(gpu->enter(i, &inner, &err));
    const mf_stream s = stream();
    OK(gpu->stream_device(MF_STREAM_DEFAULT, &ordinal, &err));
    assert_int_equal(ordinal, i);
    gpu->leave(&inner);
    OK(gpu->stream_device(s, &ordinal, &err));
    assert_int_equal(ordinal, i);
    OK(gpu->stream_destroy(s, &err));
  }
  OK(gpu->stream_device(MF_STREAM_PER_THREAD, &ordinal, &err));
  assert_int_equal(ordinal, 0);
}

static void what_is_no_stream_is_refused(void **state) {
  static const mf_stream none[] = {-7, -8, 3, 8, 4095, 4097};
  int32_t ordinal;
  (void)state;
  for (size_t i = 0; i < COUNT(none); i++) {
    sim_ask_reset();
    FAILS(gpu->stream_device(none[i], &ordinal, &err), MF_EINVAL);
    SAYS("1, 2 or a stream's handle expected");
    assert_int_equal(sim_ask_calls(NULL), 0); /* for a driver may read what it points to */
  }
  if (!simulated()) return; /* a real driver may read what a dead handle points to */
  const mf_stream s = stream();
  OK(gpu->stream_destroy(s, &err));
  FAILS(gpu->stream_device(s, &ordinal, &err), MF_EINVAL);
  SAYS("no living stream");
  sim_ask_reset();
}

static void events_order_streams(void **state) {
  void *event = NULL;
  bool done = true;
  (void)state;
  const mf_stream a = stream(), b = stream();
  char *host = take(MF__PINNED, a), *device = take(MF__DEVICE, a);
  mf__block_copy fill = flat(device, NULL, NBYTES), copy = flat(host, device, NBYTES);
  OK(gpu->event_create(&event, &err));
  for (int i = 0; i < 300; i++) OK(gpu->fill(&fill, 5, 1, a, &err)); /* that to ask does not finish it, as it may */
  OK(gpu->event_record(event, a, &err));
  if (simulated()) {
    OK(gpu->event_query(event, &done, &err));
    assert_false(done);
    OK(gpu->stream_query(a, &done, &err));
    assert_false(done);
  }
  OK(gpu->event_wait(event, b, &err));
  OK(gpu->copy(&copy, b, &err));
  OK(gpu->event_record(event, b, &err));
  OK(gpu->event_synchronize(event, &err));
  assert_int_equal(host[NBYTES - 1], 5);
  OK(gpu->event_query(event, &done, &err));
  assert_true(done);
  OK(gpu->stream_query(b, &done, &err));
  assert_true(done);
  give(MF__DEVICE, device, b);
  OK(gpu->stream_synchronize(b, &err));
  give(MF__PINNED, host, b);
  OK(gpu->event_destroy(event, &err));
  OK(gpu->stream_destroy(a, &err));
  OK(gpu->stream_destroy(b, &err));
}

static void peers_exchange_bytes(void **state) {
  mf__entered inner;
  (void)state;
  needs_devices(2);
  char *host = take(MF__PINNED, MF_STREAM_DEFAULT), *near = take(MF__DEVICE, MF_STREAM_DEFAULT);
  mf__block_copy job = flat(near, NULL, NBYTES);
  OK(gpu->fill(&job, 3, 1, MF_STREAM_DEFAULT, &err));
  OK(gpu->stream_synchronize(MF_STREAM_DEFAULT, &err));
  OK(gpu->enter(1, &inner, &err));
  char *far = take(MF__DEVICE, MF_STREAM_DEFAULT);
  job = flat(far, near, NBYTES);
  OK(gpu->copy_peer(&job, 1, 0, MF_STREAM_DEFAULT, &err));
  job = flat(host, far, NBYTES);
  OK(gpu->copy(&job, MF_STREAM_DEFAULT, &err));
  OK(gpu->device_synchronize(&err));
  assert_int_equal(host[NBYTES - 1], 3);
  give(MF__DEVICE, far, MF_STREAM_DEFAULT);
  OK(gpu->device_synchronize(&err));
  gpu->leave(&inner);
  give(MF__DEVICE, near, MF_STREAM_DEFAULT);
  OK(gpu->device_synchronize(&err));
  give(MF__PINNED, host, MF_STREAM_DEFAULT);
}

#if !IS_HIP
/* A copy between devices needs both contexts; one that cannot be had is told. */
static void a_peer_without_a_context_is_told(void **state) {
  (void)state;
  needs_simulator();
  needs_devices(2);
  char *near = take(MF__DEVICE, MF_STREAM_DEFAULT);
  gpu->device_forget(1);
  for (int i = 0; i < 2; i++) {
    const mf__block_copy job = flat(near, near + NBYTES / 2, NBYTES / 2);
    sim_ask_reset();
    sim_ask_fail("cuDevicePrimaryCtxRetain:999:once");
    FAILS(gpu->copy_peer(&job, i, 1 - i, MF_STREAM_DEFAULT, &err), MF_EDRIVER);
    assert_string_equal(err.call, "cuDevicePrimaryCtxRetain");
    assert_int_equal(sim_ask_calls("cuMemcpyPeerAsync"), 0);
  }
  sim_ask_reset();
  give(MF__DEVICE, near, MF_STREAM_DEFAULT);
  OK(gpu->stream_synchronize(MF_STREAM_DEFAULT, &err));
}
#endif

static void memory_is_trimmed(void **state) {
  (void)state;
  give(MF__DEVICE, take(MF__DEVICE, MF_STREAM_PER_THREAD), MF_STREAM_PER_THREAD);
  OK(gpu->stream_synchronize(MF_STREAM_PER_THREAD, &err));
  OK(gpu->memory_trim(&err));
}

/* Nor is a pool left that cannot be told to keep its memory; the next allocation makes another. */
static void a_pool_that_cannot_be_set_up_goes_back(void **state) {
  void *p = NULL;
  (void)state;
  needs_simulator();
  const int64_t others = sim_ask_left("pools"); /* of other devices */
  sim_ask_fail(IS_HIP ? "hipMemPoolSetAttribute:999" : "cuMemPoolSetAttribute:999");
  FAILS(gpu->memory_alloc(MF__DEVICE, NBYTES, MF_STREAM_DEFAULT, &p, &err), MF_EDRIVER);
  SAYS("MemPoolSetAttribute");
  assert_null(p);
  assert_int_equal(sim_ask_left("pools"), others);
  assert_int_equal(driver_last_error(), 0);
  sim_ask_reset();
  give(MF__DEVICE, take(MF__DEVICE, MF_STREAM_DEFAULT), MF_STREAM_DEFAULT);
  assert_int_equal(sim_ask_left("pools"), others + 1);
}

/* What a driver keeps for each device goes back when asked. */
static int forget(void **state) {
  int32_t n = 0;
  (void)state;
  OK(gpu->device_count(&n, &err));
  for (int32_t i = 0; i < n; i++) gpu->device_forget(i);
  assert_int_equal(sim_ask_left("pools"), 0);
  assert_int_equal(sim_ask_left("retains"), 0);
  return 0;
}

int main(void) {
#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest specs[] = {
      SPEC(devices_are_counted),
      SPEC(an_ordinal_out_of_range_is_refused),
      SPEC(memory_of_each_space_is_found_again),
      SPEC(an_unknown_pointer_is_refused),
      SPEC(bytes_go_there_and_back),
      SPEC(planes_and_boxes_are_copied),
      SPEC(blocks_are_filled),
      SPEC(a_stream_knows_its_device),
      SPEC(what_is_no_stream_is_refused),
      SPEC(events_order_streams),
      SPEC(peers_exchange_bytes),
      SPEC(a_fill_that_fails_in_part_is_told),
#if !IS_HIP
      SPEC(a_peer_without_a_context_is_told),
#endif
      SPEC(memory_is_trimmed),
      SPEC(a_pool_that_cannot_be_set_up_goes_back),
  };
  return cmocka_run_group_tests(specs, NULL, forget);
}
