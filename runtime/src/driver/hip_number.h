/* hip_number.h: the kernels for HIP that convert numbers and compare them, from the format FROM to the format TO, LANES
 * at a time where they lie side by side. It is C that hiprtc takes as C++; TO and FROM are constants there.
 *
 * Invariant: the bits are codec.c's, those of a NaN included. Rounds once: what has more digits than a float, and goes
 * to a smaller one, first becomes a float rounded to odd, which still says on which side of a tie it lay. */
MF__HIP_TEXT(format,
enum { A_BOOL, AN_INT, A_UINT, A_SMALL, A_FLOAT, A_DOUBLE };

/* From ${sign} on for a small float alone: mf__small, where it says what each is; scale is a float's bits. */
typedef struct format {
  int kind, nbytes;
  unsigned sign, shift, rebias, half, step, least_normal, scale, max_finite, infinity, overflow, nan, unsigned_zero,
      nan_alone;
} format;
)

MF__HIP_TEXT(number,
/* One of the three, by the format's kind: an integer, or the bits of a float or double. */
typedef struct number {
  u64 whole;
  unsigned real;
  u64 wide;
} number;

INSIDE float as_float(unsigned bits) {
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}

INSIDE unsigned float_bits(float f) {
  unsigned bits;
  __builtin_memcpy(&bits, &f, 4);
  return bits;
}

INSIDE double as_double(u64 bits) {
  double d;
  __builtin_memcpy(&d, &bits, 8);
  return d;
}

INSIDE u64 double_bits(double d) {
  u64 bits;
  __builtin_memcpy(&bits, &d, 8);
  return bits;
}

/* As in kernels_convert.h: a multiplication rebases the exponent, and makes subnormals right, too. */
INSIDE unsigned decoded(unsigned code, const format *f) {
  const unsigned magnitude = code & (f->sign - 1);
  const unsigned sign = (code & f->sign) != 0 ? 0x80000000u : 0;
  const unsigned bits = float_bits(as_float(magnitude << f->shift) * as_float(f->scale)) | sign;
  if (magnitude == f->infinity) return 0x7f800000u | sign;
  return magnitude > f->max_finite || code == f->nan_alone ? 0x7fc00000u : bits;
}

/* As there, too: below the least normal number, adding a number whose last bit is the format's least step rounds; above
 * it, adding half of the last step that stays does. */
INSIDE unsigned encoded(unsigned bits, const format *f) {
  const unsigned magnitude = bits & 0x7fffffffu;
  const unsigned sign = (bits & 0x80000000u) != 0 ? f->sign : 0;
  const unsigned normal = ((magnitude + f->half + (magnitude >> f->shift & 1)) >> f->shift) - f->rebias;
  const unsigned tiny = float_bits(as_float(magnitude) + as_float(f->step)) - f->step;
  const unsigned rounded = magnitude < f->least_normal ? tiny : normal;
  const unsigned code = rounded > f->max_finite ? f->overflow : rounded;
  if (magnitude > 0x7f800000u) return f->nan;
  return code == f->unsigned_zero ? code : code | sign;
}

INSIDE number loaded(u64 bits, const format *f) {
  number v = {bits, (unsigned)bits, bits};
  const int unused = 64 - 8 * f->nbytes;
  if (f->kind == A_BOOL) v.whole = bits != 0;
  if (f->kind == AN_INT) v.whole = (u64)((long long)(bits << unused) >> unused);
  if (f->kind == A_SMALL) v.real = decoded(v.real, f);
  return v;
}

/* The nearest integer toward zero that fits; a NaN is 0. */
INSIDE u64 saturated(double d, const format *f) {
  const u64 end = (u64)1 << (8 * f->nbytes - 1);
  if (d != d) return 0;
  if (f->kind == A_UINT) return d <= 0 ? 0 : d >= (double)end * 2 ? ~(u64)0 : (u64)d;
  return d >= (double)end ? end - 1 : d <= -(double)end ? 0 - end : (u64)(long long)d;
}

/* Odd: of what a double does not hold, the last bit says that there was something. */
INSIDE double odd_double(u64 whole, bool is_signed) {
  const bool below = is_signed && (long long)whole < 0;
  const u64 magnitude = below ? 0 - whole : whole;
  const u64 high = magnitude >> 11 | ((magnitude & 0x7ff) != 0);
  const double d = magnitude >> 53 == 0 ? (double)magnitude : (double)high * 2048;
  return below ? -d : d;
}

INSIDE unsigned odd_float(double d) {
  const double back = (double)(float)d;
  const unsigned bits = float_bits((float)d);
  if (back == d) return bits;
  const u64 no_sign = ~(u64)0 >> 1;
  return (bits - ((double_bits(back) & no_sign) > (double_bits(d) & no_sign))) | 1;
}

/* A NaN keeps its sign and as much of its payload as there is room for, and is quiet. */
INSIDE unsigned narrowed(double d) {
  const u64 bits = double_bits(d);
  if (d == d) return float_bits((float)d);
  return (unsigned)(bits >> 29 & 0x7fffff) | 0x7fc00000u | (unsigned)(bits >> 32 & 0x80000000u);
}

INSIDE u64 widened(unsigned bits) {
  const u64 quiet = (u64)(bits & 0x7fffff) << 29 | (u64)0x7ff80000 << 32;
  const float f = as_float(bits);
  return f == f ? double_bits((double)f) : quiet | (u64)(bits & 0x80000000u) << 32;
}

/* The value as a float's bits, or a double's. */
INSIDE unsigned real_of(number v, const format *from) {
  if (from->kind == A_DOUBLE) return narrowed(as_double(v.wide));
  if (from->kind >= A_SMALL) return v.real;
  return float_bits(from->kind == AN_INT ? (float)(long long)v.whole : (float)v.whole);
}

INSIDE u64 wide_of(number v, const format *from) {
  if (from->kind == A_DOUBLE) return v.wide;
  if (from->kind >= A_SMALL) return widened(v.real);
  return double_bits(from->kind == AN_INT ? (double)(long long)v.whole : (double)v.whole);
}

INSIDE u64 converted(u64 bits, const format *to, const format *from) {
  const number v = loaded(bits, from);
  const bool is_whole = from->kind < A_SMALL;
  switch (to->kind) {
    case A_BOOL: return is_whole ? v.whole != 0 : !(as_double(wide_of(v, from)) == 0);
    case A_SMALL:
      if (from->kind == A_SMALL || from->kind == A_FLOAT) return encoded(v.real, to);
      return encoded(odd_float(is_whole ? odd_double(v.whole, from->kind == AN_INT) : as_double(v.wide)), to);
    case A_FLOAT: return real_of(v, from);
    case A_DOUBLE: return wide_of(v, from);
    default: return is_whole ? v.whole : saturated(as_double(wide_of(v, from)), to);
  }
}

/* ${n} elements; a thread's elements take 16 bytes at most. */
INSIDE void convert(place p, int n) {
  unsigned char in[16] __attribute__((aligned(16)));
  unsigned char out[16] __attribute__((aligned(16)));
  take(in, p.from, n * FROM.nbytes);
  for (int k = 0; k < n; k++) {
    u64 bits = 0;
    __builtin_memcpy(&bits, in + k * FROM.nbytes, (size_t)FROM.nbytes);
    bits = converted(bits, &TO, &FROM);
    __builtin_memcpy(out + k * TO.nbytes, &bits, (size_t)TO.nbytes);
  }
  give(p.to, out, n * TO.nbytes);
}

INSIDE bool equal(u64 a, u64 b, const format *of) {
  const number x = loaded(a, of);
  const number y = loaded(b, of);
  if (of->kind < A_SMALL) return x.whole == y.whole;
  return as_double(wide_of(x, of)) == as_double(wide_of(y, of));
}

/* The job's dst is one side here, and its src the other. */
INSIDE bool differ(place p, int n) {
  unsigned char one[16] __attribute__((aligned(16)));
  unsigned char other[16] __attribute__((aligned(16)));
  bool found = false;
  take(one, p.to, n * TO.nbytes);
  take(other, p.from, n * TO.nbytes);
  for (int k = 0; k < n; k++) {
    u64 a = 0;
    u64 b = 0;
    __builtin_memcpy(&a, one + k * TO.nbytes, (size_t)TO.nbytes);
    __builtin_memcpy(&b, other + k * TO.nbytes, (size_t)TO.nbytes);
    found |= !equal(a, b, &TO);
  }
  return found;
}
)

MF__HIP_TEXT(cast,
ENTRY mf_cast_one(const job j) {
  for (u64 i = first(); i < j.numel; i += step()) convert(place_of(&j, i, 0), 1);
}

ENTRY mf_cast_some(const job j) {
  for (u64 i = first(); i < j.numel; i += step()) convert(place_of(&j, i, 0), LANES);
}
)

/* A thread that has found a difference looks no further. */
MF__HIP_TEXT(compare,
ENTRY mf_compare_one(const job j, unsigned *differs) {
  bool found = false;
  for (u64 i = first(); i < j.numel && !found; i += step()) found = differ(place_of(&j, i, 0), 1);
  tell(found, differs);
}

ENTRY mf_compare_some(const job j, unsigned *differs) {
  bool found = false;
  for (u64 i = first(); i < j.numel && !found; i += step()) found = differ(place_of(&j, i, 0), LANES);
  tell(found, differs);
}
)
