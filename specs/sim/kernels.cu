// The kernels of test_nvrtc.py, as people write them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

KERNEL saxpy(float a, const float* x, float* y, int n) {
  if (AT < n) y[AT] = a * x[AT] + y[AT];
}

KERNEL reduce(const float* x, float* out, int n) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  float sum = 0;
  for (int i = AT; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  part[t] = sum;
  __syncthreads();
  for (int k = blockDim.x / 2; k > 0; k >>= 1) {
    if (t < k) part[t] += part[t + k];
    __syncthreads();
  }
  if (t == 0) atomicAdd(out, part[0]);
}

KERNEL reduce_by_warps(const float* x, float* out, int n) {
  float sum = AT < n ? x[AT] : 0;
  for (int k = 16; k > 0; k >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, k);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

KERNEL transpose(const float* x, float* y, int w, int h) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < h && c < w) tile[threadIdx.y + k][threadIdx.x] = x[(r + k) * w + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x;
  r = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < w && c < h) y[(r + k) * h + c] = tile[threadIdx.x][threadIdx.y + k];
}

KERNEL stencil(const float* x, float* y, int n) {
  extern __shared__ float part[];
  const int t = threadIdx.x, i = AT;
  if (i < n) part[t + 1] = x[i];
  if (t == 0) part[0] = i > 0 ? x[i - 1] : 0;
  if (t == blockDim.x - 1 || i == n - 1) part[t + 2] = i + 1 < n ? x[i + 1] : 0;
  __syncthreads();
  if (i < n) y[i] = 0.25f * part[t] + 0.5f * part[t + 1] + 0.25f * part[t + 2];
}

KERNEL histogram(const unsigned char* x, unsigned* out, int n) {
  __shared__ unsigned bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = AT; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1u);
  __syncthreads();
  atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

KERNEL matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float left[16][16], right[16][16];
  const int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    left[threadIdx.y][threadIdx.x] = a[i * n + k + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + j];
    __syncthreads();
    for (int t = 0; t < 16; t++) sum += left[threadIdx.y][t] * right[t][threadIdx.x];
    __syncthreads();
  }
  c[i * n + j] = sum;
}

__constant__ float weights[4] = {1, 2, 3, 4};

__device__ __noinline__ float polynomial(float x, const float* own) {
  float v = 0;
  for (int i = 0; i < 4; i++) v = v * x + weights[i];
  return v + own[(int)(x * 4)];
}

KERNEL functions(const float* x, float* y, int n) {
  if (AT >= n) return;
  const float v = x[AT], own[4] = {v, 1, 2, 3};
  y[AT] = sinf(v * 1e6f) + __cosf(v) + exp2f(v) + log2f(v + 2) + sqrtf(v) + rsqrtf(v + 1) + powf(v, 1.5f) + tanhf(v) +
          polynomial(v, own);
}

KERNEL halves(const __half* x, const __nv_bfloat16* b, float* sum, __half* fused, int n) {
  if (AT >= n) return;
  sum[AT] = __half2float(x[AT]) + __bfloat162float(b[AT]);
  fused[AT] = __hfma(x[AT], x[AT], __float2half(sum[AT]));
}

KERNEL largest(const float* x, int* out, int n) {
  if (AT >= n) return;
  int old = *out, seen;
  do {
    seen = old;
    old = atomicCAS(out, seen, __float_as_int(fmaxf(x[AT], __int_as_float(seen))));
  } while (seen != old);
}

KERNEL positive(const int* x, unsigned* out) {
  const unsigned votes = __ballot_sync(0xffffffffu, x[threadIdx.x] > 0);
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = votes;
  __syncwarp();
}

// Wrong: nothing orders the two sides of shared memory.
KERNEL turned(float* x) {
  __shared__ float part[64];
  part[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = part[63 - threadIdx.x];
}

typedef float (*operation)(float, float);
__device__ __noinline__ float plus(float a, float b) { return a + b; }
__device__ __noinline__ float times(float a, float b) { return a * b; }
__device__ __noinline__ float greater(float a, float b) { return a > b ? a : b; }
__device__ operation operations[] = {plus, times, greater};

// Calls through a table of pointers; which one depends on the thread, or on what memory holds.
KERNEL chosen(const float* x, float* y, int n) {
  if (AT < n) y[AT] = operations[AT % 3](x[AT], 3.0f);
}

KERNEL chosen_by_memory(const int* which, const float* x, float* y, int n) {
  if (AT < n) y[AT] = operations[which[AT]](x[AT], 3.0f);
}

struct shape {
  __device__ virtual float area() const = 0;
};
struct square : shape {
  float side;
  __device__ square(float s) : side(s) {}
  __device__ __noinline__ float area() const override { return side * side; }
};
struct rectangle : square {
  float other;
  __device__ rectangle(float a, float b) : square(a), other(b) {}
  __device__ __noinline__ float area() const override { return side * other; }
};
__device__ __noinline__ float twice_the_area(const shape& s) { return 2 * s.area(); }

KERNEL areas(const float* x, float* y, int n) {
  const square a(x[AT]);
  const rectangle b(x[AT], 5.0f);
  if (AT < n) y[AT] = AT % 2 ? twice_the_area(a) : twice_the_area(b);
}

KERNEL tell(const float* x, int n) {
  const char* const names[] = {"even", "odd"};
  if (AT < n) printf("%d of %lld: %s %5.2f %p 100%% %c %#x %-4u|\n", AT, (long long)n << 33, names[AT % 2], x[AT], x, 'a' + AT, AT + 255, AT);
}
