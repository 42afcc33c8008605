/* shared.h: what the three files of the example share. */
#ifndef SHARED_H
#define SHARED_H

#define GL_GLEXT_PROTOTYPES
#define SDL_MAIN_HANDLED
#include <GL/gl.h>
#include <GL/glext.h>
#include <SDL.h>
#include <moonferry_vulkan.h>
#include <stdbool.h>
#include <vulkan/vulkan.h>

/* The memory: NumPy's quarter of a picture, then Vulkan's whole one, of RGBA bytes. */
enum { SIZE = 512, HALF = SIZE / 2, QUARTER = HALF * HALF * 4, WHOLE = SIZE * SIZE * 4, NBYTES = QUARTER + WHOLE };

_Noreturn void die(const char *what, const char *why);

/* mirror.c: Vulkan */

typedef struct vulkan {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkDevice device;
  VkQueue queue;
  VkCommandPool pool;
  VkCommandBuffer commands; /* the same in each frame */
  VkDeviceMemory memory, images_memory;
  VkBuffer buffer; /* over all of the memory */
  VkImage quarter, whole;
  VkSemaphore timeline;
  uint32_t type; /* of the memory */
} vulkan;

void open_vulkan(vulkan *v);
int export_memory(const vulkan *v); /* a file descriptor */
void mirror(const vulkan *v, uint64_t frame); /* brings the timeline to that */
void wait_idle(const vulkan *v);
void close_vulkan(vulkan *v);

/* draw.c: OpenGL */

typedef struct opengl {
  SDL_Window *window;
  SDL_GLContext context;
  GLuint program, memory, buffer, array, picture, target;
  mf_gl_calls calls;
} opengl;

void open_opengl(opengl *g, int memory, bool hidden);
void draw(const opengl *g);
void read_pixels(void *rgba);
bool wants_to_end(const opengl *g); /* and shows what was drawn */
double seconds(void);
void close_opengl(opengl *g);

#endif
