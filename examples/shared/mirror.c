/* mirror.c: Vulkan's part: it allocates the memory, and mirrors a quarter of a picture into a whole one. */
#include "shared.h"

#include <stdio.h>

static void check(VkResult said, const char *what) {
  char text[40];
  snprintf(text, sizeof text, "VkResult %d", (int)said);
  if (said != VK_SUCCESS) die(what, text);
}

#define VK(call) check((call), #call)

static void open_device(vulkan *v) {
  const char *extensions[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME};
  const float priority = 1;
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
  const VkInstanceCreateInfo instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                         .pApplicationInfo = &application};
  const VkDeviceQueueCreateInfo queue = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
  VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                               .timelineSemaphore = VK_TRUE};
  const VkDeviceCreateInfo device = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &features,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = 1,
                                     .ppEnabledExtensionNames = extensions};
  uint32_t one = 1;
  VK(vkCreateInstance(&instance, NULL, &v->instance));
  const VkResult found = vkEnumeratePhysicalDevices(v->instance, &one, &v->physical);
  if (one == 0 || (found != VK_SUCCESS && found != VK_INCOMPLETE)) die("Vulkan", "there is no device");
  VK(vkCreateDevice(v->physical, &device, NULL, &v->device));
  vkGetDeviceQueue(v->device, 0, 0, &v->queue);
}

static uint32_t choose_type(const vulkan *v, uint32_t bits, VkMemoryPropertyFlags wanted) {
  VkPhysicalDeviceMemoryProperties all;
  vkGetPhysicalDeviceMemoryProperties(v->physical, &all);
  for (uint32_t i = 0; i < all.memoryTypeCount; i++)
    if ((bits >> i & 1) && (all.memoryTypes[i].propertyFlags & wanted) == wanted) return i;
  die("Vulkan", "there is no memory of the type that is wanted");
}

/* Visible to the host, and to be exported. */
static void make_memory(vulkan *v) {
  const VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                     .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  const VkBufferCreateInfo buffer = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .pNext = &external,
                                     .size = NBYTES,
                                     .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  const VkExportMemoryAllocateInfo as = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                         .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  VkMemoryAllocateInfo info = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &as, .allocationSize = NBYTES + 4096};
  VkMemoryRequirements needed;
  VK(vkCreateBuffer(v->device, &buffer, NULL, &v->buffer));
  vkGetBufferMemoryRequirements(v->device, v->buffer, &needed);
  v->type = info.memoryTypeIndex =
      choose_type(v, needed.memoryTypeBits, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
  VK(vkAllocateMemory(v->device, &info, NULL, &v->memory));
  VK(vkBindBufferMemory(v->device, v->buffer, v->memory, 0));
}

int export_memory(const vulkan *v) {
  const PFN_vkGetMemoryFdKHR get = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr(v->device, "vkGetMemoryFdKHR");
  const VkMemoryGetFdInfoKHR info = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                     .memory = v->memory,
                                     .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
  int fd = -1;
  VK(get(v->device, &info, &fd));
  return fd;
}

static VkImage new_image(const vulkan *v, uint32_t size) {
  const VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                                  .imageType = VK_IMAGE_TYPE_2D,
                                  .format = VK_FORMAT_R8G8B8A8_UNORM,
                                  .extent = {size, size, 1},
                                  .mipLevels = 1,
                                  .arrayLayers = 1,
                                  .samples = VK_SAMPLE_COUNT_1_BIT,
                                  .usage = VK_IMAGE_USAGE_TRANSFER_SRC_BIT | VK_IMAGE_USAGE_TRANSFER_DST_BIT};
  VkImage image;
  VK(vkCreateImage(v->device, &info, NULL, &image));
  return image;
}

static void make_images(vulkan *v) {
  VkMemoryRequirements of_quarter, of_whole;
  v->quarter = new_image(v, HALF);
  v->whole = new_image(v, SIZE);
  vkGetImageMemoryRequirements(v->device, v->quarter, &of_quarter);
  vkGetImageMemoryRequirements(v->device, v->whole, &of_whole);
  const VkDeviceSize after =
      (of_quarter.size + of_whole.alignment - 1) / of_whole.alignment * of_whole.alignment;
  const VkMemoryAllocateInfo info = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
      .allocationSize = after + of_whole.size,
      .memoryTypeIndex = choose_type(v, of_quarter.memoryTypeBits & of_whole.memoryTypeBits, 0)};
  VK(vkAllocateMemory(v->device, &info, NULL, &v->images_memory));
  VK(vkBindImageMemory(v->device, v->quarter, v->images_memory, 0));
  VK(vkBindImageMemory(v->device, v->whole, v->images_memory, after));
}

static void become(VkCommandBuffer c, VkImage image, VkImageLayout from, VkImageLayout to) {
  const VkImageMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
                                        .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                                        .oldLayout = from,
                                        .newLayout = to,
                                        .image = image,
                                        .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
  vkCmdPipelineBarrier(c, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 0, NULL, 0, NULL, 1,
                       &barrier);
}

static VkBufferImageCopy rows(VkDeviceSize offset, uint32_t size) {
  return (VkBufferImageCopy){.bufferOffset = offset,
                             .imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                             .imageExtent = {size, size, 1}};
}

/* One quarter of the whole, with both axes as they are or turned round. */
static VkImageBlit quarter_at(int right, int up) {
  const VkImageSubresourceLayers layers = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1};
  const VkOffset3D first = {right ? SIZE : 0, up ? SIZE : 0, 0}, last = {HALF, HALF, 1};
  return (VkImageBlit){.srcSubresource = layers,
                       .srcOffsets = {{0, 0, 0}, {HALF, HALF, 1}},
                       .dstSubresource = layers,
                       .dstOffsets = {first, last}};
}

static void record(vulkan *v) {
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  VK(vkCreateCommandPool(v->device, &pool, NULL, &v->pool));
  const VkCommandBufferAllocateInfo info = {
      .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = v->pool, .commandBufferCount = 1};
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  const VkMemoryBarrier to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT};
  const VkImageLayout none = VK_IMAGE_LAYOUT_UNDEFINED, in = VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL,
                      out = VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL;
  const VkBufferImageCopy painted = rows(0, HALF), mirrored = rows(QUARTER, SIZE);
  const VkImageBlit quarters[] = {quarter_at(0, 0), quarter_at(1, 0), quarter_at(0, 1), quarter_at(1, 1)};
  VK(vkAllocateCommandBuffers(v->device, &info, &v->commands));
  VK(vkBeginCommandBuffer(v->commands, &begin));
  become(v->commands, v->quarter, none, in);
  become(v->commands, v->whole, none, in);
  vkCmdCopyBufferToImage(v->commands, v->buffer, v->quarter, in, 1, &painted);
  become(v->commands, v->quarter, in, out);
  vkCmdBlitImage(v->commands, v->quarter, out, v->whole, in, 4, quarters, VK_FILTER_NEAREST);
  become(v->commands, v->whole, in, out);
  vkCmdCopyImageToBuffer(v->commands, v->whole, out, v->buffer, 1, &mirrored);
  vkCmdPipelineBarrier(v->commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, NULL,
                       0, NULL);
  VK(vkEndCommandBuffer(v->commands));
}

void open_vulkan(vulkan *v) {
  const VkSemaphoreTypeCreateInfo kind = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                          .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &kind};
  open_device(v);
  make_memory(v);
  make_images(v);
  VK(vkCreateSemaphore(v->device, &info, NULL, &v->timeline));
  record(v);
}

void mirror(const vulkan *v, uint64_t frame) {
  const VkTimelineSemaphoreSubmitInfo values = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                .signalSemaphoreValueCount = 1,
                                                .pSignalSemaphoreValues = &frame};
  const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .pNext = &values,
                             .commandBufferCount = 1,
                             .pCommandBuffers = &v->commands,
                             .signalSemaphoreCount = 1,
                             .pSignalSemaphores = &v->timeline};
  VK(vkQueueSubmit(v->queue, 1, &info, VK_NULL_HANDLE));
}

void wait_idle(const vulkan *v) {
  VK(vkDeviceWaitIdle(v->device));
}

/* The memory is the tensor's, and was freed with it. */
void close_vulkan(vulkan *v) {
  vkDestroySemaphore(v->device, v->timeline, NULL);
  vkDestroyCommandPool(v->device, v->pool, NULL);
  vkDestroyBuffer(v->device, v->buffer, NULL);
  vkDestroyImage(v->device, v->quarter, NULL);
  vkDestroyImage(v->device, v->whole, NULL);
  vkFreeMemory(v->device, v->images_memory, NULL);
  vkDestroyDevice(v->device, NULL);
  vkDestroyInstance(v->instance, NULL);
}
