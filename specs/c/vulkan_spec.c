/* vulkan_spec.c: moonferry_vulkan.h on a driver that runs on the CPU (Mesa's lavapipe): memory both ways with each byte
 * checked, timelines and fences, who frees what and when; the validation layers have nothing to say. */
#define _GNU_SOURCE
#include "spec.h"

#include <moonferry_vulkan.h>

#include "../vulkan/device.h"

enum { NBYTES = 1 << 16, PAGE = 4096 };

static vk_device d;
static mf_vulkan *vk;
static VkSemaphore semaphore;
static mf_vulkan_timeline *timeline;

static PFN_vkVoidFunction find(VkInstance instance, const char *name);
static const char *hidden, *failing; /* functions that are not found, and that are replaced */
static VkResult answer;              /* by one that says this */

static mf_vulkan_device described(void) {
  return (mf_vulkan_device){.instance = d.instance, .physical = d.physical, .device = d.device,
                            .get_instance_proc_addr = find};
}

static void open_all(bool plain) {
  const mf_vulkan_device of = (vk_open(&d, plain), described());
  OK(mf_vulkan_open(&of, &vk, &spec_err));
  semaphore = vk_timeline(&d);
  OK(mf_vulkan_timeline_open(vk, semaphore, &timeline, &spec_err));
}

static int setup(void **state) {
  vk_forget();
  failing = hidden = NULL;
  const int rc = spec_setup(state);
  if (rc == 0) open_all(false);
  return rc;
}

/* The device goes when nobody needs it any more, in a test that must have seen to that. */
static int teardown(void **state) {
  vkDestroySemaphore(d.device, semaphore, NULL);
  mf_vulkan_timeline_release(timeline);
  const int32_t left = mf_vulkan_end(vk);
  mf_vulkan_release(vk);
  vk_close(&d);
  if (left != 0) print_error("%d memories are in use at the end\n", (int)left);
  if (vk_complaints() != 0) print_error("validation: %s\n", vk_complaint());
  return spec_teardown(state) != 0 || left != 0 || vk_complaints() != 0;
}

/* Driver calls that the tests make fail, found where the header looks for them. */

static VKAPI_ATTR VkResult VKAPI_CALL fail_map(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
                                               VkDeviceSize size, VkMemoryMapFlags flags, void **out) {
  (void)device, (void)memory, (void)offset, (void)size, (void)flags, (void)out;
  return answer;
}

static VKAPI_ATTR VkResult VKAPI_CALL fail_allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                                                    const VkAllocationCallbacks *allocator, VkDeviceMemory *out) {
  (void)device, (void)info, (void)allocator, (void)out;
  return answer;
}

static VKAPI_ATTR VkResult VKAPI_CALL fail_wait(VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t ns) {
  (void)device, (void)info, (void)ns;
  return answer;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_of_device(VkDevice device, const char *name) {
  if (hidden != NULL && strcmp(name, hidden) == 0) return NULL;
  if (failing != NULL && strcmp(name, failing) == 0) {
    if (strcmp(name, "vkMapMemory") == 0) return (PFN_vkVoidFunction)fail_map;
    if (strcmp(name, "vkAllocateMemory") == 0) return (PFN_vkVoidFunction)fail_allocate;
    return (PFN_vkVoidFunction)fail_wait;
  }
  return vkGetDeviceProcAddr(device, name);
}

static PFN_vkVoidFunction find(VkInstance instance, const char *name) {
  if (hidden != NULL && strcmp(name, hidden) == 0) return NULL;
  if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)find_of_device;
  return vkGetInstanceProcAddr(instance, name);
}

/* Memory */

static DLTensor bytes_of(int64_t *count) {
  return (DLTensor){.ndim = 1, .shape = count, .dtype = {kDLUInt, 8, 1}, .device = {kDLCPU, 0}};
}

/* A tensor over whole pages of the program's. */
static mf_tensor *of_pages(size_t nbytes) {
  void *pages = NULL;
  int64_t count = (int64_t)nbytes;
  mf_tensor *t;
  assert_int_equal(posix_memalign(&pages, PAGE, nbytes), 0);
  DLTensor view = bytes_of(&count);
  view.data = pages;
  OK(mf_tensor_wrap(&view, 0, free, pages, &t, &spec_err));
  return t;
}

/* A tensor over memory of Vulkan's, and that memory. */
static mf_tensor *of_vulkan(VkDeviceMemory *memory) {
  int64_t count = NBYTES;
  const DLTensor like = bytes_of(&count);
  mf_tensor *t;
  *memory = vk_allocate(&d, NBYTES, 0);
  const mf_vulkan_memory owned = {*memory, NBYTES, vk_type(&d)};
  OK(mf_vulkan_wrap(vk, &owned, &like, &t, &spec_err));
  return t;
}

static unsigned char *data_of(mf_tensor *t) {
  return mf_tensor_dltensor(t)->data;
}

static unsigned char pattern(int i, int frame) {
  return (unsigned char)(i * 7 + i / 256 + frame * 31);
}

static void write_pattern(unsigned char *at, int frame) {
  for (int i = 0; i < NBYTES; i++) at[i] = pattern(i, frame);
}

static void check_pattern(const unsigned char *at, int frame) {
  for (int i = 0; i < NBYTES; i++)
    if (at[i] != pattern(i, frame)) fail_msg("byte %d of frame %d is %d, not %d", i, frame, at[i], pattern(i, frame));
}

/* A tensor's own memory as a buffer, and a tensor over a buffer's. */
typedef struct pair {
  mf_tensor *host, *device;
  mf_vulkan_import_of imported;
  VkBuffer of_host, of_device;
} pair;

static pair make_pair(void) {
  VkDeviceMemory memory;
  pair p = {.host = of_pages(NBYTES), .device = of_vulkan(&memory)};
  OK(mf_vulkan_import(vk, p.host, 0, &p.imported, &spec_err));
  p.of_host = vk_buffer(&d, p.imported.memory, NBYTES, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT);
  p.of_device = vk_buffer(&d, memory, NBYTES, 0);
  return p;
}

static void end_pair(pair *p) {
  VK(vkDeviceWaitIdle(d.device));
  vkDestroyBuffer(d.device, p->of_host, NULL);
  vkDestroyBuffer(d.device, p->of_device, NULL);
  mf_vulkan_unimport(vk, &p->imported);
  mf_vulkan_unimport(vk, &p->imported);
  mf_tensor_release(p->host);
  mf_tensor_release(p->device);
}

/* A copy that begins when the semaphore has a value and brings it to another, or signals a fence. */
static void submit(VkBuffer source, VkBuffer target, uint64_t from, uint64_t to, VkFence fence) {
  const vk_work work = {.source = source, .target = target, .nbytes = NBYTES,
                        .timeline = semaphore, .from = from, .to = to, .fence = fence};
  vk_submit(&d, &work);
}

static void set_fence(mf_tensor *t, uint64_t value, int32_t use) {
  const mf_fence fence = mf_vulkan_reached(timeline, value);
  OK(mf_tensor_fence(t, &fence, use, &spec_err));
}

static int32_t may(mf_tensor *t, int32_t use) {
  int32_t out;
  OK(mf_tensor_fence_wait(t, use, 0, &out, &spec_err));
  return out;
}

/* What the queue copies out of a tensor's own memory arrives in the tensor over the buffer, whose readers wait. */
static void a_tensor_is_a_buffer(void **state) {
  (void)state;
  pair p = make_pair();
  mf_tensor *seen;
  int64_t count = NBYTES;
  const DLTensor like = bytes_of(&count);
  assert_int_equal(mf_tensor_is_ordered(p.device), 0);
  write_pattern(data_of(p.host), 1);
  memset(data_of(p.device), 0, NBYTES);
  submit(p.of_host, p.of_device, 1, 2, VK_NULL_HANDLE);
  set_fence(p.host, 2, MF_READ);
  set_fence(p.device, 2, MF_WRITE);
  assert_int_equal(may(p.host, MF_READ), 1);
  assert_int_equal(may(p.host, MF_WRITE), 0);
  assert_int_equal(may(p.device, MF_READ), 0);
  OK(mf_tensor_create(&like, 0, &seen, &spec_err));
  vk_signal(&d, semaphore, 1);
  OK(mf_tensor_copy(seen, p.device, &spec_err));
  check_pattern(data_of(seen), 1);
  check_pattern(data_of(p.device), 1);
  assert_int_equal(may(p.host, MF_WRITE), 1);
  mf_tensor_release(seen);
  end_pair(&p);
}

/* And the other way, by a fence of the old kind. */
static void a_buffer_is_a_tensor(void **state) {
  (void)state;
  pair p = make_pair();
  const VkFenceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkFence fence;
  write_pattern(data_of(p.device), 2);
  VK(vkCreateFence(d.device, &info, NULL, &fence));
  submit(p.of_device, p.of_host, 1, 0, fence);
  const mf_fence done = mf_vulkan_fence(vk, fence);
  OK(mf_tensor_fence(p.host, &done, MF_WRITE, &spec_err));
  assert_int_equal(may(p.host, MF_READ), 0);
  vk_signal(&d, semaphore, 1);
  OK(mf_tensor_acquire(p.host, MF_STREAM_HOST, MF_READ, &spec_err));
  check_pattern(data_of(p.host), 2);
  end_pair(&p);
}

/* A memory whose last tensor went while the queue wrote it is freed after that, not before. */
static void memory_outlives_the_queues_work(void **state) {
  (void)state;
  pair p = make_pair();
  write_pattern(data_of(p.host), 3);
  submit(p.of_host, p.of_device, 1, 2, VK_NULL_HANDLE);
  set_fence(p.device, 2, MF_WRITE);
  mf_tensor_release(p.device);
  mf_releases_run();
  assert_int_equal(vk->memories, 2);
  vk_signal(&d, semaphore, 1);
  VK(vkDeviceWaitIdle(d.device));
  mf_releases_run();
  assert_int_equal(vk->memories, 1);
  p.device = NULL;
  end_pair(&p);
}

/* A frame: three parts of one mapped memory in turn, each written while the queue may still read the others. */
static void a_ring_of_frames(void **state) {
  (void)state;
  enum { SLOTS = 3, FRAMES = 40 };
  int64_t count = NBYTES;
  mf_tensor *slots[SLOTS], *out = of_pages(NBYTES);
  VkBuffer buffers[SLOTS];
  mf_vulkan_import_of imported;
  mf_ring *ring;
  int32_t slot;
  for (int i = 0; i < SLOTS; i++) {
    VkDeviceMemory memory;
    slots[i] = of_vulkan(&memory);
    buffers[i] = vk_buffer(&d, memory, NBYTES, 0);
  }
  OK(mf_ring_create(slots, SLOTS, &ring, &spec_err));
  OK(mf_vulkan_import(vk, out, (VkDeviceSize)count, &imported, &spec_err));
  const VkBuffer to = vk_buffer(&d, imported.memory, NBYTES, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT);
  for (int frame = 1; frame <= FRAMES; frame++) {
    OK(mf_ring_begin(ring, INT64_MAX, &slot, &spec_err));
    OK(mf_tensor_acquire(out, MF_STREAM_HOST, MF_WRITE, &spec_err));
    if (frame > 1) check_pattern(data_of(out), frame - 1);
    write_pattern(data_of(mf_ring_slot(ring, slot)), frame);
    submit(buffers[slot], to, 0, (uint64_t)frame, VK_NULL_HANDLE);
    const mf_fence fence = mf_vulkan_reached(timeline, (uint64_t)frame);
    OK(mf_ring_end(ring, &fence, MF_READ, &spec_err));
    set_fence(out, (uint64_t)frame, MF_WRITE);
  }
  VK(vkDeviceWaitIdle(d.device));
  for (int i = 0; i < SLOTS; i++) vkDestroyBuffer(d.device, buffers[i], NULL);
  vkDestroyBuffer(d.device, to, NULL);
  for (int i = 0; i < SLOTS; i++) mf_tensor_release(slots[i]);
  mf_ring_release(ring);
  mf_vulkan_unimport(vk, &imported);
  mf_tensor_release(out);
}

/* After the end no fence keeps anybody, and the device is asked for as long as a memory is in use. */
static void the_end_says_what_is_in_use(void **state) {
  (void)state;
  VkDeviceMemory memory;
  mf_tensor *t = of_vulkan(&memory), *view;
  OK(mf_tensor_reshape(t, TO(2, NBYTES / 2), &view, &spec_err));
  set_fence(t, 99, MF_WRITE);
  assert_int_equal(may(t, MF_READ), 0);
  assert_int_equal(mf_vulkan_end(vk), 1);
  assert_int_equal(may(t, MF_READ), 1);
  mf_tensor_release(t);
  assert_int_equal(mf_vulkan_end(vk), 1);
  mf_tensor_release(view);
  assert_int_equal(mf_vulkan_end(vk), 0);
}

static void what_fences_held_up_goes_with_the_end(void **state) {
  (void)state;
  VkDeviceMemory memory;
  mf_tensor *t = of_vulkan(&memory);
  set_fence(t, 99, MF_WRITE);
  mf_tensor_release(t);
  assert_int_equal(vk->memories, 1);
  assert_int_equal(mf_vulkan_end(vk), 0);
}

static void a_lost_device_holds_nobody_up(void **state) {
  (void)state;
  const mf_vulkan_device of = described();
  mf_vulkan *lost;
  mf_vulkan_timeline *its;
  mf_tensor *t = spec_create("uint8", DIMS(4));
  int32_t done;
  failing = "vkWaitSemaphores";
  OK(mf_vulkan_open(&of, &lost, &spec_err));
  failing = NULL;
  OK(mf_vulkan_timeline_open(lost, semaphore, &its, &spec_err));
  if (its == NULL) abort(); /* says to the compiler what OK has checked */
  const mf_fence fence = mf_vulkan_reached(its, 5);
  mf_vulkan_timeline_release(its);
  OK(mf_tensor_fence(t, &fence, MF_WRITE, &spec_err));
  answer = VK_ERROR_OUT_OF_HOST_MEMORY;
  SAYS(MF_EINVAL, "its wait answered -2", mf_tensor_fence_wait(t, MF_READ, 0, &done, &spec_err));
  answer = VK_ERROR_DEVICE_LOST;
  OK(mf_tensor_fence_wait(t, MF_READ, INT64_MAX, &done, &spec_err));
  assert_int_equal(done, 1);
  mf_vulkan_release(lost);
  mf_tensor_release(t);
}

/* What a driver refuses has moved no ownership. */
static void a_driver_refuses(void **state) {
  (void)state;
  const mf_vulkan_device of = described();
  mf_vulkan_import_of imported;
  mf_vulkan *other;
  mf_tensor *t, *pages = of_pages(PAGE);
  int64_t count = NBYTES;
  const DLTensor like = bytes_of(&count);
  const mf_vulkan_memory memory = {vk_allocate(&d, NBYTES, 0), NBYTES, vk_type(&d)};
  failing = "vkMapMemory";
  answer = VK_ERROR_MEMORY_MAP_FAILED;
  OK(mf_vulkan_open(&of, &other, &spec_err));
  assert_int_equal(mf_vulkan_wrap(other, &memory, &like, &t, &spec_err), MF_EDRIVER);
  assert_int_equal(spec_err.driver_code, VK_ERROR_MEMORY_MAP_FAILED);
  assert_string_equal(spec_err.call, "vkMapMemory");
  assert_null(t);
  mf_vulkan_release(other);
  failing = "vkAllocateMemory";
  answer = VK_ERROR_OUT_OF_DEVICE_MEMORY;
  OK(mf_vulkan_open(&of, &other, &spec_err));
  assert_int_equal(mf_vulkan_import(other, pages, 0, &imported, &spec_err), MF_ENOMEM);
  assert_string_equal(spec_err.call, "vkAllocateMemory");
  assert_null(imported.tensor);
  assert_int_equal(other->refs, 1);
  mf_vulkan_release(other);
  failing = NULL;
  vkFreeMemory(d.device, memory.memory, NULL);
  mf_tensor_release(pages);
}

/* Whoever was refused still owns the memory, which is not mapped then. */
static int wrap_and_release(void *ctx, mf_error *err) {
  int64_t count = NBYTES;
  const DLTensor like = bytes_of(&count);
  const mf_vulkan_memory memory = {vk_allocate(&d, NBYTES, 0), NBYTES, vk_type(&d)};
  mf_tensor *t;
  (void)ctx;
  void *at;
  const int rc = mf_vulkan_wrap(vk, &memory, &like, &t, err);
  if (rc != MF_OK) {
    VK(vkMapMemory(d.device, memory.memory, 0, VK_WHOLE_SIZE, 0, &at)); /* the layers complain of a second one */
    vkFreeMemory(d.device, memory.memory, NULL);
  }
  mf_tensor_release(t);
  return rc;
}

static void no_memory(void **state) {
  (void)state;
  assert_true(spec_each_failure(wrap_and_release, NULL) > 0);
  assert_int_equal(vk->memories, 0);
}

static void missing_functions(void **state) {
  (void)state;
  const char *needed[] = {"vkGetDeviceProcAddr", "vkAllocateMemory", "vkFreeMemory", "vkMapMemory", "vkUnmapMemory",
                          "vkWaitForFences", "vkDestroyFence", "vkGetPhysicalDeviceMemoryProperties"};
  mf_vulkan_device of = described();
  mf_vulkan *other;
  mf_vulkan_timeline *its;
  for (size_t i = 0; i < COUNT(needed); i++) {
    hidden = needed[i];
    SAYS(MF_EDEVICE, needed[i], mf_vulkan_open(&of, &other, &spec_err));
    assert_null(other);
  }
  hidden = NULL;
  OK(mf_vulkan_open(&of, &other, &spec_err));
  other->wait_semaphores = NULL;
  SAYS(MF_EDEVICE, "no timeline semaphores", mf_vulkan_timeline_open(other, semaphore, &its, &spec_err));
  mf_vulkan_release(other);
  of.device = NULL;
  SAYS(MF_EINVAL, "one is NULL", mf_vulkan_open(&of, &other, &spec_err));
}

static void imports_are_whole_pages(void **state) {
  (void)state;
  mf_ledger now;
  mf_tensor *pages = of_pages(2 * PAGE), *part, *turned, *fixed;
  mf_vulkan_import_of imported;
  DLTensor view = *mf_tensor_dltensor(pages);
  const mf_index from_one = {.kind = MF_INDEX_SLICE, .start = 1, .stop = PAGE + 1, .step = 1};
  const mf_index second = {.kind = MF_INDEX_SLICE, .start = 0, .stop = 2 * PAGE, .step = 2};
  const mf_index most = {.kind = MF_INDEX_SLICE, .start = 0, .stop = PAGE + 100, .step = 1};
  OK(mf_tensor_index(pages, &from_one, 1, &part, &spec_err));
  SAYS(MF_EINVAL, "whole pages of 4096 bytes", mf_vulkan_import(vk, part, 0, &imported, &spec_err));
  mf_tensor_release(part);
  OK(mf_tensor_index(pages, &second, 1, &turned, &spec_err));
  SAYS(MF_EINVAL, "compact", mf_vulkan_import(vk, turned, 0, &imported, &spec_err));
  mf_tensor_release(turned);
  OK(mf_tensor_wrap(&view, DLPACK_FLAG_BITMASK_READ_ONLY, NULL, NULL, &fixed, &spec_err));
  SAYS(MF_EINVAL, "may be written", mf_vulkan_import(vk, fixed, 0, &imported, &spec_err));
  mf_tensor_release(fixed);
  OK(mf_tensor_index(pages, &most, 1, &part, &spec_err));
  SAYS(MF_EINVAL, "whole pages", mf_vulkan_import(vk, part, 0, &imported, &spec_err));
  SAYS(MF_EINVAL, "at least the tensor's", mf_vulkan_import(vk, part, PAGE, &imported, &spec_err));
  OK(mf_vulkan_import(vk, part, 2 * PAGE, &imported, &spec_err)); /* the rest of the page is the program's, too */
  mf_tensor_release(part);
  mf_ledger_read(&now);
  assert_int_equal(now.tensors, 2); /* the import has a reference of its own */
  mf_vulkan_unimport(vk, &imported);
  mf_tensor_release(pages);
}

static void wraps_fit_in_what_the_host_sees(void **state) {
  (void)state;
  int64_t count = NBYTES;
  DLTensor like = bytes_of(&count);
  mf_vulkan_memory memory = {vk_allocate(&d, NBYTES, 0), NBYTES, 77};
  mf_tensor *t;
  SAYS(MF_EINVAL, "type: 77", mf_vulkan_wrap(vk, &memory, &like, &t, &spec_err));
  memory.type = vk_type(&d);
  vk->memory.memoryTypes[memory.type].propertyFlags &= ~(VkMemoryPropertyFlags)VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  SAYS(MF_EINVAL, "HOST_COHERENT", mf_vulkan_wrap(vk, &memory, &like, &t, &spec_err));
  vk->memory.memoryTypes[memory.type].propertyFlags |= VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  like.byte_offset = 1;
  SAYS(MF_EINVAL, "do not fit in 65536", mf_vulkan_wrap(vk, &memory, &like, &t, &spec_err));
  count = INT64_MAX;
  FAILS(MF_EOVERFLOW, mf_vulkan_wrap(vk, &memory, &like, &t, &spec_err));
  count = -1;
  FAILS(MF_EINVAL, mf_vulkan_wrap(vk, &memory, &like, &t, &spec_err));
  count = 100;
  like.byte_offset = 256;
  OK(mf_vulkan_wrap(vk, &memory, &like, &t, &spec_err));
  mf_tensor_release(t);
}

/* Without the extension there is no import, and the rest is as it was. */
static void a_device_without_the_extension(void **state) {
  mf_vulkan_import_of imported;
  assert_int_equal(teardown(state), 0);
  assert_int_equal(spec_setup(state), 0);
  open_all(true);
  mf_tensor *pages = of_pages(PAGE);
  assert_int_equal(vk->import_alignment, 0);
  SAYS(MF_EDEVICE, "VK_EXT_external_memory_host", mf_vulkan_import(vk, pages, 0, &imported, &spec_err));
  mf_tensor_release(pages);
}

/* That the layers are there at all: a buffer may not have 0 bytes. */
static void the_layers_are_awake(void **state) {
  (void)state;
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT};
  VkBuffer buffer = VK_NULL_HANDLE;
  (void)vkCreateBuffer(d.device, &info, NULL, &buffer);
  assert_int_not_equal(vk_complaints(), 0);
  vkDestroyBuffer(d.device, buffer, NULL);
  vk_forget();
}

#define ON_VULKAN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      ON_VULKAN(the_layers_are_awake),
      ON_VULKAN(a_tensor_is_a_buffer),
      ON_VULKAN(a_buffer_is_a_tensor),
      ON_VULKAN(memory_outlives_the_queues_work),
      ON_VULKAN(a_ring_of_frames),
      ON_VULKAN(the_end_says_what_is_in_use),
      ON_VULKAN(what_fences_held_up_goes_with_the_end),
      ON_VULKAN(a_lost_device_holds_nobody_up),
      ON_VULKAN(a_driver_refuses),
      ON_VULKAN(no_memory),
      ON_VULKAN(missing_functions),
      ON_VULKAN(imports_are_whole_pages),
      ON_VULKAN(wraps_fit_in_what_the_host_sees),
      ON_VULKAN(a_device_without_the_extension),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
