/* brighten.c: an engine's own memory as a tensor: it is worked on in place, and the engine learns when nobody has it
 * any more. The projects beside this file build it: cmake/, pkg-config/ and subdirectory/. */
#include <moonferry.h>
#include <stdio.h>

static void on_release(void *user) {
  *(int *)user = 1;
}

int main(void) {
  float picture[2][3] = {{1, 2, 3}, {4, 5, 6}};
  DLTensor view = {.data = picture, .ndim = 2, .shape = (int64_t[]){2, 3}, .dtype = {kDLFloat, 32, 1}};
  mf_scalar white = {.kind = MF_KIND_FLOAT, .f = 255};
  mf_tensor *t;
  mf_error err;
  int released = 0;
  if (mf_tensor_wrap(&view, 0, on_release, &released, &t, &err) != MF_OK ||
      mf_tensor_fill(t, &white, &err) != MF_OK) {
    fprintf(stderr, "%s: %s\n", err.call, err.message);
    return 1;
  }
  mf_tensor_release(t);
  printf("Moonferry %s: %.0f, released: %d\n", mf_version_string(), (double)picture[1][2], released);
  return 0;
}
