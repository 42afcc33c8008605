/* exchanges.h: eleven exchanges, each a play of steps that ends at the first failure: of a driver call
 * (scenario_spec.c), of an allocation on the host (host_memory_spec.c). */
#ifndef MOONFERRY_SPEC_EXCHANGES_H
#define MOONFERRY_SPEC_EXCHANGES_H

#include "scenario.h"

/* Every kind of memory, copies in every direction. */
static int copies(held *h) {
  const DLDevice device = gpu(0), cpu = {kDLCPU, 0};
  mf_tensor *a = NULL, *b = NULL, *c = NULL, *d = NULL, *e = NULL, *host = NULL;
  int rc = MF_OK;
  STEP(make(h, device, "uint8", ROWS, &a));
  STEP(try_fill(a, 5));
  STEP(make(h, pinned(), "uint8", ROWS, &b));
  STEP(mf_tensor_copy(b, a, &err));
  STEP(make(h, device, "uint8", ROWS, &c));
  STEP(turned(h, a, &d));
  STEP(mf_tensor_copy(c, d, &err));
  STEP(to(h, c, cpu, &host));
  STEP(expect_byte(host, 77, 5));
  STEP(to(h, host, device, &e));
  STEP(mf_tensor_acquire(b, MF_STREAM_HOST, MF_READ, &err));
  STEP(expect_byte(b, 77, 5));
  return rc;
}

static int fills(held *h) {
  static const char *const dtypes[] = {"uint8", "float32", "complex128", "uint4"};
  mf_tensor *t = NULL, *part = NULL, *host = NULL;
  int rc = MF_OK;
  for (size_t i = 0; i < COUNT(dtypes); i++) {
    STEP(make(h, gpu(0), dtypes[i], ROWS, &t));
    STEP(fill_with(t, 3));
    STEP(turned(h, t, &part));
    STEP(fill_with(part, 2));
    if (i < 3) STEP(thinned(h, t, &part));
    STEP(fill_with(part, 1));
  }
  STEP(to(h, h->tensors[0], (DLDevice){kDLCPU, 0}, &host));
  STEP(expect_byte(host, 6, 1));
  STEP(expect_byte(host, 7, 2));
  return rc;
}

/* A consumer on each sort of stream, none of them done when we go on. */
static int exports(held *h) {
  const DLDevice device = gpu(0);
  const mf_stream consumers[] = {MF_STREAM_CURRENT, MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD, MF_STREAM_NO_ORDER,
                                 h->ours[1], h->theirs};
  const mf_request last = {.stream = h->ours[1]};
  mf_tensor *t = NULL, *constant = NULL;
  DLTensor borrowed;
  int rc = MF_OK;
  STEP(make(h, device, "uint8", ROWS, &t));
  STEP(try_fill(t, 5));
  for (size_t i = 0; i < COUNT(consumers); i++) STEP(give(h, t, consumers[i]));
  STEP(keep(h, mf_tensor_as_readonly(t, &constant, &err), &constant));
  STEP(give(h, constant, h->ours[1]));
  STEP(mf_tensor_export_legacy_to(t, &last, &h->legacy, &err));
  STEP(mf_tensor_acquire(t, h->ours[0], MF_WRITE, &err));
  STEP(mf_tensor_borrow(t, &borrowed, &err));
  STEP(try_fill(t, 6));
  return rc;
}

/* Memory that the host shares: it waits, or a stream does. */
static int shared(held *h) {
  const mf_request on_cpu = {.device = {kDLCPU, 0}}, on_gpu = {.device = gpu(0), .stream = h->ours[1]};
  const int types[] = {other_pinned_type(), other_managed_type()};
  mf_scalar first = {0};
  int rc = MF_OK;
  for (size_t i = 0; i < COUNT(types) && types[i] != 0; i++) {
    const DLDevice device = {(DLDeviceType)types[i], 0};
    mf_tensor *t = NULL, *a = NULL, *view = NULL;
    STEP(make(h, device, "uint8", ROWS, &t));
    STEP(make(h, gpu(0), "uint8", ROWS, &a));
    STEP(try_fill(a, 8));
    STEP(mf_tensor_copy(t, a, &err));
    STEP(give(h, t, h->theirs));
    STEP(keep(h, mf_tensor_to(t, &on_cpu, &view, &err), &view));
    STEP(mf_tensor_get(view, (int64_t[]){1, 1}, 2, &first, &err));
    if (rc == MF_OK && first.u != 8) fail_msg("%d instead of 8", (int)first.u);
    if (i == 1) STEP(keep(h, mf_tensor_to(t, &on_gpu, &view, &err), &view));
    STEP(mf_tensor_copy(a, t, &err));
  }
  return rc;
}

/* Others' memory, used on a stream that it did not come on, and released while that is not done. */
static int imports(held *h) {
  mf_tensor *there = NULL, *shared_with_host = NULL, *copy = NULL;
  int rc = MF_OK;
  STEP(take(h, &h->loans[0], &there));
  STEP(take(h, &h->loans[1], &shared_with_host));
  STEP(mf_tensor_copy(there, shared_with_host, &err));
  STEP(mf_tensor_acquire(there, h->ours[1], MF_READ, &err));
  STEP(mf_tensor_acquire(shared_with_host, h->ours[1], MF_WRITE, &err));
  STEP(try_fill(shared_with_host, 9));
  STEP(give(h, there, h->theirs));
  STEP(mf_tensor_record(shared_with_host, h->theirs, MF_READ, &err));
  STEP(keep(h, mf_tensor_clone(there, &copy, &err), &copy));
  held_let_go(h); /* the deleters wait */
  STEP(make(h, gpu(0), "uint8", ROWS, &copy));
  STEP(mf_stream_synchronize(&(DLDevice){gpu(0).device_type, 0}, h->ours[0], &err));
  STEP(try_fill(copy, 4));
  return rc;
}

/* Everything that a capture allows. Three tensors are ready, a fourth was used elsewhere, where all is done. */
static int captured(held *h) {
  mf_tensor *view = NULL;
  int rc = MF_OK;
  STEP(mf_tensor_copy(h->tensors[1], h->tensors[0], &err));
  STEP(try_fill(h->tensors[0], 2));
  STEP(give(h, h->tensors[1], h->ours[0]));
  STEP(mf_tensor_copy(h->tensors[2], h->tensors[3], &err));
  STEP(turned(h, h->tensors[2], &view));
  STEP(mf_tensor_acquire(view, h->ours[0], MF_WRITE, &err));
  return rc;
}

/* The pool grows, gives blocks to other streams, comes to its limit and empties itself. */
static int growth(held *h) {
  enum { BLOCK = 512 };
  const DLDevice device = gpu(0);
  mf_tensor *t = NULL;
  int rc = MF_OK;
  STEP(mf_pool_limit(&device, 3 * BLOCK, &err));
  for (int i = 0; i < 3; i++) STEP(make(h, device, "uint8", ROWS, &t));
  for (int i = 0; i < h->ntensors; i++) STEP(try_fill(h->tensors[i], 1));
  STEP(mf_tensor_acquire(t, h->ours[1], MF_WRITE, &err));
  STEP(give(h, t, h->theirs));
  held_let_go(h);
  STEP(make(h, device, "uint8", ROWS, &t));
  STEP(mf_stream_swap(&device, h->ours[1], NULL, &err));
  STEP(make(h, device, "uint8", ROWS, &t));
  held_let_go(h);
  STEP(make(h, device, "uint8", 4 * ROWS, &t));
  STEP(try_fill(t, 1));
  STEP(make(h, pinned(), "uint8", ROWS, &t));
  STEP(mf_pool_trim(&device, &err));
  return rc;
}

/* The first columns: rows long enough for the driver's own pitched copies. */
static int narrowed(held *h, mf_tensor *t, mf_tensor **out) {
  const mf_index items[] = {{.kind = MF_INDEX_ELLIPSIS}, {.kind = MF_INDEX_SLICE, .start = 0, .stop = 12, .step = 1}};
  return keep(h, mf_tensor_index(t, items, 2, out, &err), out);
}

/* Above what goes through pinned memory in one piece: the staging buffers. */
static int staged(held *h) {
  enum { MANY = 700 };
  const DLDevice device = gpu(0), cpu = {kDLCPU, 0};
  mf_tensor *host = NULL, *there = NULL, *back = NULL, *view = NULL, *other = NULL;
  int rc = MF_OK;
  STEP(make(h, cpu, "uint8x8", MANY, &host));
  if (rc == MF_OK) memset(data_of(host), 3, (size_t)mf_tensor_nbytes(host));
  STEP(to(h, host, device, &there));
  STEP(to(h, there, cpu, &back));
  STEP(expect_byte(back, MANY * COLUMNS * 8 - 1, 3));
  STEP(narrowed(h, there, &view));
  STEP(to(h, view, cpu, &back));
  STEP(expect_byte(back, 9, 3));
  STEP(to(h, view, device, &other));
  STEP(mf_tensor_copy(view, back, &err));
  return rc;
}

/* What a lost device had queued never runs, and the other device's streams, which waited for it, go on. */
static bool may_be_lost;

static int peers(held *h) {
  const DLDevice device = gpu(0), next = gpu(1), cpu = {kDLCPU, 0};
  mf_tensor *a = NULL, *b = NULL, *view = NULL, *host = NULL;
  int rc = MF_OK;
  STEP(make(h, device, "uint8", ROWS, &a));
  STEP(try_fill(a, 5));
  STEP(to(h, a, next, &b));
  STEP(try_fill(b, 6));
  STEP(turned(h, b, &view));
  STEP(mf_tensor_copy(a, view, &err));
  STEP(thinned(h, b, &view));
  STEP(to(h, view, device, &b));
  STEP(mf_tensor_copy(view, b, &err));
  STEP(to(h, a, cpu, &host));
  if (!may_be_lost) STEP(expect_byte(host, 9, 6));
  return rc;
}

static int waits(held *h) {
  const DLDevice device = gpu(0);
  mf_tensor *t = NULL;
  int32_t done;
  int rc = MF_OK;
  STEP(mf_stream_create(&device, &h->made, &err));
  STEP(mf_stream_check(&device, h->theirs, &err));
  STEP(make(h, device, "uint8", ROWS, &t));
  STEP(mf_tensor_acquire(t, h->made, MF_WRITE, &err));
  STEP(mf_stream_wait(&device, h->ours[0], &device, h->made, &err));
  STEP(mf_stream_wait(&device, h->theirs, &device, h->ours[0], &err));
  STEP(mf_stream_query(&device, h->ours[0], &done, &err));
  STEP(mf_stream_synchronize(&device, h->theirs, &err));
  STEP(mf_device_synchronize(&device, &err));
  return rc;
}

/* Memory of ours that comes back, as an address and in both structs. */
static int returned(held *h) {
  const mf_request request = {.stream = h->theirs};
  mf_tensor *t = NULL, *back = NULL;
  int rc = MF_OK;
  STEP(make(h, gpu(0), "uint8", ROWS, &t));
  STEP(try_fill(t, 5));
  STEP(keep(h, mf_tensor_wrap(mf_tensor_dltensor(t), 0, NULL, NULL, &back, &err), &back));
  STEP(try_fill(back, 6));
  STEP(give(h, t, h->theirs));
  STEP(keep(h, mf_tensor_import(h->given[0], &back, &err), &back));
  if (rc == MF_OK) h->ngiven = 0;
  STEP(mf_tensor_acquire(back, h->ours[1], MF_WRITE, &err));
  STEP(mf_tensor_export_legacy_to(back, &request, &h->legacy, &err));
  STEP(keep(h, mf_tensor_import_legacy(h->legacy, &back, &err), &back));
  if (rc == MF_OK) h->legacy = NULL;
  STEP(try_fill(back, 7));
  return rc;
}

static scenario scenarios[] = {
    {"copies", 30, copies, false, false, false},  {"fills", 20, fills, false, false, false},
    {"exports", 20, exports, false, false, false}, {"shared", 20, shared, false, false, false},
    {"imports", 30, imports, true, false, false},  {"captured", 10, captured, false, true, false},
    {"growth", 30, growth, false, false, false},   {"staged", 20, staged, false, false, false},
    {"peers", 30, peers, false, false, true},      {"waits", 10, waits, false, false, false},
    {"returned", 10, returned, false, false, false},
};

/* One of them with nothing that fails. */
static void run_well(const scenario *s) {
  held h = {0};
  held_open(&h, s);
  OK(s->play(&h));
  held_let_go(&h);
  held_close(&h, s);
}

#endif
