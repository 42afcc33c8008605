/* hip_thread.h: what the kernels for HIP ask of the thread that runs them, as hiprtc compiles it. The simulator has the
 * same functions in C, which also look at what each thread touches. */
MF__HIP_TEXT(thread,
typedef unsigned long long u64;

INSIDE unsigned thread(void) { return threadIdx.x; }
INSIDE unsigned block(void) { return blockIdx.x; }
INSIDE unsigned blocks(void) { return gridDim.x; }

/* ${n} bytes, which lie at a multiple of n; n is a constant where this is called. */
INSIDE void move(void *to, const void *from, int n) {
  switch (n) {
    case 1: __builtin_memcpy(to, from, 1); break;
    case 2: __builtin_memcpy(__builtin_assume_aligned(to, 2), __builtin_assume_aligned(from, 2), 2); break;
    case 4: __builtin_memcpy(__builtin_assume_aligned(to, 4), __builtin_assume_aligned(from, 4), 4); break;
    case 8: __builtin_memcpy(__builtin_assume_aligned(to, 8), __builtin_assume_aligned(from, 8), 8); break;
    default: __builtin_memcpy(__builtin_assume_aligned(to, 16), __builtin_assume_aligned(from, 16), 16);
  }
}

/* From and to memory of the device, and from and to memory of the block. */
INSIDE void take(void *to, const char *from, int n) { move(to, from, n); }
INSIDE void give(char *to, const void *from, int n) { move(to, from, n); }
INSIDE void get(void *to, const void *from, int n) { move(to, from, n); }
INSIDE void put(void *to, const void *from, int n) { move(to, from, n); }

/* Waits for the block's other threads. Where it is true the thread ends here, and is run anew behind this place. */
INSIDE bool meet(void) {
  __syncthreads();
  return false;
}

/* Any thread may tell that it has found something. */
INSIDE void tell(bool found, unsigned *differs) {
  if (found) atomicOr(differs, 1u);
}
)
