/* backend.h: declares what a GPU driver offers to the runtime, as one table for CUDA and one for HIP. Everything that
 * is not a driver call is shared and lies elsewhere. It must not know the order of streams, tensors, or the names of
 * any driver. */
#ifndef MOONFERRY_BACKEND_H
#define MOONFERRY_BACKEND_H

#include "moonferry.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct mf__codec mf__codec;

/* The three sorts of memory that a GPU driver gives. */
typedef enum mf__space { MF__DEVICE, MF__PINNED, MF__MANAGED, MF__NSPACES } mf__space;

/* The context or device that was current before mf__backend.enter. */
typedef struct mf__entered {
  void *context;
  int32_t ordinal;
  int32_t changed;
} mf__entered;

/* A copy of depth slices of height rows of width bytes. Pitches are in bytes from row to row, slice pitches from
 * slice to slice; a slice pitch is a multiple of the pitch. Flat: height and depth are 1. */
typedef struct mf__block_copy {
  void *dst;
  const void *src;
  int64_t width, height, depth;
  int64_t dst_pitch, src_pitch;
  int64_t dst_slice, src_slice;
} mf__block_copy;

/* The largest pitch that a driver accepts, in bytes; a device may accept less (CUDA Driver API,
 * CU_DEVICE_ATTRIBUTE_MAX_PITCH; HIP, hipDeviceAttributeMaxPitch: "allowed by memory copies"). */
#define MF__MAX_PITCH ((int64_t)INT32_MAX)
/* That of the device which accepts least, once its driver is open. */
int64_t mf__pitch_max(void);
void mf__pitch_limit(int64_t nbytes); /* called while a driver is being opened */

#define MF__KERNEL_AXES 8

/* The most GPUs of a driver; further ones are ignored. */
#define MF__MAX_ORDINALS 64

/* A copy by kernel: element i of the row-major index space goes from src to dst; strides are in bytes, of either
 * sign, and one operand's may be 0. size is 1, 2, 4, 8 or 16, and divides both addresses and all strides. */
typedef struct mf__kernel_copy {
  void *dst;
  const void *src;
  int64_t numel;
  int32_t ndim, size;
  int64_t shape[MF__KERNEL_AXES], dst_strides[MF__KERNEL_AXES], src_strides[MF__KERNEL_AXES];
} mf__kernel_copy;

/* The count of threads between enter and leave on a device, so that nothing is taken away under them. */
typedef struct mf__gate {
  _Atomic int32_t inside;
  _Atomic bool used; /* since the device was forgotten */
} mf__gate;

/* OpenGL's name of a buffer (target 0), or of a texture and its target. */
typedef struct mf__gl_name {
  uint32_t name, target;
} mf__gl_name;

/* The image of a texture, which has no address. */
typedef struct mf__array {
  void *handle;
  int64_t width, height;
  int32_t channels;
  DLDataType dtype; /* of a channel */
} mf__array;

/* x, width and pitch are in bytes; y and height in rows, the lowest first. */
typedef struct mf__array_copy {
  void *array, *data;
  int64_t x, y, width, height, pitch;
  bool upload; /* to the image */
} mf__array_copy;

/* Another API's memory. */
typedef struct mf__external {
  void *handle, *data;
} mf__external;

/* Between enter and leave the device's (primary) context is current; all slots from memory_alloc on want that, with
 * the ordinal of the streams and memory that they are given. A stream is MF_STREAM_DEFAULT, MF_STREAM_PER_THREAD or a
 * handle. No slot waits for the host unless its name says so; none takes a lock of the runtime; each is thread-safe.
 * What gives something back (free, destroy, leave) has done so even where it fails, because drivers tell of earlier
 * failures there: it is not to be called again.
 * A slot that fails says so by mf__fail_driver: MF_ENOMEM for the driver's "out of memory", MF_ECAPTURE for what a
 * capture forbids, else MF_EDRIVER. */
typedef struct mf__backend {
  const char *name;                /* of its devices: "cuda" or "rocm" */
  int32_t index;                   /* in mf__backends */
  mf__gate *gates;                 /* one for each ordinal */
  int32_t types[MF__NSPACES];      /* the DLDeviceType of each space; 0: has none */
  /* Opens the driver on first use. MF_EDEVICE with the reason where there is no driver, it is too old, or the process
   * was forked after the driver was used. */
  int (*device_count)(int32_t *out, mf_error *err);
  bool (*usable)(void); /* opened, and not in a forked child; makes no driver call */
  /* The device that a call about no device in particular is made on, so that it takes nothing of a device which the
   * process does not use: the calling thread's, else one that is in use, else 0. The driver is open. Outside enter and
   * leave. */
  int (*device_current)(int32_t *ordinal, mf_error *err);
  int (*enter)(int32_t ordinal, mf__entered *before, mf_error *err);
  void (*leave)(const mf__entered *before);

  /* *out is NULL before. */
  int (*memory_alloc)(mf__space space, int64_t nbytes, mf_stream stream, void **out, mf_error *err);
  /* A device's memory is freed behind what the stream has queued, for which the host waits where the driver has no
   * pools. Pinned and managed memory may not be in use any more. */
  int (*memory_free)(mf__space space, void *ptr, mf_stream stream, mf_error *err);
  int (*memory_find)(const void *ptr, mf__space *space, int32_t *ordinal, mf_error *err); /* MF_EINVAL: unknown */
  /* Whether the host may use managed memory while devices are at work; NULL where there is no such space. Outside
   * enter and leave. */
  int (*managed_is_shared)(bool *out, mf_error *err);
  int (*memory_trim)(mf_error *err); /* gives back what the driver itself keeps of freed memory */
  /* Gives back what the driver holds for us on a device: pool, compiled kernels, context. Nothing of ours may be left
   * there and no thread between enter and leave; the next enter makes it all anew. Called outside enter and leave. */
  void (*device_forget)(int32_t ordinal);

  int (*stream_create)(mf_stream *out, mf_error *err);
  int (*stream_destroy)(mf_stream stream, mf_error *err);
  bool destroy_may_drop; /* what the stream still has to do */
  /* A number that no other stream of the process has or will have, unlike its handle; 0 where the driver has none, or
   * the stream is being captured. */
  uint64_t (*stream_name)(mf_stream stream);
  int (*stream_device)(mf_stream stream, int32_t *ordinal, mf_error *err); /* MF_EINVAL: no such, not primary */
  int (*stream_capture)(mf_stream stream, uint64_t *id, mf_error *err);    /* 0: is not being captured */
  int (*stream_synchronize)(mf_stream stream, mf_error *err);
  int (*stream_query)(mf_stream stream, bool *done, mf_error *err); /* *done is false where it fails */
  int (*device_synchronize)(mf_error *err);

  int (*event_create)(void **out, mf_error *err); /* without timing */
  int (*event_destroy)(void *event, mf_error *err);
  int (*event_record)(void *event, mf_stream stream, mf_error *err);
  int (*event_wait)(void *event, mf_stream stream, mf_error *err); /* the event may be another device's */
  int (*event_synchronize)(void *event, mf_error *err);
  int (*event_query)(void *event, bool *done, mf_error *err); /* as stream_query */

  /* All asynchronous; host memory among the operands is pinned. Where there are rows, both pitches are at least the
   * width and at most mf__pitch_max() (as are a fill's), and both slice pitches at least height rows. */
  int (*copy)(const mf__block_copy *job, mf_stream stream, mf_error *err);
  /* Flat. */
  int (*copy_peer)(const mf__block_copy *job, int32_t dst_ordinal, int32_t src_ordinal, mf_stream stream,
                   mf_error *err);
  /* unit 1, 2 or 4 bytes of value, width units a row. */
  int (*fill)(const mf__block_copy *job, uint32_t value, int32_t unit, mf_stream stream, mf_error *err);
  /* From how many bytes on a kernel copies rows of whole units within a device faster than copy does; 0: never. */
  int64_t kernel_rows_from;
  /* MF_EDEVICE where the driver cannot compile it; the caller then finds another way. With numel 0 it is made ready. */
  int (*kernel_copy)(const mf__kernel_copy *job, mf_stream stream, mf_error *err);
  /* The same with conversion between the dtypes of two codecs, whose sizes divide the addresses and strides of their
   * sides; the job's size has no meaning. MF_EDEVICE also for a dtype that has no kernel. */
  int (*kernel_cast)(const mf__kernel_copy *job, const mf__codec *to, const mf__codec *from, mf_stream stream,
                     mf_error *err);
  /* Compares as numbers what is at dst, which is only read, with what is at src; *differs, memory of the device that is
   * 0 before, becomes 1 where two elements are not equal. Fails as kernel_cast. */
  int (*kernel_compare)(const mf__kernel_copy *job, const mf__codec *of, uint32_t *differs, mf_stream stream,
                        mf_error *err);
  /* Whether any kernel is loaded on a device. Called anywhere. */
  bool (*kernels_loaded)(int32_t ordinal);
  /* While on, this thread's calls that a capture on another stream would forbid are allowed. */
  int (*capture_relax)(bool on, mf_error *err);

  /* Buffers and textures of OpenGL's, whose context is current on the thread. Flags are MF_GL_...; MF_EDEVICE where the
   * driver has no such calls. A mapping is ready on the stream, and its data is the device's until the stream gets to
   * where it is unmapped. */
  int (*graphics_register)(const mf__gl_name *name, uint32_t flags, void **out, mf_error *err);
  int (*graphics_unregister)(void *resource, mf_error *err);
  int (*graphics_map)(void *resource, mf_stream stream, void **data, size_t *nbytes, mf_error *err);
  int (*graphics_map_array)(void *resource, mf_stream stream, mf__array *out, mf_error *err); /* a texture's */
  int (*graphics_unmap)(void *resource, mf_stream stream, mf_error *err);
  /* Between rows of the device's memory and a part of an image, which is there. */
  int (*array_copy)(const mf__array_copy *job, mf_stream stream, mf_error *err);

  /* Memory that another API exports as an opaque file descriptor, which stays the caller's; MF_EDEVICE where the driver
   * has no such calls. Work on the memory must be done before it ends. */
  int (*external_import)(int fd, size_t nbytes, mf__external *out, mf_error *err);
  void (*external_end)(const mf__external *memory);
  /* The same of semaphores: a timeline's, or a binary one, whose value does not count. Waits and signals are queued on
   * the stream, and done before the semaphore ends. */
  int (*semaphore_import)(int fd, bool binary, void **out, mf_error *err);
  int (*semaphore_end)(void *semaphore, mf_error *err);
  int (*semaphore_wait)(void *semaphore, uint64_t value, mf_stream stream, mf_error *err);
  int (*semaphore_signal)(void *semaphore, uint64_t value, mf_stream stream, mf_error *err);
} mf__backend;

/* Lists the drivers. Each has a file that fills the table, mf__backend_<name>. */
#define MF__BACKENDS(X) X(cuda) X(hip)

#define MF__BACKEND(name) MF__INDEX_##name,
enum { MF__BACKENDS(MF__BACKEND) MF__NBACKENDS };
#undef MF__BACKEND
#define MF__BACKEND(name) extern const mf__backend mf__backend_##name;
MF__BACKENDS(MF__BACKEND)
#undef MF__BACKEND

extern const mf__backend *const mf__backends[MF__NBACKENDS];

/* gate.c: threads between enter and leave */

/* Waits while the gate is shut. */
void mf__gate_enter(mf__gate *gate);
void mf__gate_leave(mf__gate *gate);
/* From now on the device counts as unused. */
void mf__gate_forget(mf__gate *gate);
/* Whether a device was entered since it was forgotten. */
bool mf__gate_used(const mf__gate *gate);
bool mf__device_used(const mf__backend *backend, int32_t ordinal);
/* Keeps threads from entering until mf__device_open; false, and nothing to open, if a thread has entered. The thread
 * that shut it makes no call that enters. */
bool mf__device_shut(const mf__backend *backend, int32_t ordinal);
void mf__device_open(const mf__backend *backend, int32_t ordinal);

#endif
