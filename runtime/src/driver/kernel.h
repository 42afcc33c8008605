/* kernel.h: declares what is the same for the kernels of every driver: which one a job needs, how it is kept once it is
 * made, and how many threads go over what. A driver's file compiles it and launches it. */
#ifndef MOONFERRY_KERNEL_H
#define MOONFERRY_KERNEL_H

#include "driver/driver.h"

#define MF__KERNEL_SIZES 5    /* elements of 1, 2, 4, 8 and 16 bytes */
#define MF__KERNEL_THREADS 256 /* of a block */
#define MF__KERNEL_TILE 32    /* elements along either axis */

/* Which kernel: a copy of elements of 1 << which bytes, a cast, or a comparison of two sides of the dtype ${to}. */
typedef enum mf__kernel_kind { MF__COPIES, MF__CASTS, MF__COMPARES } mf__kernel_kind;

typedef struct mf__kernel_wanted {
  mf__kernel_kind kind;
  int32_t which;
  const mf__codec *to, *from;
} mf__kernel_wanted;

/* The ways of a copy: element by element, by tiles of elements, and of squares of small elements. And those of numbers:
 * a thread takes one at a time, or as many as mf__kernel_lanes says. */
enum { MF__WAY_ALL = 0, MF__WAY_TILES = 1, MF__WAY_SQUARES = 2, MF__WAY_ONE = 0, MF__WAY_SOME = 1, MF__NWAYS = 3 };

/* A module of kernels that do the same in different ways. */
typedef struct mf__kernel {
  struct mf__kernel *next;
  uint32_t key; /* which one it is */
  void *module, *ways[MF__NWAYS];
  mf_error refused; /* why it cannot be made, where it cannot */
} mf__kernel;

/* Those of a device that were asked for; what is in the list does not change. */
typedef struct mf__kernels {
  _Atomic(mf__kernel *) first;
} mf__kernels;

/* What a driver does for them. The device's context is current. */
typedef struct mf__compiler {
  int (*open)(mf_error *err);   /* MF_EDEVICE with the reason where there are no kernels at all */
  mf__kernels *(*here)(void);   /* those of the device that the thread has entered */
  int (*relax)(bool on, mf_error *err);
  int (*capture)(mf_stream stream, uint64_t *id, mf_error *err); /* as mf__backend.stream_capture */
  /* Makes the module and the ways, or tells in ${refused} why nobody ever can. Called by one thread at a time. */
  int (*make)(const mf__kernel_wanted *w, mf__kernel *k, mf_error *err);
  /* As many blocks as that, or fewer that fill the device. */
  int (*launch)(void *way, int64_t nblocks, void **params, mf_stream stream, mf_error *err);
  void (*unload)(void *module);
} mf__compiler;

/* Slots of mf__backend, but for the compiler. */
int mf__kernel_copy_by(const mf__compiler *c, const mf__kernel_copy *job, mf_stream stream, mf_error *err);
int mf__kernel_cast_by(const mf__compiler *c, const mf__kernel_copy *job, const mf__codec *to, const mf__codec *from,
                       mf_stream stream, mf_error *err);
int mf__kernel_compare_by(const mf__compiler *c, const mf__kernel_copy *job, const mf__codec *of, uint32_t *differs,
                          mf_stream stream, mf_error *err);
bool mf__kernels_loaded(const mf__kernels *of);
/* Unloads the kernels of a device whose context is current. No thread uses them. */
void mf__kernels_forget(const mf__compiler *c, mf__kernels *of);

/* How many numbers a thread takes at once where they lie side by side. */
int mf__kernel_lanes(const mf__codec *a, const mf__codec *b);
/* A word for an error: copy, cast, comparison. */
const char *mf__kernel_name(mf__kernel_kind kind);

#endif
