/* kernels_avx2.c: the kernels for AVX2. */
#include "core/simd.h"

#ifdef __AVX2__
#define MF__WIDEST 32
#include "core/kernels_wide.h"

const mf__simd mf__simd_avx2 = MF__WIDE_KERNELS("avx2");
#endif
