/* dtype.c: translates DLDataType to names and widths. The table below is the only list of dtype codes; every
 * (code, bits, lanes) that DLPack 1.3 allows has exactly one name. It must not know about values. */
#include "core/core.h"

#include <stdio.h>
#include <string.h>

/* A code whose name says its width ("float8_e4m3fn") has implied bits, which the name leaves out. */
typedef struct code_name {
  const char *name;
  uint8_t implied_bits;
  bool strict; /* DLPack 1.3 has consumers refuse any other width */
} code_name;

static const code_name codes[] = {
    [kDLInt] = {"int", 0, false},
    [kDLUInt] = {"uint", 0, false},
    [kDLFloat] = {"float", 0, false},
    [kDLOpaqueHandle] = {"handle", 0, false},
    [kDLBfloat] = {"bfloat", 0, false},
    [kDLComplex] = {"complex", 0, false},
    [kDLBool] = {"bool", 8, false},
    [kDLFloat8_e3m4] = {"float8_e3m4", 8, false},
    [kDLFloat8_e4m3] = {"float8_e4m3", 8, false},
    [kDLFloat8_e4m3b11fnuz] = {"float8_e4m3b11fnuz", 8, false},
    [kDLFloat8_e4m3fn] = {"float8_e4m3fn", 8, false},
    [kDLFloat8_e4m3fnuz] = {"float8_e4m3fnuz", 8, false},
    [kDLFloat8_e5m2] = {"float8_e5m2", 8, false},
    [kDLFloat8_e5m2fnuz] = {"float8_e5m2fnuz", 8, false},
    [kDLFloat8_e8m0fnu] = {"float8_e8m0fnu", 8, false},
    [kDLFloat6_e2m3fn] = {"float6_e2m3fn", 6, true},
    [kDLFloat6_e3m2fn] = {"float6_e3m2fn", 6, true},
    [kDLFloat4_e2m1fn] = {"float4_e2m1fn", 4, true},
};

#define NCODES ((int)(sizeof codes / sizeof codes[0]))

int mf__dtype_check(const DLDataType *dtype, mf_error *err) {
  if (dtype->code >= NCODES)
    return mf__fail(err, MF_EDTYPE, "dtype.code is %d; DLPack 1.3 defines 0 to %d", dtype->code, NCODES - 1);
  if (dtype->bits == 0) return mf__fail(err, MF_EDTYPE, "dtype.bits is 0; at least 1 expected");
  if (dtype->lanes == 0) return mf__fail(err, MF_EDTYPE, "dtype.lanes is 0; at least 1 expected");
  const code_name *c = &codes[dtype->code];
  if (c->strict && dtype->bits != c->implied_bits)
    return mf__fail(err, MF_EDTYPE, "dtype.bits is %d; %s has %d", dtype->bits, c->name, c->implied_bits);
  return MF_OK;
}

bool mf__dtype_equal(const DLDataType *a, const DLDataType *b) {
  return a->code == b->code && a->bits == b->bits && a->lanes == b->lanes;
}

int64_t mf_dtype_bits(const DLDataType *dtype, uint64_t flags) {
  if (dtype == NULL) return 0;
  const int64_t bits = (int64_t)dtype->bits * dtype->lanes;
  const bool packed = dtype->bits < 8 && !(flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
  return packed ? bits : (bits + 7) / 8 * 8;
}

int mf_dtype_format(const DLDataType *dtype, char *buf, size_t cap, mf_error *err) {
  MF__NEED(dtype);
  MF__NEED(buf);
  char bits[8] = "";
  char lanes[8] = "";
  int rc = mf__dtype_check(dtype, err);
  if (rc != MF_OK) return mf__end(rc, __func__, err);
  const code_name *c = &codes[dtype->code];
  if (dtype->bits != c->implied_bits) {
    /* A width that contradicts the name is set off, so that "float8_e5m2" with 16 bits cannot be misread. */
    const char *separator = c->implied_bits != 0 && c->name[0] != 'b' ? "_b" : "";
    snprintf(bits, sizeof bits, "%s%d", separator, dtype->bits);
  }
  if (dtype->lanes != 1) snprintf(lanes, sizeof lanes, "x%d", dtype->lanes);
  const int n = snprintf(buf, cap, "%s%s%s", c->name, bits, lanes);
  if ((size_t)n >= cap) rc = mf__fail(err, MF_EINVAL, "cap is %zu; the name takes %d bytes", cap, n + 1);
  return mf__end(rc, __func__, err);
}

/* Reads a decimal number without sign or leading zero; 0 means there is none or it is over max. */
static int read_number(const char **text, int max) {
  int value = 0;
  if (**text == '0') return 0;
  for (; **text >= '0' && **text <= '9'; (*text)++) {
    value = value * 10 + (**text - '0');
    if (value > max) return 0;
  }
  return value;
}

/* The width and the lanes behind a code's name. */
static bool parse_suffix(const code_name *c, const char *rest, DLDataType *out) {
  int bits = c->implied_bits;
  int lanes = 1;
  if (c->implied_bits != 0 && c->name[0] != 'b' && strncmp(rest, "_b", 2) == 0) rest += 2;
  if (*rest >= '0' && *rest <= '9') bits = read_number(&rest, UINT8_MAX);
  if (*rest == 'x') {
    rest++;
    lanes = read_number(&rest, UINT16_MAX);
  }
  if (*rest != '\0') return false;
  out->bits = (uint8_t)bits;
  out->lanes = (uint16_t)lanes;
  return true;
}

/* A name is taken only if it is the one that mf_dtype_format writes, so names stay unique. */
static bool is_canonical(const DLDataType *dtype, const char *name) {
  char buf[MF__NAME_CAP];
  return mf_dtype_format(dtype, buf, sizeof buf, NULL) == MF_OK && strcmp(buf, name) == 0;
}

int mf_dtype_parse(const char *name, DLDataType *out, mf_error *err) {
  MF__NEED(name);
  MF__NEED(out);
  for (int code = 0; code < NCODES; code++) {
    const size_t length = strlen(codes[code].name);
    DLDataType found = {.code = (uint8_t)code};
    if (strncmp(name, codes[code].name, length) != 0) continue;
    if (!parse_suffix(&codes[code], name + length, &found) || !is_canonical(&found, name)) continue;
    *out = found;
    return MF_OK;
  }
  const int rc = mf__fail(err, MF_EDTYPE, "dtype is \"%.64s\"; a name such as \"float32\" expected", name);
  return mf__end(rc, __func__, err);
}
