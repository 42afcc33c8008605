/* spec.h: what the specs of the device layer share: the runtime's insides, the backend under test, and the simulator's
 * questions where the driver is a simulated one. On a real driver those answer "nothing" and what rests on them is
 * skipped. */
#ifndef GPU_SPEC_H
#define GPU_SPEC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "forked.h"

#ifdef SPEC_HIP
#define BACKEND mf__backend_hip
#define LIBRARY "libamdhip64.so.7"
#define IS_HIP 1
#else
#define BACKEND mf__backend_cuda
#define LIBRARY "libcuda.so.1"
#define IS_HIP 0
#endif

static const mf__backend *const gpu = &BACKEND;
static mf_error err;

#define OK(call)                                                                 \
  do {                                                                           \
    memset(&err, 0, sizeof err);                                                 \
    const int ok_rc = (call);                                                    \
    if (ok_rc != MF_OK) fail_msg("%s: %d, %s", #call, ok_rc, err.message);       \
  } while (0)
#define FAILS(call, expected)                                                    \
  do {                                                                           \
    memset(&err, 0, sizeof err);                                                 \
    const int fails_rc = (call);                                                 \
    if (fails_rc != (expected)) fail_msg("%s: %d, %s", #call, fails_rc, err.message); \
    assert_int_equal(err.status, expected);                                      \
  } while (0)
#define SAYS(text)                                                               \
  do {                                                                           \
    if (strstr(err.message, text) == NULL) fail_msg("\"%s\" is not in: %s", text, err.message); \
  } while (0)

/* A function of the driver's library, or of the simulator in it; NULL if it has none. */
static inline void *driver_symbol(const char *name) {
  void *library = dlopen(LIBRARY, RTLD_NOW);
  return library == NULL ? NULL : dlsym(library, name);
}

static inline bool simulated(void) {
  return driver_symbol("sim_fail") != NULL;
}

static inline int64_t sim_left(const char *what) {
  int64_t (*ask)(const char *);
  *(void **)&ask = driver_symbol("sim_left");
  return ask == NULL ? 0 : ask(what);
}

static inline uint64_t sim_calls(const char *name) {
  uint64_t (*ask)(const char *);
  *(void **)&ask = driver_symbol("sim_calls");
  return ask == NULL ? 0 : ask(name);
}

static inline uint64_t sim_findings(void) {
  uint64_t (*ask)(int);
  *(void **)&ask = driver_symbol("sim_findings");
  return ask == NULL ? 0 : ask(0);
}

static inline void sim_show(void) {
  const char *(*ask)(size_t);
  *(void **)&ask = driver_symbol("sim_finding");
  for (size_t i = 0; ask != NULL && ask(i) != NULL; i++) print_message("%s\n", ask(i));
}

static inline void sim_reset(void) {
  void (*ask)(void);
  *(void **)&ask = driver_symbol("sim_reset");
  if (ask != NULL) ask();
}

static inline uint64_t sim_faults(void) {
  uint64_t (*ask)(void);
  *(void **)&ask = driver_symbol("sim_faults");
  return ask == NULL ? 0 : ask();
}

static inline void sim_fail(const char *rules) {
  int (*ask)(const char *);
  *(void **)&ask = driver_symbol("sim_fail");
  if (ask != NULL) assert_int_equal(ask(rules), 0);
}

/* A call of the driver's with one argument, or none, by the program itself. */
static inline int driver_call(const char *name, void *argument) {
  int (*function)(void *);
  *(void **)&function = driver_symbol(name);
  return function(argument);
}

/* The program's current context, or HIP device. */
static inline void *driver_current(void) {
  void *now = NULL;
  assert_int_equal(driver_call(IS_HIP ? "hipGetDevice" : "cuCtxGetCurrent", &now), 0);
  return now;
}

/* HIP's last error, which is the program's; 0 where there is none. */
static inline int driver_last_error(void) {
  int (*last)(void);
  *(void **)&last = driver_symbol("hipGetLastError");
  return last == NULL ? 0 : last();
}

enum { CAPTURE_GLOBAL = 0, CAPTURE_RELAXED = 2 };

static inline void capture_start(mf_stream s, int mode) {
  int (*start)(void *, int);
  *(void **)&start = driver_symbol(IS_HIP ? "hipStreamBeginCapture" : "cuStreamBeginCapture_v2");
  assert_int_equal(start((void *)(intptr_t)s, mode), 0);
}

/* The driver's answer; a graph is thrown away. */
static inline int capture_end(mf_stream s) {
  int (*end)(void *, void **);
  void *graph = NULL;
  *(void **)&end = driver_symbol(IS_HIP ? "hipStreamEndCapture" : "cuStreamEndCapture");
  const int rc = end((void *)(intptr_t)s, &graph);
  if (rc == 0) assert_int_equal(driver_call(IS_HIP ? "hipGraphDestroy" : "cuGraphDestroy", graph), 0);
  return rc;
}

/* Nothing was found, and nothing is left. */
static inline void sim_clean(void) {
  static const char *const sorts[] = {"memory", "streams", "events", "contexts", "captures", "pending"};
  if (sim_findings() != 0) sim_show();
  assert_int_equal(sim_findings(), 0);
  for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++)
    if (sim_left(sorts[i]) != 0) fail_msg("%s left: %lld", sorts[i], (long long)sim_left(sorts[i]));
}

/* The end of a spec that used the backend alone: the devices are given back, with all that the driver held there. */
static inline int forget_all(void **state) {
  (void)state;
  gpu->device_forget(0);
  gpu->device_forget(1);
  sim_clean();
  assert_int_equal(sim_left("pools"), 0);
  sim_reset();
  return 0;
}

/* Runs a spec in a process of its own, with settings for the simulator that only count at its start. */
typedef void (*child_fn)(void);
static const char *child_settings;
static child_fn child_body;

static inline void set_and_run(void) {
  char *copy = strdup(child_settings), *save = NULL;
  for (char *item = strtok_r(copy, " ", &save); item != NULL; item = strtok_r(NULL, " ", &save)) putenv(item);
  child_body();
}

static inline void in_child(const char *settings, child_fn fn) {
  child_settings = settings;
  child_body = fn;
  const int status = status_in_fork(set_and_run);
  if (status != 0) fail_msg("the child of \"%s\" ended with %d", settings, status);
}

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "%s:%d: %s; err: %s\n", __FILE__, __LINE__, #condition, err.message); \
      _exit(1);                                                                      \
    }                                                                                \
  } while (0)

static inline void needs_devices(int32_t wanted) {
  int32_t n = 0;
  OK(gpu->device_count(&n, &err));
  if (n >= wanted) return;
  print_message("skipped: %d devices are needed\n", wanted);
  skip();
}

static inline void skip_unless(bool is_simulated) {
  if (is_simulated) return;
  print_message("skipped: a real driver cannot be told to fail\n");
  skip();
}

static inline void needs_simulator(void) {
  skip_unless(simulated());
}

/* The same before this process opens the driver: a child finds out, which may open it. */
static inline void say_whether_simulated(void) {
  if (!simulated()) _exit(1);
}

static inline void needs_simulator_later(void) {
  skip_unless(status_in_fork(say_whether_simulated) == 0);
}

#endif
