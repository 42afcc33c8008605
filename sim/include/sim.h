/* sim.h: functions of the simulator for a program that runs on a simulated driver.
 *
 * The simulated library itself exports them (find them with dlsym). They make no driver call and may be
 * called at any time, on any thread, also without a device. This header must not know
 * which driver is being simulated. */
#ifndef SIM_H
#define SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_PUBLIC __attribute__((visibility("default")))

/* The kind of a finding. All but warnings count as failures. */
typedef enum sim_kind {
  SIM_ANY = 0,        /* all but warnings */
  SIM_RACE = 1,       /* two accesses to the same bytes in no order */
  SIM_STALE = 2,      /* use of freed memory, double free */
  SIM_BOUNDS = 3,     /* an address or extent outside of any allocation, or out of the device's reach */
  SIM_MISUSE = 4,     /* a destroyed or foreign handle, no context, a call that may not be made here */
  SIM_CAPTURE = 5,    /* a call that stream capture forbids */
  SIM_LEAK = 6,       /* still alive when sim_ledger was called */
  SIM_WARNING = 7     /* allowed, but seldom intended, such as destroying a stream with work pending */
} sim_kind;

/* Returns how many calls of this name were made since the last reset; NULL counts all names. */
SIM_PUBLIC uint64_t sim_calls(const char *name);
/* Forgets counts, findings and fault rules. Objects and memory stay. */
SIM_PUBLIC void sim_reset(void);
/* Returns how many findings of this kind there are; the same pair of places counts once. */
SIM_PUBLIC uint64_t sim_findings(sim_kind kind);
/* Returns the text of finding i (0 is the first), or NULL after the last. Valid until sim_reset. */
SIM_PUBLIC const char *sim_finding(size_t i);
/* Adds fault rules, written as in SIM_FAIL. Returns 0, or -1 if the text is not a rule. */
SIM_PUBLIC int sim_fail(const char *rules);
/* Returns how many calls a fault rule has made fail since the last reset. */
SIM_PUBLIC uint64_t sim_faults(void);
/* Runs fn(ctx) inside a call: once, on the calling thread and before anything else, in the nth call of this name from
 * now on ("*": of any name; 1 is the next call). fn may make driver calls, and wait for threads that do. Returns 0, or
 * -1 if too many of these are pending. fn NULL cancels all of them. */
SIM_PUBLIC int sim_at(const char *name, uint64_t nth, void (*fn)(void *ctx), void *ctx);
/* Returns how much of one kind is alive: "memory" (bytes), "allocations", "streams", "events", "contexts" (pushed and
 * not popped), "retains" (primary contexts), "captures", "graphs", "pools", "modules" or "pending" (queued operations).
 */
SIM_PUBLIC int64_t sim_left(const char *what);
/* Makes everything that is still alive a finding of kind SIM_LEAK. Returns how many there are. */
SIM_PUBLIC uint64_t sim_ledger(void);
/* Reports that the host reads or writes these bytes now, for memory that host and device share. */
SIM_PUBLIC void sim_host_access(const void *p, size_t nbytes, int write);
/* With SIM_THREADS=separate, host threads are ordered only by what the simulator sees. These two calls report an order
 * that it cannot see, such as that of an atomic variable or a queue without locks: everything that a thread did before
 * sim_released comes before everything that a thread does after sim_acquired of the same object (any address). */
SIM_PUBLIC void sim_released(const void *object);
SIM_PUBLIC void sim_acquired(const void *object);
/* For a library between the program and the driver, such as the CUDA runtime: findings name `caller`, the address that
 * made the library's call `call`, as the origin of this thread's driver calls. NULL and NULL end that. The text must
 * stay valid. */
SIM_PUBLIC void sim_from(const char *call, const void *caller);
/* Adds a finding of such a library, at the place of its call. */
SIM_PUBLIC void sim_add_finding(sim_kind kind, const char *text);
/* Stands for another API that exports semaphores. sim_semaphore_create returns an opaque file descriptor, which the
 * caller closes, or -1: a timeline with the value ${value}, or a binary semaphore that is signalled (1) or not (0). The
 * other two do what that API's queue would do: read the value, and signal it (a binary one with 1). They return 0, or
 * -1 if the descriptor is not a semaphore. */
SIM_PUBLIC int sim_semaphore_create(uint64_t value, int binary);
SIM_PUBLIC int sim_semaphore_read(int fd, uint64_t *value);
SIM_PUBLIC int sim_semaphore_signal(int fd, uint64_t value);
/* Reads device memory as it is now, without a driver call. Returns 0, or -1 for other memory. */
SIM_PUBLIC int sim_peek(const void *device, void *host, size_t nbytes);
/* Sets the seed, which chooses the order of all work from now on; with 0 work runs only when something waits for it. */
SIM_PUBLIC void sim_seed(uint64_t seed);
/* Writes the report to a file descriptor. Returns the number of findings that are not warnings. */
SIM_PUBLIC uint64_t sim_report(int fd);

#ifdef __cplusplus
}
#endif
#endif
