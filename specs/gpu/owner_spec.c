/* owner_spec.c: memory of ours comes back at the very moment at which its last reference goes. The steps that two
 * threads would take meanwhile are taken here one by one, in each order. */
#include "device/owned.h"
#include "spec.h"

enum { NBYTES = 512 };

typedef struct scene {
  mf__storage *storage;
  mf__owned *owned;
  mf__region memory;
} scene;

static scene scene_open(void) {
  const mf__device device = {.backend = gpu, .space = MF__DEVICE};
  mf__place place = {.device = device};
  scene s = {0};
  void *data = NULL;
  OK(mf__queue_resolve(&device, MF_STREAM_DEFAULT, false, &place.on, &err));
  OK(mf__memory_create(0, NBYTES, &place, &data, &s.storage, &err));
  s.owned = mf__storage_record(s.storage)->owned;
  s.memory = (mf__region){.device = device, .first = data, .nbytes = NBYTES};
  return s;
}

static void expect_nothing_left(const scene *s) {
  assert_null(mf__owned_find(&s->memory));
  expect_empty_ledger();
}

/* Who drops the last reference has seen that nobody else has one; then somebody finds the memory. */
static void found_before_it_is_gone(void **state) {
  (void)state;
  scene s = scene_open();
  assert_ptr_equal(mf__owned_find(&s.memory), s.storage);
  assert_false(mf__owned_clear(s.owned, s.storage)); /* it goes on with who found it */
  assert_ptr_equal(mf__owned_find(&s.memory), s.storage);
  mf__storage_release(s.storage, false);
  assert_ptr_equal(mf__owned_find(&s.memory), s.storage);
  mf__storage_release(s.storage, false);
  mf__storage_release(s.storage, false);
  expect_nothing_left(&s);
}

static void gone_before_it_is_looked_for(void **state) {
  (void)state;
  scene s = scene_open();
  assert_true(mf__owned_clear(s.owned, s.storage));
  assert_null(mf__owned_find(&s.memory));
  mf__storage_release(s.storage, false); /* who cleared it goes on to end it */
  expect_nothing_left(&s);
}

/* Two threads dropped a reference each at once, which counts down to 0; the later one has not come to the owner yet. */
static void looked_for_when_none_is_left(void **state) {
  (void)state;
  scene s = scene_open();
  _Atomic int64_t *refs = (_Atomic int64_t *)(void *)s.storage; /* its first member */
  assert_int_equal(atomic_load(refs), 1);
  atomic_store(refs, 0);
  assert_null(mf__owned_find(&s.memory));
  assert_true(mf__owned_clear(s.owned, s.storage));
  atomic_store(refs, 1);
  mf__storage_release(s.storage, false);
  expect_nothing_left(&s);
}

static scene locked;

static void *allocated(void) {
  void *data = NULL;
  mf__scope scope;
  OK(mf__enter_relaxed(&scope, gpu, 0, &err));
  OK(gpu->memory_alloc(MF__DEVICE, NBYTES, MF_STREAM_DEFAULT, &data, &err));
  mf__leave(&scope);
  return data;
}

static mf_tensor *wrapped(void *data) {
  int64_t shape[] = {NBYTES};
  const DLTensor view = {.data = data, .device = {(DLDeviceType)gpu->types[MF__DEVICE], 0}, .ndim = 1,
                         .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  return t;
}

static void expect_owner(const mf_tensor *t, char *first, int64_t nbytes) {
  const mf__region memory = {.device = {.backend = gpu, .space = MF__DEVICE}, .first = first, .nbytes = nbytes};
  mf__storage *found = mf__owned_find(&memory);
  assert_ptr_equal(found, t == NULL ? NULL : t->storage);
  if (found != NULL) mf__storage_release(found, false);
}

/* What was mapped for us may be mapped at the same address again while somebody has tensors of the earlier mapping. */
static void what_was_mapped_is_found_until_it_is_given_up(void **state) {
  (void)state;
  mf__queue on = mf__queue_make(gpu, 0, MF_STREAM_DEFAULT);
  mf__scope scope;
  char *data = allocated();
  mf_tensor *t = wrapped(data);
  expect_owner(NULL, data, NBYTES);
  OK(mf__memory_own(&t, data, NBYTES, &err));
  expect_owner(t, data, NBYTES);
  expect_owner(t, data + 7, NBYTES - 7);
  expect_owner(NULL, data + 7, NBYTES);
  const mf__region all = {.device = {.backend = gpu, .space = MF__DEVICE}, .first = data, .nbytes = NBYTES};
  assert_ptr_equal(mf__owned_find(&all), t->storage);
  mf__memory_release(t->storage); /* by who has seen before that nobody else has a reference */
  expect_owner(t, data, NBYTES);
  mf__memory_disown(t);
  mf__memory_disown(t);
  expect_owner(NULL, data, NBYTES);
  mf_tensor *next = wrapped(data);
  OK(mf__memory_own(&next, data, NBYTES, &err));
  mf_tensor_release(t);
  expect_owner(next, data, NBYTES);
  mf_tensor_release(next);
  expect_owner(NULL, data, NBYTES);
  mf__retire_drain(gpu);
  OK(mf__enter_relaxed(&scope, gpu, 0, &err));
  void *memory = data;
  OK(mf__memory_free(&on, MF__DEVICE, &memory, &err));
  mf__leave(&scope);
  expect_empty_ledger();
}

/* A driver may map the same memory at the same address for two that ask: it is one memory, with one record. */
static void what_is_mapped_twice_is_one_memory(void **state) {
  (void)state;
  mf__queue on = mf__queue_make(gpu, 0, MF_STREAM_DEFAULT);
  mf__scope scope;
  char *data = allocated();
  mf_tensor *first = wrapped(data);
  OK(mf__memory_own(&first, data, NBYTES, &err));
  mf_tensor *second = wrapped(data);
  OK(mf__memory_own(&second, data, NBYTES, &err));
  assert_ptr_equal(mf__tensor_record(first), mf__tensor_record(second));
  mf_tensor_release(first);
  assert_int_equal(mf_tensor_is_ordered(second), 1);
  mf_tensor_release(second);
  expect_owner(NULL, data, NBYTES);
  OK(mf_device_synchronize(&(DLDevice){(DLDeviceType)gpu->types[MF__DEVICE], 0}, &err));
  OK(mf__enter_relaxed(&scope, gpu, 0, &err));
  void *memory = data;
  OK(mf__memory_free(&on, MF__DEVICE, &memory, &err));
  mf__leave(&scope);
  expect_empty_ledger();
}

static void release_in_a_child(void) {
  mf_ledger alive;
  (void)alarm(HANGS_SECONDS);
  mf__storage_release(locked.storage, false);
  mf_ledger_read(&alive);
  CHECK(alive.storages == 0 && alive.blocks == 0);
}

/* A fork while another thread is about to take the memory: in the child nobody is there who would go on. */
static void a_forked_child_waits_for_nobody(void **state) {
  (void)state;
  locked = scene_open();
  atomic_store(&locked.owned->locked, 1);
  in_fork_with("", release_in_a_child);
  atomic_store(&locked.owned->locked, 0);
  mf__storage_release(locked.storage, false);
  expect_nothing_left(&locked);
}

static int end(void **state) {
  const DLDevice device = {(DLDeviceType)gpu->types[MF__DEVICE], 0};
  (void)state;
  OK(mf_pool_trim(&device, &err));
  OK(mf_device_synchronize(&device, &err));
  expect_clean_driver();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(found_before_it_is_gone, end),
      cmocka_unit_test_teardown(gone_before_it_is_looked_for, end),
      cmocka_unit_test_teardown(looked_for_when_none_is_left, end),
      cmocka_unit_test_teardown(what_was_mapped_is_found_until_it_is_given_up, end),
      cmocka_unit_test_teardown(what_is_mapped_twice_is_one_memory, end),
      cmocka_unit_test_teardown(a_forked_child_waits_for_nobody, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
