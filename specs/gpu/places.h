/* places.h: what the specs of copies share: the places where memory can be, streams to draw from, views drawn at random
 * that can be taken of the host's tensor and of the device's alike, and what must be left at the end: nothing. */
#ifndef MOONFERRY_SPEC_PLACES_H
#define MOONFERRY_SPEC_PLACES_H

#include "device.h"

/* Random numbers */

static uint64_t random_state;

static inline uint64_t draw(void) {
  return random_of(&random_state);
}

static inline int64_t between(int64_t low, int64_t high) {
  return low + (int64_t)(draw() % (uint64_t)(high - low + 1));
}

/* Places, streams */

typedef enum place { CPU, PINNED, MANAGED, GPU0, GPU1, NPLACES } place;
static const char *const place_names[] = {"cpu", "pinned", "managed", "gpu 0", "gpu 1"};

static inline bool have(place p) {
  return (p != MANAGED || other_managed_type() != 0) && (p != GPU1 || other_devices() > 1);
}

static DLDevice device_at(place p) {
  if (p == CPU) return (DLDevice){kDLCPU, 0};
  if (p == PINNED) return pinned();
  if (p == MANAGED) return managed();
  return gpu(p == GPU1);
}

static mf_stream streams[2][3];

static inline void open_streams(void) {
  for (int d = 0; d < other_devices() && d < 2; d++) {
    streams[d][0] = MF_STREAM_DEFAULT;
    for (int i = 1; i < 3; i++) streams[d][i] = stream_new(d);
  }
}

static inline void use_any_stream(void) {
  for (int d = 0; d < other_devices() && d < 2; d++) use_stream(d, streams[d][draw() % 3]);
}

static inline void close_streams(void) {
  for (int d = 0; d < other_devices() && d < 2; d++) {
    use_stream(d, MF_STREAM_DEFAULT);
    for (int i = 1; i < 3; i++) stream_end(d, streams[d][i]);
  }
}

static inline int begin_with_streams(void **state) {
  begin(state);
  open_streams();
  return 0;
}

static inline int end_with_streams(void **state) {
  close_streams();
  return end(state);
}

#define WITH_STREAMS(name) cmocka_unit_test_setup_teardown(name, begin_with_streams, end_with_streams)

/* Tensors */

/* "int4+" is int4 padded to bytes. */
static inline uint64_t flags_of(const char *name) {
  return strchr(name, '+') != NULL ? DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED : 0;
}

static DLDataType dtype_of(const char *name) {
  char plain[32];
  DLDataType dtype;
  (void)snprintf(plain, sizeof plain, "%.*s", (int)strcspn(name, "+"), name);
  OK(mf_dtype_parse(plain, &dtype, &err));
  return dtype;
}

static inline mf_tensor *create_shaped(place p, const char *dtype, int32_t ndim, const int64_t *shape) {
  const DLTensor like = {
      .device = device_at(p), .ndim = ndim, .dtype = dtype_of(dtype), .shape = (int64_t *)(uintptr_t)shape};
  mf_tensor *t;
  OK(mf_tensor_create(&like, flags_of(dtype), &t, &err));
  return t;
}

static inline mf_tensor *random_host(const char *dtype, int32_t ndim, const int64_t *shape) {
  mf_tensor *t = create_shaped(CPU, dtype, ndim, shape);
  unsigned char *data = mf_tensor_dltensor(t)->data;
  for (int64_t i = 0; i < mf_tensor_nbytes(t); i++) data[i] = (unsigned char)draw();
  return t;
}

static inline mf_tensor *at_place(mf_tensor *t, place p) {
  return moved(t, device_at(p), MF_COPY_ALWAYS);
}

/* The view whose last axis runs backwards. */
static inline mf_tensor *backwards_of(mf_tensor *t) {
  const mf_index last[] = {{.kind = MF_INDEX_ELLIPSIS},
                           {.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = -1}};
  mf_tensor *view;
  OK(mf_tensor_index(t, last, 2, &view, &err));
  return view;
}

/* Of elements that are padded to bytes, their bits alone: those between belong to none. */
static inline void same_bytes(mf_tensor *device, const mf_tensor *host, const char *what) {
  mf_tensor *back = at_place(device, CPU);
  const DLDataType dtype = mf_tensor_dltensor(host)->dtype;
  const bool padded = (mf_tensor_flags(host) & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED) != 0;
  const int mask = padded ? (1 << dtype.bits) - 1 : 255;
  const int64_t bits = mf_tensor_size(host) * mf_dtype_bits(&dtype, mf_tensor_flags(host));
  const unsigned char *a = mf_tensor_dltensor(back)->data, *b = mf_tensor_dltensor(host)->data;
  const bool same = bits < 8 || memcmp(a, b, (size_t)(bits / 8)) == 0;
  for (int64_t i = 0; !same && i < bits / 8; i++)
    if (((a[i] ^ b[i]) & mask) != 0)
      fail_msg("%s: byte %lld of %lld: %#x, not %#x", what, (long long)i, (long long)bits / 8, a[i], b[i]);
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

static inline int64_t item_for(mf_index *item, int64_t extent, int how) {
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
static inline void find_way(way *w, int32_t ndim, const int64_t *shape, int how) {
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
static inline mf_tensor *go(const way *w, mf_tensor *parent, const int64_t *shape) {
  mf_tensor *sliced, *turned, *out;
  if (mf_tensor_index(parent, w->items, w->ndim, &sliced, &err) != MF_OK) {
    assert_int_equal(err.status, MF_ELAYOUT);
    return NULL;
  }
  OK(w->ndim == 0 ? (turned = mf_tensor_retain(sliced), MF_OK)
                  : mf_tensor_permute_dims(sliced, w->axes, w->ndim, &turned, &err));
  mf_tensor_release(sliced);
  if (w->broadcast < 0) return turned;
  OK(mf_tensor_broadcast_to(turned, shape, w->ndim, &out, &err));
  mf_tensor_release(turned);
  return out;
}

static const char *const dtypes[] = {"uint8",     "int16", "float32", "float64", "complex128",     "uint8x3",
                                     "float32x3", "int4",  "uint8x5", "int3",    "float4_e2m1fnx2", "int4+"};

/* Both sides of a comparison: the same on the host and at a place. */

typedef struct side {
  place at;
  way way;
  mf_tensor *host, *device;           /* the parents */
  mf_tensor *host_view, *device_view; /* NULL: no such view */
} side;

/* Written by a device, and perhaps not yet. */
static inline mf_tensor *by_way_of_gpu(mf_tensor *t, place p) {
  mf_tensor *gpu = at_place(t, GPU0), *out = at_place(gpu, p);
  mf_tensor_release(gpu);
  return out;
}

static inline void side_open(side *s, place at, const char *dtype, const int64_t *shape) {
  s->at = at;
  s->host = random_host(dtype, s->way.ndim, s->way.parent);
  use_any_stream();
  s->device = at == PINNED || at == MANAGED ? by_way_of_gpu(s->host, at) : at_place(s->host, at);
  s->host_view = go(&s->way, s->host, shape);
  s->device_view = s->host_view == NULL ? NULL : go(&s->way, s->device, shape);
}

static inline void side_close(side *s) {
  mf_tensor_release(s->host_view);
  mf_tensor_release(s->device_view);
  mf_tensor_release(s->host);
  mf_tensor_release(s->device);
}

static inline void any_shape(int32_t *ndim, int64_t *shape) {
  *ndim = (int32_t)between(0, 4);
  for (int32_t i = 0; i < *ndim; i++) shape[i] = between(1, 5);
  if (*ndim == 2 && draw() % 8 == 0) {
    shape[0] = between(60, 200);
    shape[1] = between(100, 300);
  }
}

/* Whether the library's kernels run here. On the simulators they do, unless whoever starts the spec says no: a fault
 * that turns them off is to be noticed. Elsewhere a cast tells, which is not captured without them. */
static inline bool has_kernels(void) {
  static int known; /* 1: they do, 2: they do not */
  const int64_t n[] = {4};
  if (other_is_simulated()) return getenv("MOONFERRY_SPEC_NO_KERNELS") == NULL;
  if (known != 0) return known == 1;
  mf_stream s = stream_new(0);
  mf_tensor *bytes = create(gpu(0), 4), *wide = create_shaped(GPU0, "float32", 1, n);
  use_stream(0, s);
  fill(bytes, 1);
  synchronize(0);
  other_capture(0, s);
  known = mf_tensor_astype(wide, bytes, &err) == MF_OK ? 1 : 2;
  other_graph_end(0, other_capture_end(0, s));
  use_stream(0, MF_STREAM_DEFAULT);
  mf_tensor_release(bytes);
  mf_tensor_release(wide);
  stream_end(0, s);
  return known == 1;
}

/* Of the simulator's, what moves memory: a kernel is none. */
static inline uint64_t copies_made(void) {
  static const char *const calls[] = {"cuMemcpyAsync",   "cuMemcpy2DAsync",  "cuMemcpy3DAsync",  "cuMemcpyPeerAsync",
                                      "hipMemcpyAsync",  "hipMemcpy2DAsync", "hipMemcpy3DAsync", "hipMemcpyPeerAsync"};
  uint64_t made = 0;
  for (size_t i = 0; i < COUNT(calls); i++) made += sim_ask_calls(calls[i]);
  return made;
}

static inline bool equal(const mf_tensor *a, const mf_tensor *b) {
  int32_t same = 7;
  OK(mf_tensor_equal(a, b, &same, &err));
  return same == 1;
}

#endif
