/* ledger.c: what was found, what is left, and the report at the end of the process.
 *
 * Invariant: each pair of places is reported once, whatever number of times it occurs. It must not know how
 * anything was found. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"

enum { MAX_FINDINGS = 1000, MAX_TEXT = 2000 };

typedef struct finding {
  sim_kind kind;
  char *text;
} finding;

typedef struct pair {
  sim_kind kind;
  const char *a, *b;
  void *acaller, *bcaller;
  const char *aline, *bline;
} pair;

static finding findings[MAX_FINDINGS];
static size_t nfindings;
static uint64_t totals[SIM_WARNING + 1];
static pair *pairs;
static size_t npairs, pairs_room;

static const char *const kinds[] = {"", "race", "stale", "bounds", "misuse", "capture", "leak", "warning"};

static const char *symbol_of(void *address, char *out, size_t size) {
  Dl_info info;
  if (address == NULL || dladdr(address, &info) == 0 || info.dli_fname == NULL) return "";
  const char *slash = strrchr(info.dli_fname, '/');
  const char *file = slash == NULL ? info.dli_fname : slash + 1;
  const size_t offset = (size_t)((char *)address - (char *)info.dli_fbase);
  snprintf(out, size, " from %s+%#zx%s%s", file, offset, info.dli_sname != NULL ? " in " : "",
           info.dli_sname != NULL ? info.dli_sname : "");
  return out;
}

const char *sim_place_text(const sim_place *p, char *out, size_t size) {
  char symbol[120];
  snprintf(out, size, "call #%llu %s, thread %d%s%s%s", (unsigned long long)p->number, p->call, p->thread,
           p->line != NULL ? " at " : "", p->line != NULL ? p->line : "", symbol_of(p->caller, symbol, sizeof symbol));
  return out;
}

bool sim_found_pair(sim_kind kind, const sim_place *a, const sim_place *b) {
  for (size_t i = 0; i < npairs; i++) {
    const pair *p = &pairs[i];
    const bool calls = p->kind == kind && p->a == a->call && p->b == b->call;
    if (calls && p->acaller == a->caller && p->bcaller == b->caller && p->aline == a->line && p->bline == b->line)
      return false;
  }
  if (npairs == pairs_room) {
    pairs_room = pairs_room * 2 + 16;
    pairs = realloc(pairs, pairs_room * sizeof *pairs);
    if (pairs == NULL) abort();
  }
  pairs[npairs++] = (pair){kind, a->call, b->call, a->caller, b->caller, a->line, b->line};
  return true;
}

void sim_found(sim_kind kind, const char *format, ...) {
  char text[MAX_TEXT];
  va_list args;
  totals[kind]++;
  if (nfindings == MAX_FINDINGS) return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  char *whole = NULL;
  if (asprintf(&whole, "%s: %s", kinds[kind], text) < 0) abort();
  findings[nfindings++] = (finding){kind, whole};
  sim_log_line("! %s", whole);
  sim_journal_line("%s", whole);
}

void sim_add_finding(sim_kind kind, const char *text) {
  char where[200];
  if (kind < SIM_RACE || kind > SIM_WARNING) return;
  sim_lock();
  const sim_place here = sim_here();
  if (sim_found_pair(kind, &here, &here))
    sim_found(kind, "%s\n  here   %s", text, sim_place_text(&here, where, sizeof where));
  sim_unlock();
}

void sim_findings_reset(void) {
  sim_journal_line("reset");
  for (size_t i = 0; i < nfindings; i++) free(findings[i].text);
  nfindings = 0;
  npairs = 0;
  memset(totals, 0, sizeof totals);
}

static uint64_t total(sim_kind kind) {
  if (kind != SIM_ANY) return totals[kind];
  uint64_t n = sim_conf.strict ? totals[SIM_WARNING] : 0;
  for (int k = SIM_RACE; k < SIM_WARNING; k++) n += totals[k];
  return n;
}

uint64_t sim_findings(sim_kind kind) {
  sim_lock();
  const uint64_t n = total(kind);
  sim_unlock();
  return n;
}

const char *sim_finding(size_t i) {
  sim_lock();
  const char *text = i < nfindings ? findings[i].text : NULL;
  sim_unlock();
  return text;
}

bool sim_ledger_counts(const sim_place *made) {
  return sim_place_is_of(made, "SIM_LEDGER_OF");
}

static int64_t left_objects(sim_type type) {
  int64_t n = 0;
  for (const sim_object *o = sim_object_first(); o != NULL; o = o->after) n += o->type == type && !o->hidden;
  return n;
}

static int64_t left_memory(bool bytes) {
  int64_t n = 0;
  for (const sim_alloc *a = sim_alloc_first(); a != NULL; a = a->after)
    if (a->physical == NULL && !a->of_module) n += bytes ? (int64_t)a->nbytes : 1;
  return n;
}

static int64_t left_pushed(void) {
  int64_t n = 0;
  for (const sim_thread *t = sim_threads(); t != NULL; t = t->next) n += t->pushed;
  return n;
}

static int64_t owed_pushes(void) {
  int64_t n = 0;
  for (const sim_thread *t = sim_threads(); t != NULL; t = t->next) n += t->owed;
  return n;
}

static int64_t left_retained(void) {
  int64_t n = 0;
  for (int i = 0; sim_device_at(i) != NULL; i++)
    n += sim_device_at(i)->retains;
  return n;
}

static int64_t left(const char *what) {
  if (strcmp(what, "memory") == 0) return left_memory(true);
  if (strcmp(what, "allocations") == 0) return left_memory(false);
  if (strcmp(what, "streams") == 0) return left_objects(SIM_STREAM);
  if (strcmp(what, "events") == 0) return left_objects(SIM_EVENT);
  if (strcmp(what, "pools") == 0) return left_objects(SIM_POOL);
  if (strcmp(what, "graphs") == 0) return left_objects(SIM_GRAPH) + left_objects(SIM_EXEC);
  if (strcmp(what, "modules") == 0)
    return left_objects(SIM_MODULE) + left_objects(SIM_LIBRARY) + left_objects(SIM_LINK);
  if (strcmp(what, "physical") == 0) return left_objects(SIM_PHYSICAL);
  if (strcmp(what, "contexts") == 0) return left_pushed();
  if (strcmp(what, "retains") == 0) return left_retained();
  if (strcmp(what, "captures") == 0) return (int64_t)sim_captures();
  return strcmp(what, "pending") == 0 ? (int64_t)sim_pending() : -1;
}

int64_t sim_left(const char *what) {
  sim_lock();
  const int64_t n = left(what);
  sim_unlock();
  return n;
}

static void leak(const char *what, const sim_place *made) {
  char text[200];
  sim_found(SIM_LEAK, "%s, made by %s", what, sim_place_text(made, text, sizeof text));
}

static void leaked_objects(void) {
  char what[80];
  for (const sim_object *o = sim_object_first(); o != NULL; o = o->after) {
    const bool context = o->type == SIM_CONTEXT && ((const sim_context *)(const void *)o)->primary;
    if (o->hidden || o->type == SIM_NODE || context || !sim_ledger_counts(&o->made)) continue;
    snprintf(what, sizeof what, "%s %#zx", sim_type_name(o->type), (size_t)o->handle);
    leak(what, &o->made);
  }
}

static void leaked_memory(void) {
  char what[80];
  for (const sim_alloc *a = sim_alloc_first(); a != NULL; a = a->after) {
    if (a->physical != NULL || a->of_module || !sim_ledger_counts(&a->made)) continue;
    snprintf(what, sizeof what, "%zu bytes at %#zx", a->nbytes, (size_t)a->base);
    leak(what, &a->made);
  }
}

static uint64_t draw_up(void) {
  const uint64_t before = totals[SIM_LEAK];
  leaked_objects();
  leaked_memory();
  if (owed_pushes() != 0) sim_found(SIM_LEAK, "contexts pushed less contexts popped: %lld", (long long)owed_pushes());
  if (left_retained() != 0 && getenv("SIM_LEDGER_OF") == NULL)
    sim_found(SIM_LEAK, "primary contexts still retained: %lld times", (long long)left_retained());
  if (sim_captures() != 0) sim_found(SIM_LEAK, "captures not ended: %zu", sim_captures());
  return totals[SIM_LEAK] - before;
}

uint64_t sim_ledger(void) {
  sim_lock();
  const uint64_t n = draw_up();
  sim_unlock();
  return n;
}

static void totals_text(char *out, size_t size) {
  int n = snprintf(out, size, "seed %llu:", (unsigned long long)sim_conf.seed);
  for (int k = SIM_RACE; k <= SIM_WARNING && n > 0 && (size_t)n < size; k++)
    n += snprintf(out + n, size - (size_t)n, " %s %llu", kinds[k], (unsigned long long)totals[k]);
}

static uint64_t write_report(int fd) {
  char text[MAX_TEXT];
  uint64_t all = 0;
  for (int k = SIM_RACE; k <= SIM_WARNING; k++) all += totals[k];
  for (size_t i = 0; i < nfindings; i++) dprintf(fd, "sim: %s\n", findings[i].text);
  if (all > nfindings) dprintf(fd, "sim: %llu more are counted and not told\n", (unsigned long long)(all - nfindings));
  totals_text(text, sizeof text);
  dprintf(fd, "sim: %s\n", text);
  return total(SIM_ANY);
}

uint64_t sim_report(int fd) {
  sim_lock();
  const uint64_t n = write_report(fd);
  sim_unlock();
  return n;
}

static uint64_t report_at_end(void) {
  const char *path = getenv("SIM_REPORT");
  uint64_t shown = 0;
  for (int k = SIM_RACE; k <= SIM_WARNING; k++) shown += totals[k];
  if (path == NULL || *path == '\0')
    return shown > 0 && !sim_journal_kept() ? write_report(STDERR_FILENO) : total(SIM_ANY);
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return write_report(STDERR_FILENO);
  const uint64_t n = write_report(fd);
  close(fd);
  return n;
}

__attribute__((destructor)) static void at_end(void) {
  const char *status = getenv("SIM_EXIT");
  if (!sim_is_owner()) return;
  sim_lock();
  if (sim_conf.ledger && sim_ready()) draw_up();
  char text[MAX_TEXT];
  totals_text(text, sizeof text);
  sim_journal_line("%s", text);
  const uint64_t n = sim_ready() ? report_at_end() : 0;
  sim_unlock();
  if (n == 0 || status == NULL || *status == '\0') return;
  fflush(NULL);
  _exit(atoi(status));
}
