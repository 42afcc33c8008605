/* core.c: configuration, the one lock, and what every driver call passes on its way in and out.
 *
 * Invariant: between sim_enter and sim_leave the calling thread holds the lock, except while it runs a
 * callback of the program or waits for another thread that does. It must not know what a call does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* its clock is one that nobody sets */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sim_counter *counters;
static sim_thread *threads;
static _Thread_local sim_thread *self;
static _Thread_local sim_call *call;
static _Thread_local bool locked;
static _Thread_local struct {
  const char *call; /* of a library between the program and the driver, or NULL */
  const void *caller;
} behalf;
static pthread_key_t at_end;
static uint64_t ncalls;
static bool is_child, configured;
static _Atomic int number_not_permitted, number_forked;
static uint32_t shared_slot;
static sim_clock shared_clock;
sim_config sim_conf;
sim_rules sim_driver;

static uint64_t setting(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  char *end;
  if (text == NULL || *text == '\0') return otherwise;
  errno = 0;
  const uint64_t value = strtoull(text, &end, 0);
  const unsigned shift = *end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0;
  if (errno == 0 && *(end + (shift != 0)) == '\0') return value << shift;
  fprintf(stderr, "sim: %s=%s is not a number; %llu is used\n", name, text, (unsigned long long)otherwise);
  return otherwise;
}

static bool setting_is(const char *name, const char *value) {
  const char *text = getenv(name);
  return text != NULL && strcmp(text, value) == 0;
}

/* Another thread may have had the lock. */
static void in_child(void) {
  is_child = true;
  pthread_mutex_init(&lock, NULL);
}

/* A thread that has ended makes no more accesses. It may come back: destructors of its other keys make calls, too. It
 * ends again then. */
static void end_thread(void *thread) {
  sim_lock();
  ((sim_thread *)thread)->ended = true;
  sim_unlock();
}

static void condition_init(void) {
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&changed, &attributes);
  (void)pthread_condattr_destroy(&attributes);
}

static void configure(void) {
  const uint64_t devices = setting("SIM_DEVICES", 2);
  configured = true;
  condition_init();
  (void)pthread_atfork(NULL, NULL, in_child);
  (void)pthread_key_create(&at_end, end_thread);
  sim_conf.devices = devices > SIM_MAX_DEVICES ? SIM_MAX_DEVICES : (int)devices;
  sim_conf.memory = setting("SIM_MEMORY", 4ull << 30);
  sim_conf.quarantine = setting("SIM_QUARANTINE", 256ull << 20);
  sim_conf.patience = setting("SIM_PATIENCE", 60);
  sim_conf.poison = setting("SIM_POISON", 64ull << 20);
  sim_conf.history = setting("SIM_HISTORY", 16384);
  if (sim_conf.history < 2) sim_conf.history = 2;
  sim_conf.version = (int)setting("SIM_DRIVER_VERSION", 0);
  sim_conf.seed = sim_conf.random = setting("SIM_SEED", 0);
  sim_conf.separate_threads = setting_is("SIM_THREADS", "separate");
  sim_conf.free = setting_is("SIM_FREE", "wait")    ? SIM_FREE_WAITS
                  : setting_is("SIM_FREE", "never") ? SIM_FREE_NEVER_WAITS
                                                    : SIM_FREE_BY_CALLER;
  sim_conf.strict = setting("SIM_STRICT", 0) != 0;
  sim_conf.reuse = setting_is("SIM_REUSE", "0") ? SIM_NEVER : setting("SIM_REUSE", 0) != 0 ? SIM_ALWAYS : SIM_BY_SEED;
  sim_conf.host_trap = !setting_is("SIM_HOST_TRAP", "0");
  sim_conf.sticky_process = setting_is("SIM_STICKY", "process");
  sim_conf.managed_exclusive = setting_is("SIM_MANAGED", "exclusive");
  sim_conf.max_pitch = setting("SIM_MAX_PITCH", INT32_MAX);
  sim_conf.pitch_strict = setting_is("SIM_PITCH", "strict");
  sim_conf.legacy_covers = setting_is("SIM_LEGACY", "kind");
  sim_conf.ledger = !setting_is("SIM_LEDGER", "off");
  sim_conf.missing = getenv("SIM_MISSING");
  sim_driver_rules(&sim_driver);
  shared_slot = sim_clock_slot(&shared_clock);
  sim_clock_tick(&shared_clock, shared_slot);
  sim_log_open();
  sim_journal_open();
  sim_script_open(setting("SIM_LINES", 0));
  if (sim_conf.separate_threads) sim_threads_listen();
  const char *rules = getenv("SIM_FAIL");
  if (rules != NULL && sim_fault_add(rules) != 0) fprintf(stderr, "sim: SIM_FAIL=%s is not a list of rules\n", rules);
}

void sim_lock(void) {
  pthread_once(&once, configure);
  pthread_mutex_lock(&lock);
  locked = true;
  sim_trap_look();
}

bool sim_is_locked(void) {
  return locked;
}

bool sim_owns(const void *object) {
  return object == &lock || object == &changed || object == &once;
}

void sim_unlock(void) {
  sim_trap_update();
  locked = false;
  pthread_mutex_unlock(&lock);
}

void sim_sleep_on_change(void) {
  pthread_cond_wait(&changed, &lock);
}

void sim_sleep_a_while(long ns) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += ns;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  (void)pthread_cond_timedwait(&changed, &lock, &until);
}

uint64_t sim_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sim_changed(void) {
  pthread_cond_broadcast(&changed);
}

void sim_set_numbers(int not_permitted, int forked) {
  number_not_permitted = not_permitted;
  number_forked = forked;
}

bool sim_is_owner(void) {
  return configured && !is_child;
}

sim_thread *sim_self(void) {
  if (self != NULL) {
    if (self->ended) (void)pthread_setspecific(at_end, self);
    self->ended = false;
    return self;
  }
  self = calloc(1, sizeof *self);
  if (self == NULL) abort();
  self->id = threads == NULL ? 1 : threads->id + 1;
  self->next = threads;
  self->slot = sim_clock_slot(&self->clock);
  threads = self;
  (void)pthread_setspecific(at_end, self);
  return self;
}

sim_thread *sim_known_self(void) {
  return self;
}

uint64_t sim_number(void) {
  return ncalls;
}

sim_thread *sim_threads(void) {
  return threads;
}

uint32_t sim_host_slot(void) {
  return sim_conf.separate_threads ? sim_self()->slot : shared_slot;
}

sim_clock *sim_host_clock(void) {
  return sim_conf.separate_threads ? &sim_self()->clock : &shared_clock;
}

void sim_host_tick(void) {
  sim_clock_tick(sim_host_clock(), sim_host_slot());
}

sim_place sim_here(void) {
  if (call != NULL) {
    if (!call->place.looked) call->place.line = sim_script_place();
    call->place.looked = true;
    return call->place;
  }
  return (sim_place){.call = behalf.call != NULL ? behalf.call : "the program", .number = ncalls,
                     .thread = sim_self()->id, .caller = (void *)(uintptr_t)behalf.caller, .looked = true,
                     .line = behalf.call != NULL ? sim_script_place() : NULL};
}

static void counter_add(sim_counter *c) {
  c->calls++;
  c->ever++;
  if (c->listed) return;
  c->listed = true;
  c->next = counters;
  counters = c;
}

static bool refused(sim_call *c) {
  if (!sim_is_owner()) {
    c->raw = number_forked;
    return true;
  }
  if (!sim_self()->in_callback) return false;
  sim_found(SIM_MISUSE, "%s is called from a host function that runs in a stream", c->counter->name);
  c->raw = number_not_permitted;
  return true;
}

/* Without a context only what all devices are lost to concerns the call. */
static sim_status verdict_of_current(void) {
  const sim_context *c = sim_current();
  if (c != NULL) return sim_device_verdict(c->device);
  for (int i = 0; sim_device_at(i) != NULL; i++)
    if (sim_device_verdict(sim_device_at(i)) == SIM_OK) return SIM_OK;
  return sim_device_verdict(NULL);
}

void sim_from(const char *library_call, const void *caller) {
  behalf.call = library_call;
  behalf.caller = caller;
}

bool sim_is_on_behalf(void) {
  return behalf.call != NULL;
}

/* What the program does in the middle of a library's call is not that call's. */
void sim_from_program(void (*fn)(void *), void *arg) {
  const char *was = behalf.call;
  const void *whose = behalf.caller;
  sim_from(NULL, NULL);
  fn(arg);
  sim_from(was, whose);
}

static sim_place place_of(const sim_counter *counter, void *caller) {
  const bool own = behalf.call == NULL;
  return (sim_place){.call = own ? counter->name : behalf.call, .number = ++ncalls, .thread = sim_self()->id,
                     .caller = own ? caller : (void *)(uintptr_t)behalf.caller};
}

bool sim_place_is_of(const sim_place *p, const char *setting) {
  const char *library = getenv(setting);
  Dl_info info;
  if (library == NULL || *library == '\0') return true;
  return p->caller != NULL && dladdr(p->caller, &info) != 0 && strstr(info.dli_fname, library) != NULL;
}

bool sim_enter(sim_call *c, sim_counter *counter, void *caller, unsigned how) {
  sim_hooks_run(counter->name);
  sim_lock();
  counter_add(counter);
  c->counter = counter;
  c->detail[0] = '\0';
  c->place = place_of(counter, caller);
  call = c;
  sim_host_tick();
  if (refused(c)) return true;
  c->raw = 0;
  const bool ends = (how & SIM_ENTER_ENDS) != 0;
  if (sim_fault_strikes(counter, &c->place, &c->raw)) return !ends;
  const bool elsewhere = (how & SIM_ENTER_ELSEWHERE) != 0 && !sim_conf.sticky_process;
  if ((how & SIM_ENTER_ALWAYS) != 0 || elsewhere || verdict_of_current() == SIM_OK) return false;
  c->raw = sim_stuck_code();
  return !ends;
}

int sim_leave(sim_call *c, int raw) {
  const int answer = c->raw != 0 ? c->raw : raw;
  sim_log_call(c, answer);
  sim_shares_learned();
  call = NULL;
  sim_unlock();
  return answer;
}

void sim_log_detail(const char *format, ...) {
  if (call == NULL) return;
  va_list args;
  va_start(args, format);
  vsnprintf(call->detail, sizeof call->detail, format, args);
  va_end(args);
}

bool sim_named(const char *list, const char *name) {
  const size_t length = strlen(name);
  for (const char *p = list; p != NULL && *p != '\0';) {
    const size_t n = strcspn(p, ", ");
    if (n == length && strncmp(p, name, n) == 0) return true;
    p += n + (p[n] != '\0');
  }
  return false;
}

uint64_t sim_calls(const char *name) {
  uint64_t n = 0;
  sim_lock();
  for (const sim_counter *c = counters; c != NULL; c = c->next)
    if (name == NULL || strcmp(name, c->name) == 0) n += c->calls;
  sim_unlock();
  return n;
}

void sim_reset(void) {
  sim_lock();
  for (sim_counter *c = counters; c != NULL; c = c->next) c->calls = 0;
  sim_fault_reset();
  sim_findings_reset();
  sim_unlock();
}

void sim_seed(uint64_t seed) {
  sim_lock();
  sim_conf.seed = sim_conf.random = seed;
  sim_unlock();
}
