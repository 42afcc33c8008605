/* other.c: see other.h. It must not know the runtime: its own table of calls, its own contexts. */
#include "other.h"

#include <dlfcn.h>
#include <pthread.h>
#include <dlpack/dlpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MAX_DEVICES 16

typedef void *handle;
typedef uintptr_t address;

/* cu* and hip* calls of the same shape share a slot; what differs is written out below. */
static struct {
  int (*init)(unsigned);
  int (*count)(int *);
  int (*retain)(handle *, int);
  int (*release)(int);
  int (*push)(handle), (*pop)(handle *), (*get)(handle *), (*set)(handle);
  int (*get_device)(int *), (*set_device)(int);
  int (*state)(int, unsigned *, int *);
  int (*stream_create)(handle *, unsigned), (*stream_destroy)(handle), (*stream_sync)(handle);
  int (*stream_wait)(handle, handle, unsigned);
  int (*event_create)(handle *, unsigned), (*event_record)(handle, handle), (*event_destroy)(handle);
  int (*fill)(address, unsigned char, size_t, handle);
  int (*cuda_copy)(address, address, size_t, handle);
  int (*hip_copy)(void *, const void *, size_t, int, handle);
  int (*alloc)(address *, size_t), (*free)(address);
  int (*managed)(address *, size_t, unsigned);
  int (*pinned)(void **, size_t, unsigned), (*pinned_free)(void *);
  int (*sync)(void);
  int (*capture)(handle, int), (*capture_end)(handle, handle *);
  int (*instantiate)(handle *, handle, unsigned long long);
  int (*launch)(handle, handle), (*graph_destroy)(handle), (*exec_destroy)(handle);
  int (*capturing)(handle, int *);
} call;

static struct {
  uint64_t (*calls)(const char *), (*findings)(sim_kind), (*faults)(void);
  const char *(*finding)(size_t);
  void (*reset)(void), (*seed)(uint64_t);
  int (*fail)(const char *);
  int64_t (*left)(const char *);
  void (*host)(const void *, size_t, int);
  int (*at)(const char *, uint64_t, void (*)(void *), void *);
  int (*semaphore)(uint64_t, int), (*semaphore_read)(int, uint64_t *), (*semaphore_signal)(int, uint64_t);
} sim;

typedef struct entry {
  void *slot;
  const char *cuda, *hip;
} entry;

static const entry entries[] = {
    {&call.init, "cuInit", "hipInit"},
    {&call.count, "cuDeviceGetCount", "hipGetDeviceCount"},
    {&call.retain, "cuDevicePrimaryCtxRetain", NULL},
    {&call.release, "cuDevicePrimaryCtxRelease_v2", NULL},
    {&call.push, "cuCtxPushCurrent_v2", NULL},
    {&call.pop, "cuCtxPopCurrent_v2", NULL},
    {&call.get, "cuCtxGetCurrent", NULL},
    {&call.set, "cuCtxSetCurrent", NULL},
    {&call.state, "cuDevicePrimaryCtxGetState", NULL},
    {&call.get_device, NULL, "hipGetDevice"},
    {&call.set_device, NULL, "hipSetDevice"},
    {&call.stream_create, "cuStreamCreate", "hipStreamCreateWithFlags"},
    {&call.stream_destroy, "cuStreamDestroy_v2", "hipStreamDestroy"},
    {&call.stream_sync, "cuStreamSynchronize", "hipStreamSynchronize"},
    {&call.stream_wait, "cuStreamWaitEvent", "hipStreamWaitEvent"},
    {&call.event_create, "cuEventCreate", "hipEventCreateWithFlags"},
    {&call.event_record, "cuEventRecord", "hipEventRecord"},
    {&call.event_destroy, "cuEventDestroy_v2", "hipEventDestroy"},
    {&call.fill, "cuMemsetD8Async", "hipMemsetD8Async"},
    {&call.cuda_copy, "cuMemcpyAsync", NULL},
    {&call.hip_copy, NULL, "hipMemcpyAsync"},
    {&call.alloc, "cuMemAlloc_v2", "hipMalloc"},
    {&call.managed, "cuMemAllocManaged", NULL},
    {&call.free, "cuMemFree_v2", "hipFree"},
    {&call.pinned, "cuMemHostAlloc", "hipHostMalloc"},
    {&call.pinned_free, "cuMemFreeHost", "hipHostFree"},
    {&call.sync, "cuCtxSynchronize", "hipDeviceSynchronize"},
    {&call.capture, "cuStreamBeginCapture_v2", "hipStreamBeginCapture"},
    {&call.capture_end, "cuStreamEndCapture", "hipStreamEndCapture"},
    {&call.capturing, "cuStreamIsCapturing", "hipStreamIsCapturing"},
    {&call.instantiate, "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags"},
    {&call.launch, "cuGraphLaunch", "hipGraphLaunch"},
    {&call.graph_destroy, "cuGraphDestroy", "hipGraphDestroy"},
    {&call.exec_destroy, "cuGraphExecDestroy", "hipGraphExecDestroy"},
};

static const entry questions[] = {
    {&sim.calls, "sim_calls", "sim_calls"},       {&sim.findings, "sim_findings", "sim_findings"},
    {&sim.faults, "sim_faults", "sim_faults"},    {&sim.finding, "sim_finding", "sim_finding"},
    {&sim.reset, "sim_reset", "sim_reset"},       {&sim.seed, "sim_seed", "sim_seed"},
    {&sim.fail, "sim_fail", "sim_fail"},          {&sim.left, "sim_left", "sim_left"},
    {&sim.host, "sim_host_access", "sim_host_access"}, {&sim.at, "sim_at", "sim_at"},
    {&sim.semaphore, "sim_semaphore_create", "sim_semaphore_create"},
    {&sim.semaphore_read, "sim_semaphore_read", "sim_semaphore_read"},
    {&sim.semaphore_signal, "sim_semaphore_signal", "sim_semaphore_signal"},
};

static bool is_hip;
static bool counts_cuda; /* the simulator's calls are CUDA's */
static int ndevices;
static handle contexts[MAX_DEVICES];

static bool tolerant;

void other_tolerate(bool on) {
  tolerant = on;
}

static void check(int status, const char *what) {
  if (status == 0 || tolerant) return;
  fprintf(stderr, "other library: %s answered %d\n", what, status);
  abort();
}

#define DO(slot, ...) check(call.slot(__VA_ARGS__), #slot)

static bool find(void *library, const entry *e, size_t count, bool all) {
  for (size_t i = 0; i < count; i++) {
    const char *name = is_hip ? e[i].hip : e[i].cuda;
    void *symbol = name == NULL ? NULL : dlsym(library, name);
    if (all && name != NULL && symbol == NULL) printf("no GPU: the driver has no %s\n", name);
    if (all && name != NULL && symbol == NULL) return false;
    memcpy(e[i].slot, &symbol, sizeof symbol);
  }
  return true;
}

static void *open_library(void) {
  static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", NULL};
  const char *kind = getenv("MOONFERRY_SPEC_DEVICE");
  is_hip = kind != NULL && strcmp(kind, "rocm") == 0;
  if (!is_hip) return dlopen("libcuda.so.1", RTLD_NOW);
  for (int i = 0; names[i] != NULL; i++) {
    void *library = dlopen(names[i], RTLD_NOW);
    if (library != NULL) return library;
  }
  return NULL;
}

/* The HIP runtime that forwards to CUDA has its simulator behind it. */
static void find_simulator(void *library) {
  if (is_hip && dlsym(library, "sim_findings") == NULL) {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    counts_cuda = true;
  }
  counts_cuda |= !is_hip;
  if (library != NULL) (void)find(library, questions, sizeof questions / sizeof *questions, false);
}

static void release_contexts(void) {
  for (int i = 0; i < ndevices && !is_hip; i++)
    if (contexts[i] != NULL) (void)call.release(i);
}

/* Only of the devices that are used, as a library of one of several ranks does. */
static handle context_of(int device) {
  if (contexts[device] == NULL) DO(retain, &contexts[device], device);
  return contexts[device];
}

bool other_open(void) {
  void *library = open_library();
  int count = 0;
  if (library == NULL) printf("no GPU: %s\n", dlerror());
  if (library == NULL || !find(library, entries, sizeof entries / sizeof *entries, true)) return false;
  const bool begun = call.init(0) == 0;
  find_simulator(library); /* what is forwarded to is loaded by now */
  if (!begun || call.count(&count) != 0 || count == 0) {
    printf("no GPU: the driver has no device\n");
    return false;
  }
  ndevices = count < MAX_DEVICES ? count : MAX_DEVICES;
  atexit(release_contexts);
  return true;
}

bool other_is_simulated(void) {
  return sim_ask_is_direct();
}

int other_device_type(void) {
  return is_hip ? kDLROCM : kDLCUDA;
}

int other_pinned_type(void) {
  return is_hip ? kDLROCMHost : kDLCUDAHost;
}

int other_managed_type(void) {
  return is_hip ? 0 : kDLCUDAManaged;
}

int other_devices(void) {
  return ndevices;
}

enum { NOT_ENTERED = -1 }; /* where failures are tolerated */

/* Nothing in between is a cancellation point: cancel_spec.c asks what the calls of Moonferry's do. */
static _Thread_local int cancelling;

/* The device that was current, as HIP counts them. */
static int enter(int device) {
  int before = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
  if (!is_hip) {
    const handle context = context_of(device);
    const int status = call.push(context);
    check(status, "push");
    return status == 0 ? 0 : NOT_ENTERED;
  }
  DO(get_device, &before);
  DO(set_device, device);
  return before;
}

static void leave(int before) {
  handle ignored;
  if (is_hip && before != NOT_ENTERED)
    DO(set_device, before);
  else if (before != NOT_ENTERED)
    DO(pop, &ignored);
  pthread_setcancelstate(cancelling, NULL);
}

static handle native(int64_t stream) {
  return (handle)(uintptr_t)(is_hip && stream == 1 ? 0 : stream);
}

int64_t other_stream(int device, bool blocking) {
  handle s;
  const int before = enter(device);
  DO(stream_create, &s, blocking ? 0 : 1);
  leave(before);
  return (int64_t)(uintptr_t)s;
}

void other_stream_end(int64_t stream) {
  DO(stream_destroy, native(stream));
}

void other_fill(int device, void *p, int byte, size_t nbytes, int64_t stream) {
  const int before = enter(device);
  if (before != NOT_ENTERED) DO(fill, (address)p, (unsigned char)byte, nbytes, native(stream));
  leave(before);
}

void other_busy(int device, int64_t stream) {
  enum { NBYTES = 256 << 20, TIMES = 400 };
  static void *scratch; /* until the process ends */
  if (sim_ask_is_there() || getenv("MOONFERRY_SPEC_MUTE") != NULL) return;
  if (scratch == NULL) scratch = other_alloc(device, NBYTES);
  for (int i = 0; i < TIMES; i++) other_fill(device, scratch, 0, NBYTES, stream);
}

void other_copy(int device, void *dst, const void *src, size_t nbytes, int64_t stream) {
  const int any_kind = 4;
  const int before = enter(device);
  if (is_hip)
    DO(hip_copy, dst, src, nbytes, any_kind, native(stream));
  else
    DO(cuda_copy, (address)dst, (address)src, nbytes, native(stream));
  leave(before);
}

void other_after(int device, int64_t stream, int64_t earlier) {
  const unsigned no_timing = 2;
  handle event;
  const int before = enter(device);
  DO(event_create, &event, no_timing);
  DO(event_record, event, native(earlier));
  DO(stream_wait, native(stream), event, 0);
  DO(event_destroy, event);
  leave(before);
}

void other_sync(int device, int64_t stream) {
  const int before = enter(device);
  DO(stream_sync, native(stream));
  leave(before);
}

void other_sync_all(int device) {
  const int before = enter(device);
  DO(sync);
  leave(before);
}

void *other_alloc(int device, size_t nbytes) {
  address p;
  const int before = enter(device);
  DO(alloc, &p, nbytes);
  leave(before);
  return (void *)p;
}

void other_free(int device, void *p) {
  const int before = enter(device);
  DO(free, (address)p);
  leave(before);
}

void *other_pinned(size_t nbytes) {
  void *p;
  const int before = enter(0);
  DO(pinned, &p, nbytes, 1);
  leave(before);
  return p;
}

void other_pinned_free(void *p) {
  const int before = enter(0);
  DO(pinned_free, p);
  leave(before);
}

void other_capture(int device, int64_t stream) {
  const int before = enter(device);
  DO(capture, native(stream), 0);
  leave(before);
}

bool other_capture_is_whole(int device, int64_t stream) {
  enum { ACTIVE = 1 };
  int status = 0;
  const int before = enter(device);
  DO(capturing, native(stream), &status);
  leave(before);
  return status == ACTIVE;
}

void other_capture_give_up(int device, int64_t stream) {
  handle graph = NULL;
  const int before = enter(device);
  if (call.capture_end(native(stream), &graph) == 0) check(-1, "ending a capture that was broken");
  leave(before);
}

void *other_capture_end(int device, int64_t stream) {
  handle graph, exec;
  const int before = enter(device);
  DO(capture_end, native(stream), &graph);
  DO(instantiate, &exec, graph, 0);
  DO(graph_destroy, graph);
  leave(before);
  return exec;
}

void other_launch(int device, void *graph, int64_t stream) {
  const int before = enter(device);
  DO(launch, graph, native(stream));
  leave(before);
}

void other_graph_end(int device, void *graph) {
  const int before = enter(device);
  DO(exec_destroy, graph);
  leave(before);
}

void *other_current(void) {
  handle context = NULL;
  int device = 0;
  if (!is_hip) {
    DO(get, &context);
    return context;
  }
  DO(get_device, &device);
  return (void *)(uintptr_t)(unsigned)device;
}

void other_current_set(int device) {
  if (is_hip)
    DO(set_device, device < 0 ? 0 : device);
  else
    DO(set, device < 0 ? NULL : context_of(device));
}

bool other_is_active(int device) {
  unsigned flags;
  int active = 0;
  if (!is_hip) DO(state, device, &flags, &active);
  return active != 0;
}

void *other_managed(int device, size_t nbytes) {
  address p;
  const int before = enter(device);
  DO(managed, &p, nbytes, 1);
  leave(before);
  return (void *)p;
}

uint64_t seed_of(uint64_t number) {
  const char *text = getenv("MOONFERRY_SPEC_SEED");
  return number == 0 || text == NULL ? number : number + strtoull(text, NULL, 10);
}

void sim_ask_seed(uint64_t seed) {
  if (sim.seed != NULL) sim.seed(seed_of(seed));
}

void sim_ask_reset(void) {
  if (sim.reset != NULL) sim.reset();
}

uint64_t sim_ask_findings(void) {
  if (sim.findings == NULL) return 0;
  const uint64_t count = sim.findings(SIM_ANY);
  for (size_t i = 0; count > 0 && sim.finding(i) != NULL; i++) printf("%s\n", sim.finding(i));
  return count;
}

uint64_t sim_ask_found(int kind) {
  return sim.findings == NULL ? 0 : sim.findings((sim_kind)kind);
}

const char *named(const char *cuda, const char *hip) {
  return counts_cuda ? cuda : hip;
}

bool sim_ask_is_direct(void) {
  return sim.findings != NULL && counts_cuda != is_hip;
}

bool sim_ask_is_there(void) {
  return sim.findings != NULL;
}

uint64_t sim_ask_calls(const char *name) {
  return sim.calls == NULL ? 0 : sim.calls(name);
}

int64_t sim_ask_left(const char *what) {
  return sim.left == NULL ? 0 : sim.left(what);
}

void sim_ask_fail(const char *rules) {
  if (sim.fail == NULL || sim.fail(rules) == 0) return;
  fprintf(stderr, "other library: \"%s\" is no rule\n", rules);
  abort();
}

uint64_t sim_ask_faults(void) {
  return sim.faults == NULL ? 0 : sim.faults();
}

void sim_ask_at(const char *cuda, const char *hip, uint64_t nth, void (*fn)(void *ctx), void *ctx) {
  if (sim.at == NULL || sim.at(named(cuda, hip), nth, fn, ctx) == 0) return;
  fprintf(stderr, "other library: %s cannot be waited for\n", cuda);
  abort();
}

void sim_ask_host(const void *p, size_t nbytes, bool write) {
  if (sim.host != NULL) sim.host(p, nbytes, write);
}

int sim_ask_semaphore(uint64_t value, bool binary) {
  return sim.semaphore == NULL ? -1 : sim.semaphore(value, binary);
}

uint64_t sim_ask_semaphore_value(int fd) {
  uint64_t value = 0;
  if (sim.semaphore_read != NULL) check(sim.semaphore_read(fd, &value), "semaphore_read");
  return value;
}

void sim_ask_semaphore_signal(int fd, uint64_t value) {
  if (sim.semaphore_signal != NULL) check(sim.semaphore_signal(fd, value), "semaphore_signal");
}
