/* chance_guests.h: steps of programs at random (chance_spec.c) with memory and streams that come from somebody else or
 * do not stay, and with the host. Each returns -1 for what must not be. chance_actor.h comes first. */
#ifndef GPU_CHANCE_GUESTS_H
#define GPU_CHANCE_GUESTS_H

/* Memory of others */

/* Another thread than the one that saw the last work done may call it. They meet at a list without a lock, which a
 * simulator that takes threads as separate does not see. */
static bool deleter_is_seen_in_order(void) {
  const char *threads = getenv("SIM_THREADS");
  return threads == NULL || strcmp(threads, "separate") != 0;
}

static void take_back(DLManagedTensorVersioned *self) {
  guest *g = (guest *)self;
  if (deleter_is_seen_in_order()) other_fill(g->gpu, g->managed.dl_tensor.data, 201, CELLS, g->stream);
  g->returned++;
}

/* Made beforehand: other libraries may not allocate while somebody captures. */
static void open_guests(actor *a) {
  for (int i = 0; i < NGUESTS; i++) {
    guest *g = &a->guests[i];
    *g = (guest){.shape = {ROWS, COLUMNS}, .gpu = i % gpus()};
    g->stream = other_stream(g->gpu, false);
    g->managed = (DLManagedTensorVersioned){.version = {1, 0}, .deleter = take_back};
    g->managed.dl_tensor = (DLTensor){.data = other_alloc(g->gpu, CELLS), .device = gpu(g->gpu), .ndim = 2,
                                      .dtype = {kDLUInt, 8, 1}, .shape = g->shape};
  }
  for (int i = 0; i < NVISITORS; i++) a->visitors[i] = other_stream(0, false);
}

/* All deleters were called. */
static void close_guests(actor *a) {
  for (int i = 0; i < NGUESTS; i++) {
    guest *g = &a->guests[i];
    other_sync(g->gpu, g->stream);
    assert_int_equal(g->returned, g->lent);
    other_free(g->gpu, g->managed.dl_tensor.data);
    other_stream_end(g->stream);
  }
  for (int i = 0; i < NVISITORS; i++)
    if (a->visitors[i] != 0) other_stream_end(a->visitors[i]);
}

static int swap_in(actor *a, int g, mf_stream s, mf_stream *before) {
  const DLDevice device = gpu(g);
  int rc;
  INSIST(a, rc, mf_stream_swap(&device, s, before, &a->err));
  return rc;
}

/* The producer has written it on what is the current stream, and looks after that itself. */
static int lend(actor *a, item *x) {
  guest *g = &a->guests[below(a, NGUESTS)];
  const mf_stream s = any_stream(a, g->gpu);
  const int byte = (int)below(a, 200);
  mf_stream before;
  mf_tensor *t;
  if (g->lent) return 0;
  if (swap_in(a, g->gpu, s, &before) != 0) return -1;
  other_after(g->gpu, s, g->stream); /* where the import failed the last time */
  other_fill(g->gpu, g->managed.dl_tensor.data, byte, CELLS, s);
  other_after(g->gpu, g->stream, s);
  const int rc = outcome(a, mf_tensor_import(&g->managed, &t, &a->err), "import");
  g->lent = rc == 0;
  if (swap_in(a, g->gpu, before, NULL) != 0 || rc < 0) return -1;
  if (rc != 0) return 0;
  const int dropped = drop(a, x);
  x->t = t;
  written(x, byte);
  return dropped;
}

/* Memory of ours comes back through another library, and is written by way of that tensor, on another stream. */
static int alias(actor *a, item *x) {
  const int g = gpu_of(x->t);
  const mf_request request = {.stream = any_stream(a, g)};
  DLManagedTensorVersioned *m;
  mf_stream before;
  mf_tensor *t = NULL;
  int rc = outcome(a, mf_tensor_export_to(x->t, &request, &m, &a->err), "export");
  if (rc != 0) return rc;
  if (swap_in(a, g, any_stream(a, g), &before) != 0) return -1;
  rc = outcome(a, mf_tensor_import(m, &t, &a->err), "import of ours");
  if (rc != 0) m->deleter(m);
  if (rc == 0) {
    item same = {.t = t};
    rc = fill_whole(a, &same);
    memcpy(x->values, same.values, sizeof x->values);
    mf_tensor_release(t);
  }
  return swap_in(a, g, before, NULL) != 0 ? -1 : rc;
}

/* Streams that do not stay */

static int fill_on_a_new_stream(actor *a, item *x) {
  const int g = gpu_of(x->t);
  const DLDevice device = gpu(g);
  mf_stream s, before;
  int rc = outcome(a, mf_stream_create(&device, &s, &a->err), "stream"), gone;
  if (rc != 0) return rc;
  if (swap_in(a, g, s, &before) != 0) return -1;
  rc = fill_whole(a, x);
  if (swap_in(a, g, before, NULL) != 0) return -1;
  INSIST(a, gone, mf_stream_destroy(&device, s, &a->err));
  return gone != 0 ? gone : rc;
}

/* A consumer's stream may end as soon as the consumer has let go. Where an event cannot be recorded then, the memory
 * stays refused until the program waits for the device, which is not modelled here. */
static int visit(actor *a, item *x) {
  int64_t *s = &a->visitors[below(a, NVISITORS)];
  const int byte = (int)below(a, 200);
  DLManagedTensorVersioned *m;
  if (*s == 0 || gpu_of(x->t) != 0 || a->failing) return 0;
  const mf_request request = {.stream = *s};
  const int rc = outcome(a, mf_tensor_export_to(x->t, &request, &m, &a->err), "export to a visitor");
  if (rc != 0) return rc;
  other_fill(0, data_of(x->t), byte, CELLS, *s);
  written(x, byte);
  m->deleter(m);
  other_stream_end(*s);
  *s = 0;
  return 0;
}

/* The host */

static int host_writes(actor *a, item *x) {
  const int byte = (int)below(a, 200);
  const int nbytes = mf_tensor_dltensor(x->t)->dtype.bits / 8;
  unsigned char *p = data_of(x->t);
  int rc;
  INSIST(a, rc, mf_tensor_acquire(x->t, MF_STREAM_HOST, MF_WRITE, &a->err));
  if (rc != 0) return rc;
  memset(p, 0, (size_t)CELLS * (size_t)nbytes);
  for (int i = 0; i < CELLS; i++) p[i * nbytes] = (unsigned char)byte;
  written(x, byte);
  return 0;
}

static int expect_same(actor *a, const item *x, const mf_tensor *t, bool expected) {
  int32_t same;
  const int rc = outcome(a, mf_tensor_equal(x->t, t, &same, &a->err), "compare");
  if (rc != 0 || (same != 0) == expected) return rc;
  (void)snprintf(a->wrong, sizeof a->wrong, "step %d: a comparison says %d", a->step, (int)same);
  return -1;
}

/* A copy is the same, until an element of it changes. */
static int compare(actor *a, const item *x) {
  const mf_request request = {.device = any_device(a), .copy = MF_COPY_ALWAYS};
  const int64_t at[] = {(int64_t)below(a, ROWS), (int64_t)below(a, COLUMNS)};
  const mf_scalar other = {.kind = MF_KIND_UINT, .u = (uint64_t)x->values[at[0] * COLUMNS + at[1]] ^ 1};
  mf_tensor *t;
  int rc = outcome(a, mf_tensor_to(x->t, &request, &t, &a->err), "to");
  if (rc != 0) return rc;
  rc = expect_same(a, x, t, true);
  if (rc == 0) rc = outcome(a, mf_tensor_put(t, at, 2, &other, &a->err), "put");
  if (rc == 0) rc = expect_same(a, x, t, false);
  mf_tensor_release(t);
  return rc;
}

#endif
