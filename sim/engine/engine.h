/* engine.h: the simulated GPU that the front ends share: devices and contexts, memory, operations, streams, events,
 * captures and graphs.
 *
 * Functions expect the lock of base.h held. It must not know any driver's names or numbers. */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "base.h"

/* Bytes that an operation touches: depth slices of rows of width bytes. */
typedef struct sim_region {
  uintptr_t base;
  size_t width, pitch, rows, slice, depth;
} sim_region;

sim_region sim_flat(uintptr_t base, size_t nbytes);
uintptr_t sim_region_end(const sim_region *r);
bool sim_region_empty(const sim_region *r);
bool sim_region_overlap(const sim_region *a, const sim_region *b);

typedef struct sim_access {
  sim_region region;
  bool write, is_free;
  bool foreign;  /* another process's */
  bool is_unmap; /* by this process, which others may still touch */
  uint32_t slot, time;
  const char *who;
  sim_place place;
} sim_access;

typedef enum sim_space { SIM_DEVICE, SIM_MANAGED, SIM_PINNED, SIM_FOREIGN } sim_space;

/* One allocation, live or freed. FOREIGN is the program's own memory, registered. */
struct sim_alloc {
  sim_space space;
  int device; /* the one it lies on, or that was current */
  uintptr_t base;
  size_t nbytes, room;
  uint64_t id;
  unsigned flags;
  bool freed, purged;
  bool backed; /* its bytes are a file's */
  const char *kept; /* NULL, or why no free of the program's ends it, as an error says */
  bool of_module; /* kernel.c: a variable, which goes with its module */
  bool uncounted; /* no memory of this process's device */
  unsigned opened; /* how often, where it is another process's */
  struct sim_share *share;       /* NULL: of this process alone */
  struct sim_maps *maps;         /* virtual.c: addresses that memory is mapped at */
  struct sim_physical *physical; /* and such memory, whose own address nobody has */
  unsigned pins; /* queued operations that will touch it */
  sim_alloc *before, *after; /* among those that are not freed */
  sim_context *ctx;
  sim_pool *pool;
  sim_op *death;    /* of a pool: the free that it was given to a stream with */
  sim_alloc *below; /* freed: the next in the same stack, a pool's or that of unused addresses */
  bool watched;       /* by trap.c: queued work touches it that the host has not waited for */
  sim_clock busy;     /* that work */
  struct sim_queued_access *to_close;
  size_t nto_close;
  sim_access *accesses;
  size_t naccesses, capacity, keep; /* keep: how many there may be before it is looked what to forget */
  bool forgetful;                   /* some that mattered were forgotten */
  sim_place made, gone;
};

struct sim_pool {
  sim_object o;
  int device;
  bool is_default;
  bool exportable, imported; /* to or from another process */
  uint64_t threshold, used, used_high;
  uint64_t reserved, reserved_high; /* of its device's memory, what is not used included */
  sim_alloc *idle;                  /* freed or about to be, the last one on top */
  sim_pool *next;                   /* in the list of all */
  unsigned off; /* reuse policies that were turned off, by number */
  unsigned access[SIM_MAX_DEVICES]; /* 0 none, 1 read, 3 read and write */
};

struct sim_device {
  int id;
  uint64_t total, used;
  sim_context *primary;
  sim_pool *default_pool, *pool;
  unsigned primary_flags;
  int retains; /* of the primary context, also of one that was reset since */
};

struct sim_context {
  sim_object o;
  sim_device *device;
  bool primary;
  unsigned flags;
  bool peers[SIM_MAX_DEVICES];
  struct {
    bool set;
    uint64_t value;
  } limits[8]; /* by the driver's number */
  sim_stream *legacy;
  sim_clock orphans; /* what destroyed streams had still to do */
  sim_stream *streams; /* all but the legacy one, tombstones taken out */
};

/* device.c */
sim_device *sim_device_at(int id);
bool sim_ready(void);
sim_status sim_init(void);
sim_context *sim_current(void);
sim_status sim_context_of(sim_context **out); /* the current one, or SIM_BAD_CONTEXT with a finding */
sim_status sim_context_new(sim_device *d, unsigned flags, sim_context **out);
void sim_context_end(sim_context *c);
void sim_primary_reset(sim_device *d); /* its pools and their memory end, too */
sim_status sim_context_stack(sim_context *c); /* current, and not owed a pop */
sim_status sim_context_push(sim_context *c);
sim_status sim_context_pop(sim_context **out);
void sim_context_set(sim_context *c);
sim_status sim_primary_retain(sim_device *d, sim_context **out);
sim_status sim_primary_release(sim_device *d);
bool sim_device_can_access(int from, const sim_alloc *a);

/* memory.c */
sim_status sim_memory_open(int devices);
/* At an address of its own, or where `at` was, whose device memory it then takes over. */
sim_status sim_alloc_new(sim_space space, int device, size_t nbytes, sim_alloc *at, sim_alloc **out);
size_t sim_room(size_t nbytes); /* of the device's memory; 0 if there cannot be as much */
sim_status sim_register(void *p, size_t nbytes, sim_alloc **out);
sim_alloc *sim_alloc_find(uintptr_t p); /* the allocation whose bytes hold p, freed ones included */
bool sim_ours(uintptr_t p);             /* inside the simulator's address ranges */
/* Its bytes are those of a file from an offset on, a multiple of a page, until it ends. */
sim_status sim_alloc_back(sim_alloc *a, int fd, uint64_t offset);
void sim_alloc_end(sim_alloc *a);       /* marks as freed; bytes stay mapped until nothing is queued on them */
void sim_alloc_release(sim_alloc *a);   /* freed: the device has its bytes again, and the address may be used again */
void sim_alloc_unpin(sim_alloc *a);
void *sim_view(uintptr_t p);
void sim_poison(sim_alloc *a, int byte);
sim_alloc *sim_alloc_first(void); /* that is not freed; the others are after it, and it may be freed meanwhile */
enum { SIM_FRESH = 0xCB, SIM_GONE = 0xDB };

/* Of no count: memory that another process has, whose bytes are those of a file; addresses, a multiple of align, that
 * have no memory. */
sim_status sim_alloc_borrow(int device, size_t nbytes, int fd, uint64_t offset, sim_alloc **out);
sim_status sim_alloc_reserve(size_t nbytes, size_t align, sim_alloc **out);
int sim_alloc_file(const sim_alloc *a, uint64_t *offset); /* where its bytes are, if it is not backed */
/* What lies at reserved addresses from now on: bytes of a file, or (-1) nobody's. */
sim_status sim_alloc_map(uintptr_t at, size_t nbytes, int fd, uint64_t offset);

/* share.c: memory of several processes. A file begins with what they must know of each other. */
#define SIM_SHARE_HEAD (1 << 18)
typedef struct sim_share sim_share;
typedef struct sim_shared {
  uint64_t owner, serial, nbytes, data_at;
  int device, data; /* the owner's descriptor of its bytes; -1: they are behind the head */
  bool freed;
} sim_shared;

int sim_share_file(uint64_t nbytes); /* a new one, with room for so many bytes behind the head; -1: no memory */
/* Both take the descriptor over if they succeed; NULL: no memory, or no such file. */
sim_share *sim_share_new(int fd, const sim_alloc *a, int data, uint64_t data_at);
sim_share *sim_share_open(int fd);
sim_shared sim_share_facts(const sim_share *share);
int sim_share_descriptor(const sim_share *share);
bool sim_share_is(const sim_share *share, uint64_t owner, uint64_t serial); /* another process's */
void sim_share_use(sim_share *share, bool on); /* by this process, once more or once less */
size_t sim_share_most(void);
size_t sim_share_read(sim_alloc *m, sim_access *out); /* the others' accesses, sim_share_most at most */
void sim_share_write(sim_alloc *m, const sim_access *a);
void sim_share_end(sim_alloc *m);
void sim_share_close(sim_share *share); /* of no memory yet; may be NULL */
bool sim_share_is_others(const sim_share *share);
void sim_shares_learned(void); /* the host may have waited for something */

/* virtual.c: memory without an address, and addresses that it is mapped at */
typedef struct sim_physical {
  sim_object o;
  sim_alloc *memory;
  int fd;
  unsigned refs, maps;
  bool exportable;
} sim_physical;
typedef struct sim_map {
  uintptr_t at;
  size_t nbytes;
  sim_physical *of;
  unsigned char access[SIM_MAX_DEVICES]; /* 0 none, 1 read, 3 read and write */
  sim_place made;
  struct sim_map *next; /* at higher addresses */
} sim_map;
enum { SIM_GRANULARITY = 2 << 20 };

sim_status sim_physical_new(int device, size_t nbytes, bool exportable, sim_physical **out);
sim_status sim_physical_import(int fd, sim_physical **out); /* takes it over if it succeeds */
void sim_physical_release(sim_physical *p);
sim_status sim_reserve(size_t nbytes, size_t align, uintptr_t *out);
sim_status sim_unreserve(uintptr_t at, size_t nbytes);
sim_status sim_map_add(uintptr_t at, size_t nbytes, sim_physical *p);
sim_status sim_map_end(uintptr_t at, size_t nbytes);
sim_status sim_map_allow(uintptr_t at, size_t nbytes, int device, unsigned flags);
const sim_map *sim_map_at(const sim_alloc *a, uintptr_t p); /* NULL: nothing is mapped there */
/* Why a device may not touch these bytes, or NULL; what is no reserved address it may. */
const char *sim_map_forbids(const sim_alloc *a, uintptr_t from, uintptr_t to, int device, bool write);
void sim_map_run(const sim_alloc *a, uintptr_t p, uintptr_t *from, uintptr_t *to); /* what is mapped around p */
/* Calls fn with each part of a region, as part of the memory that is mapped there. */
void sim_map_parts(const sim_alloc *a, const sim_region *r, void (*fn)(sim_alloc *, const sim_region *, void *),
                   void *arg);

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
/* What other parts of the engine tell a pool. */
size_t sim_pools_end(sim_device *d, const sim_context *c); /* with what c allocated from them, which is counted */
void sim_pool_freed(sim_alloc *a);                 /* the free has happened */
void sim_pool_keep(sim_alloc *a, sim_op *death);   /* freed, by an operation or (NULL) at once */
void sim_pools_shrink(const sim_device *d);        /* the host has waited for something on the device */

/* loan.c: memory that is a device's for a while, and somebody else's before and after */
/* Its bytes may be written by sim_view at once; on the device they are there for what is queued behind s from now. */
sim_status sim_loan_begin(sim_stream *s, size_t nbytes, sim_alloc **out);
/* What s has been told before is done, and the bytes are what they then are until sim_loan_end. */
sim_status sim_loan_settle(sim_stream *s, sim_alloc *a);
void sim_loan_end(sim_stream *s, sim_alloc *a);

/* trap.c: what the host itself loads and stores, and when */
typedef struct sim_queued_access {
  sim_region region;
  bool write;
} sim_queued_access;

void sim_trap_open(uintptr_t at, uint64_t nbytes); /* addresses of the memory that the host may touch */
void sim_trap_born(const sim_alloc *a);
void sim_trap_died(sim_alloc *a);
void sim_trap_access(sim_alloc *a, const sim_region *r, bool write, const sim_op *op);
void sim_trap_works(const sim_op *op); /* a device has work from now on */
/* Nobody may touch what lies wholly in these pages until they are given back, which says whether somebody did. */
void sim_trap_lend(uintptr_t at, size_t nbytes);
void sim_trap_give_back(uintptr_t at, bool *was_read, bool *was_written);
void sim_trap_learned(void); /* the host has waited for something */
void sim_trap_update(void);  /* before the lock is dropped */
void sim_trap_look(void);    /* after it is taken */

/* order.c */
/* Somebody that touches memory without an operation: a thread (NULL: one that never called the driver), or a host
 * function that runs as part of an operation. */
typedef struct sim_accessor {
  sim_thread *thread;
  const sim_op *acting;
  sim_place place;
} sim_accessor;

void sim_check_access(sim_alloc *a, const sim_region *r, bool write, const sim_accessor *who);
void sim_check_op(sim_alloc *a, const sim_region *r, bool write, const sim_op *op);
void sim_check_host(sim_alloc *a, const sim_region *r, bool write, bool is_free);
void sim_check_unmapped(sim_alloc *a, const sim_region *r);
sim_status sim_check_range(const sim_alloc *a, const sim_region *r, const char *what);

/* work.c: operations, and the order they run in */
typedef enum sim_work_kind {
  SIM_EMPTY,
  SIM_COPY,
  SIM_FILL,
  SIM_HOST,
  SIM_BIRTH,
  SIM_DEATH,
  SIM_KERNEL,
  SIM_WAIT,
  SIM_SIGNAL
} sim_work_kind;

typedef struct sim_work {
  sim_work_kind kind;
  sim_region dst, src;
  sim_alloc *to, *from; /* NULL: the program's own memory */
  uint32_t value;
  unsigned unit;
  void (*fn)(void *);
  void *arg;
  void *staged; /* bytes of a pageable source, taken when the call was made */
  sim_launch *launch;
  struct sim_semaphore *semaphore; /* WAIT, SIGNAL */
  uint64_t reach;                  /* the value that it waits for, or signals */
} sim_work;

struct sim_op {
  int refs;
  bool done, running, wanted;
  int late; /* driver status to fail with when it runs */
  sim_work work;
  sim_op **deps;
  size_t ndeps;
  uint32_t slot, time;
  sim_clock clock;
  const char *who;
  sim_context *ctx;
  sim_place place;
  uint64_t stamp; /* simulated time at which it was done, ns */
  uint64_t since; /* when the host began to wait for what another API signals, ns */
  sim_op *next, *prev;
};

sim_op *sim_op_new(const sim_work *w, const char *who, sim_context *ctx);
void sim_op_needs(sim_op *op, sim_op *dep);
void sim_op_queue(sim_op *op); /* checks its accesses and puts it among the pending */
sim_op *sim_op_keep(sim_op *op);
void sim_op_drop(sim_op *op);
void sim_op_run(sim_op *op); /* runs until op is done, and what the seed adds */
void sim_op_step(sim_op *op); /* at most one operation nearer to op */
void sim_op_stir(void); /* what the device may do by itself after a call */
void sim_op_run_context(const sim_context *c);
void sim_call_out(void (*fn)(void *), void *arg); /* calls the program, without the lock */
size_t sim_pending(void);
/* The first pending signal that reaches the value; and any pending work with the semaphore. */
sim_op *sim_op_signals(const struct sim_semaphore *m, uint64_t value);
const sim_op *sim_op_uses(const struct sim_semaphore *m);
uint64_t sim_random(void);

/* stream.c */
typedef enum sim_stream_kind { SIM_ORDINARY, SIM_LEGACY, SIM_PER_THREAD } sim_stream_kind;

struct sim_stream {
  sim_object o;
  sim_context *ctx;
  sim_stream_kind kind;
  bool blocking;
  int priority;
  int thread; /* PER_THREAD: whose */
  uint32_t slot;
  sim_clock clock;
  sim_op *last;
  uint32_t worked; /* time of the last operation that touches the program's bytes or calls it */
  unsigned queries;
  const char *name;
  sim_capture *capture;
  sim_stream *captured; /* the next stream of that capture */
  sim_node **front; /* capturing: what the next node depends on */
  size_t nfront;
  uintptr_t *front_handles; /* of these nodes, for the program */
  sim_stream *next;
};

sim_stream *sim_stream_new(sim_context *c, sim_stream_kind kind, bool blocking, int priority);
sim_status sim_stream_end(sim_stream *s);
sim_stream *sim_stream_per_thread(sim_context *c);
/* Queues work: on a capturing stream it becomes a node and *out is NULL. The op is borrowed. */
sim_status sim_submit(sim_stream *s, const sim_work *w, sim_op **out);
void sim_stream_learns(sim_stream *s, const sim_clock *clock); /* what s does from now on is after that */
sim_status sim_stream_wait_host(sim_stream *s);
sim_status sim_stream_query(sim_stream *s);
sim_status sim_stream_wait_blocking(sim_context *c); /* for the legacy stream and all blocking ones */
sim_status sim_context_wait_host(sim_context *c);
sim_status sim_context_drain(sim_context *c); /* the same for the driver's own purposes, whatever is captured */
void sim_host_after(const sim_op *op); /* the host has seen op finished */
void sim_stream_after(sim_stream *s, sim_op *op, const sim_clock *clock); /* s waits for op */

/* semaphore.c: what another API waits for and signals, too, by a file descriptor */
typedef struct sim_semaphore sim_semaphore;

typedef enum sim_semaphore_kind { SIM_TIMELINE, SIM_BINARY, SIM_SHARED_EVENT } sim_semaphore_kind;
int sim_semaphore_new(uint64_t value, sim_semaphore_kind kind); /* the descriptor; -1: none */
/* The semaphore of a descriptor, with a reference, or NULL. */
sim_semaphore *sim_semaphore_open(int fd);
void sim_semaphore_drop(sim_semaphore *m);
sim_semaphore *sim_semaphore_keep(sim_semaphore *m);
bool sim_semaphore_binary(const sim_semaphore *m);
uint64_t sim_semaphore_value(const sim_semaphore *m);
bool sim_semaphore_reached(const sim_semaphore *m, uint64_t value);
/* A wait has ended; and a signal, here or by the other API. */
void sim_semaphore_taken(sim_semaphore *m);
void sim_semaphore_set(sim_semaphore *m, uint64_t value);
/* Queues a wait or a signal behind what the stream has. */
sim_status sim_semaphore_queue(sim_stream *s, sim_semaphore *m, sim_work_kind kind, uint64_t value);
bool sim_semaphore_blocks(const sim_op *op); /* a wait that may not run yet */
void sim_semaphore_sleep(sim_op *op);        /* until something changes; a wait in vain ends with a finding */
/* An event of several processes is a count of its records: the number of the next one; what the last one comes after,
 * and (joined into a clock) that again, with its number. */
uint64_t sim_semaphore_issue(sim_semaphore *m);
void sim_semaphore_tell(sim_semaphore *m, uint64_t number, const sim_clock *clock);
uint64_t sim_semaphore_told(sim_semaphore *m, sim_clock *into);
bool sim_semaphore_wanted(const sim_op *op); /* other processes may wait for it, so that it may not be left pending */

/* event.c */
struct sim_event {
  sim_object o;
  sim_context *ctx;
  unsigned flags;
  bool timing;
  sim_op *op;
  sim_stream *in; /* where it was last recorded, outside of captures */
  sim_clock clock;
  unsigned queries;
  sim_semaphore *shared; /* NULL: it is this process's alone */
  int fd;                /* of that, for others */
  sim_capture *capture; /* last recorded in this capture, after these nodes */
  sim_node **front;
  size_t nfront;
};

sim_event *sim_event_new(sim_context *c, unsigned flags, bool timing);
void sim_event_end(sim_event *e);
sim_status sim_event_record(sim_event *e, sim_stream *s);
sim_status sim_event_wait(sim_stream *s, sim_event *e);
sim_status sim_event_wait_host(sim_event *e);
sim_status sim_event_query(sim_event *e);
sim_status sim_event_elapsed(const sim_event *a, const sim_event *b, float *ms);

/* copy.c */
sim_status sim_copy(sim_stream *s, const sim_region *dst, const sim_region *src, bool sync);
sim_status sim_fill(sim_stream *s, const sim_region *dst, uint32_t value, unsigned unit);
sim_status sim_free_host(sim_alloc *a); /* a free that the host makes; counts as a write by it */

sim_status sim_free_in(sim_stream *s, sim_alloc *a); /* a free that is an operation in a stream */

/* capture.c */
enum { SIM_MODE_GLOBAL, SIM_MODE_THREAD, SIM_MODE_RELAXED };

struct sim_capture {
  uint64_t id;
  bool active, invalid;
  int mode, thread;
  sim_stream *origin, *streams; /* all that take part, the last that came first */
  sim_graph *graph;
  sim_capture *next;
};

sim_status sim_capture_begin(sim_stream *s, int mode);
sim_status sim_capture_finish(sim_stream *s, sim_graph **out);
/* Each of these is SIM_OK, or breaks the captures that forbid the call and says why it fails: a call that may be
 * unsafe by the modes of thread and capture; one that asks a stream or event (a set of SIM_ASKS_...); one that waits
 * for all of a context; one on stream s that the host waits for. */
sim_status sim_capture_unsafe(void);
sim_status sim_capture_asking(unsigned what);
sim_status sim_capture_wide(const sim_context *c);
sim_status sim_capture_sync(sim_stream *s);
sim_status sim_capture_forbid(sim_stream *s, sim_status why); /* breaks the capture that s takes part in */
sim_status sim_capture_implicit(sim_stream *s); /* what a call on the legacy stream does to captures */
void sim_capture_abandon(sim_stream *s); /* s ends: so does the capture that began in it */
sim_status sim_capture_node(sim_stream *s, const sim_work *w);
sim_status sim_capture_record(sim_event *e, sim_stream *s);
sim_status sim_capture_wait(sim_stream *s, sim_event *e);
size_t sim_captures(void);

/* graph.c */
struct sim_node {
  sim_object o;
  sim_work work;
  sim_node **deps;
  size_t ndeps, index;
};

struct sim_graph {
  sim_object o;
  sim_node **nodes;
  size_t nnodes, capacity;
  struct sim_user **held; /* one entry for each reference */
  size_t nheld;
  uint32_t *slots; /* executable: the branch that each node belongs to */
  uint32_t *branches;
  size_t nbranches;
  sim_op *last;    /* executable: the end of its last launch */
  sim_clock clock;
};

/* user.c */
typedef struct sim_user {
  sim_object o;
  void (*destroy)(void *);
  void *arg;
  unsigned refs;
} sim_user;

sim_user *sim_user_new(void (*destroy)(void *), void *arg, unsigned refs);
sim_status sim_user_release(sim_user *u, unsigned count);
void sim_user_hold(sim_graph *g, sim_user *u, unsigned count); /* g takes over count references */
sim_status sim_user_let_go(sim_graph *g, sim_user *u, unsigned count);
void sim_user_let_go_all(sim_graph *g);

sim_graph *sim_graph_new(sim_type type);
sim_node *sim_graph_add(sim_graph *g, const sim_work *w, sim_node *const *deps, size_t ndeps);
sim_graph *sim_graph_instantiate(const sim_graph *g);
void sim_graph_end(sim_graph *g);
sim_status sim_graph_launch(sim_graph *g, sim_stream *s);

#endif
