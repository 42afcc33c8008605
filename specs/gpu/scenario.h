/* scenario.h: what an exchange holds while any of its driver calls may fail, so that it can end anywhere; and its
 * steps, each of which checks what must be so after a failure: outputs are NULL, and what was given is still the
 * caller's. */
#ifndef MOONFERRY_SPEC_SCENARIO_H
#define MOONFERRY_SPEC_SCENARIO_H

#include "device.h"

enum { MAX_TENSORS = 24, MAX_GIVEN = 8, ROWS = 16, COLUMNS = 16, LOAN_NBYTES = ROWS * COLUMNS, NBYTES = 1024 };

/* Somebody's memory. Pinned memory is written at once by the deleter: whoever still uses it then is found out. */
typedef struct loan {
  DLManagedTensorVersioned managed;
  int64_t shape[2], strides[2];
  int deleted;
  bool taken, pinned;
} loan;

typedef struct held {
  mf_tensor *tensors[MAX_TENSORS];
  DLManagedTensorVersioned *given[MAX_GIVEN];
  DLManagedTensor *legacy;
  loan loans[2];     /* on gpu 0, pinned */
  mf_stream ours[2]; /* made before anything fails */
  mf_stream made;    /* by the scenario itself */
  int64_t theirs;
  int ntensors, ngiven;
  bool captured;
} held;

typedef struct scenario {
  const char *name;
  int least; /* driver calls */
  int (*play)(held *h);
  bool loans, captured, peers;
} scenario;

#define STEP(call)                \
  do {                            \
    if (rc == MF_OK) rc = (call); \
  } while (0)

/* Loans */

static void loan_deleter(DLManagedTensorVersioned *self) {
  loan *l = (loan *)self;
  l->deleted++;
  if (l->pinned) sim_ask_host(l->managed.dl_tensor.data, LOAN_NBYTES, true);
}

static inline void loan_open(loan *l, bool is_pinned, mf_stream ready_on) {
  *l = (loan){.shape = {ROWS, COLUMNS}, .strides = {COLUMNS, 1}, .pinned = is_pinned};
  l->managed.version = (DLPackVersion){1, 0};
  l->managed.deleter = loan_deleter;
  l->managed.dl_tensor = (DLTensor){.data = is_pinned ? other_pinned(LOAN_NBYTES) : other_alloc(0, LOAN_NBYTES),
                                    .device = is_pinned ? pinned() : gpu(0), .ndim = 2,
                                    .dtype = {kDLUInt, 8, 1}, .shape = l->shape, .strides = l->strides};
  other_fill(0, l->managed.dl_tensor.data, 7, LOAN_NBYTES, ready_on);
  /* The lender waits for work of its own, which no consumer looks after, before its deleter uses the memory. */
  if (is_pinned) other_sync(0, ready_on);
}

static inline void loan_close(loan *l) {
  void *data = l->managed.dl_tensor.data;
  if (data == NULL) return;
  if (l->deleted != l->taken) fail_msg("the deleter was called %d times, not %d", l->deleted, l->taken);
  if (l->pinned) other_pinned_free(data);
  else other_free(0, data);
}

/* Begin and end, while the driver works */

static inline void held_open(held *h, const scenario *s) {
  for (int i = 0; i < 2; i++) h->ours[i] = stream_new(0);
  h->theirs = other_stream(0, false);
  use_stream(0, h->ours[0]);
  for (int i = 0; i < 2 && s->loans; i++) loan_open(&h->loans[i], i == 1, h->ours[0]);
  if (!s->captured) return;
  for (int i = 0; i < 3; i++) fill(h->tensors[h->ntensors++] = create(gpu(0), NBYTES), 1);
  mf_tensor *elsewhere = h->tensors[h->ntensors++] = create(gpu(0), NBYTES);
  OK(mf_tensor_acquire(elsewhere, h->ours[1], MF_WRITE, &err));
  other_sync(0, h->ours[1]);
  other_capture(0, h->ours[0]);
  h->captured = true;
}

/* A stream of the tensor's own device. In a capture the fourth tensor is still the other stream's. */
static inline void use_once_more(held *h, int i) {
  mf_tensor *t = h->tensors[i];
  const DLDevice device = mf_tensor_dltensor(t)->device;
  const bool second = device.device_type == gpu(0).device_type && device.device_id == 1;
  const mf_stream mine = h->captured && i == 3 ? h->ours[1] : h->ours[0];
  if (device.device_type == kDLCPU) OK(mf_tensor_acquire(t, h->captured ? MF_STREAM_NO_ORDER : 0, MF_READ, &err));
  else OK(mf_tensor_acquire(t, second ? MF_STREAM_DEFAULT : mine, MF_READ, &err));
}

/* Whatever happened while something failed, what is still held can be used. */
static inline void held_use(held *h) {
  for (int i = 0; i < h->ntensors; i++) use_once_more(h, i);
}

/* Also while the driver fails. */
static inline void held_let_go(held *h) {
  for (int i = 0; i < h->ngiven; i++) h->given[i]->deleter(h->given[i]);
  if (h->legacy != NULL) h->legacy->deleter(h->legacy);
  for (int i = 0; i < h->ntensors; i++) mf_tensor_release(h->tensors[i]);
  h->legacy = NULL;
  h->ngiven = h->ntensors = 0;
}

static inline void held_close(held *h, const scenario *s) {
  const DLDevice first = gpu(0), host = pinned();
  (void)s;
  if (h->captured) other_graph_end(0, other_capture_end(0, h->ours[0]));
  OK(mf_pool_limit(&first, 0, &err));
  OK(mf_pool_limit(&host, 0, &err));
  use_stream(0, MF_STREAM_DEFAULT);
  /* What could not be asked whether it is done is given back when the whole device is. */
  for (int ordinal = 0; ordinal < other_devices(); ordinal++) {
    const DLDevice device = gpu(ordinal);
    OK(mf_device_synchronize(&device, &err));
  }
  give_all_back();
  for (int i = 0; i < 2; i++) stream_end(0, h->ours[i]);
  if (h->made != 0) stream_end(0, h->made);
  other_stream_end(h->theirs);
  for (int i = 0; i < 2; i++) loan_close(&h->loans[i]);
}

/* Steps */

static inline int keep(held *h, int rc, mf_tensor **out) {
  if (rc == MF_OK) h->tensors[h->ntensors++] = *out;
  else if (*out != NULL) fail_msg("what a failure gives out is not NULL: %s", err.message);
  return rc;
}

static inline int make(held *h, DLDevice device, const char *dtype, int64_t rows, mf_tensor **out) {
  int64_t shape[] = {rows, COLUMNS};
  DLTensor like = {.device = device, .ndim = 2, .shape = shape};
  OK(mf_dtype_parse(dtype, &like.dtype, NULL));
  return keep(h, mf_tensor_create(&like, 0, out, &err), out);
}

static inline int to(held *h, mf_tensor *t, DLDevice device, mf_tensor **out) {
  const mf_request request = {.device = device, .copy = MF_COPY_ALWAYS};
  return keep(h, mf_tensor_to(t, &request, out, &err), out);
}

static inline int turned(held *h, mf_tensor *t, mf_tensor **out) {
  return keep(h, mf_tensor_permute_dims(t, NULL, 0, out, &err), out);
}

/* Every second column. */
static inline int thinned(held *h, mf_tensor *t, mf_tensor **out) {
  const mf_index items[] = {{.kind = MF_INDEX_ELLIPSIS},
                            {.kind = MF_INDEX_SLICE, .start = 0, .stop = MF_INDEX_NONE, .step = 2}};
  return keep(h, mf_tensor_index(t, items, 2, out, &err), out);
}

static inline int give(held *h, mf_tensor *t, mf_stream stream) {
  const mf_request request = {.stream = stream};
  DLManagedTensorVersioned **out = &h->given[h->ngiven];
  const int rc = mf_tensor_export_to(t, &request, out, &err);
  if (rc == MF_OK) h->ngiven++;
  else if (*out != NULL) fail_msg("what a failure gives out is not NULL: %s", err.message);
  return rc;
}

static inline int take(held *h, loan *l, mf_tensor **out) {
  const int rc = mf_tensor_import(&l->managed, out, &err);
  l->taken = rc == MF_OK;
  return keep(h, rc, out);
}

static inline int fill_with(mf_tensor *t, double value) {
  const mf_scalar v = {.kind = MF_KIND_FLOAT, .f = value};
  return mf_tensor_fill(t, &v, &err);
}

static inline int expect_byte(const mf_tensor *t, int64_t at, int want) {
  const unsigned char *bytes = mf_tensor_dltensor(t)->data;
  if (bytes[at] != want) fail_msg("byte %d is %#x, not %#x", (int)at, bytes[at], want);
  return MF_OK;
}

#endif
