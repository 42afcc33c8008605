/* hip_text.c: puts the text of a kernel for HIP together: what hip_thread.h, hip_walk.h, hip_copy.h and hip_number.h
 * say in C, behind the constants that they name. The simulator compiles the same files with the host's compiler. It
 * must not know how a text is compiled or launched. */
#include "driver/hip.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MF__HIP_TEXT(name, ...) static const char name##_text[] = #__VA_ARGS__ "\n";
#include "driver/hip_copy.h"
#include "driver/hip_number.h"
#include "driver/hip_thread.h"
#include "driver/hip_walk.h"

__attribute__((MF__PRINTF(2, 3))) static void put(mf__hip_text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(t->at + t->length, sizeof t->at - t->length, format, args);
  va_end(args);
  if (n > 0) t->length += (size_t)n;
}

static void begin(mf__hip_text *t) {
  t->length = 0;
  put(t, "#define INSIDE static __device__ inline\n#define SHARED __shared__\n#define THREADS %d\n"
         "#define ENTRY extern \"C\" __global__ __launch_bounds__(THREADS) void\n", MF__KERNEL_THREADS);
  put(t, "%s%s", thread_text, walk_text);
}

/* Small elements go by squares of them, too, in lines of 4 bytes: the same text with other names. */
void mf__hip_text_copy(mf__hip_text *t, int32_t which) {
  const int size = 1 << which;
  begin(t);
  put(t, "#define SIZE %d\n#define LINES 1\n#define LINE SIZE\n%s", size, copy_text);
  if (size >= 4) return;
  put(t, "#undef LINES\n#undef LINE\n#define LINES %d\n#define LINE 4\n", 4 / size);
  put(t, "#define item square\n#define take_item take_square\n#define mf_copy mf_copy_first\n"
         "#define mf_transpose mf_transpose_words\n%s", copy_text);
}

/* By the order of the kinds in hip_number.h. */
static int kind_of(const mf__codec *c) {
  enum { SMALL = 3, FLOAT, DOUBLE };
  if (c->kind == MF_KIND_BOOL) return 0;
  if (c->kind != MF_KIND_FLOAT) return c->kind == MF_KIND_INT ? 1 : 2;
  return c->slot_bits == 64 ? DOUBLE : c->slot_bits == 32 ? FLOAT : SMALL;
}

static void put_format(mf__hip_text *t, const char *name, const mf__codec *c) {
  enum { SMALL = 3 };
  mf__small f = {.sign = 0};
  uint32_t scale;
  if (kind_of(c) == SMALL) mf__small_of(&c->format, &f);
  memcpy(&scale, &f.scale, sizeof scale);
  put(t, "static __device__ const format %s = {%d, %d, %uu, %uu, %uu, %uu, %uu, %uu, ", name, kind_of(c),
      (int)(c->slot_bits / 8), f.sign, f.shift, f.rebias, f.half, f.step, f.least_normal);
  put(t, "%uu, %uu, %uu, %uu, %uu, %uu, %uu};\n", scale, f.max_finite, f.infinity, f.overflow, f.nan, f.unsigned_zero,
      f.nan_alone);
}

static void put_numbers(mf__hip_text *t, const mf__codec *to, const mf__codec *from) {
  begin(t);
  put(t, "#define LANES %d\n%s", mf__kernel_lanes(to, from), format_text);
  put_format(t, "TO", to);
  put_format(t, "FROM", from);
  put(t, "%s", number_text);
}

void mf__hip_text_cast(mf__hip_text *t, const mf__codec *to, const mf__codec *from) {
  put_numbers(t, to, from);
  put(t, "%s", cast_text);
}

void mf__hip_text_compare(mf__hip_text *t, const mf__codec *c) {
  put_numbers(t, c, c);
  put(t, "%s", compare_text);
}
