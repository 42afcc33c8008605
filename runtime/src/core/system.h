/* system.h: what the runtime asks of the operating system beyond C11 and POSIX threads, in the words of neither POSIX
 * nor Windows. Mutexes, condition variables and thread-specific keys are called by their POSIX names everywhere,
 * because mingw-w64 has those on Windows. No other file of the runtime may ask which system this is. */
#ifndef MOONFERRY_SYSTEM_H
#define MOONFERRY_SYSTEM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The initial-exec model saves a call per access. It takes static thread-local storage, of which there is little for
 * what is loaded late, so only a few words on the path of every exchange have it; musl has none at all, and Windows
 * has no such model. */
#ifdef __GLIBC__
#define MF__TLS __attribute__((tls_model("initial-exec")))
#else
#define MF__TLS
#endif

/* A function that takes a format as printf does. MinGW takes "printf" for the one of Microsoft's old C library, which
 * knows no %zu; the runtime is built with MinGW's own. */
#ifdef __MINGW32__
#define MF__PRINTF(format_at, first) format(gnu_printf, format_at, first)
#else
#define MF__PRINTF(format_at, first) format(printf, format_at, first)
#endif

/* A function without arguments that ends the library's threads at the end of the process; on Windows it is not called:
 * other threads have been ended by then, perhaps with a lock held ("Dynamic-Link Library Best Practices"). */
#ifdef _WIN32
#define MF__AT_END __attribute__((unused))
#else
#define MF__AT_END __attribute__((destructor))
#endif

/* The name of a library's file. */
#ifdef _WIN32
#define MF__FILE(elf, windows) windows
#else
#define MF__FILE(elf, windows) elf
#endif

/* The calling thread's number, as the system and its tools name it. */
int64_t mf__thread_id(void);

/* Has a function called when the calling thread ends, before the destructors of any library's thread-specific keys are.
 * Not for the main thread, nor where the system has no such moment. */
void mf__at_end_of_thread(void (*fn)(void *));

int32_t mf__process_id(void);

/* As pthread_create. Signals are blocked in the thread, because they are for the program's; not so faults, which belong
 * to the thread that they happen on: a program may let its memory fault and repair that in a handler, and a blocked
 * fault would end the process (POSIX, pthread_sigmask). */
int mf__thread_start(pthread_t *out, void *(*run)(void *), void *arg);

/* How many processors the program's first thread may run on, 1 where the system does not say: any other thread may be
 * bound to fewer for a reason of its own. */
int32_t mf__processors(void);

/* The calling thread may run where the program's first thread may, and not only where whoever started it may. */
void mf__thread_unbind(void);

/* Between these two nothing is a cancellation point of the calling thread: a thread that is cancelled there ends later,
 * and leaves no lock of ours locked and nothing half done (pthread_cancel). The first returns what the second wants;
 * pairs may be nested. All that may be a cancellation point is between them: waits, joins, files, a driver's calls, and
 * foreign code behind which there is more to do. */
int mf__uncancelled_begin(void);
void mf__uncancelled_end(int before);

/* Sleeps for less than a second, and is no cancellation point. */
void mf__nap(int32_t ns);

/* Nanoseconds since some moment, on a clock that nobody sets. */
int64_t mf__clock_ns(void);

/* Whether the program has privileges that its caller lacks (a set-user-ID program, for one), who therefore must not
 * decide what it does. */
bool mf__is_privileged(void);

/* A variable of the environment; NULL where there is none, and in a program with raised privileges. */
const char *mf__environment(const char *name);

/* Has functions called around each fork. Nothing can be done where that fails, and Windows has no fork. */
void mf__at_fork(void (*before)(void), void (*parent)(void), void (*child)(void));

/* The size of a page of memory, a power of two. */
size_t mf__page_nbytes(void);

/* A copy of a file descriptor, -1 where there is no such one; and its end. No driver of Windows takes descriptors. */
int mf__fd_copy(int fd);
void mf__fd_close(int fd);

/* Has a function called at the process's end while its threads still run; never where they do not. */
void mf__at_exit(void (*fn)(void));

/* Loads a library. NULL where that fails: then ${why} says so, and ${absent} whether there is simply no such file. */
void *mf__library_open(const char *file, char *why, size_t room, bool *absent);

/* The address of a function there, or NULL. */
void *mf__library_symbol(void *library, const char *name);

/* Registers what is called as the main thread leaves main, before any exit function; false where this system tells
 * nobody, or another thread than the main one asks. */
bool mf__at_end_of_main(void (*fn)(void *));

#endif /* MOONFERRY_SYSTEM_H */
