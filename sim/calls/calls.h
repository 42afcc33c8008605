/* calls.h: what a call of either driver does, once its arguments are the engine's.
 *
 * The front ends translate handles, numbers and names, and call these. It must not know any driver's names. */
#ifndef SIM_CALLS_H
#define SIM_CALLS_H

#include "engine.h"

/* calls.c: handles */
void *sim_given(const void *handle, sim_type type); /* NULL, with a finding, for what is no such thing */

/* devices */
void sim_device_name(const sim_device *d, char *text, size_t size);
void sim_device_bus(const sim_device *d, char *text, size_t size);
sim_status sim_peer_access(sim_context *c, int peer, bool on);

/* streams. Both drivers have the numbers 0 (the default), 1 (legacy) and 2 (per-thread), and both mean the calling
 * thread's current context. */
sim_status sim_stream_given(sim_context *c, const void *handle, bool per_thread_default, sim_stream **out);
sim_status sim_call_host(sim_stream *s, void (*fn)(void *), void *arg);
/* The same with a copy of n bytes, which fn frees; not while capturing. */
sim_status sim_call_with(sim_stream *s, void (*fn)(void *), const void *bytes, size_t n);

/* memory */
sim_alloc *sim_live(uintptr_t p);
sim_alloc *sim_host_memory(uintptr_t p); /* pinned or registered, and live */
sim_status sim_release(uintptr_t p, bool pinned);
sim_status sim_prefetch(sim_stream *s, uintptr_t p, size_t nbytes);

/* copies: each side is held to what the call says it is */
bool sim_is_device(uintptr_t p);
bool sim_is_host(uintptr_t p);
sim_status sim_on_side(uintptr_t p, bool host);
sim_region sim_plane(uintptr_t base, size_t pitch, size_t width, size_t rows);
/* A synchronous fill is asynchronous to the host unless it fills host memory. */
sim_status sim_fill_call(sim_stream *s, const sim_region *r, uint32_t value, unsigned unit, bool sync);

/* capture and graphs */
typedef struct sim_capture_info {
  int status; /* 0 none, 1 active, 2 broken */
  uint64_t id;
  sim_graph *graph;
  size_t nfront;
} sim_capture_info;

sim_status sim_capture_ask(const sim_stream *s, sim_capture_info *out);
sim_status sim_capture_exchange(int *mode);
void sim_graph_list(const sim_graph *g, void *nodes, size_t *n); /* nodes: room for *n handles, or NULL */
sim_status sim_graph_drop(sim_graph *g);

/* pool.c */
sim_pool *sim_pool_new(const sim_device *d, bool is_default);
sim_pool *sim_pool_default(sim_device *d);
sim_pool *sim_pool_current(sim_device *d);
sim_status sim_pool_choose(sim_device *d, sim_pool *p);
sim_status sim_pool_end(sim_pool *p);
sim_status sim_pool_get(const sim_pool *p, int which, void *v);
sim_status sim_pool_set(sim_pool *p, int which, const void *v);
sim_status sim_pool_allow(sim_pool *p, int device, unsigned flags);
sim_status sim_pool_trim(sim_pool *p, size_t keep);
sim_status sim_pool_alloc(sim_pool *p, sim_stream *s, size_t nbytes, uintptr_t *out);
sim_status sim_pool_free(sim_stream *s, uintptr_t p);

#endif
