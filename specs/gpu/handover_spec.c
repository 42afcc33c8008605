/* handover_spec.c: what one thread did on a device before it gave something back, or said that something is so, the
 * next thread sees. */
#include "../c/turns.h"
#include "device/owned.h"
#include "driver/driver.h"
#include "driver/kernel.h"
#include "exchange/exchange.h"
#include "spec.h"
#if !IS_HIP
#include "driver/cuda.h"
#endif

static mf_stream stream;
static mf__queue on;
static mf_tensor *memory;

static DLDevice device0(void) {
  return (DLDevice){(DLDeviceType)gpu->types[MF__DEVICE], 0};
}

static mf__usage write_use(void) {
  return (mf__usage){.record = mf__tensor_record(memory), .write = true};
}

/* A driver, and what is made once for it */

static int start(mf__driver *driver, mf_error *unused) {
  (void)unused;
  driver->count = 3;
  return MF_OK;
}

static const char *const files[] = {"libm.so.6", NULL};
static mf__driver mine; /* the only one: as many are remembered as there are backends, and the compiler */

static pthread_t begin_with_a_closed_driver(void *(*body)(void *)) {
  mine = (mf__driver)MF__DRIVER("spec's", "spec", "MOONFERRY_SPEC_NO_LIBRARY", files, start);
  return begin_thread(body);
}

static void *open_mine(void *unused) {
  (void)unused;
  CHECK(mf__driver_open(&mine, &err) == MF_OK);
  give_turn(1);
  return NULL;
}

static void who_opens_a_driver_sees_how_it_was_started(void **state) {
  (void)state;
  const pthread_t thread = begin_with_a_closed_driver(open_mine);
  wait_for_turn(1);
  OK(mf__driver_open(&mine, &err));
  assert_int_equal(mine.count, 3);
  end_thread(thread);
}

static void who_finds_a_driver_usable_sees_how_it_was_started(void **state) {
  (void)state;
  const pthread_t thread = begin_with_a_closed_driver(open_mine);
  while (!mf__driver_usable(&mine)) sched_yield();
  assert_int_equal(mine.count, 3);
  end_thread(thread);
}

static mf__pooling pooling;

static int create_pool(int32_t ordinal, void **out, mf_error *unused) {
  (void)ordinal;
  (void)unused;
  *out = &data;
  return MF_OK;
}

static void *create_and_forget(void *unused) {
  void *pool;
  (void)unused;
  CHECK(mf__driver_pool(&pooling, 0, create_pool, &pool, &err) == MF_OK);
  give_turn(1);
  wait_for_turn(2);
  CHECK(mf__driver_pool_forget(&pooling) == pool);
  give_turn(3);
  return NULL;
}

static void who_asks_for_a_drivers_pool_sees_what_was_decided(void **state) {
  void *pool;
  (void)state;
  const pthread_t thread = begin_thread(create_and_forget);
  wait_for_turn(1);
  OK(mf__driver_pool(&pooling, 0, create_pool, &pool, &err));
  assert_ptr_equal(pool, &data);
  give_turn(2);
  wait_for_turn(3);
  OK(mf__driver_pool(&pooling, 0, create_pool, &pool, &err));
  end_thread(thread);
  assert_ptr_equal(mf__driver_pool_forget(&pooling), &data);
}

static void who_finds_a_drivers_pool_sees_it(void **state) {
  (void)state;
  const pthread_t thread = begin_thread(create_and_forget);
  wait_for_turn(1);
  assert_ptr_equal(mf__driver_pool_made(&pooling), &data);
  give_turn(2);
  end_thread(thread);
}

static mf__kernels kernels;

static int no_error(mf_error *unused) {
  (void)unused;
  return MF_OK;
}

static mf__kernels *these_kernels(void) {
  return &kernels;
}

static int relax(bool begins, mf_error *unused) {
  (void)begins;
  return no_error(unused);
}

static int make_kernel(const mf__kernel_wanted *wanted, mf__kernel *kernel, mf_error *unused) {
  (void)wanted;
  kernel->module = &data;
  return no_error(unused);
}

static void unload(void *module) {
  CHECK(module == &data);
}

static const mf__compiler compiler = {
    .open = no_error, .here = these_kernels, .relax = relax, .make = make_kernel, .unload = unload};
static const mf__kernel_copy no_copy = {.size = 4};

static void *make_a_kernel(void *unused) {
  (void)unused;
  CHECK(mf__kernel_copy_by(&compiler, &no_copy, 0, &err) == MF_OK);
  give_turn(1);
  return NULL;
}

static void who_finds_a_kernel_sees_how_it_was_made(void **state) {
  (void)state;
  const pthread_t thread = begin_thread(make_a_kernel);
  wait_for_turn(1);
  OK(mf__kernel_copy_by(&compiler, &no_copy, 0, &err));
  end_thread(thread);
  mf__kernels_forget(&compiler, &kernels);
}

#if !IS_HIP

static void *activate(void *unused) {
  CUcontext context;
  (void)unused;
  data = 1;
  CHECK(mf__cuda_primary(0, &context, &err) == MF_OK);
  give_turn(1);
  return NULL;
}

static void who_finds_a_context_sees_what_was_done_before_it_was_made(void **state) {
  CUcontext context;
  (void)state;
  OK(mf__driver_open(&mf__cuda_driver, &err));
  const pthread_t thread = begin_thread(activate);
  wait_for_turn(1);
  OK(mf__cuda_primary(0, &context, &err));
  assert_int_equal(data, 1);
  end_thread(thread);
}

#endif

static mf__gl_resource resource;

static void *have_resource(void *unused) {
  (void)unused;
  CHECK(mf__gl_begin(&resource, &err) == MF_OK);
  data = 1;
  mf__gl_end(&resource);
  give_turn(1);
  return NULL;
}

static void who_has_a_graphics_resource_sees_what_the_last_one_did(void **state) {
  (void)state;
  const pthread_t thread = begin_thread(have_resource);
  wait_for_turn(1);
  OK(mf__gl_begin(&resource, &err));
  assert_int_equal(data, 1);
  mf__gl_end(&resource);
  end_thread(thread);
}

/* The runtime's own pools */

static DLDevice of_pool;

static void read_pool(void) {
  mf_pool_stats stats;
  CHECK(mf_pool_read(&of_pool, &stats, &err) == MF_OK);
}

static void *make_pool(void *unused) {
  (void)unused;
  read_pool();
  give_turn(1);
  return NULL;
}

static void who_finds_a_pool_sees_it_as_it_was_made(void **state) {
  (void)state;
  of_pool = device0();
  const pthread_t thread = begin_thread(make_pool);
  wait_for_turn(1);
  read_pool();
  end_thread(thread);
}

static void who_looks_through_the_pools_sees_them_as_they_were_made(void **state) {
  (void)state;
  of_pool = (DLDevice){(DLDeviceType)gpu->types[MF__PINNED], 0};
  const pthread_t thread = begin_thread(make_pool);
  wait_for_turn(1);
  assert_false(mf__pools_cache(gpu));
  end_thread(thread);
}

/* A device's gate */

static mf__gate *gate(void) {
  return &gpu->gates[0];
}

static void *go_in_twice(void *unused) {
  (void)unused;
  mf__gate_enter(gate());
  data = 1;
  mf__gate_leave(gate());
  give_turn(1);
  wait_for_turn(2);
  mf__gate_enter(gate());
  CHECK(data == 2);
  mf__gate_leave(gate());
  return NULL;
}

static void who_shuts_a_device_sees_what_was_done_inside(void **state) {
  (void)state;
  const pthread_t thread = begin_thread(go_in_twice);
  wait_for_turn(1);
  assert_true(mf__device_shut(gpu, 0));
  assert_int_equal(data, 1);
  data = 2;
  mf__device_open(gpu, 0);
  give_turn(2);
  end_thread(thread);
}

/* A memory's record */

static void *use_and_let_use(void *unused) {
  (void)unused;
  mf__usage use = write_use();
  CHECK(mf__order_use(&on, &use, &err) == MF_OK);
  give_turn(1);
  wait_for_turn(2);
  CHECK(mf__order_repeat(&on, &use));
  give_turn(3);
  return NULL;
}

static void who_has_a_record_sees_what_the_last_one_entered(void **state) {
  (void)state;
  mf__usage use = write_use();
  const pthread_t thread = begin_thread(use_and_let_use);
  wait_for_turn(1);
  assert_true(mf__order_repeat(&on, &use));
  give_turn(2);
  wait_for_turn(3);
  OK(mf__order_use(&on, &use, &err));
  end_thread(thread);
}

static void a_record_that_was_taken_back_takes_no_use(void **state) {
  (void)state;
  mf__usage use = write_use();
  OK(mf__order_use(&on, &use, &err));
  assert_true(mf__order_repeat(&on, &use));
  atomic_store(&use.record->taken_back, true);
  assert_false(mf__order_repeat(&on, &use));
  FAILS(mf__order_use(&on, &use, &err), MF_ECLOSED);
  atomic_store(&use.record->taken_back, false);
  assert_true(mf__order_repeat(&on, &use));
}

static void *write_alone(void *unused) {
  (void)unused;
  mf__usage use = write_use();
  use.grants = true;
  CHECK(mf__order_use(&on, &use, &err) == MF_OK);
  data = 1;
  CHECK(mf__order_repeat(&on, &use));
  return NULL;
}

static void who_finds_a_sole_writer_sees_what_it_did(void **state) {
  (void)state;
  const pthread_t thread = begin_thread(write_alone);
  while (!mf__order_is_sole_writer(mf__tensor_record(memory), stream)) sched_yield();
  assert_int_equal(data, 1);
  end_thread(thread);
}

static mf__owned *owned(void) {
  return mf__tensor_record(memory)->owned;
}

static void *set_owner(void *unused) {
  (void)unused;
  mf__owned_set(owned(), memory->storage);
  give_turn(1);
  wait_for_turn(2);
  mf__owned_set(owned(), memory->storage);
  return NULL;
}

static void who_sets_an_owner_sees_the_former_one(void **state) {
  (void)state;
  const pthread_t thread = begin_thread(set_owner);
  wait_for_turn(1);
  mf__owned_set(owned(), memory->storage);
  give_turn(2);
  end_thread(thread);
}

/* What waits for the device */

static void note_end(void *record) {
  mf__record_free(record);
  data = 1;
}

static void *retire_and_end(void *unused) {
  const mf__device device = {.backend = gpu, .space = MF__DEVICE};
  const DLDevice named = device0();
  mf__record *record = NULL;
  (void)unused;
  CHECK(mf__record_create(&device, &record, &err) == MF_OK);
  mf__usage use = {.record = record, .write = true};
  CHECK(mf__order_use(&on, &use, &err) == MF_OK);
  record->entries[0].destroyed = true; /* so only a wait for the whole device tells that its work is done */
  record->entries[0].waits = mf__device_waits(gpu, 0);
  mf__retire(record, note_end, record);
  give_turn(1);
  CHECK(mf_device_synchronize(&named, &err) == MF_OK);
  return NULL;
}

static void who_finds_that_nothing_waits_sees_how_it_ended(void **state) {
  (void)state;
  const pthread_t thread = begin_thread(retire_and_end);
  wait_for_turn(1);
  while (mf__retire_waits(gpu)) sched_yield();
  assert_int_equal(data, 1);
  end_thread(thread);
}

static void change_pool(void) {
  const DLTensor like = {.device = device0(), .dtype = {kDLUInt, 8, 1}};
  mf_tensor *t = NULL;
  CHECK(mf_tensor_create(&like, 0, &t, &err) == MF_OK);
  mf_tensor_release(t);
}

static void *change_pool_thrice(void *unused) {
  (void)unused;
  for (int i = 1; i < 6; i += 2) {
    change_pool();
    give_turn(i);
    wait_for_turn(i + 1);
  }
  return NULL;
}

static void who_looks_into_a_pool_sees_what_was_done_to_it(void **state) {
  (void)state;
  of_pool = device0();
  const pthread_t thread = begin_thread(change_pool_thrice);
  wait_for_turn(1);
  read_pool();
  give_turn(2);
  wait_for_turn(3);
  assert_true(mf__pools_cache(gpu));
  give_turn(4);
  wait_for_turn(5);
  give_turn(6);
  end_thread(thread);
}

static int64_t held;

static void *hold(void *unused) {
  (void)unused;
  data = 1;
  mf__holders_add(gpu, 1);
  give_turn(1);
  return NULL;
}

static void who_counts_holders_sees_what_they_did(void **state) {
  (void)state;
  held = mf__holders(gpu);
  const pthread_t thread = begin_thread(hold);
  while (mf__holders(gpu) == held) sched_yield();
  assert_int_equal(data, 1);
  end_thread(thread);
  mf__holders_add(gpu, -1);
}

static void who_is_counted_later_sees_what_the_first_did(void **state) {
  (void)state;
  const pthread_t thread = begin_thread(hold);
  wait_for_turn(1);
  mf__holders_add(gpu, -1);
  assert_int_equal(data, 1);
  end_thread(thread);
}

static int begin(void **state) {
  const DLDevice device = device0();
  const DLTensor like = {.device = device, .dtype = {kDLUInt, 8, 1}};
  (void)state;
  OK(mf_stream_create(&device, &stream, &err));
  OK(mf__queue_resolve(&(mf__device){.backend = gpu, .space = MF__DEVICE}, stream, false, &on, &err));
  OK(mf_tensor_create(&like, 0, &memory, &err));
  return 0;
}

static int end(void **state) {
  const DLDevice device = device0();
  (void)state;
  mf_tensor_release(memory);
  OK(mf_stream_destroy(&device, stream, &err));
  OK(mf_pool_trim(&device, &err));
  OK(mf_device_synchronize(&device, &err));
  OK(mf_pool_trim(&device, &err)); /* the stream, which on ROCm stays for the frees that the first trim has queued */
  expect_empty_ledger();
  expect_clean_driver();
  return 0;
}

#define SPEC(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      /* First, while there is neither context nor pool. */
#if !IS_HIP
      cmocka_unit_test(who_finds_a_context_sees_what_was_done_before_it_was_made),
#endif
      cmocka_unit_test(who_finds_a_pool_sees_it_as_it_was_made),
      cmocka_unit_test(who_looks_through_the_pools_sees_them_as_they_were_made),
      cmocka_unit_test(who_opens_a_driver_sees_how_it_was_started),
      cmocka_unit_test(who_finds_a_driver_usable_sees_how_it_was_started),
      cmocka_unit_test(who_asks_for_a_drivers_pool_sees_what_was_decided),
      cmocka_unit_test(who_finds_a_drivers_pool_sees_it),
      cmocka_unit_test(who_finds_a_kernel_sees_how_it_was_made),
      cmocka_unit_test(who_has_a_graphics_resource_sees_what_the_last_one_did),
      SPEC(who_shuts_a_device_sees_what_was_done_inside),
      SPEC(who_has_a_record_sees_what_the_last_one_entered),
      SPEC(a_record_that_was_taken_back_takes_no_use),
      SPEC(who_finds_a_sole_writer_sees_what_it_did),
      SPEC(who_sets_an_owner_sees_the_former_one),
      SPEC(who_finds_that_nothing_waits_sees_how_it_ended),
      SPEC(who_looks_into_a_pool_sees_what_was_done_to_it),
      SPEC(who_counts_holders_sees_what_they_did),
      SPEC(who_is_counted_later_sees_what_the_first_did),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
