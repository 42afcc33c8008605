/* calls.h: what the calls of both drivers do alike, from the program's handles to the engine's objects and back.
 *
 * A front end translates names, numbers and layouts, keeps its driver's own rules, and calls these. What they get for a
 * handle or a device number is what the program gave; what they give goes to `out`, which has room for an address or a
 * handle and is SIM_INVALID if it is NULL. It must not know any driver's names; numbers that are the same in both stand
 * here. */
#ifndef SIM_CALLS_H
#define SIM_CALLS_H

#include <string.h>

#include "engine.h"

/* Leaves a function with the first failure. */
#define SIM_TRY(expression)                 \
  do {                                      \
    const sim_status try_rc = (expression); \
    if (try_rc != SIM_OK) return try_rc;    \
  } while (0)

static inline void sim_put(void *out, uintptr_t value) {
  memcpy(out, &value, sizeof value);
}

/* handle.c */
/* The object of a handle, or a finding and SIM_BAD_STREAM, SIM_BAD_CONTEXT, SIM_DEAD_CONTEXT or SIM_BAD_HANDLE. */
sim_status sim_given(const void *handle, sim_type type, void *out);
/* Both drivers have the numbers 0 (the default), 1 (legacy) and 2 (per-thread), and both mean the calling thread's
 * current context. */
sim_status sim_stream_given(const void *handle, sim_stream **out);
sim_status sim_device_given(int number, sim_device **out);
bool sim_default_is_per_thread(void); /* the front end's: for the call that the calling thread makes */

/* device.c */
void sim_device_name(const sim_device *d, char *text, size_t size);
sim_status sim_call_device_name(int device, char *text, int size);
sim_status sim_call_device_bus(int device, char *text, int size);
sim_status sim_call_device_uuid(int device, int filler, void *uuid); /* 15 times the filler, then the device */
sim_status sim_call_device_total(int device, size_t *nbytes);
sim_status sim_call_device_can_access(int device, int peer, int *can);
sim_status sim_peer_access(sim_context *c, int peer, bool on);

/* stream.c: streams, and the program's functions in them */
sim_status sim_call_stream_new(unsigned flags, int priority, void *out);
sim_status sim_call_stream_end(const void *stream);
sim_status sim_call_stream_query(const void *stream);
sim_status sim_call_stream_wait(const void *stream);
sim_status sim_call_stream_priority(const void *stream, int *priority);
sim_status sim_call_stream_flags(const void *stream, unsigned *flags);
sim_status sim_call_stream_device(const void *stream, int *device);
sim_status sim_call_host(const void *stream, void (*fn)(void *), void *arg);
/* The same with a copy of n bytes, which fn frees; not while capturing. */
sim_status sim_call_host_with(const void *stream, void (*fn)(void *), const void *bytes, size_t n);

/* event.c */
sim_status sim_call_event_new(unsigned flags, bool timing, void *out);
sim_status sim_call_event_end(const void *event);
sim_status sim_call_event_record(const void *event, const void *stream);
sim_status sim_call_event_wait(const void *stream, const void *event, unsigned flags);
sim_status sim_call_event_query(const void *event);
sim_status sim_call_event_wait_host(const void *event);
sim_status sim_call_event_elapsed(const void *first, const void *second, float *ms);

/* graph.c: capture and graphs. A status is 0 (none), 1 (active) or 2 (broken), as wide as an enumeration. */
sim_status sim_call_capture_begin(const void *stream, unsigned mode);
sim_status sim_call_capture_end(const void *stream, void *out);
sim_status sim_call_capture_status(const void *stream, void *status);
sim_status sim_call_capture_info(const void *stream, void *status, void *id, void *graph, void *deps, size_t *n);
sim_status sim_call_capture_exchange(void *mode);
sim_status sim_call_graph_new(unsigned flags, void *out);
sim_status sim_call_graph_instantiate(const void *graph, unsigned long long flags, void *out);
sim_status sim_call_graph_upload(const void *executable, const void *stream);
sim_status sim_call_graph_launch(const void *executable, const void *stream);
sim_status sim_call_graph_end(const void *graph, sim_type type);
sim_status sim_call_graph_nodes(const void *graph, void *nodes, size_t *n);

/* memory.c */
sim_alloc *sim_live(uintptr_t p);
sim_alloc *sim_host_memory(uintptr_t p); /* pinned or registered, and live */
sim_status sim_call_alloc(sim_space space, size_t nbytes, unsigned flags, void *out);
sim_status sim_call_free(uintptr_t p, bool pinned);
sim_status sim_call_address_range(uintptr_t p, void *base, size_t *nbytes); /* either may be NULL */
sim_status sim_call_register(void *p, size_t nbytes, unsigned flags);
sim_status sim_call_host_address(void *p, unsigned flags, void *out);
sim_status sim_call_host_flags(void *p, unsigned *flags);
sim_status sim_call_prefetch(const void *stream, uintptr_t p, size_t nbytes);

/* array.c: memory with a form. A format has the same number in both drivers. */
enum { SIM_FORMAT_HALF = 0x10, SIM_FORMAT_FLOAT = 0x20 };
typedef struct sim_image {
  size_t width, height;
  unsigned format, channels;
} sim_image;
typedef struct sim_box { /* x and width in bytes */
  size_t x, y, z, width, rows, depth;
} sim_box;
typedef struct sim_array sim_array;

size_t sim_image_pixel(const sim_image *form); /* bytes */
sim_array *sim_array_new(const sim_image *form, sim_alloc *memory);
void sim_array_end(sim_array *a);
uintptr_t sim_array_handle(const sim_array *a);
sim_status sim_call_array_form(const void *array, sim_image *out);
sim_status sim_call_array_part(const void *array, const sim_box *box, sim_region *out);

/* graphics.c: OpenGL's buffers and textures as a device's memory */
sim_status sim_call_gl_register(unsigned buffer, unsigned flags, void *out);
sim_status sim_call_gl_register_image(unsigned texture, unsigned target, unsigned flags, void *out);
sim_status sim_call_graphics_flags(const void *resource, unsigned flags);
sim_status sim_call_graphics_map(unsigned n, const void *const *resources, const void *stream);
sim_status sim_call_graphics_unmap(unsigned n, const void *const *resources, const void *stream);
sim_status sim_call_graphics_pointer(const void *resource, void *out, size_t *nbytes);
sim_status sim_call_graphics_array(const void *resource, unsigned index, unsigned level, void *out);
sim_status sim_call_graphics_end(const void *resource);

/* external.c: memory that another API exports as a file descriptor, which is the driver's from then on */
sim_status sim_call_external_import(int fd, uint64_t nbytes, void *out);
sim_status sim_call_external_map(const void *external, uint64_t offset, uint64_t nbytes, void *out);
sim_status sim_call_external_end(const void *external);

/* ipc.c: memory, events and pools of other processes, by handles of SIM_TICKET bytes, a pool by a descriptor */
enum { SIM_TICKET = 64, SIM_POSIX_FD = 1 };
sim_status sim_call_ipc_memory(uintptr_t p, void *out);
sim_status sim_call_ipc_open(const void *handle, unsigned flags, void *out);
sim_status sim_call_ipc_close(uintptr_t p);
sim_status sim_call_ipc_event(const void *event, void *out);
sim_status sim_call_ipc_open_event(const void *handle, unsigned flags, void *out);
sim_status sim_call_pool_export(const void *pool, unsigned kind, unsigned long long flags, int *out);
sim_status sim_call_pool_import(int fd, unsigned kind, unsigned long long flags, void *out);
sim_status sim_call_pool_export_pointer(uintptr_t p, void *out);
sim_status sim_call_pool_import_pointer(const void *pool, const void *handle, void *out);

/* virtual.c: memory and addresses apart */
sim_status sim_call_granularity(int device, size_t *out);
sim_status sim_call_physical_new(int device, size_t nbytes, bool exportable, void *out);
sim_status sim_call_physical_end(const void *handle);
sim_status sim_call_physical_facts(const void *handle, int *device, bool *exportable);
sim_status sim_call_physical_at(uintptr_t at, void *out); /* one more reference */
sim_status sim_call_physical_export(const void *handle, unsigned kind, unsigned long long flags, int *out);
sim_status sim_call_physical_import(int fd, unsigned kind, void *out);
sim_status sim_call_reserve(size_t nbytes, size_t align, unsigned long long flags, void *out);
sim_status sim_call_map(uintptr_t at, size_t nbytes, size_t offset, const void *handle, unsigned long long flags);
sim_status sim_call_unmap(uintptr_t at, size_t nbytes);
sim_status sim_call_map_permit(uintptr_t at, size_t nbytes, const void *permits, size_t n);
sim_status sim_call_map_permitted(uintptr_t at, const void *location, unsigned long long *flags);

/* semaphore.c: semaphores that another API exports so */
sim_status sim_call_semaphore_import(int fd, bool binary, unsigned flags, void *out);
/* Waits or signals, one value for each: ${stride} bytes from one to the next. */
sim_status sim_call_semaphores(const void *const *semaphores, const void *values, size_t stride, unsigned n,
                               const void *stream, sim_work_kind kind);
sim_status sim_call_semaphore_end(const void *semaphore);

/* gl.c: the OpenGL that the program has; functions return false where no context of it is current */
bool sim_gl_size(unsigned buffer, size_t *nbytes); /* 0 for what is no buffer */
bool sim_gl_read(unsigned buffer, void *bytes, size_t nbytes);
bool sim_gl_write(unsigned buffer, const void *bytes, size_t nbytes);
uintptr_t sim_gl_storage(unsigned buffer, size_t nbytes); /* where it lies in the host's memory, or 0 */
/* gl_image.c: a texture's level 0: its form, whose width is 0 for what is no such texture, and whose channels are 0
 * for a format that drivers do not share; its pixels, row by row from the lowest on. */
bool sim_gl_image(unsigned texture, unsigned target, sim_image *form);
bool sim_gl_image_read(unsigned texture, unsigned target, void *bytes);
bool sim_gl_image_write(unsigned texture, unsigned target, const void *bytes);
typedef void *(*sim_get_proc)(const char *);
sim_get_proc sim_gl_resolver(void); /* gl.c: of the library with a current context on this thread; NULL: none has */

/* pool.c */
/* A place as both drivers lay it out, and who may touch a pool's memory there. */
typedef struct sim_location {
  int type, id;
} sim_location;
typedef struct sim_permit {
  sim_location where;
  int flags;
} sim_permit;
enum { SIM_AT_DEVICE = 1, SIM_PINNED_TO_IT = 1 };

sim_status sim_located(const void *location, int kind, int *device);
sim_status sim_call_pool_default(int device, void *out);
sim_status sim_call_pool_current(int device, void *out);
sim_status sim_call_pool_choose(int device, const void *pool);
sim_status sim_call_pool_new(const void *location, int kind, unsigned handles, void *out);
sim_status sim_call_pool_end(const void *pool);
sim_status sim_call_pool_get(const void *pool, int which, void *value);
sim_status sim_call_pool_set(const void *pool, int which, const void *value);
sim_status sim_call_pool_trim(const void *pool, size_t keep);
sim_status sim_call_pool_permit(const void *pool, const void *permits, size_t n);
sim_status sim_call_pool_permitted(const void *pool, const void *location, int *flags);
sim_status sim_call_pool_alloc(const void *pool, size_t nbytes, const void *stream, void *out);
sim_status sim_call_alloc_async(size_t nbytes, const void *stream, void *out); /* from the stream's device's pool */
sim_status sim_call_free_async(uintptr_t p, const void *stream);

/* copy.c: each side is held to what the call says it is */
sim_status sim_on_side(uintptr_t p, bool host);
sim_region sim_plane(uintptr_t base, size_t pitch, size_t width, size_t rows);
/* A synchronous fill is asynchronous to the host unless it fills host memory. */
sim_status sim_call_fill(const void *stream, const sim_region *r, uint32_t value, unsigned unit, bool sync);

#endif
