/* kernels.h: the kernels that move elements, for vectors of MF__WIDTH bytes. Included once for each width that an
 * instruction set has, behind lanes.h. Works on nothing but addresses.
 *
 * Invariant: no byte outside of the tile's elements is read or written. */

/* Transposes N = 16 / size vectors, whose lane l is 16 bytes of source row k + l * N. The same exchange, N / 2 pairs of
 * rows zipped, takes the transpose a step further each time; after log2(N) times vector k is N elements of column k in
 * each lane, and the lanes follow each other as the source rows do. */
#define MF__TRANSPOSE(nbytes, bits)                                                                  \
  static inline void NAME(block##nbytes)(char *dst, int64_t dst_row, const char *src, int64_t src_column) { \
    enum { N = 16 / (nbytes) };                                                                      \
    VEC v[N], zipped[N];                                                                             \
    MF__UNROLL for (int k = 0; k < N; k++) v[k] = NAME(load)(src + k * src_column, N * src_column);  \
    MF__UNROLL for (int step = 1; step < N; step *= 2) {                                             \
      MF__UNROLL for (int k = 0; k < N / 2; k++) {                                                   \
        zipped[2 * k] = NAME(lo##bits)(v[k], v[k + N / 2]);                                          \
        zipped[2 * k + 1] = NAME(hi##bits)(v[k], v[k + N / 2]);                                      \
      }                                                                                              \
      MF__UNROLL for (int k = 0; k < N; k++) v[k] = zipped[k];                                       \
    }                                                                                                \
    MF__UNROLL for (int k = 0; k < N; k++) NAME(store)(dst + k * dst_row, v[k]);                     \
  }                                                                                                  \
                                                                                                     \
  /* The last block of a row or a column begins where it still has all of its elements, and moves some again. */ \
  static void NAME(transpose##nbytes)(const mf__tile *t) {                                           \
    const int64_t tall = 16 / (nbytes), wide = MF__WIDTH / (nbytes);                                 \
    for (int64_t column = 0; column < t->columns; column += wide) {                                  \
      const int64_t c = column + wide <= t->columns ? column : t->columns - wide;                    \
      for (int64_t row = 0; row < t->rows; row += tall) {                                            \
        const int64_t r = row + tall <= t->rows ? row : t->rows - tall;                              \
        NAME(block##nbytes)(t->dst + r * t->dst_row + c * (nbytes), t->dst_row,                      \
                            t->src + r * (nbytes) + c * t->src_column, t->src_column);               \
      }                                                                                              \
    }                                                                                                \
  }

MF__TRANSPOSE(1, 8)
MF__TRANSPOSE(2, 16)
MF__TRANSPOSE(4, 32)
MF__TRANSPOSE(8, 64)
MF__TRANSPOSE(16, 64) /* one vector: nothing to zip */
#undef MF__TRANSPOSE

/* Whole lines pass the caches, so that the memory that they replace is not read first. */
static inline void NAME(stream)(char *dst, const char *src, int64_t nbytes) {
  int64_t i = -(intptr_t)dst & 63;
  if (i > nbytes) i = nbytes;
  memcpy(dst, src, (size_t)i);
  for (; i + 64 <= nbytes; i += 64)
    MF__UNROLL for (int k = 0; k < 64; k += MF__WIDTH) NAME(pass)(dst + i + k, NAME(whole)(src + i + k));
  memcpy(dst + i, src + i, (size_t)(nbytes - i));
}

#ifdef MF__HAS_PICK
/* The numbers of inputs and outputs are known to the compiler, so that the masks stay in registers. Returns how many
 * groups were done: those that fill whole vectors. Memory ahead is asked for, a line for each input: the vectors lie
 * across lines, of which the processor asks for too few at a time by itself. */
#define MF__NETWORK(INPUTS, OUTPUTS)                                                                 \
  static int64_t NAME(network##INPUTS##OUTPUTS)(const mf__network *n, const mf__groups *g) {         \
    enum { LANES = MF__WIDTH / 16 };                                                                 \
    VEC mask[OUTPUTS][INPUTS], in[INPUTS];                                                           \
    int64_t done = 0;                                                                                \
    MF__UNROLL for (int i = 0; i < (OUTPUTS); i++)                                                   \
      MF__UNROLL for (int j = 0; j < (INPUTS); j++)                                                  \
        mask[i][j] = NAME(load)((const char *)n->mask[i][j], 0);                                     \
    const int64_t apart = g->src_vector < 64 ? 64 : g->src_vector;                                   \
    const int64_t ahead = g->src_group < 0 ? -MF__AHEAD : MF__AHEAD;                                 \
    for (; done + LANES <= g->count; done += LANES) {                                                \
      MF__UNROLL for (int j = 0; j < (INPUTS); j++)                                                  \
        mf__prefetch(g->src, done * g->src_group + j * apart + ahead);                               \
      const char *src = g->src + done * g->src_group;                                                \
      char *dst = g->dst + done * g->dst_group;                                                      \
      MF__UNROLL for (int j = 0; j < (INPUTS); j++)                                                  \
        in[j] = NAME(load)(src + j * g->src_vector, g->src_group);                                   \
      MF__UNROLL for (int i = 0; i < (OUTPUTS); i++) {                                               \
        VEC out = NAME(pick)(in[0], mask[i][0]);                                                     \
        MF__UNROLL for (int j = 1; j < (INPUTS); j++)                                                \
          out = NAME(either)(out, NAME(pick)(in[j], mask[i][j]));                                    \
        NAME(scatter)(dst + i * g->dst_vector, g->dst_group, out);                                   \
      }                                                                                              \
    }                                                                                                \
    return done;                                                                                     \
  }
MF__NETWORK(1, 1)
MF__NETWORK(2, 1)
MF__NETWORK(2, 2)
MF__NETWORK(3, 1)
MF__NETWORK(3, 3)
MF__NETWORK(4, 1)
MF__NETWORK(4, 3)
MF__NETWORK(4, 4)
#undef MF__NETWORK

static inline int64_t NAME(network)(const mf__network *n, const mf__groups *g) {
  switch (n->outputs) {
    case 1:
      return n->inputs == 1   ? NAME(network11)(n, g)
             : n->inputs == 2 ? NAME(network21)(n, g)
             : n->inputs == 3 ? NAME(network31)(n, g)
                              : NAME(network41)(n, g);
    case 2: return NAME(network22)(n, g);
    case 3: return n->inputs == 3 ? NAME(network33)(n, g) : NAME(network43)(n, g);
    default: return NAME(network44)(n, g);
  }
}
#undef MF__HAS_PICK
#endif

#undef MF__JOIN
#undef MF__JOIN2
#undef NAME
#undef VEC
#undef X86
