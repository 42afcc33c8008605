/* large_spec.c: more bytes than 32 bits count, in one tensor: copies between pageable memory and a device through the
 * staging buffers and back, copies on the host, and offsets and strides beyond 2^31 and 2^32.
 *
 * The host's memory is few real pages, mapped again and again, so that only the device's costs its size. Around each
 * multiple of 2^27 the pages are real and used once, so that what goes to another place, or nowhere, is seen there. */
#include <sys/mman.h>

#include "device.h"

#define MIB (INT64_C(1) << 20)
/* ThreadSanitizer keeps four bytes for each: there it is all a part of the size. */
#ifdef __SANITIZE_THREAD__
#define SHRINK 64
#define NSTEPS 8
#else
#define SHRINK 1
#define NSTEPS 32
#endif
#define WHOLE ((INT64_C(1) << 32) / SHRINK)
#define HALF (WHOLE / 2)
#define STEP (WHOLE / NSTEPS)
#define PERIOD (2 * MIB)
#define MARGIN (64 << 10)
#define NBYTES (WHOLE + PERIOD + 4321) /* no multiple of anything */
#define ROOM (WHOLE + 2 * PERIOD)

/* The place that has the same byte as i: i itself where pages are its own. */
static int64_t place_of(int64_t i) {
  const int64_t nearest = (i + STEP / 2) / STEP * STEP;
  return nearest <= WHOLE && i >= nearest - MARGIN && i < nearest + MARGIN ? i : i % PERIOD;
}

static unsigned char byte_of(int64_t i) {
  uint64_t state = (uint64_t)place_of(i);
  return (unsigned char)random_of(&state);
}

static unsigned char *map(void *at, int64_t nbytes, int protection, int flags, int fd) {
  void *p = mmap(at, (size_t)nbytes, protection, flags, fd, 0);
  if (p == MAP_FAILED) fail_msg("no %lld bytes of addresses", (long long)nbytes);
  return p;
}

/* NBYTES of host memory and a little more. */
static unsigned char *expanse_open(void) {
  const int both = PROT_READ | PROT_WRITE, fd = memfd_create("expanse", MFD_CLOEXEC);
  unsigned char *base = map(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  assert_true(fd >= 0);
  assert_int_equal(ftruncate(fd, PERIOD), 0);
  for (int64_t at = 0; at < ROOM; at += PERIOD) map(base + at, PERIOD, both, MAP_SHARED | MAP_FIXED, fd);
  close(fd);
  for (int64_t at = 0; at <= WHOLE; at += STEP) {
    const int64_t before = at == 0 ? 0 : MARGIN;
    map(base + at - before, before + MARGIN, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
  }
  return base;
}

static void expanse_close(unsigned char *base) {
  munmap(base, (size_t)ROOM);
}

/* Calls fn for each stretch of real pages: what is repeated once, and what is not. */
static void each_stretch(unsigned char *base, void (*fn)(unsigned char *bytes, int64_t from, int64_t to)) {
  fn(base, PERIOD, 2 * PERIOD);
  for (int64_t at = 0; at <= WHOLE; at += STEP) fn(base, at == 0 ? 0 : at - MARGIN, at + MARGIN);
}

static void put(unsigned char *bytes, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; i++) bytes[i] = byte_of(i);
}

static void expect(unsigned char *bytes, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; i++)
    if (bytes[i] != byte_of(i)) fail_msg("byte %#llx is %#x, not %#x", (long long)i, bytes[i], byte_of(i));
}

static mf_tensor *wrapped(unsigned char *base) {
  int64_t shape[] = {NBYTES};
  const DLTensor view = {.data = base, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &err));
  return t;
}

static mf_tensor *slice(const mf_tensor *t, int64_t from, int64_t to) {
  const mf_index item = {.kind = MF_INDEX_SLICE, .start = from, .stop = to, .step = 1};
  mf_tensor *v;
  OK(mf_tensor_index(t, &item, 1, &v, &err));
  return v;
}

/* Columns from, from + 1 ... of t's first n rows, which are so many bytes apart. */
static mf_tensor *columns(const mf_tensor *t, int64_t n, int64_t pitch, int64_t from, int64_t width) {
  const int64_t shape[] = {n, pitch};
  const mf_index items[] = {{.kind = MF_INDEX_ELLIPSIS},
                            {.kind = MF_INDEX_SLICE, .start = from, .stop = from + width, .step = 1}};
  mf_tensor *flat = slice(t, 0, n * pitch), *table, *v;
  OK(mf_tensor_reshape(flat, shape, 2, &table, &err));
  OK(mf_tensor_index(table, items, 2, &v, &err));
  mf_tensor_release(flat);
  mf_tensor_release(table);
  return v;
}

/* A compact copy of v on the host is what lies at these places. */
static void expect_columns(mf_tensor *v, int64_t n, int64_t pitch, int64_t from, int64_t width) {
  const mf_request on_host = {.device = {kDLCPU, 0}};
  mf_tensor *compact, *host;
  OK(mf_tensor_clone(v, &compact, &err));
  OK(mf_tensor_to(compact, &on_host, &host, &err));
  const unsigned char *bytes = data_of(host);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < width; k++)
      if (bytes[i * width + k] != byte_of(i * pitch + from + k))
        fail_msg("row %d, column %d is %#x", (int)i, (int)k, bytes[i * width + k]);
  mf_tensor_release(compact);
  mf_tensor_release(host);
}

/* Rows on both sides of 2^31 and 2^32, nearer and farther apart than drivers' copies of rows can be. */
static void expect_strided(const mf_tensor *t) {
  const int64_t shapes[][4] = {
      {NSTEPS, STEP, 5, 24}, {NSTEPS, STEP, STEP - 24, 24}, {2, HALF, HALF - 9, 9}, {1, WHOLE, 7, 9}};
  for (size_t i = 0; i < COUNT(shapes); i++) {
    const int64_t *s = shapes[i];
    mf_tensor *v = columns(t, s[0], s[1], s[2], s[3]);
    expect_columns(v, s[0], s[1], s[2], s[3]);
    mf_tensor_release(v);
  }
  mf_tensor *v = slice(t, WHOLE - 5, WHOLE + 6);
  expect_columns(v, 1, NBYTES, WHOLE - 5, 11);
  mf_tensor_release(v);
}

static void host_to_host(void **state) {
  unsigned char *from = expanse_open(), *to = expanse_open();
  mf_tensor *src = wrapped(from), *dst = wrapped(to);
  (void)state;
  assert_int_equal(mf_tensor_nbytes(src), NBYTES);
  each_stretch(from, put);
  OK(mf_tensor_copy(dst, src, &err));
  each_stretch(to, expect);
  expect(to, WHOLE + MARGIN, NBYTES);
  expect_strided(dst);
  for (int64_t at = HALF - 1; at <= WHOLE; at += HALF + 1) {
    const mf_scalar other = {.kind = MF_KIND_UINT, .u = (uint64_t)byte_of(at) ^ 0xff};
    mf_scalar value;
    OK(mf_tensor_get(dst, &at, 1, &value, &err));
    assert_int_equal(value.u, byte_of(at));
    OK(mf_tensor_put(dst, &at, 1, &other, &err));
    assert_int_equal(to[at], other.u);
    assert_int_equal(to[at - 1], byte_of(at - 1));
    assert_int_equal(to[at + 1], byte_of(at + 1));
  }
  mf_tensor_release(src);
  mf_tensor_release(dst);
  expanse_close(from);
  expanse_close(to);
}

/* The device's bytes as another library reads them, all of them. */
static void expect_device(const mf_tensor *t, unsigned char *want) {
  const unsigned char *device = data_of(t);
  unsigned char *seen = other_pinned((size_t)PERIOD);
  other_sync_all(0);
  for (int64_t at = 0; at < NBYTES; at += PERIOD) {
    const int64_t n = NBYTES - at < PERIOD ? NBYTES - at : PERIOD;
    other_copy(0, seen, device + at, (size_t)n, MF_STREAM_DEFAULT);
    other_sync(0, MF_STREAM_DEFAULT);
    if (memcmp(seen, want + at, (size_t)n) != 0) fail_msg("other bytes from %#llx on", (long long)at);
  }
  other_pinned_free(seen);
}

/* A slice across a border is filled, and what lies beside it stays. */
static void fill_across(mf_tensor *t, unsigned char *want, int64_t border) {
  const mf_scalar seven = {.kind = MF_KIND_UINT, .u = 7};
  mf_tensor *v = slice(t, border - 3, border + 5);
  OK(mf_tensor_fill(v, &seven, &err));
  memset(want + border - 3, 7, 8);
  mf_tensor_release(v);
}

static void host_to_device_and_back(void **state) {
  unsigned char *from = expanse_open(), *to = expanse_open();
  mf_tensor *src = wrapped(from), *dst = wrapped(to), *t = create(gpu(0), NBYTES);
  (void)state;
  each_stretch(from, put);
  OK(mf_tensor_copy(t, src, &err));
  OK(mf_tensor_acquire(t, MF_STREAM_DEFAULT, MF_READ, &err));
  expect_device(t, from);
  expect_strided(t);
  OK(mf_tensor_copy(dst, t, &err));
  each_stretch(to, expect);
  expect(to, WHOLE + MARGIN, NBYTES);
  for (int64_t border = HALF; border <= WHOLE; border += HALF) fill_across(t, from, border);
  OK(mf_tensor_acquire(t, MF_STREAM_DEFAULT, MF_READ, &err));
  expect_device(t, from);
  mf_tensor *const all[] = {src, dst, t};
  for (size_t i = 0; i < COUNT(all); i++) mf_tensor_release(all[i]);
  expanse_close(from);
  expanse_close(to);
}

int main(void) {
  const struct CMUnitTest tests[] = {SPEC(host_to_host), SPEC(host_to_device_and_back)};
  setenv("SIM_MEMORY", "8G", 1);
  setenv("SIM_QUARANTINE", "0", 1); /* what was freed is given back at once */
  return RUN(tests);
}
