/* cast.c: elements from one dtype to another, and filling. The rules of conversion are codec.c's. */
#include "core/simd.h"

typedef struct cast_ctx {
  mf__codec to;
  mf__codec from;
  char *dst;
  char *src; /* only read */
  mf__convert convert; /* where there are loops */
  mf__slots slots[2];
} cast_ctx;

static bool cast_row(void *arg, const int64_t at[2], int64_t n, const int64_t step[2]) {
  const cast_ctx *c = arg;
  mf_scalar value;
  for (int64_t i = 0; i < n; i++) {
    mf__codec_load(&c->from, c->src, (at[1] + i * step[1]) * c->from.slot_bits, &value);
    mf__codec_store(&c->to, c->dst, (at[0] + i * step[0]) * c->to.slot_bits, &value);
  }
  return true;
}

/* Where one side has elements of less than a byte: pieces that stay in the cache, as bytes. */
static bool cast_bytes_row(void *arg, const int64_t at[2], int64_t n, const int64_t step[2]) {
  enum { PIECE = 1024 }; /* a multiple of the elements of a byte */
  _Alignas(64) char room[2][PIECE * 8];
  const cast_ctx *c = arg;
  const bool converts = c->convert.nstages > 0; /* else each byte gives its low bits, or is what was loaded */
  /* Where nothing is between the two sides, as much as a kilobyte of the source has. */
  const bool direct = !converts && step[0] == 1 && step[1] == 1;
  const int64_t piece = direct ? PIECE * 8 / c->slots[1].bits : PIECE;
  for (int64_t done = 0; done < n; done += piece) {
    const int64_t count = n - done < piece ? n - done : piece;
    const mf__run to = {at[0] + done * step[0], step[0], count}, from = {at[1] + done * step[1], step[1], count};
    if (step[1] == 1) mf__prefetch_ahead(c->src + (from.at * c->slots[1].bits >> 3), count * c->slots[1].bits >> 3);
    char *place = mf__slots_place(&c->slots[0], c->dst, &to, room[1]);
    const char *loaded = mf__slots_load(&c->slots[1], c->src, &from, converts ? room[0] : place);
    if (converts) {
      mf__convert_row(&c->convert, place, loaded, count, false);
      mf__slots_clamp(&c->slots[0], place, count);
      loaded = place;
    }
    mf__slots_store(&c->slots[0], c->dst, &to, loaded);
  }
  return true;
}

static bool has_part_bytes(const cast_ctx *c) {
  return c->to.dtype.bits < 8 || c->from.dtype.bits < 8;
}

static bool find_loops(const mf__simd *simd, cast_ctx *c) {
  return mf__slots_of(simd, &c->to, c->from.kind == MF_KIND_FLOAT, &c->slots[0]) &&
         mf__slots_of(simd, &c->from, false, &c->slots[1]) && mf__convert_find(simd, &c->to, &c->from, &c->convert);
}

/* Both compact: one row, unless it is long enough for several threads, or to pass the caches. */
static bool cast_compact(cast_ctx *c, mf_tensor *dst, const mf_tensor *src) {
  if (mf_tensor_nbytes(dst) >= MF__LARGE || !mf__is_compact(&dst->dl) || !mf__is_compact(&src->dl)) return false;
  if (has_part_bytes(c) || !mf__convert_find(mf__simd_now(), &c->to, &c->from, &c->convert)) return false;
  mf__convert_row(&c->convert, dst->dl.data, src->dl.data, mf_tensor_size(dst), false);
  return true;
}

static void cast_apart(cast_ctx *c, mf_tensor *dst, const mf_tensor *src) {
  if (cast_compact(c, dst, src)) return;
  const mf__simd *simd = mf__simd_now();
  const bool repeats = mf__walk_repeats(&dst->dl), fast = !repeats && find_loops(simd, c);
  mf__walk w;
  if (fast && !has_part_bytes(c)) {
    const mf__side from = {src->dl.data, src->dl.strides, c->convert.from};
    if (!mf__blocks_cast(simd, &c->convert, &dst->dl, &from, mf_tensor_size(dst)))
      mf__tiles_cast(simd, &c->convert, &dst->dl, &from);
    return;
  }
  c->dst = dst->dl.data;
  c->src = src->dl.data;
  mf__walk_plan(&w, &dst->dl, src->dl.strides, repeats);
  if (repeats || !mf__walk_is_apart(&w, c->to.slot_bits))
    (void)mf__walk_rows(&w, fast ? cast_bytes_row : cast_row, c);
  else
    (void)mf__walk_share(&w, mf_tensor_size(dst), 8, fast ? cast_bytes_row : cast_row, c);
}

static int cast_staged(cast_ctx *c, mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf_tensor *staged;
  int rc = mf__tensor_create_host(&src->dl, mf__tensor_padded(src), &staged, err);
  if (rc != MF_OK) return rc;
  rc = mf__copy_host(staged, src, err);
  if (rc == MF_OK) cast_apart(c, dst, staged);
  (void)mf_tensor_release_later(staged);
  return rc;
}

int mf__cast_host(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  cast_ctx c;
  int rc = mf__codec_find(&dst->dl.dtype, dst->flags, &c.to, err);
  if (rc == MF_OK) rc = mf__codec_find(&src->dl.dtype, src->flags, &c.from, err);
  if (rc != MF_OK) return rc;
  if (mf__overlap(dst, src)) return cast_staged(&c, dst, src, err);
  cast_apart(&c, dst, src);
  return MF_OK;
}

static int check_cast(const mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  mf__codec to, from;
  int rc = mf__codec_find(&dst->dl.dtype, dst->flags, &to, err);
  if (rc == MF_OK) rc = mf__codec_find(&src->dl.dtype, src->flags, &from, err);
  return rc == MF_OK ? mf__codec_accepts(&to, from.kind, err) : rc;
}

static int cast(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  if (mf__is_empty(&dst->dl)) return MF_OK;
  const mf__record *record = mf__either_record(dst, src);
  if (record != NULL) return mf__ops_of(record)->cast(dst, src, err);
  int rc = mf__fences_settle(src, false, err);
  if (rc == MF_OK) rc = mf__fences_settle(dst, true, err);
  return rc == MF_OK ? mf__cast_host(dst, src, err) : rc;
}

static bool same_elements(const mf_tensor *a, const mf_tensor *b) {
  return mf__dtype_equal(&a->dl.dtype, &b->dl.dtype) && mf__tensor_bits(a) == mf__tensor_bits(b);
}

int mf_tensor_astype(mf_tensor *dst, const mf_tensor *src, mf_error *err) {
  MF__NEED(dst);
  MF__NEED(src);
  if (same_elements(dst, src)) return mf__end(mf_tensor_copy(dst, src, err), __func__, err);
  int rc = mf__tensor_writable(dst, err);
  if (rc == MF_OK) rc = mf__tensor_open(src, err);
  if (rc == MF_OK) rc = check_cast(dst, src, err);
  if (rc == MF_OK) rc = mf__same_shape(dst, src, err);
  if (rc == MF_OK) rc = cast(dst, src, err);
  return mf__end(rc, __func__, err);
}

static int fill(mf_tensor *t, const void *slot, mf_error *err) {
  if (mf__is_empty(&t->dl)) return MF_OK;
  const mf__record *record = mf__tensor_record(t);
  if (record != NULL) return mf__ops_of(record)->fill(t, slot, err);
  const int rc = mf__fences_settle(t, true, err);
  if (rc == MF_OK) mf__repeat(t, slot);
  return rc;
}

int mf_tensor_fill(mf_tensor *t, const mf_scalar *value, mf_error *err) {
  MF__NEED(t);
  MF__NEED(value);
  unsigned char slot[32] = {0}; /* complex128 takes 16, a padded width at most as much */
  mf__codec c;
  int rc = mf__tensor_writable(t, err);
  if (rc == MF_OK) rc = mf__scalar_check(value, err);
  if (rc == MF_OK) rc = mf__codec_find(&t->dl.dtype, t->flags, &c, err);
  if (rc == MF_OK) rc = mf__codec_accepts(&c, value->kind, err);
  if (rc == MF_OK) {
    mf__codec_store(&c, slot, 0, value);
    rc = fill(t, slot, err);
  }
  return mf__end(rc, __func__, err);
}
