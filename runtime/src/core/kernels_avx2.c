/* kernels_avx2.c: the kernels for AVX2. */
#include "core/simd.h"

#ifdef __AVX2__
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

/* The widest vectors that the columns fill. */
#define WIDEST(nbytes)                                                                               \
  static void transpose##nbytes(const mf__tile *t) {                                                 \
    if (t->columns >= 32 / (nbytes))                                                                 \
      transpose##nbytes##_32(t);                                                                     \
    else                                                                                             \
      transpose##nbytes##_16(t);                                                                     \
  }
WIDEST(1)
WIDEST(2)
WIDEST(4)
WIDEST(8)
WIDEST(16)

static void network(const mf__network *n, const mf__groups *g) {
  mf__groups rest = *g;
  const int64_t done = network_32(n, g);
  rest.dst += done * g->dst_group;
  rest.src += done * g->src_group;
  rest.count -= done;
  (void)network_16(n, &rest);
}

#include "core/kernels_convert.h"

const mf__simd mf__simd_avx2 = {
    .name = "avx2",
    .transpose = {transpose1, transpose2, transpose4, transpose8, transpose16},
    .network = network,
    .loops = &loops,
    .stream = stream_16,
    .stream_end = stream_end_16,
};
#endif
