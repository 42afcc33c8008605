/* texture_spec.c: OpenGL's textures as arrays of a device, over a real OpenGL: the pixels of each format both ways,
 * what an array is, and what is said of who does not keep to the mapping. */
#include "../gl_texture.h"
#include "spec.h"

enum { WIDTH = 33, HEIGHT = 17, MOST = WIDTH * HEIGHT * 16 };

static unsigned char values[MOST], got[MOST];
static const gl_form *const rgba8 = &gl_forms[2];

static size_t row_of(const gl_form *f) {
  return (size_t)(WIDTH * f->channels * f->size);
}

/* Floats that are no NaN, whose bits a conversion might change. */
static void fill(const gl_form *f, unsigned first) {
  for (size_t i = 0; i < row_of(f) * HEIGHT; i++) values[i] = (unsigned char)((i * 7 + first) % 113);
}

static unsigned filled(const gl_form *f, unsigned first) {
  fill(f, first);
  return gl_texture(f, WIDTH, HEIGHT, values);
}

static CUgraphicsResource registered(unsigned texture, unsigned flags) {
  CUgraphicsResource r = NULL;
  OK(cuGraphicsGLRegisterImage(&r, texture, GL_2D, flags));
  return r;
}

static CUarray mapped(CUgraphicsResource r, CUstream s) {
  CUarray a = NULL;
  OK(cuGraphicsMapResources(1, &r, s));
  OK(cuGraphicsSubResourceGetMappedArray(&a, r, 0, 0));
  return a;
}

static CUresult down(CUarray a, const gl_form *f, CUstream s) {
  const CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a, .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = got, .dstPitch = row_of(f), .WidthInBytes = row_of(f), .Height = HEIGHT};
  return cuMemcpy2DAsync_v2(&c, s);
}

/* From device memory to some rows of an array, from a row on. */
static CUresult up(CUarray a, const gl_form *f, CUdeviceptr p, size_t y, size_t rows, CUstream s) {
  const CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = row_of(f),
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .dstY = y,
                           .WidthInBytes = row_of(f), .Height = rows, .Depth = 1};
  return cuMemcpy3DAsync_v2(&c, s);
}

static void end_all(CUgraphicsResource r, unsigned texture, CUstream s) {
  OK(cuCtxSynchronize());
  OK(cuGraphicsUnregisterResource(r));
  if (s != NULL) OK(cuStreamDestroy_v2(s));
  gl_delete_texture(texture);
}

static void an_array_is_what_the_texture_is(const gl_form *f, CUarray a) {
  CUDA_ARRAY_DESCRIPTOR flat;
  CUDA_ARRAY3D_DESCRIPTOR box;
  OK(cuArrayGetDescriptor_v2(&flat, a));
  OK(cuArray3DGetDescriptor_v2(&box, a));
  assert_true(flat.Width == WIDTH && flat.Height == HEIGHT && (int)flat.NumChannels == f->channels);
  assert_true(box.Width == WIDTH && box.Height == HEIGHT && box.Depth == 0 && box.Flags == 0);
  const CUarray_format expected = f->size == 1   ? CU_AD_FORMAT_UNSIGNED_INT8
                                  : f->size == 2 ? CU_AD_FORMAT_HALF
                                                 : CU_AD_FORMAT_FLOAT;
  assert_true(flat.Format == expected && box.Format == expected && (int)box.NumChannels == f->channels);
}

static void one_format(const gl_form *f, unsigned first) {
  const size_t row = row_of(f);
  const unsigned texture = filled(f, first);
  CUgraphicsResource r = registered(texture, 0);
  CUstream s = stream();
  CUdeviceptr p = 0;
  OK(cuMemAlloc_v2(&p, row * 5));
  CUarray a = mapped(r, s);
  an_array_is_what_the_texture_is(f, a);
  OK(down(a, f, s));
  OK(cuStreamSynchronize(s));
  assert_memory_equal(got, values, row * HEIGHT);
  OK(cuMemsetD8Async(p, 60, row * 5, s));
  OK(up(a, f, p, 3, 5, s));
  OK(cuGraphicsUnmapResources(1, &r, s));
  memset(values + row * 3, 60, row * 5);
  gl_read_texture(texture, f, got);
  assert_memory_equal(got, values, row * HEIGHT);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(p));
  end_all(r, texture, s);
}

static void pixels_go_both_ways(void **state) {
  (void)state;
  for (unsigned seed = 0; seed < 6; seed++) {
    sim_seed(seed);
    for (int i = 0; i < GL_FORMS; i++) one_format(&gl_forms[i], seed);
  }
}

/* What OpenGL has bound and set is as it was. */
static void opengl_is_left_as_it_was(void **state) {
  (void)state;
  static const unsigned names[] = {0x8069, 0x0CF2, 0x0CF5, 0x0D02, 0x0D05, 0x88ED, 0x88EF};
  int value = 0;
  void (*ask)(unsigned, int *) = GL(void (*)(unsigned, int *), GetIntegerv);
  void (*bind)(unsigned, unsigned) = GL(void (*)(unsigned, unsigned), BindBuffer);
  const unsigned texture = filled(rgba8, 0), other = filled(rgba8, 1), pack = gl_buffer(NULL, 64, 0),
                 unpack = gl_buffer(NULL, 64, 0);
  const int expected[] = {(int)other, 5, 2, 6, 8, (int)pack, (int)unpack};
  CUgraphicsResource r = registered(texture, 0);
  gl_bind_texture(other);
  for (int i = 1; i < 5; i++) GL(void (*)(unsigned, int), PixelStorei)(names[i], expected[i]);
  bind(0x88EB, pack);
  bind(0x88EC, unpack);
  mapped(r, NULL);
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    ask(names[i], &value);
    assert_int_equal(value, expected[i]);
  }
  for (int i = 1; i < 5; i++) GL(void (*)(unsigned, int), PixelStorei)(names[i], i % 2 == 0 ? 4 : 0);
  bind(0x88EB, 0);
  bind(0x88EC, 0);
  gl_delete(pack);
  gl_delete(unpack);
  gl_delete_texture(other);
  end_all(r, texture, NULL);
}

static void drawing_while_mapped(void **state) {
  (void)state;
  const unsigned texture = filled(rgba8, 3);
  CUgraphicsResource r = registered(texture, 0);
  mapped(r, NULL);
  gl_read_texture(texture, rgba8, got);
  assert_true(all_bytes(got, row_of(rgba8) * HEIGHT, 0xCB)); /* poison */
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  gl_read_texture(texture, rgba8, got);
  assert_memory_equal(got, values, row_of(rgba8) * HEIGHT);
  mapped(r, NULL);
  gl_write_texture(texture, rgba8, 1, 1, values);
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  assert_true(told("OpenGL has written its texture"));
  found(SIM_MISUSE, 1);
  end_all(r, texture, NULL);
}

static void each_once_and_on_one_stream(void **state) {
  (void)state;
  const unsigned texture = filled(rgba8, 0);
  CUgraphicsResource r = registered(texture, 0);
  CUstream s = stream(), t = stream();
  CUdeviceptr p = device_memory();
  CUarray a = mapped(r, s);
  FAILS(cuGraphicsMapResources(1, &r, s), CUDA_ERROR_ALREADY_MAPPED);
  assert_true(told("texture"));
  found(SIM_MISUSE, 1);
  OK(down(a, rgba8, t));
  assert_true(told("cuGraphicsMapResources"));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(up(a, rgba8, p, 0, 1, s));
  OK(cuGraphicsUnmapResources(1, &r, t)); /* the wrong stream */
  assert_true(told("must wait for stream"));
  found(SIM_RACE, 1);
  FAILS(cuGraphicsUnmapResources(1, &r, s), CUDA_ERROR_NOT_MAPPED);
  found(SIM_MISUSE, 1);
  FAILS(down(a, rgba8, s), CUDA_ERROR_INVALID_HANDLE);
  assert_true(told("destroyed array"));
  found(SIM_MISUSE, 1);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(p));
  OK(cuStreamDestroy_v2(t));
  end_all(r, texture, s);
}

static void flags_say_what_is_kept(void **state) {
  (void)state;
  enum { READ_ONLY = 1, WRITE_DISCARD = 2 };
  const unsigned texture = filled(rgba8, 5);
  CUgraphicsResource r = registered(texture, WRITE_DISCARD);
  CUdeviceptr p = 0;
  OK(cuMemAlloc_v2(&p, row_of(rgba8)));
  OK(cuMemsetD8_v2(p, 9, row_of(rgba8)));
  OK(down(mapped(r, NULL), rgba8, NULL));
  OK(cuCtxSynchronize());
  assert_true(all_bytes(got, row_of(rgba8) * HEIGHT, 0xCB));
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  OK(cuGraphicsResourceSetMapFlags_v2(r, READ_ONLY));
  OK(up(mapped(r, NULL), rgba8, p, 0, 1, NULL));
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  assert_true(told("was written, though it was mapped for reading alone"));
  found(SIM_MISUSE, 1);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(p));
  end_all(r, texture, NULL);
}

static void what_does_not_fit(void **state) {
  (void)state;
  const unsigned texture = filled(rgba8, 0);
  CUgraphicsResource r = registered(texture, 0);
  CUarray a = mapped(r, NULL), none = NULL;
  CUdeviceptr p = 0;
  size_t nbytes = 0;
  OK(cuMemAlloc_v2(&p, row_of(rgba8) * HEIGHT));
  FAILS(up(a, rgba8, p, 1, HEIGHT, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(up(a, rgba8, p, HEIGHT + 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(down(a, &gl_forms[4], NULL), CUDA_ERROR_INVALID_VALUE); /* as if its pixels were wider */
  assert_true(told("are not in an array of 132 bytes by 17 rows"));
  found(SIM_BOUNDS, 3);
  FAILS(cuGraphicsResourceGetMappedPointer_v2(&p, &nbytes, r), CUDA_ERROR_NOT_MAPPED_AS_POINTER);
  FAILS(cuGraphicsSubResourceGetMappedArray(&none, r, 1, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuGraphicsSubResourceGetMappedArray(&none, r, 0, 1), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuGraphicsSubResourceGetMappedArray(NULL, r, 0, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuArrayGetDescriptor_v2(NULL, a), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuArray3DGetDescriptor_v2(NULL, a), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  FAILS(cuGraphicsSubResourceGetMappedArray(&none, r, 0, 0), CUDA_ERROR_NOT_MAPPED);
  const unsigned buffer = gl_buffer(NULL, 64, 0);
  CUgraphicsResource of_buffer = NULL;
  OK(cuGraphicsGLRegisterBuffer(&of_buffer, buffer, 0));
  OK(cuGraphicsMapResources(1, &of_buffer, NULL));
  FAILS(cuGraphicsSubResourceGetMappedArray(&none, of_buffer, 0, 0), CUDA_ERROR_NOT_MAPPED_AS_ARRAY);
  OK(cuGraphicsUnmapResources(1, &of_buffer, NULL));
  OK(cuCtxSynchronize());
  OK(cuGraphicsUnregisterResource(of_buffer));
  gl_delete(buffer);
  OK(cuMemFree_v2(p));
  end_all(r, texture, NULL);
}

static void what_is_no_texture_or_has_no_context(void **state) {
  (void)state;
  static const gl_form srgb = {GL_SRGB8_ALPHA8_, 0x1908, 0x1401, 4, 1};
  CUgraphicsResource r = NULL;
  const unsigned texture = filled(rgba8, 0), odd = gl_texture(&srgb, 4, 4, NULL);
  FAILS(cuGraphicsGLRegisterImage(&r, 12345, GL_2D, 0), CUDA_ERROR_INVALID_HANDLE);
  FAILS(cuGraphicsGLRegisterImage(&r, texture, 0x84F5, 0), CUDA_ERROR_INVALID_HANDLE); /* it is no rectangle */
  FAILS(cuGraphicsGLRegisterImage(&r, texture, 0x806F, 0), CUDA_ERROR_INVALID_HANDLE);
  FAILS(cuGraphicsGLRegisterImage(&r, odd, GL_2D, 0), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuGraphicsGLRegisterImage(&r, texture, GL_2D, 16), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuGraphicsGLRegisterImage(NULL, texture, GL_2D, 0), CUDA_ERROR_INVALID_VALUE);
  gl_delete_texture(odd);
  gl_current(0);
  FAILS(cuGraphicsGLRegisterImage(&r, texture, GL_2D, 0), CUDA_ERROR_INVALID_GRAPHICS_CONTEXT);
  gl_current(1);
  r = registered(texture, 0);
  gl_current(0);
  FAILS(cuGraphicsMapResources(1, &r, NULL), CUDA_ERROR_INVALID_GRAPHICS_CONTEXT);
  gl_current(1);
  assert_true(told("no context of OpenGL is current on this thread"));
  found(SIM_MISUSE, 1);
  gl_delete_texture(texture);
  FAILS(cuGraphicsMapResources(1, &r, NULL), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("was deleted"));
  found(SIM_MISUSE, 1);
  OK(cuGraphicsUnregisterResource(r));
}

static int enter(void **state) {
  (void)state;
  gl_open();
  return 0;
}

int main(void) {
  const struct CMUnitTest specs[] = {
      SPEC(pixels_go_both_ways),
      SPEC(opengl_is_left_as_it_was),
      SPEC(drawing_while_mapped),
      SPEC(each_once_and_on_one_stream),
      SPEC(flags_say_what_is_kept),
      SPEC(what_does_not_fit),
      SPEC(what_is_no_texture_or_has_no_context),
  };
  return cmocka_run_group_tests(specs, enter, NULL);
}
