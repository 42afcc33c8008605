/* kernels_base.c: the kernels for the vectors that every processor of its kind has: SSE2 on x86-64, where bytes cannot
 * be permuted, and NEON on aarch64. */
#include "core/simd.h"

#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__x86_64__) || defined(__aarch64__)
#define MF__WIDTH 16
#include "core/lanes.h"
#include "core/kernels.h"
#define PASS_WIDTH 16
#define PASS(to, from) pass_16((to), whole_16(from))
#include "core/kernels_convert.h"
#include "core/kernels_packed.h"

#ifdef __aarch64__
static void network(const mf__network *n, const mf__groups *g) {
  (void)network_16(n, g);
}
#endif

const mf__simd mf__simd_base = {
#ifdef __aarch64__
    .name = "neon",
    .network = network,
#else
    .name = "sse2",
#endif
    .transpose = {transpose1_16, transpose2_16, transpose4_16, transpose8_16, transpose16_16},
    .loops = &loops,
    .bits = &bits,
    .stream = stream_16,
    .stream_end = stream_end_16,
};
#endif
