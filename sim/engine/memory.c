/* memory.c: where memory lies, live and freed.
 *
 * Each device, pinned memory, and what is reserved for mappings have one range of addresses each, mapped twice: at the
 * address that the program holds (without access, or with access for what the host may touch) and at the simulator's
 * alias. Invariant:
 * no two allocations that live have an address in common, there is a gap behind every allocation, and freed bytes stay
 * behind the alias as long as a queued operation may touch them. An address is given out again where sim_reuses says
 * so, that freed last before others, and only to a new allocation of as many pages. It must not know about streams. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"

#define MOST_SPAN (1ull << 39)
#define LEAST_SPAN (1ull << 30)
#define PAGE 4096u
#define GAP 4096u

typedef struct range {
  uintptr_t program, alias;
  int fd;
  uint64_t next;
  sim_alloc **held; /* rising addresses; of those that had one address, the last */
  size_t nheld, room;
  sim_alloc *spare; /* whose addresses may be used again */
} range;

static range ranges[SIM_MAX_DEVICES + 2]; /* the host's, the devices', then reserved addresses */
static int nranges;
static uint64_t span; /* of addresses for each range */
static sim_alloc **allocs; /* all, in the order of making */
static size_t nallocs, allocs_room;
static sim_alloc *first, *last; /* those that are not freed, in the same order */
static sim_alloc **foreign; /* registered, live */
static size_t nforeign, foreign_room;
static uint64_t ids, resting;

static bool range_open(range *r) {
  void *program = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  r->fd = memfd_create("sim", MFD_CLOEXEC);
  const bool sized = r->fd >= 0 && ftruncate(r->fd, (off_t)span) == 0;
  void *alias = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, r->fd, 0);
  if (sized && program != MAP_FAILED && alias != MAP_FAILED) {
    madvise(alias, span, MADV_DONTDUMP);
    r->program = (uintptr_t)program;
    r->alias = (uintptr_t)alias;
    return true;
  }
  if (program != MAP_FAILED) munmap(program, span);
  if (alias != MAP_FAILED) munmap(alias, span);
  if (r->fd >= 0) close(r->fd);
  return false;
}

static void range_close(const range *r) {
  munmap((void *)r->program, span);
  munmap((void *)r->alias, span);
  close(r->fd);
}

/* A process with limited addresses (a sanitizer, a resource limit) gets shorter ranges. */
sim_status sim_memory_open(int devices) {
  for (span = MOST_SPAN; span >= LEAST_SPAN; span /= 2) {
    for (nranges = 0; nranges <= devices + 1 && range_open(&ranges[nranges]);) nranges++;
    if (nranges > devices + 1) {
      sim_trap_open(ranges[0].program, span);
      return SIM_OK;
    }
    while (nranges > 0) range_close(&ranges[--nranges]);
  }
  return SIM_NOMEM;
}

static range *range_of(uintptr_t p) {
  for (int i = 0; i < nranges; i++)
    if (p - ranges[i].program < span) return &ranges[i];
  return NULL;
}

bool sim_ours(uintptr_t p) {
  return range_of(p) != NULL;
}

static bool program_access(const sim_alloc *a, bool on) {
  const range *r = range_of(a->base);
  const int flags = on ? MAP_SHARED | MAP_FIXED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  void *p = mmap((void *)a->base, a->room, on ? PROT_READ | PROT_WRITE : PROT_NONE, flags, on ? r->fd : -1,
                 on ? (off_t)(a->base - r->program) : 0);
  return p != MAP_FAILED;
}

static void push(sim_alloc ***list, size_t *n, size_t *capacity, sim_alloc *a) {
  if (*n == *capacity) {
    *capacity = *capacity * 2 + 64;
    *list = realloc(*list, *capacity * sizeof(sim_alloc *));
    if (*list == NULL) abort();
  }
  (*list)[(*n)++] = a;
}

/* How many of them begin at p or below. */
static size_t held_up_to(const range *r, uintptr_t p) {
  size_t lo = 0, hi = r->nheld;
  while (lo < hi) {
    const size_t mid = lo + (hi - lo) / 2;
    if (r->held[mid]->base <= p) lo = mid + 1;
    if (r->held[mid]->base > p) hi = mid;
  }
  return lo;
}

static void hold(range *r, sim_alloc *a) {
  const size_t n = held_up_to(r, a->base);
  if (n > 0 && r->held[n - 1]->base == a->base)
    r->held[n - 1] = a;
  else
    push(&r->held, &r->nheld, &r->room, a);
}

static sim_alloc *append(sim_space space, int device, uintptr_t base, size_t nbytes) {
  range *r = range_of(base);
  sim_alloc *a = calloc(1, sizeof *a);
  if (a == NULL) abort();
  *a = (sim_alloc){.space = space, .device = device, .base = base, .nbytes = nbytes, .id = ++ids};
  a->made = sim_here();
  a->before = last;
  *(last == NULL ? &first : &last->after) = a;
  last = a;
  push(&allocs, &nallocs, &allocs_room, a);
  if (r != NULL) hold(r, a);
  if (r == NULL) push(&foreign, &nforeign, &foreign_room, a);
  return a;
}

static bool host_can_access(sim_space space) {
  return space == SIM_PINNED || space == SIM_MANAGED;
}

size_t sim_room(size_t nbytes) {
  const size_t room = (nbytes + PAGE - 1) / PAGE * PAGE;
  return room < nbytes ? 0 : room;
}

static sim_alloc *take_spare(range *r, size_t room) {
  sim_alloc **link = &r->spare;
  if (!sim_reuses()) return NULL;
  while (*link != NULL && (*link)->room != room) link = &(*link)->below;
  sim_alloc *a = *link;
  if (a != NULL) *link = a->below;
  return a;
}

/* In a range, where `at` was if it is not NULL. */
static sim_alloc *place(range *r, sim_space space, int device, size_t nbytes, sim_alloc *at) {
  const size_t taken = sim_room(nbytes);
  if (at == NULL) at = take_spare(r, taken);
  if (at == NULL && (r->next > span || taken + GAP > span - r->next)) return NULL;
  sim_alloc *a = append(space, device, at != NULL ? at->base : r->program + r->next, nbytes);
  a->room = taken;
  if (at == NULL) {
    r->next += taken + GAP;
  } else { /* the bytes are the new allocation's: what the quarantine kept of them is gone */
    if (!at->purged) resting -= at->room;
    at->purged = true;
  }
  return a;
}

sim_status sim_alloc_new(sim_space space, int device, size_t nbytes, sim_alloc *at, sim_alloc **out) {
  const size_t taken = sim_room(nbytes);
  sim_device *d = sim_device_at(device);
  const bool counts = space == SIM_DEVICE && at == NULL;
  if (taken < nbytes || (counts && d->used + taken > d->total)) return SIM_NOMEM;
  sim_alloc *a = place(&ranges[space == SIM_DEVICE ? device + 1 : 0], space, device, nbytes, at);
  if (a == NULL) return SIM_NOMEM;
  if (host_can_access(space) && !program_access(a, true)) return SIM_NOMEM;
  sim_trap_born(a);
  if (counts) d->used += taken;
  *out = a;
  return SIM_OK;
}

sim_status sim_alloc_borrow(int device, size_t nbytes, int fd, uint64_t offset, sim_alloc **out) {
  sim_alloc *a = place(&ranges[device + 1], SIM_DEVICE, device, nbytes, NULL);
  if (a == NULL) return SIM_NOMEM;
  a->uncounted = true;
  const sim_status rc = sim_alloc_back(a, fd, offset);
  if (rc != SIM_OK) sim_alloc_end(a);
  *out = a;
  return rc;
}

/* They lie in a range of their own, in which all have the same distance from a multiple of align. */
sim_status sim_alloc_reserve(size_t nbytes, size_t align, sim_alloc **out) {
  range *r = &ranges[nranges - 1];
  sim_alloc *at = take_spare(r, sim_room(nbytes));
  if (at != NULL && at->base % align != 0) {
    at->below = r->spare;
    r->spare = at;
    at = NULL;
  }
  if (at == NULL) r->next += (align - (r->program + r->next) % align) % align;
  sim_alloc *a = place(r, SIM_DEVICE, 0, nbytes, at);
  if (a == NULL) return SIM_NOMEM;
  a->uncounted = true;
  *out = a;
  return SIM_OK;
}

sim_status sim_register(void *p, size_t nbytes, sim_alloc **out) {
  const sim_region whole = sim_flat((uintptr_t)p, nbytes);
  if (sim_ours((uintptr_t)p)) return SIM_REGISTERED;
  for (size_t i = 0; i < nforeign; i++) {
    const sim_region other = sim_flat(foreign[i]->base, foreign[i]->nbytes);
    if (sim_region_overlap(&whole, &other)) return SIM_REGISTERED;
  }
  *out = append(SIM_FOREIGN, 0, (uintptr_t)p, nbytes);
  return SIM_OK;
}

static sim_alloc *holds(sim_alloc *a, uintptr_t p) {
  return p - a->base < (a->nbytes > 0 ? a->nbytes : 1) ? a : NULL;
}

sim_alloc *sim_alloc_find(uintptr_t p) {
  const range *r = range_of(p);
  const size_t n = r != NULL ? held_up_to(r, p) : 0;
  if (r != NULL) return n == 0 ? NULL : holds(r->held[n - 1], p);
  for (size_t i = 0; i < nforeign; i++)
    if (holds(foreign[i], p) != NULL) return foreign[i];
  return NULL;
}

void *sim_view(uintptr_t p) {
  const range *r = range_of(p);
  return r == NULL ? (void *)p : (void *)(r->alias + (p - r->program));
}

int sim_alloc_file(const sim_alloc *a, uint64_t *offset) {
  const range *r = range_of(a->base);
  *offset = a->base - r->program;
  return r->fd;
}

sim_status sim_alloc_map(uintptr_t p, size_t nbytes, int fd, uint64_t offset) {
  const range *r = range_of(p);
  void *at = (void *)(r->alias + (p - r->program));
  const int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
  if (fd < 0) offset = p - r->program;
  return mmap(at, nbytes, protection, flags, fd < 0 ? r->fd : fd, (off_t)offset) == at ? SIM_OK : SIM_NOMEM;
}

sim_status sim_alloc_back(sim_alloc *a, int fd, uint64_t offset) {
  const sim_status rc = sim_alloc_map(a->base, a->room, fd, offset);
  a->backed = rc == SIM_OK;
  return rc;
}

/* Beyond the limit only both ends are filled: a large allocation need not cost its size in real memory. */
void sim_poison(sim_alloc *a, int byte) {
  const bool of_others = a->backed && a->physical == NULL;
  if (a->space == SIM_FOREIGN || of_others || a->uncounted) return;
  const uint64_t limit = sim_conf.poison;
  char *view = sim_view(a->base);
  if (a->nbytes <= limit) {
    memset(view, byte, a->nbytes);
    return;
  }
  memset(view, byte, limit / 2);
  memset(view + a->nbytes - limit / 2, byte, limit / 2);
}

static void purge(sim_alloc *a) {
  const range *r = range_of(a->base);
  a->purged = true;
  resting -= a->room;
  if (r == NULL || a->room == 0) return;
  fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(a->base - r->program), (off_t)a->room);
}

static void purge_oldest(void) {
  static size_t from;
  while (from < nallocs && (allocs[from]->purged || allocs[from]->space == SIM_FOREIGN)) from++;
  for (size_t i = from; i < nallocs && resting > sim_conf.quarantine; i++)
    if (allocs[i]->freed && !allocs[i]->purged && allocs[i]->pins == 0) purge(allocs[i]);
}

void sim_alloc_end(sim_alloc *a) {
  a->freed = true;
  a->gone = sim_here();
  *(a->before == NULL ? &first : &a->before->after) = a->after;
  *(a->after == NULL ? &last : &a->after->before) = a->before;
  if (a->space == SIM_FOREIGN) {
    size_t i = 0;
    while (i < nforeign && foreign[i] != a) i++;
    if (i < nforeign) foreign[i] = foreign[--nforeign];
    return;
  }
  if (a->share != NULL) sim_share_end(a);
  if (a->backed && sim_alloc_map(a->base, a->room, -1, 0) != SIM_OK) abort();
  if (host_can_access(a->space)) sim_trap_died(a);
  if (host_can_access(a->space)) program_access(a, false);
  a->purged = a->uncounted; /* it has no bytes that could be kept */
  if (!a->purged) resting += a->room;
  purge_oldest();
  if (a->pool == NULL) sim_alloc_release(a);
}

void sim_alloc_release(sim_alloc *a) {
  range *r = range_of(a->base);
  if (a->space == SIM_DEVICE && !a->uncounted) sim_device_at(a->device)->used -= a->room;
  a->below = r->spare;
  r->spare = a;
}

void sim_alloc_unpin(sim_alloc *a) {
  a->pins--;
}

sim_alloc *sim_alloc_first(void) {
  return first;
}

int sim_peek(const void *device, void *host, size_t nbytes) {
  sim_lock();
  const sim_alloc *a = sim_alloc_find((uintptr_t)device);
  const bool ours = a != NULL && (uintptr_t)device + nbytes <= a->base + a->nbytes;
  if (ours) memcpy(host, sim_view((uintptr_t)device), nbytes);
  sim_unlock();
  return ours ? 0 : -1;
}
