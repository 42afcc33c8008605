/* array.c: memory of a device that has a form, and no address that the program knows.
 *
 * Invariant: what is told of an array is its form and what lies in it by place; its rows lie one after the other, which
 * only copies see. It must not know who made it. */
#include <stdlib.h>

#include "calls.h"

struct sim_array {
  sim_object o;
  sim_image form;
  sim_alloc *memory; /* its maker's */
};

/* The numbers of a format say its kind in the higher half and its width in the lower one, but for floats. */
size_t sim_image_pixel(const sim_image *form) {
  static const unsigned char sizes[SIM_FORMAT_FLOAT + 1] = {[1] = 1, [2] = 2, [3] = 4, [8] = 1, [9] = 2, [10] = 4,
                                                            [16] = 2, [SIM_FORMAT_FLOAT] = 4};
  return sizes[form->format] * (size_t)form->channels;
}

sim_array *sim_array_new(const sim_image *form, sim_alloc *memory) {
  sim_array *a = calloc(1, sizeof *a);
  if (a == NULL) abort();
  sim_object_add(&a->o, SIM_ARRAY);
  a->o.hidden = true;
  a->form = *form;
  a->memory = memory;
  return a;
}

void sim_array_end(sim_array *a) {
  sim_object_end(&a->o);
}

uintptr_t sim_array_handle(const sim_array *a) {
  return a->o.handle;
}

sim_status sim_call_array_form(const void *array, sim_image *out) {
  sim_array *a;
  SIM_TRY(sim_given(array, SIM_ARRAY, &a));
  *out = a->form;
  return SIM_OK;
}

sim_status sim_call_array_part(const void *array, const sim_box *box, sim_region *out) {
  sim_array *a;
  SIM_TRY(sim_given(array, SIM_ARRAY, &a));
  const size_t pitch = a->form.width * sim_image_pixel(&a->form);
  const bool inside = box->x <= pitch && box->width <= pitch - box->x && box->y <= a->form.height &&
                      box->rows <= a->form.height - box->y && box->z == 0 && box->depth <= 1;
  if (!inside) {
    sim_found(SIM_BOUNDS, "%s: %zu bytes of %zu rows from %zu, %zu on are not in an array of %zu bytes by %zu rows",
              sim_here().call, box->width, box->rows, box->x, box->y, pitch, a->form.height);
    return SIM_INVALID;
  }
  *out = (sim_region){a->memory->base + box->y * pitch + box->x, box->width, pitch, box->rows, pitch * box->rows,
                      box->depth};
  return SIM_OK;
}
