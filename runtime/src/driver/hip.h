/* hip.h: declares what the files of the HIP backend share: the table of the runtime's functions, and the way from a
 * call's result to a status. */
#ifndef MOONFERRY_HIP_H
#define MOONFERRY_HIP_H

#include "driver/hip_calls.h"
#include "driver/kernel.h"

typedef struct mf__hip_table {
#define MEMBER(result, name, params) result(*name) params;
  MF__HIP_REQUIRED(MEMBER)
  MF__HIP_OPTIONAL(MEMBER)
#undef MEMBER
} mf__hip_table;

/* Complete once mf__driver_open has succeeded. */
extern mf__hip_table mf__hip;

typedef struct mf__hiprtc_table {
#define MEMBER(result, name, params) result(*name) params;
  MF__HIPRTC_REQUIRED(MEMBER)
#undef MEMBER
} mf__hiprtc_table;

/* Complete once a kernel was asked for, where there is hiprtc. */
extern mf__hiprtc_table mf__hiprtc;

/* hip_context.c */

extern mf__driver mf__hip_driver;
/* The runtime's version, major * 100 + minor. The numbers of memory types changed with 6.0. */
extern int32_t mf__hip_version;
/* The ordinal that this thread entered. */
extern _Thread_local int32_t mf__hip_ordinal MF__TLS;

/* Slots of mf__backend. */
int mf__hip_count(int32_t *out, mf_error *err);
bool mf__hip_usable(void);
int mf__hip_current(int32_t *ordinal, mf_error *err);
int mf__hip_enter(int32_t ordinal, mf__entered *before, mf_error *err);
void mf__hip_leave(const mf__entered *before);

/* Make the device current, and the former one again: enter and leave without the gate. */
int mf__hip_make_current(int32_t ordinal, mf__entered *before, mf_error *err);
void mf__hip_make_former(const mf__entered *before);

/* Takes the thread's last error away if it is the one that a call of ours has just left there. */
void mf__hip_clear(hipError_t code);
/* Turns the result of a query into a status; "not ready" is no failure. */
int mf__hip_answer_done(hipError_t code, const char *call, bool *done, mf_error *err);
/* Turns the result of a call into a status. */
int mf__hip_answer(hipError_t code, const char *call, mf_error *err);
#define MF__HIP_ASK(name, arguments) mf__hip_answer(mf__hip.name arguments, #name, err)

/* HIP's legacy stream is NULL; some of its calls crash on the number 1. */
static inline hipStream_t mf__hip_stream(mf_stream stream) {
  return stream == MF_STREAM_DEFAULT ? NULL : (hipStream_t)(intptr_t)stream;
}

/* hip_work.c, hip_kernel.c and hip_graphics.c: slots of mf__backend */

int mf__hip_graphics_register(const mf__gl_name *name, uint32_t flags, void **out, mf_error *err);
int mf__hip_graphics_unregister(void *resource, mf_error *err);
int mf__hip_graphics_map(void *resource, mf_stream stream, void **data, size_t *nbytes, mf_error *err);
int mf__hip_graphics_map_array(void *resource, mf_stream stream, mf__array *out, mf_error *err);
int mf__hip_graphics_unmap(void *resource, mf_stream stream, mf_error *err);
int mf__hip_array_copy(const mf__array_copy *job, mf_stream stream, mf_error *err);
int mf__hip_external_import(int fd, size_t nbytes, mf__external *out, mf_error *err);
void mf__hip_external_end(const mf__external *memory);
int mf__hip_semaphore_import(int fd, bool binary, void **out, mf_error *err);
int mf__hip_semaphore_end(void *semaphore, mf_error *err);
int mf__hip_semaphore_wait(void *semaphore, uint64_t value, mf_stream stream, mf_error *err);
int mf__hip_semaphore_signal(void *semaphore, uint64_t value, mf_stream stream, mf_error *err);

int mf__hip_copy(const mf__block_copy *job, mf_stream stream, mf_error *err);
int mf__hip_copy_peer(const mf__block_copy *job, int32_t dst_ordinal, int32_t src_ordinal, mf_stream stream,
                      mf_error *err);
int mf__hip_fill(const mf__block_copy *job, uint32_t value, int32_t unit, mf_stream stream, mf_error *err);
int mf__hip_capture_relax(bool on, mf_error *err);
int mf__hip_stream_capture(mf_stream stream, uint64_t *id, mf_error *err);
int mf__hip_kernel_copy(const mf__kernel_copy *job, mf_stream stream, mf_error *err);
int mf__hip_kernel_cast(const mf__kernel_copy *job, const mf__codec *to, const mf__codec *from, mf_stream stream,
                        mf_error *err);
int mf__hip_kernel_compare(const mf__kernel_copy *job, const mf__codec *of, uint32_t *differs, mf_stream stream,
                           mf_error *err);
bool mf__hip_kernels_loaded(int32_t ordinal);
/* Unloads the kernels of a device, which is current. No thread uses them. */
void mf__hip_kernels_forget(int32_t ordinal);

/* hip_text.c: the texts of kernels */

/* The longest text, that of a cast between small floats, takes less than two thirds of it. */
typedef struct mf__hip_text {
  size_t length;
  char at[16 << 10];
} mf__hip_text;

/* Copies of elements of 1 << which bytes: mf_copy, mf_transpose and, below 4 bytes, mf_transpose_words. */
void mf__hip_text_copy(mf__hip_text *t, int32_t which);
/* mf_cast_one and mf_cast_some; mf_compare_one and mf_compare_some: as many at a time as mf__kernel_lanes says. */
void mf__hip_text_cast(mf__hip_text *t, const mf__codec *to, const mf__codec *from);
void mf__hip_text_compare(mf__hip_text *t, const mf__codec *c);

#endif
