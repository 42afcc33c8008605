/* sim.h: what a program under a simulated driver may ask of the simulator.
 *
 * The functions are exported by the simulated library itself (find them with dlsym). They make no driver
 * call and may be called at any time, from any thread, also with no device. This header must not know
 * which driver is being simulated. */
#ifndef SIM_H
#define SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_PUBLIC __attribute__((visibility("default")))

/* What a finding is about. Warnings never count as failures; everything else does. */
typedef enum sim_kind {
  SIM_ANY = 0,        /* all but warnings */
  SIM_RACE = 1,       /* two accesses to the same bytes that nothing orders */
  SIM_STALE = 2,      /* use of freed memory, double free */
  SIM_BOUNDS = 3,     /* an address or extent that is nobody's, or not reachable from that device */
  SIM_MISUSE = 4,     /* a destroyed or foreign handle, no context, a call that may not be made here */
  SIM_CAPTURE = 5,    /* a call that stream capture forbids */
  SIM_LEAK = 6,       /* left over when the ledger was drawn up */
  SIM_WARNING = 7     /* allowed, seldom meant: a stream destroyed with work pending */
} sim_kind;

/* How many calls of this name were made since the last reset; NULL: of all names together. */
SIM_PUBLIC uint64_t sim_calls(const char *name);
/* Forgets counts, findings and fault rules. Objects and memory stay. */
SIM_PUBLIC void sim_reset(void);
/* How many findings of this kind there are, repeats of the same pair of places included once. */
SIM_PUBLIC uint64_t sim_findings(sim_kind kind);
/* The text of finding i (0 is the first), or NULL past the last. Valid until sim_reset. */
SIM_PUBLIC const char *sim_finding(size_t i);
/* Adds fault rules, written as in SIM_FAIL. Returns 0, or -1 if the text is not a rule. */
SIM_PUBLIC int sim_fail(const char *rules);
/* How many fault rules have struck since the last reset. */
SIM_PUBLIC uint64_t sim_faults(void);
/* What happens inside a call: the nth call of this name ("*": of any) from now on (1 is the next one), by whichever
 * thread, first runs fn(ctx) on that thread, before it does anything else; fn may make driver calls, and wait for
 * threads that do. Once only. Returns 0, or -1 if too many of these wait. fn NULL forgets all of them. */
SIM_PUBLIC int sim_at(const char *name, uint64_t nth, void (*fn)(void *ctx), void *ctx);
/* What is left of one sort: "memory" (bytes), "allocations", "streams", "events", "contexts" (pushed and not
 * popped), "retains" (primary contexts), "captures", "graphs", "pools", "modules", "pending" (queued operations). */
SIM_PUBLIC int64_t sim_left(const char *what);
/* Draws up the ledger: everything left becomes a finding of kind SIM_LEAK. Returns how many. */
SIM_PUBLIC uint64_t sim_ledger(void);
/* Says that the host reads or writes these bytes now, for memory that host and device share. */
SIM_PUBLIC void sim_host_access(const void *p, size_t nbytes, int write);
/* Where host threads count apart (SIM_THREADS=separate): what this thread did so far comes before all that a thread
 * does after it acquires the same object, whatever that is. For what orders threads and cannot be seen: an atomic
 * variable, a queue without locks. */
SIM_PUBLIC void sim_released(const void *object);
SIM_PUBLIC void sim_acquired(const void *object);
/* For a library between the program and the driver, such as the CUDA runtime: this thread's driver calls are made for
 * `caller`, who made that call of the library, and findings say so. NULL and NULL: the driver's callers are the program
 * again. The text must stay valid. */
SIM_PUBLIC void sim_from(const char *call, const void *caller);
/* Adds a finding that such a library has made, at the place of its call. */
SIM_PUBLIC void sim_add_finding(sim_kind kind, const char *text);
/* A semaphore as another API exports it: an opaque file descriptor, the caller's to close; a timeline that has
 * ${value}, or a binary one that is signalled (1) or not (0). -1: none could be made. What that API's queue does with
 * it then: it asks for the value, and signals it (a binary one: with 1). 0, or -1: it is no such descriptor. */
SIM_PUBLIC int sim_semaphore_create(uint64_t value, int binary);
SIM_PUBLIC int sim_semaphore_read(int fd, uint64_t *value);
SIM_PUBLIC int sim_semaphore_signal(int fd, uint64_t value);
/* Reads device memory behind the driver's back, as it is now: no call, no wait. 0, or -1: not ours. */
SIM_PUBLIC int sim_peek(const void *device, void *host, size_t nbytes);
/* Chooses the seed and thereby the order of everything that runs from now on; 0 is strictly lazy. */
SIM_PUBLIC void sim_seed(uint64_t seed);
/* Writes the report to a file descriptor. Returns the number of findings that are not warnings. */
SIM_PUBLIC uint64_t sim_report(int fd);

#ifdef __cplusplus
}
#endif
#endif
