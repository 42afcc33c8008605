/* other.h: another library, for specs: one that talks to the driver itself, on streams of its own, and knows Moonferry
 * only through DLPack. The same calls for CUDA and HIP; which of them is chosen by MOONFERRY_SPEC_DEVICE (cuda or
 * rocm).
 *
 * Streams are written as in moonferry.h: 1 legacy default, 2 per thread, else a handle. Every call must succeed, or the
 * spec ends, unless it is to tolerate failures. With a simulated driver there are its questions, too (sim.h); on a real
 * one they answer zero. */
#ifndef MOONFERRY_SPEC_OTHER_H
#define MOONFERRY_SPEC_OTHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False, with the reason printed, where there is no driver. */
bool other_open(void);
void other_tolerate(bool on);
bool other_is_simulated(void); /* the very driver that is called; one that is forwarded to only checks */
int other_device_type(void); /* kDLCUDA or kDLROCM */
int other_pinned_type(void);
int other_managed_type(void); /* 0: there is none */
int other_devices(void);

/* Of the device; a thread's current device stays what it was. */
int64_t other_stream(int device, bool blocking);
void other_stream_end(int64_t stream);
void other_fill(int device, void *p, int byte, size_t nbytes, int64_t stream);
void other_busy(int device, int64_t stream); /* for tens of milliseconds; a simulated driver is late anyway */
void other_copy(int device, void *dst, const void *src, size_t nbytes, int64_t stream);
void other_after(int device, int64_t stream, int64_t earlier); /* stream waits for what earlier has queued */
void other_sync(int device, int64_t stream);
void other_sync_all(int device);
void *other_alloc(int device, size_t nbytes);
void *other_managed(int device, size_t nbytes); /* where there is managed memory; other_free frees it */
void other_free(int device, void *p);
void *other_pinned(size_t nbytes);
void other_pinned_free(void *p);

void other_capture(int device, int64_t stream); /* in global mode */
bool other_capture_is_whole(int device, int64_t stream); /* goes on, and nothing has broken it */
void other_capture_give_up(int device, int64_t stream); /* of one that was broken */
void *other_capture_end(int device, int64_t stream);
void other_launch(int device, void *graph, int64_t stream);
void other_graph_end(int device, void *graph);
bool other_is_active(int device); /* has a primary context; false where the driver has none */
/* What the driver has as current: a context or a device; for specs that it stays. */
void *other_current(void);
void other_current_set(int device); /* -1: none, where the driver knows that */

/* The simulator; on a real driver these do nothing and answer 0. */
/* The seed of a run: the first, which is strictly lazy, is 0; MOONFERRY_SPEC_SEED moves all others. specs/run sets it
 * to another number for each commit, and for one suite to 0. */
uint64_t seed_of(uint64_t number);
void sim_ask_seed(uint64_t seed); /* that of seed_of */
void sim_ask_reset(void);
uint64_t sim_ask_findings(void); /* prints them */
uint64_t sim_ask_found(int kind); /* a sim_kind; does not print */
uint64_t sim_ask_calls(const char *name);
/* A call's name in the simulator that counts: CUDA's where HIP is forwarded to it. */
const char *named(const char *cuda, const char *hip);
bool sim_ask_is_direct(void); /* the driver that is called is the simulator itself */
bool sim_ask_is_there(void);  /* or the one behind it is */
int64_t sim_ask_left(const char *what);
void sim_ask_fail(const char *rules);
uint64_t sim_ask_faults(void);
/* As sim_at, by either driver's name for the call. */
void sim_ask_at(const char *cuda, const char *hip, uint64_t nth, void (*fn)(void *ctx), void *ctx);
/* A semaphore of another API's, by the descriptor that it exports; what it has; and that API's signal. */
int sim_ask_semaphore(uint64_t value, bool binary);
uint64_t sim_ask_semaphore_value(int fd);
void sim_ask_semaphore_signal(int fd, uint64_t value);
void sim_ask_host(const void *p, size_t nbytes, bool write); /* the host uses shared memory now */

#endif
