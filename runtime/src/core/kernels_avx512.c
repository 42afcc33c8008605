/* kernels_avx512.c: the kernels for AVX-512 with its parts F, BW, DQ and VL. A vector is a whole line of the cache. */
#include "core/simd.h"

#ifdef __AVX512BW__
#define MF__WIDEST 64
#include "core/kernels_wide.h"

const mf__simd mf__simd_avx512 = MF__WIDE_KERNELS("avx512");
#endif
