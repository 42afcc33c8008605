/* grant_spec.c: what mf_tensor_acquire promises. Who acquired for reading may go on reading until somebody else writes,
 * and who acquired for writing may go on reading when somebody else reads: whatever they queue meanwhile without a word
 * is waited for by later writers and by the release of the memory. */
#include "device.h"

enum { NBYTES = 4096, EARLY = 1, LATE = 9 };

typedef struct scene {
  mf_stream a, b;
  mf_tensor *t;
  unsigned char *seen; /* what a read that was not announced got */
} scene;

static scene open_at(DLDevice device) {
  scene s = {.a = stream_new(0), .b = stream_new(0), .t = create(device, NBYTES), .seen = other_pinned(NBYTES)};
  OK(mf_tensor_acquire(s.t, s.a, MF_WRITE, &err));
  other_fill(0, data_of(s.t), EARLY, NBYTES, s.a);
  return s;
}

/* Without a word to Moonferry. */
static void read_more(const scene *s) {
  for (int i = 0; i < 20; i++) other_copy(0, s->seen, data_of(s->t), NBYTES, s->a);
}

static void close_scene(scene *s) {
  mf_tensor_release(s->t);
  other_sync_all(0);
  for (int i = 0; i < NBYTES; i++) assert_int_equal(s->seen[i], EARLY);
  assert_int_equal(sim_ask_findings(), 0);
  other_pinned_free(s->seen);
  stream_end(0, s->a);
  stream_end(0, s->b);
}

static void write_elsewhere(scene *s) {
  OK(mf_tensor_acquire(s->t, s->b, MF_WRITE, &err));
  other_fill(0, data_of(s->t), LATE, NBYTES, s->b);
}

/* The memory is released, and the pool gives it to the other stream. */
static void release_and_reuse(scene *s) {
  void *data = data_of(s->t);
  mf_tensor_release(s->t);
  use_stream(0, s->b);
  s->t = create(gpu(0), NBYTES);
  if (data_of(s->t) == data) other_fill(0, data, LATE, NBYTES, s->b);
  use_stream(0, MF_STREAM_DEFAULT);
}

typedef void (*ending)(scene *s);

static const ending endings[] = {write_elsewhere, release_and_reuse};

static void each_ending(DLDevice device, void (*play)(scene *s)) {
  for (uint64_t seed = 0; seed < seeds(20); seed++) {
    for (size_t i = 0; i < COUNT(endings); i++) {
      if (endings[i] == release_and_reuse && device.device_type != gpu(0).device_type) continue;
      sim_ask_seed(seed);
      scene s = open_at(device);
      play(&s);
      endings[i](&s);
      close_scene(&s);
    }
  }
}

static void others_read_first(scene *s) {
  OK(mf_tensor_acquire(s->t, s->b, MF_READ, &err));
  read_more(s);
}

static void a_writer_may_go_on_reading(void **state) {
  (void)state;
  each_ending(gpu(0), others_read_first);
  each_ending(pinned(), others_read_first);
}

/* The stream is alone in the record, and used it before without being granted anything. */
static void alone_before(scene *s) {
  const mf_scalar early = {.kind = MF_KIND_UINT, .u = EARLY};
  OK(mf_tensor_acquire(s->t, MF_STREAM_HOST, MF_WRITE, &err));
  use_stream(0, s->a);
  OK(mf_tensor_fill(s->t, &early, &err));
  OK(mf_tensor_acquire(s->t, s->a, MF_WRITE, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  OK(mf_tensor_acquire(s->t, s->b, MF_READ, &err));
  read_more(s);
}

static void a_stream_that_is_alone_is_granted_it_too(void **state) {
  (void)state;
  each_ending(gpu(0), alone_before);
}

static void others_write_after(scene *s) {
  OK(mf_tensor_acquire(s->t, s->a, MF_READ, &err));
  OK(mf_tensor_acquire(s->t, s->b, MF_READ, &err));
  read_more(s);
}

static void a_reader_may_go_on_reading(void **state) {
  (void)state;
  each_ending(gpu(0), others_write_after);
}

static void the_host_reads_first(scene *s) {
  mf_scalar first;
  const int64_t at[] = {0};
  OK(mf_tensor_acquire(s->t, s->a, MF_READ, &err));
  OK(mf_tensor_get(s->t, at, 1, &first, &err));
  assert_int_equal(first.u, EARLY);
  read_more(s);
}

static void the_host_acquires_first(scene *s) {
  OK(mf_tensor_acquire(s->t, s->a, MF_READ, &err));
  OK(mf_tensor_acquire(s->t, MF_STREAM_HOST, MF_READ, &err));
  read_more(s);
}

/* The host has waited for what was written, and for nothing that comes later. */
static void the_host_does_not_end_a_grant(void **state) {
  (void)state;
  each_ending(pinned(), the_host_reads_first);
  each_ending(pinned(), the_host_acquires_first);
  each_ending(gpu(0), the_host_acquires_first);
  if (other_managed_type() != 0) each_ending(managed(), the_host_reads_first);
}

static void a_copy_is_taken_first(scene *s) {
  const DLDevice to = other_managed_type() != 0 ? managed() : pinned();
  const mf_request request = {.device = to, .copy = MF_COPY_ALWAYS, .stream = s->b};
  mf_tensor *copy;
  OK(mf_tensor_acquire(s->t, s->a, MF_READ, &err));
  OK(mf_tensor_to(s->t, &request, &copy, &err));
  mf_tensor_release(copy);
  read_more(s);
}

static void a_copy_does_not_end_a_grant(void **state) {
  (void)state;
  each_ending(gpu(0), a_copy_is_taken_first);
  each_ending(pinned(), a_copy_is_taken_first);
}

static void borrowed_first(scene *s) {
  DLTensor view;
  use_stream(0, s->a);
  OK(mf_tensor_borrow(s->t, &view, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  OK(mf_tensor_acquire(s->t, s->b, MF_READ, &err));
  read_more(s);
}

static void a_view_that_was_asked_for_is_a_grant(scene *s) {
  const mf_request request = {.copy = MF_COPY_NEVER, .stream = s->a};
  mf_tensor *view;
  OK(mf_tensor_to(s->t, &request, &view, &err));
  OK(mf_tensor_acquire(s->t, s->b, MF_READ, &err));
  read_more(s);
  mf_tensor_release(view);
}

static void recorded_first(scene *s) {
  OK(mf_tensor_acquire(s->t, MF_STREAM_HOST, MF_WRITE, &err)); /* nothing is known of any stream */
  OK(mf_tensor_record(s->t, s->a, MF_WRITE, &err));
  OK(mf_tensor_acquire(s->t, s->b, MF_READ, &err));
  read_more(s);
}

static void whatever_gave_it(void **state) {
  (void)state;
  each_ending(gpu(0), recorded_first);
  each_ending(gpu(0), borrowed_first);
  each_ending(gpu(0), a_view_that_was_asked_for_is_a_grant);
}

/* Somebody else's write ends it: from then on the stream is waited for once at most, not each time. */
static void a_write_ends_it(void **state) {
  (void)state;
  needs_simulator();
  scene s = open_at(gpu(0));
  write_elsewhere(&s);
  const uint64_t before = sim_ask_calls(named("cuEventRecord", "hipEventRecord"));
  for (int i = 0; i < 5; i++) OK(mf_tensor_acquire(s.t, s.b, MF_WRITE, &err));
  OK(mf_tensor_acquire(s.t, MF_STREAM_HOST, MF_WRITE, &err));
  OK(mf_tensor_acquire(s.t, MF_STREAM_HOST, MF_WRITE, &err));
  assert_int_equal(sim_ask_calls(named("cuEventRecord", "hipEventRecord")), before);
  memset(s.seen, EARLY, NBYTES);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(a_writer_may_go_on_reading),    SPEC(a_reader_may_go_on_reading), SPEC(the_host_does_not_end_a_grant),
      SPEC(a_copy_does_not_end_a_grant),   SPEC(whatever_gave_it),           SPEC(a_write_ends_it),
      SPEC(a_stream_that_is_alone_is_granted_it_too),
  };
  return RUN(tests);
}
