/* gl_image.c: the textures of the OpenGL that the program has brought along: their pixels.
 *
 * Invariant: what is bound, and the pixel store, are as they were afterwards. It must not know what the pixels are
 * for. */
#include "calls.h"

enum {
  TEXTURE_2D = 0x0DE1,
  TEXTURE_2D_BINDING = 0x8069,
  RECTANGLE = 0x84F5,
  RECTANGLE_BINDING = 0x84F6,
  WIDTH = 0x1000,
  HEIGHT = 0x1001,
  INTERNAL_FORMAT = 0x1003,
  PACK_BUFFER = 0x88EB,
  UNPACK_BUFFER = 0x88EC,
  PACK_BINDING = 0x88ED,
  UNPACK_BINDING = 0x88EF,
  UNPACK_FIRST = 0x0CF0, /* swapping, order of bits, row length, rows and pixels to skip, alignment */
  PACK_FIRST = 0x0D00,
  STORES = 6
};

typedef struct gl_functions {
  void (*Finish)(void);
  unsigned (*GetError)(void);
  void (*GetIntegerv)(unsigned, int *);
  unsigned char (*IsTexture)(unsigned);
  void (*BindBuffer)(unsigned, unsigned);
  void (*BindTexture)(unsigned, unsigned);
  void (*PixelStorei)(unsigned, int);
  void (*GetTexLevelParameteriv)(unsigned, int, unsigned, int *);
  void (*GetTexImage)(unsigned, int, unsigned, unsigned, void *);
  void (*TexSubImage2D)(unsigned, int, int, int, int, int, unsigned, unsigned, const void *);
} gl_functions;

static gl_functions gl;

static bool load(void) {
  static const char *const names[] = {"glFinish", "glGetError", "glGetIntegerv", "glIsTexture", "glBindBuffer",
                                      "glBindTexture", "glPixelStorei", "glGetTexLevelParameteriv", "glGetTexImage",
                                      "glTexSubImage2D"};
  const sim_get_proc find = sim_gl_resolver();
  void **at = (void **)&gl;
  if (find == NULL) return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if ((at[i] = find(names[i])) == NULL) return false;
  return true;
}

/* Formats that a driver can register (CUDA Driver API, cuGraphicsGLRegisterImage), by OpenGL's sized name. */
typedef struct pixel {
  int internal;
  unsigned format, type, number, channels;
} pixel;

enum { RED = 0x1903, RG = 0x8227, RGBA = 0x1908, RED_INTEGER = 0x8D94, RG_INTEGER = 0x8228, RGBA_INTEGER = 0x8D99 };
enum { I8 = 0x1400, U8, I16, U16, I32, U32, F32, F16 = 0x140B };

static const pixel pixels[] = {
    {0x8229, RED, U8, 1, 1},           {0x822B, RG, U8, 1, 2},            {0x8058, RGBA, U8, 1, 4},
    {0x822A, RED, U16, 2, 1},          {0x822C, RG, U16, 2, 2},           {0x805B, RGBA, U16, 2, 4},
    {0x822D, RED, F16, 16, 1},         {0x822F, RG, F16, 16, 2},          {0x881A, RGBA, F16, 16, 4},
    {0x822E, RED, F32, 32, 1},         {0x8230, RG, F32, 32, 2},          {0x8814, RGBA, F32, 32, 4},
    {0x8232, RED_INTEGER, U8, 1, 1},   {0x8238, RG_INTEGER, U8, 1, 2},    {0x8D7C, RGBA_INTEGER, U8, 1, 4},
    {0x8234, RED_INTEGER, U16, 2, 1},  {0x823A, RG_INTEGER, U16, 2, 2},   {0x8D76, RGBA_INTEGER, U16, 2, 4},
    {0x8236, RED_INTEGER, U32, 3, 1},  {0x823C, RG_INTEGER, U32, 3, 2},   {0x8D70, RGBA_INTEGER, U32, 3, 4},
    {0x8231, RED_INTEGER, I8, 8, 1},   {0x8237, RG_INTEGER, I8, 8, 2},    {0x8D8E, RGBA_INTEGER, I8, 8, 4},
    {0x8233, RED_INTEGER, I16, 9, 1},  {0x8239, RG_INTEGER, I16, 9, 2},   {0x8D88, RGBA_INTEGER, I16, 9, 4},
    {0x8235, RED_INTEGER, I32, 10, 1}, {0x823B, RG_INTEGER, I32, 10, 2},  {0x8D82, RGBA_INTEGER, I32, 10, 4},
};

static int integer(unsigned name) {
  int value = 0;
  gl.GetIntegerv(name, &value);
  return value;
}

static unsigned bind(unsigned texture, unsigned target) {
  const int before = integer(target == RECTANGLE ? RECTANGLE_BINDING : TEXTURE_2D_BINDING);
  gl.BindTexture(target, texture);
  return (unsigned)before;
}

static const pixel *pixel_of(unsigned target) {
  int internal = 0;
  gl.GetTexLevelParameteriv(target, 0, INTERNAL_FORMAT, &internal);
  for (size_t i = 0; i < sizeof pixels / sizeof *pixels; i++)
    if (pixels[i].internal == internal) return &pixels[i];
  return NULL;
}

/* Of the texture that is bound; NULL, and no channels, for a format that drivers do not share. */
static const pixel *form_of(unsigned target, sim_image *form) {
  int width = 0, height = 0;
  const pixel *p = pixel_of(target);
  gl.GetTexLevelParameteriv(target, 0, WIDTH, &width);
  gl.GetTexLevelParameteriv(target, 0, HEIGHT, &height);
  *form = (sim_image){(size_t)width, (size_t)height, 0, 0};
  if (p == NULL || width == 0 || height == 0) return NULL;
  form->format = p->number;
  form->channels = p->channels;
  return p;
}

bool sim_gl_image(unsigned texture, unsigned target, sim_image *form) {
  *form = (sim_image){0};
  if (!load()) return false;
  if ((target != TEXTURE_2D && target != RECTANGLE) || texture == 0 || !gl.IsTexture(texture)) return true;
  const unsigned before = bind(texture, target);
  if (gl.GetError() == 0) (void)form_of(target, form); /* else it is a texture of another target */
  gl.BindTexture(target, before);
  return true;
}

typedef struct store {
  unsigned first, target;
  int values[STORES], buffer;
} store;

/* Rows that follow each other in the host's memory. */
static store plain_store(unsigned first, unsigned target, unsigned binding) {
  store before = {.first = first, .target = target, .buffer = integer(binding)};
  gl.BindBuffer(target, 0);
  for (unsigned i = 0; i < STORES; i++) {
    before.values[i] = integer(first + i);
    gl.PixelStorei(first + i, i == STORES - 1);
  }
  return before;
}

static void restore(const store *before) {
  gl.BindBuffer(before->target, (unsigned)before->buffer);
  for (unsigned i = 0; i < STORES; i++) gl.PixelStorei(before->first + i, before->values[i]);
}

bool sim_gl_image_read(unsigned texture, unsigned target, void *bytes) {
  sim_image form;
  if (!load()) return false;
  const unsigned before = bind(texture, target);
  const pixel *p = form_of(target, &form);
  const store packing = plain_store(PACK_FIRST, PACK_BUFFER, PACK_BINDING);
  if (p != NULL) gl.GetTexImage(target, 0, p->format, p->type, bytes);
  restore(&packing);
  gl.BindTexture(target, before);
  return p != NULL;
}

bool sim_gl_image_write(unsigned texture, unsigned target, const void *bytes) {
  sim_image form;
  if (!load()) return false;
  const unsigned before = bind(texture, target);
  const pixel *p = form_of(target, &form);
  const store unpacking = plain_store(UNPACK_FIRST, UNPACK_BUFFER, UNPACK_BINDING);
  if (p != NULL) gl.TexSubImage2D(target, 0, 0, 0, (int)form.width, (int)form.height, p->format, p->type, bytes);
  restore(&unpacking);
  gl.BindTexture(target, before);
  gl.Finish();
  return p != NULL;
}
