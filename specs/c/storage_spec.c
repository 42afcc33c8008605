/* storage_spec.c: the memory behind tensors: the ledger, who frees what and when, taking memory back. */
#include "spec.h"

static mf_ledger ledger(void) {
  mf_ledger l;
  mf_ledger_read(&l);
  return l;
}

static void assert_ledger(int64_t tensors, int64_t storages, int64_t bytes) {
  mf_ledger l = ledger();
  assert_int_equal(l.tensors, tensors);
  assert_int_equal(l.storages, storages);
  assert_int_equal(l.bytes, bytes);
  assert_int_equal(l.blocks, spec_strict_live());
  assert_int_equal(l.blocks == 0, tensors == 0);
}

static void the_ledger_counts_what_lives(void **state) {
  float memory[10];
  DLManagedTensorVersioned *m;
  mf_tensor *v;
  (void)state;
  assert_ledger(0, 0, 0);
  mf_tensor *t = spec_create("float32", DIMS(3, 5));
  assert_ledger(1, 1, 60);
  OK(mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
  assert_ledger(2, 1, 60);
  mf_tensor_retain(v);
  assert_ledger(2, 1, 60);
  mf_tensor_release(v);
  mf_tensor *w = spec_wrap(memory, "float32", DIMS(10), NULL);
  assert_ledger(3, 2, 100);
  OK(mf_tensor_export(t, 0, &m, &spec_err));
  mf_tensor_release(t);
  assert_ledger(3, 2, 100);
  mf_tensor_release(v);
  assert_ledger(2, 2, 100);
  m->deleter(m);
  assert_ledger(1, 1, 40);
  mf_tensor_release(w);
  assert_ledger(0, 0, 0);
}

/* Bytes that a layout with gaps and repeats holds: from the lowest to the highest that it reaches. */
static void bytes_reached(void **state) {
  unsigned char memory[100];
  (void)state;
  mf_tensor *t = spec_wrap(memory + 50, "int8", DIMS(3, 4), (int64_t[]){-10, 0});
  assert_ledger(1, 1, 21);
  mf_tensor_release(t);
  t = spec_wrap(memory, "int4", DIMS(5), NULL);
  assert_ledger(1, 1, 3);
  mf_tensor_release(t);
  t = spec_wrap(NULL, "int32", DIMS(5, 0), NULL);
  assert_ledger(1, 1, 0);
  mf_tensor_release(t);
}

static mf_tensor *wrap_once(spec_once *once, void *memory) {
  int64_t shape[] = {4};
  DLTensor view = {.data = memory, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, spec_once_run, once, &t, &spec_err));
  return t;
}

static void note_ledger(void *ctx) {
  mf_ledger_read(ctx);
}

/* Foreign code comes last: it finds nothing of what it is called for, neither counted nor allocated. */
static void a_release_finds_nothing_left(void **state) {
  float memory[4];
  int64_t shape[] = {4};
  const DLTensor view = {.data = memory, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  const mf_ledger before = ledger();
  mf_ledger found = {-1, -1, -1, -1};
  mf_tensor *t;
  (void)state;
  OK(mf_tensor_wrap(&view, 0, note_ledger, &found, &t, &spec_err));
  mf_tensor_release(t);
  assert_int_equal(found.tensors, before.tensors);
  assert_int_equal(found.storages, before.storages);
  assert_int_equal(found.bytes, before.bytes);
  assert_int_equal(found.blocks, before.blocks);
}

static void invalidate_says_whether_it_is_in_use(void **state) {
  float memory[4];
  int32_t in_use = -1;
  mf_tensor *v;
  DLManagedTensorVersioned *m;
  (void)state;
  mf_tensor *t = wrap_once(spec_once_new(), memory);
  OK(mf_tensor_invalidate(t, &in_use, &spec_err));
  assert_int_equal(in_use, 0);
  OK(mf_tensor_invalidate(t, &in_use, &spec_err));
  OK(mf_tensor_invalidate(t, NULL, &spec_err));
  mf_tensor_release(t);

  t = wrap_once(spec_once_new(), memory);
  mf_tensor_retain(t);
  OK(mf_tensor_invalidate(t, &in_use, &spec_err));
  assert_int_equal(in_use, 1);
  mf_tensor_release(t);
  mf_tensor_release(t);

  t = wrap_once(spec_once_new(), memory);
  OK(mf_tensor_as_readonly(t, &v, &spec_err));
  OK(mf_tensor_invalidate(t, &in_use, &spec_err));
  assert_int_equal(in_use, 1);
  mf_tensor_release(v);
  OK(mf_tensor_invalidate(t, &in_use, &spec_err));
  assert_int_equal(in_use, 0);
  mf_tensor_release(t);

  t = wrap_once(spec_once_new(), memory);
  OK(mf_tensor_export(t, 0, &m, &spec_err));
  OK(mf_tensor_invalidate(t, &in_use, &spec_err));
  assert_int_equal(in_use, 1);
  m->deleter(m);
  mf_tensor_release(t);
}

static void the_release_still_runs_once(void **state) {
  float memory[4];
  spec_once *once = spec_once_new();
  mf_tensor *v;
  (void)state;
  mf_tensor *t = wrap_once(once, memory);
  OK(mf_tensor_as_readonly(t, &v, &spec_err));
  OK(mf_tensor_invalidate(v, NULL, &spec_err));
  assert_int_equal(mf_tensor_is_valid(t), 0);
  assert_int_equal(mf_tensor_is_valid(v), 0);
  mf_tensor_release(t);
  assert_int_equal(spec_once_calls(once), 0);
  mf_tensor_release(v);
  assert_int_equal(spec_once_calls(once), 1);
}

static void only_wrapped_memory_can_be_taken_back(void **state) {
  int32_t in_use = 1;
  mf_tensor *t = spec_create("int8", DIMS(4));
  (void)state;
  mf_tensor_retain(t);
  SAYS(MF_EINVAL, "Moonferry's own", mf_tensor_invalidate(t, &in_use, &spec_err));
  assert_int_equal(in_use, 0);
  mf_tensor_release(t);
  assert_int_equal(mf_tensor_invalidate(t, NULL, NULL), MF_EINVAL);
  assert_int_equal(mf_tensor_is_valid(t), 1);
  mf_tensor_release(t);
  for (int legacy = 0; legacy < 2; legacy++) {
    spec_loan *loan = spec_lend_compact("int8", DIMS(4), legacy != 0);
    OK(spec_import(loan, &t, &spec_err));
    SAYS(MF_EINVAL, "imported", mf_tensor_invalidate(t, &in_use, &spec_err));
    assert_int_equal(mf_tensor_is_valid(t), 1);
    mf_tensor_release(t);
  }
}

/* Everything that touches the memory refuses; what only tells something of the description does not. */
static void everything_refuses_after_invalidate(void **state) {
  float memory[4] = {1, 2, 3, 4};
  mf_tensor *v;
  mf_tensor *other = spec_create("float32", DIMS(4));
  DLDataType dtype = {kDLInt, 32, 1};
  mf_index all = {.kind = MF_INDEX_ELLIPSIS};
  int64_t shape[] = {4};
  int64_t at[] = {0};
  mf_scalar value = {.kind = MF_KIND_INT, .i = 1};
  int32_t equal;
  DLManagedTensorVersioned *m;
  DLManagedTensor *l;
  DLTensor d;
  (void)state;
  mf_tensor *t = wrap_once(spec_once_new(), memory);
  OK(mf_tensor_invalidate(t, NULL, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_index(t, &all, 1, &v, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_permute_dims(t, NULL, 0, &v, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_reshape(t, shape, 1, &v, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_broadcast_to(t, shape, 1, &v, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_squeeze(t, NULL, 0, &v, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_expand_dims(t, 0, &v, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_diagonal(t, 0, (int32_t[]){0, 1}, &v, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_reinterpret(t, &dtype, &v, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_as_readonly(t, &v, &spec_err));
  REFUSES(MF_ECLOSED, v, mf_tensor_clone(t, &v, &spec_err));
  REFUSES(MF_ECLOSED, m, mf_tensor_export(t, 0, &m, &spec_err));
  REFUSES(MF_ECLOSED, m, mf_tensor_export(t, 1, &m, &spec_err));
  REFUSES(MF_ECLOSED, l, mf_tensor_export_legacy(t, &l, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_borrow(t, &d, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_copy(t, other, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_copy(other, t, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_astype(t, other, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_astype(other, t, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_fill(t, &value, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_get(t, at, 1, &value, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_put(t, at, 1, &value, &spec_err));
  FAILS(MF_ECLOSED, mf_tensor_equal(t, other, &equal, &spec_err));
  equal = 1;
  FAILS(MF_ECLOSED, mf_tensor_equal(other, t, &equal, &spec_err));
  assert_int_equal(equal, 0);
  assert_int_equal(mf_tensor_size(t), 4);
  assert_int_equal(mf_tensor_nbytes(t), 16);
  assert_int_equal(mf_tensor_dltensor(t)->ndim, 1);
  assert_true(memory[0] == 1 && memory[3] == 4);
  mf_tensor_release(t);
  mf_tensor_release(other);
}

/* A release callback may call the library, and sees the ledger without its own memory. */
static mf_ledger seen;

static void release_that_calls(void *ctx) {
  mf_tensor *t = spec_create("int8", DIMS(8));
  mf_tensor_release(t);
  mf_ledger_read(&seen);
  spec_once_run(ctx);
}

static void a_release_may_call_the_library(void **state) {
  unsigned char memory[4];
  DLTensor view = {.data = memory, .ndim = 0, .dtype = {kDLInt, 32, 1}};
  mf_tensor *t;
  (void)state;
  OK(mf_tensor_wrap(&view, 0, release_that_calls, spec_once_new(), &t, &spec_err));
  memset(&seen, 0x5a, sizeof seen);
  mf_tensor_release(t);
  assert_int_equal(seen.tensors, 0);
  assert_int_equal(seen.storages, 0);
  assert_int_equal(seen.blocks, 0);
}

static void delete_of_theirs(DLManagedTensorVersioned *self) {
  (void)self;
}

static void delete_of_theirs_legacy(DLManagedTensor *self) {
  (void)self;
}

/* A caller below whom no foreign code may run: the callback waits until it is asked for, and then runs once. */
static void released_later(void **state) {
  (void)state;
  for (int legacy = 0; legacy < 2; legacy++) {
    mf_tensor *t, *view;
    spec_loan *loan = spec_lend_compact("int8", DIMS(4), legacy != 0);
    OK(spec_import(loan, &t, &spec_err));
    OK(mf_tensor_as_readonly(t, &view, &spec_err));
    assert_int_equal(mf_tensor_release_later(t), 0);
    assert_int_equal(mf_tensor_release_later(view), 1);
    assert_int_equal(spec_loan_calls(loan), 0);
    assert_int_equal(ledger().tensors, 0);
    assert_int_equal(ledger().storages, 1);
    assert_int_equal(mf_tensor_release_later(NULL), 1);
    mf_releases_run();
    assert_int_equal(spec_loan_calls(loan), 1);
    assert_ledger(0, 0, 0);
    assert_int_equal(mf_tensor_release_later(NULL), 0);
  }
  float memory[4];
  spec_once *once = spec_once_new();
  assert_int_equal(mf_tensor_release_later(wrap_once(once, memory)), 1);
  mf_releases_run();
  mf_releases_run();
  assert_int_equal(spec_once_calls(once), 1);
}

/* What has no foreign code ends at once: our own memory, and a wrapped or imported one that nobody wants back. */
static void nothing_foreign_is_released_at_once(void **state) {
  unsigned char memory[4];
  DLTensor view = {.data = memory, .ndim = 0, .dtype = {kDLInt, 32, 1}};
  mf_tensor *t;
  (void)state;
  assert_int_equal(mf_tensor_release_later(spec_create("int8", DIMS(4))), 0);
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &spec_err));
  assert_int_equal(mf_tensor_release_later(t), 0);
  for (int legacy = 0; legacy < 2; legacy++) {
    spec_loan *loan = spec_lend_compact("int8", DIMS(4), legacy != 0);
    spec_loan_no_deleter(loan);
    OK(spec_import(loan, &t, &spec_err));
    assert_int_equal(mf_tensor_release_later(t), 0);
  }
  assert_ledger(0, 0, 0);
}

static void any_release_runs_what_is_due(void **state) {
  float memory[4];
  spec_once *first = spec_once_new(), *second = spec_once_new();
  DLManagedTensorVersioned *m;
  (void)state;
  assert_int_equal(mf_tensor_release_later(wrap_once(first, memory)), 1);
  mf_tensor_release(spec_create("int8", DIMS(4)));
  assert_int_equal(spec_once_calls(first), 1);
  mf_tensor *t = spec_create("int8", DIMS(4));
  OK(mf_tensor_export(t, 0, &m, &spec_err));
  mf_tensor_release(t);
  assert_int_equal(mf_tensor_release_later(wrap_once(second, memory)), 1);
  m->deleter(m);
  assert_int_equal(spec_once_calls(second), 1);
}

/* A struct that was told so gives its memory back where no foreign code may run; so does one that came back to us. */
static void an_export_is_deleted_later(void **state) {
  (void)state;
  for (int legacy = 0; legacy < 2; legacy++) {
    mf_tensor *t;
    DLManagedTensorVersioned *m;
    DLManagedTensor *old;
    spec_loan *loan = spec_lend_compact("int8", DIMS(4), legacy != 0);
    OK(spec_import(loan, &t, &spec_err));
    OK(mf_tensor_export(t, 0, &m, &spec_err));
    OK(mf_tensor_export_legacy(t, &old, &spec_err));
    mf_tensor_release(t);
    mf_export_delete_later(m);
    mf_export_delete_later(m);
    mf_export_delete_later_legacy(old);
    m->deleter(m);
    old->deleter(old);
    assert_int_equal(spec_loan_calls(loan), 0);
    mf_releases_run();
    assert_int_equal(spec_loan_calls(loan), 1);
  }
  assert_ledger(0, 0, 0);
}

static void an_export_that_came_back_is_nothing_foreign(void **state) {
  (void)state;
  for (int legacy = 0; legacy < 2; legacy++) {
    mf_tensor *t = spec_create("int8", DIMS(4)), *back;
    DLManagedTensorVersioned *m;
    DLManagedTensor *old;
    if (legacy) {
      OK(mf_tensor_export_legacy(t, &old, &spec_err));
      OK(mf_tensor_import_legacy(old, &back, &spec_err));
    } else {
      OK(mf_tensor_export(t, 0, &m, &spec_err));
      OK(mf_tensor_import(m, &back, &spec_err));
    }
    mf_tensor_release(t);
    assert_int_equal(mf_tensor_release_later(back), 0);
    assert_ledger(0, 0, 0);
  }
}

static void another_library_keeps_its_deleter(void **state) {
  int32_t left = 0;
  (void)state;
  DLManagedTensorVersioned theirs = {.deleter = delete_of_theirs};
  DLManagedTensor theirs_legacy = {.deleter = delete_of_theirs_legacy};
  mf_export_delete_later(&theirs);
  mf_export_delete_later_legacy(&theirs_legacy);
  assert_true(theirs.deleter == delete_of_theirs);
  assert_true(theirs_legacy.deleter == delete_of_theirs_legacy);
  theirs.deleter = NULL;
  mf_export_delete_later(&theirs);
  assert_null(theirs.deleter);
  DLTensor view = {.data = &left, .ndim = 0, .dtype = {kDLInt, 32, 1}};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, mf_release_mark, &left, &t, &spec_err));
  assert_int_equal(mf_tensor_release_later(t), 0);
  assert_int_equal(left, 1);
}

enum { NQUEUED = 5 };

typedef struct queued {
  struct queued *next; /* made due by this one's callback */
  int depth, order;
} queued;

static int depth_now, calls_so_far;

static void release_of_queued(void *ctx) {
  queued *q = ctx;
  unsigned char memory[4];
  DLTensor view = {.data = memory, .ndim = 0, .dtype = {kDLInt, 32, 1}};
  mf_tensor *t;
  q->depth = ++depth_now;
  q->order = ++calls_so_far;
  if (q->next != NULL) {
    OK(mf_tensor_wrap(&view, 0, release_of_queued, q->next, &t, &spec_err));
    assert_int_equal(mf_tensor_release_later(t), 1);
    mf_releases_run();
  }
  depth_now--;
}

/* A callback that makes another one due is not interrupted by it, however it asks. */
static void callbacks_come_one_after_the_other(void **state) {
  queued all[NQUEUED] = {0};
  (void)state;
  for (int i = 0; i < NQUEUED - 1; i++) all[i].next = &all[i + 1];
  depth_now = calls_so_far = 0;
  queued *first = &all[0];
  unsigned char memory[4];
  DLTensor view = {.data = memory, .ndim = 0, .dtype = {kDLInt, 32, 1}};
  mf_tensor *t;
  OK(mf_tensor_wrap(&view, 0, release_of_queued, first, &t, &spec_err));
  assert_int_equal(mf_tensor_release_later(t), 1);
  mf_releases_run();
  for (int i = 0; i < NQUEUED; i++) {
    assert_int_equal(all[i].depth, 1);
    assert_int_equal(all[i].order, i + 1);
  }
}

/* Memory whose release callback releases the tensor before it. Two libraries that make arrays of one another in turn
 * build such a chain. */
typedef struct link {
  mf_tensor *before;
  int at_once; /* whether the one before had ended when the callback's release returned */
} link;

enum { NLINKS = 100000, NEAREST = 8 };
static int depth, deepest, links_left;

static void end_link(void *ctx) {
  link *l = ctx;
  deepest = ++depth > deepest ? depth : deepest;
  links_left--;
  const int left = links_left;
  mf_tensor_release(l->before);
  l->at_once = links_left < left;
  depth--;
}

static void a_chain_of_any_length_ends_on_a_small_stack(void **state) {
  static link links[NLINKS];
  unsigned char memory[4];
  const DLTensor view = {.data = memory, .ndim = 0, .dtype = {kDLInt, 32, 1}};
  mf_tensor *t = NULL;
  (void)state;
  for (int i = 0; i < NLINKS; i++) {
    links[i].before = t;
    OK(mf_tensor_wrap(&view, 0, end_link, &links[i], &t, &spec_err));
  }
  depth = deepest = 0;
  links_left = NLINKS;
  mf_tensor_release(t);
  assert_int_equal(links_left, 0);
  assert_true(deepest >= NEAREST && deepest <= 64);
  for (int i = 1; i < NEAREST; i++) assert_true(links[NLINKS - i].at_once);
  assert_ledger(0, 0, 0);
}

static void a_mark_tells_that_the_memory_is_free(void **state) {
  unsigned char memory[4];
  int32_t mark = 0;
  DLTensor view = {.data = memory, .ndim = 0, .dtype = {kDLInt, 32, 1}};
  mf_tensor *t, *other;
  (void)state;
  OK(mf_tensor_wrap(&view, 0, mf_release_mark, &mark, &t, &spec_err));
  OK(mf_tensor_as_readonly(t, &other, &spec_err));
  mf_tensor_release(t);
  assert_int_equal(mark, 0);
  mf_tensor_release(other);
  assert_int_equal(mark, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(the_ledger_counts_what_lives),
      SPEC(bytes_reached),
      SPEC(a_release_finds_nothing_left),
      SPEC(invalidate_says_whether_it_is_in_use),
      SPEC(the_release_still_runs_once),
      SPEC(only_wrapped_memory_can_be_taken_back),
      SPEC(everything_refuses_after_invalidate),
      SPEC(a_release_may_call_the_library),
      SPEC(released_later),
      SPEC(nothing_foreign_is_released_at_once),
      SPEC(any_release_runs_what_is_due),
      SPEC(an_export_is_deleted_later),
      SPEC(an_export_that_came_back_is_nothing_foreign),
      SPEC(another_library_keeps_its_deleter),
      SPEC(callbacks_come_one_after_the_other),
      SPEC(a_chain_of_any_length_ends_on_a_small_stack),
      SPEC(a_mark_tells_that_the_memory_is_free),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
