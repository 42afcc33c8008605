/* scatter_spec.c: a copy or a fill of a view writes the bytes of that view's elements and no others, also where it goes
 * through the host: what lies between is another view's, and another thread or another library may write there at the
 * same time. The other library here does, on a stream of its own, without a word: the race checker sees every byte that
 * both touch. */
#include <pthread.h>

#include "places.h"

enum { SIDE = 9 };

/* A host tensor of the parent's shape, the bytes of which are told apart, and the parent on the GPU with the same. */
typedef struct canvas {
  mf_tensor *host, *gpu;
  mf_stream theirs;
  int64_t nbytes;
} canvas;

static canvas canvas_open(const char *dtype, int32_t ndim, const int64_t *shape) {
  canvas c = {.host = random_host(dtype, ndim, shape)};
  c.gpu = at_place(c.host, GPU0);
  c.nbytes = mf_tensor_nbytes(c.host);
  c.theirs = other_stream(0, false);
  use_stream(0, streams[0][1]);
  other_sync_all(0);
  return c;
}

static unsigned char *bytes_of(mf_tensor *t) {
  return mf_tensor_dltensor(t)->data;
}

/* The other library writes some of the bytes that are not the view's (owned: 1), now and unordered. */
static void write_between(canvas *c, const unsigned char *owned) {
  int written = 0;
  const uint64_t step = c->nbytes > 100000 ? 97 : 7;
  for (int64_t at = 0; at < c->nbytes && written < 200; at += 1 + (int64_t)(draw() % step)) {
    if (owned[at]) continue;
    const int byte = (int)(draw() % 256);
    other_fill(0, bytes_of(c->gpu) + at, byte, 1, c->theirs);
    bytes_of(c->host)[at] = (unsigned char)byte;
    written++;
  }
  assert_true(written > 20);
}

static void canvas_close(canvas *c) {
  other_sync(0, c->theirs);
  other_sync_all(0);
  same_bytes(c->gpu, c->host, "the whole");
  assert_int_equal(sim_ask_findings(), 0);
  mf_tensor_release(c->gpu);
  mf_tensor_release(c->host);
  other_stream_end(c->theirs);
  use_stream(0, MF_STREAM_DEFAULT);
}

static mf_tensor *source_like(mf_tensor *view) {
  const DLTensor *d = mf_tensor_dltensor(view);
  char name[32];
  OK(mf_dtype_format(&d->dtype, name, sizeof name, &err));
  return random_host(name, d->ndim, d->shape);
}

/* Which bytes of the host tensor a view of it has: those that change where all bits of the view become 0, or 1. */
static unsigned char *owned_by(mf_tensor *whole, mf_tensor *view) {
  const int64_t nbytes = mf_tensor_nbytes(whole);
  unsigned char *owned = calloc(1, (size_t)nbytes), *kept = malloc((size_t)nbytes), *data = bytes_of(whole);
  memcpy(kept, data, (size_t)nbytes);
  for (int round = 0; round < 2; round++) {
    mf_tensor *source = source_like(view);
    memset(bytes_of(source), round == 0 ? 0 : 0xff, (size_t)mf_tensor_nbytes(source));
    OK(mf_tensor_copy(view, source, &err));
    mf_tensor_release(source);
    for (int64_t i = 0; i < nbytes; i++) owned[i] |= data[i] != kept[i];
    memcpy(data, kept, (size_t)nbytes);
  }
  free(kept);
  return owned;
}

typedef mf_tensor *(*view_fn)(mf_tensor *whole);

/* Every second element of the innermost axis of six, so that no driver copy takes more than a few. */
static mf_tensor *every_second(mf_tensor *whole) {
  const mf_index items[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_AT, .start = 1}};
  mf_tensor *view;
  OK(mf_tensor_index(whole, items, 2, &view, &err));
  return view;
}

static mf_tensor *every_second_turned(mf_tensor *whole) {
  mf_tensor *view = every_second(whole), *turned;
  OK(mf_tensor_permute_dims(view, NULL, 0, &turned, &err));
  mf_tensor_release(view);
  return turned;
}

static mf_tensor *every_second_backwards(mf_tensor *whole) {
  const mf_index items[] = {{.kind = MF_INDEX_SLICE, .start = MF_INDEX_NONE, .stop = MF_INDEX_NONE, .step = -1}};
  mf_tensor *view = every_second_turned(whole), *back;
  OK(mf_tensor_index(view, items, 1, &back, &err));
  mf_tensor_release(view);
  return back;
}

/* The first half of each row: of elements of half a byte, too. */
static mf_tensor *left_half(mf_tensor *whole) {
  const int64_t half = mf_tensor_dltensor(whole)->shape[1] / 2;
  const mf_index items[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_SLICE, .start = 0, .stop = half, .step = 1}};
  mf_tensor *view;
  OK(mf_tensor_index(whole, items, 2, &view, &err));
  return view;
}

static const struct {
  const char *name, *dtype;
  int32_t ndim;
  int64_t shape[6];
  view_fn view;
} cases[] = {
    {"every second", "float32", 6, {SIDE, SIDE, SIDE, SIDE, SIDE, 2}, every_second},
    {"every second, turned", "float32", 6, {SIDE, SIDE, SIDE, SIDE, SIDE, 2}, every_second_turned},
    {"every second, backwards", "int16", 6, {SIDE, SIDE, SIDE, SIDE, SIDE, 2}, every_second_backwards},
    {"half bytes", "int4", 2, {40, 32}, left_half},
    {"bits", "uint1", 2, {40, 64}, left_half},
};

static void copied(mf_tensor *host_view, mf_tensor *gpu_view) {
  mf_tensor *from = source_like(host_view), *there = at_place(from, GPU0);
  OK(mf_tensor_copy(host_view, from, &err));
  OK(mf_tensor_copy(gpu_view, there, &err));
  mf_tensor_release(from);
  mf_tensor_release(there);
}

static void copied_from_the_host(mf_tensor *host_view, mf_tensor *gpu_view) {
  mf_tensor *from = source_like(host_view);
  OK(mf_tensor_copy(host_view, from, &err));
  OK(mf_tensor_copy(gpu_view, from, &err));
  mf_tensor_release(from);
}

static void filled(mf_tensor *host_view, mf_tensor *gpu_view) {
  const mf_scalar value = {.kind = MF_KIND_INT, .i = 1};
  OK(mf_tensor_fill(host_view, &value, &err));
  OK(mf_tensor_fill(gpu_view, &value, &err));
}

typedef void (*write_fn)(mf_tensor *host_view, mf_tensor *gpu_view);

static const write_fn writes[] = {copied, copied_from_the_host, filled};

static void only_its_own_bytes_are_written(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    for (size_t w = 0; w < COUNT(writes); w++) {
      canvas c = canvas_open(cases[i].dtype, cases[i].ndim, cases[i].shape);
      mf_tensor *host_view = cases[i].view(c.host), *gpu_view = cases[i].view(c.gpu);
      unsigned char *owned = owned_by(c.host, host_view);
      write_between(&c, owned);
      writes[w](host_view, gpu_view);
      write_between(&c, owned);
      mf_tensor_release(host_view);
      mf_tensor_release(gpu_view);
      free(owned);
      if (sim_ask_findings() != 0) fail_msg("%s, way %d", cases[i].name, (int)w);
      canvas_close(&c);
    }
  }
}

/* A layout in which places repeat: the last one stays, and between the rows nothing is touched. */
static void repeated_places(void **state) {
  (void)state;
  enum { ROWS = 20, COLUMNS = 6, ROW_NBYTES = 32 };
  const int64_t whole[] = {ROWS * ROW_NBYTES};
  canvas c = canvas_open("uint8", 1, whole);
  int64_t shape[] = {ROWS, 3, COLUMNS}, strides[] = {ROW_NBYTES, 2, 2};
  DLTensor described = {.data = bytes_of(c.host), .device = {kDLCPU, 0}, .ndim = 3, .dtype = {kDLUInt, 8, 1},
                        .shape = shape, .strides = strides};
  mf_tensor *host_view, *gpu_view;
  OK(mf_tensor_wrap(&described, 0, NULL, NULL, &host_view, &err));
  described.data = bytes_of(c.gpu);
  described.device = device_at(GPU0);
  OK(mf_tensor_wrap(&described, 0, NULL, NULL, &gpu_view, &err));
  unsigned char *owned = owned_by(c.host, host_view);
  write_between(&c, owned);
  copied(host_view, gpu_view);
  write_between(&c, owned);
  mf_tensor_release(host_view);
  mf_tensor_release(gpu_view);
  free(owned);
  canvas_close(&c);
}

/* Two threads of one program, each with a half of one tensor. */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 3 };
#else
enum { ROUNDS = 10 };
#endif

typedef struct half {
  mf_tensor *view, *from;
  int rounds;
  bool good;
} half;

static void *write_half(void *arg) {
  half *h = arg;
  mf_error why;
  for (int i = 0; i < h->rounds && h->good; i++) h->good = mf_tensor_copy(h->view, h->from, &why) == MF_OK;
  return NULL;
}

static void two_threads_with_a_half_each(void **state) {
  (void)state;
  const int64_t shape[] = {SIDE, SIDE, SIDE, SIDE, SIDE, 2}, five[] = {SIDE, SIDE, SIDE, SIDE, SIDE};
  mf_tensor *whole = create_shaped(GPU0, "float32", 6, shape);
  half halves[2];
  pthread_t thread;
  for (int i = 0; i < 2; i++) {
    const mf_index items[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_AT, .start = i}};
    const mf_scalar value = {.kind = MF_KIND_INT, .i = i + 1};
    mf_tensor *from = create_shaped(GPU0, "float32", 5, five);
    halves[i] = (half){.rounds = ROUNDS, .good = true};
    OK(mf_tensor_index(whole, items, 2, &halves[i].view, &err));
    OK(mf_tensor_fill(from, &value, &err));
    OK(mf_tensor_permute_dims(from, NULL, 0, &halves[i].from, &err));
    mf_tensor_release(from);
  }
  assert_int_equal(pthread_create(&thread, NULL, write_half, &halves[0]), 0);
  write_half(&halves[1]);
  pthread_join(thread, NULL);
  mf_tensor *back = at_place(whole, CPU);
  const float *data = mf_tensor_dltensor(back)->data;
  for (int64_t i = 0; i < mf_tensor_size(back); i++)
    if (data[i] != (float)(i % 2 + 1)) fail_msg("element %lld is %f", (long long)i, (double)data[i]);
  for (int i = 0; i < 2; i++) {
    assert_true(halves[i].good);
    mf_tensor_release(halves[i].view);
    mf_tensor_release(halves[i].from);
  }
  mf_tensor_release(back);
  mf_tensor_release(whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {WITH_STREAMS(only_its_own_bytes_are_written), WITH_STREAMS(repeated_places),
                                     WITH_STREAMS(two_threads_with_a_half_each)};
  return RUN(tests);
}
