/* entry.c: the exported functions, and finding them by name.
 *
 * Invariant: every call of the program passes sim_enter and sim_leave once, whichever name it came in by. It
 * must not know what a call does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front.h"

static _Thread_local bool per_thread;

bool sim_default_is_per_thread(void) {
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

/* NULL for what this driver does not have, which is all that is not simulated. */
static any_function look_up(const char *name, int wanted, uint64_t flags, CUdriverProcAddressQueryResult *why) {
  bool known = false;
  const row *r = sim_named(sim_conf.missing, name) ? NULL : find(name, wanted, &known);
  *why = known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (!known) sim_log_line("? %s is asked for and not there", name);
  if (r == NULL) return NULL;
  *why = CU_GET_PROC_ADDRESS_SUCCESS;
  return (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 ? r->per_thread : r->plain;
}

/* The flags are documented as one of three values, and a version beyond the driver's as invalid. */
static CUresult get(const char *name, void **fn, int wanted, uint64_t flags, CUdriverProcAddressQueryResult *why) {
  if (name == NULL || fn == NULL || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM || wanted > version())
    return CUDA_ERROR_INVALID_VALUE;
  sim_log_detail("%s, %d, %llu", name, wanted, (unsigned long long)flags);
  const any_function found = look_up(name, wanted, flags, why);
  memcpy(fn, &found, sizeof found);
  return CUDA_SUCCESS;
}

CUresult do_cuGetProcAddress_v2(const char *name, void **fn, int wanted, uint64_t flags,
                                CUdriverProcAddressQueryResult *why) {
  CUdriverProcAddressQueryResult unused;
  return get(name, fn, wanted, flags, why == NULL ? &unused : why);
}

/* The first form, which has nowhere to say why, is documented to fail (CUDA 11); the second to succeed with NULL. */
CUresult do_cuGetProcAddress(const char *name, void **fn, int wanted, uint64_t flags) {
  CUdriverProcAddressQueryResult why;
  const CUresult rc = get(name, fn, wanted, flags, &why);
  return rc == CUDA_SUCCESS && *fn == NULL ? CUDA_ERROR_NOT_FOUND : rc;
}

/* NVIDIA documents none of these tables, so there are none. Who asks takes it that the call is there: NVRTC would call
 * NULL. */
CUresult do_cuGetExportTable(const void **table, const CUuuid *which) {
  if (table == NULL || which == NULL) return CUDA_ERROR_INVALID_VALUE;
  *table = NULL;
  return CUDA_ERROR_NOT_SUPPORTED;
}
