/* vulkan_stream_spec.c: moonferry_vulkan_stream.h: Vulkan's queue and a GPU's streams in turn on one memory, by either
 * route. Mesa's driver for the CPU exports no semaphores, so that the host's route runs as it is; for the streams'
 * route the simulator is the one who exports, and this program does for it what Vulkan's queue would. */
#include <moonferry_vulkan_stream.h> /* before the others, whose names its parameters have */

#include "../vulkan/device.h"
#include "device.h"

#include <fcntl.h>
#include <pthread.h>

enum { NBYTES = 4096 };
#define EXPORT VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT

static vk_device vulkan;
static mf_vulkan *vk;
static VkSemaphore semaphore;
static bool exports;             /* the functions below stand in for Vulkan's */
static VkResult export_answer;
static int exported;             /* what was given away last */
static int kept;                 /* the other API's own */

static VKAPI_ATTR void VKAPI_CALL can_export(VkPhysicalDevice device, const VkPhysicalDeviceExternalSemaphoreInfo *info,
                                             VkExternalSemaphoreProperties *out) {
  (void)device;
  const VkSemaphoreTypeCreateInfo *type = info->pNext;
  assert_int_equal(type->semaphoreType, VK_SEMAPHORE_TYPE_TIMELINE);
  out->externalSemaphoreFeatures = VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT;
}

static VKAPI_ATTR VkResult VKAPI_CALL export_fd(VkDevice device, const VkSemaphoreGetFdInfoKHR *info, int *fd) {
  (void)device;
  assert_true(info->semaphore == semaphore);
  if (export_answer == VK_SUCCESS) *fd = exported = dup(kept);
  return export_answer;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_of_device(VkDevice device, const char *name) {
  if (exports && strcmp(name, "vkGetSemaphoreFdKHR") == 0) return (PFN_vkVoidFunction)export_fd;
  return vkGetDeviceProcAddr(device, name);
}

static PFN_vkVoidFunction VKAPI_CALL find(VkInstance instance, const char *name) {
  if (exports && strncmp(name, "vkGetPhysicalDeviceExternalSemaphore", 36) == 0) return (PFN_vkVoidFunction)can_export;
  if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)find_of_device;
  return vkGetInstanceProcAddr(instance, name);
}

static void open_all(bool with_exports) {
  needs_simulator();
  vk_open(&vulkan, false);
  const mf_vulkan_device of = {.instance = vulkan.instance, .physical = vulkan.physical, .device = vulkan.device,
                               .get_instance_proc_addr = find};
  exports = with_exports;
  export_answer = VK_SUCCESS;
  kept = sim_ask_semaphore(0, false);
  semaphore = vk_timeline(&vulkan);
  OK(mf_vulkan_open(&of, &vk, &err));
}

static void close_all(void) {
  close(kept);
  vkDestroySemaphore(vulkan.device, semaphore, NULL);
  assert_int_equal(mf_vulkan_end(vk), 0);
  assert_int_equal(vk->refs, 1); /* no timeline has another one */
  mf_vulkan_release(vk);
  vk_close(&vulkan);
  assert_int_equal(vk_complaints(), 0);
  assert_int_equal(sim_ask_findings(), 0);
}

static mf_vulkan_shared shared_with(void) {
  const DLDevice device = gpu(0);
  mf_vulkan_shared shared;
  OK(mf_vulkan_share(vk, semaphore, &device, &shared, &err));
  return shared;
}

/* Vulkan's queue copies between two buffers of the memory that the GPU's tensor is over, in turn with the GPU. */
static void the_host_waits_for_both(void **state) {
  (void)state;
  void *at, *from;
  int fd;
  int64_t count = NBYTES;
  open_all(false);
  mf_vulkan_shared shared = shared_with();
  assert_null(shared.semaphore);
  assert_int_equal(shared.reason.status, MF_EDEVICE);
  assert_non_null(strstr(shared.reason.message, "exports no timeline semaphores"));
  const VkDeviceMemory memory = vk_allocate(&vulkan, NBYTES, EXPORT), source = vk_allocate(&vulkan, NBYTES, 0);
  const VkBuffer target = vk_buffer(&vulkan, memory, NBYTES, EXPORT), drawn = vk_buffer(&vulkan, source, NBYTES, 0);
  VK(vkMapMemory(vulkan.device, memory, 0, VK_WHOLE_SIZE, 0, &at));
  VK(vkMapMemory(vulkan.device, source, 0, VK_WHOLE_SIZE, 0, &from));
  const VkMemoryGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, .memory = memory,
                                     .handleType = EXPORT};
  const PFN_vkGetMemoryFdKHR get = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr(vulkan.device, "vkGetMemoryFdKHR");
  VK(get(vulkan.device, &info, &fd));
  const DLTensor like = {.device = gpu(0), .ndim = 1, .shape = &count, .dtype = {kDLUInt, 8, 1}};
  mf_tensor *t;
  OK(mf_tensor_from_fd(&like, fd, NBYTES, &t, &err));
  const mf_stream stream = stream_new(0);
  for (uint64_t frame = 0; frame < seeds(20); frame++) {
    sim_ask_seed(frame);
    memset(from, (int)frame + 1, NBYTES);
    const vk_work work = {.source = drawn, .target = target, .nbytes = NBYTES, .timeline = semaphore,
                          .from = 2 * frame, .to = 2 * frame + 1};
    vk_submit(&vulkan, &work);
    OK(mf_vulkan_shared_wait(&shared, stream, 2 * frame + 1, &err));
    assert_int_equal(((unsigned char *)at)[NBYTES - 1], frame + 1);
    OK(mf_tensor_record(t, stream, MF_WRITE, &err));
    expect_filled(t, (int)frame + 1);
    OK(mf_tensor_acquire(t, stream, MF_WRITE, &err));
    other_fill(0, data_of(t), 200, NBYTES, stream);
    OK(mf_vulkan_shared_signal(&shared, stream, 2 * frame + 2, &err));
    assert_int_equal(((unsigned char *)at)[NBYTES - 1], 200); /* the stream was done before the signal */
  }
  VK(vkDeviceWaitIdle(vulkan.device));
  mf_tensor_release(t);
  stream_end(0, stream);
  sync_all();
  mf_vulkan_unshare(&shared);
  vkDestroyBuffer(vulkan.device, target, NULL);
  vkDestroyBuffer(vulkan.device, drawn, NULL);
  vkFreeMemory(vulkan.device, memory, NULL);
  vkFreeMemory(vulkan.device, source, NULL);
  close_all();
}

static void streams_wait_where_vulkan_exports(void **state) {
  (void)state;
  open_all(true);
  mf_vulkan_shared shared = shared_with();
  assert_non_null(shared.semaphore);
  assert_int_equal(shared.reason.status, MF_OK);
  assert_true(fcntl(exported, F_GETFD) < 0);
  const mf_stream stream = stream_new(0);
  mf_tensor *t = create(gpu(0), NBYTES);
  const uint64_t waits = host_waits();
  OK(mf_vulkan_shared_wait(&shared, stream, 1, &err));
  OK(mf_tensor_record(t, stream, MF_WRITE, &err));
  write_on(t, stream, 9);
  OK(mf_vulkan_shared_signal(&shared, stream, 2, &err));
  assert_int_equal(host_waits(), waits);
  assert_int_equal(sim_ask_semaphore_value(kept), 0);
  sim_ask_semaphore_signal(kept, 1);
  sync_all();
  assert_int_equal(sim_ask_semaphore_value(kept), 2);
  expect_filled(t, 9);
  mf_tensor_release(t);
  stream_end(0, stream);
  mf_vulkan_unshare(&shared);
  mf_vulkan_unshare(&shared);
  sync_all();
  trim(gpu(0));
  close_all();
}

static void reasons_and_misuse(void **state) {
  (void)state;
  const DLDevice far = gpu(63), host = {kDLCPU, 0};
  mf_vulkan_shared shared;
  open_all(true);
  FAILS(mf_vulkan_share(vk, semaphore, &far, &shared, &err), MF_EDEVICE);
  FAILS(mf_vulkan_share(vk, semaphore, &host, &shared, &err), MF_EINVAL);
  export_answer = VK_ERROR_TOO_MANY_OBJECTS;
  shared = shared_with();
  assert_null(shared.semaphore);
  assert_string_equal(shared.reason.call, "vkGetSemaphoreFdKHR");
  FAILS(mf_vulkan_shared_wait(&shared, 12345, 1, &err), MF_EINVAL);
  mf_vulkan_unshare(&shared);
  export_answer = VK_SUCCESS;
  char rule[100];
  snprintf(rule, sizeof rule, "%s@1:801:once", named("cuImportExternalSemaphore", "hipImportExternalSemaphore"));
  sim_ask_fail(rule);
  shared = shared_with(); /* as ROCm on Linux */
  assert_null(shared.semaphore);
  assert_int_equal(shared.reason.driver_code, 801);
  assert_true(fcntl(exported, F_GETFD) < 0);
  OK(mf_vulkan_shared_signal(&shared, MF_STREAM_DEFAULT, 1, &err));
  OK(mf_vulkan_shared_wait(&shared, MF_STREAM_DEFAULT, 1, &err));
  mf_vulkan_unshare(&shared);
  sim_ask_reset();
  close_all();
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(the_host_waits_for_both), SPEC(streams_wait_where_vulkan_exports),
                                     SPEC(reasons_and_misuse)};
  return RUN(tests);
}
