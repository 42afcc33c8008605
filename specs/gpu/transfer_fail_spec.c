/* transfer_fail_spec.c: copies and fills in which a device takes part, with every driver call and every allocation of
 * the host failing in turn. Each way that a copy can go has a case. What is not told to have failed is there, whole;
 * whatever failed, nothing is lost or left behind, and the same copy then works. */
#include "places.h"

/* THIN: every second column. LEFT: the first half of each row. SLIDING: each row begins one element after the one
 * before, so that places repeat, and the last element to come to one stays. REPEATED, of MANY axes: turned, and the
 * first axis repeats. */
typedef enum layout { FLAT, TURNED, THIN, LEFT, SLIDING, REPEATED } layout;

/* So many axes that driver copies of two of them are too many: without a kernel, the host brings the elements into the
 * destination's order first. */
enum { MANY = 15 };

typedef struct copy_case {
  const char *name, *dtype;
  place from, to;
  layout src, dst;
  int64_t shape[2]; /* {0}: MANY axes of 2 */
  bool overlaps; /* both are views of the destination's memory */
} copy_case;

static const copy_case copies[] = {
    {"small up", "float32", CPU, GPU0, FLAT, FLAT, {3, 5}, false},
    {"small up, thin", "float32", CPU, GPU0, FLAT, THIN, {3, 5}, false},
    {"small down", "float32", GPU0, CPU, FLAT, FLAT, {3, 5}, false},
    {"small down, thin", "float32", GPU0, CPU, THIN, FLAT, {3, 5}, false},
    {"on the device", "float32", GPU0, GPU0, FLAT, FLAT, {3, 5}, false},
    {"on the device, turned", "float32", GPU0, GPU0, TURNED, FLAT, {6, 5}, false},
    {"on the device, to sliding", "float32", GPU0, GPU0, TURNED, SLIDING, {5, 6}, false},
    {"up, to sliding", "int16", CPU, GPU0, FLAT, SLIDING, {5, 6}, false},
    {"of many axes, to turned", "int16", GPU0, GPU0, FLAT, TURNED, {0}, false},
    {"of many axes, repeated", "int16", GPU0, GPU0, REPEATED, FLAT, {0}, false},
    {"of many axes, turned to thin", "int16", GPU0, GPU0, TURNED, THIN, {0}, false},
    {"large of many axes, to turned", "float32", GPU0, GPU0, FLAT, TURNED, {0}, false},
    {"half bytes", "uint4", GPU0, GPU0, FLAT, TURNED, {6, 4}, false},
    {"half bytes of rows apart", "uint4", GPU0, GPU0, LEFT, LEFT, {3, 4}, false},
    {"half bytes up", "uint4", CPU, GPU0, FLAT, TURNED, {6, 4}, false},
    {"half bytes down", "uint4", GPU0, CPU, TURNED, FLAT, {6, 4}, false},
    {"overlapping", "float32", GPU0, GPU0, FLAT, TURNED, {6, 6}, true},
    {"from pinned", "float32", PINNED, GPU0, FLAT, FLAT, {3, 5}, false},
    {"large up", "complex128", CPU, GPU0, FLAT, FLAT, {65, 66}, false},
    {"large up, turned", "complex128", CPU, GPU0, TURNED, FLAT, {65, 66}, false},
    {"large up, thin", "complex128", CPU, GPU0, FLAT, THIN, {65, 66}, false},
    {"large down", "complex128", GPU0, CPU, FLAT, FLAT, {65, 66}, false},
    {"large down, turned", "complex128", GPU0, CPU, FLAT, TURNED, {65, 66}, false},
    {"large down, thin", "complex128", GPU0, CPU, THIN, FLAT, {65, 66}, false},
    {"large down, sliding", "complex128", GPU0, CPU, FLAT, SLIDING, {65, 66}, false},
    {"peer", "float32", GPU0, GPU1, FLAT, FLAT, {3, 5}, false},
    {"peer, from turned", "float32", GPU0, GPU1, TURNED, FLAT, {6, 5}, false},
    {"peer, to thin", "float32", GPU0, GPU1, FLAT, THIN, {6, 5}, false},
    {"peer, from turned to thin", "float32", GPU0, GPU1, TURNED, THIN, {6, 5}, false},
};

typedef struct fill_case {
  const char *name, *dtype;
  place at;
  layout dst;
  int64_t shape[2]; /* {0}: MANY axes of 2 */
} fill_case;

static const fill_case fills[] = {
    {"a fill", "float32", GPU0, FLAT, {3, 5}},
    {"a fill of wide elements", "float64", GPU0, FLAT, {3, 5}},
    {"a fill of some columns", "float32", GPU0, THIN, {9, 5}},
    {"a fill of many columns", "float64", GPU0, THIN, {65, 65}},
    {"a fill of half bytes", "uint4", GPU0, FLAT, {3, 6}},
    {"a fill of three bits", "uint3", GPU0, FLAT, {3, 6}},
    {"a fill of sliding rows", "int16", GPU0, SLIDING, {5, 6}},
    {"a fill on the next device", "float32", GPU1, THIN, {9, 5}},
};

/* A view of the shape, and the tensor that it is of, at a place and, with the same bytes, on the host. */
typedef struct both {
  mf_tensor *there, *here, *view_there, *view_here;
} both;

static mf_tensor *sliding_of(mf_tensor *whole, const int64_t *shape) {
  int64_t strides[] = {1, 1};
  DLTensor described = *mf_tensor_dltensor(whole);
  mf_tensor *view;
  described.shape = (int64_t *)(uintptr_t)shape;
  described.strides = strides;
  OK(mf_tensor_wrap(&described, 0, NULL, NULL, &view, &err));
  return view;
}

static mf_tensor *repeated_of(mf_tensor *whole) {
  int64_t shape[MANY];
  mf_tensor *turned, *view;
  for (int i = 0; i < MANY; i++) shape[i] = 2;
  OK(mf_tensor_permute_dims(whole, NULL, 0, &turned, &err));
  OK(mf_tensor_broadcast_to(turned, shape, MANY, &view, &err));
  mf_tensor_release(turned);
  return view;
}

static mf_tensor *view_of(mf_tensor *whole, layout how, const int64_t *shape) {
  if (how == SLIDING) return sliding_of(whole, shape);
  if (how == REPEATED) return repeated_of(whole);
  const mf_index every_second[] = {{.kind = MF_INDEX_ELLIPSIS},
                                   {.kind = MF_INDEX_SLICE, .start = 0, .stop = MF_INDEX_NONE, .step = 2}};
  const mf_index left[] = {{.kind = MF_INDEX_ELLIPSIS},
                           {.kind = MF_INDEX_SLICE, .start = 0, .stop = shape[1], .step = 1}};
  mf_tensor *view;
  if (how == FLAT) return mf_tensor_retain(whole);
  if (how == TURNED) OK(mf_tensor_permute_dims(whole, NULL, 0, &view, &err));
  else if (how == LEFT) OK(mf_tensor_index(whole, left, 2, &view, &err));
  else OK(mf_tensor_index(whole, every_second, 2, &view, &err));
  return view;
}

static both both_open(const char *dtype, place at, layout how, const int64_t *shape) {
  const int32_t ndim = shape[0] == 0 ? MANY : 2;
  int64_t whole[MANY];
  for (int32_t i = 0; i < ndim; i++) whole[i] = ndim == MANY ? 2 : how == TURNED ? shape[1 - i] : shape[i];
  if (how == THIN || how == LEFT) whole[ndim - 1] *= 2;
  if (how == REPEATED) whole[ndim - 1] = 1;
  if (how == SLIDING) {
    whole[0] = 1;
    whole[1] = shape[0] + shape[1];
  }
  both b = {.here = random_host(dtype, ndim, whole)};
  b.there = at_place(b.here, at);
  b.view_here = view_of(b.here, how, shape);
  b.view_there = view_of(b.there, how, shape);
  return b;
}

static void both_close(both *b) {
  mf_tensor *all[] = {b->view_there, b->view_here, b->there, b->here};
  for (int i = 0; i < 4; i++) mf_tensor_release(all[i]);
}

/* Failures */

typedef enum failure { A_CALL, AN_ALLOCATION, ALL_ALLOCATIONS } failure;

static void arm(failure what, int64_t number) {
  char rule[48];
  (void)snprintf(rule, sizeof rule, "*@%lld:999:once", (long long)number + 1);
  memset(&err, 0, sizeof err);
  sim_ask_reset();
  if (what == A_CALL) sim_ask_fail(rule);
  else mf_fault_arm(number, what == ALL_ALLOCATIONS);
}

/* Whether something failed. */
static bool disarm(failure what) {
  const bool struck = what == A_CALL ? sim_ask_faults() > 0 : mf_fault_hits() > 0;
  mf_fault_arm(-1, 0);
  assert_int_equal(sim_ask_findings(), 0); /* before they are forgotten */
  sim_ask_reset();
  return struck;
}

static void expect_told(const char *name, failure what, int64_t number, int rc) {
  if (what == A_CALL && err.driver_code == 999 && strncmp(err.call, "mf_", 3) != 0) return;
  if (what >= AN_ALLOCATION && rc == MF_ENOMEM && err.driver_code == 0) return;
  fail_msg("%s: %s %d: %s: %s", name, what == A_CALL ? "call" : "allocation", (int)number, err.call, err.message);
}

typedef struct work {
  const char *name;
  both src, dst;
  bool copies, overlaps;
} work;

static const mf_scalar filler = {.kind = MF_KIND_UINT, .u = 5};

static int play(const work *w) {
  if (!w->copies) return mf_tensor_fill(w->dst.view_there, &filler, &err);
  return mf_tensor_copy(w->dst.view_there, w->overlaps ? w->dst.there : w->src.view_there, &err);
}

/* The same on the host, where nothing fails. */
static void play_here(const work *w) {
  if (!w->copies) OK(mf_tensor_fill(w->dst.view_here, &filler, &err));
  else OK(mf_tensor_copy(w->dst.view_here, w->overlaps ? w->dst.here : w->src.view_here, &err));
}

/* Both sides as they were, written on a stream that the next copy has to wait for. */
static void write_again(const work *w, mf_tensor *first) {
  for (int d = 0; d < other_devices() && d < 2; d++) use_stream(d, streams[d][1]);
  OK(mf_tensor_copy(w->dst.there, first, &err));
  if (w->copies) OK(mf_tensor_copy(w->src.there, w->src.here, &err));
  for (int d = 0; d < other_devices() && d < 2; d++) use_stream(d, streams[d][2]);
}

/* Whether something failed. */
static bool attempt(const work *w, failure what, int64_t number) {
  mf_ledger before, after;
  mf_tensor *first, *result;
  OK(mf_tensor_clone(w->dst.here, &first, &err));
  write_again(w, first);
  mf_ledger_read(&before);
  arm(what, number);
  const int rc = play(w);
  const bool struck = disarm(what);
  mf_ledger_read(&after);
  if (rc != MF_OK) expect_told(w->name, what, number, rc);
  assert_true(rc == MF_OK || struck);
  assert_int_equal(after.tensors, before.tensors);
  assert_int_equal(after.storages, before.storages);
  assert_int_equal(after.bytes, before.bytes);
  play_here(w);
  if (rc == MF_OK) same_bytes(w->dst.there, w->dst.here, w->name);
  OK(mf_tensor_clone(w->dst.here, &result, &err));
  OK(mf_tensor_copy(w->dst.here, first, &err));
  write_again(w, first);
  OK(play(w));
  same_bytes(w->dst.there, result, w->name);
  mf_tensor_release(first);
  mf_tensor_release(result);
  return struck;
}

static int64_t failures_of(const work *w, failure what, bool with_nothing_kept) {
  int64_t number = 0;
  for (bool struck = true; struck; number += struck) {
    if (with_nothing_kept) give_all_back();
    struck = attempt(w, what, number);
    if (number > 300) fail_msg("%s: no end", w->name);
  }
  return number;
}

/* Of what has MANY axes, and so many elements that each copy takes long, allocations alone. */
static void each_failure_of(const work *w) {
  if (mf_tensor_dltensor(w->dst.here)->ndim == MANY) {
    (void)failures_of(w, AN_ALLOCATION, false);
    return;
  }
  assert_true(failures_of(w, A_CALL, false) > 0);
  assert_true(failures_of(w, A_CALL, true) > 0);
  (void)failures_of(w, AN_ALLOCATION, false);
  (void)failures_of(w, ALL_ALLOCATIONS, false);
}

static void each_copy_fails_in_turn(void **state) {
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(copies); i++) {
    const copy_case *c = &copies[i];
    if (!have(c->from) || !have(c->to) || !is_drawn(i)) continue;
    random_state = seed_of(i);
    work w = {.name = c->name, .copies = true, .overlaps = c->overlaps};
    w.src = both_open(c->dtype, c->from, c->src, c->shape);
    w.dst = both_open(c->dtype, c->to, c->dst, c->shape);
    each_failure_of(&w);
    both_close(&w.src);
    both_close(&w.dst);
  }
}

static void each_fill_fails_in_turn(void **state) {
  (void)state;
  needs_simulator();
  for (size_t i = 0; i < COUNT(fills); i++) {
    const fill_case *f = &fills[i];
    if (!have(f->at)) continue;
    random_state = seed_of(i);
    work w = {.name = f->name, .dst = both_open(f->dtype, f->at, f->dst, f->shape)};
    each_failure_of(&w);
    both_close(&w.dst);
  }
}

/* Whether something failed. */
static bool attempt_a_clone(mf_tensor *t, const mf_tensor *host, failure what, int64_t number) {
  mf_ledger before, after;
  mf_tensor *clone = t;
  give_all_back();
  mf_ledger_read(&before);
  arm(what, number);
  const int rc = mf_tensor_clone(t, &clone, &err);
  const bool struck = disarm(what);
  assert_true(rc == MF_OK || struck);
  if (rc == MF_OK) {
    same_bytes(clone, host, "a clone");
    mf_tensor_release(clone);
    return struck;
  }
  expect_told("a clone", what, number, rc);
  assert_null(clone);
  mf_ledger_read(&after);
  assert_int_equal(after.tensors, before.tensors);
  assert_int_equal(after.storages, before.storages);
  assert_int_equal(after.bytes, before.bytes);
  return struck;
}

static void a_clone_fails_in_turn(void **state) {
  int64_t shape[] = {3, 5}, number = 0;
  (void)state;
  needs_simulator();
  random_state = seed_of(0);
  mf_tensor *host = random_host("float32", 2, shape), *there = at_place(host, GPU0);
  for (failure what = A_CALL; what <= ALL_ALLOCATIONS; what++) {
    for (number = 0; attempt_a_clone(there, host, what, number); number++) {
    }
    assert_true(number > 1);
  }
  mf_tensor_release(there);
  mf_tensor_release(host);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_STREAMS(each_copy_fails_in_turn),
      WITH_STREAMS(each_fill_fails_in_turn),
      WITH_STREAMS(a_clone_fails_in_turn),
  };
  /* Pinned buffers of megabytes are made anew for each call that fails: both ends of them are poisoned. */
  (void)setenv("SIM_POISON", "16K", 0);
  return RUN(tests);
}
