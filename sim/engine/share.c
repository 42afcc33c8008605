/* share.c: memory that several processes of the machine use, and what each must know of the others' accesses to it.
 *
 * At the beginning of a file stands who has the memory open and the accesses that some process's work makes and its
 * host has not waited for yet. A process reads the others' before it checks an access of its own, and writes its own
 * down after. Calls of all processes are taken to be ordered as they came, as those of threads are, so what a host has
 * waited for is before all that anybody does later, and is taken out. Invariant: whoever changes what the file says
 * holds its lock. It must not know what the memory is used for. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"

#define MAGIC 0x7972656d6d656873ull

enum { USERS = 32, ACCESSES = 300, WORD = 48, WORDS = 200 };

typedef struct told_access {
  uint64_t process, number;
  uint32_t slot, time;
  sim_region region; /* from the memory's first byte on */
  int thread;
  bool write, is_free;
  char call[WORD], who[2 * WORD], where[WORDS];
} told_access;

typedef struct user {
  uint64_t process;
  unsigned times;
} user;

typedef struct shared {
  uint64_t magic, serial, owner, nbytes;
  int device;
  int data;         /* the owner's descriptor of the bytes; -1: they are in this file */
  uint64_t data_at; /* where in it */
  bool outlives;    /* its owner: it is whoever has it */
  bool freed, forgetful;
  char gone[WORDS];
  pthread_mutex_t lock;
  user users[USERS];
  size_t naccesses;
  told_access accesses[ACCESSES];
} shared;

_Static_assert(sizeof(shared) <= SIM_SHARE_HEAD, "the bytes come behind it");

struct sim_share {
  sim_share *next;
  shared *at;
  int fd;
  bool mine;
  bool told; /* accesses of this process stand in it, perhaps */
};

static sim_share *all;

int sim_share_file(uint64_t nbytes) {
  const int fd = memfd_create("shared", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)(SIM_SHARE_HEAD + nbytes)) == 0) return fd;
  close(fd);
  return -1;
}

static sim_share *attach(int fd) {
  void *at = mmap(NULL, SIM_SHARE_HEAD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  sim_share *share = at == MAP_FAILED ? NULL : calloc(1, sizeof *share);
  if (share == NULL) return NULL;
  *share = (sim_share){.next = all, .at = at, .fd = fd};
  all = share;
  return share;
}

sim_share *sim_share_new(int fd, const sim_alloc *a, int data, uint64_t data_at) {
  static uint64_t serial;
  sim_share *share = attach(fd);
  if (share == NULL) return NULL;
  shared *s = share->at;
  sim_shared_lock_init(&s->lock);
  s->serial = ++serial;
  s->owner = sim_process();
  s->nbytes = a->nbytes;
  s->device = a->device;
  s->data = data;
  s->data_at = data_at;
  s->outlives = data < 0;
  s->magic = MAGIC;
  share->mine = true;
  return share;
}

static bool is_share(int fd) {
  uint64_t magic = 0;
  return pread(fd, &magic, sizeof magic, 0) == sizeof magic && magic == MAGIC &&
         lseek(fd, 0, SEEK_END) >= SIM_SHARE_HEAD;
}

sim_share *sim_share_open(int fd) {
  return is_share(fd) ? attach(fd) : NULL;
}

sim_shared sim_share_facts(const sim_share *share) {
  const shared *s = share->at;
  return (sim_shared){s->owner, s->serial, s->nbytes, s->data_at, s->device, s->data, s->freed};
}

int sim_share_descriptor(const sim_share *share) {
  return share->fd;
}

bool sim_share_is(const sim_share *share, uint64_t owner, uint64_t serial) {
  return share != NULL && !share->mine && share->at->owner == owner && share->at->serial == serial;
}

/* By so many times more, or less. */
void sim_share_use(sim_share *share, bool on) {
  shared *s = share->at;
  user *mine = NULL, *empty = NULL;
  sim_shared_lock(&s->lock);
  for (size_t i = 0; i < USERS; i++) {
    user *u = &s->users[i];
    if (u->times == 0 || !sim_process_lives(u->process)) *u = (user){0, 0};
    if (u->times > 0 && u->process == sim_process()) mine = u;
    if (u->times == 0) empty = u;
  }
  if (mine != NULL) mine->times += on ? 1u : -1u;
  if (mine == NULL && empty != NULL && on) *empty = (user){sim_process(), 1};
  sim_shared_unlock(&s->lock);
}

/* A process that uses it, other than this one; 0: none does. */
static uint64_t another_user(shared *s) {
  for (size_t i = 0; i < USERS; i++) {
    const user *u = &s->users[i];
    if (u->times > 0 && u->process != sim_process() && sim_process_lives(u->process)) return u->process;
  }
  return 0;
}

static void drop_told(shared *s, bool (*drop)(const told_access *)) {
  size_t kept = 0;
  for (size_t i = 0; i < s->naccesses; i++)
    if (!drop(&s->accesses[i])) s->accesses[kept++] = s->accesses[i];
  s->naccesses = kept;
}

static bool is_seen(const told_access *t) {
  const uint32_t slot = sim_process_slot(t->process, t->slot);
  if (!sim_conf.separate_threads) return sim_clock_covers(sim_host_clock(), slot, t->time);
  for (const sim_thread *other = sim_threads(); other != NULL; other = other->next)
    if (!other->ended && !sim_clock_covers(&other->clock, slot, t->time)) return false;
  return true;
}

static bool is_of_the_dead(const told_access *t) {
  return !sim_process_lives(t->process);
}

void sim_shares_learned(void) {
  for (sim_share *share = all; share != NULL; share = share->next) {
    if (!share->told) continue;
    sim_shared_lock(&share->at->lock);
    drop_told(share->at, is_seen);
    share->told = share->at->naccesses > 0;
    sim_shared_unlock(&share->at->lock);
  }
}

static sim_access heard(const told_access *t, uintptr_t base) {
  char who[3 * WORD];
  snprintf(who, sizeof who, "%s of process %d", t->who, sim_process_pid(t->process));
  sim_access a = {.region = t->region, .write = t->write, .is_free = t->is_free, .time = t->time, .foreign = true};
  a.region.base += base;
  a.slot = sim_process_slot(t->process, t->slot);
  a.who = sim_kept_text(who);
  a.place = (sim_place){.call = sim_kept_text(t->call), .number = t->number, .thread = t->thread, .looked = true,
                        .line = t->where[0] != '\0' ? sim_kept_text(t->where) : NULL};
  return a;
}

/* Of the memory's owner, which may have freed it, or have ended. */
static void report_owner(const sim_alloc *m, const shared *s) {
  char here[200];
  const sim_place now = sim_here();
  const bool ended = !s->outlives && !sim_process_lives(s->owner);
  if (!s->freed && !ended) return;
  if (!sim_found_pair(SIM_STALE, &m->made, &now)) return;
  sim_found(SIM_STALE, "use of memory of process %d, which %s\n  here   %s%s%s", sim_process_pid(s->owner),
            s->freed ? "has freed it" : "has ended", sim_place_text(&now, here, sizeof here),
            s->freed ? "\n  freed  " : "", s->freed ? s->gone : "");
}

size_t sim_share_read(sim_alloc *m, sim_access *out) {
  shared *s = m->share->at;
  size_t n = 0;
  sim_shared_lock(&s->lock);
  drop_told(s, is_of_the_dead);
  for (size_t i = 0; i < s->naccesses; i++)
    if (s->accesses[i].process != sim_process()) out[n++] = heard(&s->accesses[i], m->base);
  m->share->told = s->naccesses > 0;
  sim_shared_unlock(&s->lock);
  if (!m->share->mine) report_owner(m, s);
  return n;
}

size_t sim_share_most(void) {
  return ACCESSES;
}

static void put_text(char *to, size_t size, const char *text) {
  snprintf(to, size, "%s", text == NULL ? "" : text);
}

static void forget_first(shared *s) {
  memmove(s->accesses, s->accesses + 1, --s->naccesses * sizeof *s->accesses);
  if (!s->forgetful)
    sim_found(SIM_WARNING, "more than %d accesses to memory of several processes that no host has waited for: the "
              "first of them are forgotten, and races between processes with those are not found", ACCESSES);
  s->forgetful = true;
}

/* What the host itself does is over when the call returns. */
void sim_share_write(sim_alloc *m, const sim_access *a) {
  shared *s = m->share->at;
  if (sim_clock_covers(sim_host_clock(), a->slot, a->time)) return;
  sim_shared_lock(&s->lock);
  drop_told(s, is_seen);
  if (s->naccesses == ACCESSES) forget_first(s);
  told_access *t = &s->accesses[s->naccesses++];
  *t = (told_access){.process = sim_process(), .number = a->place.number, .slot = a->slot, .time = a->time,
                     .region = a->region, .thread = a->place.thread, .write = a->write, .is_free = a->is_free};
  t->region.base -= m->base;
  put_text(t->call, sizeof t->call, a->place.call);
  put_text(t->who, sizeof t->who, a->who);
  put_text(t->where, sizeof t->where, a->place.line);
  m->share->told = true;
  sim_shared_unlock(&s->lock);
}

static void report_used(const sim_alloc *m, uint64_t by) {
  char here[200], made[200];
  const sim_place now = sim_here();
  sim_found(SIM_MISUSE, "memory is freed while process %d has it open: what that does is not defined\n  here   %s\n"
            "  made   %s", sim_process_pid(by), sim_place_text(&now, here, sizeof here),
            sim_place_text(&m->made, made, sizeof made));
}

static void detach(sim_share *share) {
  sim_share **link = &all;
  while (*link != share) link = &(*link)->next;
  *link = share->next;
  munmap(share->at, SIM_SHARE_HEAD);
  close(share->fd);
  free(share);
}

void sim_share_close(sim_share *share) {
  if (share != NULL) detach(share);
}

bool sim_share_is_others(const sim_share *share) {
  return share != NULL && !share->mine;
}

/* The memory ends in this process. */
void sim_share_end(sim_alloc *m) {
  sim_share *share = m->share;
  shared *s = share->at;
  const sim_place now = sim_here();
  sim_shared_lock(&s->lock);
  const uint64_t by = share->mine && !s->outlives ? another_user(s) : 0;
  if (share->mine && !s->outlives) {
    sim_place_text(&now, s->gone, sizeof s->gone);
    s->freed = true;
  }
  sim_shared_unlock(&s->lock);
  if (by != 0) report_used(m, by);
  if (!share->mine) sim_share_use(share, false);
  m->share = NULL;
  detach(share);
}
