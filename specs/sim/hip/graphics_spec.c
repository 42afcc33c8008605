/* graphics_spec.c: OpenGL's buffers by HIP's names, over a real OpenGL. What they are is the engine's, which
 * ../cuda/graphics_spec.c has. */
#include "../gl.h"
#include "spec.h"

enum { FLOATS = 4096, SIZE = FLOATS * sizeof(float) };

static void bytes_go_both_ways(void **state) {
  (void)state;
  static float values[FLOATS], got[FLOATS];
  for (int i = 0; i < FLOATS; i++) values[i] = (float)i;
  const unsigned buffer = gl_buffer(values, SIZE, 0);
  hipGraphicsResource_t r = NULL;
  hipStream_t s = NULL;
  void *p = NULL;
  size_t nbytes = 0;
  OK(hipStreamCreate(&s));
  OK(hipGraphicsGLRegisterBuffer(&r, buffer, 0));
  OK(hipGraphicsMapResources(1, &r, s));
  OK(hipGraphicsResourceGetMappedPointer(&p, &nbytes, r));
  assert_int_equal(nbytes, SIZE);
  OK(hipMemcpyAsync(got, p, SIZE, hipMemcpyDeviceToHost, s));
  OK(hipStreamSynchronize(s));
  assert_memory_equal(got, values, SIZE);
  OK(hipMemsetAsync(p, 1, SIZE, s));
  OK(hipGraphicsUnmapResources(1, &r, s));
  gl_read(buffer, got, SIZE);
  assert_true(all_bytes(got, SIZE, 1));
  OK(hipStreamSynchronize(s));
  OK(hipGraphicsUnregisterResource(r));
  OK(hipStreamDestroy(s));
  gl_delete(buffer);
}

static void misuse_has_hips_numbers(void **state) {
  (void)state;
  const unsigned buffer = gl_buffer(NULL, SIZE, 0);
  hipGraphicsResource_t r = NULL;
  size_t nbytes = 0;
  void *p = NULL;
  OK(hipGraphicsGLRegisterBuffer(&r, buffer, 0));
  FAILS(hipGraphicsMapResources(-1, &r, NULL), hipErrorInvalidValue);
  FAILS(hipGraphicsResourceGetMappedPointer(&p, &nbytes, r), hipErrorNotMapped);
  FAILS(hipGraphicsUnmapResources(1, &r, NULL), hipErrorNotMapped);
  OK(hipGraphicsMapResources(1, &r, NULL));
  FAILS(hipGraphicsMapResources(1, &r, NULL), hipErrorAlreadyMapped);
  found(SIM_MISUSE, 2);
  OK(hipGraphicsUnmapResources(1, &r, NULL));
  OK(hipDeviceSynchronize());
  OK(hipGraphicsUnregisterResource(r));
  gl_current(0);
  FAILS(hipGraphicsGLRegisterBuffer(&r, buffer, 0), hipErrorInvalidGraphicsContext);
  gl_current(1);
  (void)hipGetLastError();
  gl_delete(buffer);
}

static int enter(void **state) {
  (void)state;
  gl_open();
  return 0;
}

int main(void) {
  const struct CMUnitTest specs[] = {SPEC(bytes_go_both_ways), SPEC(misuse_has_hips_numbers)};
  return cmocka_run_group_tests(specs, enter, NULL);
}
