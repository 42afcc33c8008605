/* base.h: what all of the simulator rests on: statuses, places, clocks, handles, threads, settings, and the way in and
 * out of a call.
 *
 * Everything is guarded by one lock, taken by sim_enter and dropped by sim_leave; functions here expect it held unless
 * they say otherwise. It must not know what a device does, nor any driver's names or numbers. */
#ifndef SIM_BASE_H
#define SIM_BASE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim.h"

#define SIM_MAX_DEVICES 16
#define SIM_MAX_DEPTH 64

typedef enum sim_status {
  SIM_OK,
  SIM_INVALID,
  SIM_NOMEM,
  SIM_NOT_INITIALIZED,
  SIM_NO_DEVICE,
  SIM_BAD_DEVICE,
  SIM_BAD_CONTEXT,
  SIM_DEAD_CONTEXT,
  SIM_BAD_HANDLE,
  SIM_BAD_STREAM,
  SIM_NOT_FOUND,
  SIM_NOT_READY,
  SIM_NOT_SUPPORTED,
  SIM_NOT_PERMITTED,
  SIM_ILLEGAL_STATE,
  SIM_PEER_ON,
  SIM_PEER_OFF,
  SIM_PEER_NONE,
  SIM_REGISTERED,
  SIM_MAPPED,
  SIM_NOT_MAPPED,
  SIM_NOT_ARRAY,
  SIM_NOT_POINTER,
  SIM_NO_GRAPHICS,
  SIM_NOT_REGISTERED,
  SIM_PRIMARY_ACTIVE,
  SIM_CAP_UNSUPPORTED,
  SIM_CAP_INVALIDATED,
  SIM_CAP_MERGE,
  SIM_CAP_UNMATCHED,
  SIM_CAP_UNJOINED,
  SIM_CAP_ISOLATION,
  SIM_CAP_IMPLICIT,
  SIM_CAP_EVENT,
  SIM_CAP_THREAD,
  SIM_CAP_WIDE, /* inside of capture.c */
  SIM_STUCK /* a device is lost; the driver's own number for it is in sim_stuck_code() */
} sim_status;

typedef struct sim_op sim_op;
typedef struct sim_stream sim_stream;
typedef struct sim_event sim_event;
typedef struct sim_context sim_context;
typedef struct sim_device sim_device;
typedef struct sim_alloc sim_alloc;
typedef struct sim_pool sim_pool;
typedef struct sim_graph sim_graph;
typedef struct sim_node sim_node;
typedef struct sim_capture sim_capture;
typedef struct sim_launch sim_launch;

/* Where something happened: the call, its number, who called and on which thread. */
typedef struct sim_place {
  const char *call;
  uint64_t number;
  void *caller;
  int thread;
  bool looked;      /* for the line */
  const char *line; /* of the program's script, or NULL */
} sim_place;

/* A vector clock: how far into each actor's history something has seen. Grows as actors appear. */
typedef struct sim_clock {
  uint32_t *at;
  uint32_t size, room;
} sim_clock;

/* Whoever had the slot before: all of that was seen. */
uint32_t sim_clock_slot(const sim_clock *seen);
void sim_clock_recycle(uint32_t slot);
uint32_t sim_clock_tick(sim_clock *c, uint32_t slot);
void sim_clock_join(sim_clock *into, const sim_clock *from);
bool sim_clock_covers(const sim_clock *c, uint32_t slot, uint32_t time);
void sim_clock_copy(sim_clock *to, const sim_clock *from);
void sim_clock_see(sim_clock *c, uint32_t slot, uint32_t time);
bool sim_clock_includes(const sim_clock *c, const sim_clock *other);
void sim_clock_free(sim_clock *c);

typedef enum sim_type {
  SIM_CONTEXT = 1,
  SIM_STREAM,
  SIM_EVENT,
  SIM_POOL,
  SIM_GRAPH,
  SIM_EXEC,
  SIM_NODE,
  SIM_USER,
  SIM_MODULE,
  SIM_LIBRARY, /* a module of every context */
  SIM_GRAPHICS,
  SIM_EXTERNAL,
  SIM_LINK, /* of texts to be one module's */
  SIM_SEMAPHORE,
  SIM_ARRAY,
  SIM_PHYSICAL, /* memory without an address */
  SIM_FUNCTION
} sim_type;

/* The head of everything that has a handle. A destroyed object stays as a tombstone, so that a stale handle is
 * recognised, unless another object has it by now, and says where it was destroyed. */
typedef struct sim_object {
  sim_type type;
  bool live;
  bool hidden; /* the driver's own: not in the ledger */
  uintptr_t handle;
  uint64_t id; /* no other object's, ever */
  sim_place made, gone;
  struct sim_object *before, *after; /* among those that live */
  struct sim_object *former;         /* that had the handle before */
} sim_object;

void sim_object_add(sim_object *o, sim_type type);
void sim_object_end(sim_object *o);
/* NULL for what is not a live handle of that type; a destroyed one is reported. */
void *sim_object_find(const void *handle, sim_type type);
bool sim_object_was(const void *handle); /* a handle of something, live or destroyed */
unsigned sim_object_uses(const sim_object *o); /* how many objects have had its handle, it included */
sim_object *sim_object_first(void); /* that lives; the others are after it, and it may be ended meanwhile */
const char *sim_type_name(sim_type type);

typedef struct sim_thread {
  int id;
  int depth, pushed; /* less popped */
  int owed;          /* of those, what the ledger is about */
  bool ended;
  bool in_callback;
  const sim_op *acting; /* whose host function it runs */
  int capture_mode;
  sim_context *stack[SIM_MAX_DEPTH];
  uint32_t slot;
  sim_clock clock;
  struct sim_thread *next;
} sim_thread;

/* core.c: configuration, the lock, the calls */
typedef struct sim_counter {
  const char *name;
  uint64_t calls, ever;
  bool listed;
  struct sim_counter *next;
} sim_counter;

typedef struct sim_call {
  sim_counter *counter;
  sim_place place;
  int raw; /* what to answer when sim_enter returns true */
  char detail[160];
} sim_call;

/* ALWAYS: answers with a lost device too. ELSEWHERE: so does this unless a lost device takes all others with it
 * (SIM_STICKY=process). ENDS: gives something back; when told to fail it still does so, else nobody could tell a leak
 * from a failure to free. */
enum { SIM_ENTER_ALWAYS = 1, SIM_ENTER_ENDS = 2, SIM_ENTER_ELSEWHERE = 4 };

typedef struct sim_config {
  int devices;
  uint64_t memory, quarantine, poison, history;
  uint64_t patience; /* seconds that a wait for another API may take */
  int version;
  uint64_t seed, random;
  bool separate_threads, strict, ledger, legacy_covers, host_trap, sticky_process;
  bool managed_exclusive; /* the host may not touch managed memory while a device works */
  uint64_t max_pitch;
  bool pitch_strict; /* device-to-device copies of rows take only pitches that an allocation gave */
  enum { SIM_BY_SEED, SIM_NEVER, SIM_ALWAYS } reuse; /* of handles and addresses; by seed: where that is odd */
  enum { SIM_FREE_BY_CALLER, SIM_FREE_NEVER_WAITS, SIM_FREE_WAITS } free; /* by caller: if it is a library */
  const char *missing;
} sim_config;

extern sim_config sim_conf;

/* Calls that ask how far something is: a set of these says which of them a rule is about. */
enum { SIM_ASKS_STREAM = 1, SIM_ASKS_EVENT = 2 };

/* What drivers differ in. Each front end says which rules are its driver's, once the settings are read. */
typedef struct sim_rules {
  bool waits_break_all;      /* a device-wide wait or synchronous copy breaks the captures of every device */
  bool record_joins_capture; /* an event counts as captured while the stream it was recorded in is captured */
  unsigned unsafe_in_thread_mode, unsafe_in_relaxed_mode; /* that another thread's global capture forbids even so */
  bool null_waits_for_blocking; /* to wait for the null stream by that name is to wait for all blocking streams */
  bool event_first;             /* a call with a bad event and a bad stream fails for the event */
} sim_rules;

extern sim_rules sim_driver;
void sim_driver_rules(sim_rules *out); /* the front end's */
void sim_lock(void);
void sim_unlock(void);
bool sim_is_locked(void); /* by this thread */
bool sim_owns(const void *object); /* the lock, or what comes with it */
void sim_sleep_on_change(void); /* waits, without the lock, until some thread has run something */
void sim_sleep_a_while(long ns); /* the same, for so long at most, less than a second */
void sim_changed(void);
uint64_t sim_now(void); /* nanoseconds since some moment, on a clock that nobody sets */
bool sim_enter(sim_call *c, sim_counter *counter, void *caller, unsigned how);
int sim_leave(sim_call *c, int raw); /* returns what the program gets: raw, or what a fault made of it */
void sim_log_detail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool sim_is_owner(void); /* false in a forked child, and in a process that has not asked the driver for anything */
sim_thread *sim_self(void);
sim_thread *sim_threads(void);
sim_thread *sim_known_self(void); /* NULL for a thread that has made no call; may be called in a signal handler */
uint64_t sim_number(void);        /* of the last call */
sim_place sim_here(void);
bool sim_named(const char *list, const char *name);
void sim_set_numbers(int not_permitted, int forked); /* the front end's numbers for what the core refuses */

/* host clock of the calling thread (one for all threads unless they are kept apart) */
uint32_t sim_host_slot(void);
sim_clock *sim_host_clock(void);
void sim_host_tick(void);

bool sim_reuses(void); /* whether handles and addresses are used again now */

/* thread.c */
void sim_threads_listen(void); /* to the library that is preloaded for it, if it is there */

/* missing.c */
void sim_hide(const char *symbol); /* from now on dlsym does not find it */

/* fault.c */
int sim_fault_add(const char *rules); /* sim_fail, within the lock */
bool sim_fault_strikes(const sim_counter *counter, const sim_place *place, int *raw);

/* core.c: runs what is the program's own inside of a call, without the lock */
bool sim_is_on_behalf(void); /* a library between the program and the driver makes this thread's calls */
void sim_from_program(void (*fn)(void *), void *arg);

/* machine.c: what another process knows of an order: how far into the history of a process's slot */
typedef struct sim_moment {
  uint64_t process;
  uint32_t slot, time;
} sim_moment;

uint64_t sim_process(void); /* this one's number */
int sim_process_pid(uint64_t process);
bool sim_process_lives(uint64_t process);
int sim_process_file(uint64_t process, int fd);                  /* opened once more; -1: there is none */
uint32_t sim_process_slot(uint64_t process, uint32_t slot);     /* as it is called here */
size_t sim_clock_tell(const sim_clock *c, sim_moment *out, size_t most); /* how many there are */
void sim_clock_hear(sim_clock *c, const sim_moment *told, size_t n);
void sim_shared_lock_init(pthread_mutex_t *m); /* in memory of several processes */
void sim_shared_lock(pthread_mutex_t *m);
void sim_shared_unlock(pthread_mutex_t *m);
const char *sim_kept_text(const char *text); /* for good, at one address */

/* hook.c */

/* Runs what sim_at wants to happen inside this call. The caller does not hold the lock. */
void sim_hooks_run(const char *name);
void sim_fault_reset(void);
int sim_stuck_code(void); /* of the device that was last asked for */
void sim_stick(sim_device *d, int raw); /* d is lost for good (NULL: all are) */
sim_status sim_device_verdict(const sim_device *d); /* SIM_OK, or SIM_STUCK */
int sim_fault_late(void); /* status with which the operation being queued is to fail when it runs, or 0 */

/* log.c */
void sim_log_open(void);
void sim_log_call(const sim_call *c, int raw);
void sim_log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2))); /* one line on standard error, at once */

/* script.c */
void sim_script_open(uint64_t lines); /* how many places may be looked up */
enum { SIM_LINE = 96 };
const char *sim_script_place(void); /* stays valid; NULL: not known */
void sim_script_read(char line[SIM_LINE]); /* this thread's; "": not known; may be called where a signal is handled */
const char *sim_script_keep(const char *line); /* stays valid; NULL for "" */

/* journal.c */
void sim_journal_open(void);
void sim_journal_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool sim_journal_kept(void);

/* ledger.c */
void sim_found(sim_kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool sim_found_pair(sim_kind kind, const sim_place *a, const sim_place *b);
bool sim_ledger_counts(const sim_place *made); /* whether the ledger is about what this caller made */
/* Whether the call came from the library that this setting names; without the setting, from any. */
bool sim_place_is_of(const sim_place *p, const char *setting);
const char *sim_place_text(const sim_place *p, char *out, size_t size);
void sim_findings_reset(void);

#endif
