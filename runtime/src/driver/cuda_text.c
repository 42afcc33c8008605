/* cuda_text.c: writes the text of the kernels that copy, and the walk that all kernels share. What converts and
 * compares numbers in that walk is cuda_number.c's. It must not know how a text is compiled or launched.
 *
 * The text is PTX 6.0 for the oldest GPUs that drivers of today have, so that any driver compiles it for any of its
 * GPUs (PTX ISA, "Release Notes"). */
#include "driver/cuda.h"

#include <string.h>

/* A kernel's first parameter is the job itself; the text below has its offsets. */
#define AT(member, offset) _Static_assert(offsetof(mf__kernel_copy, member) == (offset), "the kernel's text")
AT(dst, 0);
AT(src, 8);
AT(numel, 16);
AT(ndim, 24);
AT(shape, 32);
AT(dst_strides, 96);
AT(src_strides, 160);
_Static_assert(sizeof(mf__kernel_copy) == 224, "the kernel's text");

static void put_bytes(mf__cuda_text *t, const char *from, size_t n) {
  if (n >= sizeof t->at - t->length) return; /* the driver then refuses what has no end */
  memcpy(t->at + t->length, from, n);
  t->length += n;
  t->at[t->length] = '\0';
}

void mf__cuda_put(mf__cuda_text *t, const char *text, const char *first, const char *second) {
  while (*text != '\0') {
    const size_t n = strcspn(text, "$#");
    put_bytes(t, text, n);
    text += n;
    if (*text == '\0') return;
    const char *word = *text++ == '$' ? first : second;
    put_bytes(t, word, strlen(word));
  }
}

/* Goes through the elements thread by thread, a grid at a time. Axis 0 of the job is the fastest here. The index is
 * split by divisions, one less than there are axes; in 32 bits where the count allows, which is several times
 * faster. */
#define WALK_TO(w, bits)                                                                                           \
  "  mul.lo.u32 %step, %blocks, %width;\n"                                                                       \
  "  cvt.u" bits ".u32 %step" w ", %step;\n"                                                                     \
  "  mad.lo.u32 %first, %block, %width, %thread;\n"                                                              \
  "  cvt.u" bits ".u32 %i" w ", %first;\n"                                                                       \
  "next" w ":\n"                                                                                                 \
  "  setp.ge.u" bits " %p, %i" w ", %numel" w ";\n"                                                              \
  "  @%p bra done;\n"                                                                                            \
  "  mov.u64 %to, %dst;\n"                                                                                       \
  "  mov.u64 %from, %src;\n"                                                                                     \
  "  mov.u" bits " %left" w ", %i" w ";\n"                                                                       \
  "  mov.u64 %at, job;\n"                                                                                        \
  "  mov.u32 %axis, 1;\n"                                                                                        \
  "axis" w ":\n"                                                                                                 \
  "  ld.param.u64 %todo, [%at+96];\n"                                                                            \
  "  ld.param.u64 %fromdo, [%at+160];\n"                                                                         \
  "  setp.ge.u32 %p, %axis, %ndim;\n"                                                                            \
  "  @%p bra last" w ";\n"                                                                                       \
  "  ld.param.u" bits " %extent" w ", [%at+32];\n"                                                               \
  "  div.u" bits " %rest" w ", %left" w ", %extent" w ";\n"                                                      \
  "  mul.lo.u" bits " %whole" w ", %rest" w ", %extent" w ";\n"                                                  \
  "  sub.u" bits " %index" w ", %left" w ", %whole" w ";\n"                                                      \
  "  cvt.u64.u" bits " %wide, %index" w ";\n"                                                                    \
  "  mad.lo.u64 %to, %wide, %todo, %to;\n"                                                                       \
  "  mad.lo.u64 %from, %wide, %fromdo, %from;\n"                                                                 \
  "  mov.u" bits " %left" w ", %rest" w ";\n"                                                                    \
  "  add.u32 %axis, %axis, 1;\n"                                                                                 \
  "  add.u64 %at, %at, 8;\n"                                                                                     \
  "  bra axis" w ";\n"                                                                                           \
  "last" w ":\n"                                                                                                 \
  "  cvt.u64.u" bits " %wide, %left" w ";\n"                                                                     \
  "  mad.lo.u64 %to, %wide, %todo, %to;\n"                                                                       \
  "  mad.lo.u64 %from, %wide, %fromdo, %from;\n"

#define WALK_ON(w, bits)                                                                                         \
  "  add.u" bits " %i" w ", %i" w ", %step" w ";\n"                                                              \
  "  bra next" w ";\n"

#define INDICES(w, bits)                                                                                         \
  "  .reg .u" bits " %i" w ", %step" w ", %numel" w ", %left" w ";\n" \
  "  .reg .u" bits " %extent" w ", %rest" w ", %whole" w ", %index" w ";\n"

#define REGISTERS                                                                                                \
  "  .reg .pred %p;\n"                                                                                           \
  "  .reg .u32 %ndim, %axis, %step, %first, %block, %blocks, %width, %thread;\n"                                 \
  "  .reg .u64 %dst, %src, %to, %from, %at, %todo, %fromdo, %wide;\n"                                            \
  INDICES("n", "32") INDICES("w", "64")

#define BEGIN                                                                                                    \
  "  ld.param.u64 %dst, [job];\n"                                                                                \
  "  ld.param.u64 %src, [job+8];\n"                                                                              \
  "  ld.param.u64 %numelw, [job+16];\n"                                                                          \
  "  ld.param.u32 %ndim, [job+24];\n"                                                                            \
  "  mov.u32 %block, %ctaid.x;\n"                                                                                \
  "  mov.u32 %blocks, %nctaid.x;\n"                                                                              \
  "  mov.u32 %width, %ntid.x;\n"                                                                                 \
  "  mov.u32 %thread, %tid.x;\n"                                                                                 \
  "  setp.ge.u64 %p, %numelw, 2147483648;\n"                                                                     \
  "  @%p bra wide;\n"                                                                                            \
  "  cvt.u32.u64 %numeln, %numelw;\n"


void mf__cuda_text_begin(mf__cuda_text *t) {
  t->length = 0;
  mf__cuda_put(t, ".version 6.0\n.target sm_50\n.address_size 64\n", NULL, NULL);
}

void mf__cuda_put_walk(mf__cuda_text *t, const mf__cuda_walk *w) {
  mf__cuda_put(t, ".visible .entry $(.param .align 8 .b8 job[224]#)\n{\n" REGISTERS, w->name, w->params);
  mf__cuda_put(t, "$" BEGIN WALK_TO("n", "32"), w->begin, NULL);
  w->body(t, w->ctx);
  mf__cuda_put(t, WALK_ON("n", "32") "wide:\n" WALK_TO("w", "64"), NULL, NULL);
  w->body(t, w->ctx);
  mf__cuda_put(t, WALK_ON("w", "64") "done:\n$  ret;\n}\n", w->end, NULL);
}

/* Copies */

/* One element, as registers hold it. */
typedef struct unit {
  const char *registers, *load, *store;
} unit;

static void put_move(mf__cuda_text *t, const void *ctx) {
  const unit *u = ctx;
  mf__cuda_put(t, "  ld.global.$, [%from];\n", u->load, NULL);
  mf__cuda_put(t, "  st.global.$;\n", u->store, NULL);
}

/* Axis 0 is the destination's fastest and axis 1 the source's: a block takes tiles of 32 by 32 elements of these two
 * through shared memory, so that neighbouring threads read neighbours and write neighbours. A row of the tile is padded
 * by an element, and an element has 4 bytes at least, so that no two threads of a warp meet in a bank of shared memory
 * (CUDA C++ Best Practices Guide, "Shared Memory in Matrix Multiplication (C=AAT)"). numel is the number of tiles; of
 * these, and along an axis of elements, there are fewer than 2^31. The axes behind the two are split as above, once for
 * a tile. */
#define ROW_IN(load, keep)                                                                                       \
  "  setp.lt.and.u32 %q, %row, %n0, %p;\n"                                                                       \
  load keep                                                                                                      \
  "  add.u32 %row, %row, 8;\n"                                                                                   \
  "  add.u32 %place, %place, %putdo;\n"                                                                          \
  "  add.u64 %from, %from, %fromdo8;\n"

#define ROW_OUT(take, store)                                                                                     \
  "  setp.lt.and.u32 %q, %row, %n1, %p;\n"                                                                       \
  take store                                                                                                     \
  "  add.u32 %row, %row, 8;\n"                                                                                   \
  "  add.u32 %place, %place, %getdo;\n"                                                                          \
  "  add.u64 %to, %to, %todo8;\n"

#define TRANSPOSE(name, slot, nbytes, registers, load, keep, take, store)                                            \
  ".visible .entry " name "(.param .align 8 .b8 job[224])\n"                                                 \
  "{\n"                                                                                                          \
  "  .shared .align 16 .b8 elements[" nbytes "];\n"                                                              \
  "  .reg .pred %p, %q;\n"                                                                                       \
  "  .reg .u32 %tiles, %ndim, %axis, %tile, %step, %n0, %n1, %tiles0, %tiles1, %at0, %at1;\n"                    \
  "  .reg .u32 %left, %rest, %whole, %extent;\n" \
  "  .reg .u32 %index, %thread, %x, %y, %row, %column, %slot, %base, %put, %putdo, %get, %getdo, %place;\n"      \
  "  .reg .u64 %dst, %src, %to, %from, %todo, %todo0, %todo1, %todo8, %at, %wide;\n"                             \
  "  .reg .u64 %fromdo, %fromdo0, %fromdo1, %fromdo8;\n" \
  registers                                                                                                      \
  "  ld.param.u64 %dst, [job];\n"                                                                                \
  "  ld.param.u64 %src, [job+8];\n"                                                                              \
  "  ld.param.u32 %tiles, [job+16];\n"                                                                           \
  "  ld.param.u32 %ndim, [job+24];\n"                                                                            \
  "  ld.param.u32 %n0, [job+32];\n"                                                                              \
  "  ld.param.u32 %n1, [job+40];\n"                                                                              \
  "  ld.param.u64 %todo0, [job+96];\n"                                                                           \
  "  ld.param.u64 %todo1, [job+104];\n"                                                                          \
  "  ld.param.u64 %fromdo0, [job+160];\n"                                                                        \
  "  ld.param.u64 %fromdo1, [job+168];\n"                                                                        \
  "  shl.b64 %todo8, %todo1, 3;\n"                                                                               \
  "  shl.b64 %fromdo8, %fromdo0, 3;\n"                                                                           \
  "  add.u32 %tiles0, %n0, 31;\n"                                                                                \
  "  shr.u32 %tiles0, %tiles0, 5;\n"                                                                             \
  "  add.u32 %tiles1, %n1, 31;\n"                                                                                \
  "  shr.u32 %tiles1, %tiles1, 5;\n"                                                                             \
  "  mov.u32 %thread, %tid.x;\n"                                                                                 \
  "  and.b32 %x, %thread, 31;\n"                                                                                 \
  "  shr.u32 %y, %thread, 5;\n"                                                                                  \
  "  mov.u32 %base, elements;\n"                                                                                 \
  "  mov.u32 %slot, " slot ";\n"                                                                                 \
  "  mad.lo.u32 %put, %y, 33, %x;\n"                                                                             \
  "  mad.lo.u32 %put, %put, %slot, %base;\n"                                                                     \
  "  mul.lo.u32 %putdo, %slot, 264;\n"                                                                           \
  "  mad.lo.u32 %get, %x, 33, %y;\n"                                                                             \
  "  mad.lo.u32 %get, %get, %slot, %base;\n"                                                                     \
  "  mul.lo.u32 %getdo, %slot, 8;\n"                                                                             \
  "  mov.u32 %tile, %ctaid.x;\n"                                                                                 \
  "  mov.u32 %step, %nctaid.x;\n"                                                                                \
  "next:\n"                                                                                                      \
  "  setp.ge.u32 %p, %tile, %tiles;\n"                                                                           \
  "  @%p bra done;\n"                                                                                            \
  "  div.u32 %rest, %tile, %tiles0;\n"                                                                           \
  "  mul.lo.u32 %whole, %rest, %tiles0;\n"                                                                       \
  "  sub.u32 %at0, %tile, %whole;\n"                                                                             \
  "  shl.b32 %at0, %at0, 5;\n"                                                                                   \
  "  div.u32 %left, %rest, %tiles1;\n"                                                                           \
  "  mul.lo.u32 %whole, %left, %tiles1;\n"                                                                       \
  "  sub.u32 %at1, %rest, %whole;\n"                                                                             \
  "  shl.b32 %at1, %at1, 5;\n"                                                                                   \
  "  mov.u64 %to, %dst;\n"                                                                                       \
  "  mov.u64 %from, %src;\n"                                                                                     \
  "  mov.u64 %at, job;\n"                                                                                        \
  "  mov.u32 %axis, 2;\n"                                                                                        \
  "axis:\n"                                                                                                      \
  "  setp.ge.u32 %p, %axis, %ndim;\n"                                                                            \
  "  @%p bra ready;\n"                                                                                           \
  "  ld.param.u32 %extent, [%at+48];\n"                                                                          \
  "  ld.param.u64 %todo, [%at+112];\n"                                                                           \
  "  ld.param.u64 %fromdo, [%at+176];\n"                                                                         \
  "  div.u32 %rest, %left, %extent;\n"                                                                           \
  "  mul.lo.u32 %whole, %rest, %extent;\n"                                                                       \
  "  sub.u32 %index, %left, %whole;\n"                                                                           \
  "  cvt.u64.u32 %wide, %index;\n"                                                                               \
  "  mad.lo.u64 %to, %wide, %todo, %to;\n"                                                                       \
  "  mad.lo.u64 %from, %wide, %fromdo, %from;\n"                                                                 \
  "  mov.u32 %left, %rest;\n"                                                                                    \
  "  add.u32 %axis, %axis, 1;\n"                                                                                 \
  "  add.u64 %at, %at, 8;\n"                                                                                     \
  "  bra axis;\n"                                                                                                \
  "ready:\n"                                                                                                     \
  "  add.u32 %column, %at1, %x;\n"                                                                               \
  "  add.u32 %row, %at0, %y;\n"                                                                                  \
  "  cvt.u64.u32 %wide, %column;\n"                                                                              \
  "  mad.lo.u64 %from, %wide, %fromdo1, %from;\n"                                                                \
  "  cvt.u64.u32 %wide, %row;\n"                                                                                 \
  "  mad.lo.u64 %from, %wide, %fromdo0, %from;\n"                                                                \
  "  mov.u32 %place, %put;\n"                                                                                    \
  "  setp.lt.u32 %p, %column, %n1;\n"                                                                            \
  ROW_IN(load, keep) ROW_IN(load, keep) ROW_IN(load, keep) ROW_IN(load, keep)                                    \
  "  bar.sync 0;\n"                                                                                              \
  "  add.u32 %column, %at0, %x;\n"                                                                               \
  "  add.u32 %row, %at1, %y;\n"                                                                                  \
  "  cvt.u64.u32 %wide, %column;\n"                                                                              \
  "  mad.lo.u64 %to, %wide, %todo0, %to;\n"                                                                      \
  "  cvt.u64.u32 %wide, %row;\n"                                                                                 \
  "  mad.lo.u64 %to, %wide, %todo1, %to;\n"                                                                      \
  "  mov.u32 %place, %get;\n"                                                                                    \
  "  setp.lt.u32 %p, %column, %n0;\n"                                                                            \
  ROW_OUT(take, store) ROW_OUT(take, store) ROW_OUT(take, store) ROW_OUT(take, store)                            \
  "  bar.sync 0;\n"                                                                                              \
  "  add.u32 %tile, %tile, %step;\n"                                                                             \
  "  bra next;\n"                                                                                                \
  "done:\n"                                                                                                      \
  "  ret;\n"                                                                                                     \
  "}\n"

/* An element that goes as it is; ${in} and ${out} are how it is named as the target of a load and as what is stored. */
#define PLAIN(slot, nbytes, registers, in, to, out)                                                              \
  TRANSPOSE("mf_transpose", slot, nbytes, registers, "  @%q ld.global." in ", [%from];\n",                       \
            "  @%q st.shared." to " [%place], " out ";\n", "  @%q ld.shared." in ", [%place];\n",                \
            "  @%q st.global." to " [%to], " out ";\n")

/* Small elements go as squares of them, each an element of the tile: as many words of 4 bytes are read, from as many
 * places along axis 0, and as many are written along axis 1; between, the square is turned over in registers.
 * Strides along the two axes are those from square to square. */
#define NEXT_WORD(access, line, one) "  add.u64 %line, " line ", %" one ";\n  @%q " access ";\n"

#define PAIRS                                                                                                    \
  TRANSPOSE("mf_transpose_words", "8", "8448",                                                                   \
            "  .reg .u32 %a, %b, %e, %f;\n  .reg .u64 %line, %fromone, %toone;\n",                               \
            "  shr.s64 %fromone, %fromdo0, 1;\n"                                                                 \
            "  @%q ld.global.u32 %a, [%from];\n"                                                                 \
            NEXT_WORD("ld.global.u32 %b, [%line]", "%from", "fromone")                                           \
            "  @%q prmt.b32 %e, %a, %b, 0x5410;\n"                                                               \
            "  @%q prmt.b32 %f, %a, %b, 0x7632;\n",                                                              \
            "  @%q st.shared.v2.u32 [%place], {%e, %f};\n",                                                      \
            "  @%q ld.shared.v2.u32 {%e, %f}, [%place];\n",                                                      \
            "  shr.s64 %toone, %todo1, 1;\n"                                                                     \
            "  @%q st.global.u32 [%to], %e;\n"                                                                   \
            NEXT_WORD("st.global.u32 [%line], %f", "%to", "toone"))

#define QUADS                                                                                                    \
  TRANSPOSE("mf_transpose_words", "16", "16896",                                                                 \
            "  .reg .u32 %a, %b, %c, %d, %e, %f, %g, %h;\n  .reg .u64 %line, %fromone, %toone;\n",               \
            "  shr.s64 %fromone, %fromdo0, 2;\n"                                                                 \
            "  @%q ld.global.u32 %a, [%from];\n"                                                                 \
            NEXT_WORD("ld.global.u32 %b, [%line]", "%from", "fromone")                                           \
            NEXT_WORD("ld.global.u32 %c, [%line]", "%line", "fromone")                                           \
            NEXT_WORD("ld.global.u32 %d, [%line]", "%line", "fromone")                                           \
            "  @%q prmt.b32 %e, %a, %b, 0x5140;\n"                                                               \
            "  @%q prmt.b32 %f, %a, %b, 0x7362;\n"                                                               \
            "  @%q prmt.b32 %g, %c, %d, 0x5140;\n"                                                               \
            "  @%q prmt.b32 %h, %c, %d, 0x7362;\n"                                                               \
            "  @%q prmt.b32 %a, %e, %g, 0x5410;\n"                                                               \
            "  @%q prmt.b32 %b, %e, %g, 0x7632;\n"                                                               \
            "  @%q prmt.b32 %c, %f, %h, 0x5410;\n"                                                               \
            "  @%q prmt.b32 %d, %f, %h, 0x7632;\n",                                                              \
            "  @%q st.shared.v4.u32 [%place], {%a, %b, %c, %d};\n",                                              \
            "  @%q ld.shared.v4.u32 {%a, %b, %c, %d}, [%place];\n",                                              \
            "  shr.s64 %toone, %todo1, 2;\n"                                                                     \
            "  @%q st.global.u32 [%to], %a;\n"                                                                   \
            NEXT_WORD("st.global.u32 [%line], %b", "%to", "toone")                                               \
            NEXT_WORD("st.global.u32 [%line], %c", "%line", "toone")                                             \
            NEXT_WORD("st.global.u32 [%line], %d", "%line", "toone"))

#define TWO "{%value, %second}"

/* By the logarithm of the size: what one element is in registers, and the copies by tiles. */
static const struct {
  unit unit;
  const char *tiles, *words;
} copies[MF__KERNEL_SIZES] = {
    {{"  .reg .u16 %value;\n", "u8 %value", "u8 [%to], %value"},
     PLAIN("4", "4224", "  .reg .u16 %value;\n", "u8 %value", "u8", "%value"), QUADS},
    {{"  .reg .u16 %value;\n", "u16 %value", "u16 [%to], %value"},
     PLAIN("4", "4224", "  .reg .u16 %value;\n", "u16 %value", "u16", "%value"), PAIRS},
    {{"  .reg .u32 %value;\n", "u32 %value", "u32 [%to], %value"},
     PLAIN("4", "4224", "  .reg .u32 %value;\n", "u32 %value", "u32", "%value"), ""},
    {{"  .reg .u64 %value;\n", "u64 %value", "u64 [%to], %value"},
     PLAIN("8", "8448", "  .reg .u64 %value;\n", "u64 %value", "u64", "%value"), ""},
    {{"  .reg .u64 %value, %second;\n", "v2.u64 " TWO, "v2.u64 [%to], " TWO},
     PLAIN("16", "16896", "  .reg .u64 %value, %second;\n", "v2.u64 " TWO, "v2.u64", TWO), ""},
};

void mf__cuda_text_copy(mf__cuda_text *t, int32_t which) {
  const unit *u = &copies[which].unit;
  const mf__cuda_walk walk = {"mf_copy", "", u->registers, "", put_move, u};
  mf__cuda_text_begin(t);
  mf__cuda_put_walk(t, &walk);
  mf__cuda_put(t, copies[which].tiles, NULL, NULL);
  mf__cuda_put(t, copies[which].words, NULL, NULL);
}
