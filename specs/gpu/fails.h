/* fails.h: a call in which a device takes part, with every driver call and every allocation of the host failing in
 * turn. What is not told to have failed is there, whole; whatever failed, nothing is lost or left behind, and the same
 * call then works. It must not know what the call does. */
#ifndef MOONFERRY_SPEC_FAILS_H
#define MOONFERRY_SPEC_FAILS_H

#include "places.h"

/* THIN: every second column. LEFT: the first half of each row. BACK: each row from its end. SLIDING: each row begins
 * one element after the one before, so that places repeat, and the last element to come to one stays. HOPPING: of every
 * second element, and each row begins three behind the one before: no axis has the places of both. REPEATED, of MANY
 * axes: turned, and the first axis repeats. */
typedef enum layout { FLAT, TURNED, THIN, LEFT, BACK, SLIDING, HOPPING, REPEATED } layout;

/* So many axes that driver copies of two of them are too many: without a kernel, the host brings the elements into the
 * destination's order first. */
enum { MANY = 15 };

/* A view of the shape, and the tensor that it is of, at a place and, with the same bytes, on the host. */
typedef struct both {
  mf_tensor *there, *here, *view_there, *view_here;
} both;

static mf_tensor *sliding_of(mf_tensor *whole, layout how, const int64_t *shape) {
  int64_t strides[] = {how == HOPPING ? 3 : 1, how == HOPPING ? 2 : 1};
  DLTensor described = *mf_tensor_dltensor(whole);
  mf_tensor *view;
  described.shape = (int64_t *)(uintptr_t)shape;
  described.strides = strides;
  OK(mf_tensor_wrap(&described, mf_tensor_flags(whole), NULL, NULL, &view, &err));
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
  if (how == SLIDING || how == HOPPING) return sliding_of(whole, how, shape);
  if (how == REPEATED) return repeated_of(whole);
  if (how == BACK) return backwards_of(whole);
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
  if (how == SLIDING || how == HOPPING) {
    whole[0] = 1;
    whole[1] = 3 * (shape[0] + shape[1]);
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

/* What one call does with two views, on the device and on the host alike; of a fill or an element, src is NULL. */
typedef int (*on_both)(mf_tensor *dst, mf_tensor *src);

typedef struct work {
  const char *name;
  on_both call;
  both src, dst; /* src: {0} where there is none, or where the source is the whole of dst */
  bool overlaps;
} work;

/* What a call says that writes nothing. */
static int64_t said;

static int play(const work *w) {
  return w->call(w->dst.view_there, w->overlaps ? w->dst.there : w->src.view_there);
}

/* The same on the host, where nothing fails. */
static void play_here(const work *w) {
  OK(w->call(w->dst.view_here, w->overlaps ? w->dst.here : w->src.view_here));
}

/* Memory that the host reads is written by the device: whoever reads it has to wait. */
static void write_to(mf_tensor *there, mf_tensor *host) {
  const DLDeviceType type = mf_tensor_dltensor(there)->device.device_type;
  const bool shared = type == pinned().device_type || (other_managed_type() != 0 && type == managed().device_type);
  mf_tensor *from = shared ? at_place(host, GPU0) : mf_tensor_retain(host);
  OK(mf_tensor_copy(there, from, &err));
  mf_tensor_release(from);
}

/* Both sides as they were, written on a stream that the next copy has to wait for. */
static void write_again(const work *w, mf_tensor *first) {
  for (int d = 0; d < other_devices() && d < 2; d++) use_stream(d, streams[d][1]);
  write_to(w->dst.there, first);
  if (w->src.there != NULL) write_to(w->src.there, w->src.here);
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
  said = 0;
  const int rc = play(w);
  const bool struck = disarm(what);
  const int64_t said_there = said;
  mf_ledger_read(&after);
  if (rc != MF_OK) expect_told(w->name, what, number, rc);
  assert_true(rc == MF_OK || struck);
  assert_int_equal(after.tensors, before.tensors);
  assert_int_equal(after.storages, before.storages);
  assert_int_equal(after.bytes, before.bytes);
  play_here(w);
  if (rc == MF_OK) assert_int_equal(said_there, said);
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

#endif
