/* chance_spec.c: programs at random whose every value is known: tensors of both GPUs, of pinned and managed memory and
 * of the host, views of them, casts, other libraries' work, captured copies, trims, streams; by one thread and by
 * several, with tensors of their own or of them all, which a lock of the host's alone guards; with driver calls and
 * allocations that fail now and then. What failed is told, and with the failure that was asked for; what is not told to
 * have failed holds the values that it must; nothing is unordered, nothing is left. */
#include "device.h"

#include "chance.h"
#include "chance_actor.h"
#include "chance_guests.h"

enum { SHARED = 1, FAILING = 2 }; /* of a program */

/* Steps: each returns -1 for what must not be */

static int make(actor *a, item *x) {
  static int64_t shape[] = {ROWS, COLUMNS};
  const DLTensor like = {.device = any_device(a), .ndim = 2, .dtype = dtypes[below(a, COUNT(dtypes))], .shape = shape};
  mf_tensor *t;
  const int rc = outcome(a, mf_tensor_create(&like, 0, &t, &a->err), "create");
  if (rc != 0) return rc;
  if (x->t != NULL && drop(a, x) != 0) {
    mf_tensor_release(t);
    return -1;
  }
  x->t = t;
  return fill_whole(a, x);
}

static int move(actor *a, item *x, item *to) {
  const mf_request request = {.device = any_device(a), .copy = MF_COPY_ALWAYS};
  mf_tensor *t;
  if (to->graphs != 0 || to == x) return 0;
  const int rc = outcome(a, mf_tensor_to(x->t, &request, &t, &a->err), "to");
  if (rc != 0) return rc;
  if (to->t != NULL && drop(a, to) != 0) {
    mf_tensor_release(t);
    return -1;
  }
  to->t = t;
  memcpy(to->values, x->values, sizeof to->values);
  return 0;
}

static int copy(actor *a, item *dst, item *src) {
  const int64_t shape[] = {1 + (int64_t)below(a, ROWS), 1 + (int64_t)below(a, COLUMNS)};
  const window to = any_window(&a->random, shape), from = any_window(&a->random, shape);
  mf_tensor *dst_view, *src_view;
  if (view(a, dst, &to, shape, &dst_view) != 0) return -1;
  if (view(a, src, &from, shape, &src_view) != 0) {
    mf_tensor_release(dst_view);
    return -1;
  }
  const int rc = outcome(a, mf_tensor_astype(dst_view, src_view, &a->err), "copy");
  mf_tensor_release(dst_view);
  mf_tensor_release(src_view);
  if (rc == 0) model_copy(dst, &to, src, &from, shape);
  return rc == 1 ? fill_whole(a, dst) : rc;
}

static int put_one(actor *a, item *x) {
  const mf_scalar v = {.kind = MF_KIND_UINT, .u = below(a, 200)};
  const int64_t at[] = {(int64_t)below(a, ROWS), (int64_t)below(a, COLUMNS)};
  const int rc = outcome(a, mf_tensor_put(x->t, at, 2, &v, &a->err), "put");
  if (rc == 0) x->values[at[0] * COLUMNS + at[1]] = (int32_t)v.u;
  return rc == 1 ? fill_whole(a, x) : rc;
}

static bool is_bytes_on_gpu(const item *x) {
  return on_gpu(x->t) && mf_tensor_dltensor(x->t)->dtype.bits == 8;
}

static int other_writes(actor *a, item *x) {
  const int g = gpu_of(x->t), byte = (int)below(a, 200);
  const mf_stream s = any_stream(a, g);
  int rc;
  INSIST(a, rc, mf_tensor_acquire(x->t, s, MF_WRITE, &a->err));
  if (rc != 0) return -1;
  other_fill(g, data_of(x->t), byte, CELLS, s);
  written(x, byte);
  if (below(a, 2) == 0) INSIST(a, rc, mf_tensor_record(x->t, s, MF_WRITE, &a->err));
  return rc;
}

/* A consumer uses it at once, and lets go of it some time later. */
static int give(actor *a, item *x) {
  DLManagedTensorVersioned **place = &a->given[below(a, NGIVEN)];
  const int g = gpu_of(x->t), byte = (int)below(a, 200);
  const mf_request request = {.stream = any_stream(a, g)};
  if (*place != NULL) (*place)->deleter(*place);
  *place = NULL;
  const int rc = outcome(a, mf_tensor_export_to(x->t, &request, place, &a->err), "export");
  if (rc != 0) return rc;
  other_fill(g, data_of(x->t), byte, CELLS, request.stream);
  written(x, byte);
  return 0;
}

static int upkeep(actor *a) {
  const int g = (int)below(a, (uint64_t)gpus());
  const DLDevice device = gpu(g);
  const mf_stream s = any_stream(a, g), other = any_stream(a, g);
  int32_t done;
  switch (below(a, 8)) {
    case 0: return outcome(a, mf_pools_trim((int32_t)below(a, 2), &a->err), "trim");
    case 1: return outcome(a, mf_pool_trim(&device, &a->err), "trim of one");
    case 2: return outcome(a, mf_stream_synchronize(&device, s, &a->err), "synchronize");
    case 3: return outcome(a, mf_stream_query(&device, s, &done, &a->err), "query");
    case 4: return outcome(a, mf_stream_wait(&device, s, &device, other, &a->err), "wait");
    default: return outcome(a, mf_stream_swap(&device, s, NULL, &a->err), "swap");
  }
}

/* Captured copies */

static int end_graph(actor *a, graph *g) {
  int rc = 0;
  for (int i = 0; i < NOWN && rc >= 0; i++) {
    const DLDevice device = gpu(g->gpu);
    INSIST(a, rc, mf_stream_synchronize(&device, a->streams[g->gpu][i], &a->err)); /* it may be under way */
  }
  if (g->launches != NULL) other_graph_end(g->gpu, g->launches);
  mf_tensor_release(g->dst_view);
  mf_tensor_release(g->src_view);
  g->dst->graphs--;
  g->src->graphs--;
  g->launches = NULL;
  return rc;
}

static int launch(actor *a, graph *g) {
  const mf_stream s = own_stream(a, g->gpu);
  int rc;
  INSIST(a, rc, mf_tensor_acquire(g->src->t, s, MF_READ, &a->err));
  if (rc == 0) INSIST(a, rc, mf_tensor_acquire(g->dst->t, s, MF_WRITE, &a->err));
  if (rc != 0) return -1;
  other_launch(g->gpu, g->launches, s);
  launched++;
  model_copy(g->dst, &g->to, g->src, &g->from, g->shape);
  INSIST(a, rc, mf_tensor_record(g->src->t, s, MF_READ, &a->err));
  if (rc == 0) INSIST(a, rc, mf_tensor_record(g->dst->t, s, MF_WRITE, &a->err));
  return rc;
}

/* Returns whether the graph has the copy. */
static bool captured_copy(actor *a, graph *g, int *rc) {
  const mf_stream s = own_stream(a, g->gpu);
  const DLDevice device = gpu(g->gpu);
  mf_stream before;
  INSIST(a, *rc, mf_tensor_acquire(g->src->t, s, MF_READ, &a->err));
  if (*rc == 0) INSIST(a, *rc, mf_tensor_acquire(g->dst->t, s, MF_WRITE, &a->err));
  if (*rc == 0) INSIST(a, *rc, mf_stream_swap(&device, s, &before, &a->err));
  if (*rc == 0) INSIST(a, *rc, mf_stream_synchronize(&device, s, &a->err)); /* the copy waits for nothing from before */
  if (*rc != 0) return false;
  other_capture(g->gpu, s);
  const int copied = mf_tensor_astype(g->dst_view, g->src_view, &a->err);
  *rc = copied == MF_ECAPTURE ? 1 : outcome(a, copied, "captured copy");
  g->launches = other_capture_end(g->gpu, s);
  int back;
  INSIST(a, back, mf_stream_swap(&device, before, NULL, &a->err));
  if (back != 0) *rc = back;
  return *rc == 0;
}

static int capture(actor *a, graph *g, item *dst, item *src) {
  int rc;
  *g = (graph){.dst = dst, .src = src, .gpu = gpu_of(dst->t),
               .shape = {1 + (int64_t)below(a, ROWS), 1 + (int64_t)below(a, COLUMNS)}};
  g->to = any_window(&a->random, g->shape);
  g->from = any_window(&a->random, g->shape);
  if (view(a, dst, &g->to, g->shape, &g->dst_view) != 0) return -1;
  if (view(a, src, &g->from, g->shape, &g->src_view) != 0) {
    mf_tensor_release(g->dst_view);
    return -1;
  }
  dst->graphs++;
  src->graphs++;
  if (captured_copy(a, g, &rc)) return 0;
  return end_graph(a, g) < 0 || rc < 0 ? -1 : 0;
}

static int graph_step(actor *a, graph *g, item *x, item *y) {
  if (g->launches != NULL) return below(a, 3) != 0 ? launch(a, g) : end_graph(a, g);
  if (x == y || !on_gpu(x->t) || !on_gpu(y->t) || gpu_of(x->t) != gpu_of(y->t)) return 0;
  return capture(a, g, x, y);
}

/* Programs */

typedef enum kind {
  UPKEEP, MAKE, PUT, FILL, WRITE, GIVE, LEND, ALIAS, ON_NEW, VISIT, HOST, CHECK, COMPARE, MOVE, COPY, GRAPH
} kind;

static const kind kinds[] = {MAKE, UPKEEP, UPKEEP, CHECK, COMPARE, PUT,  FILL, WRITE, WRITE, GIVE,  GIVE,  LEND,  LEND,
                             ALIAS, ON_NEW, VISIT, HOST,  MOVE,    COPY, COPY, COPY,  COPY,  COPY,  GRAPH, GRAPH, GRAPH,
                             GRAPH};

/* By somebody else. */
static int change_bytes(actor *a, kind what, item *x) {
  if (!is_bytes_on_gpu(x)) return 0;
  switch (what) {
    case WRITE: return other_writes(a, x);
    case GIVE: return give(a, x);
    case ALIAS: return alias(a, x);
    default: return visit(a, x);
  }
}

static int change(actor *a, kind what, item *x) {
  switch (what) {
    case PUT: return put_one(a, x);
    case FILL: return fill_whole(a, x);
    case ON_NEW: return on_gpu(x->t) ? fill_on_a_new_stream(a, x) : 0;
    case HOST: return on_gpu(x->t) ? 0 : host_writes(a, x);
    case MAKE: return x->graphs == 0 ? make(a, x) : 0;
    case LEND: return x->graphs == 0 ? lend(a, x) : 0;
    default: return change_bytes(a, what, x);
  }
}

static bool only_reads(kind what) {
  return what == CHECK || what == COMPARE || what == MOVE;
}

/* With x, or with x and y. */
static int step_on(actor *a, kind what, graph *g, item *x, item *y) {
  if (what == UPKEEP) return upkeep(a);
  if (x->t == NULL) return only_reads(what) ? 0 : make(a, x);
  if (what < CHECK) return change(a, what, x);
  if (what == CHECK) return check_item(a, x);
  if (what == COMPARE) return compare(a, x);
  if (what == MOVE) return move(a, x, y);
  if (y->t == NULL) return 0;
  return what == COPY ? copy(a, x, y) : graph_step(a, g, x, y);
}

/* Nobody uses tensors of a stream whose capture another thread begins: no driver call asks about a capture and does
 * something, so that one which begins between the two is broken. */
static pthread_rwlock_t captured = PTHREAD_RWLOCK_INITIALIZER;

static int step(actor *a) {
  item *x = &a->items[below(a, NITEMS)], *y = &a->items[below(a, NITEMS)];
  const kind what = kinds[below(a, COUNT(kinds))];
  graph *g = &a->graphs[below(a, NGRAPHS)];
  if (what == GRAPH && g->launches != NULL) {
    x = g->dst;
    y = g->src;
  }
  hold h = {.x = what == UPKEEP ? NULL : x, .y = what < MOVE ? NULL : y, .writes_x = !only_reads(what),
            .writes_y = what == MOVE};
  const bool captures = what == GRAPH && g->launches == NULL;
  let_one_fail(a);
  steps++;
  if (a->shares) (captures ? pthread_rwlock_wrlock : pthread_rwlock_rdlock)(&captured);
  hold_begin(&h);
  const int rc = step_on(a, what, g, x, y);
  hold_end(&h);
  if (a->shares) pthread_rwlock_unlock(&captured);
  return rc;
}

static int check_all(actor *a) {
  int rc = 0;
  for (int i = 0; i < NITEMS; i++) {
    if (a->items[i].t != NULL && rc == 0) rc = check_item(a, &a->items[i]);
    mf_tensor_release(a->items[i].t);
    a->items[i].t = NULL;
  }
  return rc;
}

static int finish(actor *a) {
  int rc = 0;
  for (int i = 0; i < NGIVEN; i++)
    if (a->given[i] != NULL) a->given[i]->deleter(a->given[i]);
  for (int i = 0; i < NGRAPHS; i++)
    if (a->graphs[i].launches != NULL && end_graph(a, &a->graphs[i]) != 0) rc = -1;
  if (!a->shares && check_all(a) != 0) rc = -1;
  for (int g = 0; g < gpus() && rc == 0; g++) {
    const DLDevice device = gpu(g);
    INSIST(a, rc, mf_stream_swap(&device, MF_STREAM_DEFAULT, NULL, &a->err));
  }
  return rc;
}

static void *act(void *arg) {
  actor *a = arg;
  int rc = 0;
  for (a->step = 0; a->step < STEPS && rc >= 0; a->step++) rc = step(a);
  mf_fault_arm(-1, 0);
  a->failing = a->failing && rc >= 0;
  return rc < 0 || finish(a) != 0 ? a : NULL;
}

/* A capture of a blocking stream forbids the legacy stream to all threads, also to those that capture nothing. */
static void open_streams(actor *a) {
  for (int g = 0; g < gpus(); g++)
    for (int i = 0; i < NOWN; i++) a->streams[g][i] = other_stream(g, a->alone && i == 0);
}

static void open_items(item *items) {
  for (int i = 0; i < NITEMS; i++) {
    items[i] = (item){0};
    assert_int_equal(pthread_rwlock_init(&items[i].lock, NULL), 0);
  }
}

static void open_actors(actor *actors, uint64_t seed, int nthreads, int mode) {
  static item items[NTHREADS][NITEMS];
  const bool shares = mode & SHARED;
  for (int i = 0; i < nthreads; i++) {
    actors[i] = (actor){.random = seed_of(seed) * NTHREADS + (uint64_t)i, .alone = nthreads == 1,
                        .failing = mode & FAILING, .shares = shares, .items = items[shares ? 0 : i]};
    open_items(actors[i].items);
    open_streams(&actors[i]);
    open_guests(&actors[i]);
  }
}

/* Returns who says that something is wrong. */
static const actor *run(actor *actors, int nthreads, bool shares) {
  pthread_t threads[NTHREADS];
  const actor *wrong = NULL;
  for (int i = 0; i < nthreads; i++) assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
  for (int i = 0; i < nthreads; i++) {
    void *one;
    assert_int_equal(pthread_join(threads[i], &one), 0);
    if (wrong == NULL) wrong = one;
  }
  return wrong == NULL && shares && check_all(&actors[0]) != 0 ? &actors[0] : wrong;
}

static void program(uint64_t seed, int nthreads, int mode) {
  static actor actors[NTHREADS];
  sim_ask_seed(seed);
  told = 0;
  rules = 0;
  open_actors(actors, seed, nthreads, mode);
  const actor *wrong = run(actors, nthreads, mode & SHARED);
  if (wrong != NULL) fail_msg("seed %llu: %s", (unsigned long long)seed, wrong->wrong);
  if (sim_ask_findings() != 0) fail_msg("seed %llu", (unsigned long long)seed);
  assert_true(told <= (int64_t)sim_ask_faults()); /* each is told once at most */
  sim_ask_reset();
  sync_all();
  for (int i = 0; i < nthreads; i++)
    for (int g = 0; g < gpus(); g++)
      for (int s = 0; s < NOWN; s++) other_stream_end(actors[i].streams[g][s]);
  for (int g = 0; g < gpus(); g++) synchronize(g); /* for memory whose events could not be recorded twice */
  trim_all(); /* which calls the last deleters */
  for (int i = 0; i < nthreads; i++) close_guests(&actors[i]);
  nothing_left();
}

static void programs(int nthreads, int mode) {
  const uint64_t n = seeds(10);
  const bool failing = mode & FAILING;
  if (failing) needs_simulator();
  steps = launched = failed = starved = 0;
  for (uint64_t seed = 0; seed < n; seed++) program(seed, nthreads, mode);
  assert_int_equal(steps, (int64_t)n * nthreads * STEPS);
  assert_true(launched > 0);
  assert_true(!failing || (failed > (int64_t)n && starved > 0));
}

#define PROGRAMS(name, nthreads, mode) \
  static void name(void **state) {     \
    (void)state;                       \
    programs(nthreads, mode);          \
  }

PROGRAMS(by_one_thread, 1, 0)
PROGRAMS(by_several_threads, NTHREADS, 0)
PROGRAMS(by_threads_that_share_tensors, NTHREADS, SHARED)
PROGRAMS(by_one_thread_with_failures, 1, FAILING)
PROGRAMS(by_several_threads_with_failures, NTHREADS, FAILING)
PROGRAMS(by_threads_that_share_tensors_with_failures, NTHREADS, SHARED | FAILING)

/* The driver calls of other libraries succeed. */
int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(by_one_thread),
      SPEC(by_several_threads),
      SPEC(by_threads_that_share_tensors),
      SPEC(by_one_thread_with_failures),
      SPEC(by_several_threads_with_failures),
      SPEC(by_threads_that_share_tensors_with_failures),
  };
  (void)setenv("SIM_FAIL_OF", "libmoonferry", 1);
  return RUN(tests);
}
