/* graphics_spec.c: OpenGL's buffers and textures by HIP's names, over a real OpenGL. What they are is the engine's,
 * which ../cuda/graphics_spec.c and texture_spec.c have. */
#include "../gl_texture.h"
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

/* A texture by its array: down, and a part of it up. */
static void pixels_go_both_ways(void **state) {
  (void)state;
  enum { WIDTH = 33, HEIGHT = 17, ROW = WIDTH * 4 };
  static unsigned char values[ROW * HEIGHT], got[ROW * HEIGHT];
  const gl_form *rgba8 = &gl_forms[2];
  for (int i = 0; i < ROW * HEIGHT; i++) values[i] = (unsigned char)(i % 251);
  const unsigned texture = gl_texture(rgba8, WIDTH, HEIGHT, values);
  hipGraphicsResource_t r = NULL;
  hipStream_t s = NULL;
  hipArray_t a = NULL;
  HIP_ARRAY_DESCRIPTOR flat;
  HIP_ARRAY3D_DESCRIPTOR box;
  void *p = NULL;
  size_t nbytes = 0;
  OK(hipStreamCreate(&s));
  OK(hipMalloc(&p, ROW));
  OK(hipMemsetAsync(p, 7, ROW, s));
  OK(hipGraphicsGLRegisterImage(&r, texture, GL_2D, 0));
  OK(hipGraphicsMapResources(1, &r, s));
  FAILS(hipGraphicsResourceGetMappedPointer(&p, &nbytes, r), hipErrorNotMappedAsPointer);
  OK(hipGraphicsSubResourceGetMappedArray(&a, r, 0, 0));
  OK(hipArrayGetDescriptor(&flat, a));
  OK(hipArray3DGetDescriptor(&box, a));
  assert_true(flat.Width == WIDTH && flat.Height == HEIGHT && flat.NumChannels == 4);
  assert_true(flat.Format == HIP_AD_FORMAT_UNSIGNED_INT8 && box.Format == HIP_AD_FORMAT_UNSIGNED_INT8);
  assert_true(box.Width == WIDTH && box.Height == HEIGHT && box.Depth == 0 && box.NumChannels == 4);
  OK(hipMemcpy2DFromArrayAsync(got, ROW, a, 0, 0, ROW, HEIGHT, hipMemcpyDeviceToHost, s));
  OK(hipStreamSynchronize(s));
  assert_memory_equal(got, values, sizeof got);
  OK(hipMemcpy2DToArrayAsync(a, 4, 2, p, ROW, 12, 1, hipMemcpyDeviceToDevice, s));
  FAILS(hipMemcpy2DToArrayAsync(a, 4, 2, p, ROW, ROW, 1, hipMemcpyDeviceToDevice, s), hipErrorInvalidValue);
  FAILS(hipMemcpy2DFromArrayAsync(got, ROW, a, 0, 1, ROW, HEIGHT, hipMemcpyDeviceToHost, s), hipErrorInvalidValue);
  found(SIM_BOUNDS, 2);
  OK(hipGraphicsUnmapResources(1, &r, s));
  memset(values + 2 * ROW + 4, 7, 12);
  gl_read_texture(texture, rgba8, got);
  assert_memory_equal(got, values, sizeof got);
  OK(hipStreamSynchronize(s));
  OK(hipGraphicsUnregisterResource(r));
  OK(hipFree(p));
  OK(hipStreamDestroy(s));
  gl_delete_texture(texture);
}

/* The same by the driver's sort of copy, which says of each side what it is. */
static void a_described_copy_knows_arrays(void **state) {
  (void)state;
  enum { WIDTH = 8, HEIGHT = 4, ROW = WIDTH * 4 };
  static unsigned char values[ROW * HEIGHT], got[ROW * HEIGHT];
  for (int i = 0; i < ROW * HEIGHT; i++) values[i] = (unsigned char)i;
  const unsigned texture = gl_texture(&gl_forms[2], WIDTH, HEIGHT, NULL);
  hipGraphicsResource_t r = NULL;
  hipArray_t a = NULL;
  OK(hipGraphicsGLRegisterImage(&r, texture, GL_2D, 0));
  OK(hipGraphicsMapResources(1, &r, NULL));
  OK(hipGraphicsSubResourceGetMappedArray(&a, r, 0, 0));
  const hip_Memcpy2D up = {.srcMemoryType = hipMemoryTypeHost, .srcHost = values, .srcPitch = ROW,
                           .dstMemoryType = hipMemoryTypeArray, .dstArray = a, .WidthInBytes = ROW, .Height = HEIGHT};
  const hip_Memcpy2D down = {.srcMemoryType = hipMemoryTypeArray, .srcArray = a, .dstMemoryType = hipMemoryTypeHost,
                             .dstHost = got, .dstPitch = ROW, .WidthInBytes = ROW, .Height = HEIGHT};
  OK(hipMemcpyParam2DAsync(&up, NULL));
  OK(hipMemcpyParam2D(&down));
  assert_memory_equal(got, values, sizeof got);
  OK(hipGraphicsUnmapResources(1, &r, NULL));
  OK(hipDeviceSynchronize());
  OK(hipGraphicsUnregisterResource(r));
  gl_delete_texture(texture);
}

static int enter(void **state) {
  (void)state;
  gl_open();
  return 0;
}

int main(void) {
  const struct CMUnitTest specs[] = {SPEC(bytes_go_both_ways), SPEC(pixels_go_both_ways),
                                     SPEC(a_described_copy_knows_arrays), SPEC(misuse_has_hips_numbers)};
  return cmocka_run_group_tests(specs, enter, NULL);
}
