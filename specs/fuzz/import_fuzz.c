/* import_fuzz.c: a libFuzzer target that builds a managed struct, of either form, from its input, imports it
 * and works on what comes out: views, copies, casts, hops through both forms.
 *
 * The pointers of the struct are good for what its numbers declare, where that fits into memory; where it
 * does not, the numbers must be refused or the elements are left alone. Any number may be wild. The input's
 * first byte says which allocation fails. A run that leaves anything alive, or calls the deleter other than
 * once for a taken struct and never for a refused one, aborts. make_seeds.py writes the seed corpus.
 */
#include "moonferry.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NBYTES = 1 << 16, MOST_OPERATIONS = 24, MOST_ITEMS = 8 };

typedef __int128 wide;

/* The input, read from the front; beyond its end there are zeros. */
typedef struct reader {
  const uint8_t *at;
  const uint8_t *end;
} reader;

static uint8_t take(reader *r) { return r->at < r->end ? *r->at++ : 0; }

/* One byte for a small number, -128 + 16 ... 127; or a marker and eight bytes for any. */
static int64_t take_number(reader *r) {
  int8_t small = (int8_t)take(r);
  uint64_t all = 0;
  if (small >= -112) return small;
  for (int i = 0; i < 8; i++) all |= (uint64_t)take(r) << (8 * i);
  return (int64_t)all;
}

typedef struct run {
  reader in;
  DLManagedTensorVersioned versioned;
  DLManagedTensor legacy;
  bool is_legacy;
  bool touchable; /* the elements are in memory */
  int deletions;
  unsigned char *memory;
} run;

static run *current;

static void check(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "import_fuzz: %s\n", what);
  abort();
}

static void delete_versioned(DLManagedTensorVersioned *self) {
  check(self == &current->versioned, "the deleter gets its own struct");
  current->deletions++;
}

static void delete_legacy(DLManagedTensor *self) {
  check(self == &current->legacy, "the deleter gets its own struct");
  current->deletions++;
}

static DLTensor *view_of(run *r) { return r->is_legacy ? &r->legacy.dl_tensor : &r->versioned.dl_tensor; }

/* An array of exactly the declared length, so that reading one number too many is seen. */
static int64_t *take_array(reader *in, int32_t ndim) {
  if (ndim <= 0) return NULL;
  int32_t n = ndim <= MF_MAX_NDIM ? ndim : 1;
  int64_t *array = malloc((size_t)n * sizeof *array);
  for (int32_t i = 0; i < n; i++) array[i] = take_number(in);
  return array;
}

/* How far the numbers reach from element 0, in bits; false where that does not fit into MOST_NBYTES. */
static bool reach(const DLTensor *v, wide slot, wide *low, wide *high) {
  const wide most = (wide)MOST_NBYTES * 8;
  wide stride = 1;
  *low = 0;
  *high = slot;
  if (v->ndim < 0 || v->ndim > MF_MAX_NDIM || (v->ndim > 0 && v->shape == NULL)) return false;
  for (int32_t i = 0; i < v->ndim; i++) {
    if (v->shape[i] < 0) return false;
  }
  for (int32_t i = 0; i < v->ndim; i++) {
    if (v->shape[i] == 0) {
      *high = 0;
      return true;
    }
  }
  for (int32_t i = v->ndim - 1; i >= 0; i--) {
    wide elements = (v->strides == NULL ? stride : (wide)v->strides[i]) * (v->shape[i] - 1);
    if (elements > most || elements < -most) return false;
    *(elements < 0 ? low : high) += elements * slot;
    stride *= v->shape[i];
    if (*high > most || *low < -most || stride > most) return false;
  }
  return true;
}

/* Memory for what the numbers declare, of exactly that size; or an address that nothing may touch. */
static void take_data(run *r, DLTensor *v, uint64_t flags) {
  wide low;
  wide high;
  uint8_t how = take(&r->in);
  wide slot = (wide)mf_dtype_bits(&v->dtype, flags);
  v->byte_offset = how & 1 ? (uint64_t)take_number(&r->in) : 0;
  v->data = how & 2 ? (void *)(uintptr_t)take_number(&r->in) : NULL;
  if (how & 6 || !reach(v, slot, &low, &high)) return;
  int64_t first = (int64_t)(low >= 0 ? low / 8 : -((-low + 7) / 8));
  size_t nbytes = (size_t)((high + 7) / 8 - first);
  r->memory = calloc(nbytes + (nbytes == 0), 1);
  r->touchable = true;
  v->data = (void *)((uintptr_t)r->memory - (uintptr_t)first - (uintptr_t)v->byte_offset);
  for (size_t i = 0; i < nbytes && i < 64; i++) r->memory[i] = take(&r->in);
}

static void take_struct(run *r) {
  uint8_t form = take(&r->in);
  r->is_legacy = form & 1;
  DLTensor *v = view_of(r);
  r->versioned.version.major = form & 8 ? take(&r->in) : 1;
  r->versioned.version.minor = take(&r->in);
  r->versioned.flags = (uint64_t)take_number(&r->in);
  r->versioned.deleter = form & 16 ? NULL : delete_versioned;
  r->legacy.deleter = form & 16 ? NULL : delete_legacy;
  v->device.device_type = form & 32 ? (DLDeviceType)(int32_t)take_number(&r->in) : kDLCPU;
  v->device.device_id = form & 32 ? (int32_t)take_number(&r->in) : 0;
  v->dtype.code = take(&r->in);
  v->dtype.bits = take(&r->in);
  v->dtype.lanes = (uint16_t)take_number(&r->in);
  v->ndim = (int32_t)take_number(&r->in);
  v->shape = form & 2 ? NULL : take_array(&r->in, v->ndim);
  v->strides = form & 4 ? NULL : take_array(&r->in, v->ndim);
  const bool bytes = v->dtype.bits == 1 && v->dtype.lanes == 1; /* a legacy struct's bool is a byte each */
  const uint64_t legacy_flags = bytes ? DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED : 0;
  take_data(r, v, r->is_legacy ? legacy_flags : r->versioned.flags);
}

static int32_t take_items(reader *in, mf_index *items) {
  int32_t n = take(in) % (MOST_ITEMS + 1);
  for (int32_t i = 0; i < n; i++) {
    items[i] = (mf_index){.kind = (int8_t)take(in) % 5};
    items[i].start = take_number(in);
    items[i].stop = take_number(in);
    items[i].step = take_number(in);
    if (items[i].step == 0) items[i].step = MF_INDEX_NONE;
  }
  return n;
}

static int32_t take_axes(reader *in, int32_t *axes) {
  int32_t n = take(in) % (MOST_ITEMS + 1);
  for (int32_t i = 0; i < MOST_ITEMS; i++) axes[i] = i < n ? (int8_t)take(in) : i;
  return n;
}

static int32_t take_shape(reader *in, int64_t *shape) {
  int32_t n = take(in) % (MOST_ITEMS + 1);
  for (int32_t i = 0; i < n; i++) shape[i] = take_number(in);
  return n;
}

static int make_view(reader *in, mf_tensor *t, mf_tensor **out, mf_error *err) {
  mf_index items[MOST_ITEMS];
  int64_t shape[MOST_ITEMS];
  int32_t axes[MOST_ITEMS];
  DLDataType dtype = {take(in), take(in), (uint16_t)(1 + take(in) % 4)};
  int32_t n;
  switch (take(in) % 9) {
    case 0: n = take_items(in, items); return mf_tensor_index(t, items, n, out, err);
    case 1: n = take_axes(in, axes); return mf_tensor_permute_dims(t, n == 0 ? NULL : axes, n, out, err);
    case 2: n = take_shape(in, shape); return mf_tensor_reshape(t, shape, n, out, err);
    case 3: n = take_shape(in, shape); return mf_tensor_broadcast_to(t, shape, n, out, err);
    case 4: n = take_axes(in, axes); return mf_tensor_squeeze(t, n == 0 ? NULL : axes, n, out, err);
    case 5: return mf_tensor_expand_dims(t, (int8_t)take(in), out, err);
    case 6: (void)take_axes(in, axes); return mf_tensor_diagonal(t, take_number(in), axes, out, err);
    case 7: return mf_tensor_reinterpret(t, &dtype, out, err);
    default: return mf_tensor_as_readonly(t, out, err);
  }
}

/* Out through one form and in again. */
static int hop(reader *in, mf_tensor *t, mf_tensor **out, mf_error *err) {
  *out = NULL;
  if (take(in) & 1) {
    DLManagedTensor *m;
    int rc = mf_tensor_export_legacy(t, &m, err);
    if (rc != MF_OK) return rc;
    rc = mf_tensor_import_legacy(m, out, err);
    if (rc != MF_OK) m->deleter(m);
    return rc;
  }
  DLManagedTensorVersioned *m;
  int rc = mf_tensor_export(t, take(in) & 2, &m, err);
  if (rc != MF_OK) return rc;
  rc = mf_tensor_import(m, out, err);
  if (rc != MF_OK) m->deleter(m);
  return rc;
}

/* Clone, cast, copy back, compare, single elements: for tensors that lie in memory and are small. */
static int work(reader *in, mf_tensor *t, mf_tensor **out, mf_error *err) {
  DLTensor like = *mf_tensor_dltensor(t);
  int64_t coords[MF_MAX_NDIM];
  mf_scalar value = {.kind = take(in) % 6};
  mf_tensor *other = NULL;
  int32_t equal;
  like.dtype = (DLDataType){take(in) % 18, take(in), 1};
  value.i = take_number(in);
  for (int32_t i = 0; i < like.ndim; i++) coords[i] = take_number(in);
  (void)mf_tensor_put(t, coords, like.ndim, &value, NULL);
  (void)mf_tensor_get(t, coords, like.ndim, &value, NULL);
  if (mf_tensor_create(&like, 0, &other, err) == MF_OK) {
    (void)mf_tensor_fill(other, &value, NULL);
    (void)mf_tensor_astype(other, t, NULL);
    (void)mf_tensor_astype(t, other, NULL);
    mf_tensor_release(other);
  }
  int rc = mf_tensor_clone(t, out, err);
  if (rc != MF_OK) return rc;
  (void)mf_tensor_equal(t, *out, &equal, NULL);
  (void)mf_tensor_copy(t, *out, NULL);
  return rc;
}

/* A copy from one view of the memory to another, which may overlap. */
static void copy_within(reader *in, mf_tensor *t) {
  mf_tensor *v = NULL;
  if (make_view(in, t, &v, NULL) == MF_OK && mf_tensor_nbytes(v) <= MOST_NBYTES) {
    (void)mf_tensor_copy(t, v, NULL);
    (void)mf_tensor_astype(v, t, NULL);
  }
  mf_tensor_release(v);
}

static bool is_small(const run *r, const mf_tensor *t) {
  return r->touchable && mf_tensor_size(t) <= MOST_NBYTES && mf_tensor_nbytes(t) <= MOST_NBYTES;
}

static mf_tensor *operate(run *r, mf_tensor *t) {
  mf_error err;
  mf_tensor *next = NULL;
  int rc;
  uint8_t what = take(&r->in) % 8;
  if (what == 0) {
    rc = hop(&r->in, t, &next, &err);
  } else if (what == 1 && is_small(r, t)) {
    rc = work(&r->in, t, &next, &err);
  } else if (what == 2 && is_small(r, t)) {
    copy_within(&r->in, t);
    return t;
  } else {
    rc = make_view(&r->in, t, &next, &err);
  }
  check((rc == MF_OK) == (next != NULL), "an output is NULL exactly after a failure");
  if (rc != MF_OK) {
    check(err.status == rc && memchr(err.message, 0, sizeof err.message) != NULL, "the error is filled");
    return t;
  }
  mf_tensor_release(t);
  return next;
}

static void check_ledger(void) {
  mf_ledger l;
  mf_ledger_read(&l);
  check(l.tensors == 0 && l.storages == 0 && l.bytes == 0 && l.blocks == 0, "the ledger is at zero");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  run r = {.in = {data, data + size}};
  mf_tensor *t = NULL;
  mf_error err;
  uint8_t fault = take(&r.in);
  current = &r;
  take_struct(&r);
  DLTensor *v = view_of(&r);
  int64_t *arrays[] = {v->shape, v->strides};
  mf_fault_arm(fault == 255 ? -1 : fault & 63, fault & 64);
  int rc = r.is_legacy ? mf_tensor_import_legacy(&r.legacy, &t, &err) : mf_tensor_import(&r.versioned, &t, &err);
  check((rc == MF_OK) == (t != NULL) && r.deletions == 0, "a refused struct is not touched");
  bool has_deleter = r.is_legacy ? r.legacy.deleter != NULL : r.versioned.deleter != NULL;
  for (int i = 0; t != NULL && i < MOST_OPERATIONS && r.in.at < r.in.end; i++) t = operate(&r, t);
  mf_fault_arm(-1, 0);
  mf_tensor_release(t);
  check(r.deletions == (rc == MF_OK && has_deleter), "a taken struct is deleted once");
  check_ledger();
  free(arrays[0]);
  free(arrays[1]);
  free(r.memory);
  return 0;
}
