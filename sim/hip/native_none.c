/* native_none.c: in the place of native.c and native_text.c, where the simulators are built without Moonferry. There
 * are no texts of kernels then, and no module is made. */
#include "native.h"

bool native_read(const char *text, native_program *out, const char **why) {
  (void)text;
  (void)out;
  *why = "this simulator was built without the texts of kernels";
  return false;
}

const native_entry *native_find(const native_program *p, const char *name) {
  (void)p;
  (void)name;
  return NULL;
}

native_end native_run(const native_grid *g, sim_launch *l, bool follows) {
  (void)g;
  (void)l;
  (void)follows;
  return NATIVE_ILLEGAL;
}
