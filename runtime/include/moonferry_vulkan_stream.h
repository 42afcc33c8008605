/* moonferry_vulkan_stream.h: a timeline semaphore of Vulkan's on the streams of a GPU: they wait for it and signal it.
 *
 *   mf_vulkan_share(vk, semaphore, device, &shared, &err);   // once; shared.semaphore, or shared.reason
 *   mf_vulkan_shared_wait(&shared, stream, 7, &err);         // then what is queued on stream
 *   mf_vulkan_shared_signal(&shared, stream, 8, &err);       // Vulkan's submission waits for 8
 *   mf_vulkan_unshare(&shared);
 *
 * Header only, C11 and C++, as moonferry_vulkan.h. Responsible for which route there is: Vulkan exports the semaphore
 * and the GPU's driver imports it; else the host waits, for the timeline and for the stream. Invariant: both routes
 * order the same things. Must not know: what is queued.
 *
 * Every function may be called on any thread. */
#ifndef MOONFERRY_VULKAN_STREAM_H
#define MOONFERRY_VULKAN_STREAM_H

#include "moonferry_vulkan.h"
#ifndef _WIN32
#include <unistd.h>
#endif

typedef struct mf_vulkan_shared {
  mf_semaphore *semaphore; /* for streams; NULL: the host waits */
  mf_vulkan_timeline *timeline;
  DLDevice device;
  mf_error reason; /* why there is no semaphore for streams; MF_OK where there is one */
} mf_vulkan_shared;

/* Whether timelines of this device can be exported; else says why not. */
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

/* The descriptor of the semaphore, which is the caller's. */
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

/* mf_vulkan_share(vk, semaphore, device, out, err): a timeline semaphore of the engine's for the streams of ${device}
 * (cuda:N or rocm:N). It is one for streams (out->semaphore) if it was made with VkExportSemaphoreCreateInfo for opaque
 * file descriptors and the GPU's driver takes it; else out->reason says why, and the host waits.
 * Owns: ${out} is the caller's until mf_vulkan_unshare. ${semaphore} must live until then, and until the streams are
 * done with it. Fails: MF_EINVAL, MF_EDEVICE for no such device of a GPU, or a Vulkan without timeline semaphores;
 * MF_ENOMEM. Standard: VK_KHR_external_semaphore_fd. */
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

/* mf_vulkan_shared_wait(shared, stream, value, err): what is queued on ${stream} from now on comes after Vulkan's queue
 * has brought the timeline to ${value}. Where there is no semaphore for streams, returns when it has.
 * Owns: nothing. Fails: as mf_semaphore_wait; MF_EDRIVER where Vulkan cannot wait. */
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

/* mf_vulkan_shared_signal(shared, stream, value, err): the timeline gets ${value} when all that ${stream} has queued
 * until now is done. Where there is no semaphore for streams, the host waits for ${stream}, and signals.
 * Owns: nothing. Fails: as mf_semaphore_signal, mf_stream_synchronize; MF_EDRIVER where Vulkan cannot signal. */
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

/* mf_vulkan_unshare(shared): gives it back; work that is queued with it goes on.
 * Fails: never; one that is empty is left as it is. */
static inline void mf_vulkan_unshare(mf_vulkan_shared *shared) {
  mf_semaphore_release(shared->semaphore);
  mf_vulkan_timeline_release(shared->timeline);
  memset(shared, 0, sizeof *shared);
}

#endif /* MOONFERRY_VULKAN_STREAM_H */
