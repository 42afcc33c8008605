/* hip_walk.h: the job of a kernel for HIP, and where its elements lie. It is C that hiprtc takes as C++. */
MF__HIP_TEXT(walk,
/* mf__kernel_copy, of which a kernel has a copy. Axis 0 is the destination's fastest. */
typedef struct job {
  char *dst;
  const char *src;
  u64 numel;
  int ndim, size;
  long long shape[8], dst_strides[8], src_strides[8];
} job;

typedef struct place {
  char *to;
  const char *from;
} place;

/* Element i of the axes from ${axis} on. A division of 32 bits is several times faster than one of 64. */
INSIDE place place_of(const job *j, u64 i, int axis) {
  place p = {j->dst, j->src};
  for (; axis < j->ndim; axis++) {
    const u64 extent = (u64)j->shape[axis];
    u64 rest = 0;
    if (axis + 1 < j->ndim) rest = (i | extent) >> 32 == 0 ? (unsigned)i / (unsigned)extent : i / extent;
    const long long at = (long long)(i - rest * extent);
    p.to += at * j->dst_strides[axis];
    p.from += at * j->src_strides[axis];
    i = rest;
  }
  return p;
}

/* A thread's first element, and how far it is to the next one. */
INSIDE u64 first(void) { return (u64)block() * THREADS + thread(); }
INSIDE u64 step(void) { return (u64)blocks() * THREADS; }
)
