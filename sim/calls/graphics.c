/* graphics.c: OpenGL's buffers and textures as a device's memory, while they are mapped.
 *
 * What is mapped is the device's alone: its bytes are copied to memory of the device and back, and in between OpenGL's
 * own are poison and (a buffer's) closed, so that drawing from it or on it shows and is reported. A buffer has a
 * pointer, a texture an array. Invariant: a resource is mapped once at most, and its pointer or array dies with the
 * mapping. It must not know how OpenGL is reached. */
#include <stdlib.h>

#include "calls.h"

enum { READ_ONLY = 1, WRITE_DISCARD = 2, REGISTER_FLAGS = 15, MAP_FLAGS = 2 };

typedef struct graphics {
  sim_object o;
  unsigned name, target, flags; /* target: 0 for a buffer */
  size_t nbytes;
  sim_image form; /* of a texture */
  sim_alloc *mapped;
  sim_array *array; /* of a texture that is mapped */
  void *before;      /* of what is mapped for reading alone: its bytes */
  uintptr_t storage; /* where OpenGL has it, or 0 */
  sim_place map;
} graphics;

static const char *sort_of(const graphics *g) {
  return g->target != 0 ? "texture" : "buffer";
}

static sim_status misuse(const graphics *g, const char *what) {
  char here[200], made[200];
  const sim_place now = sim_here();
  if (sim_found_pair(SIM_MISUSE, &now, &g->o.made))
    sim_found(SIM_MISUSE, "%s: %s %u of OpenGL %s\n  here        %s\n  registered  %s", now.call, sort_of(g), g->name,
              what, sim_place_text(&now, here, sizeof here), sim_place_text(&g->o.made, made, sizeof made));
  return SIM_INVALID;
}

/* All its bytes, from OpenGL and to it. */
static void pull(const graphics *g, void *bytes) {
  if (g->target != 0) (void)sim_gl_image_read(g->name, g->target, bytes);
  else (void)sim_gl_read(g->name, bytes, g->nbytes);
}

static void push(const graphics *g, const void *bytes) {
  if (g->target != 0) (void)sim_gl_image_write(g->name, g->target, bytes);
  else (void)sim_gl_write(g->name, bytes, g->nbytes);
}

/* ${like} with a handle. */
static sim_status add(const graphics *like, unsigned flags, void *out) {
  graphics *g = malloc(sizeof *g);
  if (g == NULL) return SIM_NOMEM;
  *g = *like;
  g->flags = flags & (READ_ONLY | WRITE_DISCARD);
  sim_object_add(&g->o, SIM_GRAPHICS);
  sim_put(out, g->o.handle);
  sim_log_detail("%s %u of OpenGL, %zu bytes", sort_of(g), g->name, g->nbytes);
  return SIM_OK;
}

sim_status sim_call_gl_register(unsigned buffer, unsigned flags, void *out) {
  sim_context *c;
  size_t nbytes;
  if (out == NULL || flags > REGISTER_FLAGS) return SIM_INVALID;
  SIM_TRY(sim_capture_unsafe());
  SIM_TRY(sim_context_of(&c));
  if (!sim_gl_size(buffer, &nbytes)) return SIM_NO_GRAPHICS;
  if (nbytes == 0) return SIM_BAD_HANDLE;
  return add(&(graphics){.name = buffer, .nbytes = nbytes}, flags, out);
}

static size_t nbytes_of(const sim_image *form) {
  return form->width * form->height * sim_image_pixel(form);
}

sim_status sim_call_gl_register_image(unsigned texture, unsigned target, unsigned flags, void *out) {
  sim_context *c;
  sim_image form;
  if (out == NULL || flags > REGISTER_FLAGS) return SIM_INVALID;
  SIM_TRY(sim_capture_unsafe());
  SIM_TRY(sim_context_of(&c));
  if (!sim_gl_image(texture, target, &form)) return SIM_NO_GRAPHICS;
  if (form.width == 0) return SIM_BAD_HANDLE;
  if (form.channels == 0) return SIM_INVALID;
  return add(&(graphics){.name = texture, .target = target, .nbytes = nbytes_of(&form), .form = form}, flags, out);
}

sim_status sim_call_graphics_flags(const void *resource, unsigned flags) {
  graphics *g;
  SIM_TRY(sim_given(resource, SIM_GRAPHICS, &g));
  if (flags > MAP_FLAGS) return SIM_INVALID;
  if (g->mapped != NULL) return SIM_MAPPED;
  g->flags = flags;
  return SIM_OK;
}

/* As it was when it was registered, and with OpenGL at hand. */
static sim_status usable(const graphics *g) {
  size_t nbytes;
  sim_image form;
  const bool current = g->target != 0 ? sim_gl_image(g->name, g->target, &form) : sim_gl_size(g->name, &nbytes);
  if (!current) {
    (void)misuse(g, "is used while no context of OpenGL is current on this thread");
    return SIM_NO_GRAPHICS;
  }
  const bool deleted = g->target != 0 ? form.width == 0 : nbytes == 0;
  if (deleted) return misuse(g, "was deleted before it was unregistered");
  const bool same = g->target != 0 ? memcmp(&form, &g->form, sizeof form) == 0 : nbytes == g->nbytes;
  return same ? SIM_OK : misuse(g, "got other storage after it was registered");
}

/* Of those in the list, each once, and mapped or not. */
static sim_status all_of(unsigned n, const void *const *resources, bool mapped) {
  if (n == 0 || resources == NULL) return SIM_INVALID;
  for (unsigned i = 0; i < n; i++) {
    graphics *g;
    SIM_TRY(sim_given(resources[i], SIM_GRAPHICS, &g));
    bool twice = false;
    for (unsigned k = 0; k < i; k++) twice |= resources[k] == resources[i];
    if (mapped && (g->mapped == NULL || twice)) {
      (void)misuse(g, "is unmapped, and not mapped");
      return SIM_NOT_MAPPED;
    }
    if (!mapped && (g->mapped != NULL || twice)) {
      (void)misuse(g, "is mapped a second time");
      return SIM_MAPPED;
    }
    SIM_TRY(usable(g));
  }
  return SIM_OK;
}

static sim_status map(graphics *g, sim_stream *s) {
  SIM_TRY(sim_loan_begin(s, g->nbytes, &g->mapped));
  void *view = sim_view(g->mapped->base);
  pull(g, view);
  if (g->flags == READ_ONLY) {
    g->before = malloc(g->nbytes);
    if (g->before == NULL) abort();
    memcpy(g->before, view, g->nbytes);
  }
  void *poison = malloc(g->nbytes);
  if (poison == NULL) abort();
  memset(poison, SIM_FRESH, g->nbytes);
  push(g, poison);
  free(poison);
  if (g->flags == WRITE_DISCARD) sim_poison(g->mapped, SIM_FRESH);
  g->map = sim_here();
  if (g->target != 0) g->array = sim_array_new(&g->form, g->mapped);
  else g->storage = sim_gl_storage(g->name, g->nbytes);
  if (g->storage != 0) sim_trap_lend(g->storage, g->nbytes);
  return SIM_OK;
}

sim_status sim_call_graphics_map(unsigned n, const void *const *resources, const void *stream) {
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  if (s->capture != NULL) return sim_capture_forbid(s, SIM_CAP_UNSUPPORTED);
  SIM_TRY(sim_capture_unsafe());
  SIM_TRY(all_of(n, resources, false));
  for (unsigned i = 0; i < n; i++) {
    graphics *g;
    SIM_TRY(sim_given(resources[i], SIM_GRAPHICS, &g));
    SIM_TRY(map(g, s));
    sim_log_detail("%s %u of OpenGL at %#zx", sort_of(g), g->name, (size_t)g->mapped->base);
  }
  return SIM_OK;
}

static void report_drawing(const graphics *g, const char *what) {
  char mapped[200], here[200];
  const sim_place now = sim_here();
  if (!sim_found_pair(SIM_MISUSE, &g->map, &now)) return;
  sim_found(SIM_MISUSE, "OpenGL has %s its %s %u while it was mapped for a device\n  mapped    %s\n  unmapped  %s",
            what, sort_of(g), g->name, sim_place_text(&g->map, mapped, sizeof mapped),
            sim_place_text(&now, here, sizeof here));
}

/* What OpenGL did meanwhile: it touched closed pages, or its bytes are not the poison any more. */
static void look_for_drawing(graphics *g) {
  bool read = false, written = false;
  if (g->storage != 0) sim_trap_give_back(g->storage, &read, &written);
  unsigned char *bytes = malloc(g->nbytes);
  if (bytes == NULL) abort();
  pull(g, bytes);
  for (size_t i = 0; i < g->nbytes; i++) written |= bytes[i] != SIM_FRESH;
  free(bytes);
  if (written) report_drawing(g, "written");
  else if (read) report_drawing(g, "read");
}

static void unmap(graphics *g, sim_stream *s) {
  const void *bytes = sim_view(g->mapped->base);
  look_for_drawing(g);
  if (g->flags == READ_ONLY && memcmp(bytes, g->before, g->nbytes) != 0)
    (void)misuse(g, "was written, though it was mapped for reading alone");
  push(g, g->flags == READ_ONLY ? g->before : bytes);
  free(g->before);
  g->before = NULL;
  if (!g->mapped->freed) sim_loan_end(s, g->mapped); /* else its context was reset */
  if (g->array != NULL) sim_array_end(g->array);
  g->array = NULL;
  g->mapped = NULL;
}

sim_status sim_call_graphics_unmap(unsigned n, const void *const *resources, const void *stream) {
  sim_stream *s;
  SIM_TRY(sim_stream_given(stream, &s));
  if (s->capture != NULL) return sim_capture_forbid(s, SIM_CAP_UNSUPPORTED);
  SIM_TRY(sim_capture_unsafe());
  SIM_TRY(all_of(n, resources, true));
  sim_status rc = SIM_OK;
  for (unsigned i = 0; i < n; i++) {
    graphics *g;
    SIM_TRY(sim_given(resources[i], SIM_GRAPHICS, &g));
    const sim_status settled = sim_loan_settle(s, g->mapped);
    if (settled != SIM_OK) rc = settled;
    unmap(g, s);
  }
  return rc;
}

sim_status sim_call_graphics_pointer(const void *resource, void *out, size_t *nbytes) {
  graphics *g;
  SIM_TRY(sim_given(resource, SIM_GRAPHICS, &g));
  if (g->mapped == NULL) return SIM_NOT_MAPPED;
  if (g->array != NULL) return SIM_NOT_POINTER;
  if (out != NULL) sim_put(out, g->mapped->base);
  if (nbytes != NULL) *nbytes = g->nbytes;
  return SIM_OK;
}

sim_status sim_call_graphics_array(const void *resource, unsigned index, unsigned level, void *out) {
  graphics *g;
  SIM_TRY(sim_given(resource, SIM_GRAPHICS, &g));
  if (g->mapped == NULL) return SIM_NOT_MAPPED;
  if (g->array == NULL) return SIM_NOT_ARRAY;
  if (index != 0 || level != 0 || out == NULL) return SIM_INVALID; /* one image, of which level 0 is shared */
  sim_put(out, sim_array_handle(g->array));
  return SIM_OK;
}

sim_status sim_call_graphics_end(const void *resource) {
  graphics *g;
  SIM_TRY(sim_capture_unsafe());
  SIM_TRY(sim_given(resource, SIM_GRAPHICS, &g));
  if (g->mapped != NULL) {
    sim_context *c;
    SIM_TRY(sim_context_of(&c));
    (void)misuse(g, "is unregistered while it is mapped");
    SIM_TRY(usable(g));
    (void)sim_loan_settle(c->legacy, g->mapped);
    unmap(g, c->legacy);
  }
  sim_object_end(&g->o);
  return SIM_OK;
}
