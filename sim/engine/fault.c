/* fault.c: calls that fail because someone asked for it.
 *
 * A list of rules, separated by commas, each WHICH:STATUS[:HOW]. WHICH is the name of a call, NAME@K for its
 * Kth call, #N for call number N of the process, or * for any. HOW is once (what it is when left out), on (that
 * name fails from then on), sticky (the current device is lost with it) or late (the call succeeds; what it queued
 * fails when it runs, and with it the device is lost). STATUS is the driver's own number. A lost device answers with it
 * to all that concerns its contexts. It must not know what the numbers mean. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

typedef enum fault_how { ONCE, ON, STICKY, LATE } fault_how;

typedef struct fault {
  char text[96]; /* the rule, as it was given */
  char name[64]; /* "" for a rule by number, "*" for any */
  uint64_t number, seen;
  int status;
  fault_how how;
  bool spent, open;
} fault;

enum { MAX_RULES = 64 };
static fault rules[MAX_RULES];
static size_t nrules;
static uint64_t strikes;
static int stuck[SIM_MAX_DEVICES], told, late;

static bool parse_how(const char *text, fault_how *how) {
  static const char *const words[] = {"once", "on", "sticky", "late"};
  for (unsigned i = 0; i < 4; i++) {
    if (strcmp(text, words[i]) != 0) continue;
    *how = (fault_how)i;
    return true;
  }
  return false;
}

static bool parse_which(const char *text, fault *f) {
  if (*text == '#') return sscanf(text + 1, "%llu", (unsigned long long *)&f->number) == 1;
  const char *at = strchr(text, '@');
  const size_t length = at == NULL ? strlen(text) : (size_t)(at - text);
  if (length == 0 || length >= sizeof f->name) return false;
  memcpy(f->name, text, length);
  f->number = 1;
  return at == NULL || sscanf(at + 1, "%llu", (unsigned long long *)&f->number) == 1;
}

static bool parse(char *text, fault *f) {
  char *save = NULL;
  *f = (fault){.how = ONCE};
  if (snprintf(f->text, sizeof f->text, "%s", text) >= (int)sizeof f->text) return false;
  const char *which = strtok_r(text, ":", &save);
  const char *status = strtok_r(NULL, ":", &save);
  const char *how = strtok_r(NULL, ":", &save);
  if (which == NULL || status == NULL || !parse_which(which, f)) return false;
  if (sscanf(status, "%d", &f->status) != 1 || f->status == 0) return false;
  return how == NULL || parse_how(how, &f->how);
}

/* Adds all rules or none. */
int sim_fault_add(const char *text) {
  char copy[1024], *save = NULL;
  fault added[MAX_RULES];
  size_t n = 0;
  if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy) return -1;
  for (char *rule = strtok_r(copy, ", ", &save); rule != NULL; rule = strtok_r(NULL, ", ", &save))
    if (nrules + n == MAX_RULES || !parse(rule, &added[n++])) return -1;
  memcpy(rules + nrules, added, n * sizeof *added);
  nrules += n;
  return 0;
}

int sim_fail(const char *text) {
  sim_lock();
  const int rc = sim_fault_add(text);
  sim_unlock();
  return rc;
}

static bool strikes_now(fault *f, const sim_counter *counter, uint64_t number) {
  if (f->spent) return false;
  if (f->name[0] == '\0') return f->number == number;
  if (strcmp(f->name, "*") != 0 && strcmp(f->name, counter->name) != 0) return false;
  if (f->open) return true;
  return ++f->seen == f->number;
}

static bool apply(fault *f, int *raw) {
  strikes++;
  if (!f->open) sim_journal_line("struck %s", f->text);
  f->open = f->how == ON;
  f->spent = !f->open;
  if (f->how == STICKY) sim_stick(sim_current() == NULL ? NULL : sim_current()->device, f->status);
  if (f->how == LATE) late = f->status;
  if (f->how == LATE) return false;
  *raw = f->status;
  return true;
}

bool sim_fault_strikes(const sim_counter *counter, const sim_place *place, int *raw) {
  late = 0;
  if (nrules == 0 || !sim_place_is_of(place, "SIM_FAIL_OF")) return false;
  for (size_t i = 0; i < nrules; i++)
    if (strikes_now(&rules[i], counter, place->number) && apply(&rules[i], raw)) return true;
  return false;
}

int sim_fault_late(void) {
  return late;
}

int sim_stuck_code(void) {
  return told;
}

void sim_stick(sim_device *d, int raw) {
  for (int i = 0; i < SIM_MAX_DEVICES; i++)
    if (d == NULL || d->id == i || sim_conf.sticky_process) stuck[i] = raw;
}

sim_status sim_device_verdict(const sim_device *d) {
  told = stuck[d == NULL ? 0 : d->id];
  return told != 0 ? SIM_STUCK : SIM_OK;
}

void sim_fault_reset(void) {
  nrules = 0;
  strikes = 0;
  memset(stuck, 0, sizeof stuck);
  late = 0;
}

uint64_t sim_faults(void) {
  sim_lock();
  const uint64_t n = strikes;
  sim_unlock();
  return n;
}
