/* moonferry_vulkan_stream.h: lets the streams of a GPU wait for a Vulkan timeline semaphore, and signal it.
 *
 *   mf_vulkan_share(vk, semaphore, device, &shared, &err);   // once; shared.semaphore, or shared.reason
 *   mf_vulkan_shared_wait(&shared, stream, 7, &err);         // then queue work on stream
 *   mf_vulkan_shared_signal(&shared, stream, 8, &err);       // Vulkan's submission waits for 8
 *   mf_vulkan_unshare(&shared);
 *
 * Header only, C11 and C++, as moonferry_vulkan.h. Responsible for the choice of a route: if Vulkan can export the
 * semaphore and the GPU's driver can import it, the streams use it; otherwise the host waits for the timeline and for
 * the stream. Invariant: both routes order the same work. Must not know: what is queued.
 *
 * Every function may be called on any thread. */
#ifndef MOONFERRY_VULKAN_STREAM_H
#define MOONFERRY_VULKAN_STREAM_H

#include "moonferry_vulkan.h"
#ifndef _WIN32
#include <unistd.h>
#endif

typedef struct mf_vulkan_shared {
  mf_semaphore *semaphore; /* for streams; NULL: the host waits instead */
  mf_vulkan_timeline *timeline;
  DLDevice device;
  mf_error reason; /* why there is no semaphore for streams; MF_OK if there is one */
} mf_vulkan_shared;

/* Whether timelines of this device can be exported; otherwise ${err} says why not. */
static inline int mf_vulkan__exportable(const mf_vulkan *vk, mf_error *err) {
  const PFN_vkGetInstanceProcAddr at = vk->of.get_instance_proc_addr;
  VkSemaphoreTypeCreateInfo type;
  VkPhysicalDeviceExternalSemaphoreInfo info;
  VkExternalSemaphoreProperties said;
  PFN_vkGetPhysicalDeviceExternalSemaphoreProperties ask =
      (PFN_vkGetPhysicalDeviceExternalSemaphoreProperties)at(vk->of.instance,
                                                             "vkGetPhysicalDeviceExternalSemaphoreProperties");
  if (ask == NULL)
    ask = (PFN_vkGetPhysicalDeviceExternalSemaphoreProperties)at(vk->of.instance,
                                                                 "vkGetPhysicalDeviceExternalSemaphorePropertiesKHR");
  memset(&type, 0, sizeof type);
  memset(&info, 0, sizeof info);
  memset(&said, 0, sizeof said);
  type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  info.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO;
  info.pNext = &type;
  info.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
  said.sType = VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES;
  if (ask != NULL) ask(vk->of.physical, &info, &said);
  if ((said.externalSemaphoreFeatures & VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT) != 0) return MF_OK;
  return mf_vulkan__fail(err, MF_EDEVICE, VK_SUCCESS, "vkGetPhysicalDeviceExternalSemaphoreProperties",
                         "this device exports no timeline semaphores as file descriptors");
}

/* The file descriptor of the semaphore, which the caller owns. */
static inline int mf_vulkan__export(const mf_vulkan *vk, VkSemaphore semaphore, int *fd, mf_error *err) {
  const PFN_vkGetDeviceProcAddr at =
      (PFN_vkGetDeviceProcAddr)vk->of.get_instance_proc_addr(vk->of.instance, "vkGetDeviceProcAddr");
  const PFN_vkGetSemaphoreFdKHR get =
      at == NULL ? NULL : (PFN_vkGetSemaphoreFdKHR)at(vk->of.device, "vkGetSemaphoreFdKHR");
  VkSemaphoreGetFdInfoKHR info;
  if (get == NULL)
    return mf_vulkan__fail(err, MF_EDEVICE, VK_SUCCESS, "vkGetSemaphoreFdKHR",
                           "the device was made without VK_KHR_external_semaphore_fd");
  memset(&info, 0, sizeof info);
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR;
  info.semaphore = semaphore;
  info.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
  const VkResult said = get(vk->of.device, &info, fd);
  return said == VK_SUCCESS ? MF_OK : mf_vulkan__refuse(err, "vkGetSemaphoreFdKHR", said);
}

static inline void mf_vulkan__route(mf_vulkan_shared *shared, VkSemaphore semaphore) {
  const mf_vulkan *vk = shared->timeline->vk;
  int fd = -1;
  int rc = mf_vulkan__exportable(vk, &shared->reason);
  if (rc == MF_OK) rc = mf_vulkan__export(vk, semaphore, &fd, &shared->reason);
  if (rc != MF_OK) return;
  rc = mf_semaphore_from_fd(&shared->device, fd, 0, &shared->semaphore, &shared->reason);
#ifndef _WIN32
  if (rc != MF_OK) close(fd); /* the library did not take it */
#endif
}

/* mf_vulkan_share(vk, semaphore, device, out, err): makes one of the engine's timeline semaphores usable on streams of
 * ${device} (cuda:N or rocm:N). Streams wait for it and signal it themselves (out->semaphore) if it was made with
 * VkExportSemaphoreCreateInfo for opaque file descriptors and the GPU's driver can import it. Otherwise out->reason
 * says why not, and the host waits instead.
 * Owns: ${out} is the caller's until mf_vulkan_unshare. ${semaphore} must live until then, and until the streams are
 * done with it. Fails: MF_EINVAL; MF_EDEVICE for no such GPU, or a Vulkan without timeline semaphores; MF_ENOMEM.
 * Standard: VK_KHR_external_semaphore_fd. */
static inline int mf_vulkan_share(mf_vulkan *vk, VkSemaphore semaphore, const DLDevice *device, mf_vulkan_shared *out,
                                  mf_error *err) {
  memset(out, 0, sizeof *out);
  int rc = mf_stream_check(device, MF_STREAM_DEFAULT, err);
  if (rc == MF_OK) rc = mf_vulkan_timeline_open(vk, semaphore, &out->timeline, err);
  if (rc != MF_OK) return mf_vulkan__name(rc, "mf_vulkan_share", err);
  out->device = *device;
  mf_vulkan__route(out, semaphore);
  return MF_OK;
}

/* mf_vulkan_shared_wait(shared, stream, value, err): makes work that is queued on ${stream} from now on wait until
 * Vulkan's queue has brought the timeline to ${value}. Without a semaphore for streams the call itself waits for that.
 * Owns: nothing. Fails: as mf_semaphore_wait; MF_EDRIVER if Vulkan cannot wait. */
static inline int mf_vulkan_shared_wait(const mf_vulkan_shared *shared, mf_stream stream, uint64_t value,
                                        mf_error *err) {
  int32_t said = 1;
  if (shared->semaphore != NULL) return mf_semaphore_wait(shared->semaphore, stream, value, err);
  const int rc = mf_stream_check(&shared->device, stream, err);
  if (rc != MF_OK) return mf_vulkan__name(rc, "mf_vulkan_shared_wait", err);
  while (said > 0) said = mf_vulkan__timeline_wait(shared->timeline, value, INT64_MAX);
  return said == 0 ? MF_OK
                   : mf_vulkan__fail(err, MF_EDRIVER, VK_SUCCESS, "vkWaitSemaphores", "Vulkan cannot wait for it");
}

/* mf_vulkan_shared_signal(shared, stream, value, err): sets the timeline to ${value} when all work that was queued on
 * ${stream} until now is done. Without a semaphore for streams the host waits for ${stream} and then signals.
 * Owns: nothing. Fails: as mf_semaphore_signal, mf_stream_synchronize; MF_EDRIVER if Vulkan cannot signal. */
static inline int mf_vulkan_shared_signal(const mf_vulkan_shared *shared, mf_stream stream, uint64_t value,
                                          mf_error *err) {
  const mf_vulkan *vk = shared->timeline->vk;
  VkSemaphoreSignalInfo info;
  if (shared->semaphore != NULL) return mf_semaphore_signal(shared->semaphore, stream, value, err);
  const int rc = mf_stream_synchronize(&shared->device, stream, err);
  if (rc != MF_OK) return mf_vulkan__name(rc, "mf_vulkan_shared_signal", err);
  if (vk->signal_semaphore == NULL)
    return mf_vulkan__fail(err, MF_EDEVICE, VK_SUCCESS, "mf_vulkan_shared_signal", "Vulkan has no vkSignalSemaphore");
  memset(&info, 0, sizeof info);
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO;
  info.semaphore = shared->timeline->semaphore;
  info.value = value;
  const VkResult said = vk->signal_semaphore(vk->of.device, &info);
  return said == VK_SUCCESS ? MF_OK : mf_vulkan__refuse(err, "vkSignalSemaphore", said);
}

/* mf_vulkan_unshare(shared): releases the semaphore; work that is queued with it goes on. An empty ${shared} is left
 * as it is.
 * Fails: never. */
static inline void mf_vulkan_unshare(mf_vulkan_shared *shared) {
  mf_semaphore_release(shared->semaphore);
  mf_vulkan_timeline_release(shared->timeline);
  memset(shared, 0, sizeof *shared);
}

#endif /* MOONFERRY_VULKAN_STREAM_H */
