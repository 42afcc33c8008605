/* spec.h: what the specs of the device layer share: the runtime's insides, the backend under test, and the simulator's
 * questions where the driver is a simulated one. On a real driver those answer "nothing" and what rests on them is
 * skipped. */
#ifndef GPU_SPEC_H
#define GPU_SPEC_H

#include <dlfcn.h>

#include "device/device.h" /* first: its inline functions have parameters called err */

#include "check.h"

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

/* A function of the driver's library, or of the simulator in it; NULL if it has none. */
static inline void *driver_symbol(const char *name) {
  void *library = dlopen(LIBRARY, RTLD_NOW);
  return library == NULL ? NULL : dlsym(library, name);
}

static inline bool simulated(void) {
  return driver_symbol("sim_fail") != NULL;
}

static inline int64_t sim_ask_left(const char *what) {
  int64_t (*ask)(const char *);
  *(void **)&ask = driver_symbol("sim_left");
  return ask == NULL ? 0 : ask(what);
}

static inline uint64_t sim_ask_calls(const char *name) {
  uint64_t (*ask)(const char *);
  *(void **)&ask = driver_symbol("sim_calls");
  return ask == NULL ? 0 : ask(name);
}

/* Prints them. */
static inline uint64_t sim_ask_findings(void) {
  uint64_t (*count)(int);
  const char *(*text)(size_t);
  *(void **)&count = driver_symbol("sim_findings");
  *(void **)&text = driver_symbol("sim_finding");
  if (count == NULL) return 0;
  for (size_t i = 0; text(i) != NULL; i++) print_message("%s\n", text(i));
  return count(0);
}

static inline void sim_ask_reset(void) {
  void (*ask)(void);
  *(void **)&ask = driver_symbol("sim_reset");
  if (ask != NULL) ask();
}

static inline uint64_t sim_ask_faults(void) {
  uint64_t (*ask)(void);
  *(void **)&ask = driver_symbol("sim_faults");
  return ask == NULL ? 0 : ask();
}

static inline void sim_ask_fail(const char *rules) {
  int (*ask)(const char *);
  *(void **)&ask = driver_symbol("sim_fail");
  if (ask != NULL) assert_int_equal(ask(rules), 0);
}

/* Runs `fn` within the nth call of that name from now on; none of a NULL name. */
static inline void sim_ask_at(const char *name, uint64_t nth, void (*fn)(void *)) {
  int (*ask)(const char *, uint64_t, void (*)(void *), void *);
  *(void **)&ask = driver_symbol("sim_at");
  assert_int_equal(ask(name, nth, fn, NULL), 0);
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
static inline void expect_clean_driver(void) {
  assert_int_equal(sim_ask_findings(), 0);
  expect_empty_driver(sim_ask_left);
}

/* The end of a spec that used the backend alone: the devices are given back, with all that the driver held there. */
static inline int forget_all(void **state) {
  (void)state;
  gpu->device_forget(0);
  gpu->device_forget(1);
  expect_clean_driver();
  assert_int_equal(sim_ask_left("pools"), 0);
  sim_ask_reset();
  return 0;
}

/* In a child, which fails by its status. */
#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "%s:%d: %s; err: %s\n", __FILE__, __LINE__, #condition, err.message); \
      _exit(1);                                                                      \
    }                                                                                \
  } while (0)

static inline void needs_devices(int wanted) {
  int32_t found = 0;
  OK(gpu->device_count(&found, &err));
  skip_unless_devices(found, wanted);
}

static inline void needs_simulator(void) {
  skip_unless_simulated(simulated());
}

/* The same before this process opens the driver: a child finds out, which may open it. */
static inline void say_whether_simulated(void) {
  if (!simulated()) _exit(1);
}

static inline void needs_simulator_later(void) {
  skip_unless_simulated(status_in_fork(say_whether_simulated) == 0);
}

#endif
