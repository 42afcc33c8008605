/* import_spec.c: memory of a device that comes in: which label it may have and where it really is, what is refused, and
 * when its deleter may be called. What every struct must be is specs/c/import_spec.c's. */
#include "loan.h"

static const DLDevice cpu = {kDLCPU, 0};

/* Pinned memory under a GPU's label is used on that GPU's streams, and stays the cpu's as well. */
static void pinned_memory_with_another_gpus_label(void **state) {
  const DLDevice next = gpu(1);
  (void)state;
  needs_devices(2);
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    sim_ask_seed(seed);
    const mf_stream ours = stream_new(0);
    const int64_t theirs = other_stream(1, false);
    unsigned char *data = other_pinned(NBYTES), *seen = other_pinned(NBYTES);
    const DLTensor view = {.data = data, .device = next, .ndim = 1, .dtype = {kDLUInt, 8, 1},
                           .shape = (int64_t[]){NBYTES}};
    mf_tensor *t, *mine;
    OK(mf_stream_swap(&next, theirs, NULL, &err));
    other_fill(1, data, 6, NBYTES, theirs); /* ready on the current stream of the GPU that the label names */
    OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
    OK(mf_tensor_acquire(t, ours, MF_READ, &err));
    other_copy(0, seen, data, NBYTES, ours);
    const mf_request on_host = {.device = cpu, .copy = MF_COPY_NEVER};
    OK(mf_tensor_to(t, &on_host, &mine, &err));
    sim_ask_host(data, NBYTES, true);
    memset(data_of(mine), 7, NBYTES);
    other_sync(0, ours);
    for (int i = 0; i < NBYTES; i++) assert_int_equal(seen[i], 6);
    mf_tensor_release(mine);
    mf_tensor_release(t);
    OK(mf_stream_swap(&next, MF_STREAM_DEFAULT, NULL, &err));
    other_stream_end(theirs);
    other_pinned_free(data);
    other_pinned_free(seen);
    stream_end(0, ours);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

/* Whichever GPU pinned memory was allocated for, it has one name. */
static void memory_with_a_wrong_label(void **state) {
  (void)state;
  needs_devices(2);
  void *before = other_current();
  other_current_set(1);
  mf_tensor *host = create(pinned(), NBYTES), *there = create(gpu(1), NBYTES), *here = create(gpu(0), NBYTES), *none;
  char text[64], name[32];
  const DLDevice shared = pinned(), first = gpu(0), second = gpu(1);
  DLTensor view = *mf_tensor_dltensor(there);
  view.device = first;
  OK(mf_device_format(&second, name, sizeof name, &err));
  snprintf(text, sizeof text, "data is memory of %s; device says", name);
  REFUSED(mf_tensor_wrap(&view, 0, NULL, NULL, &none, &err), MF_EDEVICE, text);
  view = *mf_tensor_dltensor(here);
  view.device = shared;
  OK(mf_device_format(&shared, name, sizeof name, &err));
  snprintf(text, sizeof text, "; device says %s", name);
  REFUSED(mf_tensor_wrap(&view, 0, NULL, NULL, &none, &err), MF_EDEVICE, text);
  if (other_managed_type() != 0) {
    view.data = data_of(host);
    view.device = managed();
    snprintf(text, sizeof text, "data is memory of %s; device says", name);
    REFUSED(mf_tensor_wrap(&view, 0, NULL, NULL, &none, &err), MF_EDEVICE, text);
  }
  mf_tensor_release(host);
  mf_tensor_release(there);
  mf_tensor_release(here);
  if (before == NULL) other_current_set(-1);
  else other_current_set(0);
}

/* The fields that are named are the struct's. */
static void an_address_behind_the_memory(void **state) {
  (void)state;
  needs_simulator(); /* which has nothing there */
  loan *l = loan_new();
  DLTensor *view = &l->managed.dl_tensor;
  char text[64];
  mf_tensor *none;
  view->byte_offset = UINT64_C(1) << 40;
  snprintf(text, sizeof text, "data is %p and byte_offset 1099511627776;", view->data);
  REFUSED(mf_tensor_import(&l->managed, &none, &err), MF_EINVAL, text);
  assert_string_equal(err.call, "mf_tensor_import");
  assert_int_equal(err.driver_code, 0);
  view->byte_offset = 0;
  mf_tensor_release(import(l));
  synchronize(0);
  loan_end(l);
}

static void layouts_that_are_refused(void **state) {
  (void)state;
  loan *l = loan_new();
  mf_tensor *t = (mf_tensor *)(uintptr_t)16;
  l->managed.dl_tensor.byte_offset = UINT64_MAX;
  REFUSED(mf_tensor_import(&l->managed, &t, &err), MF_EOVERFLOW, "byte_offset");
  assert_null(t);
  l->managed.dl_tensor.byte_offset = 0;
  l->strides[0] = INT64_MAX / NBYTES;
  REFUSED(mf_tensor_import(&l->managed, &t, &err), MF_EOVERFLOW, "strides reach");
  l->strides[0] = 1;
  assert_int_equal(calls_of(l), 0);
  t = import(l);
  mf_tensor_release(t);
  synchronize(0);
  loan_end(l);
}

/* Of no element nobody can use anything; of one somebody can. */
static void none_and_one(void **state) {
  (void)state;
  DLTensor view = {.device = gpu(0), .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = (int64_t[]){0}};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  assert_int_equal(mf_tensor_is_ordered(t), 0);
  assert_int_equal(mf_tensor_dltensor(t)->device.device_type, gpu(0).device_type);
  mf_tensor_release(t);
  view.data = other_alloc(0, 1);
  view.shape = (int64_t[]){1};
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  assert_int_equal(mf_tensor_is_ordered(t), 1);
  mf_tensor_release(t);
  other_sync_all(0);
  other_free(0, view.data);
}

/* A struct that was told so calls no foreign code when it is deleted. */
static void an_export_is_deleted_later(void **state) {
  (void)state;
  for (int legacy = 0; legacy < 2; legacy++) {
    loan *l = loan_new();
    mf_tensor *t = import(l);
    DLManagedTensorVersioned *m;
    DLManagedTensor *old;
    if (legacy) OK(mf_tensor_export_legacy(t, &old, &err));
    else OK(mf_tensor_export(t, 0, &m, &err));
    if (legacy) mf_export_delete_later_legacy(old);
    else mf_export_delete_later(m);
    mf_tensor_release(t);
    other_sync_all(0);
    if (legacy) old->deleter(old);
    else m->deleter(m);
    assert_int_equal(calls_of(l), 0);
    mf_releases_run();
    assert_int_equal(calls_of(l), 1);
    loan_end(l);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(pinned_memory_with_another_gpus_label),
      SPEC(memory_with_a_wrong_label),
      SPEC(an_address_behind_the_memory),
      SPEC(layouts_that_are_refused),
      SPEC(none_and_one),
      SPEC(an_export_is_deleted_later),
  };
  return RUN(tests);
}
