/* moonferry_vulkan.h: for engines that draw with Vulkan: tensors over Vulkan's memory, Vulkan's memory over tensors,
 * and its semaphores and fences as an mf_fence.
 *
 *   mf_vulkan_open(&device, &vk, &err);                       // once, with the engine's own vkGetInstanceProcAddr
 *   mf_vulkan_import(vk, t, 0, &imported, &err);              // a buffer may be bound to imported.memory
 *   mf_vulkan_wrap(vk, &memory, &like, &t, &err);             // t is a tensor over the engine's memory
 *   fence = mf_vulkan_reached(timeline, 8);                   // for mf_ring_end and mf_tensor_fence
 *   if (mf_vulkan_end(vk) == 0) vkDestroyDevice(...);
 *
 * Header only, C11 and C++: includes Vulkan's own headers, links with nothing but libmoonferry. Responsible for who
 * owns which VkDeviceMemory, and for telling when the device is done. Invariant: after mf_vulkan_end nobody waits in
 * Vulkan, and once that has returned 0, nothing of Vulkan is called. Must not know: what is drawn, on which queue, in
 * which layout.
 *
 * Every function may be called on any thread. A VkDeviceMemory counts as in use by the host as long as a tensor has it:
 * Vulkan asks the program to order vkFreeMemory, vkMapMemory and vkUnmapMemory of one memory (Vulkan 1.3, 3.6). */
#ifndef MOONFERRY_VULKAN_H
#define MOONFERRY_VULKAN_H

#include <moonferry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan_core.h>

/* The engine's own objects. */
typedef struct mf_vulkan_device {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkDevice device;
  PFN_vkGetInstanceProcAddr get_instance_proc_addr;
  const VkAllocationCallbacks *allocator; /* for memories that these functions allocate or free; may be NULL */
} mf_vulkan_device;

typedef struct mf_vulkan {
  mf_vulkan_device of;
  VkDeviceSize import_alignment; /* of host memory that mf_vulkan_import takes; 0: VK_EXT_external_memory_host is off */
  VkPhysicalDeviceMemoryProperties memory;
  PFN_vkAllocateMemory allocate;
  PFN_vkFreeMemory free;
  PFN_vkMapMemory map;
  PFN_vkUnmapMemory unmap;
  PFN_vkWaitForFences wait_fences;
  PFN_vkDestroyFence destroy_fence;
  PFN_vkWaitSemaphores wait_semaphores;                 /* NULL: no timeline semaphores */
  PFN_vkSignalSemaphore signal_semaphore;               /* the same */
  PFN_vkGetMemoryHostPointerPropertiesEXT host_pointer; /* NULL: no VK_EXT_external_memory_host */
  /* Only the atomic functions below use these three. */
  int32_t refs, memories, ended;
} mf_vulkan;

/* Memory of the engine, for mf_vulkan_wrap. */
typedef struct mf_vulkan_memory {
  VkDeviceMemory memory;
  VkDeviceSize nbytes; /* as it was allocated */
  uint32_t type;       /* memoryTypeIndex, as it was allocated */
} mf_vulkan_memory;

/* A tensor's memory as a Vulkan memory. */
typedef struct mf_vulkan_import_of {
  VkDeviceMemory memory;
  VkDeviceSize nbytes;
  uint32_t type; /* its memoryTypeIndex, which must be among a buffer's memoryTypeBits */
  mf_tensor *tensor;
} mf_vulkan_import_of;

static inline int32_t mf_vulkan__add(int32_t *count, int32_t by) {
  return __atomic_add_fetch(count, by, __ATOMIC_ACQ_REL);
}

static inline int mf_vulkan__fail(mf_error *err, int status, VkResult said, const char *call, const char *message) {
  if (err == NULL) return status;
  err->status = status;
  err->driver_code = said;
  err->call = call;
  snprintf(err->message, sizeof err->message, "%s", message);
  return status;
}

/* A failure of one of the library's functions below one of these. */
static inline int mf_vulkan__name(int rc, const char *call, mf_error *err) {
  if (rc != MF_OK && err != NULL) err->call = call;
  return rc;
}

static inline int mf_vulkan__refuse(mf_error *err, const char *call, VkResult said) {
  char text[80];
  snprintf(text, sizeof text, "it answered VkResult %d", (int)said);
  const int no_memory = said == VK_ERROR_OUT_OF_HOST_MEMORY || said == VK_ERROR_OUT_OF_DEVICE_MEMORY;
  return mf_vulkan__fail(err, no_memory ? MF_ENOMEM : MF_EDRIVER, said, call, text);
}

/* The functions of a device; NULL, or the name of one that is not there. */
static inline const char *mf_vulkan__load(mf_vulkan *vk) {
  const PFN_vkGetDeviceProcAddr at =
      (PFN_vkGetDeviceProcAddr)vk->of.get_instance_proc_addr(vk->of.instance, "vkGetDeviceProcAddr");
  if (at == NULL) return "vkGetDeviceProcAddr";
  const VkDevice d = vk->of.device;
  if ((vk->allocate = (PFN_vkAllocateMemory)at(d, "vkAllocateMemory")) == NULL) return "vkAllocateMemory";
  if ((vk->free = (PFN_vkFreeMemory)at(d, "vkFreeMemory")) == NULL) return "vkFreeMemory";
  if ((vk->map = (PFN_vkMapMemory)at(d, "vkMapMemory")) == NULL) return "vkMapMemory";
  if ((vk->unmap = (PFN_vkUnmapMemory)at(d, "vkUnmapMemory")) == NULL) return "vkUnmapMemory";
  if ((vk->wait_fences = (PFN_vkWaitForFences)at(d, "vkWaitForFences")) == NULL) return "vkWaitForFences";
  if ((vk->destroy_fence = (PFN_vkDestroyFence)at(d, "vkDestroyFence")) == NULL) return "vkDestroyFence";
  vk->wait_semaphores = (PFN_vkWaitSemaphores)at(d, "vkWaitSemaphores");
  if (vk->wait_semaphores == NULL) vk->wait_semaphores = (PFN_vkWaitSemaphores)at(d, "vkWaitSemaphoresKHR");
  vk->signal_semaphore = (PFN_vkSignalSemaphore)at(d, "vkSignalSemaphore");
  if (vk->signal_semaphore == NULL) vk->signal_semaphore = (PFN_vkSignalSemaphore)at(d, "vkSignalSemaphoreKHR");
  vk->host_pointer =
      (PFN_vkGetMemoryHostPointerPropertiesEXT)at(d, "vkGetMemoryHostPointerPropertiesEXT");
  return NULL;
}

/* What the physical device says of its memory. */
static inline const char *mf_vulkan__ask(mf_vulkan *vk) {
  const PFN_vkGetInstanceProcAddr at = vk->of.get_instance_proc_addr;
  const PFN_vkGetPhysicalDeviceMemoryProperties memory =
      (PFN_vkGetPhysicalDeviceMemoryProperties)at(vk->of.instance, "vkGetPhysicalDeviceMemoryProperties");
  PFN_vkGetPhysicalDeviceProperties2 properties =
      (PFN_vkGetPhysicalDeviceProperties2)at(vk->of.instance, "vkGetPhysicalDeviceProperties2");
  if (properties == NULL)
    properties = (PFN_vkGetPhysicalDeviceProperties2)at(vk->of.instance, "vkGetPhysicalDeviceProperties2KHR");
  if (memory == NULL) return "vkGetPhysicalDeviceMemoryProperties";
  memory(vk->of.physical, &vk->memory);
  if (properties == NULL) vk->host_pointer = NULL;
  if (vk->host_pointer == NULL) return NULL;
  VkPhysicalDeviceExternalMemoryHostPropertiesEXT host;
  VkPhysicalDeviceProperties2 all;
  memset(&host, 0, sizeof host);
  memset(&all, 0, sizeof all);
  host.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT;
  all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  all.pNext = &host;
  properties(vk->of.physical, &all);
  vk->import_alignment = host.minImportedHostPointerAlignment;
  return NULL;
}

/* mf_vulkan_open(device, out, err): makes an object for the engine's device, which the functions below need.
 * Owns: ${out} is the caller's reference. Fails: MF_EINVAL for a handle that is NULL, MF_EDEVICE if Vulkan lacks a
 * function, MF_ENOMEM. Standard: Vulkan 1.0. */
static inline int mf_vulkan_open(const mf_vulkan_device *device, mf_vulkan **out, mf_error *err) {
  *out = NULL;
  if (device->instance == NULL || device->physical == NULL || device->device == NULL ||
      device->get_instance_proc_addr == NULL)
    return mf_vulkan__fail(err, MF_EINVAL, VK_SUCCESS, "mf_vulkan_open",
                           "instance, physical, device and get_instance_proc_addr are expected, and one is NULL");
  mf_vulkan *vk = (mf_vulkan *)calloc(1, sizeof *vk);
  if (vk == NULL) return mf_vulkan__fail(err, MF_ENOMEM, VK_SUCCESS, "mf_vulkan_open", "no memory for a record");
  vk->of = *device;
  vk->refs = 1;
  const char *missing = mf_vulkan__load(vk);
  if (missing == NULL) missing = mf_vulkan__ask(vk);
  if (missing != NULL) {
    char text[120];
    snprintf(text, sizeof text, "Vulkan has no %s", missing);
    free(vk);
    return mf_vulkan__fail(err, MF_EDEVICE, VK_SUCCESS, "mf_vulkan_open", text);
  }
  *out = vk;
  return MF_OK;
}

/* mf_vulkan_release(vk): returns the reference. Memories and fences that are in use stay valid. NULL is allowed.
 * Fails: never. */
static inline void mf_vulkan_release(mf_vulkan *vk) {
  if (vk != NULL && mf_vulkan__add(&vk->refs, -1) == 0) free(vk);
}

/* mf_vulkan_end(vk): call this before vkDestroyDevice and after vkDeviceWaitIdle: all fences then count as done on
 * every thread, and memory that waited for them is released. Returns how many memories are still in use by imports and
 * by tensors of mf_vulkan_wrap: the device must live until a call returns 0.
 * Fails: never. Threads: none may be inside a fence's wait. */
static inline int32_t mf_vulkan_end(mf_vulkan *vk) {
  __atomic_store_n(&vk->ended, 1, __ATOMIC_RELEASE);
  mf_releases_run();
  return __atomic_load_n(&vk->memories, __ATOMIC_ACQUIRE);
}

static inline void mf_vulkan__use(mf_vulkan *vk) {
  mf_vulkan__add(&vk->refs, 1);
  mf_vulkan__add(&vk->memories, 1);
}

static inline void mf_vulkan__unuse(mf_vulkan *vk, VkDeviceMemory memory) {
  vk->free(vk->of.device, memory, vk->of.allocator);
  mf_vulkan__add(&vk->memories, -1);
  mf_vulkan_release(vk);
}

/* Tensors over Vulkan's memory. */

typedef struct mf_vulkan__owned {
  mf_vulkan *vk;
  VkDeviceMemory memory;
} mf_vulkan__owned;

static inline void mf_vulkan__free(void *ctx) {
  mf_vulkan__owned *owned = (mf_vulkan__owned *)ctx;
  mf_vulkan__unuse(owned->vk, owned->memory);
  free(owned);
}

/* Why memory of this type cannot be a tensor, or NULL. Without coherence each write would need a flush. */
static inline const char *mf_vulkan__why_not(const mf_vulkan *vk, uint32_t type) {
  const VkMemoryPropertyFlags needed = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  if (type >= vk->memory.memoryTypeCount) return "there is no memory type of this number";
  if ((vk->memory.memoryTypes[type].propertyFlags & needed) != needed)
    return "the memory type must be HOST_VISIBLE and HOST_COHERENT";
  return NULL;
}

static inline int mf_vulkan__wrap(mf_vulkan *vk, const mf_vulkan_memory *memory, const DLTensor *like,
                                  mf_vulkan__owned *owned, mf_tensor **out, mf_error *err) {
  DLTensor view = *like;
  void *at = NULL;
  const VkResult said = vk->map(vk->of.device, memory->memory, 0, VK_WHOLE_SIZE, 0, &at);
  if (said != VK_SUCCESS) return mf_vulkan__refuse(err, "vkMapMemory", said);
  view.data = at;
  int rc = mf_tensor_wrap(&view, 0, mf_vulkan__free, owned, out, err);
  if (rc != MF_OK) vk->unmap(vk->of.device, memory->memory);
  return mf_vulkan__name(rc, "mf_vulkan_wrap", err);
}

/* mf_vulkan_wrap(vk, memory, like, out, err): maps the whole of a memory of the engine and makes a compact tensor over
 * it, with ${like}'s dtype, ndim, shape and byte_offset; the other fields are not read. The tensor is host memory:
 * mf_tensor_fence tells it about a queue that still uses the memory.
 * Owns: on MF_OK ${out} owns the memory: it is freed, on any thread, when the last tensor and export over it are gone
 * and their fences are done. For memory that the engine has mapped itself and keeps, use mf_tensor_wrap. Fails:
 * MF_EINVAL for a type that is not host-visible and coherent, or a tensor that does not fit; as mf_tensor_wrap;
 * MF_EDRIVER, MF_ENOMEM. Standard: Vulkan 1.3, 11.2.11. */
static inline int mf_vulkan_wrap(mf_vulkan *vk, const mf_vulkan_memory *memory, const DLTensor *like, mf_tensor **out,
                                 mf_error *err) {
  char text[160];
  DLTensor view = *like;
  uint64_t count = 1;
  *out = NULL;
  const char *why = mf_vulkan__why_not(vk, memory->type);
  if (why != NULL) {
    snprintf(text, sizeof text, "type: %u: %s", (unsigned)memory->type, why);
    return mf_vulkan__fail(err, MF_EINVAL, VK_SUCCESS, "mf_vulkan_wrap", text);
  }
  view.strides = NULL;
  view.device.device_type = kDLCPU;
  view.device.device_id = 0;
  view.data = (void *)(uintptr_t)MF_ALIGNMENT; /* is not looked into: only the numbers are checked */
  int rc = mf_dltensor_check(&view, 0, err);
  if (rc != MF_OK) return mf_vulkan__name(rc, "mf_vulkan_wrap", err);
  for (int32_t i = 0; i < view.ndim; i++) count *= (uint64_t)view.shape[i];
  const uint64_t nbytes = (count * (uint64_t)mf_dtype_bits(&view.dtype, 0) + 7) / 8;
  if (view.byte_offset > memory->nbytes || nbytes > memory->nbytes - view.byte_offset) {
    snprintf(text, sizeof text, "nbytes: %llu bytes from %llu on do not fit in %llu bytes of memory",
             (unsigned long long)nbytes, (unsigned long long)view.byte_offset, (unsigned long long)memory->nbytes);
    return mf_vulkan__fail(err, MF_EINVAL, VK_SUCCESS, "mf_vulkan_wrap", text);
  }
  mf_vulkan__owned *owned = (mf_vulkan__owned *)malloc(sizeof *owned);
  if (owned == NULL) return mf_vulkan__fail(err, MF_ENOMEM, VK_SUCCESS, "mf_vulkan_wrap", "no memory for a record");
  owned->vk = vk;
  owned->memory = memory->memory;
  mf_vulkan__use(vk);
  rc = mf_vulkan__wrap(vk, memory, &view, owned, out, err);
  if (rc == MF_OK) return rc;
  mf_vulkan__add(&vk->memories, -1);
  mf_vulkan_release(vk);
  free(owned);
  return rc;
}

/* Vulkan's memory over tensors. */

/* Whether whole pages of ${t}'s memory can be imported; otherwise ${err} says why not. */
static inline int mf_vulkan__importable(const mf_vulkan *vk, const mf_tensor *t, VkDeviceSize nbytes, mf_error *err) {
  const DLTensor *view = mf_tensor_dltensor(t);
  char text[200];
  text[0] = 0;
  if (vk->host_pointer == NULL)
    return mf_vulkan__fail(err, MF_EDEVICE, VK_SUCCESS, "mf_vulkan_import",
                           "VK_EXT_external_memory_host is not enabled on this device");
  if (view->device.device_type != kDLCPU)
    snprintf(text, sizeof text, "device_type: %d: memory of the cpu (1) expected", (int)view->device.device_type);
  else if (!mf_tensor_is_contiguous(t) || (mf_tensor_flags(t) & DLPACK_FLAG_BITMASK_READ_ONLY))
    snprintf(text, sizeof text, "a compact tensor that may be written expected");
  else if ((uintptr_t)view->data % vk->import_alignment || nbytes % vk->import_alignment || nbytes == 0)
    snprintf(text, sizeof text, "%llu bytes at %p: whole pages of %llu bytes expected, beginning at one",
             (unsigned long long)nbytes, view->data, (unsigned long long)vk->import_alignment);
  else if (nbytes < (VkDeviceSize)mf_tensor_nbytes(t))
    snprintf(text, sizeof text, "nbytes: %llu: at least the tensor's %lld expected", (unsigned long long)nbytes,
             (long long)mf_tensor_nbytes(t));
  if (text[0] == 0) return MF_OK;
  return mf_vulkan__fail(err, MF_EINVAL, VK_SUCCESS, "mf_vulkan_import", text);
}

/* The first of these types that the host can use without flushes; memoryTypeCount if there is none. */
static inline uint32_t mf_vulkan__choose(const mf_vulkan *vk, uint32_t bits) {
  uint32_t type = 0;
  while (type < vk->memory.memoryTypeCount && (!(bits >> type & 1) || mf_vulkan__why_not(vk, type) != NULL)) type++;
  return type;
}

/* mf_vulkan_import(vk, t, nbytes, out, err): makes a Vulkan memory of the memory of ${t}, without a copy. It begins
 * where ${t} begins and has ${nbytes} (0: as many as ${t}); that may be more than ${t} has, if its memory is whole
 * pages and ${t} does not fill the last one. Make a buffer that is bound to it with VkExternalMemoryBufferCreateInfo
 * of VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT. After a submission that uses it, call
 * mf_tensor_fence(${t}, ...), so that users of the tensor wait for it.
 * Owns: ${out} has a reference to ${t}, until mf_vulkan_unimport. Fails: MF_EDEVICE without the extension; MF_EINVAL
 * if ${t} is not compact, writable host memory, or not whole pages of import_alignment bytes; MF_EDRIVER, MF_ENOMEM.
 * Standard: VK_EXT_external_memory_host. */
static inline int mf_vulkan_import(mf_vulkan *vk, mf_tensor *t, VkDeviceSize nbytes, mf_vulkan_import_of *out,
                                   mf_error *err) {
  memset(out, 0, sizeof *out);
  if (nbytes == 0) nbytes = (VkDeviceSize)mf_tensor_nbytes(t);
  const int rc = mf_vulkan__importable(vk, t, nbytes, err);
  if (rc != MF_OK) return rc;
  const VkExternalMemoryHandleTypeFlagBits kind = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  VkMemoryHostPointerPropertiesEXT can;
  VkImportMemoryHostPointerInfoEXT import;
  VkMemoryAllocateInfo info;
  memset(&can, 0, sizeof can);
  memset(&import, 0, sizeof import);
  memset(&info, 0, sizeof info);
  can.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT;
  import.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT;
  import.handleType = kind;
  import.pHostPointer = mf_tensor_dltensor(t)->data;
  VkResult said = vk->host_pointer(vk->of.device, kind, import.pHostPointer, &can);
  if (said != VK_SUCCESS) return mf_vulkan__refuse(err, "vkGetMemoryHostPointerPropertiesEXT", said);
  info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  info.pNext = &import;
  info.allocationSize = nbytes;
  info.memoryTypeIndex = mf_vulkan__choose(vk, can.memoryTypeBits);
  if (info.memoryTypeIndex == vk->memory.memoryTypeCount)
    return mf_vulkan__fail(err, MF_EDEVICE, VK_SUCCESS, "mf_vulkan_import",
                           "no coherent memory type takes this memory");
  said = vk->allocate(vk->of.device, &info, vk->of.allocator, &out->memory);
  if (said != VK_SUCCESS) {
    memset(out, 0, sizeof *out);
    return mf_vulkan__refuse(err, "vkAllocateMemory", said);
  }
  mf_vulkan__use(vk);
  out->nbytes = nbytes;
  out->type = info.memoryTypeIndex;
  out->tensor = mf_tensor_retain(t);
  return MF_OK;
}

/* mf_vulkan_unimport(vk, imported): frees the Vulkan memory, which no queue may use any more, and returns the
 * reference to the tensor. An empty ${imported} is left as it is.
 * Fails: never. */
static inline void mf_vulkan_unimport(mf_vulkan *vk, mf_vulkan_import_of *imported) {
  if (imported->tensor == NULL) return;
  mf_tensor *t = imported->tensor;
  mf_vulkan__unuse(vk, imported->memory);
  memset(imported, 0, sizeof *imported);
  mf_tensor_release(t);
}

/* Semaphores and fences. */

typedef struct mf_vulkan_timeline {
  mf_vulkan *vk;
  VkSemaphore semaphore;
  int32_t refs;
} mf_vulkan_timeline;

/* mf_vulkan_timeline_open(vk, semaphore, out, err): makes an object for one of the engine's timeline semaphores, for
 * mf_vulkan_reached.
 * Owns: ${out} is the caller's reference. ${semaphore} must live until its fences are done, or until mf_vulkan_end.
 * Fails: MF_EDEVICE if the device has no timeline semaphores, MF_ENOMEM. Standard: VK_KHR_timeline_semaphore. */
static inline int mf_vulkan_timeline_open(mf_vulkan *vk, VkSemaphore semaphore, mf_vulkan_timeline **out,
                                          mf_error *err) {
  *out = NULL;
  if (vk->wait_semaphores == NULL)
    return mf_vulkan__fail(err, MF_EDEVICE, VK_SUCCESS, "mf_vulkan_timeline_open",
                           "this device has no timeline semaphores; mf_vulkan_fence takes a VkFence");
  mf_vulkan_timeline *timeline = (mf_vulkan_timeline *)calloc(1, sizeof *timeline);
  if (timeline == NULL)
    return mf_vulkan__fail(err, MF_ENOMEM, VK_SUCCESS, "mf_vulkan_timeline_open", "no memory for a record");
  timeline->vk = vk;
  timeline->semaphore = semaphore;
  timeline->refs = 1;
  mf_vulkan__add(&vk->refs, 1);
  *out = timeline;
  return MF_OK;
}

/* mf_vulkan_timeline_release(timeline): returns the reference. Fences stay valid. NULL is allowed. Fails: never. */
static inline void mf_vulkan_timeline_release(mf_vulkan_timeline *timeline) {
  if (timeline == NULL || mf_vulkan__add(&timeline->refs, -1) != 0) return;
  mf_vulkan_release(timeline->vk);
  free(timeline);
}

/* A lost device does no more work (Vulkan 1.3, 4.2.3), so nothing has to wait for it. */
static inline int32_t mf_vulkan__said(VkResult said) {
  if (said == VK_SUCCESS || said == VK_ERROR_DEVICE_LOST) return 0;
  return said == VK_TIMEOUT ? 1 : -2;
}

static inline int32_t mf_vulkan__timeline_wait(void *ctx, uint64_t value, int64_t ns) {
  mf_vulkan_timeline *timeline = (mf_vulkan_timeline *)ctx;
  VkSemaphoreWaitInfo info;
  if (__atomic_load_n(&timeline->vk->ended, __ATOMIC_ACQUIRE)) return 0;
  memset(&info, 0, sizeof info);
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline->semaphore;
  info.pValues = &value;
  return mf_vulkan__said(timeline->vk->wait_semaphores(timeline->vk->of.device, &info, (uint64_t)ns));
}

static inline void mf_vulkan__timeline_drop(void *ctx, uint64_t value) {
  (void)value;
  mf_vulkan_timeline_release((mf_vulkan_timeline *)ctx);
}

/* mf_vulkan_reached(timeline, value): returns a fence that is done when the semaphore has ${value} or more, for
 * mf_ring_end, mf_ring_fence or mf_tensor_fence. Every thread can wait for it.
 * Owns: the caller's, until one of those functions takes it or the caller calls its drop. Fails: never. */
static inline mf_fence mf_vulkan_reached(mf_vulkan_timeline *timeline, uint64_t value) {
  mf_fence fence;
  mf_vulkan__add(&timeline->refs, 1);
  fence.ctx = timeline;
  fence.value = value;
  fence.wait = mf_vulkan__timeline_wait;
  fence.drop = mf_vulkan__timeline_drop;
  return fence;
}

/* VkFence is a pointer where pointers have 64 bits, else a number. */
static inline VkFence mf_vulkan__fence_of(uint64_t value) {
  VkFence fence;
  memcpy(&fence, &value, sizeof fence);
  return fence;
}

static inline int32_t mf_vulkan__fence_wait(void *ctx, uint64_t value, int64_t ns) {
  mf_vulkan *vk = (mf_vulkan *)ctx;
  const VkFence fence = mf_vulkan__fence_of(value);
  if (__atomic_load_n(&vk->ended, __ATOMIC_ACQUIRE)) return 0;
  return mf_vulkan__said(vk->wait_fences(vk->of.device, 1, &fence, VK_TRUE, (uint64_t)ns));
}

static inline void mf_vulkan__fence_drop(void *ctx, uint64_t value) {
  mf_vulkan *vk = (mf_vulkan *)ctx;
  vk->destroy_fence(vk->of.device, mf_vulkan__fence_of(value), vk->of.allocator);
  mf_vulkan__add(&vk->memories, -1);
  mf_vulkan_release(vk);
}

/* mf_vulkan_fence(vk, fence): as mf_vulkan_reached, for a VkFence that a submission signals, on devices without
 * timeline semaphores.
 * Owns: ${fence}, which must not be reset, is destroyed when it is done, and mf_vulkan_end counts it until then; the
 * mf_fence is the caller's as in mf_vulkan_reached. Fails: never. */
static inline mf_fence mf_vulkan_fence(mf_vulkan *vk, VkFence fence) {
  mf_fence made;
  mf_vulkan__use(vk);
  made.ctx = vk;
  made.value = 0;
  memcpy(&made.value, &fence, sizeof fence);
  made.wait = mf_vulkan__fence_wait;
  made.drop = mf_vulkan__fence_drop;
  return made;
}

#endif /* MOONFERRY_VULKAN_H */
