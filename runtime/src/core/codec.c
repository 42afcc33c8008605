/* codec.c: one element in memory to a value and back, for every dtype that has arithmetic. A codec is found
 * once per operation; loading and storing cannot fail. It must not know about layouts. */
#include "core/core.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bit i of an element is bit i of its first bytes");

static const mf__float_format formats[] = {
    [kDLFloat8_e3m4] = {3, 4, MF__IEEE, 3},
    [kDLFloat8_e4m3] = {4, 3, MF__IEEE, 7},
    [kDLFloat8_e4m3b11fnuz] = {4, 3, MF__FNUZ, 11},
    [kDLFloat8_e4m3fn] = {4, 3, MF__FN, 7},
    [kDLFloat8_e4m3fnuz] = {4, 3, MF__FNUZ, 8},
    [kDLFloat8_e5m2] = {5, 2, MF__IEEE, 15},
    [kDLFloat8_e5m2fnuz] = {5, 2, MF__FNUZ, 16},
    [kDLFloat8_e8m0fnu] = {8, 0, MF__SCALE, 127},
    [kDLFloat6_e2m3fn] = {2, 3, MF__FINITE, 1},
    [kDLFloat6_e3m2fn] = {3, 2, MF__FINITE, 3},
    [kDLFloat4_e2m1fn] = {2, 1, MF__FINITE, 1},
};

static const mf__float_format half = {5, 10, MF__IEEE, 15};
static const mf__float_format brain = {8, 7, MF__IEEE, 127};

static bool find_float(const DLDataType *d, mf__codec *c) {
  c->kind = MF_KIND_FLOAT;
  if (d->code == kDLFloat) {
    if (d->bits == 16) c->format = half;
    return d->bits == 16 || d->bits == 32 || d->bits == 64;
  }
  if (d->code == kDLBfloat) {
    c->format = brain;
    return d->bits == 16;
  }
  c->format = formats[d->code];
  return d->bits == (c->format.special == MF__SCALE ? 8 : 1 + c->format.exponent_bits + c->format.mantissa_bits);
}

static bool find_kind(const DLDataType *d, mf__codec *c) {
  switch (d->code) {
    case kDLBool: c->kind = MF_KIND_BOOL; return d->bits <= 64;
    case kDLInt: c->kind = MF_KIND_INT; return d->bits <= 64;
    case kDLUInt: c->kind = MF_KIND_UINT; return d->bits <= 64;
    case kDLOpaqueHandle: return false;
    case kDLComplex:
      c->kind = MF_KIND_COMPLEX;
      if (d->bits == 32) c->format = half;
      return d->bits == 32 || d->bits == 64 || d->bits == 128;
    default: return find_float(d, c);
  }
}

int mf__codec_find(const DLDataType *dtype, uint64_t flags, mf__codec *out, mf_error *err) {
  char name[MF__NAME_CAP] = "";
  memset(out, 0, sizeof *out);
  out->dtype = *dtype;
  out->slot_bits = mf_dtype_bits(dtype, flags);
  if (dtype->lanes == 1 && find_kind(dtype, out)) return MF_OK;
  (void)mf_dtype_format(dtype, name, sizeof name, NULL);
  return mf__fail(err, MF_EDTYPE, "dtype is %s, whose elements are no numbers to this library", name);
}

static uint64_t read_bits(const void *data, int64_t bit, int nbits) {
  uint64_t value = 0;
  mf__bits_copy(&value, 0, data, bit, nbits);
  return value;
}

static void write_bits(void *data, int64_t bit, int nbits, uint64_t value) {
  mf__bits_copy(data, bit, &value, 0, nbits);
}

static double load_float(const mf__codec *c, const void *data, int64_t bit, int bits) {
  if (bits == 64) {
    double value;
    memcpy(&value, (const char *)data + bit / 8, sizeof value);
    return value;
  }
  if (bits == 32) {
    float value;
    memcpy(&value, (const char *)data + bit / 8, sizeof value);
    return (double)value;
  }
  return mf__float_decode(&c->format, (uint32_t)read_bits(data, bit, bits));
}

static void store_float(const mf__codec *c, void *data, int64_t bit, int bits, double value) {
  if (bits == 64) {
    memcpy((char *)data + bit / 8, &value, sizeof value);
  } else if (bits == 32) {
    const float narrow = (float)value;
    memcpy((char *)data + bit / 8, &narrow, sizeof narrow);
  } else {
    write_bits(data, bit, bits, mf__float_encode(&c->format, value));
  }
}

static int64_t sign_extend(uint64_t value, int bits) {
  const int shift = 64 - bits;
  return (int64_t)(value << shift) >> shift;
}

void mf__codec_load(const mf__codec *c, const void *data, int64_t bit, mf_scalar *out) {
  const int bits = c->dtype.bits;
  out->kind = c->kind;
  out->zero = 0;
  out->imag = 0;
  switch (c->kind) {
    case MF_KIND_BOOL: out->i = read_bits(data, bit, bits) != 0; break;
    case MF_KIND_INT: out->i = sign_extend(read_bits(data, bit, bits), bits); break;
    case MF_KIND_UINT: out->u = read_bits(data, bit, bits); break;
    case MF_KIND_FLOAT: out->f = load_float(c, data, bit, bits); break;
    default:
      out->f = load_float(c, data, bit, bits / 2);
      out->imag = load_float(c, data, bit + bits / 2, bits / 2);
  }
}

static bool is_true(const mf_scalar *v) {
  if (v->kind < MF_KIND_FLOAT) return v->u != 0;
  return !(v->f == 0); /* complex does not convert to bool */
}

static uint64_t to_bits(const mf__codec *c, const mf_scalar *v) {
  if (v->kind == MF_KIND_BOOL) return v->u != 0;
  if (v->kind < MF_KIND_FLOAT) return v->u;
  if (c->kind == MF_KIND_UINT) return mf__double_to_uint(v->f, c->dtype.bits);
  return (uint64_t)mf__double_to_int(v->f, c->dtype.bits);
}

/* An integer goes to its float in one rounding: C's own for float and double, ours for the small ones. */
static void store_int_as_float(const mf__codec *c, void *data, int64_t bit, int bits, const mf_scalar *v) {
  const bool is_unsigned = v->kind == MF_KIND_UINT;
  if (bits == 32) {
    const float value = is_unsigned ? (float)v->u : (float)v->i;
    memcpy((char *)data + bit / 8, &value, sizeof value);
  } else if (bits == 64) {
    store_float(c, data, bit, bits, is_unsigned ? (double)v->u : (double)v->i);
  } else {
    const double odd = is_unsigned ? mf__uint_to_double_odd(v->u) : mf__int_to_double_odd(v->i);
    store_float(c, data, bit, bits, odd);
  }
}

static void store_real(const mf__codec *c, void *data, int64_t bit, int bits, const mf_scalar *v) {
  if (v->kind >= MF_KIND_FLOAT) {
    store_float(c, data, bit, bits, v->f);
  } else if (v->kind == MF_KIND_BOOL) {
    store_float(c, data, bit, bits, v->u != 0 ? 1.0 : 0.0);
  } else {
    store_int_as_float(c, data, bit, bits, v);
  }
}

void mf__codec_store(const mf__codec *c, void *data, int64_t bit, const mf_scalar *v) {
  const int bits = c->dtype.bits;
  switch (c->kind) {
    case MF_KIND_BOOL: write_bits(data, bit, bits, is_true(v)); break;
    case MF_KIND_INT:
    case MF_KIND_UINT: write_bits(data, bit, bits, to_bits(c, v)); break;
    case MF_KIND_FLOAT: store_real(c, data, bit, bits, v); break;
    default:
      store_real(c, data, bit, bits / 2, v);
      store_float(c, data, bit + bits / 2, bits / 2, v->kind == MF_KIND_COMPLEX ? v->imag : 0.0);
  }
}

int mf__codec_accepts(const mf__codec *c, int32_t kind, mf_error *err) {
  if (kind != MF_KIND_COMPLEX || c->kind == MF_KIND_COMPLEX) return MF_OK;
  return mf__fail(err, MF_EDTYPE, "a complex value does not convert to a dtype that is not complex");
}

int mf__scalar_check(const mf_scalar *value, mf_error *err) {
  if (value->kind < MF_KIND_BOOL || value->kind > MF_KIND_COMPLEX)
    return mf__fail(err, MF_EINVAL, "value.kind is %d; an mf_kind expected", value->kind);
  if (value->zero != 0) return mf__fail(err, MF_EINVAL, "value.zero is %d; 0 expected", value->zero);
  return MF_OK;
}
