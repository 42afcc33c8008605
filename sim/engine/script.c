/* script.c: the line of a Python program that made a call, where SIM_LINES asks for it.
 *
 * The libraries in between let go of the GIL before they call a driver, and to take it here could stop the
 * program for good. So Python's faulthandler is used: its handler writes the traceback of the thread that it runs
 * on, without the GIL. It is registered by a call that Python itself makes when its main thread next can, for a signal
 * that nobody else handles. No signal is sent: the handler is called as the function that it is. Until it is there, the
 * function that it is made of serves, where Python exports it.
 * Invariants: a place that was given stays valid; sim_script_read may be called where a signal is handled. It must not
 * know what the call is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"

enum { MAX_TRACE = 16384, MAX_FILE = 48, MAX_NAME = 24, ROOMS = 1024 };
_Static_assert(SIM_LINE >= MAX_FILE + MAX_NAME + 24, "a file's end, a name, a number and the words between them");

static _Atomic uint64_t left; /* how many places may still be looked up */
static bool asked;
static _Atomic int traces = -1;
static int number;
static void (*dump_thread)(int file, void *thread); /* Python's own, or NULL */
static void *(*own_thread)(void);
static atomic_flag reading = ATOMIC_FLAG_INIT; /* a traceback, by some thread */
static struct place {
  struct place *next;
  char text[SIM_LINE];
} *places[ROOMS];

void sim_script_open(uint64_t lines) {
  left = lines;
}

typedef void handler(int);

/* NULL if nobody handles the signal. */
static handler *handler_of(int signal) {
  struct sigaction action;
  if (sigaction(signal, NULL, &action) != 0 || (action.sa_flags & SA_SIGINFO) != 0) return NULL;
  return action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN ? NULL : action.sa_handler;
}

/* Runs in Python's main thread, with the GIL. */
static int registration(void *nothing) {
  int (*run)(const char *) = NULL;
  char text[300];
  (void)nothing;
  *(void **)&run = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
  snprintf(text, sizeof text,
           "exec('try:\\n import faulthandler\\n faulthandler.register(%d, file=%d, all_threads=False)\\n"
           "except Exception: pass', {})",
           number, traces);
  if (run != NULL) run(text);
  return 0;
}

/* Python may not have started yet, so this is tried at each call until it has. */
static void ask_python(void) {
  int (*started)(void) = NULL, (*later)(int (*)(void *), void *) = NULL;
  *(void **)&started = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
  *(void **)&later = dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
  if (started == NULL || later == NULL || !started()) return;
  *(void **)&dump_thread = dlsym(RTLD_DEFAULT, "_Py_DumpTraceback");
  *(void **)&own_thread = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
  number = SIGRTMAX - 7;
  traces = handler_of(number) == NULL ? memfd_create("sim traces", MFD_CLOEXEC) : -1;
  asked = traces < 0 || later(registration, NULL) == 0;
}

/* Writes the traceback of this thread, if it is one of Python's, to the file. */
static void dump(void) {
  handler *const registered = handler_of(number);
  void *const thread = registered == NULL && own_thread != NULL ? own_thread() : NULL;
  if (registered != NULL) registered(number);
  else if (dump_thread != NULL && thread != NULL) dump_thread(traces, thread);
}

/* The traceback of this thread, or "". */
static void trace(char *out, size_t size) {
  out[0] = '\0';
  if (traces < 0 || ftruncate(traces, 0) != 0 || lseek(traces, 0, SEEK_SET) != 0) return;
  atomic_fetch_sub(&left, 1);
  dump();
  const ssize_t n = pread(traces, out, size - 1, 0);
  out[n > 0 ? n : 0] = '\0';
}

static bool of_a_library(const char *file, size_t length) {
  static const char *const folders[] = {"/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if (memmem(file, length, folders[i], strlen(folders[i])) != NULL) return true;
  return false;
}

/* Reads `  File "FILE", line N in NAME`. */
static bool read_frame(const char *line, char *out, size_t size, bool *library) {
  const char *file = strchr(line, '"');
  const char *end = file == NULL ? NULL : strstr(file, "\", line ");
  if (end == NULL || strncmp(line, "  File ", 7) != 0) return false;
  const size_t length = (size_t)(end - ++file);
  const size_t shown = length < MAX_FILE ? length : MAX_FILE;
  const char *in = end + strlen("\", line ");
  const int digits = (int)strspn(in, "0123456789");
  const char *name = strncmp(in + digits, " in ", 4) == 0 ? in + digits + 4 : "?";
  *library = of_a_library(file, length);
  snprintf(out, size, "%s%.*s:%.*s in %.*s", shown < length ? "..." : "", (int)shown, end - shown, digits, in,
           (int)strcspn(name, "\n") < MAX_NAME ? (int)strcspn(name, "\n") : MAX_NAME, name);
  return true;
}

static const char *kept(const char *text) {
  size_t sum = 5381;
  for (const char *p = text; *p != '\0'; p++) sum = sum * 33 + (unsigned char)*p;
  struct place **room = &places[sum % ROOMS];
  for (const struct place *p = *room; p != NULL; p = p->next)
    if (strcmp(p->text, text) == 0) return p->text;
  struct place *p = malloc(sizeof *p);
  if (p == NULL) abort();
  snprintf(p->text, sizeof p->text, "%s", text);
  p->next = *room;
  *room = p;
  return p->text;
}

/* The innermost line that is no library's, or else the innermost. */
static void read_trace(char *text, char out[SIM_LINE]) {
  char place[SIM_LINE];
  out[0] = '\0';
  for (char *line = text; line != NULL; line = strchr(line, '\n')) {
    bool library;
    line += *line == '\n';
    if (*line == '\0') return;
    if (!read_frame(line, place, sizeof place, &library)) continue;
    if (!library || out[0] == '\0') memcpy(out, place, sizeof place);
    if (!library) return;
  }
}

void sim_script_read(char out[SIM_LINE]) {
  static char text[MAX_TRACE]; /* the stack that a signal is handled on may be small */
  const int error = errno;
  out[0] = '\0';
  if (left == 0 || traces < 0 || !sim_is_owner()) return;
  while (atomic_flag_test_and_set(&reading)) sched_yield();
  trace(text, sizeof text);
  read_trace(text, out);
  atomic_flag_clear(&reading);
  errno = error;
}

const char *sim_script_keep(const char *line) {
  return *line == '\0' ? NULL : kept(line);
}

const char *sim_script_place(void) {
  char line[SIM_LINE];
  if (left == 0 || !sim_is_owner()) return NULL;
  if (!asked) ask_python();
  sim_script_read(line);
  return sim_script_keep(line);
}
