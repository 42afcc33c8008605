/* simd.h: the kernels that move and convert many elements at once, of which there is one set for each instruction set
 * that a machine may have; and the planes of two layouts that they work on.
 *
 * A kernel knows addresses and strides in bytes. It must not know about tensors, dtypes' names or errors. */
#ifndef MOONFERRY_SIMD_H
#define MOONFERRY_SIMD_H

#include "core/core.h"

/* rows x columns elements of two layouts. Strides are in bytes, and of any sign. */
typedef struct mf__tile {
  char *dst;
  const char *src;
  int64_t size; /* of an element, in bytes */
  int64_t rows, columns;
  int64_t dst_row, dst_column;
  int64_t src_row, src_column;
} mf__tile;

/* How the bytes of up to four vectors of 16 change places: byte b of output i is byte mask[i][j][b] of that input j for
 * which it is less than 128. There are networks of n inputs and n outputs, of n and one, and of four and three. */
typedef struct mf__network {
  int inputs, outputs;
  unsigned char mask[4][4][16];
} mf__network;

/* Where the vectors of a network lie: from one to the next in a group, and from one group to the next, in bytes. */
typedef struct mf__groups {
  char *dst;
  const char *src;
  int64_t count;
  int64_t dst_vector, dst_group;
  int64_t src_vector, src_group;
} mf__groups;

/* The types that rows of numbers go through. */
enum { MF__P_SHORT, MF__P_INT, MF__P_LONG, MF__P_U64, MF__P_F32, MF__P_F64, MF__NPIVOTS };

/* n elements that follow each other; the format is that of the side that has one. ${passes}: what is written, from the
 * beginning of a line on, passes the caches but for the last few elements. */
typedef void (*mf__loop)(void *out, const void *in, int64_t n, const mf__small *f, bool passes);

/* NULL where nothing need be done, or no pair needs it. */
typedef struct mf__loops {
  mf__loop load[MF__NPIVOTS][MF__NNUMBERS];
  mf__loop store[MF__NPIVOTS][MF__NNUMBERS];
  mf__loop direct[MF__NNUMBERS][MF__NNUMBERS]; /* from the first to the second, where that is faster */
  bool (*same_f32)(const void *a, const void *b, int64_t n); /* as numbers: NaN differs, zeros are equal */
  bool (*same_f64)(const void *a, const void *b, int64_t n);
  mf__loop odd; /* from doubles to floats that a small format is rounded from */
} mf__loops;

/* Where the elements of a dtype lie, and which part of a byte one takes. */
typedef struct mf__bits mf__bits;
typedef struct mf__slots {
  const mf__bits *loops;
  int64_t bits;        /* from one to the next */
  unsigned mask, sign; /* bits of an element; no mask: it has its whole bytes */
  signed char least, most; /* numbers beyond become these; of others, the low bits stay */
} mf__slots;

/* Loops for elements of less than a byte: for n eights of packed ones, by their bits, to bytes and back; for n that
 * have a byte each; and for n bytes in place, to numbers of 8 bits, and from those to numbers that have room. */
struct mf__bits {
  void (*unpack[5])(unsigned char *restrict out, const unsigned char *restrict in, int64_t n);
  void (*pack[5])(unsigned char *restrict out, const unsigned char *restrict in, int64_t n);
  void (*take)(unsigned char *restrict out, const unsigned char *restrict in, int64_t n, unsigned mask);
  void (*merge)(unsigned char *restrict out, const unsigned char *restrict in, int64_t n, unsigned mask);
  void (*extend)(unsigned char *bytes, int64_t n, unsigned sign);
  void (*clamp)(unsigned char *bytes, int64_t n, const mf__slots *s);
};

/* What an instruction set can do. */
typedef struct mf__simd {
  const char *name;
  /* By the logarithm of the element's size, 1 to 16 bytes. Source rows and destination columns are compact: src_row and
   * dst_column are ${size}. There are at least 16 bytes of rows and of columns. */
  void (*transpose[5])(const mf__tile *t);
  void (*network)(const mf__network *n, const mf__groups *g); /* NULL where bytes cannot be permuted */
  const mf__loops *loops;
  const mf__bits *bits;
  /* Copies as memcpy does, past the caches: nobody reads what is written soon. */
  void (*stream)(char *dst, const char *src, int64_t nbytes);
  void (*stream_end)(void); /* what was streamed is seen before what is written next */
} mf__simd;

extern const mf__simd mf__simd_base, mf__simd_avx2, mf__simd_avx512;

/* simd.c */

/* The set in use; NULL where every element takes the plain walk. */
const mf__simd *mf__simd_now(void);

/* planes.c: two layouts of one shape as planes, and the axes around them */

typedef struct mf__planes {
  mf__tile plane; /* the first */
  int32_t ndim;   /* of the axes around, those that go farthest in the destination first */
  int64_t shape[MF_MAX_NDIM];
  int64_t dst[MF_MAX_NDIM], src[MF_MAX_NDIM]; /* strides in bytes */
} mf__planes;

/* A source: where element 0 is, strides in elements, and an element's bytes. */
typedef struct mf__side {
  const char *data;
  const int64_t *strides; /* NULL repeats one element */
  int64_t size;
} mf__side;

/* Columns are the axis that is closest in the destination, and rows the one that is closest in the source. ${fuses}:
 * elements, of one size then, that lie side by side on both sides count as one element of up to 16 bytes. */
void mf__planes_make(mf__planes *p, const DLTensor *dst, int64_t dst_size, const mf__side *src, bool fuses);
void mf__planes_each(const mf__planes *p, void (*plane)(void *ctx, const mf__tile *t), void *ctx);

/* Where planes are cut into parts: behind ${first} along one axis, and then every ${step}. */
enum { MF__COLUMNS = -1, MF__ROWS = -2 };
typedef struct mf__cut {
  int32_t axis; /* one of those around, MF__COLUMNS or MF__ROWS */
  int64_t first, step, nparts;
} mf__cut;

/* Into ${nparts} parts or fewer, 1 at least, which go over memory as the whole does. */
void mf__planes_cut(const mf__planes *p, int64_t nparts, mf__cut *out);
void mf__planes_part(const mf__planes *p, const mf__cut *cut, int64_t i, mf__planes *out);

/* tile.c: the elements of a tile */

typedef struct mf__mover mf__mover;
struct mf__mover {
  void (*move)(const mf__mover *m, const mf__tile *t);
  const mf__simd *simd;
  mf__network network;
};

/* The fastest way to move ${nbytes} in tiles with the strides of ${like}; rows and columns may be fewer, and a row may
 * go elsewhere. */
void mf__mover_find(mf__mover *m, const mf__simd *simd, const mf__tile *like, int64_t nbytes);
/* Element by element, whatever the strides. */
void mf__move_plain(const mf__tile *t);
/* Repeats an element n times. */
void mf__repeat_row(char *dst, const char *src, int64_t size, int64_t n);

/* convert.c: rows of numbers from one dtype to another */

typedef struct mf__convert {
  int32_t nstages;
  struct {
    mf__loop run;
    mf__small format;
    int64_t size; /* of what it makes */
  } stages[3];
  int64_t from, to; /* bytes of an element */
} mf__convert;

/* False where the pair is not a common one. An element of less than a byte is a byte to it, as mf__slots_load gives
 * it. */
bool mf__convert_find(const mf__simd *simd, const mf__codec *to, const mf__codec *from, mf__convert *out);
/* Elements that follow each other on both sides. ${passes}: past the caches, as a loop does it; some passing rows end
 * with the set's stream_end. */
void mf__convert_row(const mf__convert *c, char *dst, const char *src, int64_t n, bool passes);

/* packed.c: elements of less than a byte, as bytes */

/* n elements, counted from the first of all. */
typedef struct mf__run {
  int64_t at, step, n;
} mf__run;

/* False where elements lie across bytes, or there are no kernels. ${clamps}: what is stored comes from a float. */
bool mf__slots_of(const mf__simd *simd, const mf__codec *c, bool clamps, mf__slots *out);
/* Elements one behind the other, where they lie or in ${room}: numbers of 8 bits in place of smaller ones, codes of
 * floats in place of codes. */
const char *mf__slots_load(const mf__slots *s, const char *data, const mf__run *r, char *room);
/* The same back: from the place that the first of these gives for them, which is theirs or ${room}. The second makes
 * the n numbers there such as have room, where the slots clamp. */
char *mf__slots_place(const mf__slots *s, char *data, const mf__run *r, char *room);
void mf__slots_clamp(const mf__slots *s, char *place, int64_t n);
void mf__slots_store(const mf__slots *s, char *data, const mf__run *r, const char *from);

/* How rows of one dtype are compared, as numbers. */
typedef struct mf__compare {
  mf__loop load; /* NULL: as they lie */
  mf__small format;
  bool (*same)(const void *a, const void *b, int64_t n); /* NULL: by their bytes */
  int64_t size, width;                                   /* of an element, and of what is compared of it */
} mf__compare;

/* A row in memory; the stride is in bytes. */
typedef struct mf__strided {
  const char *data;
  int64_t stride;
} mf__strided;

/* False where the dtype is no common one. An element of less than a byte is a byte to it, too. */
bool mf__compare_find(const mf__simd *simd, const mf__codec *codec, mf__compare *out);
bool mf__compare_row(const mf__compare *c, const mf__strided *a, const mf__strided *b, int64_t n);

/* tiles.c: whole layouts by tiles */

/* Elements of whole bytes; the two do not overlap, and no place of ${dst} has several elements. */
void mf__tiles_copy(const mf__simd *simd, const DLTensor *dst, const mf__side *src);
void mf__tiles_cast(const mf__simd *simd, const mf__convert *c, const DLTensor *dst, const mf__side *src);
/* False where rows do as well: one side is not close where the other is far, or there are a few elements. Places of
 * either may have several elements. */
bool mf__tiles_equal(const mf__simd *simd, const mf__compare *c, const DLTensor *a, const mf__side *b, bool *same);

/* blocks.c: false where rows are long enough, and tiles do better. The two are as for mf__tiles_cast, ${numel} elements
 * each. */
bool mf__blocks_cast(const mf__simd *simd, const mf__convert *c, const DLTensor *dst, const mf__side *src,
                     int64_t numel);

/* How far ahead of a loop that reads memory its next lines are asked for. */
#define MF__AHEAD 4096

/* Nothing is read; the place may be outside of all memory. What does nothing but this must always be inlined: GCC takes
 * a function that only prefetches for one that does nothing, and drops its calls. */
#define MF__INLINE static inline __attribute__((always_inline))
MF__INLINE void mf__prefetch(const char *from, int64_t nbytes) {
  __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)nbytes));
}

/* While so many bytes are read from there: those that are MF__AHEAD of them. */
MF__INLINE void mf__prefetch_ahead(const char *from, int64_t nbytes) {
  for (int64_t i = 0; i < nbytes; i += 64) mf__prefetch(from, i + MF__AHEAD);
}

/* GCC makes no vectors of a loop that it has unrolled before, as it does with 16 turns. */
#ifdef __clang__
#define MF__UNROLL
#define MF__NO_UNROLL
#define MF__UNROLL_FEW
#else
#define MF__UNROLL _Pragma("GCC unroll 16")
#define MF__NO_UNROLL _Pragma("GCC unroll 1")
#define MF__UNROLL_FEW _Pragma("GCC unroll 4")
#endif

#endif
