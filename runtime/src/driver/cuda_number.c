/* cuda_number.c: writes the text of the kernels that convert numbers and compare them. An element is loaded into %i, or
 * %l where it has 8 bytes; decoded into the register that holds all of its dtype's values: %i, %l, the float %f or the
 * double %d; converted from there to the target's bits in %i or %l; and stored.
 *
 * Invariant: the bits are codec.c's, those of a NaN included. Rounds once: where a small float's source has more digits
 * than a float, it first goes to a float rounded to odd, which still says on which side of a tie it lay. What devices
 * leave open is not used: which integer and which NaN a NaN becomes (PTX ISA, "Data Movement and Conversion
 * Instructions: cvt"). */
#include "driver/cuda.h"

#include <stdio.h>
#include <string.h>

/* The registers that a value is in. */
typedef enum held { IN_INT, IN_LONG, IN_FLOAT, IN_DOUBLE } held;

/* A dtype: how it is loaded and stored; what its integers, or those that hold them, are converted as; where the values
 * that %i holds end on the way from a float, if they are fewer than it has. */
typedef struct number {
  held in;
  bool exact; /* a float holds all of its values */
  const char *load, *store, *type;
  const char *least, *most;
} number;

static const number numbers[MF__NNUMBERS] = {
    [MF__N_BOOL] = {IN_INT, true, "u8", "u8", "u32", NULL, NULL},
    [MF__N_I8] = {IN_INT, true, "s8", "u8", "s32", "-128", "127"},
    [MF__N_I16] = {IN_INT, true, "s16", "u16", "s32", "-32768", "32767"},
    [MF__N_I32] = {IN_INT, false, "u32", "u32", "s32", NULL, NULL},
    [MF__N_I64] = {IN_LONG, false, "u64", "u64", "s64", NULL, NULL},
    [MF__N_U8] = {IN_INT, true, "u8", "u8", "u32", "0", "255"},
    [MF__N_U16] = {IN_INT, true, "u16", "u16", "u32", "0", "65535"},
    [MF__N_U32] = {IN_INT, false, "u32", "u32", "u32", NULL, NULL},
    [MF__N_U64] = {IN_LONG, false, "u64", "u64", "u64", NULL, NULL},
    [MF__N_SMALL8] = {IN_FLOAT, true, "u8", "u8", NULL, NULL, NULL},
    [MF__N_BF16] = {IN_FLOAT, true, "u16", "u16", NULL, NULL, NULL},
    [MF__N_F16] = {IN_FLOAT, true, "u16", "u16", NULL, NULL, NULL},
    [MF__N_F32] = {IN_FLOAT, true, "u32", "u32", NULL, NULL, NULL},
    [MF__N_F64] = {IN_DOUBLE, false, "u64", "u64", NULL, NULL, NULL},
};

static void put_number(mf__cuda_text *t, const char *text, uint32_t value) {
  char digits[16];
  (void)snprintf(digits, sizeof digits, "%08x", value);
  mf__cuda_put(t, text, digits, NULL);
}

static uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

/* Decoding */

/* As in kernels_convert.h: a multiplication rebases the exponent, and makes subnormals right, too. */
static void decode_small(mf__cuda_text *t, const mf__small *f) {
  put_number(t, "  and.b32 %m, %i, 0x$;\n", f->sign - 1);
  put_number(t, "  and.b32 %s, %i, 0x$;\n", f->sign);
  put_number(t, "  setp.ne.u32 %t, %s, 0;\n  selp.b32 %s, 0x80000000, 0, %t;\n  shl.b32 %b, %m, 0x$;\n", f->shift);
  put_number(t, "  mov.b32 %f, %b;\n  mul.rn.f32 %f, %f, 0f$;\n", bits_of(f->scale));
  put_number(t, "  mov.b32 %b, %f;\n  or.b32 %b, %b, %s;\n  setp.gt.u32 %t, %m, 0x$;\n", f->max_finite);
  put_number(t, "  selp.b32 %b, 0x7fc00000, %b, %t;\n  setp.eq.u32 %t, %m, 0x$;\n", f->infinity);
  put_number(t, "  or.b32 %c, %s, 0x7f800000;\n  selp.b32 %b, %c, %b, %t;\n  setp.eq.u32 %t, %i, 0x$;\n", f->nan_alone);
  mf__cuda_put(t, "  selp.b32 %b, 0x7fc00000, %b, %t;\n  mov.b32 %f, %b;\n", NULL, NULL);
}

#define ONE_NAN "  setp.nan.f32 %t, %f, %f;\n  @%t mov.f32 %f, 0f7fc00000;\n"

static void put_decode(mf__cuda_text *t, const mf__codec *c) {
  mf__small format;
  const char *text = "";
  switch (mf__number_of(c)) {
    case MF__N_BOOL: text = "  setp.ne.u32 %t, %i, 0;\n  selp.u32 %i, 1, 0, %t;\n"; break;
    case MF__N_BF16: text = "  shl.b32 %i, %i, 16;\n  mov.b32 %f, %i;\n" ONE_NAN; break;
    case MF__N_F16: text = "  cvt.u16.u32 %h, %i;\n  cvt.f32.f16 %f, %h;\n" ONE_NAN; break;
    case MF__N_F32: text = "  mov.b32 %f, %i;\n"; break;
    case MF__N_F64: text = "  mov.b64 %d, %l;\n"; break;
    case MF__N_SMALL8:
      mf__small_of(&c->format, &format);
      decode_small(t, &format);
      break;
    default: break; /* an integer is its own value */
  }
  mf__cuda_put(t, text, NULL, NULL);
}

/* Converting */

static void to_bool(mf__cuda_text *t, held from) {
  static const char *const tests[] = {
      [IN_INT] = "ne.u32 %t, %i, 0",
      [IN_LONG] = "ne.u64 %t, %l, 0",
      [IN_FLOAT] = "neu.f32 %t, %f, 0f00000000",
      [IN_DOUBLE] = "neu.f64 %t, %d, 0d0000000000000000",
  };
  mf__cuda_put(t, "  setp.$;\n  selp.u32 %i, 1, 0, %t;\n", tests[from], NULL);
}

/* cvt saturates; what is narrower than its register does so afterwards. */
static void to_int(mf__cuda_text *t, const number *to, held from) {
  if (from == IN_INT) return;
  if (from == IN_LONG) {
    mf__cuda_put(t, "  cvt.u32.u64 %i, %l;\n", NULL, NULL);
    return;
  }
  const char *type = to->least == NULL ? to->type : "s32";
  mf__cuda_put(t, from == IN_FLOAT ? "  cvt.rzi.$.f32 %i, %f;\n" : "  cvt.rzi.$.f64 %i, %d;\n", type, NULL);
  if (to->least != NULL) mf__cuda_put(t, "  max.s32 %i, %i, $;\n  min.s32 %i, %i, #;\n", to->least, to->most);
  mf__cuda_put(t, from == IN_FLOAT ? "  setp.nan.f32 %t, %f, %f;\n" : "  setp.nan.f64 %t, %d, %d;\n", NULL, NULL);
  mf__cuda_put(t, "  selp.u32 %i, 0, %i, %t;\n", NULL, NULL);
}

static void to_long(mf__cuda_text *t, const number *to, const number *from) {
  static const char *const ways[] = {
      [IN_INT] = "  cvt.$64.$32 %l, %i;\n",
      [IN_LONG] = "",
      [IN_FLOAT] = "  cvt.rzi.#.f32 %l, %f;\n  setp.nan.f32 %t, %f, %f;\n  selp.u64 %l, 0, %l, %t;\n",
      [IN_DOUBLE] = "  cvt.rzi.#.f64 %l, %d;\n  setp.nan.f64 %t, %d, %d;\n  selp.u64 %l, 0, %l, %t;\n",
  };
  mf__cuda_put(t, ways[from->in], from->type != NULL && *from->type == 's' ? "s" : "u", to->type);
}

/* A NaN's sign and as much of its payload as there is room for, and quiet. */
#define PAYLOAD_TO_FLOAT                                                                                         \
  "  mov.b64 %k, %d;\n"                                                                                          \
  "  shr.u64 %k, %k, 29;\n"                                                                                      \
  "  cvt.u32.u64 %c, %k;\n"                                                                                      \
  "  and.b32 %c, %c, 0x007fffff;\n"                                                                              \
  "  or.b32 %c, %c, 0x7fc00000;\n"                                                                               \
  "  mov.b64 %k, %d;\n"                                                                                          \
  "  shr.u64 %k, %k, 32;\n"                                                                                      \
  "  cvt.u32.u64 %b, %k;\n"                                                                                      \
  "  and.b32 %b, %b, 0x80000000;\n"                                                                              \
  "  or.b32 %c, %c, %b;\n"                                                                                       \
  "  setp.nan.f64 %t, %d, %d;\n"                                                                                 \
  "  selp.b32 %i, %c, %i, %t;\n"

#define PAYLOAD_TO_DOUBLE                                                                                        \
  "  mov.b32 %b, %f;\n"                                                                                          \
  "  and.b32 %c, %b, 0x007fffff;\n"                                                                              \
  "  cvt.u64.u32 %k, %c;\n"                                                                                      \
  "  shl.b64 %k, %k, 29;\n"                                                                                      \
  "  or.b64 %k, %k, 0x7ff8000000000000;\n"                                                                       \
  "  and.b32 %b, %b, 0x80000000;\n"                                                                              \
  "  cvt.u64.u32 %n, %b;\n"                                                                                      \
  "  shl.b64 %n, %n, 32;\n"                                                                                      \
  "  or.b64 %k, %k, %n;\n"                                                                                       \
  "  setp.nan.f32 %t, %f, %f;\n"                                                                                 \
  "  selp.b64 %l, %k, %l, %t;\n"

static void to_float(mf__cuda_text *t, const number *from) {
  static const char *const ways[] = {
      [IN_INT] = "  cvt.rn.f32.$ %f, %i;\n  mov.b32 %i, %f;\n",
      [IN_LONG] = "  cvt.rn.f32.$ %f, %l;\n  mov.b32 %i, %f;\n",
      [IN_FLOAT] = "  mov.b32 %i, %f;\n",
      [IN_DOUBLE] = "  cvt.rn.f32.f64 %f, %d;\n  mov.b32 %i, %f;\n" PAYLOAD_TO_FLOAT,
  };
  mf__cuda_put(t, ways[from->in], from->type, NULL);
}

static void to_double(mf__cuda_text *t, const number *from) {
  static const char *const ways[] = {
      [IN_INT] = "  cvt.rn.f64.$ %d, %i;\n  mov.b64 %l, %d;\n",
      [IN_LONG] = "  cvt.rn.f64.$ %d, %l;\n  mov.b64 %l, %d;\n",
      [IN_FLOAT] = "  cvt.f64.f32 %d, %f;\n  mov.b64 %l, %d;\n" PAYLOAD_TO_DOUBLE,
      [IN_DOUBLE] = "  mov.b64 %l, %d;\n",
  };
  mf__cuda_put(t, ways[from->in], from->type, NULL);
}

/* Toward zero, and the last bit is set if anything was lost. */
#define ODD "  mov.b32 %b, %f;\n  or.b32 %c, %b, 1;\n  selp.b32 %b, %c, %b, %t;\n  mov.b32 %f, %b;\n"

static void to_odd_float(mf__cuda_text *t, const number *from) {
  static const char *const ways[] = {
      [IN_INT] = "  cvt.rz.f32.$ %f, %i;\n  cvt.rzi.$.f32 %c, %f;\n  setp.ne.u32 %t, %c, %i;\n" ODD,
      [IN_LONG] = "  cvt.rz.f32.$ %f, %l;\n  cvt.rzi.$.f32 %k, %f;\n  setp.ne.u64 %t, %k, %l;\n" ODD,
      [IN_FLOAT] = "",
      [IN_DOUBLE] = "  cvt.rz.f32.f64 %f, %d;\n  cvt.f64.f32 %e, %f;\n  setp.neu.f64 %t, %e, %d;\n" ODD,
  };
  mf__cuda_put(t, from->in == IN_INT && from->exact ? "  cvt.rn.f32.$ %f, %i;\n" : ways[from->in], from->type, NULL);
}

/* As in kernels_convert.h: below the least normal number, adding a number whose last bit is the format's least step
 * rounds; above it, adding half of the last step that stays does. */
static void encode_small(mf__cuda_text *t, const mf__small *f) {
  mf__cuda_put(t, "  mov.b32 %b, %f;\n  and.b32 %m, %b, 0x7fffffff;\n  setp.lt.s32 %t, %b, 0;\n", NULL, NULL);
  put_number(t, "  selp.b32 %s, 0x$, 0, %t;\n", f->sign);
  put_number(t, "  shr.u32 %c, %m, 0x$;\n  and.b32 %c, %c, 1;\n  add.u32 %c, %c, %m;\n", f->shift);
  put_number(t, "  add.u32 %c, %c, 0x$;\n", f->half);
  put_number(t, "  shr.u32 %c, %c, 0x$;\n", f->shift);
  put_number(t, "  sub.u32 %c, %c, 0x$;\n", f->rebias);
  put_number(t, "  mov.b32 %g, %m;\n  add.rn.f32 %g, %g, 0f$;\n  mov.b32 %i, %g;\n", f->step);
  put_number(t, "  sub.u32 %i, %i, 0x$;\n", f->step);
  put_number(t, "  setp.lt.u32 %t, %m, 0x$;\n  selp.b32 %i, %i, %c, %t;\n", f->least_normal);
  put_number(t, "  setp.gt.u32 %t, %i, 0x$;\n", f->max_finite);
  put_number(t, "  selp.b32 %i, 0x$, %i, %t;\n", f->overflow);
  put_number(t, "  setp.ne.u32 %t, %i, 0x$;\n  selp.b32 %s, %s, 0, %t;\n", f->unsigned_zero);
  mf__cuda_put(t, "  or.b32 %i, %i, %s;\n", NULL, NULL);
  put_number(t, "  setp.gt.u32 %t, %m, 0x7f800000;\n  selp.b32 %i, 0x$, %i, %t;\n", f->nan);
}

static void encode(mf__cuda_text *t, const mf__codec *c, int which) {
  mf__small format;
  if (which == MF__N_SMALL8) {
    mf__small_of(&c->format, &format);
    encode_small(t, &format);
  } else if (which == MF__N_F16) {
    mf__cuda_put(t, "  cvt.rn.f16.f32 %h, %f;\n  cvt.u32.u16 %i, %h;\n  setp.nan.f32 %t, %f, %f;\n"
                    "  selp.b32 %i, 0x7e00, %i, %t;\n", NULL, NULL);
  } else { /* bfloat16 has a float's exponent, so that rounding is one addition */
    mf__cuda_put(t, "  mov.b32 %b, %f;\n  shr.u32 %c, %b, 16;\n  and.b32 %c, %c, 1;\n  add.u32 %c, %c, %b;\n"
                    "  add.u32 %c, %c, 0x7fff;\n  shr.u32 %i, %c, 16;\n  setp.nan.f32 %t, %f, %f;\n"
                    "  selp.b32 %i, 0x7fc0, %i, %t;\n", NULL, NULL);
  }
}

/* A pair of dtypes, and how many elements a thread takes at once: 1, 2 or 4. */
typedef struct pair {
  const mf__codec *to, *from;
  int lanes;
} pair;

static void put_convert(mf__cuda_text *t, const pair *p) {
  const int which = mf__number_of(p->to);
  const number *to = &numbers[which], *from = &numbers[mf__number_of(p->from)];
  put_decode(t, p->from);
  if (which == MF__N_BOOL) {
    to_bool(t, from->in);
  } else if (to->in == IN_INT) {
    to_int(t, to, from->in);
  } else if (to->in == IN_LONG) {
    to_long(t, to, from);
  } else if (which == MF__N_F32) {
    to_float(t, from);
  } else if (which == MF__N_F64) {
    to_double(t, from);
  } else {
    to_odd_float(t, from);
    encode(t, p->to, which);
  }
}

/* What is read at %from comes into %x0 or %lx0 and so on, one for each element that a thread takes; %y0 and %ly0 are
 * for what is at %to. */
#define REGISTERS                                                                                                \
  "  .reg .pred %t;\n"                                                                                           \
  "  .reg .b16 %h;\n"                                                                                            \
  "  .reg .u32 %i, %b, %c, %m, %s, %v, %found, %x0, %x1, %x2, %x3, %y0, %y1, %y2, %y3;\n"                            \
  "  .reg .u64 %l, %k, %n, %lx0, %lx1, %ly0, %ly1;\n"                                                            \
  "  .reg .f32 %f, %g;\n"                                                                                        \
  "  .reg .f64 %d, %e;\n"

static bool is_wide(const mf__codec *c) {
  return c->slot_bits == 64;
}

static const char *list_of(const mf__codec *c, int lanes, bool target) {
  static const char *const lists[2][2][3] = {
      {{"%x0", "{%x0, %x1}", "{%x0, %x1, %x2, %x3}"}, {"%lx0", "{%lx0, %lx1}", ""}},
      {{"%y0", "{%y0, %y1}", "{%y0, %y1, %y2, %y3}"}, {"%ly0", "{%ly0, %ly1}", ""}},
  };
  return lists[target][is_wide(c)][lanes / 2];
}

static const char *const vectors[] = {"", ".v2", ".v4"};
static const char *const lane_names[] = {"0", "1", "2", "3"};

static void put_load(mf__cuda_text *t, const mf__codec *c, int lanes, bool target) {
  mf__cuda_put(t, "  ld.global$.# ", vectors[lanes / 2], numbers[mf__number_of(c)].load);
  mf__cuda_put(t, "$, [#];\n", list_of(c, lanes, target), target ? "%to" : "%from");
}

static void put_cast(mf__cuda_text *t, const void *ctx) {
  const pair *p = ctx;
  put_load(t, p->from, p->lanes, false);
  for (int i = 0; i < p->lanes; i++) {
    mf__cuda_put(t, is_wide(p->from) ? "  mov.u64 %l, %lx$;\n" : "  mov.u32 %i, %x$;\n", lane_names[i], NULL);
    put_convert(t, p);
    mf__cuda_put(t, is_wide(p->to) ? "  mov.u64 %ly$, %l;\n" : "  mov.u32 %y$, %i;\n", lane_names[i], NULL);
  }
  mf__cuda_put(t, "  st.global$.# ", vectors[p->lanes / 2], numbers[mf__number_of(p->to)].store);
  mf__cuda_put(t, "[%to], $;\n", list_of(p->to, p->lanes, true), NULL);
}

/* The job's dst is one side here, and its src the other. A thread that has found a difference looks no further. */
static void put_compare(mf__cuda_text *t, const void *ctx) {
  static const char *const keep[] = {
      [IN_INT] = "  mov.u32 %v, %i;\n",
      [IN_LONG] = "  mov.u64 %n, %l;\n",
      [IN_FLOAT] = "  mov.f32 %g, %f;\n",
      [IN_DOUBLE] = "  mov.f64 %e, %d;\n",
  };
  static const char *const tests[] = {
      [IN_INT] = "ne.u32 %t, %v, %i",
      [IN_LONG] = "ne.u64 %t, %n, %l",
      [IN_FLOAT] = "neu.f32 %t, %g, %f",
      [IN_DOUBLE] = "neu.f64 %t, %e, %d",
  };
  const pair *p = ctx;
  const held in = numbers[mf__number_of(p->to)].in;
  put_load(t, p->to, p->lanes, true);
  put_load(t, p->to, p->lanes, false);
  for (int i = 0; i < p->lanes; i++) {
    mf__cuda_put(t, is_wide(p->to) ? "  mov.u64 %l, %ly$;\n" : "  mov.u32 %i, %y$;\n", lane_names[i], NULL);
    put_decode(t, p->to);
    mf__cuda_put(t, keep[in], NULL, NULL);
    mf__cuda_put(t, is_wide(p->to) ? "  mov.u64 %l, %lx$;\n" : "  mov.u32 %i, %x$;\n", lane_names[i], NULL);
    put_decode(t, p->to);
    mf__cuda_put(t, "  setp.$;\n  @%t mov.u32 %found, 1;\n  @%t bra done;\n", tests[in], NULL);
  }
}

void mf__cuda_text_cast(mf__cuda_text *t, const mf__codec *to, const mf__codec *from) {
  const pair one = {to, from, 1}, some = {to, from, mf__kernel_lanes(to, from)};
  const mf__cuda_walk walks[] = {{"mf_one", "", REGISTERS, "", put_cast, &one},
                                 {"mf_some", "", REGISTERS, "", put_cast, &some}};
  mf__cuda_text_begin(t);
  for (size_t i = 0; i < sizeof walks / sizeof *walks; i++) mf__cuda_put_walk(t, &walks[i]);
}

void mf__cuda_text_compare(mf__cuda_text *t, const mf__codec *c) {
  static const char params[] = ", .param .u64 differs";
  static const char registers[] = REGISTERS "  .reg .u64 %flag;\n  mov.u32 %found, 0;\n";
  static const char end[] =
      "  setp.ne.u32 %t, %found, 0;\n  ld.param.u64 %flag, [differs];\n  @%t red.global.or.b32 [%flag], 1;\n";
  const pair one = {c, c, 1}, some = {c, c, mf__kernel_lanes(c, c)};
  const mf__cuda_walk walks[] = {{"mf_one", params, registers, end, put_compare, &one},
                                 {"mf_some", params, registers, end, put_compare, &some}};
  mf__cuda_text_begin(t);
  for (size_t i = 0; i < sizeof walks / sizeof *walks; i++) mf__cuda_put_walk(t, &walks[i]);
}
