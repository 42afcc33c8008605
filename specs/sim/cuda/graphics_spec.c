/* graphics_spec.c: OpenGL's buffers as a device's memory, over a real OpenGL: whose they are when, on which stream, and
 * what is said of who does not keep to that. */
#include "../gl.h"
#include "spec.h"

enum { FLOATS = 16384, SIZE = FLOATS * sizeof(float) };

static float values[FLOATS], got[FLOATS];

static CUgraphicsResource registered(unsigned buffer, unsigned flags) {
  CUgraphicsResource r = NULL;
  OK(cuGraphicsGLRegisterBuffer(&r, buffer, flags));
  return r;
}

static CUdeviceptr mapped(CUgraphicsResource r, CUstream s) {
  CUdeviceptr p = 0;
  size_t nbytes = 0;
  OK(cuGraphicsMapResources(1, &r, s));
  OK(cuGraphicsResourceGetMappedPointer_v2(&p, &nbytes, r));
  assert_int_equal(nbytes, SIZE);
  return p;
}

static unsigned filled(float first, int fixed) {
  for (int i = 0; i < FLOATS; i++) values[i] = first + (float)i;
  return gl_buffer(values, SIZE, fixed);
}

static void end_all(CUgraphicsResource r, unsigned buffer, CUstream s) {
  OK(cuGraphicsUnregisterResource(r));
  if (s != NULL) OK(cuStreamDestroy_v2(s));
  gl_delete(buffer);
}

/* The device sees what OpenGL wrote, and OpenGL what the device wrote, in each kind of storage and under each order. */
static void bytes_go_both_ways(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 20; seed++) {
    sim_seed(seed);
    const unsigned buffer = filled((float)seed, seed % 2 != 0);
    CUgraphicsResource r = registered(buffer, 0);
    CUstream s = stream();
    CUdeviceptr p = mapped(r, s);
    OK(cuMemcpyDtoHAsync_v2(got, p, SIZE, s));
    OK(cuStreamSynchronize(s));
    assert_memory_equal(got, values, SIZE);
    OK(cuMemsetD32Async(p, 0x3F800000, FLOATS / 2, s));
    OK(cuGraphicsUnmapResources(1, &r, s));
    gl_read(buffer, got, SIZE);
    for (int i = 0; i < FLOATS; i++) assert_true(got[i] == (i < FLOATS / 2 ? 1.0F : values[i]));
    assert_true(gl_draw(buffer, 3) == 1.0F && gl_draw(buffer, FLOATS - 1) == values[FLOATS - 1]);
    OK(cuStreamSynchronize(s));
    end_all(r, buffer, s);
  }
}

static void flags_say_what_is_kept(void **state) {
  (void)state;
  enum { READ_ONLY = 1, WRITE_DISCARD = 2 };
  const unsigned buffer = filled(5, 0);
  CUgraphicsResource r = registered(buffer, WRITE_DISCARD);
  CUdeviceptr p = mapped(r, NULL);
  OK(cuMemcpyDtoH_v2(got, p, SIZE));
  assert_true(all_bytes(got, SIZE, 0xCB));
  FAILS(cuGraphicsResourceSetMapFlags_v2(r, READ_ONLY), CUDA_ERROR_ALREADY_MAPPED);
  OK(cuMemcpyHtoD_v2(p, values, SIZE));
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  OK(cuGraphicsResourceSetMapFlags_v2(r, READ_ONLY));
  p = mapped(r, NULL);
  OK(cuMemcpyDtoH_v2(got, p, SIZE));
  assert_memory_equal(got, values, SIZE);
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  gl_read(buffer, got, SIZE);
  assert_memory_equal(got, values, SIZE);
  p = mapped(r, NULL);
  OK(cuMemsetD8_v2(p, 1, 4));
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  assert_true(told("was written, though it was mapped for reading alone"));
  found(SIM_MISUSE, 1);
  gl_read(buffer, got, SIZE);
  assert_memory_equal(got, values, SIZE);
  OK(cuCtxSynchronize());
  end_all(r, buffer, NULL);
}

/* Who waits for neither stream races with the mapping or with its end. */
static void only_what_is_ordered_with_the_mapping_is_safe(void **state) {
  (void)state;
  const unsigned buffer = filled(0, 0);
  CUgraphicsResource r = registered(buffer, 0);
  CUstream s = stream(), t = stream();
  CUdeviceptr p = mapped(r, s);
  OK(cuMemsetD8Async(p, 1, SIZE, t));
  assert_true(told("cuGraphicsMapResources"));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  OK(cuMemsetD8Async(p, 2, SIZE, s));
  OK(cuGraphicsUnmapResources(1, &r, t)); /* the wrong stream */
  assert_true(told("cuGraphicsUnmapResources"));
  assert_true(told("must wait for stream"));
  found(SIM_RACE, 1);
  OK(cuCtxSynchronize());
  p = mapped(r, s);
  follow(t, s);
  OK(cuMemsetD8Async(p, 3, SIZE, t));
  follow(s, t);
  OK(cuGraphicsUnmapResources(1, &r, s));
  gl_read(buffer, got, SIZE);
  assert_true(all_bytes(got, SIZE, 3));
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(t));
  end_all(r, buffer, s);
}

static void the_pointer_dies_with_the_mapping(void **state) {
  (void)state;
  const unsigned buffer = filled(0, 0);
  CUgraphicsResource r = registered(buffer, 0);
  CUdeviceptr p = mapped(r, NULL), q = 0;
  FAILS(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuMemFreeAsync(p, NULL), CUDA_ERROR_INVALID_VALUE);
  found(SIM_STALE, 2);
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  FAILS(cuMemsetD8_v2(p, 1, SIZE), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("use of freed memory"));
  assert_true(told("cuGraphicsUnmapResources"));
  found(SIM_STALE, 1);
  FAILS(cuGraphicsResourceGetMappedPointer_v2(&q, NULL, r), CUDA_ERROR_NOT_MAPPED);
  OK(cuCtxSynchronize());
  end_all(r, buffer, NULL);
}

/* While it is mapped, OpenGL sees poison, and is reported, whether it reads or writes. */
static void drawing_while_mapped(void **state) {
  (void)state;
  const unsigned buffer = filled(7, 0);
  CUgraphicsResource r = registered(buffer, 0);
  mapped(r, NULL);
  assert_true(gl_draw(buffer, 5000) != values[5000]);
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  assert_true(told("OpenGL has read its buffer"));
  found(SIM_MISUSE, 1);
  assert_true(gl_draw(buffer, 5000) == values[5000]);
  mapped(r, NULL);
  gl_write(buffer, values, SIZE);
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  assert_true(told("OpenGL has written its buffer"));
  found(SIM_MISUSE, 1);
  const unsigned other = filled(9, 0);
  mapped(r, NULL);
  assert_true(gl_draw(other, 5000) == values[5000]);
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  gl_delete(other);
  OK(cuCtxSynchronize());
  end_all(r, buffer, NULL);
}

static void each_once(void **state) {
  (void)state;
  const unsigned buffer = filled(0, 0);
  CUgraphicsResource r = registered(buffer, 0), both[2] = {r, r};
  FAILS(cuGraphicsMapResources(2, both, NULL), CUDA_ERROR_ALREADY_MAPPED);
  mapped(r, NULL);
  FAILS(cuGraphicsMapResources(1, &r, NULL), CUDA_ERROR_ALREADY_MAPPED);
  assert_true(told("is mapped a second time"));
  found(SIM_MISUSE, 2);
  OK(cuGraphicsUnmapResources(1, &r, NULL));
  FAILS(cuGraphicsUnmapResources(1, &r, NULL), CUDA_ERROR_NOT_MAPPED);
  found(SIM_MISUSE, 1);
  mapped(r, NULL);
  OK(cuGraphicsUnregisterResource(r));
  assert_true(told("is unregistered while it is mapped"));
  found(SIM_MISUSE, 1);
  FAILS(cuGraphicsMapResources(1, &r, NULL), CUDA_ERROR_INVALID_HANDLE);
  assert_true(told("destroyed graphics resource"));
  found(SIM_MISUSE, 1);
  OK(cuCtxSynchronize());
  gl_delete(buffer);
}

static void what_is_no_buffer_or_has_no_context(void **state) {
  (void)state;
  CUgraphicsResource r = NULL;
  const unsigned buffer = filled(0, 0);
  FAILS(cuGraphicsGLRegisterBuffer(&r, 12345, 0), CUDA_ERROR_INVALID_HANDLE);
  FAILS(cuGraphicsGLRegisterBuffer(&r, buffer, 16), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuGraphicsGLRegisterBuffer(NULL, buffer, 0), CUDA_ERROR_INVALID_VALUE);
  gl_current(0);
  FAILS(cuGraphicsGLRegisterBuffer(&r, buffer, 0), CUDA_ERROR_INVALID_GRAPHICS_CONTEXT);
  gl_current(1);
  r = registered(buffer, 0);
  FAILS(cuGraphicsMapResources(0, &r, NULL), CUDA_ERROR_INVALID_VALUE);
  FAILS(cuGraphicsResourceSetMapFlags_v2(r, 3), CUDA_ERROR_INVALID_VALUE);
  gl_current(0);
  FAILS(cuGraphicsMapResources(1, &r, NULL), CUDA_ERROR_INVALID_GRAPHICS_CONTEXT);
  gl_current(1);
  assert_true(told("no context of OpenGL is current on this thread"));
  found(SIM_MISUSE, 1);
  gl_bind(buffer);
  GL(void (*)(unsigned, ptrdiff_t, const void *, unsigned), BufferData)(0x8892, 64, NULL, 0x88E8);
  FAILS(cuGraphicsMapResources(1, &r, NULL), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("got other storage"));
  found(SIM_MISUSE, 1);
  gl_delete(buffer);
  FAILS(cuGraphicsMapResources(1, &r, NULL), CUDA_ERROR_INVALID_VALUE);
  assert_true(told("was deleted"));
  found(SIM_MISUSE, 1);
  OK(cuGraphicsUnregisterResource(r));
}

static void a_capture_forbids_it(void **state) {
  (void)state;
  const unsigned buffer = filled(0, 0);
  CUgraphicsResource r = registered(buffer, 0);
  CUstream s = stream();
  CUgraph g = NULL;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(cuGraphicsMapResources(1, &r, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  FAILS(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  found(SIM_CAPTURE, 1);
  end_all(r, buffer, s);
}

/* Registering, mapping and their ends may be unsafe during a capture, as allocating is; a relaxed thread may. */
static void a_capture_elsewhere_forbids_it_without_relaxing(void **state) {
  (void)state;
  const unsigned buffer = filled(0, 0);
  CUgraphicsResource r = registered(buffer, 0), none;
  CUstream s = stream(), mapping = stream();
  for (int call = 0; call < 4; call++) {
    CUgraph g = NULL;
    int rc = 0;
    if (call == 2) (void)mapped(r, mapping);
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (call == 0) rc = cuGraphicsGLRegisterBuffer(&none, buffer, 0);
    if (call == 1) rc = cuGraphicsMapResources(1, &r, mapping);
    if (call == 2) rc = cuGraphicsUnmapResources(1, &r, mapping);
    if (call == 3) rc = cuGraphicsUnregisterResource(r);
    assert_int_equal(rc, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    found(SIM_CAPTURE, 1);
    if (call == 2) OK(cuGraphicsUnmapResources(1, &r, mapping));
  }
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUgraph whole = NULL;
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  (void)mapped(r, mapping);
  OK(cuGraphicsUnmapResources(1, &r, mapping));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(cuStreamEndCapture(s, &whole));
  OK(cuGraphDestroy(whole));
  OK(cuStreamDestroy_v2(mapping));
  end_all(r, buffer, s);
}

static void a_reset_ends_the_mapping(void **state) {
  (void)state;
  const unsigned buffer = filled(3, 0);
  CUgraphicsResource r = registered(buffer, 0);
  mapped(r, NULL);
  OK(cuDevicePrimaryCtxReset_v2(0));
  sim_reset();
  OK(cuCtxSetCurrent(NULL));
  OK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
  OK(cuCtxSetCurrent(contexts[0]));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  (void)cuGraphicsUnmapResources(1, &r, NULL);
  sim_reset();
  OK(cuGraphicsUnregisterResource(r));
  gl_delete(buffer);
}

static int leave(void **state) {
  (void)state;
  return 0;
}

static int enter(void **state) {
  (void)state;
  gl_open();
  return 0;
}

int main(void) {
  const struct CMUnitTest specs[] = {
      SPEC(bytes_go_both_ways),
      SPEC(flags_say_what_is_kept),
      SPEC(only_what_is_ordered_with_the_mapping_is_safe),
      SPEC(the_pointer_dies_with_the_mapping),
      SPEC(drawing_while_mapped),
      SPEC(each_once),
      SPEC(what_is_no_buffer_or_has_no_context),
      SPEC(a_capture_forbids_it),
      SPEC(a_capture_elsewhere_forbids_it_without_relaxing),
      SPEC(a_reset_ends_the_mapping),
  };
  return cmocka_run_group_tests(specs, enter, leave);
}
