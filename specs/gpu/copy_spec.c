/* copy_spec.c: copies and fills in which a device takes part. Every pair of memories and layouts must give what the same
 * copy gives on the host, gaps between the elements included, with nothing unordered, under every seed
 * (MOONFERRY_SPEC_SEEDS, 8 if it is not set). The host's own copies are specs/c/copy_spec.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "moonferry.h"
#include "other.h"

static mf_error err;

static void check(int rc, const char *what, int line) {
  if (rc != MF_OK) fail_msg("line %d: %s: %s: %s", line, what, err.call, err.message);
}

#define OK(call) check((call), #call, __LINE__)

static void check_refused(int rc, int want, const char *saying, int line) {
  if (rc != want || err.status != want) fail_msg("line %d: %d instead of %d: %s", line, rc, want, err.message);
  if (strstr(err.message, saying) == NULL) fail_msg("line %d: \"%s\" does not say \"%s\"", line, err.message, saying);
}

#define REFUSED(call, status, saying) check_refused((call), status, saying, __LINE__)

/* Random numbers (splitmix64). */

static uint64_t random_state;

static uint64_t draw(void) {
  uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static int64_t between(int64_t low, int64_t high) {
  return low + (int64_t)(draw() % (uint64_t)(high - low + 1));
}

static uint64_t nseeds(void) {
  const char *text = getenv("MOONFERRY_SPEC_SEEDS");
  return text == NULL ? 8 : strtoull(text, NULL, 10);
}

/* Places, streams */

typedef enum place { CPU, PINNED, MANAGED, GPU0, GPU1, NPLACES } place;
static const char *const place_names[] = {"cpu", "pinned", "managed", "gpu 0", "gpu 1"};

static bool have(place p) {
  return (p != MANAGED || other_managed_type() != 0) && (p != GPU1 || other_devices() > 1);
}

static DLDevice device_at(place p) {
  if (p == CPU) return (DLDevice){kDLCPU, 0};
  if (p == PINNED) return (DLDevice){(DLDeviceType)other_pinned_type(), 0};
  if (p == MANAGED) return (DLDevice){(DLDeviceType)other_managed_type(), 0};
  return (DLDevice){(DLDeviceType)other_device_type(), p == GPU1};
}

static mf_stream streams[2][3];

static void open_streams(void) {
  for (int d = 0; d < other_devices() && d < 2; d++) {
    const DLDevice device = device_at(d == 0 ? GPU0 : GPU1);
    streams[d][0] = MF_STREAM_DEFAULT;
    for (int i = 1; i < 3; i++) OK(mf_stream_create(&device, &streams[d][i], &err));
  }
}

static void use_stream(int d, mf_stream s) {
  const DLDevice device = device_at(d == 0 ? GPU0 : GPU1);
  OK(mf_stream_swap(&device, s, NULL, &err));
}

static void use_any_stream(void) {
  for (int d = 0; d < other_devices() && d < 2; d++) use_stream(d, streams[d][draw() % 3]);
}

static void close_streams(void) {
  for (int d = 0; d < other_devices() && d < 2; d++) {
    const DLDevice device = device_at(d == 0 ? GPU0 : GPU1);
    use_stream(d, MF_STREAM_DEFAULT);
    for (int i = 1; i < 3; i++) OK(mf_stream_destroy(&device, streams[d][i], &err));
  }
}

static int setup(void **state) {
  (void)state;
  sim_ask_reset();
  open_streams();
  return 0;
}

/* What one memory keeps may name another's streams and events, and what is given back is given back on a stream. */
static void trim_all(void) {
  for (int round = 0; round < 3; round++) {
    for (place p = PINNED; p < NPLACES; p++) {
      const DLDevice device = device_at(p);
      if (!have(p)) continue;
      if (p >= GPU0) OK(mf_device_synchronize(&device, &err));
      OK(mf_pool_trim(&device, &err));
    }
  }
  for (place p = GPU0; p < NPLACES; p++) {
    const DLDevice device = device_at(p);
    if (have(p)) OK(mf_device_synchronize(&device, &err));
  }
}

static int teardown(void **state) {
  (void)state;
  close_streams();
  trim_all();
  mf_ledger left;
  mf_ledger_read(&left);
  assert_int_equal(left.tensors, 0);
  assert_int_equal(left.storages, 0);
  assert_int_equal(left.bytes, 0);
  assert_int_equal(left.blocks, 0);
  assert_int_equal(sim_ask_findings(), 0);
  static const char *const sorts[] = {"memory", "events", "streams", "contexts", "captures", "pending"};
  for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
    if (sim_ask_left(sorts[i]) != 0) fail_msg("%s left: %lld", sorts[i], (long long)sim_ask_left(sorts[i]));
  return 0;
}

/* Tensors */

static DLDataType dtype_of(const char *name) {
  DLDataType dtype;
  OK(mf_dtype_parse(name, &dtype, &err));
  return dtype;
}

static mf_tensor *create(place p, const char *dtype, int32_t ndim, const int64_t *shape) {
  const DLTensor like = {
      .device = device_at(p), .ndim = ndim, .dtype = dtype_of(dtype), .shape = (int64_t *)(uintptr_t)shape};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  return t;
}

static mf_tensor *random_host(const char *dtype, int32_t ndim, const int64_t *shape) {
  mf_tensor *t = create(CPU, dtype, ndim, shape);
  unsigned char *data = mf_tensor_dltensor(t)->data;
  for (int64_t i = 0; i < mf_tensor_nbytes(t); i++) data[i] = (unsigned char)draw();
  return t;
}

static mf_tensor *at_place(mf_tensor *t, place p) {
  const mf_request request = {.device = device_at(p), .copy = MF_COPY_ALWAYS};
  mf_tensor *out;
  OK(mf_tensor_to(t, &request, &out, &err));
  return out;
}

static void same_bytes(mf_tensor *device, const mf_tensor *host, const char *what) {
  mf_tensor *back = at_place(device, CPU);
  const int64_t bits = mf_tensor_numel(host) * mf_dtype_bits(&mf_tensor_dltensor(host)->dtype, 0);
  const unsigned char *a = mf_tensor_dltensor(back)->data, *b = mf_tensor_dltensor(host)->data;
  for (int64_t i = 0; i < bits / 8; i++)
    if (a[i] != b[i]) fail_msg("%s: byte %lld of %lld: %#x, not %#x", what, (long long)i, (long long)bits / 8, a[i], b[i]);
  if (bits % 8 != 0) assert_int_equal((a[bits / 8] ^ b[bits / 8]) & ((1 << bits % 8) - 1), 0);
  mf_tensor_release(back);
}

/* A way to a view, so that the same view can be made of the host's tensor and of the device's. */
typedef struct way {
  int32_t ndim;
  int64_t parent[5]; /* the tensor that the view is of */
  mf_index items[5];
  int32_t axes[5];
  int32_t broadcast; /* one axis of the result repeats */
} way;

enum { BIG = 1, PLAIN = 2, REPEAT = 4 };

static int64_t item_for(mf_index *item, int64_t extent, int how) {
  *item = (mf_index){.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = 1};
  if (how & PLAIN || draw() % 3 == 0) return extent;
  const int64_t step = between(1, 3), before = between(0, 2), after = between(0, 2);
  const int64_t reach = (extent - 1) * step + 1;
  *item = (mf_index){.kind = MF_INDEX_SLICE, .start = before, .stop = before + reach, .step = step};
  if (draw() % 3 == 0) {
    item->start = before + reach - 1;
    item->stop = before == 0 ? MF_INDEX_NONE : before - 1;
    item->step = -step;
  }
  return before + reach + after;
}

/* A random way to a view of the shape. */
static void find_way(way *w, int32_t ndim, const int64_t *shape, int how) {
  w->ndim = ndim;
  w->broadcast = -1;
  for (int32_t i = 0; i < ndim; i++) w->axes[i] = i;
  for (int32_t i = ndim - 1; i > 0 && !(how & PLAIN); i--) {
    const int32_t j = (int32_t)(draw() % (uint64_t)(i + 1)), t = w->axes[i];
    if (draw() % 2 == 0) continue;
    w->axes[i] = w->axes[j];
    w->axes[j] = t;
  }
  if ((how & REPEAT) && ndim > 0) w->broadcast = (int32_t)(draw() % (uint64_t)ndim);
  for (int32_t i = 0; i < ndim; i++) {
    const int32_t axis = w->axes[i]; /* axis i of the view is this one of the parent */
    w->parent[axis] = item_for(&w->items[axis], i == w->broadcast ? 1 : shape[i], how);
  }
}

/* NULL where the dtype does not allow it: an element of part of a byte that begins within one. */
static mf_tensor *go(const way *w, mf_tensor *parent, const int64_t *shape) {
  mf_tensor *sliced, *turned, *out;
  if (mf_tensor_index(parent, w->items, w->ndim, &sliced, &err) != MF_OK) {
    assert_int_equal(err.status, MF_ELAYOUT);
    return NULL;
  }
  OK(w->ndim == 0 ? (turned = mf_tensor_retain(sliced), MF_OK)
                  : mf_tensor_permute(sliced, w->axes, w->ndim, &turned, &err));
  mf_tensor_release(sliced);
  if (w->broadcast < 0) return turned;
  OK(mf_tensor_broadcast(turned, shape, w->ndim, &out, &err));
  mf_tensor_release(turned);
  return out;
}

static const char *const dtypes[] = {"uint8",   "int16", "float32",   "float64", "complex128", "uint8x3",
                                     "float32x3", "int4",  "uint8x5", "int3",    "float4_e2m1fnx2"};

/* Copies */

typedef struct side {
  place at;
  way way;
  mf_tensor *host, *device;           /* the parents */
  mf_tensor *host_view, *device_view; /* NULL: no such view */
} side;

static void side_open(side *s, place at, const char *dtype, const int64_t *shape) {
  s->at = at;
  s->host = random_host(dtype, s->way.ndim, s->way.parent);
  use_any_stream();
  s->device = at_place(s->host, at);
  s->host_view = go(&s->way, s->host, shape);
  s->device_view = s->host_view == NULL ? NULL : go(&s->way, s->device, shape);
}

static void side_close(side *s) {
  mf_tensor_release(s->host_view);
  mf_tensor_release(s->device_view);
  mf_tensor_release(s->host);
  mf_tensor_release(s->device);
}

static void any_shape(int32_t *ndim, int64_t *shape) {
  *ndim = (int32_t)between(0, 4);
  for (int32_t i = 0; i < *ndim; i++) shape[i] = between(1, 5);
  if (*ndim == 2 && draw() % 8 == 0) {
    shape[0] = between(60, 200);
    shape[1] = between(100, 300);
  }
}

static void one_copy(place from, place to, uint64_t seed) {
  const char *dtype = dtypes[draw() % (sizeof dtypes / sizeof *dtypes)];
  int64_t shape[5];
  int32_t ndim;
  side src, dst;
  char what[128];
  any_shape(&ndim, shape);
  snprintf(what, sizeof what, "seed %llu, %s from %s to %s", (unsigned long long)seed, dtype, place_names[from],
           place_names[to]);
  find_way(&src.way, ndim, shape, draw() % 4 == 0 ? PLAIN : draw() % 6 == 0 ? REPEAT : 0);
  find_way(&dst.way, ndim, shape, draw() % 3 == 0 ? PLAIN : 0);
  side_open(&src, from, dtype, shape);
  side_open(&dst, to, dtype, shape);
  if (src.host_view != NULL && dst.host_view != NULL) {
    OK(mf_tensor_copy(dst.host_view, src.host_view, &err));
    use_any_stream();
    if (mf_tensor_copy(dst.device_view, src.device_view, &err) != MF_OK) fail_msg("%s: %s", what, err.message);
    use_any_stream();
    same_bytes(dst.device, dst.host, what);
    same_bytes(src.device, src.host, what);
  }
  side_close(&src);
  side_close(&dst);
}

static void any_layout_anywhere_to_any_layout_anywhere(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < nseeds(); seed++) {
    sim_ask_seed(seed);
    random_state = seed;
    for (place from = 0; from < NPLACES; from++)
      for (place to = 0; to < NPLACES; to++)
        for (int i = 0; i < 4 && have(from) && have(to); i++) one_copy(from, to, seed);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

/* Two views of one memory. */
static void one_overlap(place at, uint64_t seed) {
  const char *dtype = dtypes[draw() % 7];
  int64_t shape[2] = {between(1, 6), between(1, 6)}, parent[2] = {24, 24};
  way a, b;
  mf_tensor *host = random_host(dtype, 2, parent), *device = at_place(host, at);
  find_way(&a, 2, shape, 0);
  find_way(&b, 2, shape, draw() % 2 == 0 ? PLAIN : 0);
  mf_tensor *views[] = {go(&a, host, shape), go(&b, host, shape), go(&a, device, shape), go(&b, device, shape)};
  mf_tensor *parts[4];
  for (int i = 0; i < 4; i++) { /* PLAIN ways are of a smaller parent */
    const mf_index whole[] = {{.kind = MF_INDEX_SLICE, .stop = shape[0], .step = 1},
                              {.kind = MF_INDEX_SLICE, .stop = shape[1], .step = 1}};
    OK(mf_tensor_index(views[i], whole, 2, &parts[i], &err));
  }
  bool same = true;
  for (int i = 0; i < 2; i++)
    same = same && mf_tensor_dltensor(parts[0])->shape[i] == mf_tensor_dltensor(parts[1])->shape[i];
  if (same) {
    OK(mf_tensor_copy(parts[0], parts[1], &err));
    use_any_stream();
    OK(mf_tensor_copy(parts[2], parts[3], &err));
    use_any_stream();
    char what[64];
    snprintf(what, sizeof what, "seed %llu, %s on %s", (unsigned long long)seed, dtype, place_names[at]);
    same_bytes(device, host, what);
  }
  for (int i = 0; i < 4; i++) {
    mf_tensor_release(views[i]);
    mf_tensor_release(parts[i]);
  }
  mf_tensor_release(host);
  mf_tensor_release(device);
}

static void overlapping_views_as_if_read_first(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < nseeds(); seed++) {
    sim_ask_seed(seed);
    random_state = seed;
    for (place at = PINNED; at < NPLACES; at++)
      for (int i = 0; i < 10 && have(at); i++) one_overlap(at, seed);
  }
}

/* A destination of 4 x 3 whose places repeat as the strides say, over 64 bytes. */
static void one_repeated(place at, const int64_t *strides) {
  int64_t shape[] = {4, 3}, room[] = {64};
  mf_tensor *memory[2], *views[2], *src = random_host("int16", 2, shape);
  memory[0] = random_host("uint8", 1, room);
  memory[1] = at_place(memory[0], at);
  for (int i = 0; i < 2; i++) {
    const DLTensor view = {.data = mf_tensor_dltensor(memory[i])->data,
                           .device = mf_tensor_dltensor(memory[i])->device,
                           .ndim = 2,
                           .dtype = dtype_of("int16"),
                           .shape = shape,
                           .strides = (int64_t *)(uintptr_t)strides};
    OK(mf_tensor_wrap(&view, 0, NULL, NULL, &views[i], &err));
    OK(mf_device_synchronize(&(DLDevice){(DLDeviceType)other_device_type(), at == GPU1}, &err));
    OK(mf_tensor_copy(views[i], src, &err));
    mf_tensor *placed = at_place(src, i == 0 ? CPU : at);
    OK(mf_tensor_copy(views[i], placed, &err));
    mf_tensor_release(placed);
  }
  OK(mf_device_synchronize(&(DLDevice){(DLDeviceType)other_device_type(), at == GPU1}, &err));
  same_bytes(memory[1], memory[0], "repeated");
  for (int i = 0; i < 2; i++) {
    mf_tensor_release(views[i]);
    mf_tensor_release(memory[i]);
  }
  mf_tensor_release(src);
}

static void where_places_repeat_the_last_stays(void **state) {
  static const int64_t strides[][2] = {{0, 1}, {3, 0}, {0, 0}, {1, 1}, {1, 2}, {2, 1}};
  (void)state;
  for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
    for (place at = GPU0; at < NPLACES; at++)
      if (have(at)) one_repeated(at, strides[i]);
}

static void clones_stay_on_their_device(void **state) {
  int64_t shape[] = {5, 7};
  (void)state;
  for (place at = PINNED; at < NPLACES; at++) {
    mf_tensor *turned, *clone, *host_turned, *host_clone;
    if (!have(at)) continue;
    mf_tensor *host = random_host("float32", 2, shape), *t = at_place(host, at);
    OK(mf_tensor_permute(host, NULL, 0, &host_turned, &err));
    OK(mf_tensor_clone(host_turned, &host_clone, &err));
    OK(mf_tensor_permute(t, NULL, 0, &turned, &err));
    OK(mf_tensor_clone(turned, &clone, &err));
    assert_int_equal(mf_tensor_dltensor(clone)->device.device_type, device_at(at).device_type);
    assert_int_equal(mf_tensor_dltensor(clone)->device.device_id, device_at(at).device_id);
    assert_true(mf_tensor_is_contiguous(clone));
    same_bytes(clone, host_clone, place_names[at]);
    mf_tensor *all[] = {host, t, turned, clone, host_turned, host_clone};
    for (int i = 0; i < 6; i++) mf_tensor_release(all[i]);
  }
}

/* Large copies: the staging buffers, and the threads that fill them. */

static void one_large(place at, const char *dtype, const int64_t *shape, bool turned) {
  int64_t other_shape[] = {shape[1], shape[0]};
  mf_tensor *host = random_host(dtype, 2, shape), *from = host, *to, *back = create(CPU, dtype, 2, shape);
  mf_tensor *back_view = back;
  if (turned) {
    OK(mf_tensor_permute(host, NULL, 0, &from, &err));
    OK(mf_tensor_permute(back, NULL, 0, &back_view, &err));
  }
  use_any_stream();
  to = create(at, dtype, 2, turned ? other_shape : shape);
  OK(mf_tensor_copy(to, from, &err));
  memset(mf_tensor_dltensor(host)->data, 0, 4096); /* it was read: this changes nothing */
  use_any_stream();
  OK(mf_tensor_copy(back_view, to, &err));
  memset(mf_tensor_dltensor(back)->data, 0, 4096);
  assert_memory_equal(mf_tensor_dltensor(back)->data, mf_tensor_dltensor(host)->data, (size_t)mf_tensor_nbytes(host));
  mf_tensor *all[] = {host, back, to, turned ? from : NULL, turned ? back_view : NULL};
  for (int i = 0; i < 5; i++) mf_tensor_release(all[i]);
}

static void large_copies_of_pageable_memory(void **state) {
  static const int64_t shapes[][2] = {{1, 65536}, {1, 65537}, {300, 401}, {1024, 1025}, {2049, 1023}, {5000, 1111}};
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    sim_ask_seed(i);
    random_state = i;
    for (place at = GPU0; at < NPLACES && have(at); at++) {
      one_large(at, "float32", shapes[i], false);
      one_large(at, i % 2 == 0 ? "float32" : "uint8x3", shapes[i], true);
    }
  }
}

/* Both sides have gaps, and neither fits into what small copies use. */
static void large_copies_of_strided_memory(void **state) {
  int64_t shape[] = {200, 700};
  (void)state;
  for (uint64_t seed = 0; seed < 6; seed++) {
    side src, dst;
    const bool up = seed % 2 == 0;
    sim_ask_seed(seed);
    random_state = seed;
    find_way(&src.way, 2, shape, 0);
    find_way(&dst.way, 2, shape, 0);
    side_open(&src, up ? CPU : GPU0, "float32", shape);
    side_open(&dst, up ? GPU0 : CPU, "float32", shape);
    OK(mf_tensor_copy(dst.host_view, src.host_view, &err));
    use_any_stream();
    OK(mf_tensor_copy(dst.device_view, src.device_view, &err));
    same_bytes(dst.device, dst.host, "large");
    side_close(&src);
    side_close(&dst);
  }
}

/* Fills */

static void one_fill(place at, uint64_t seed) {
  static const char *const fillable[] = {"uint8", "bool", "int16", "float32", "float64", "complex128", "int4", "int1", "int3"};
  const char *dtype = fillable[draw() % (sizeof fillable / sizeof *fillable)];
  const mf_scalar value = {.kind = strcmp(dtype, "bool") == 0 ? MF_KIND_BOOL : MF_KIND_INT,
                           .i = draw() % 3 == 0 ? 0 : strcmp(dtype, "bool") == 0 ? 1 : between(-100, 100)};
  int64_t shape[5];
  int32_t ndim;
  side t;
  char what[128];
  any_shape(&ndim, shape);
  snprintf(what, sizeof what, "seed %llu, fill of %s on %s", (unsigned long long)seed, dtype, place_names[at]);
  find_way(&t.way, ndim, shape, draw() % 3 == 0 ? PLAIN : 0);
  side_open(&t, at, dtype, shape);
  if (t.host_view != NULL) {
    OK(mf_tensor_fill(t.host_view, &value, &err));
    use_any_stream();
    if (mf_tensor_fill(t.device_view, &value, &err) != MF_OK) fail_msg("%s: %s", what, err.message);
    use_any_stream();
    same_bytes(t.device, t.host, what);
  }
  side_close(&t);
}

static void fills_of_any_layout(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < nseeds(); seed++) {
    sim_ask_seed(seed);
    random_state = seed;
    for (place at = PINNED; at < NPLACES; at++)
      for (int i = 0; i < 20 && have(at); i++) one_fill(at, seed);
    if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  }
}

/* What is refused */

static void elements_of_a_gpu_are_not_read_by_the_host(void **state) {
  int64_t shape[] = {3}, coords[] = {1};
  const mf_scalar one = {.kind = MF_KIND_INT, .i = 1};
  mf_scalar value;
  int32_t equal;
  (void)state;
  mf_tensor *t = create(GPU0, "int32", 1, shape), *u = create(GPU0, "float32", 1, shape);
  REFUSED(mf_tensor_get(t, coords, 1, &value, &err), MF_EDEVICE, "mf_tensor_to");
  REFUSED(mf_tensor_put(t, coords, 1, &one, &err), MF_EDEVICE, "mf_tensor_to");
  REFUSED(mf_tensor_equal(t, t, &equal, &err), MF_EDEVICE, "mf_tensor_to");
  REFUSED(mf_tensor_cast(t, u, &err), MF_EDEVICE, "mf_tensor_to");
  mf_tensor_release(t);
  mf_tensor_release(u);
}

static void shared_memory_is_read_when_it_is_written(void **state) {
  int64_t shape[] = {1000}, coords[] = {999};
  (void)state;
  for (place at = PINNED; at <= MANAGED; at++) {
    mf_scalar value;
    if (!have(at)) continue;
    sim_ask_seed(0);
    mf_tensor *gpu = create(GPU0, "int32", 1, shape), *t = create(at, "int32", 1, shape);
    const mf_scalar seven = {.kind = MF_KIND_INT, .i = 7}, eight = {.kind = MF_KIND_INT, .i = 8};
    OK(mf_tensor_fill(gpu, &seven, &err));
    OK(mf_tensor_copy(t, gpu, &err));
    OK(mf_tensor_get(t, coords, 1, &value, &err));
    assert_int_equal(value.i, 7);
    OK(mf_tensor_copy(gpu, t, &err));
    OK(mf_tensor_put(t, coords, 1, &eight, &err)); /* behind the copy, which reads 7 */
    OK(mf_tensor_copy(t, gpu, &err));
    OK(mf_tensor_get(t, coords, 1, &value, &err));
    assert_int_equal(value.i, 7);
    mf_tensor_release(gpu);
    mf_tensor_release(t);
  }
}

/* Capture */

static void captured_copies_run_at_each_launch(void **state) {
  int64_t shape[] = {6, 10}, turned_shape[] = {10, 6};
  (void)state;
  use_stream(0, streams[0][1]);
  mf_tensor *a = create(GPU0, "float64", 2, shape), *b = create(GPU0, "float64", 2, turned_shape), *turned;
  mf_tensor *pinned = create(PINNED, "float64", 2, shape), *result = create(PINNED, "float64", 2, turned_shape);
  mf_tensor *pageable = create(CPU, "float64", 2, shape);
  const mf_scalar one = {.kind = MF_KIND_INT, .i = 1}, nine = {.kind = MF_KIND_INT, .i = 9};
  OK(mf_tensor_fill(pinned, &one, &err));
  OK(mf_tensor_permute(a, NULL, 0, &turned, &err));
  OK(mf_tensor_copy(b, turned, &err)); /* whatever the driver prepares once */
  OK(mf_device_synchronize(&(DLDevice){(DLDeviceType)other_device_type(), 0}, &err));
  other_capture(0, streams[0][1]);
  REFUSED(mf_tensor_copy(a, pageable, &err), MF_ECAPTURE, "pinned");
  REFUSED(mf_tensor_copy(pageable, a, &err), MF_ECAPTURE, "pinned");
  OK(mf_tensor_copy(a, pinned, &err));
  OK(mf_tensor_copy(b, turned, &err));
  OK(mf_tensor_copy(result, b, &err));
  void *graph = other_capture_end(0, streams[0][1]);
  for (int i = 0; i < 2; i++) {
    const double *at = mf_tensor_dltensor(result)->data;
    double *in = mf_tensor_dltensor(pinned)->data;
    for (int k = 0; k < 60; k++) in[k] = 100 * i + k;
    other_launch(0, graph, streams[0][1]);
    other_sync(0, streams[0][1]);
    for (int k = 0; k < 60; k++) assert_true(at[k % 10 * 6 + k / 10] == 100 * i + k);
  }
  other_graph_end(0, graph);
  OK(mf_tensor_fill(a, &nine, &err));
  mf_tensor *all[] = {a, b, turned, pinned, result, pageable};
  for (int i = 0; i < 6; i++) mf_tensor_release(all[i]);
}

/* Failures */

typedef struct scenario {
  const char *name;
  place from, to;
  int64_t shape[2];
  bool turned;
} scenario;

static const scenario scenarios[] = {
    {"small up", CPU, GPU0, {3, 5}, false},       {"small down", GPU0, CPU, {3, 5}, false},
    {"on the device", GPU0, GPU0, {3, 5}, false}, {"turned", GPU0, GPU0, {6, 5}, true},
    {"from pinned", PINNED, GPU0, {3, 5}, false}, {"large up", CPU, GPU0, {1200, 1000}, false},
    {"large down", GPU0, CPU, {1200, 1000}, false}, {"peer", GPU0, GPU1, {3, 5}, false},
    {"peer, turned", GPU0, GPU1, {6, 5}, true},   {"large down, turned", GPU0, CPU, {300, 200}, true},
};

static bool attempt(const scenario *s, mf_tensor *src, mf_tensor *dst, int64_t call) {
  char rule[32];
  mf_ledger before, after;
  snprintf(rule, sizeof rule, "#%lld:999", (long long)call);
  assert_int_equal(sim_ask_findings(), 0);
  sim_ask_reset();
  sim_ask_fail(rule);
  mf_ledger_read(&before);
  const int rc = mf_tensor_copy(dst, src, &err);
  const bool struck = sim_ask_faults() > 0;
  mf_ledger_read(&after);
  assert_int_equal(sim_ask_findings(), 0); /* before they are forgotten */
  sim_ask_reset();
  assert_int_equal(after.tensors, before.tensors);
  assert_int_equal(after.storages, before.storages);
  assert_int_equal(after.bytes, before.bytes);
  if (rc == MF_OK) return struck;
  if (!struck) fail_msg("%s: %s", s->name, err.message);
  if (err.driver_code != 999 || err.call == NULL || strncmp(err.call, "mf_", 3) == 0)
    fail_msg("%s: call %lld: %s does not name the driver's call", s->name, (long long)call, err.message);
  return true;
}

static void each_failure_of(const scenario *s) {
  int64_t turned_shape[] = {s->shape[1], s->shape[0]};
  mf_tensor *host = random_host("float32", 2, s->shape), *host_view = host;
  mf_tensor *src = at_place(host, s->from), *src_view = src;
  mf_tensor *dst = create(s->to, "float32", 2, s->turned ? turned_shape : s->shape), *expected;
  if (s->turned) {
    OK(mf_tensor_permute(src, NULL, 0, &src_view, &err));
    OK(mf_tensor_permute(host, NULL, 0, &host_view, &err));
  }
  OK(mf_tensor_clone(host_view, &expected, &err));
  for (int64_t call = 1; attempt(s, src_view, dst, call); call++) {
    OK(mf_tensor_copy(dst, src_view, &err));
    same_bytes(dst, expected, s->name);
    if (call > 1000) fail_msg("%s: no end", s->name);
  }
  if (s->turned) {
    mf_tensor_release(src_view);
    mf_tensor_release(host_view);
  }
  mf_tensor *all[] = {host, src, dst, expected};
  for (int i = 0; i < 4; i++) mf_tensor_release(all[i]);
}

static void each_driver_call_fails_in_turn(void **state) {
  (void)state;
  if (!other_is_simulated()) {
    print_message("skipped: a real driver's calls do not fail at will\n");
    skip();
  }
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    const scenario *s = &scenarios[i];
    if (!have(s->from) || !have(s->to)) continue;
    each_failure_of(s);
    trim_all(); /* once more with nothing kept */
    each_failure_of(s);
  }
}

/* Costs */

static uint64_t asks(void) {
  static const char *const names[] = {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "hipGetDevice",
                                      "hipSetDevice", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"};
  uint64_t n = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) n += sim_ask_calls(names[i]);
  return n;
}

/* The calls since the last reset, but for asking which context is current. */
static void check_calls(uint64_t most, int line) {
  const uint64_t n = sim_ask_calls(NULL) - asks();
  if (n < 1 || n > most) fail_msg("line %d: %llu driver calls, not %llu", line, (unsigned long long)n, (unsigned long long)most);
}

#define COSTS(most, call)         \
  do {                            \
    assert_int_equal(sim_ask_findings(), 0); \
    sim_ask_reset();              \
    OK(call);                     \
    check_calls(most, __LINE__);  \
  } while (0)

static void plain_copies_are_one_driver_call(void **state) {
  int64_t shape[] = {4, 16, 64};
  const mf_scalar three = {.kind = MF_KIND_INT, .i = 3};
  mf_tensor *inner, *outer, *turned;
  (void)state;
  if (!other_is_simulated()) {
    print_message("skipped: a real driver does not count its calls\n");
    skip();
  }
  mf_tensor *a = create(GPU0, "float32", 3, shape), *b = create(GPU0, "float32", 3, shape);
  mf_tensor *pinned = create(PINNED, "float32", 3, shape);
  const mf_index rows[] = {{.kind = MF_INDEX_ELLIPSIS},
                           {.kind = MF_INDEX_SLICE, .start = 8, .stop = 56, .step = 1}};
  const mf_index box[] = {{.kind = MF_INDEX_SLICE, .start = 0, .stop = 4, .step = 1},
                          {.kind = MF_INDEX_SLICE, .start = 2, .stop = 14, .step = 1},
                          {.kind = MF_INDEX_SLICE, .start = 8, .stop = 56, .step = 1}};
  OK(mf_tensor_index(a, rows, 2, &inner, &err));
  OK(mf_tensor_index(a, box, 3, &outer, &err));
  COSTS(1, mf_tensor_copy(a, b, &err));
  COSTS(1, mf_tensor_copy(b, a, &err));
  COSTS(1, mf_tensor_copy(a, pinned, &err));
  COSTS(1, mf_tensor_copy(pinned, a, &err));
  COSTS(1, mf_tensor_fill(a, &three, &err));
  COSTS(other_device_type() == kDLROCM ? 8 : 1, mf_tensor_fill(inner, &three, &err)); /* HIP fills no rows */
  mf_tensor *packed = create(GPU0, "float32", 3, (int64_t[]){4, 16, 48});
  COSTS(1, mf_tensor_copy(packed, inner, &err));
  COSTS(1, mf_tensor_copy(inner, packed, &err));
  mf_tensor *cut = create(GPU0, "float32", 3, (int64_t[]){4, 12, 48});
  COSTS(1, mf_tensor_copy(cut, outer, &err));
  COSTS(1, mf_tensor_copy(outer, cut, &err));
  /* The same order of axes on both sides is one run, whatever it is. */
  mf_tensor *turned_too;
  OK(mf_tensor_permute(a, NULL, 0, &turned, &err));
  OK(mf_tensor_permute(b, NULL, 0, &turned_too, &err));
  COSTS(1, mf_tensor_copy(turned, turned_too, &err));
  mf_tensor *all[] = {a, b, pinned, inner, outer, packed, cut, turned, turned_too};
  for (int i = 0; i < 9; i++) mf_tensor_release(all[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(any_layout_anywhere_to_any_layout_anywhere, setup, teardown),
      cmocka_unit_test_setup_teardown(overlapping_views_as_if_read_first, setup, teardown),
      cmocka_unit_test_setup_teardown(where_places_repeat_the_last_stays, setup, teardown),
      cmocka_unit_test_setup_teardown(clones_stay_on_their_device, setup, teardown),
      cmocka_unit_test_setup_teardown(large_copies_of_pageable_memory, setup, teardown),
      cmocka_unit_test_setup_teardown(large_copies_of_strided_memory, setup, teardown),
      cmocka_unit_test_setup_teardown(fills_of_any_layout, setup, teardown),
      cmocka_unit_test_setup_teardown(elements_of_a_gpu_are_not_read_by_the_host, setup, teardown),
      cmocka_unit_test_setup_teardown(shared_memory_is_read_when_it_is_written, setup, teardown),
      cmocka_unit_test_setup_teardown(captured_copies_run_at_each_launch, setup, teardown),
      cmocka_unit_test_setup_teardown(each_driver_call_fails_in_turn, setup, teardown),
      cmocka_unit_test_setup_teardown(plain_copies_are_one_driver_call, setup, teardown),
  };
  if (!other_open()) return 0;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
