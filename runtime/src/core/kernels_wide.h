/* kernels_wide.h: the kernels of an x86-64 instruction set whose widest vectors are MF__WIDEST bytes, 32 or 64: those
 * of each width from 16 on, and which of them takes what. Included once by the file of a set, and compiled for its
 * instructions. */
#include <immintrin.h>
#include <string.h>

#define MF__WIDTH 16
#include "core/lanes.h"
#include "core/kernels.h"
#undef MF__WIDTH

#define MF__WIDTH 32
#include "core/lanes.h"
#include "core/kernels.h"
#undef MF__WIDTH

#if MF__WIDEST == 64
#define MF__WIDTH 64
#include "core/lanes.h"
#include "core/kernels.h"
#undef MF__WIDTH
/* Lines that lie pages apart share a few places of the cache, too few for 16 of them and more. */
#define IF_FILLED_64(nbytes, t)                                                                      \
  if ((t)->columns >= 64 / (nbytes) && ((nbytes) >= 8 || (t)->src_column % 4096 != 0))                \
    transpose##nbytes##_64(t);                                                                       \
  else
#define network_widest network_64
#define PASS_WIDTH 64
#define PASS(to, from) pass_64((to), whole_64(from))
#else
#define IF_FILLED_64(nbytes, t)
#define network_widest network_32
#define PASS_WIDTH 32
#define PASS(to, from) pass_32((to), whole_32(from))
#endif

/* The widest vectors that the columns fill. */
#define TRANSPOSE(nbytes)                                                                            \
  static void transpose##nbytes(const mf__tile *t) {                                                 \
    IF_FILLED_64(nbytes, t)                                                                          \
    if (t->columns >= 32 / (nbytes))                                                                 \
      transpose##nbytes##_32(t);                                                                     \
    else                                                                                             \
      transpose##nbytes##_16(t);                                                                     \
  }
TRANSPOSE(1)
TRANSPOSE(2)
TRANSPOSE(4)
TRANSPOSE(8)
TRANSPOSE(16)

static void network(const mf__network *n, const mf__groups *g) {
  mf__groups rest = *g;
  const int64_t done = network_widest(n, g);
  rest.dst += done * g->dst_group;
  rest.src += done * g->src_group;
  rest.count -= done;
  (void)network_16(n, &rest);
}

#include "core/kernels_convert.h"
#include "core/kernels_packed.h"

#define MF__WIDE_KERNELS(text)                                                                       \
  {                                                                                                  \
      .name = (text),                                                                                \
      .transpose = {transpose1, transpose2, transpose4, transpose8, transpose16},                    \
      .network = network,                                                                            \
      .loops = &loops,                                                                               \
      .bits = &bits,                                                                                 \
      .stream = stream_16,                                                                           \
      .stream_end = stream_end_16,                                                                   \
  }
