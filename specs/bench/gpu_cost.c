/* gpu_cost.c: what the device layer costs, on whichever driver is there: `make bench-gpu`. Prints a line of JSON for
 * each row: name, nanoseconds for one operation (the least of many repeats) or GiB/s, and the goal where there is one.
 *
 * On a simulated driver only the rows without driver calls mean anything. The others run there too, smaller and once,
 * so that they are known to work, and their figures say that they are none. */
#define _POSIX_C_SOURCE 200809L
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "moonferry.h"
#include "other.h"

enum { LOOPS = 2000 };

/* How often each is measured, how many rows and columns the copies have, and whether the figures mean anything. */
typedef struct effort {
  int repeats;
  int64_t side;
  bool real;
} effort;

static effort now_at = {.repeats = 30, .side = 8192, .real = true};

static mf_error err;

static void check(int rc, const char *what) {
  if (rc == MF_OK) return;
  fprintf(stderr, "gpu_cost: %s: %s: %s\n", what, err.call, err.message);
  exit(1);
}

#define OK(call) check((call), #call)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

typedef struct bench {
  DLDevice device;
  mf_stream a, b;
  mf_tensor *t;
  mf_tensor *big, *other, *turned, *host, *pinned;
  mf_tensor *columns, *other_columns;
} bench;

typedef void (*operation)(bench *b);

static double least(operation op, bench *b, int loops) {
  double best = 1e300;
  for (int r = 0; r < now_at.repeats; r++) {
    const double start = now();
    for (int i = 0; i < loops; i++) op(b);
    const double each = (now() - start) / loops;
    if (each < best) best = each;
  }
  return best;
}

static void row(const char *name, double value, const char *unit, const char *goal) {
  printf("{\"operation\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", \"goal\": \"%s\"}\n", name, value,
         now_at.real ? unit : "(simulated)", goal);
  fflush(stdout);
}

static void same_stream(bench *b) {
  OK(mf_tensor_acquire(b->t, b->a, MF_WRITE, &err));
}

/* Twice, because the stream must come back. */
static void two_streams(bench *b) {
  OK(mf_tensor_acquire(b->t, b->b, MF_WRITE, &err));
  OK(mf_tensor_acquire(b->t, b->a, MF_WRITE, &err));
}

static void give_same(bench *b) {
  const mf_request request = {.stream = b->a};
  DLManagedTensorVersioned *given;
  OK(mf_tensor_export_to(b->t, &request, &given, &err));
  given->deleter(given);
}

static void create_and_release(bench *b) {
  static int64_t shape[] = {1 << 20};
  const DLTensor like = {.device = b->device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  mf_tensor_release(t);
}

static void host_cost(bench *b) {
  row("acquire, same stream", least(same_stream, b, LOOPS), "ns", "<= 10");
  row("export and delete, same stream", least(give_same, b, LOOPS), "ns", "");
  row("1 MiB from the cache and back", least(create_and_release, b, LOOPS), "ns", "<= 300");
}

static void copy_to_device(bench *b) {
  OK(mf_tensor_copy(b->big, b->host, &err));
  OK(mf_stream_synchronize(&b->device, b->a, &err));
}

static void copy_to_host(bench *b) {
  OK(mf_tensor_copy(b->host, b->big, &err));
}

static void pinned_to_device(bench *b) {
  OK(mf_tensor_copy(b->big, b->pinned, &err));
  OK(mf_stream_synchronize(&b->device, b->a, &err));
}

static void pinned_to_host(bench *b) {
  OK(mf_tensor_copy(b->pinned, b->big, &err));
  OK(mf_stream_synchronize(&b->device, b->a, &err));
}

static void plain_on_device(bench *b) {
  OK(mf_tensor_copy(b->other, b->big, &err));
  OK(mf_stream_synchronize(&b->device, b->a, &err));
}

static void turned_on_device(bench *b) {
  OK(mf_tensor_copy(b->other, b->turned, &err));
  OK(mf_stream_synchronize(&b->device, b->a, &err));
}

/* Half of each row. */
static void columns_on_device(bench *b) {
  OK(mf_tensor_copy(b->other_columns, b->columns, &err));
  OK(mf_stream_synchronize(&b->device, b->a, &err));
}

static void speed(const char *name, operation op, bench *b, const mf_tensor *moved, const char *goal) {
  char text[80];
  const double nbytes = (double)mf_tensor_nbytes(moved);
  snprintf(text, sizeof text, "%.3g MiB %s", nbytes / 1048576.0, name);
  row(text, nbytes / 1073741824.0 / (least(op, b, 1) * 1e-9), "GiB/s", goal);
}

static mf_tensor *create(DLDevice device, int64_t side) {
  int64_t shape[] = {side, side};
  const DLTensor like = {.device = device, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  const mf_scalar one = {.kind = MF_KIND_FLOAT, .f = 1};
  mf_tensor *t;
  OK(mf_tensor_create(&like, 0, &t, &err));
  OK(mf_tensor_fill(t, &one, &err));
  return t;
}

static mf_tensor *half_of(mf_tensor *t, int64_t side) {
  const mf_index half[] = {{.kind = MF_INDEX_ELLIPSIS},
                           {.kind = MF_INDEX_SLICE, .start = 0, .stop = side / 2, .step = 1}};
  mf_tensor *view;
  OK(mf_tensor_index(t, half, 2, &view, &err));
  return view;
}

static void drop_large(bench *b) {
  mf_tensor **const all[] = {&b->columns, &b->other_columns, &b->big, &b->other, &b->turned, &b->host, &b->pinned};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    mf_tensor_release(*all[i]);
    *all[i] = NULL;
  }
}

static void transfers(bench *b, int64_t side) {
  b->big = create(b->device, side);
  b->other = create(b->device, side);
  b->host = create((DLDevice){kDLCPU, 0}, side);
  b->pinned = create((DLDevice){(DLDeviceType)other_pinned_type(), 0}, side);
  b->columns = half_of(b->big, side);
  b->other_columns = half_of(b->other, side);
  OK(mf_tensor_permute_dims(b->big, NULL, 0, &b->turned, &err));
  speed("pinned to device", pinned_to_device, b, b->big, "the link");
  speed("pageable to device", copy_to_device, b, b->big, ">= 0.9 of pinned");
  speed("device to pinned", pinned_to_host, b, b->big, "the link");
  speed("device to pageable", copy_to_host, b, b->big, ">= 0.9 of pinned");
  speed("on the device, plain", plain_on_device, b, b->big, "the memory");
  speed("on the device, half rows", columns_on_device, b, b->columns, ">= 0.85 of plain");
  speed("on the device, transposed", turned_on_device, b, b->big, ">= 0.85 of plain");
  drop_large(b);
}

static void release(bench *b) {
  mf_tensor_release(b->t);
  OK(mf_stream_swap(&b->device, MF_STREAM_DEFAULT, NULL, &err));
  OK(mf_stream_destroy(&b->device, b->a, &err));
  OK(mf_stream_destroy(&b->device, b->b, &err));
  OK(mf_pool_trim(&b->device, &err));
}

int main(void) {
  bench b = {0};
  if (!other_open()) return 77;
  b.device = (DLDevice){(DLDeviceType)other_device_type(), 0};
  OK(mf_stream_create(&b.device, &b.a, &err));
  OK(mf_stream_create(&b.device, &b.b, &err));
  OK(mf_stream_swap(&b.device, b.a, NULL, &err));
  b.t = create(b.device, 256);
  host_cost(&b);
  if (other_is_simulated()) now_at = (effort){.repeats = 1, .side = 256, .real = false};
  row("acquire, another stream", least(two_streams, &b, now_at.real ? LOOPS : 10) / 2, "ns", "<= 250");
  transfers(&b, now_at.side / 2);
  transfers(&b, now_at.side);
  release(&b);
  return 0;
}
