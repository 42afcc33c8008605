/* entry.c: the exported functions, each thread's last error, and finding functions by name.
 *
 * Invariant: every call of the program passes sim_enter and sim_leave once, whichever name it came in by, and what
 * it got is the thread's last error if it is one. It must not know what a call does. */
#include <string.h>

#include "front.h"

static _Thread_local bool per_thread;
static _Thread_local hipError_t last_error;

bool sim_default_is_per_thread(void) {
  return per_thread;
}

static bool enter(sim_call *c, sim_counter *counter, void *caller, unsigned how, bool twin) {
  sim_set_numbers(hipErrorIllegalState, hipErrorNotInitialized);
  if (sim_enter(c, counter, caller, how)) return true;
  per_thread = twin;
  const hipError_t rc = (how & NO_DEVICE) != 0 ? hipSuccess : device_enter();
  if (rc == hipSuccess) return false;
  c->raw = (int)rc;
  return true;
}

static hipError_t leave(sim_call *c, int raw, unsigned how) {
  const hipError_t answer = (hipError_t)sim_leave(c, raw);
  const bool error = answer != hipSuccess && answer != hipErrorNotReady;
  if (error && (how & KEEPS_ERROR) == 0) last_error = answer;
  return answer;
}

static hipError_t refuse(sim_counter *counter, void *caller) {
  sim_call c;
  sim_set_numbers(hipErrorIllegalState, hipErrorNotInitialized);
  if (!sim_enter(&c, counter, caller, 0)) sim_log_detail("not simulated");
  return leave(&c, hipErrorNotSupported, 0);
}

#define VERSION(symbol, version) __asm__(".symver " #symbol ", " #symbol "@@@" #version);

/* Names of parameters come from the list, so the names in here must not be among them. */
#define ENTRY(name, symbol, version, how, twin, params, args)                                         \
  VERSION(symbol, version)                                                                            \
  SIM_PUBLIC hipError_t symbol params;                                                                \
  hipError_t symbol params {                                                                          \
    static sim_counter entry_counter = {#name, 0, 0, false, NULL};                                    \
    sim_call entry_call;                                                                              \
    if (enter(&entry_call, &entry_counter, __builtin_return_address(0), (unsigned)(how), twin))       \
      return leave(&entry_call, entry_call.raw, (unsigned)(how));                                     \
    return leave(&entry_call, (int)do_##name args, (unsigned)(how));                                  \
  }
#define CALL(name, version, how, params, args) ENTRY(name, name, version, how, false, params, args)
#define SCALL(name, version, newer, how, params, args) \
  CALL(name, version, how, params, args)               \
  ENTRY(name, name##_spt, newer, how, true, params, args)
#define REFUSE(name, version)                                      \
  VERSION(name, version)                                           \
  SIM_PUBLIC hipError_t name(void);                                \
  hipError_t name(void) {                                          \
    static sim_counter entry_counter = {#name, 0, 0, false, NULL}; \
    return refuse(&entry_counter, __builtin_return_address(0));    \
  }
#include "calls.def"
#undef CALL
#undef SCALL
#undef REFUSE

typedef void (*any_function)(void);
typedef struct row {
  const char *name;
  any_function plain, per_thread;
} row;

#define CALL(name, version, how, params, args) {#name, (any_function)name, (any_function)name},
#define SCALL(name, version, newer, how, params, args)      \
  {#name, (any_function)name, (any_function)name##_spt},    \
  {#name "_spt", (any_function)name##_spt, (any_function)name##_spt},
#define REFUSE(name, version) {#name, (any_function)name, (any_function)name},
static const row rows[] = {
#include "calls.def"
};
#undef CALL
#undef SCALL
#undef REFUSE

enum { PER_THREAD_DEFAULT_STREAM = 2 };

hipError_t do_hipGetProcAddress(const char *name, void **fn, int version, uint64_t flags,
                                hipDriverProcAddressQueryResult *why) {
  any_function found = NULL;
  (void)version;
  if (name == NULL || fn == NULL || flags > PER_THREAD_DEFAULT_STREAM) return hipErrorInvalidValue;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].name, name) == 0)
      found = (flags & PER_THREAD_DEFAULT_STREAM) != 0 ? rows[i].per_thread : rows[i].plain;
  if (sim_named(sim_conf.missing, name)) found = NULL;
  memcpy(fn, &found, sizeof found);
  if (why != NULL) *why = found == NULL ? HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : HIP_GET_PROC_ADDRESS_SUCCESS;
  return found == NULL ? hipErrorInvalidValue : hipSuccess;
}

hipError_t do_hipGetLastError(void) {
  const hipError_t e = last_error;
  last_error = hipSuccess;
  return e;
}

hipError_t do_hipExtGetLastError(void) {
  return do_hipGetLastError();
}

hipError_t do_hipPeekAtLastError(void) {
  return last_error;
}

/* What follows answers with something else than a status, makes no call on a device, and is not counted. */
VERSION(hipGetErrorName, hip_4.2)
SIM_PUBLIC const char *hipGetErrorName(hipError_t e);
const char *hipGetErrorName(hipError_t e) {
  return error_name(e);
}

VERSION(hipGetErrorString, hip_4.2)
SIM_PUBLIC const char *hipGetErrorString(hipError_t e);
const char *hipGetErrorString(hipError_t e) {
  return error_text(e);
}

VERSION(hipGetStreamDeviceId, hip_4.2)
SIM_PUBLIC int hipGetStreamDeviceId(hipStream_t s);
int hipGetStreamDeviceId(hipStream_t s) {
  hipDevice_t device = hipInvalidDeviceId;
  return hipStreamGetDevice(s, &device) == hipSuccess ? device : hipInvalidDeviceId;
}

/* Compiled kernels announce themselves when their library is loaded. Launching one is what is refused. */
VERSION(__hipRegisterFatBinary, hip_4.2)
SIM_PUBLIC void **__hipRegisterFatBinary(const void *data);
void **__hipRegisterFatBinary(const void *data) {
  static void *modules;
  (void)data;
  return &modules;
}

VERSION(__hipRegisterFunction, hip_4.2)
SIM_PUBLIC void __hipRegisterFunction(void);
void __hipRegisterFunction(void) {
}

VERSION(__hipRegisterVar, hip_4.2)
SIM_PUBLIC void __hipRegisterVar(void);
void __hipRegisterVar(void) {
}

VERSION(__hipUnregisterFatBinary, hip_4.2)
SIM_PUBLIC void __hipUnregisterFatBinary(void **modules);
void __hipUnregisterFatBinary(void **modules) {
  (void)modules;
}
