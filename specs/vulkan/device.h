/* device.h: a Vulkan device for specs, with validation layers that complain to us, and the few commands that they
 * queue.
 *
 * Any failing call ends the program with the line. Must not know: Moonferry. */
#ifndef SPEC_VULKAN_DEVICE_H
#define SPEC_VULKAN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <vulkan/vulkan.h>

#define VK(call) vk_check((call), #call, __FILE__, __LINE__)

void vk_check(VkResult said, const char *call, const char *file, int line);

typedef struct vk_device {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkDevice device;
  VkQueue queue;
  VkCommandPool pool;
  VkDebugUtilsMessengerEXT messenger;
} vk_device;

/* How often the validation layers have warned since the last vk_forget, and what they said last. */
int vk_complaints(void);
const char *vk_complaint(void);
void vk_forget(void);

/* A device with timeline semaphores and, unless `plain`, external memory of the host and as file descriptors. */
void vk_open(vk_device *d, bool plain);
void vk_close(vk_device *d);

/* The first memory type that the host sees without flushes. */
uint32_t vk_type(const vk_device *d);
VkDeviceMemory vk_allocate(const vk_device *d, VkDeviceSize nbytes, VkExternalMemoryHandleTypeFlags exported);
/* A buffer over memory; `external` is how that memory came or goes, or 0. */
VkBuffer vk_buffer(const vk_device *d, VkDeviceMemory memory, VkDeviceSize nbytes,
                   VkExternalMemoryHandleTypeFlags external);
VkSemaphore vk_timeline(const vk_device *d);
void vk_signal(const vk_device *d, VkSemaphore timeline, uint64_t value);

/* Queued work: a copy between two buffers. It begins when the timeline has `from` (0: at once) and brings it to `to`
 * (0: signals `fence` alone). The commands live until vk_close. */
typedef struct vk_work {
  VkBuffer source, target;
  VkDeviceSize offset, nbytes; /* of source; the target's begin is written */
  VkSemaphore timeline;
  uint64_t from, to;
  VkFence fence;
} vk_work;

void vk_submit(const vk_device *d, const vk_work *work);

#endif
