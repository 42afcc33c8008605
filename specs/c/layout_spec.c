/* layout_spec.c: every view against a brute-force oracle, over random layouts: the element at each coordinate
 * of the view is the element, at the same address, that the oracle names. What views refuse is in view_spec.c.
 */
#include "spec.h"

enum { ROUNDS = ROUNDS_OF(4000) };

static const char *const dtypes[] = {"int8", "float32", "complex128", "uint8x3", "int4", "uint1", "float6_e2m3fn"};

/* A random tensor, with its memory. */
typedef struct subject {
  spec_layout l;
  uint64_t flags;
  mf_tensor *t;
} subject;

static void subject_begin(subject *s, int32_t max_ndim) {
  DLDataType dtype = spec_dtype(dtypes[spec_random() % COUNT(dtypes)]);
  s->flags = spec_random() % 4 == 0 ? DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED : 0;
  if (spec_random() % 4 == 0) s->flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
  spec_layout_random(&s->l, dtype, s->flags, max_ndim);
  s->t = spec_layout_wrap(&s->l, s->flags);
}

static void subject_end(subject *s) {
  mf_tensor_release(s->t);
  free(s->l.block);
}

/* What an operation should give: a shape, and which coordinates of the subject each of its own means. */
typedef struct oracle {
  int32_t ndim;
  int64_t shape[MF_MAX_NDIM];
  void (*map)(const struct oracle *o, const int64_t *out, int64_t *in);
  int32_t axis[MF_MAX_NDIM];   /* permute, squeeze, expand, broadcast, index: axis of the subject, or -1 */
  int64_t fixed[MF_MAX_NDIM];  /* index: the coordinate of an axis that goes */
  int64_t first[MF_MAX_NDIM];  /* index: the first coordinate of an axis that stays, and the step */
  int64_t step[MF_MAX_NDIM];
  int64_t offset;              /* diagonal */
  int32_t plane[2];
  const DLTensor *from;
} oracle;

static int64_t absolute_bit(const DLTensor *view, uint64_t flags, const int64_t *coords) {
  return (int64_t)((uintptr_t)view->data * 8) + spec_bit(view, flags, coords);
}

static bool begins_within_a_byte(const subject *s, const oracle *o) {
  int64_t out[MF_MAX_NDIM];
  int64_t in[MF_MAX_NDIM] = {0};
  if (!spec_first(o->ndim, o->shape, out)) return false;
  o->map(o, out, in);
  return spec_bit(&s->l.view, s->flags, in) % 8 != 0;
}

static void same_description(const subject *s, const mf_tensor *v, const oracle *o) {
  const DLTensor *d = mf_tensor_dltensor(v);
  int64_t numel = 1;
  assert_int_equal(d->ndim, o->ndim);
  for (int32_t i = 0; i < o->ndim; i++) {
    assert_int_equal(d->shape[i], o->shape[i]);
    numel *= o->shape[i];
  }
  assert_memory_equal(&d->dtype, &s->l.view.dtype, sizeof d->dtype);
  assert_int_equal(d->device.device_type, kDLCPU);
  assert_int_equal(d->byte_offset, 0);
  assert_int_equal(mf_tensor_size(v), numel);
  assert_int_equal(mf_tensor_nbytes(v), (numel * mf_dtype_bits(&d->dtype, s->flags) + 7) / 8);
}

/* Compares a view with the oracle and releases it; ${rc} is what the operation returned. */
static void matches(const subject *s, const oracle *o, int rc, mf_tensor *v, uint64_t flags) {
  int64_t out[MF_MAX_NDIM];
  int64_t in[MF_MAX_NDIM] = {0};
  if (begins_within_a_byte(s, o)) {
    assert_int_equal(rc, MF_ELAYOUT);
    assert_null(v);
    return;
  }
  assert_int_equal(rc, MF_OK);
  same_description(s, v, o);
  assert_int_equal(mf_tensor_flags(v), flags);
  const DLTensor *d = mf_tensor_dltensor(v);
  for (bool more = spec_first(o->ndim, o->shape, out); more; more = spec_next(o->ndim, o->shape, out)) {
    o->map(o, out, in);
    assert_int_equal(absolute_bit(d, s->flags, out), absolute_bit(&s->l.view, s->flags, in));
  }
  mf_tensor_release(v);
}

static void map_axes(const oracle *o, const int64_t *out, int64_t *in) {
  for (int32_t i = 0; i < o->ndim; i++) {
    if (o->axis[i] >= 0) in[o->axis[i]] = o->from->shape[o->axis[i]] == 1 ? 0 : out[i];
  }
}

static void indexed(const oracle *o, const int64_t *out, int64_t *in) {
  for (int32_t i = 0; i < o->from->ndim; i++) in[i] = o->fixed[i];
  for (int32_t i = 0; i < o->ndim; i++) {
    if (o->axis[i] >= 0) in[o->axis[i]] = o->first[i] + out[i] * o->step[i];
  }
}

static int64_t slice_end(bool is_start) {
  static const int64_t wild[] = {INT64_MAX, INT64_MIN + 1, INT64_MAX - 1, INT64_MIN + 2};
  if (spec_random() % 4 == 0) return MF_INDEX_NONE;
  if (spec_random() % 16 == 0) return wild[spec_random() % COUNT(wild)];
  return spec_between(is_start ? -6 : -7, 7);
}

/* The coordinates that a slice takes, found by walking them one by one. */
static void walk_slice(const mf_index *item, int64_t n, oracle *o) {
  int64_t step = item->step == MF_INDEX_NONE ? 1 : item->step;
  int64_t low = step > 0 ? 0 : -1;
  int64_t high = step > 0 ? n : n - 1;
  int64_t ends[2] = {item->start, item->stop};
  for (int i = 0; i < 2; i++) {
    bool at_low = (i == 0) == (step > 0);
    if (ends[i] == MF_INDEX_NONE) ends[i] = at_low ? low : high;
    else if (ends[i] < 0) ends[i] = ends[i] + n < low ? low : ends[i] + n;
    else if (ends[i] > high) ends[i] = high;
  }
  int64_t count = 0;
  for (int64_t at = ends[0]; step > 0 ? at < ends[1] : at > ends[1]; at += step) {
    count++;
    if (step > n || step < -n) break;
  }
  o->first[o->ndim] = ends[0];
  o->step[o->ndim] = step;
  o->shape[o->ndim] = count;
}

static void keep_axis(oracle *o, int32_t axis) {
  o->axis[o->ndim] = axis;
  o->shape[o->ndim] = o->from->shape[axis];
  o->first[o->ndim] = 0;
  o->step[o->ndim++] = 1;
}

static mf_index random_item(int64_t extent) {
  static const int64_t steps[] = {1, 1, 2, 3, -1, -1, -2, -3, MF_INDEX_NONE, INT64_MAX, INT64_MIN + 1};
  mf_index item = {.kind = MF_INDEX_SLICE};
  if (extent > 0 && spec_random() % 3 == 0) {
    item.kind = MF_INDEX_AT;
    item.start = spec_between(-extent, extent - 1);
    return item;
  }
  item.start = slice_end(true);
  item.stop = slice_end(false);
  item.step = steps[spec_random() % COUNT(steps)];
  return item;
}

/* Random items, and what they mean. Some axes at the end or under the ellipsis are left whole. */
static int32_t random_items(mf_index *items, oracle *o) {
  int32_t n = 0;
  int32_t axis = 0;
  int32_t ndim = o->from->ndim;
  int32_t under_ellipsis = spec_random() % 2 ? (int32_t)spec_between(0, ndim) : -1;
  int32_t before = under_ellipsis < 0 ? ndim : (int32_t)spec_between(0, ndim - under_ellipsis);
  while (true) {
    if (spec_random() % 8 == 0) {
      items[n++] = (mf_index){.kind = MF_INDEX_NEWAXIS};
      o->axis[o->ndim] = -1;
      o->shape[o->ndim++] = 1;
    }
    if (axis == before && under_ellipsis >= 0) {
      items[n++] = (mf_index){.kind = MF_INDEX_ELLIPSIS};
      for (; under_ellipsis > 0; under_ellipsis--) keep_axis(o, axis++);
      under_ellipsis = before = -1;
    }
    if (axis == ndim) return n;
    if (before >= 0 && under_ellipsis < 0 && spec_random() % 8 == 0) break;
    items[n] = random_item(o->from->shape[axis]);
    if (items[n].kind == MF_INDEX_AT) {
      o->fixed[axis] = items[n].start + (items[n].start < 0 ? o->from->shape[axis] : 0);
    } else {
      walk_slice(&items[n], o->from->shape[axis], o);
      o->axis[o->ndim++] = axis;
    }
    n++;
    axis++;
  }
  while (axis < ndim) keep_axis(o, axis++);
  return n;
}

static void index_takes_what_python_takes(void **state) {
  (void)state;
  for (int round = 0; round < 4 * ROUNDS; round++) {
    subject s;
    mf_index items[64];
    mf_tensor *v;
    subject_begin(&s, 6);
    oracle o = {.map = indexed, .from = &s.l.view};
    int32_t n = random_items(items, &o);
    int rc = mf_tensor_index(s.t, items, n, &v, NULL);
    matches(&s, &o, rc, v, s.flags);
    subject_end(&s);
  }
}

static void permute_reorders_axes(void **state) {
  (void)state;
  for (int round = 0; round < ROUNDS; round++) {
    subject s;
    int32_t axes[8];
    mf_tensor *v;
    subject_begin(&s, 6);
    int32_t ndim = s.l.view.ndim;
    oracle o = {.ndim = ndim, .map = map_axes, .from = &s.l.view};
    for (int32_t i = 0; i < ndim; i++) o.axis[i] = ndim - 1 - i;
    bool transpose = round % 4 == 0;
    for (int32_t i = ndim - 1; i > 0 && !transpose; i--) {
      int32_t j = (int32_t)spec_between(0, i);
      int32_t swap = o.axis[i];
      o.axis[i] = o.axis[j];
      o.axis[j] = swap;
    }
    for (int32_t i = 0; i < ndim; i++) {
      axes[i] = o.axis[i] - (spec_random() % 2 ? ndim : 0);
      o.shape[i] = s.l.shape[o.axis[i]];
    }
    int rc = mf_tensor_permute_dims(s.t, transpose ? NULL : axes, transpose ? 0 : ndim, &v, NULL);
    matches(&s, &o, rc, v, s.flags);
    subject_end(&s);
  }
}

static void squeeze_drops_axes_of_extent_1(void **state) {
  (void)state;
  for (int round = 0; round < ROUNDS; round++) {
    subject s;
    int32_t axes[8];
    int32_t n = 0;
    mf_tensor *v;
    subject_begin(&s, 6);
    bool all = round % 3 == 0;
    oracle o = {.map = map_axes, .from = &s.l.view};
    for (int32_t i = 0; i < s.l.view.ndim; i++) {
      if (s.l.shape[i] == 1 && (all || spec_random() % 2)) {
        axes[n++] = i - (spec_random() % 2 ? s.l.view.ndim : 0);
      } else {
        o.shape[o.ndim] = s.l.shape[i];
        o.axis[o.ndim++] = i;
      }
    }
    int rc = mf_tensor_squeeze(s.t, all ? NULL : axes, all ? 0 : n, &v, NULL);
    matches(&s, &o, rc, v, s.flags);
    subject_end(&s);
  }
}

static void expand_adds_an_axis(void **state) {
  (void)state;
  for (int round = 0; round < ROUNDS; round++) {
    subject s;
    mf_tensor *v;
    subject_begin(&s, 6);
    oracle o = {.ndim = s.l.view.ndim + 1, .map = map_axes, .from = &s.l.view};
    int32_t at = (int32_t)spec_between(0, s.l.view.ndim);
    for (int32_t i = 0; i < o.ndim; i++) {
      o.axis[i] = i < at ? i : i == at ? -1 : i - 1;
      o.shape[i] = i == at ? 1 : s.l.shape[o.axis[i]];
    }
    int rc = mf_tensor_expand_dims(s.t, spec_random() % 2 ? at : at - o.ndim, &v, NULL);
    matches(&s, &o, rc, v, s.flags);
    subject_end(&s);
  }
}

static void broadcast_repeats(void **state) {
  (void)state;
  for (int round = 0; round < ROUNDS; round++) {
    subject s;
    mf_tensor *v;
    bool repeats = false;
    bool some = true;
    subject_begin(&s, 4);
    int32_t added = (int32_t)spec_between(0, 2);
    oracle o = {.ndim = s.l.view.ndim + added, .map = map_axes, .from = &s.l.view};
    for (int32_t i = 0; i < o.ndim; i++) {
      o.axis[i] = i - added < 0 ? -1 : i - added;
      int64_t extent = i < added ? 1 : s.l.shape[i - added];
      o.shape[i] = extent == 1 && spec_random() % 2 ? spec_between(0, 3) : extent;
      repeats = repeats || (extent == 1 && o.shape[i] > 1);
      some = some && o.shape[i] > 0;
    }
    int rc = mf_tensor_broadcast_to(s.t, o.shape, o.ndim, &v, NULL);
    uint64_t flags = rc == MF_OK && !some ? mf_tensor_flags(v) : s.flags;
    if (some && repeats) flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
    matches(&s, &o, rc, v, flags);
    subject_end(&s);
  }
}

static void on_the_diagonal(const oracle *o, const int64_t *out, int64_t *in) {
  int32_t n = 0;
  for (int32_t i = 0; i < o->from->ndim; i++) {
    if (i != o->plane[0] && i != o->plane[1]) in[i] = out[n++];
  }
  in[o->plane[0]] = out[n] + (o->offset < 0 ? -o->offset : 0);
  in[o->plane[1]] = out[n] + (o->offset > 0 ? o->offset : 0);
}

static void diagonal_walks_a_plane(void **state) {
  (void)state;
  for (int round = 0; round < ROUNDS; round++) {
    subject s;
    mf_tensor *v;
    int32_t axes[2];
    subject_begin(&s, 5);
    int32_t ndim = s.l.view.ndim;
    oracle o = {.map = on_the_diagonal, .from = &s.l.view, .offset = spec_between(-5, 5)};
    if (ndim >= 2) {
      o.plane[0] = (int32_t)spec_between(0, ndim - 1);
      o.plane[1] = (o.plane[0] + (int32_t)spec_between(1, ndim - 1)) % ndim;
      for (int i = 0; i < 2; i++) axes[i] = o.plane[i] - (spec_random() % 2 ? ndim : 0);
      for (int32_t i = 0; i < ndim; i++) {
        if (i != o.plane[0] && i != o.plane[1]) o.shape[o.ndim++] = s.l.shape[i];
      }
      for (int64_t r = 0; r < s.l.shape[o.plane[0]]; r++) {
        int64_t c = r + o.offset;
        o.shape[o.ndim] += c >= 0 && c < s.l.shape[o.plane[1]];
      }
      o.ndim++;
      int rc = mf_tensor_diagonal(s.t, o.offset, axes, &v, NULL);
      matches(&s, &o, rc, v, s.flags);
    }
    subject_end(&s);
  }
}

/* Reshape: coordinates with the same place in row-major order. */
static void same_place(const oracle *o, const int64_t *out, int64_t *in) {
  int64_t place = 0;
  for (int32_t i = 0; i < o->ndim; i++) place = place * o->shape[i] + out[i];
  for (int32_t i = o->from->ndim - 1; i >= 0; i--) {
    in[i] = place % o->from->shape[i];
    place /= o->from->shape[i];
  }
}

/* Whether any strides at all can express the oracle's shape. */
static bool expressible(const oracle *o) {
  int64_t out[MF_MAX_NDIM];
  int64_t in[MF_MAX_NDIM] = {0};
  int64_t stride[MF_MAX_NDIM] = {0};
  int64_t origin = 0;
  if (!spec_first(o->ndim, o->shape, out)) return true;
  for (int32_t i = 0; i < o->ndim; i++) {
    if (o->shape[i] == 1) continue;
    out[i] = 1;
    o->map(o, out, in);
    for (int32_t k = 0; k < o->from->ndim; k++) stride[i] += in[k] * o->from->strides[k];
    out[i] = 0;
  }
  for (bool more = true; more; more = spec_next(o->ndim, o->shape, out)) {
    origin = 0;
    o->map(o, out, in);
    for (int32_t k = 0; k < o->from->ndim; k++) origin += in[k] * o->from->strides[k];
    for (int32_t k = 0; k < o->ndim; k++) origin -= out[k] * stride[k];
    if (origin != 0) return false;
  }
  return true;
}

static void random_shape_of(int64_t numel, oracle *o) {
  o->ndim = 0;
  while (numel > 1 || (o->ndim < 5 && spec_random() % 3 == 0)) {
    int64_t factor = spec_between(1, numel < 9 ? numel : 9);
    if (o->ndim == 6) factor = numel;
    if (numel % factor != 0) continue;
    o->shape[o->ndim++] = factor;
    numel /= factor;
  }
}

static void reshape_where_strides_can(void **state) {
  int views = 0;
  (void)state;
  for (int round = 0; round < 3 * ROUNDS; round++) {
    subject s;
    mf_tensor *v;
    subject_begin(&s, 4);
    int64_t wanted[MF_MAX_NDIM];
    int64_t numel = mf_tensor_size(s.t);
    oracle o = {.map = same_place, .from = &s.l.view};
    if (numel > 0) random_shape_of(numel, &o);
    else o.shape[o.ndim++] = 0;
    memcpy(wanted, o.shape, sizeof wanted);
    if (o.ndim > 0 && spec_random() % 2) wanted[spec_random() % (uint64_t)o.ndim] = -1;
    int rc = mf_tensor_reshape(s.t, wanted, o.ndim, &v, NULL);
    if (expressible(&o)) {
      views++;
      matches(&s, &o, rc, v, s.flags);
    } else {
      assert_int_equal(rc, MF_ELAYOUT);
      assert_null(v);
    }
    subject_end(&s);
  }
  assert_true(views > ROUNDS);
}

/* Reinterpret keeps the bytes of every row of the last axis. */
static void reinterpret_keeps_the_bytes(void **state) {
  static const char *const names[] = {"int8", "uint16", "float32", "complex64", "uint8x3", "float64", "bool"};
  (void)state;
  for (int round = 0; round < ROUNDS; round++) {
    DLDataType from = spec_dtype(names[spec_random() % COUNT(names)]);
    DLDataType to = spec_dtype(names[spec_random() % COUNT(names)]);
    int64_t a = mf_dtype_bits(&from, 0) / 8;
    int64_t b = mf_dtype_bits(&to, 0) / 8;
    spec_layout l;
    mf_tensor *v;
    spec_layout_random(&l, from, 0, 3);
    free(l.block);
    int32_t last = l.view.ndim - 1;
    if (last >= 0 && spec_random() % 4) l.strides[last] = 1;
    spec_layout_memory(&l, 0);
    mf_tensor *t = spec_layout_wrap(&l, 0);
    bool fits = a == b;
    if (!fits && last >= 0) {
      fits = (l.strides[last] == 1 || l.shape[last] <= 1) && l.shape[last] * a % b == 0;
      for (int32_t i = 0; i < last; i++) fits = fits && (l.shape[i] <= 1 || l.strides[i] * a % b == 0);
    }
    int rc = mf_tensor_reinterpret(t, &to, &v, NULL);
    assert_int_equal(rc, fits ? MF_OK : MF_ELAYOUT);
    if (fits) {
      const DLTensor *d = mf_tensor_dltensor(v);
      int64_t coords[MF_MAX_NDIM] = {0};
      int64_t wide[MF_MAX_NDIM] = {0};
      assert_memory_equal(&d->dtype, &to, sizeof to);
      assert_int_equal(mf_tensor_nbytes(v), mf_tensor_nbytes(t));
      for (bool more = spec_first(d->ndim, d->shape, coords); more;
           more = spec_next(d->ndim, d->shape, coords)) {
        memcpy(wide, coords, sizeof wide);
        int64_t byte = a == b ? 0 : coords[last] * b;
        if (a != b) wide[last] = byte / a;
        int64_t want = absolute_bit(&l.view, 0, wide) / 8 + (a == b ? 0 : byte % a);
        assert_int_equal(absolute_bit(d, 0, coords) / 8, want);
      }
    }
    mf_tensor_release(v);
    mf_tensor_release(t);
    free(l.block);
  }
}

/* is_contiguous against its definition: compact row-major, whatever axes of extent 1 say. */
static void contiguity(void **state) {
  (void)state;
  for (int round = 0; round < 2 * ROUNDS; round++) {
    spec_layout l;
    int64_t step = 1;
    bool compact = true;
    bool empty = false;
    spec_layout_random(&l, spec_dtype("int8"), 0, 4);
    free(l.block);
    for (int32_t i = l.view.ndim - 1; i >= 0; i--) {
      if (spec_random() % 8) l.strides[i] = step;
      if (l.shape[i] > 1 && l.strides[i] != step) compact = false;
      step *= l.shape[i] > 0 ? l.shape[i] : 1;
      empty = empty || l.shape[i] == 0;
    }
    spec_layout_memory(&l, 0);
    mf_tensor *t = spec_layout_wrap(&l, 0);
    assert_int_equal(mf_tensor_is_contiguous(t), compact || empty);
    mf_tensor_release(t);
    free(l.block);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SPEC(index_takes_what_python_takes),
      SPEC(permute_reorders_axes),
      SPEC(squeeze_drops_axes_of_extent_1),
      SPEC(expand_adds_an_axis),
      SPEC(broadcast_repeats),
      SPEC(diagonal_walks_a_plane),
      SPEC(reshape_where_strides_can),
      SPEC(reinterpret_keeps_the_bytes),
      SPEC(contiguity),
  };
  return cmocka_run_group_tests(tests, spec_group_setup, NULL);
}
