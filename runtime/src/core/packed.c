/* packed.c: rows of elements that take a part of a byte, to rows of bytes and back, so that the loops for whole bytes
 * do the rest. It must not know how a number is encoded.
 *
 * Invariant: bits of the memory that are no element's stay as they are. */
#include "core/simd.h"

static void unpack(const mf__slots *s, const unsigned char *from, int64_t n, unsigned char *out) {
  if (s->bits < 8)
    s->loops->unpack[s->bits](out, from, n);
  else
    s->loops->take(out, from, n * 8, s->mask);
}

static void pack(const mf__slots *s, unsigned char *to, int64_t n, const unsigned char *in) {
  if (s->bits < 8)
    s->loops->pack[s->bits](to, in, n);
  else
    s->loops->merge(to, in, n * 8, s->mask);
}

bool mf__slots_of(const mf__simd *simd, const mf__codec *c, bool clamps, mf__slots *out) {
  const int bits = c->dtype.bits;
  if (simd == NULL) return false;
  *out = (mf__slots){.loops = simd->bits, .bits = c->slot_bits};
  if (bits >= 8) return true;
  if (8 % c->slot_bits != 0) return false;
  out->mask = (1u << bits) - 1;
  if (c->kind == MF_KIND_INT) out->sign = 1u << (bits - 1);
  out->least = clamps ? (signed char)(0 - (int)out->sign) : INT8_MIN;
  out->most = clamps ? (signed char)(out->sign == 0 ? out->mask : out->sign - 1) : INT8_MAX;
  return true;
}

static unsigned char *byte_of(const mf__slots *s, const char *data, int64_t at) {
  return (unsigned char *)(uintptr_t)data + (at * s->bits >> 3);
}

static int shift_of(const mf__slots *s, int64_t at) {
  return (int)(at * s->bits & 7);
}

static void load_some(const mf__slots *s, const char *data, const mf__run *r, int64_t first, unsigned char *out) {
  for (int64_t i = first; i < r->n; i++) {
    const int64_t at = r->at + i * r->step;
    out[i] = (unsigned char)((unsigned)*byte_of(s, data, at) >> shift_of(s, at) & s->mask);
  }
}

static void store_some(const mf__slots *s, char *data, const mf__run *r, int64_t first, const unsigned char *in) {
  for (int64_t i = first; i < r->n; i++) {
    const int64_t at = r->at + i * r->step;
    unsigned char *byte = byte_of(s, data, at);
    *byte = (unsigned char)((*byte & ~(s->mask << shift_of(s, at))) | (in[i] & s->mask) << shift_of(s, at));
  }
}

/* How many elements come before the first byte that is theirs alone. */
static int64_t lead(const mf__slots *s, const mf__run *r) {
  const int64_t before = (8 - shift_of(s, r->at)) % 8 / s->bits;
  return r->step == 1 && before < r->n ? before : r->n;
}

const char *mf__slots_load(const mf__slots *s, const char *data, const mf__run *r, char *room) {
  unsigned char *out = (unsigned char *)room;
  if (s->mask == 0) {
    const int64_t size = s->bits / 8;
    const mf__tile t = {.dst = room, .src = data + r->at * size, .size = size, .rows = 1, .columns = r->n,
                        .dst_column = size, .src_column = r->step * size};
    if (r->step == 1) return t.src;
    mf__move_plain(&t);
    return room;
  }
  const int64_t first = lead(s, r), eights = (r->n - first) / 8;
  const mf__run head = {r->at, r->step, first};
  load_some(s, data, &head, 0, out);
  unpack(s, byte_of(s, data, r->at + first), eights, out + first);
  load_some(s, data, r, first + eights * 8, out);
  if (s->sign != 0) s->loops->extend(out, r->n, s->sign);
  return room;
}

char *mf__slots_place(const mf__slots *s, char *data, const mf__run *r, char *room) {
  return s->mask == 0 && r->step == 1 ? data + r->at * (s->bits / 8) : room;
}

void mf__slots_clamp(const mf__slots *s, char *place, int64_t n) {
  if (s->mask != 0 && s->least > INT8_MIN) s->loops->clamp((unsigned char *)place, n, s);
}

void mf__slots_store(const mf__slots *s, char *data, const mf__run *r, const char *from) {
  const unsigned char *in = (const unsigned char *)from;
  if (s->mask == 0 && r->step == 1) return;
  if (s->mask == 0) {
    const int64_t size = s->bits / 8;
    const mf__tile t = {.dst = data + r->at * size, .src = from, .size = size, .rows = 1, .columns = r->n,
                        .dst_column = r->step * size, .src_column = size};
    mf__move_plain(&t);
    return;
  }
  const int64_t first = lead(s, r), eights = (r->n - first) / 8;
  const mf__run head = {r->at, r->step, first};
  store_some(s, data, &head, 0, in);
  pack(s, byte_of(s, data, r->at + first), eights, in + first);
  store_some(s, data, r, first + eights * 8, in);
}
