/* fd_spec.c: Vulkan's memory as a tensor of a GPU, by the file descriptor that Vulkan exports: the bytes both ways, who
 * owns the descriptor, and when the import ends. */
#include "../vulkan/device.h"
#include "device.h"
#include "passing.h"
#include "left.h"

#include <fcntl.h>

enum { NBYTES = 1 << 16 };

static vk_device vulkan;
static VkDeviceMemory memory;
static unsigned char *seen; /* the memory, as Vulkan maps it */

/* A GPU's own Vulkan exports what the simulator does not know, and the other way round. */
static void open_memory(void) {
  void *at;
  needs_simulator();
  vk_open(&vulkan, false);
  memory = vk_allocate(&vulkan, NBYTES, VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT);
  VK(vkMapMemory(vulkan.device, memory, 0, VK_WHOLE_SIZE, 0, &at));
  seen = at;
  for (int i = 0; i < NBYTES; i++) seen[i] = (unsigned char)(i * 7 + i / 256);
}

static void close_memory(void) {
  vkFreeMemory(vulkan.device, memory, NULL);
  vk_close(&vulkan);
  assert_int_equal(vk_complaints(), 0);
}

static int exported(void) {
  const PFN_vkGetMemoryFdKHR get = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr(vulkan.device, "vkGetMemoryFdKHR");
  const VkMemoryGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                     .memory = memory,
                                     .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  int fd;
  VK(get(vulkan.device, &info, &fd));
  return fd;
}

static bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

/* With junk in the fields that are not read. */
static DLTensor bytes(int64_t *count) {
  static int64_t junk = -3;
  return (DLTensor){.data = &junk, .device = gpu(0), .ndim = 1, .shape = count, .strides = &junk,
                    .dtype = {kDLUInt, 8, 1}};
}

/* The next one that the process would get: what was kept open is seen by it. */
static int next_fd(void) {
  const int fd = dup(STDERR_FILENO);
  close(fd);
  return fd;
}

static mf_tensor *imported(int fd) {
  int64_t count = NBYTES;
  const DLTensor like = bytes(&count);
  mf_tensor *t;
  OK(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err));
  return t;
}

static void one_memory(void **state) {
  (void)state;
  const mf_request host = {.device = {kDLCPU, 0}};
  open_memory();
  const mf_stream s = stream_new(0);
  for (uint64_t seed = 0; seed < seeds(20); seed++) {
    sim_ask_seed(seed);
    const int fd = exported();
    mf_tensor *t = imported(fd), *copy;
    assert_false(is_open(fd));
    OK(mf_tensor_to(t, &host, &copy, &err));
    assert_memory_equal(data_of(copy), seen, NBYTES);
    mf_tensor_release(copy);
    OK(mf_tensor_acquire(t, s, MF_WRITE, &err));
    other_fill(0, data_of(t), (int)seed + 1, NBYTES, s);
    OK(mf_tensor_acquire(t, MF_STREAM_DEFAULT, MF_READ, &err));
    synchronize(0);
    for (int i = 0; i < NBYTES; i++) assert_int_equal(seen[i], seed + 1);
    mf_tensor_release(t);
    mf_releases_run();
  }
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, s);
  close_memory();
}

/* A tensor of it that comes back from another library has the same record. */
static void it_is_known_when_it_comes_back(void **state) {
  (void)state;
  open_memory();
  const mf_stream s = stream_new(0), other = stream_new(0);
  for (uint64_t seed = 0; seed < seeds(10); seed++) {
    passing p;
    sim_ask_seed(seed);
    mf_tensor *t = imported(exported()), *u = back(&p, t, other);
    fill_on(t, s, 1);
    fill_on(u, other, 2);
    fill_on(t, s, seed + 3);
    if (seed % 2 == 0) mf_tensor_release(t); /* whose memory lives on */
    fill_on(u, other, seed);
    mf_tensor_release(u);
    if (seed % 2 != 0) mf_tensor_release(t);
    synchronize(0);
    mf_releases_run();
    assert_int_equal(p.deleted, 1);
    for (int i = 0; i < NBYTES; i++) assert_int_equal(seen[i], seed);
  }
  assert_int_equal(sim_ask_findings(), 0);
  stream_end(0, s);
  stream_end(0, other);
  close_memory();
}

/* In a process without a standard input the library's copy of the descriptor is 0. */
static void a_descriptor_may_be_0(void **state) {
  (void)state;
  open_memory();
  const int fd = exported(), input = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  mf_tensor *t = imported(fd);
  mf_tensor_release(t);
  synchronize(0);
  mf_releases_run();
  trim(gpu(0));
  dup2(input, STDIN_FILENO);
  close(input);
  close_memory();
}

/* The import outlives the tensor while work on it is queued, and the bytes stay Vulkan's after it. */
static void it_ends_after_its_work(void **state) {
  (void)state;
  open_memory();
  const mf_stream s = stream_new(0);
  mf_tensor *t = imported(exported());
  keep_busy(t, s);
  other_fill(0, data_of(t), 9, NBYTES, s);
  mf_tensor_release(t);
  synchronize(0);
  mf_releases_run();
  assert_int_equal(seen[NBYTES - 1], 9);
  trim(gpu(0));
  assert_int_equal(seen[NBYTES - 1], 9);
  stream_end(0, s);
  close_memory();
}

static void misuse(void **state) {
  (void)state;
  int64_t count = NBYTES + 1;
  DLTensor like = bytes(&count);
  mf_tensor *t = (mf_tensor *)(uintptr_t)16;
  open_memory();
  const int fd = exported();
  const uint64_t imports = sim_ask_calls(named("cuImportExternalMemory", "hipImportExternalMemory"));
  REFUSED(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err), MF_EINVAL, "do not fit in the memory's 65536");
  assert_null(t);
  count = NBYTES;
  like.byte_offset = 1;
  FAILS(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err), MF_EINVAL);
  like.byte_offset = 0;
  REFUSED(mf_tensor_from_fd(&like, -1, NBYTES, &t, &err), MF_EINVAL, "fd is -1");
  like.device = (DLDevice){kDLCPU, 0};
  REFUSED(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err), MF_EINVAL, "device is cpu");
  like.device.device_id = 3;
  REFUSED(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err), MF_EDEVICE, ":3; a device_id of 0 to");
  like.device = gpu(63);
  FAILS(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err), MF_EDEVICE);
  like.device = gpu(0);
  count = 0;
  REFUSED(mf_tensor_from_fd(&like, fd, 0, &t, &err), MF_EINVAL, "do not fit in the memory's 0");
  count = -1;
  FAILS(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err), MF_EINVAL);
  assert_true(is_open(fd));
  count = 0;
  like.byte_offset = NBYTES;
  assert_int_equal(sim_ask_calls(named("cuImportExternalMemory", "hipImportExternalMemory")), imports);
  OK(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err)); /* nothing, at the very end */
  mf_tensor_release(t);
  mf_releases_run();
  close_memory();
}

/* Whichever call fails, the descriptor is still the caller's, and nothing is left. */
static void each_failing_call(void **state) {
  (void)state;
  static const char *const calls[][2] = {{"cuImportExternalMemory", "hipImportExternalMemory"},
                                         {"cuExternalMemoryGetMappedBuffer", "hipExternalMemoryGetMappedBuffer"}};
  int64_t count = NBYTES, failures = 0;
  const DLTensor like = bytes(&count);
  mf_tensor *t;
  open_memory();
  const int fd = exported(), next = next_fd();
  for (size_t i = 0; i < COUNT(calls); i++) {
    char rule[100];
    snprintf(rule, sizeof rule, "%s@1:999:once", named(calls[i][0], calls[i][1]));
    sim_ask_fail(rule);
    FAILS(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err), MF_EDRIVER);
    assert_string_equal(err.call, named(calls[i][0], calls[i][1]));
    assert_true(is_open(fd));
    assert_int_equal(next_fd(), next);
  }
  for (int rc = MF_ENOMEM; rc == MF_ENOMEM; failures++) {
    assert_true(is_open(fd));
    mf_fault_arm(failures, 0);
    rc = mf_tensor_from_fd(&like, fd, NBYTES, &t, &err);
    if (rc != MF_OK) assert_null(t);
  }
  mf_fault_arm(-1, 0);
  assert_true(failures > 3 && t != NULL && !is_open(fd));
  mf_tensor_release(t);
  sim_ask_reset();
  close_memory();
}

/* As on another thread, which finds nobody inside of the device: what was just imported is of it. */
static void trims_when_left(void) {
  OK(mf_pools_trim(0, &err));
}

static void a_trim_behind_the_import(void **state) {
  int64_t count = NBYTES;
  const DLTensor like = bytes(&count);
  mf_tensor *t;
  (void)state;
  open_memory();
  synchronize(0);
  trim_all();
  const int fd = exported();
  sim_ask_reset();
  when_left = trims_when_left;
  OK(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err));
  when_left = NULL;
  assert_int_equal(sim_ask_calls("cuDevicePrimaryCtxRelease"), 0);
  mf_tensor_release(t);
  close_memory();
}

/* Another thread imports the same memory, or knows the tensor's again, at each step of its end. */
static int steps;
static DLManagedTensorVersioned *given;
static mf_tensor *theirs[2];

static void *import_beside(void *fd) {
  int64_t count = NBYTES;
  const DLTensor like = bytes(&count);
  mf_error e;
  if (mf_tensor_from_fd(&like, (int)(intptr_t)fd, NBYTES, &theirs[0], &e) != MF_OK) theirs[0] = NULL;
  if (given != NULL && mf_tensor_import(given, &theirs[1], &e) == MF_OK) given = NULL;
  return NULL;
}

static void imports_at_its_step(void) {
  pthread_t thread;
  if (--steps != 0) return;
  if (pthread_create(&thread, NULL, import_beside, (void *)(intptr_t)exported()) != 0) abort();
  pthread_join(thread, NULL);
}

/* False where its end has fewer steps. */
static bool ends_beside_an_import(int step, bool is_given, mf_stream s) {
  mf_tensor *t = imported(exported());
  fill_on(t, s, 4);
  given = NULL;
  if (is_given) OK(mf_tensor_export(t, 0, &given, &err));
  steps = step;
  when_entering = when_left = imports_at_its_step;
  mf_tensor_release(t);
  synchronize(0);
  mf_releases_run();
  when_entering = when_left = NULL;
  if (given != NULL) given->deleter(given);
  for (size_t i = 0; i < COUNT(theirs); i++) {
    if (theirs[i] == NULL) continue;
    fill_on(theirs[i], s, 5 + i);
    expect_filled(theirs[i], 5 + (int)i);
    mf_tensor_release(theirs[i]);
    theirs[i] = NULL;
  }
  synchronize(0);
  mf_releases_run();
  return steps <= 0;
}

static void another_thread_imports_it_while_it_ends(void **state) {
  (void)state;
  open_memory();
  const mf_stream s = stream_new(0);
  for (int is_given = 0; is_given < 2; is_given++) {
    int step = 1;
    while (ends_beside_an_import(step, is_given != 0, s)) step++;
    assert_true(step > 3);
    assert_int_equal(sim_ask_findings(), 0);
  }
  stream_end(0, s);
  close_memory();
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(one_memory), SPEC(it_is_known_when_it_comes_back),
                                     SPEC(a_descriptor_may_be_0),
                                     SPEC(it_ends_after_its_work), SPEC(misuse), SPEC(each_failing_call),
                                     SPEC(a_trim_behind_the_import),
                                     SPEC(another_thread_imports_it_while_it_ends)};
  return RUN(tests);
}
