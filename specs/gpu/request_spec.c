/* request_spec.c: what may be asked for. Which requests are refused, and what they say; which memory goes under another
 * label and which is copied; which uses are refused. What a request orders is request_order_spec.c's. */
#include <unistd.h>

#include "device.h"

enum { NBYTES = 2048 };

static const DLDevice cpu = {kDLCPU, 0};

/* All three ways to ask refuse it alike, with nothing given out. */
static void refused(mf_tensor *t, mf_request request, int status, const char *saying) {
  mf_tensor *out = t;
  DLManagedTensorVersioned *given = (DLManagedTensorVersioned *)(uintptr_t)16;
  DLManagedTensor *legacy = (DLManagedTensor *)(uintptr_t)16;
  REFUSED(mf_tensor_to(t, &request, &out, &err), status, saying);
  assert_null(out);
  REFUSED(mf_tensor_export_to(t, &request, &given, &err), status, saying);
  assert_null(given);
  REFUSED(mf_tensor_export_legacy_to(t, &request, &legacy, &err), status, saying);
  assert_null(legacy);
}

static void requests_that_are_refused(void **state) {
  (void)state;
  const mf_stream ours = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES), *host = create(cpu, NBYTES);
  refused(t, (mf_request){.zero = 1}, MF_EINVAL, "request.zero is 1");
  refused(t, (mf_request){.copy = 3}, MF_EINVAL, "request.copy is 3");
  refused(t, (mf_request){.copy = -1}, MF_EINVAL, "request.copy is -1");
  refused(t, (mf_request){.device = {(DLDeviceType)99, 0}}, MF_EDEVICE, "99");
  refused(t, (mf_request){.stream = -3}, MF_EINVAL, "stream is -3");
  refused(t, (mf_request){.device = cpu, .copy = MF_COPY_NEVER}, MF_ELAYOUT, "copy=False");
  refused(host, (mf_request){.device = gpu(0), .copy = MF_COPY_NEVER}, MF_ELAYOUT, "copy=False");
  refused(host, (mf_request){.stream = ours}, MF_EINVAL, "the cpu has no streams");
  mf_tensor_release(host);
  mf_tensor_release(t);
  stream_end(0, ours);
}

/* A stream of another GPU than the memory's, also one that has read the memory. */
static void streams_of_another_gpu_are_refused(void **state) {
  (void)state;
  needs_devices(2);
  const int64_t there = other_stream(1, false);
  mf_tensor *t = create(gpu(0), NBYTES);
  refused(t, (mf_request){.device = cpu, .stream = there}, MF_EINVAL, "expected");
  const mf_request over = {.device = gpu(1), .stream = there};
  mf_tensor *copy;
  write_on(t, MF_STREAM_DEFAULT, 3);
  OK(mf_tensor_to(t, &over, &copy, &err));
  assert_ptr_not_equal(data_of(copy), data_of(t));
  assert_int_equal(mf_tensor_dltensor(copy)->device.device_id, 1);
  expect_filled(copy, 3);
  refused(t, (mf_request){.stream = there}, MF_EINVAL, "expected");
  REFUSED(mf_tensor_acquire(t, there, MF_READ, &err), MF_EINVAL, "expected");
  OK(mf_stream_swap(&over.device, there, NULL, &err));
  OK(mf_tensor_copy(copy, t, &err));
  REFUSED(mf_tensor_acquire(t, there, MF_READ, &err), MF_EINVAL, "expected");
  OK(mf_stream_swap(&over.device, MF_STREAM_DEFAULT, NULL, &err));
  mf_tensor_release(copy);
  mf_tensor_release(t);
  other_sync(1, there);
  other_stream_end(there);
}

static void memory_that_was_taken_back(void **state) {
  (void)state;
  void *data = other_alloc(0, NBYTES);
  const DLTensor view = {.data = data, .device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1},
                         .shape = (int64_t[]){NBYTES}};
  const mf_stream s = stream_new(0), another = stream_new(0);
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  OK(mf_tensor_invalidate(t, NULL, &err));
  for (int32_t use_of = MF_READ; use_of <= MF_WRITE; use_of++) {
    REFUSED(mf_tensor_acquire(t, s, use_of, &err), MF_ECLOSED, "taken back");
    REFUSED(mf_tensor_acquire(t, another, use_of, &err), MF_ECLOSED, "taken back");
    REFUSED(mf_tensor_record(t, s, use_of, &err), MF_ECLOSED, "taken back");
    REFUSED(mf_tensor_record(t, MF_STREAM_HOST, use_of, &err), MF_ECLOSED, "taken back");
    REFUSED(mf_tensor_acquire(t, MF_STREAM_HOST, use_of, &err), MF_ECLOSED, "taken back");
  }
  refused(t, (mf_request){.copy = 7}, MF_ECLOSED, "taken back");
  refused(t, (mf_request){.device = cpu}, MF_ECLOSED, "taken back");
  mf_tensor_release(t);
  other_sync_all(0);
  other_free(0, data);
  stream_end(0, s);
  stream_end(0, another);
}

static void uses_that_are_refused(void **state) {
  (void)state;
  const mf_stream s = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES), *constant;
  OK(mf_tensor_as_readonly(t, &constant, &err));
  OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
  for (int32_t use_of = 0; use_of < 4; use_of += 3) {
    REFUSED(mf_tensor_acquire(t, s, use_of, &err), MF_EINVAL, "use is");
    REFUSED(mf_tensor_record(t, s, use_of, &err), MF_EINVAL, "use is");
  }
  REFUSED(mf_tensor_acquire(constant, s, MF_WRITE, &err), MF_EREADONLY, "read-only");
  REFUSED(mf_tensor_record(constant, s, MF_WRITE, &err), MF_EREADONLY, "read-only");
  REFUSED(mf_tensor_acquire(t, -3, MF_READ, &err), MF_EINVAL, "stream is -3");
  REFUSED(mf_tensor_record(t, -3, MF_READ, &err), MF_EINVAL, "stream is -3");
  REFUSED(mf_tensor_record(t, MF_STREAM_HOST, MF_READ, &err), MF_EINVAL, "a stream of a GPU expected");
  REFUSED(mf_tensor_record(t, MF_STREAM_NO_ORDER, MF_READ, &err), MF_EINVAL, "a stream of a GPU expected");
  mf_tensor_release(constant);
  mf_tensor_release(t);
  stream_end(0, s);
}

/* The struct without flags; a copy is not read-only. */
static void what_the_old_struct_cannot_say(void **state) {
  (void)state;
  mf_tensor *t = create(gpu(0), NBYTES), *constant;
  const mf_request as_it_is = {0}, copied = {.copy = MF_COPY_ALWAYS};
  DLManagedTensor *given = (DLManagedTensor *)(uintptr_t)16;
  OK(mf_tensor_as_readonly(t, &constant, &err));
  write_on(t, MF_STREAM_DEFAULT, 1);
  REFUSED(mf_tensor_export_legacy_to(constant, &as_it_is, &given, &err), MF_EREADONLY, "read-only");
  assert_null(given);
  OK(mf_tensor_export_legacy_to(constant, &copied, &given, &err));
  assert_ptr_not_equal(given->dl_tensor.data, data_of(t));
  given->deleter(given);
  mf_tensor_release(constant);
  mf_tensor_release(t);
}

/* Labels */

static void expect_same(mf_tensor *t, DLDevice label) {
  mf_tensor *view = moved(t, label, MF_COPY_IF_NEEDED);
  assert_ptr_equal(data_of(view), data_of(t));
  assert_int_equal(mf_tensor_dltensor(view)->device.device_type, label.device_type);
  assert_int_equal(mf_tensor_dltensor(view)->device.device_id, label.device_id);
  mf_tensor_release(view);
  view = moved(t, label, MF_COPY_NEVER);
  mf_tensor_release(view);
  view = moved(t, label, MF_COPY_ALWAYS);
  assert_ptr_not_equal(data_of(view), data_of(t));
  mf_tensor_release(view);
}

static void expect_copied(mf_tensor *t, DLDevice label, int byte) {
  mf_tensor *copy = moved(t, label, MF_COPY_IF_NEEDED);
  assert_ptr_not_equal(data_of(copy), data_of(t));
  assert_int_equal(mf_tensor_dltensor(copy)->device.device_type, label.device_type);
  expect_filled(copy, byte);
  mf_tensor_release(copy);
  refused(t, (mf_request){.device = label, .copy = MF_COPY_NEVER}, MF_ELAYOUT, "needs a copy");
}

static void which_memory_may_have_which_label(void **state) {
  (void)state;
  mf_tensor *there = create(gpu(0), NBYTES), *here = create(cpu, NBYTES), *both = create(pinned(), NBYTES);
  write_on(there, MF_STREAM_DEFAULT, 1);
  memset(data_of(here), 2, NBYTES);
  memset(data_of(both), 3, NBYTES);
  expect_same(there, gpu(0));
  expect_same(here, cpu);
  expect_same(both, pinned());
  expect_same(both, cpu);
  expect_copied(there, cpu, 1);
  expect_copied(there, pinned(), 1);
  expect_copied(here, gpu(0), 2);
  expect_copied(here, pinned(), 2);
  expect_copied(both, gpu(0), 3);
  if (other_devices() > 1) expect_copied(there, gpu(1), 1);
  if (other_managed_type() != 0) {
    mf_tensor *everywhere = create(managed(), NBYTES);
    write_on(everywhere, MF_STREAM_DEFAULT, 4);
    expect_same(everywhere, cpu);
    expect_same(everywhere, managed());
    expect_same(everywhere, gpu(0));
    if (other_devices() > 1) expect_same(everywhere, gpu(1));
    expect_copied(everywhere, pinned(), 4);
    expect_copied(there, managed(), 1);
    mf_tensor *labelled = moved(everywhere, gpu(0), MF_COPY_NEVER);
    expect_same(labelled, managed());
    mf_tensor_release(labelled);
    mf_tensor_release(everywhere);
  }
  mf_tensor *same = moved(there, (DLDevice){0}, MF_COPY_IF_NEEDED);
  assert_ptr_equal(same, there); /* nothing was asked for */
  mf_tensor_release(same);
  mf_tensor_release(there);
  mf_tensor_release(here);
  mf_tensor_release(both);
}

/* A tensor without elements, of memory that has some or none. */
static void one_without_elements(DLDevice from, DLDevice at, int64_t rows) {
  int64_t shape[] = {rows, 3};
  const DLTensor like = {.device = from, .ndim = 2, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  const mf_index items[] = {{.kind = MF_INDEX_SLICE, .start = 0, .stop = 0, .step = 1}};
  mf_tensor *t, *none, *turned;
  OK(mf_tensor_create(&like, 0, &t, &err));
  OK(mf_tensor_index(t, items, 1, &none, &err));
  OK(mf_tensor_permute_dims(none, NULL, 0, &turned, &err));
  mf_tensor *copy = moved(turned, at, MF_COPY_ALWAYS);
  assert_int_equal(mf_tensor_size(copy), 0);
  assert_int_equal(mf_tensor_dltensor(copy)->shape[0], 3);
  mf_tensor *all[] = {copy, turned, none, t};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

static void nothing_is_copied_of_nothing(void **state) {
  const DLDevice places[] = {cpu, pinned(), gpu(0)};
  (void)state;
  for (size_t i = 0; i < COUNT(places); i++)
    for (size_t k = 0; k < COUNT(places); k++)
      for (int64_t rows = 0; rows < 3; rows += 2) one_without_elements(places[i], places[k], rows);
}

/* Managed memory that the host may not touch while a device works: run with SIM_MANAGED=exclusive. */
static void managed_memory_of_the_devices_alone(void **state) {
  (void)state;
  mf_tensor *t = create(managed(), NBYTES);
  write_on(t, MF_STREAM_DEFAULT, 5);
  OK(mf_tensor_acquire(t, MF_STREAM_DEFAULT, MF_READ, &err));
  OK(mf_tensor_acquire(t, MF_STREAM_PER_THREAD, MF_WRITE, &err));
  REFUSED(mf_tensor_acquire(t, MF_STREAM_HOST, MF_READ, &err), MF_EDEVICE,
          "the elements are on cuda_managed:0; copy them to the cpu first (mf_tensor_to)");
  expect_copied(t, cpu, 5);
  mf_tensor_release(t);
}

/* It is made beside one GPU and may be used with any: the kernel runs where the other side is. */
static void managed_memory_of_one_device_with_another(void **state) {
  int64_t shape[] = {NBYTES};
  const DLTensor like = {.device = gpu(1), .ndim = 1, .dtype = {kDLInt, 32, 1}, .shape = shape};
  int32_t same = 0;
  (void)state;
  needs_devices(2);
  mf_tensor *bytes = create(managed(), NBYTES), *wide, *back = create(managed(), NBYTES);
  OK(mf_tensor_create(&like, 0, &wide, &err));
  fill(bytes, 5);
  sim_ask_reset();
  OK(mf_tensor_astype(wide, bytes, &err));
  OK(mf_tensor_astype(back, wide, &err));
  assert_int_equal(sim_ask_calls("cuMemcpyAsync") + sim_ask_calls("cuMemcpyPeerAsync"), 0);
  expect_copied(back, cpu, 5);
  mf_tensor *there = moved(bytes, gpu(1), MF_COPY_ALWAYS);
  OK(mf_tensor_equal(back, there, &same, &err));
  assert_int_equal(same, 1);
  OK(mf_tensor_equal(there, back, &same, &err));
  assert_int_equal(same, 1);
  mf_tensor *all[] = {bytes, wide, back, there};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
}

static void begin_anew_with_exclusive_memory(void) {
  (void)setenv("SIM_MANAGED", "exclusive", 1);
  (void)execl("/proc/self/exe", "request_spec", "exclusive", (char *)NULL);
  _exit(1);
}

static void where_managed_memory_is_exclusive(void **state) {
  (void)state;
  needs_simulator();
  if (other_managed_type() != 0) in_fork(begin_anew_with_exclusive_memory);
}

int main(int argc, char **argv) {
  const struct CMUnitTest exclusive[] = {
      SPEC(managed_memory_of_the_devices_alone),
      SPEC(managed_memory_of_one_device_with_another),
  };
  const struct CMUnitTest tests[] = {
      SPEC(requests_that_are_refused),
      SPEC(streams_of_another_gpu_are_refused),
      SPEC(memory_that_was_taken_back),
      SPEC(uses_that_are_refused),
      SPEC(what_the_old_struct_cannot_say),
      SPEC(which_memory_may_have_which_label),
      SPEC(nothing_is_copied_of_nothing),
      SPEC(where_managed_memory_is_exclusive),
  };
  (void)argv;
  if (argc > 1) return RUN(exclusive);
  return RUN(tests);
}
