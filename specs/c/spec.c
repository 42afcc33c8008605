/* spec.c: the helpers that spec.h promises. The invariant: a test that leaks, double-frees, overruns or
 * forgets a deleter fails, whatever it was about. Knows the public header only.
 */
#include "spec.h"

#include <stdatomic.h>

mf_error spec_err;
static mf_error err_poison;

mf_error *spec_err_arm(void) {
  memset(&err_poison, 0x5a, sizeof err_poison);
  spec_err = err_poison;
  return &spec_err;
}

void spec_check(int rc, int want, const char *saying, const char *expr, const char *file, int line) {
  if (rc != want) {
    bool written = memcmp(&spec_err, &err_poison, sizeof spec_err) != 0;
    print_error("%s: %s instead of %s: %s\n", expr, mf_status_name(rc), mf_status_name(want),
                written ? spec_err.message : "(no message)");
    _fail(file, line);
  }
  if (want == MF_OK) {
    _assert_true(memcmp(&spec_err, &err_poison, sizeof spec_err) == 0, "error untouched on success", file,
                 line);
    return;
  }
  if (spec_err.status != want || spec_err.driver_code != 0) {
    print_error("%s: the error has status %d and driver code %d, not %d and 0\n", expr, (int)spec_err.status,
                (int)spec_err.driver_code, want);
    _fail(file, line);
  }
  _assert_true(memchr(spec_err.message, 0, sizeof spec_err.message) != NULL, "message terminated", file,
               line);
  _assert_true(spec_err.message[0] != 0, "message not empty", file, line);
  bool named = strstr(expr, spec_err.call) != NULL || strncmp(expr, "spec_import(", 12) == 0;
  _assert_true(named && strncmp(spec_err.call, "mf_", 3) == 0, "err.call is the function", file, line);
  if (saying != NULL && strstr(spec_err.message, saying) == NULL) {
    print_error("%s: \"%s\" does not say \"%s\"\n", expr, spec_err.message, saying);
    _fail(file, line);
  }
}

/* Random numbers (splitmix64). */

static uint64_t random_state;

uint64_t spec_random(void) {
  uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t spec_between(int64_t low, int64_t high) {
  return low + (int64_t)(spec_random() % ((uint64_t)(high - low) + 1));
}

void spec_random_bytes(void *out, size_t nbytes) {
  unsigned char *p = out;
  for (size_t i = 0; i < nbytes; i += sizeof(uint64_t)) {
    const uint64_t drawn = spec_random();
    memcpy(p + i, &drawn, nbytes - i < sizeof drawn ? nbytes - i : sizeof drawn);
  }
}

/* The strict allocator. Blocks are aligned to 16 and no better, as malloc's may be. */

enum { GUARD_NBYTES = 32, FRONT_NBYTES = 16 + GUARD_NBYTES };
static atomic_llong strict_blocks;

static void strict_check(const unsigned char *raw, size_t nbytes) {
  size_t size;
  memcpy(&size, raw, sizeof size);
  bool good = size == nbytes;
  for (size_t i = 0; good && i < GUARD_NBYTES; i++) {
    good = raw[16 + i] == 0xa5 && raw[FRONT_NBYTES + nbytes + i] == 0xa5;
  }
  if (good) return;
  fprintf(stderr, "strict allocator: a block of %zu bytes was given back as %zu, or overrun\n", size, nbytes);
  abort();
}

static void *strict_new(size_t nbytes) {
  if (nbytes > (size_t)1 << 36) return NULL; /* sanitizers stop the program instead */
  unsigned char *raw = malloc(nbytes + FRONT_NBYTES + GUARD_NBYTES);
  if (raw == NULL) return NULL;
  memset(raw, 0xa5, FRONT_NBYTES);
  memcpy(raw, &nbytes, sizeof nbytes);
  memset(raw + FRONT_NBYTES, 0xcd, nbytes < 4096 ? nbytes : 4096);
  memset(raw + FRONT_NBYTES + nbytes, 0xa5, GUARD_NBYTES);
  atomic_fetch_add(&strict_blocks, 1);
  return raw + FRONT_NBYTES;
}

static void strict_free(void *ptr, size_t nbytes) {
  unsigned char *raw = (unsigned char *)ptr - FRONT_NBYTES;
  strict_check(raw, nbytes);
  memset(raw, 0xdd, FRONT_NBYTES + (nbytes < 4096 ? nbytes : 4096));
  free(raw);
  atomic_fetch_sub(&strict_blocks, 1);
}

void *spec_strict_realloc(void *ctx, void *ptr, size_t old_nbytes, size_t new_nbytes) {
  (void)ctx;
  if (ptr == NULL) return new_nbytes == 0 ? NULL : strict_new(new_nbytes);
  if (new_nbytes == 0) {
    strict_free(ptr, old_nbytes);
    return NULL;
  }
  void *fresh = strict_new(new_nbytes);
  if (fresh == NULL) return NULL;
  memcpy(fresh, ptr, old_nbytes < new_nbytes ? old_nbytes : new_nbytes);
  strict_free(ptr, old_nbytes);
  return fresh;
}

int64_t spec_strict_live(void) { return atomic_load(&strict_blocks); }

/* Release callbacks and loans: kept in a list until the test ends. */

struct spec_once {
  atomic_int calls;
  bool never;
  struct spec_once *next;
};

struct spec_loan_state {
  spec_loan loan;
  atomic_int calls;
  bool settled; /* refused or without a deleter: the test frees it */
  int32_t narrays;
  unsigned char sealed[sizeof(DLManagedTensorVersioned)];
  int64_t sealed_arrays[2 * MF_MAX_NDIM + 2];
  struct spec_loan_state *next;
};

static spec_once *all_once;
static struct spec_loan_state *all_loans;

static void too_often(const char *what) {
  fprintf(stderr, "%s was called twice\n", what);
  abort();
}

spec_once *spec_once_new(void) {
  spec_once *once = calloc(1, sizeof *once);
  once->next = all_once;
  all_once = once;
  return once;
}

void spec_once_run(void *ctx) {
  spec_once *once = ctx;
  if (atomic_fetch_add(&once->calls, 1) != 0) too_often("a release callback");
}

int spec_once_calls(const spec_once *once) { return atomic_load(&once->calls); }
void spec_once_never(spec_once *once) { once->never = true; }

static void loan_free(struct spec_loan_state *s) {
  free(s->loan.shape);
  free(s->loan.strides);
  free(s->loan.memory);
  free(s->loan.versioned);
  free(s->loan.legacy);
}

static void loan_deleted(void *ctx) {
  struct spec_loan_state *s = ctx;
  if (atomic_fetch_add(&s->calls, 1) != 0) too_often("a deleter");
  loan_free(s);
}

static void delete_versioned(DLManagedTensorVersioned *self) { loan_deleted(self->manager_ctx); }
static void delete_legacy(DLManagedTensor *self) { loan_deleted(self->manager_ctx); }

static int64_t *array_copy(const int64_t *from, int32_t n) {
  if (from == NULL || n <= 0) return NULL;
  int64_t *to = malloc((size_t)n * sizeof *to);
  memcpy(to, from, (size_t)n * sizeof *to);
  return to;
}

spec_loan *spec_lend(const DLTensor *like, uint64_t flags, bool legacy) {
  struct spec_loan_state *s = calloc(1, sizeof *s);
  spec_loan *loan = &s->loan;
  if (legacy) {
    loan->legacy = calloc(1, sizeof *loan->legacy);
    loan->legacy->manager_ctx = s;
    loan->legacy->deleter = delete_legacy;
    loan->view = &loan->legacy->dl_tensor;
  } else {
    loan->versioned = calloc(1, sizeof *loan->versioned);
    loan->versioned->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    loan->versioned->manager_ctx = s;
    loan->versioned->deleter = delete_versioned;
    loan->versioned->flags = flags;
    loan->view = &loan->versioned->dl_tensor;
  }
  *loan->view = *like;
  s->narrays = like->ndim;
  loan->view->shape = loan->shape = array_copy(like->shape, like->ndim);
  loan->view->strides = loan->strides = array_copy(like->strides, like->ndim);
  loan->state = s;
  s->next = all_loans;
  all_loans = s;
  return loan;
}

spec_loan *spec_lend_compact(const char *dtype, int32_t ndim, const int64_t *shape, bool legacy) {
  int64_t strides[MF_MAX_NDIM];
  int64_t numel = 1;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    strides[i] = numel;
    numel *= shape[i];
  }
  DLTensor like = {.device = {kDLCPU, 0}, .ndim = ndim, .dtype = spec_dtype(dtype)};
  like.shape = ndim > 0 ? (int64_t *)(uintptr_t)shape : NULL;
  like.strides = ndim > 0 ? strides : NULL;
  int64_t nbytes = (numel * mf_dtype_bits(&like.dtype, 0) + 7) / 8;
  spec_loan *loan = spec_lend(&like, 0, legacy);
  if (nbytes > 0) loan->view->data = loan->memory = calloc(1, (size_t)nbytes);
  return loan;
}

static size_t loan_arrays(const struct spec_loan_state *s, int64_t *out) {
  size_t n = s->narrays > 0 ? (size_t)s->narrays : 0;
  memset(out, 0, sizeof s->sealed_arrays);
  if (s->loan.shape != NULL) memcpy(out, s->loan.shape, n * sizeof *out);
  if (s->loan.strides != NULL) memcpy(out + n, s->loan.strides, n * sizeof *out);
  return sizeof s->sealed_arrays;
}

static const void *loan_struct(const spec_loan *loan, size_t *nbytes) {
  *nbytes = loan->legacy ? sizeof *loan->legacy : sizeof *loan->versioned;
  return loan->legacy ? (const void *)loan->legacy : (const void *)loan->versioned;
}

int spec_import(spec_loan *loan, mf_tensor **out, mf_error *err) {
  size_t nbytes;
  const void *from = loan_struct(loan, &nbytes);
  memcpy(loan->state->sealed, from, nbytes);
  (void)loan_arrays(loan->state, loan->state->sealed_arrays);
  return loan->legacy ? mf_tensor_import_legacy(loan->legacy, out, err)
                      : mf_tensor_import(loan->versioned, out, err);
}

int spec_loan_calls(const spec_loan *loan) { return atomic_load(&loan->state->calls); }

void spec_loan_refused(spec_loan *loan) {
  size_t nbytes;
  int64_t now[COUNT(loan->state->sealed_arrays)];
  assert_int_equal(spec_loan_calls(loan), 0);
  const void *from = loan_struct(loan, &nbytes);
  assert_memory_equal(from, loan->state->sealed, nbytes);
  assert_memory_equal(now, loan->state->sealed_arrays, loan_arrays(loan->state, now));
  loan->state->settled = true;
}

void spec_loan_no_deleter(spec_loan *loan) {
  if (loan->legacy) loan->legacy->deleter = NULL;
  if (loan->versioned) loan->versioned->deleter = NULL;
  loan->state->settled = true;
}

static bool settle_loans(void) {
  bool good = true;
  while (all_loans != NULL) {
    struct spec_loan_state *s = all_loans;
    all_loans = s->next;
    int want = s->settled ? 0 : 1;
    if (atomic_load(&s->calls) != want) {
      print_error("a deleter was called %d times instead of %d\n", atomic_load(&s->calls), want);
      good = false;
    }
    if (s->settled) loan_free(s);
    free(s);
  }
  while (all_once != NULL) {
    spec_once *once = all_once;
    all_once = once->next;
    if (atomic_load(&once->calls) != (once->never ? 0 : 1)) {
      print_error("a release callback was called %d times\n", atomic_load(&once->calls));
      good = false;
    }
    free(once);
  }
  return good;
}

/* Set-up and teardown. */

static uint64_t seed = 20261120;
/* What failed tests left behind, which is not the next test's fault. */
static mf_ledger leaked;
static int64_t leaked_blocks;

int spec_group_setup(void **state) {
  (void)state;
  const char *chosen = getenv("MOONFERRY_SPEC_SEED");
  if (chosen != NULL) seed = strtoull(chosen, NULL, 0);
  print_message("seed %llu (MOONFERRY_SPEC_SEED chooses another)\n", (unsigned long long)seed);
  return mf_allocator_set(spec_strict_realloc, NULL, NULL);
}

int spec_setup(void **state) {
  (void)state;
  random_state = seed;
  return 0;
}

int spec_teardown(void **state) {
  (void)state;
  mf_ledger l;
  memset(&l, 0x5a, sizeof l);
  mf_fault_arm(-1, 0);
  bool good = settle_loans();
  mf_ledger_read(&l);
  if (memcmp(&l, &leaked, sizeof l) != 0 || spec_strict_live() != leaked_blocks) {
    print_error("left over: %lld tensors, %lld storages, %lld bytes, %lld blocks (%lld in the allocator)\n",
                (long long)l.tensors, (long long)l.storages, (long long)l.bytes, (long long)l.blocks,
                (long long)spec_strict_live());
    leaked = l;
    leaked_blocks = spec_strict_live();
    good = false;
  }
  return good ? 0 : -1;
}

/* Tensors and layouts. */

DLDataType spec_dtype(const char *name) {
  DLDataType dtype;
  OK(mf_dtype_parse(name, &dtype, &spec_err));
  return dtype;
}

mf_tensor *spec_create(const char *dtype, int32_t ndim, const int64_t *shape) {
  DLTensor like = {.ndim = ndim, .dtype = spec_dtype(dtype), .shape = (int64_t *)(uintptr_t)shape};
  mf_tensor *t = NULL;
  OK(mf_tensor_create(&like, 0, &t, &spec_err));
  return t;
}

mf_tensor *spec_wrap(void *data, const char *dtype, int32_t ndim, const int64_t *shape,
                     const int64_t *strides) {
  DLTensor view = {.data = data, .ndim = ndim, .dtype = spec_dtype(dtype)};
  view.shape = (int64_t *)(uintptr_t)shape;
  view.strides = (int64_t *)(uintptr_t)strides;
  mf_tensor *t = NULL;
  OK(mf_tensor_wrap(&view, 0, NULL, NULL, &t, &spec_err));
  return t;
}

bool spec_first(int32_t ndim, const int64_t *shape, int64_t *coords) {
  bool some = true;
  for (int32_t i = 0; i < ndim; i++) {
    coords[i] = 0;
    some = some && shape[i] > 0;
  }
  return some;
}

bool spec_next(int32_t ndim, const int64_t *shape, int64_t *coords) {
  for (int32_t i = ndim - 1; i >= 0; i--) {
    if (++coords[i] < shape[i]) return true;
    coords[i] = 0;
  }
  return false;
}

int64_t spec_bit(const DLTensor *view, uint64_t flags, const int64_t *coords) {
  int64_t element = 0;
  for (int32_t i = 0; i < view->ndim; i++) element += coords[i] * view->strides[i];
  return element * mf_dtype_bits(&view->dtype, flags);
}

size_t spec_element_nbytes(const DLTensor *view) {
  return ((size_t)view->dtype.bits * view->dtype.lanes + 7) / 8;
}

static int64_t floor_byte(int64_t bit) { return bit >= 0 ? bit / 8 : -((-bit + 7) / 8); }

void spec_read(const DLTensor *view, uint64_t flags, const int64_t *coords, unsigned char *out) {
  int64_t bit = spec_bit(view, flags, coords);
  memset(out, 0, spec_element_nbytes(view));
  if (bit % 8 == 0 && view->dtype.bits % 8 == 0) {
    memcpy(out, (const unsigned char *)view->data + bit / 8, spec_element_nbytes(view));
    return;
  }
  for (int64_t i = 0; i < (int64_t)view->dtype.bits * view->dtype.lanes; i++) {
    int64_t byte = floor_byte(bit + i);
    int shift = (int)(bit + i - byte * 8);
    int one = ((const unsigned char *)view->data)[byte] >> shift & 1;
    out[i / 8] = (unsigned char)(out[i / 8] | one << (i % 8));
  }
}

void spec_write(void *data, int64_t bit, int64_t nbits, const unsigned char *from) {
  unsigned char *to = data;
  if (bit % 8 == 0 && nbits % 8 == 0) {
    memcpy(to + bit / 8, from, (size_t)nbits / 8);
    return;
  }
  for (int64_t i = 0; i < nbits; i++) {
    int64_t byte = floor_byte(bit + i);
    unsigned mask = 1u << (bit + i - byte * 8);
    bool one = from[i / 8] >> (i % 8) & 1;
    to[byte] = (unsigned char)(one ? to[byte] | mask : to[byte] & ~mask);
  }
}

void spec_layout_memory(spec_layout *l, uint64_t flags) {
  int64_t low = 0;
  int64_t high = 0;
  bool some = true;
  for (int32_t i = 0; i < l->view.ndim; i++) {
    int64_t reach = (l->shape[i] - 1) * l->strides[i];
    low += reach < 0 ? reach : 0;
    high += reach > 0 ? reach : 0;
    some = some && l->shape[i] > 0;
  }
  int64_t bits = mf_dtype_bits(&l->view.dtype, flags);
  int64_t first = floor_byte(low * bits);
  int64_t last = floor_byte(high * bits + (int64_t)l->view.dtype.bits * l->view.dtype.lanes + 7);
  l->block_nbytes = some ? (size_t)(last - first) : 0;
  l->block = malloc(l->block_nbytes + (l->block_nbytes == 0));
  spec_random_bytes(l->block, l->block_nbytes);
  l->view.data = some ? l->block - first : NULL;
}

void spec_layout_strides(spec_layout *l, bool distinct) {
  int64_t step = 1;
  for (int32_t i = l->view.ndim - 1; i >= 0; i--) {
    l->strides[i] = distinct ? step * (spec_random() % 2 ? 1 : -1) : spec_between(-9, 9);
    step *= (l->shape[i] > 0 ? l->shape[i] : 1) + (spec_random() % 4 == 0);
  }
}

void spec_layout_random(spec_layout *l, DLDataType dtype, uint64_t flags, int32_t max_ndim) {
  memset(l, 0, sizeof *l);
  l->view.ndim = (int32_t)spec_between(0, max_ndim);
  l->view.dtype = dtype;
  l->view.device = (DLDevice){kDLCPU, 0};
  for (int32_t i = 0; i < l->view.ndim; i++) {
    l->shape[i] = spec_random() % 16 == 0 ? 0 : spec_between(1, 4);
  }
  l->view.shape = l->shape;
  l->view.strides = l->strides;
  spec_layout_strides(l, spec_random() % 2 == 0);
  spec_layout_memory(l, flags);
}

mf_tensor *spec_layout_wrap(const spec_layout *l, uint64_t flags) {
  mf_tensor *t = NULL;
  OK(mf_tensor_wrap(&l->view, flags, NULL, NULL, &t, &spec_err));
  return t;
}

/* Allocation failures. */

static bool one_failure(spec_call call, void *ctx, int64_t nth, int32_t sticky) {
  mf_ledger before;
  mf_ledger after;
  mf_ledger_read(&before);
  mf_fault_arm(nth, sticky);
  spec_err_arm();
  int rc = call(ctx, &spec_err);
  int64_t hits = mf_fault_hits();
  mf_fault_arm(-1, 0);
  mf_ledger_read(&after);
  assert_memory_equal(&before, &after, sizeof before);
  if (hits == 0) {
    spec_check(rc, MF_OK, NULL, "mf_ call without a failed allocation", __FILE__, __LINE__);
    return false;
  }
  assert_int_equal(rc, MF_ENOMEM);
  assert_int_equal(spec_err.status, MF_ENOMEM);
  assert_non_null(strstr(spec_err.call, "mf_"));
  return true;
}

int64_t spec_each_failure(spec_call call, void *ctx) {
  int64_t allocations = 0;
  while (one_failure(call, ctx, allocations, 0)) allocations++;
  for (int64_t n = 0; n <= allocations; n++) {
    assert_int_equal(one_failure(call, ctx, n, 1), n < allocations);
  }
  return allocations;
}
