/* device.c: see device.h. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (uint32_t)(sizeof(array) / sizeof((array)[0]))

static int complaints;
static char last[2000];

void vk_check(VkResult said, const char *call, const char *file, int line) {
  if (said == VK_SUCCESS) return;
  fprintf(stderr, "%s:%d: %s answered VkResult %d\n", file, line, call, (int)said);
  abort();
}

int vk_complaints(void) {
  return complaints;
}

const char *vk_complaint(void) {
  return last;
}

void vk_forget(void) {
  complaints = 0;
  last[0] = 0;
}

static VKAPI_ATTR VkBool32 VKAPI_CALL hear(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                           VkDebugUtilsMessageTypeFlagsEXT kinds,
                                           const VkDebugUtilsMessengerCallbackDataEXT *data, void *user) {
  (void)severity, (void)kinds, (void)user;
  complaints++;
  snprintf(last, sizeof last, "%s", data->pMessage);
  return VK_FALSE;
}

static void open_instance(vk_device *d) {
  const char *layers[] = {"VK_LAYER_KHRONOS_validation"};
  const char *extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME};
  const VkValidationFeatureEnableEXT more[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  const VkDebugUtilsMessengerCreateInfoEXT messenger = {
      .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      .messageSeverity =
          VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
      .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
      .pfnUserCallback = hear};
  const VkValidationFeaturesEXT features = {.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                            .pNext = &messenger,
                                            .enabledValidationFeatureCount = COUNT(more),
                                            .pEnabledValidationFeatures = more};
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
  const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                     .pNext = &features,
                                     .pApplicationInfo = &application,
                                     .enabledLayerCount = COUNT(layers),
                                     .ppEnabledLayerNames = layers,
                                     .enabledExtensionCount = COUNT(extensions),
                                     .ppEnabledExtensionNames = extensions};
  VK(vkCreateInstance(&info, NULL, &d->instance));
  const PFN_vkCreateDebugUtilsMessengerEXT create =
      (PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(d->instance, "vkCreateDebugUtilsMessengerEXT");
  VK(create(d->instance, &messenger, NULL, &d->messenger));
}

/* The device that runs on the CPU, which is Mesa's: the only one of which a spec knows what it can. */
static void choose_device(vk_device *d) {
  VkPhysicalDevice found[16];
  uint32_t n = COUNT(found);
  VK(vkEnumeratePhysicalDevices(d->instance, &n, found));
  for (uint32_t i = 0; i < n; i++) {
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(found[i], &properties);
    if (properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) d->physical = found[i];
  }
  if (d->physical == NULL) VK(VK_ERROR_INCOMPATIBLE_DRIVER);
}

void vk_open(vk_device *d, bool plain) {
  const char *extensions[] = {VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME};
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
  VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                               .timelineSemaphore = VK_TRUE};
  const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                   .pNext = &features,
                                   .queueCreateInfoCount = 1,
                                   .pQueueCreateInfos = &queue,
                                   .enabledExtensionCount = plain ? 0 : COUNT(extensions),
                                   .ppEnabledExtensionNames = extensions};
  memset(d, 0, sizeof *d);
  open_instance(d);
  choose_device(d);
  VK(vkCreateDevice(d->physical, &info, NULL, &d->device));
  vkGetDeviceQueue(d->device, 0, 0, &d->queue);
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  VK(vkCreateCommandPool(d->device, &pool, NULL, &d->pool));
}

void vk_close(vk_device *d) {
  const PFN_vkDestroyDebugUtilsMessengerEXT destroy =
      (PFN_vkDestroyDebugUtilsMessengerEXT)vkGetInstanceProcAddr(d->instance, "vkDestroyDebugUtilsMessengerEXT");
  VK(vkDeviceWaitIdle(d->device));
  vkDestroyCommandPool(d->device, d->pool, NULL);
  vkDestroyDevice(d->device, NULL);
  destroy(d->instance, d->messenger, NULL);
  vkDestroyInstance(d->instance, NULL);
}

uint32_t vk_type(const vk_device *d) {
  const VkMemoryPropertyFlags needed = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  VkPhysicalDeviceMemoryProperties memory;
  uint32_t i = 0;
  vkGetPhysicalDeviceMemoryProperties(d->physical, &memory);
  while ((memory.memoryTypes[i].propertyFlags & needed) != needed) i++;
  return i;
}

VkDeviceMemory vk_allocate(const vk_device *d, VkDeviceSize nbytes, VkExternalMemoryHandleTypeFlags exported) {
  const VkExportMemoryAllocateInfo as = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                         .handleTypes = exported};
  const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .pNext = exported ? &as : NULL,
                                     .allocationSize = nbytes,
                                     .memoryTypeIndex = vk_type(d)};
  VkDeviceMemory memory;
  VK(vkAllocateMemory(d->device, &info, NULL, &memory));
  return memory;
}

VkBuffer vk_buffer(const vk_device *d, VkDeviceMemory memory, VkDeviceSize nbytes,
                   VkExternalMemoryHandleTypeFlags external) {
  const VkExternalMemoryBufferCreateInfo as = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                               .handleTypes = external};
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .pNext = external ? &as : NULL,
                                   .size = nbytes,
                                   .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  VkMemoryRequirements needed;
  VkBuffer buffer;
  VK(vkCreateBuffer(d->device, &info, NULL, &buffer));
  vkGetBufferMemoryRequirements(d->device, buffer, &needed);
  VK(vkBindBufferMemory(d->device, buffer, memory, 0));
  return buffer;
}

VkSemaphore vk_timeline(const vk_device *d) {
  const VkSemaphoreTypeCreateInfo kind = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &kind};
  VkSemaphore timeline;
  VK(vkCreateSemaphore(d->device, &info, NULL, &timeline));
  return timeline;
}

void vk_signal(const vk_device *d, VkSemaphore timeline, uint64_t value) {
  const VkSemaphoreSignalInfo info = {
      .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = timeline, .value = value};
  VK(vkSignalSemaphore(d->device, &info));
}

static VkCommandBuffer record_copy(const vk_device *d, const vk_work *work) {
  const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = d->pool,
                                            .commandBufferCount = 1};
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  const VkMemoryBarrier to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
  const VkBufferCopy region = {work->offset, 0, work->nbytes};
  VkCommandBuffer commands;
  VK(vkAllocateCommandBuffers(d->device, &info, &commands));
  VK(vkBeginCommandBuffer(commands, &begin));
  vkCmdCopyBuffer(commands, work->source, work->target, 1, &region);
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, NULL, 0,
                       NULL);
  VK(vkEndCommandBuffer(commands));
  return commands;
}

void vk_submit(const vk_device *d, const vk_work *work) {
  const VkCommandBuffer commands = record_copy(d, work);
  const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_TRANSFER_BIT;
  const VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                .waitSemaphoreValueCount = work->from > 0,
                                                .pWaitSemaphoreValues = &work->from,
                                                .signalSemaphoreValueCount = work->to > 0,
                                                .pSignalSemaphoreValues = &work->to};
  const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .pNext = &values,
                             .waitSemaphoreCount = work->from > 0,
                             .pWaitSemaphores = &work->timeline,
                             .pWaitDstStageMask = &stage,
                             .commandBufferCount = 1,
                             .pCommandBuffers = &commands,
                             .signalSemaphoreCount = work->to > 0,
                             .pSignalSemaphores = &work->timeline};
  VK(vkQueueSubmit(d->queue, 1, &info, work->fence));
}
