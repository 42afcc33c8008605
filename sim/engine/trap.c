/* trap.c: the host's own loads and stores on pinned and managed memory while work on it may be running.
 *
 * Pages that queued work uses are closed to the program until the host has waited for that work: for writing if the
 * work reads, for all if it writes. The program's first access to a closed page faults; the handler records the access,
 * opens the page and lets the instruction go on. The record is checked before the next call does anything, so with all
 * that was known when it was made, and then the page is closed again if the work is still running.
 * Pages of other memory that are lent (to a device, by a graphics API) are closed until they are given back, and the
 * first access to them is noted. A device's memory, and what was freed, is closed for good: an access is reported
 * before the process dies of it.
 * Invariants: the handler takes no lock and allocates nothing where the program goes on; a fault on any other page, and
 * any other signal, goes to the handler that was there before; a forked child may touch what it inherits. The
 * simulator's own copies go by the alias and never fault. It must not know how accesses are checked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "engine.h"

enum { PAGE = 4096, ACCESSES_KEPT = 1024 };

/* Marks of a page of living memory: what queued work closes it to, and what a fault has opened it for since. */
enum { LIVE = 1, CLOSED_TO_WRITES = 2, CLOSED = 4, OPEN_TO_READS = 8, OPEN = 16, WANTED = CLOSED_TO_WRITES | CLOSED };

/* What the machine says of an access. */
typedef struct fault {
  bool write;
  void *from, *caller; /* the instruction; what its function was called by, if that has no frame of its own */
} fault;

typedef struct host_access {
  _Atomic bool ready;
  uintptr_t at;
  fault how;
  sim_thread *thread; /* NULL: it never called the driver */
  const sim_op *acting;
  char line[SIM_LINE]; /* of the program's script */
} host_access;

static uintptr_t base;
static uint64_t span;
static _Atomic unsigned char *pages; /* one for each page of the range */
static host_access host_accesses[ACCESSES_KEPT];
static _Atomic uint64_t written, looked_at, lost;
static struct sigaction previous;
static sim_alloc **watched, **fresh; /* with work that the host has not waited for; with pages still to close */
static size_t nwatched, watched_room, nfresh, fresh_room;
static bool learned; /* the host waited for something since the lock was taken */
static sim_clock working; /* all work of all devices, where managed memory is theirs meanwhile */
static bool exclusive;    /* and so closed to the host as a whole */
enum { LOANS = 64 };
typedef struct loan {
  _Atomic uintptr_t at; /* 0: unused */
  _Atomic size_t nbytes;
  _Atomic bool read, written;
} loan;
static loan loans[LOANS];
static _Thread_local struct {
  uintptr_t at; /* where on the stack */
  const void *context;
} chained; /* the last fault that was handed on */

void sim_trap_open(uintptr_t at, uint64_t nbytes) {
  if (!sim_conf.host_trap || pages != NULL) return;
  void *p = mmap(NULL, nbytes / PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return;
  base = at;
  span = nbytes;
  pages = p;
}

/* The handler, and what it calls */

/* For a signal that is not ours. If the handler before this one calls this one, or sends the signal again, nobody wants
 * it: the process ends. It may as well jump out of both, and then any later signal, however deep on the stack, is a new
 * one: it has a context of its own, or one that lies where the last one lay, and then this is no deeper. */
static void chain(int signal_number, siginfo_t *info, void *context) {
  const bool handled = (previous.sa_flags & SA_SIGINFO) != 0;
  const bool default_action = !handled && (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN);
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  const bool sent = info->si_code <= 0, again = here < chained.at && (sent || context == chained.context);
  if (again || default_action) {
    signal(signal_number, SIG_DFL);
    if (sent) raise(signal_number); /* it was sent, so that it does not come again by itself */
    return;
  }
  chained.at = here;
  chained.context = context;
  if (handled) previous.sa_sigaction(signal_number, info, context);
  if (!handled) previous.sa_handler(signal_number);
  chained.at = 0;
}

/* Where it does not tell, an access counts as a read; a write then faults once more. */
static fault fault_of(const void *context) {
#if defined(__x86_64__)
  enum { WRITE = 2 };
  const greg_t *registers = ((const ucontext_t *)context)->uc_mcontext.gregs;
  return (fault){(registers[REG_ERR] & WRITE) != 0, (void *)registers[REG_RIP], *(void **)registers[REG_RSP]};
#elif defined(__aarch64__)
  enum { SYNDROME = 0x45535201, WRITE = 1 << 6 };
  const ucontext_t *u = context;
  const struct _aarch64_ctx *part = (const struct _aarch64_ctx *)u->uc_mcontext.__reserved;
  fault a = {false, (void *)u->uc_mcontext.pc, (void *)u->uc_mcontext.regs[30]};
  while (part->magic != SYNDROME && part->size != 0) part = (const void *)((const char *)part + part->size);
  if (part->magic == SYNDROME) a.write = (*(const uint64_t *)(const void *)(part + 1) & WRITE) != 0;
  return a;
#else
  (void)context;
  return (fault){false, NULL, NULL};
#endif
}

static void record_access(uintptr_t at, const fault *a) {
  uint64_t i = atomic_load(&written);
  do {
    if (i - atomic_load(&looked_at) < ACCESSES_KEPT) continue;
    atomic_fetch_add(&lost, 1);
    return;
  } while (!atomic_compare_exchange_weak(&written, &i, i + 1));
  host_access *n = &host_accesses[i % ACCESSES_KEPT];
  n->at = at;
  n->how = *a;
  n->thread = sim_known_self();
  n->acting = n->thread == NULL ? NULL : n->thread->acting;
  sim_script_read(n->line);
  atomic_store(&n->ready, true);
}

static void protect(uint64_t page, uint64_t n, int access) {
  (void)mprotect((void *)(base + page * PAGE), n * PAGE, access);
}

/* What the marks of a page let the host do. */
static int access_of(unsigned char marks) {
  if ((marks & WANTED) == 0 || (marks & OPEN) != 0) return PROT_READ | PROT_WRITE;
  return (marks & CLOSED) == 0 || (marks & OPEN_TO_READS) != 0 ? PROT_READ : PROT_NONE;
}

/* False where nothing lives: the fault is the program's own. Another thread's fault, or a wait, may have changed the
 * page's marks meanwhile; then the instruction is tried again. A thread changes the marks first and the protection
 * afterwards. If another thread does both in between, the protection that stays is not that of the marks; so each fault
 * sets it, until the marks have not changed meanwhile. */
static bool let_in(uintptr_t at, const void *context) {
  const uint64_t page = (at - base) / PAGE;
  const fault a = fault_of(context);
  unsigned char was = atomic_load(&pages[page]), now;
  do {
    if ((was & LIVE) == 0) return false;
    now = was;
    if ((was & WANTED) == 0) break;
    now |= !a.write && (was & CLOSED) != 0 && (was & OPEN_TO_READS) == 0 ? OPEN_TO_READS : OPEN;
  } while (!atomic_compare_exchange_weak(&pages[page], &was, now));
  if (now != was && sim_is_owner()) record_access(at, &a);
  do {
    was = now;
    protect(page, 1, access_of(was));
    now = atomic_load(&pages[page]);
  } while (now != was && (now & LIVE) != 0);
  return true;
}

/* All of a loan is opened at the first access, which is noted as what it was. */
static bool of_a_loan(uintptr_t at, const void *context) {
  for (int i = 0; i < LOANS; i++) {
    const uintptr_t from = atomic_load(&loans[i].at);
    if (from == 0 || at - from >= atomic_load(&loans[i].nbytes)) continue;
    atomic_store(fault_of(context).write ? &loans[i].written : &loans[i].read, true);
    (void)mprotect((void *)from, atomic_load(&loans[i].nbytes), PROT_READ | PROT_WRITE);
    return true;
  }
  return false;
}

/* The caller of a function that copies bytes says more than that function. */
static void *place_of(const fault *a) {
  Dl_info info;
  const bool in_libc = a->from != NULL && dladdr(a->from, &info) != 0 && strstr(info.dli_fname, "/libc.so") != NULL;
  return in_libc && dladdr(a->caller, &info) != 0 ? a->caller : a->from;
}

static void report_for_good(uintptr_t at, const fault *f) {
  char here[200], other[200], text[700];
  const sim_alloc *a = sim_alloc_find(at);
  const sim_place place = {.call = "the program", .number = sim_number(), .caller = place_of(f),
                           .thread = sim_self()->id, .line = sim_script_place(), .looked = true};
  const sim_place none = {.call = "none"}, *whose = a == NULL ? &none : a->freed ? &a->gone : &a->made;
  const sim_kind kind = a != NULL && a->freed ? SIM_STALE : SIM_MISUSE;
  if (!sim_found_pair(kind, &place, whose)) return;
  sim_place_text(&place, here, sizeof here);
  const char *does = f->write ? "writes" : "reads";
  if (a == NULL)
    snprintf(text, sizeof text, "the host %s at %#zx, where no memory is\n  here   %s", does, (size_t)at, here);
  else
    snprintf(text, sizeof text, "the host %s %s at %#zx (%zu into an allocation of %zu)\n  here   %s\n  %s %s", does,
             a->freed ? "freed memory" : "a device's memory, which no host can touch,", (size_t)at,
             (size_t)(at - a->base), a->nbytes, here, a->freed ? "freed " : "made  ",
             sim_place_text(whose, other, sizeof other));
  sim_found(kind, "%s", text);
  if (!sim_journal_kept()) sim_say("%s", text);
}

/* The process most likely dies of it, so this is told at once. Not so the simulator's own mistakes, under its lock. */
static void on_fault_for_good(uintptr_t at, const void *context) {
  const fault f = fault_of(context);
  if (!sim_ours(at) || !sim_is_owner() || sim_is_locked()) return;
  sim_lock();
  report_for_good(at, &f);
  sim_unlock();
}

static void on_fault(int signal_number, siginfo_t *info, void *context) {
  const uintptr_t at = (uintptr_t)info->si_addr;
  const bool a_fault = info->si_code == SEGV_ACCERR;
  if (a_fault && at - base < span && let_in(at, context)) return;
  if (a_fault && of_a_loan(at, context)) return;
  if (a_fault) on_fault_for_good(at, context);
  chain(signal_number, info, context);
}

/* Others may have put theirs in its place. */
static void be_the_handler(void) {
  struct sigaction now;
  if (sigaction(SIGSEGV, NULL, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_fault) return;
  struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  sigemptyset(&ours.sa_mask);
  previous = now;
  (void)sigaction(SIGSEGV, &ours, NULL);
}

/* Closing and opening, with the lock held */

/* Pages that change alike are closed by one call. */
static void close_pages(uint64_t page, uint64_t end, unsigned char more) {
  for (uint64_t n; page < end; page += n) {
    const unsigned char first = atomic_load(&pages[page]);
    const unsigned char wanted = (first | more) & WANTED;
    for (n = 0; page + n < end && atomic_load(&pages[page + n]) == first; n++)
      atomic_store(&pages[page + n], LIVE | wanted);
    if (first != (LIVE | wanted)) protect(page, n, access_of(LIVE | wanted));
  }
}

static void close_region(const sim_region *r, bool written_to) {
  const unsigned char more = written_to ? CLOSED : CLOSED_TO_WRITES;
  for (size_t k = 0; k < r->depth; k++)
    for (size_t i = 0; i < r->rows; i++) {
      const uintptr_t row = r->base + k * r->slice + i * r->pitch - base;
      close_pages(row / PAGE, (row + r->width + PAGE - 1) / PAGE, more);
    }
}

static void set_state(const sim_alloc *a, unsigned char state) {
  const uint64_t first = (a->base - base) / PAGE;
  for (uint64_t i = 0; i < a->room / PAGE; i++) atomic_store(&pages[first + i], state);
}

static void open_all(const sim_alloc *a) {
  protect((a->base - base) / PAGE, a->room / PAGE, PROT_READ | PROT_WRITE);
  set_state(a, LIVE);
}

/* Whether some host thread has yet to wait for this. */
static bool is_unseen(const sim_clock *work) {
  if (!sim_conf.separate_threads) return !sim_clock_includes(sim_host_clock(), work);
  for (const sim_thread *t = sim_threads(); t != NULL; t = t->next)
    if (!t->ended && !sim_clock_includes(&t->clock, work)) return true;
  return false;
}

static void push(sim_alloc ***list, size_t *n, size_t *room, sim_alloc *a) {
  if (*n == *room) {
    *room = *room * 2 + 16;
    *list = realloc(*list, *room * sizeof(sim_alloc *));
    if (*list == NULL) abort();
  }
  (*list)[(*n)++] = a;
}

void sim_trap_access(sim_alloc *a, const sim_region *r, bool write, const sim_op *op) {
  if (pages == NULL || a->freed || (a->space != SIM_PINNED && a->space != SIM_MANAGED)) return;
  if (sim_region_empty(r)) return;
  if (!a->watched) push(&watched, &nwatched, &watched_room, a);
  if (a->nto_close == 0) push(&fresh, &nfresh, &fresh_room, a);
  a->watched = true;
  sim_clock_see(&a->busy, op->slot, op->time);
  a->to_close = realloc(a->to_close, (a->nto_close + 1) * sizeof *a->to_close);
  if (a->to_close == NULL) abort();
  a->to_close[a->nto_close++] = (sim_queued_access){*r, write};
}

void sim_trap_works(const sim_op *op) {
  if (sim_conf.managed_exclusive) sim_clock_see(&working, op->slot, op->time);
}

void sim_trap_learned(void) {
  learned = true;
}

static void stop_watching(sim_alloc *a) {
  free(a->to_close);
  a->to_close = NULL;
  a->nto_close = 0;
  sim_clock_free(&a->busy);
  a->watched = false;
  size_t i = 0;
  while (watched[i] != a) i++;
  watched[i] = watched[--nwatched];
}

static bool is_exclusive(const sim_alloc *a) {
  return exclusive && a->space == SIM_MANAGED;
}

static void close_all(const sim_alloc *a) {
  const uint64_t first = (a->base - base) / PAGE;
  close_pages(first, first + a->room / PAGE, CLOSED);
}

void sim_trap_born(const sim_alloc *a) {
  if (a->space == SIM_DEVICE && sim_conf.host_trap) be_the_handler();
  if (a->space == SIM_DEVICE || pages == NULL) return;
  set_state(a, LIVE);
  if (is_exclusive(a)) close_all(a);
}

void sim_trap_died(sim_alloc *a) {
  if (a->watched) stop_watching(a);
  if (pages != NULL) set_state(a, 0);
}

static void close_what_is_new(sim_alloc *a) {
  for (size_t i = 0; i < a->nto_close; i++) close_region(&a->to_close[i].region, a->to_close[i].write);
  free(a->to_close);
  a->to_close = NULL;
  a->nto_close = 0;
}

/* Opens what is managed when the last work has been waited for, and closes it when there is work again. */
static void update_exclusive(void) {
  const bool now = is_unseen(&working);
  if (now == exclusive) return;
  exclusive = now;
  if (now) be_the_handler();
  for (sim_alloc *a = sim_alloc_first(); a != NULL; a = a->after) {
    if (a->space != SIM_MANAGED) continue;
    if (now) close_all(a);
    if (!now) open_all(a);
  }
}

void sim_trap_update(void) {
  if (pages == NULL) return;
  if (sim_conf.managed_exclusive) update_exclusive();
  for (size_t i = learned ? nwatched : 0; i-- > 0;) {
    sim_alloc *a = watched[i];
    if (is_unseen(&a->busy)) continue;
    if (!is_exclusive(a)) open_all(a);
    stop_watching(a);
  }
  if (nfresh > 0) be_the_handler();
  for (size_t i = 0; i < nfresh; i++) close_what_is_new(fresh[i]);
  nfresh = 0;
  learned = false;
}

static uintptr_t whole_pages(uintptr_t at, size_t *nbytes) {
  const uintptr_t first = (at + PAGE - 1) / PAGE * PAGE, end = (at + *nbytes) / PAGE * PAGE;
  *nbytes = end > first ? end - first : 0;
  return first;
}

void sim_trap_lend(uintptr_t at, size_t nbytes) {
  const uintptr_t first = whole_pages(at, &nbytes);
  int i = 0;
  while (i < LOANS && atomic_load(&loans[i].at) != 0) i++;
  if (i == LOANS || nbytes == 0 || !sim_conf.host_trap) return;
  be_the_handler();
  atomic_store(&loans[i].read, false);
  atomic_store(&loans[i].written, false);
  atomic_store(&loans[i].nbytes, nbytes);
  atomic_store(&loans[i].at, first);
  (void)mprotect((void *)first, nbytes, PROT_NONE);
}

void sim_trap_give_back(uintptr_t at, bool *was_read, bool *was_written) {
  size_t unused = 0;
  const uintptr_t first = whole_pages(at, &unused);
  *was_read = *was_written = false;
  for (int i = 0; i < LOANS; i++) {
    if (first == 0 || atomic_load(&loans[i].at) != first) continue;
    (void)mprotect((void *)first, atomic_load(&loans[i].nbytes), PROT_READ | PROT_WRITE);
    *was_read = atomic_load(&loans[i].read);
    *was_written = atomic_load(&loans[i].written);
    atomic_store(&loans[i].at, 0);
  }
}

static void report_exclusive(const sim_alloc *a, const host_access *n, const sim_place *place) {
  char here[200], made[200];
  if (!sim_found_pair(SIM_MISUSE, place, &a->made)) return;
  sim_found(SIM_MISUSE, "the host %s managed memory at %#zx while a device works, and none allows both at a time\n"
            "  here   %s\n  made   %s", n->how.write ? "writes" : "reads", (size_t)n->at,
            sim_place_text(place, here, sizeof here), sim_place_text(&a->made, made, sizeof made));
}

static void look_at(const host_access *n) {
  sim_alloc *a = sim_alloc_find(n->at);
  if (a == NULL || a->freed) return;
  const sim_region first_byte = sim_flat(n->at, 1);
  const sim_place place = {.call = "the program", .number = sim_number(), .caller = place_of(&n->how),
                           .thread = n->thread == NULL ? 0 : n->thread->id, .looked = true,
                           .line = sim_script_keep(n->line)};
  sim_check_access(a, &first_byte, n->how.write, &(sim_accessor){n->thread, n->acting, place});
  if (is_exclusive(a)) report_exclusive(a, n, &place);
  const uint64_t page = (n->at - base) / PAGE;
  if (a->watched || is_exclusive(a)) close_pages(page, page + 1, 0);
}

static void say_what_was_lost(void) {
  static uint64_t said;
  if (atomic_load(&lost) == said) return;
  said = atomic_load(&lost);
  sim_found(SIM_WARNING, "%llu accesses of the host to memory in use were not looked at: too many between two calls",
            (unsigned long long)said);
}

void sim_trap_look(void) {
  while (atomic_load(&looked_at) != atomic_load(&written)) {
    host_access *n = &host_accesses[atomic_load(&looked_at) % ACCESSES_KEPT];
    while (!atomic_load(&n->ready)) sched_yield();
    atomic_store(&n->ready, false);
    const host_access copy = *n;
    atomic_fetch_add(&looked_at, 1);
    look_at(&copy);
  }
  say_what_was_lost();
}
