/* cuda.h: declares what the files of the CUDA backend share: the table of the driver's functions, and the state of each
 * device. */
#ifndef MOONFERRY_CUDA_H
#define MOONFERRY_CUDA_H

#include "driver/cuda_calls.h"
#include "driver/kernel.h"

typedef struct mf__cuda {
#define MEMBER(name, version, params) CUresult(*name) params;
  MF__CUDA_REQUIRED(MEMBER)
  MF__CUDA_OPTIONAL(MEMBER)
#undef MEMBER
} mf__cuda;

/* Complete once mf__driver_open has succeeded. */
extern mf__cuda mf__cu;

typedef struct mf__cuda_device {
  CUdevice device;
  _Atomic(CUcontext) context; /* primary; NULL until it is first needed */
  mf__pooling pooling;
  mf__kernels kernels;
  int32_t grid; /* blocks that fill the device */
} mf__cuda_device;

/* cuda_context.c */

extern mf__driver mf__cuda_driver;
extern mf__cuda_device mf__cuda_devices[MF__MAX_ORDINALS];
/* The ordinal that this thread entered; what the driver calls the current device. */
extern _Thread_local int32_t mf__cuda_ordinal MF__TLS;

/* Slots of mf__backend. */
int mf__cuda_count(int32_t *out, mf_error *err);
bool mf__cuda_usable(void);
int mf__cuda_current(int32_t *ordinal, mf_error *err);
int mf__cuda_enter(int32_t ordinal, mf__entered *before, mf_error *err);
void mf__cuda_leave(const mf__entered *before);

/* Make the device's context current, and the former one again: enter and leave without the gate. */
int mf__cuda_make_current(int32_t ordinal, mf__entered *before, mf_error *err);
void mf__cuda_make_former(const mf__entered *before);
/* Forgets a context that was released; the next use retains it anew. No thread is between enter and leave. */
void mf__cuda_context_forget(mf__cuda_device *d);
/* Whether the device has a primary context, which any library may have made; makes none. */
bool mf__cuda_is_active(int32_t ordinal);
/* The state of the device that the calling thread has entered. */
mf__cuda_device *mf__cuda_here(void);
int mf__cuda_primary(int32_t ordinal, CUcontext *out, mf_error *err);
/* Turns the result of a call into a status. */
int mf__cuda_answer(CUresult code, const char *call, mf_error *err);
#define MF__ASK(name, arguments) mf__cuda_answer(mf__cu.name arguments, #name, err)

/* The names 1 and 2 are the driver's numbers for the same streams (CUDA Driver API, "Data types", CU_STREAM_LEGACY and
 * CU_STREAM_PER_THREAD). */
static inline CUstream mf__cuda_stream(mf_stream stream) {
  return (CUstream)(intptr_t)stream;
}

static inline CUdeviceptr mf__cuda_ptr(const void *ptr) {
  return (CUdeviceptr)(uintptr_t)ptr;
}

/* cuda_work.c, cuda_kernel.c and cuda_graphics.c: slots of mf__backend */

int mf__cuda_graphics_register(const mf__gl_name *name, uint32_t flags, void **out, mf_error *err);
int mf__cuda_graphics_unregister(void *resource, mf_error *err);
int mf__cuda_graphics_map(void *resource, mf_stream stream, void **data, size_t *nbytes, mf_error *err);
int mf__cuda_graphics_map_array(void *resource, mf_stream stream, mf__array *out, mf_error *err);
int mf__cuda_graphics_unmap(void *resource, mf_stream stream, mf_error *err);
int mf__cuda_array_copy(const mf__array_copy *job, mf_stream stream, mf_error *err);
int mf__cuda_external_import(int fd, size_t nbytes, mf__external *out, mf_error *err);
void mf__cuda_external_end(const mf__external *memory);
int mf__cuda_semaphore_import(int fd, bool binary, void **out, mf_error *err);
int mf__cuda_semaphore_end(void *semaphore, mf_error *err);
int mf__cuda_semaphore_wait(void *semaphore, uint64_t value, mf_stream stream, mf_error *err);
int mf__cuda_semaphore_signal(void *semaphore, uint64_t value, mf_stream stream, mf_error *err);

int mf__cuda_copy(const mf__block_copy *job, mf_stream stream, mf_error *err);
int mf__cuda_copy_peer(const mf__block_copy *job, int32_t dst_ordinal, int32_t src_ordinal, mf_stream stream,
                       mf_error *err);
int mf__cuda_fill(const mf__block_copy *job, uint32_t value, int32_t unit, mf_stream stream, mf_error *err);
int mf__cuda_capture_relax(bool on, mf_error *err);
int mf__cuda_stream_capture(mf_stream stream, uint64_t *id, mf_error *err);
int mf__cuda_kernel_copy(const mf__kernel_copy *job, mf_stream stream, mf_error *err);
int mf__cuda_kernel_cast(const mf__kernel_copy *job, const mf__codec *to, const mf__codec *from, mf_stream stream,
                         mf_error *err);
int mf__cuda_kernel_compare(const mf__kernel_copy *job, const mf__codec *of, uint32_t *differs, mf_stream stream,
                            mf_error *err);
extern const mf__compiler mf__cuda_compiler;

/* cuda_text.c: the texts of kernels */

/* The longest text, that of a cast between small floats, takes less than two thirds of it. */
typedef struct mf__cuda_text {
  size_t length;
  char at[48 << 10];
} mf__cuda_text;

/* A kernel that goes over the elements of a job. */
typedef struct mf__cuda_walk {
  const char *name, *params; /* params: behind the job, each behind a comma */
  const char *begin;         /* the registers of its own, and what comes before the first element */
  const char *end;           /* what comes behind the last one */
  void (*body)(mf__cuda_text *t, const void *ctx); /* what is done at %to and %from */
  const void *ctx;
} mf__cuda_walk;

/* Each $ of the text becomes the first word, each # the second. */
void mf__cuda_put(mf__cuda_text *t, const char *text, const char *first, const char *second);
void mf__cuda_text_begin(mf__cuda_text *t);
void mf__cuda_put_walk(mf__cuda_text *t, const mf__cuda_walk *w);
/* Copies of elements of 1 << which bytes: mf_copy, mf_transpose and, below 4 bytes, mf_transpose_words. */
void mf__cuda_text_copy(mf__cuda_text *t, int32_t which);

/* cuda_number.c: the texts of casts and comparisons: mf_one takes an element at a time, mf_some as many as
 * mf__kernel_lanes says, which lie side by side on both sides. Numbers, as mf__number_of knows them. */
void mf__cuda_text_cast(mf__cuda_text *t, const mf__codec *to, const mf__codec *from);
void mf__cuda_text_compare(mf__cuda_text *t, const mf__codec *c);

#endif
