/* entry.c: the exported functions, and finding them by name.
 *
 * Invariant: every call of the program passes sim_enter and sim_leave once, whichever name it came in by. It
 * must not know what a call does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

static _Thread_local bool per_thread;

bool per_thread_default(void) {
  return per_thread;
}

static bool enter(sim_call *c, sim_counter *counter, void *caller, unsigned how, bool ptds) {
  sim_set_numbers(CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_INITIALIZED);
  if (sim_enter(c, counter, caller, how)) return true;
  per_thread = ptds;
  if ((how & NO_INIT) != 0 || sim_ready()) return false;
  c->raw = CUDA_ERROR_NOT_INITIALIZED;
  return true;
}

/* Names of parameters come from the list, so the names in here must not be among them. */
#define ENTRY(base, symbol, do_symbol, how, ptds, params, args)                                  \
  SIM_PUBLIC CUresult symbol params;                                                             \
  CUresult symbol params {                                                                       \
    static sim_counter entry_counter = {#base, 0, 0, false, NULL};                               \
    sim_call entry_call;                                                                         \
    if (enter(&entry_call, &entry_counter, __builtin_return_address(0), (unsigned)(how), ptds)) \
      return (CUresult)sim_leave(&entry_call, entry_call.raw);                                   \
    return (CUresult)sim_leave(&entry_call, (int)do_symbol args);                                \
  }
#define CALL(base, symbol, since, how, params, args) ENTRY(base, symbol, do_##symbol, how, false, params, args)
#define SCALL(base, symbol, since, how, params, args) \
  CALL(base, symbol, since, how, params, args)        \
  ENTRY(base, symbol##_ptsz, do_##symbol, how, true, params, args)
#define DCALL(base, symbol, since, how, params, args) \
  CALL(base, symbol, since, how, params, args)        \
  ENTRY(base, symbol##_ptds, do_##symbol, how, true, params, args)
#include "calls.def"
#undef CALL
#undef SCALL
#undef DCALL

typedef void (*any_function)(void);
typedef struct row {
  const char *name;
  int since;
  any_function plain, per_thread;
} row;

#define CALL(base, symbol, since, how, params, args) {#base, since, (any_function)symbol, (any_function)symbol},
#define SCALL(base, symbol, since, how, params, args) \
  {#base, since, (any_function)symbol, (any_function)symbol##_ptsz},
#define DCALL(base, symbol, since, how, params, args) \
  {#base, since, (any_function)symbol, (any_function)symbol##_ptds},
static const row rows[] = {
#include "calls.def"
};

#undef CALL
#undef SCALL
#undef DCALL

#define CALL(base, symbol, since, how, params, args) {#symbol, since},
#define SCALL(base, symbol, since, how, params, args) {#symbol, since}, {#symbol "_ptsz", since},
#define DCALL(base, symbol, since, how, params, args) {#symbol, since}, {#symbol "_ptds", since},
static const struct {
  const char *name;
  int since;
} symbols[] = {
#include "calls.def"
};

/* What a driver of the chosen version lacks, dlsym does not find either. */
__attribute__((constructor)) static void hide_newer(void) {
  const char *text = getenv("SIM_DRIVER_VERSION");
  const long chosen = text == NULL || *text == '\0' ? DRIVER_VERSION : strtol(text, NULL, 0);
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
    if (symbols[i].since > chosen) sim_hide(symbols[i].name);
}

enum { NSTUBS = 1024 };
static sim_counter stubs[NSTUBS];
static char stub_names[NSTUBS][64];
static size_t nstubs;

static CUresult refuse(unsigned i, void *caller) {
  sim_call c;
  if (!sim_enter(&c, &stubs[i], caller, 0)) sim_note("not simulated");
  return (CUresult)sim_leave(&c, CUDA_ERROR_NOT_SUPPORTED);
}

static unsigned octal(const char *digits) {
  unsigned n = 0;
  for (; *digits != '\0'; digits++) n = n * 8 + (unsigned)(*digits - '0');
  return n;
}

/* One function for each name that is asked for and not simulated, so that the log can name it. */
#define STUB(i)                                            \
  static CUresult stub_##i(void) {                         \
    return refuse(octal(#i), __builtin_return_address(0)); \
  }
#define EIGHT(M, p) M(p##0) M(p##1) M(p##2) M(p##3) M(p##4) M(p##5) M(p##6) M(p##7)
#define SIXTY(M, p) EIGHT(M, p##0) EIGHT(M, p##1) EIGHT(M, p##2) EIGHT(M, p##3) EIGHT(M, p##4) EIGHT(M, p##5) \
  EIGHT(M, p##6) EIGHT(M, p##7)
#define ALL(M) SIXTY(M, 00) SIXTY(M, 01) SIXTY(M, 02) SIXTY(M, 03) SIXTY(M, 04) SIXTY(M, 05) SIXTY(M, 06) \
  SIXTY(M, 07) SIXTY(M, 10) SIXTY(M, 11) SIXTY(M, 12) SIXTY(M, 13) SIXTY(M, 14) SIXTY(M, 15) SIXTY(M, 16) SIXTY(M, 17)
ALL(STUB)
#define REFERENCE(i) (any_function)stub_##i,
static const any_function stub_functions[NSTUBS] = {ALL(REFERENCE)};

static any_function stub_for(const char *name) {
  for (size_t i = 0; i < nstubs; i++)
    if (strcmp(stub_names[i], name) == 0) return stub_functions[i];
  if (nstubs == NSTUBS || strlen(name) >= sizeof stub_names[0]) return NULL;
  snprintf(stub_names[nstubs], sizeof stub_names[0], "%s", name);
  stubs[nstubs].name = stub_names[nstubs];
  sim_log_line("? %s is asked for and not simulated", name);
  return stub_functions[nstubs++];
}

int version(void) {
  return sim_conf.version != 0 ? sim_conf.version : DRIVER_VERSION;
}

/* The newest variant that both the caller's version and the driver have. */
static const row *find(const char *name, int wanted, bool *known) {
  const row *best = NULL;
  const int limit = wanted < version() ? wanted : version();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].name, name) != 0) continue;
    *known = true;
    if (rows[i].since <= limit && (best == NULL || rows[i].since >= best->since)) best = &rows[i];
  }
  return best;
}

CUresult do_cuGetProcAddress_v2(const char *name, void **fn, int wanted, uint64_t flags,
                                CUdriverProcAddressQueryResult *why) {
  CUdriverProcAddressQueryResult unused;
  bool known = false;
  any_function found = NULL;
  if (name == NULL || fn == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (why == NULL) why = &unused;
  sim_note("%s, %d, %llu", name, wanted, (unsigned long long)flags);
  const row *r = sim_named(sim_conf.missing, name) ? NULL : find(name, wanted, &known);
  if (r != NULL) found = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 ? r->per_thread : r->plain;
  if (r == NULL && !known && !sim_named(sim_conf.missing, name) && strncmp(name, "cu", 2) == 0) found = stub_for(name);
  memcpy(fn, &found, sizeof found);
  *why = known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (found == NULL) return CUDA_ERROR_NOT_FOUND;
  *why = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult do_cuGetProcAddress(const char *name, void **fn, int wanted, uint64_t flags) {
  return do_cuGetProcAddress_v2(name, fn, wanted, flags, NULL);
}
