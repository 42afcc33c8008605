/* virtual.c: memory without an address, and reserved addresses that it is mapped at.
 *
 * The memory is an allocation of its own, whose bytes are a file's and whose address the program never learns; reserved
 * addresses are one allocation without bytes, however much is mapped in it. Invariant: what touches reserved addresses
 * is checked as an access to the memory that is mapped there, so that two mappings of one memory, in one process or in
 * two, are the same bytes. It must not know how accesses are checked. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"

struct sim_maps {
  sim_map *first;
};

static sim_physical *physical_new(sim_alloc *memory, int fd, bool exportable) {
  sim_physical *p = calloc(1, sizeof *p);
  if (p == NULL) abort();
  *p = (sim_physical){.memory = memory, .fd = fd, .refs = 1, .exportable = exportable};
  sim_object_add(&p->o, SIM_PHYSICAL);
  memory->physical = p;
  return p;
}

sim_status sim_physical_new(int device, size_t nbytes, bool exportable, sim_physical **out) {
  sim_alloc *a;
  if (nbytes == 0 || nbytes % SIM_GRANULARITY != 0) return SIM_INVALID;
  const sim_status rc = sim_alloc_new(SIM_DEVICE, device, nbytes, NULL, &a);
  if (rc != SIM_OK) return rc;
  const int fd = sim_share_file(nbytes);
  if (fd < 0 || sim_alloc_back(a, fd, SIM_SHARE_HEAD) != SIM_OK) {
    if (fd >= 0) close(fd);
    sim_alloc_end(a);
    return SIM_NOMEM;
  }
  *out = physical_new(a, fd, exportable);
  sim_poison(a, SIM_FRESH);
  if (exportable) a->share = sim_share_new(dup(fd), a, -1, SIM_SHARE_HEAD);
  return SIM_OK;
}

sim_status sim_physical_import(int fd, sim_physical **out) {
  sim_alloc *a;
  sim_share *share = sim_share_open(dup(fd));
  if (share == NULL) return SIM_INVALID;
  const sim_shared facts = sim_share_facts(share);
  const bool whole = facts.data < 0 && sim_device_at(facts.device) != NULL;
  if (!whole || sim_alloc_borrow(facts.device, facts.nbytes, fd, SIM_SHARE_HEAD, &a) != SIM_OK) return SIM_INVALID;
  a->share = share;
  sim_share_use(share, true);
  *out = physical_new(a, fd, true);
  return SIM_OK;
}

static void end_unused(sim_physical *p) {
  if (p->refs > 0 || p->maps > 0) return;
  sim_alloc *a = p->memory;
  sim_alloc_end(a);
  close(p->fd);
}

void sim_physical_release(sim_physical *p) {
  if (--p->refs > 0) return;
  sim_object_end(&p->o);
  end_unused(p);
}

sim_status sim_reserve(size_t nbytes, size_t align, uintptr_t *out) {
  sim_alloc *a;
  if (nbytes == 0 || nbytes % SIM_GRANULARITY != 0 || (align & (align - 1)) != 0) return SIM_INVALID;
  const sim_status rc = sim_alloc_reserve(nbytes, align < SIM_GRANULARITY ? SIM_GRANULARITY : align, &a);
  if (rc != SIM_OK) return rc;
  a->maps = calloc(1, sizeof *a->maps);
  if (a->maps == NULL) abort();
  *out = a->base;
  return SIM_OK;
}

static sim_status refuse(const char *why, uintptr_t at, size_t nbytes, const sim_map *had) {
  char here[200], made[200];
  const sim_place now = sim_here();
  sim_found(SIM_MISUSE, "%s of %zu bytes at %#zx: %s\n  here   %s%s%s", sim_here().call, nbytes, (size_t)at, why,
            sim_place_text(&now, here, sizeof here), had == NULL ? "" : "\n  mapped ",
            had == NULL ? "" : sim_place_text(&had->made, made, sizeof made));
  return SIM_INVALID;
}

static sim_alloc *reserved(uintptr_t at, size_t nbytes) {
  sim_alloc *a = sim_alloc_find(at);
  const bool is = a != NULL && a->maps != NULL && !a->freed;
  return is && nbytes > 0 && nbytes <= a->nbytes - (at - a->base) ? a : NULL;
}

sim_status sim_unreserve(uintptr_t at, size_t nbytes) {
  sim_alloc *a = reserved(at, nbytes);
  if (a == NULL || a->base != at || a->nbytes != nbytes)
    return refuse("these are no addresses that were reserved together", at, nbytes, NULL);
  if (a->maps->first != NULL) return refuse("memory is mapped there", at, nbytes, a->maps->first);
  free(a->maps);
  a->maps = NULL;
  sim_alloc_end(a);
  return SIM_OK;
}

const sim_map *sim_map_at(const sim_alloc *a, uintptr_t p) {
  const sim_map *m = a->maps->first;
  while (m != NULL && p >= m->at + m->nbytes) m = m->next;
  return m != NULL && p >= m->at ? m : NULL;
}

sim_status sim_map_add(uintptr_t at, size_t nbytes, sim_physical *p) {
  sim_alloc *a = reserved(at, nbytes);
  if (a == NULL) return refuse("these addresses are not reserved", at, nbytes, NULL);
  if (at % SIM_GRANULARITY != 0 || nbytes % SIM_GRANULARITY != 0)
    return refuse("it is no multiple of the granularity", at, nbytes, NULL);
  if (nbytes > p->memory->nbytes) return refuse("the memory is smaller", at, nbytes, NULL);
  sim_map **link = &a->maps->first;
  while (*link != NULL && (*link)->at + (*link)->nbytes <= at) link = &(*link)->next;
  if (*link != NULL && (*link)->at < at + nbytes) return refuse("memory is mapped there", at, nbytes, *link);
  if (sim_alloc_map(at, nbytes, p->fd, SIM_SHARE_HEAD) != SIM_OK) return SIM_NOMEM;
  sim_map *m = calloc(1, sizeof *m);
  if (m == NULL) abort();
  *m = (sim_map){.at = at, .nbytes = nbytes, .of = p, .made = sim_here(), .next = *link};
  *link = m;
  a->device = p->memory->device;
  p->maps++;
  return SIM_OK;
}

/* The first and, behind it, the others of the mappings that the range is made of; NULL: it is not. */
static sim_map **whole_maps(sim_alloc *a, uintptr_t at, size_t nbytes) {
  uintptr_t end = at;
  sim_map **link = &a->maps->first;
  while (*link != NULL && (*link)->at < at) link = &(*link)->next;
  for (const sim_map *m = *link; m != NULL && end < at + nbytes && m->at == end; m = m->next) end += m->nbytes;
  return end == at + nbytes ? link : NULL;
}

static void end_map(sim_map *m) {
  const sim_region part = sim_flat(m->of->memory->base, m->nbytes);
  sim_check_unmapped(m->of->memory, &part);
  if (sim_alloc_map(m->at, m->nbytes, -1, 0) != SIM_OK) abort();
  m->of->maps--;
  end_unused(m->of);
  free(m);
}

sim_status sim_map_end(uintptr_t at, size_t nbytes) {
  sim_alloc *a = reserved(at, nbytes);
  sim_map **link = a == NULL ? NULL : whole_maps(a, at, nbytes);
  if (link == NULL) return refuse("this is not what was mapped, as a whole", at, nbytes, NULL);
  while (*link != NULL && (*link)->at < at + nbytes) {
    sim_map *m = *link;
    *link = m->next;
    end_map(m);
  }
  return SIM_OK;
}

sim_status sim_map_allow(uintptr_t at, size_t nbytes, int device, unsigned flags) {
  sim_alloc *a = reserved(at, nbytes);
  sim_map **link = a == NULL ? NULL : whole_maps(a, at, nbytes);
  if (link == NULL) return refuse("this is not what was mapped, as a whole", at, nbytes, NULL);
  for (sim_map *m = *link; m != NULL && m->at < at + nbytes; m = m->next) m->access[device] = (unsigned char)flags;
  return SIM_OK;
}

const char *sim_map_forbids(const sim_alloc *a, uintptr_t from, uintptr_t to, int device, bool write) {
  if (a->maps == NULL) return NULL;
  while (from < to) {
    const sim_map *m = sim_map_at(a, from);
    if (m == NULL) return "which is reserved, and no memory is mapped there";
    if (m->access[device] == 0) return "to which the device has no access (cuMemSetAccess)";
    if (write && m->access[device] != 3) return "which the device may only read (cuMemSetAccess)";
    from = m->at + m->nbytes;
  }
  return NULL;
}

void sim_map_run(const sim_alloc *a, uintptr_t p, uintptr_t *from, uintptr_t *to) {
  *from = *to = p;
  const sim_map *m = sim_map_at(a, p);
  if (m == NULL) return;
  *from = *to = a->maps->first->at;
  for (const sim_map *n = a->maps->first; n != NULL && (n->at == *to || n->at <= p); n = n->next) {
    if (n->at != *to) *from = n->at;
    *to = n->at + n->nbytes;
  }
}

/* What of the rows lies in one mapping: all that lie in it whole as one region, and of the others their parts. */
static void part_of_slice(const sim_map *m, const sim_region *r, void (*fn)(sim_alloc *, const sim_region *, void *),
                          void *arg) {
  sim_alloc *memory = m->of->memory;
  sim_region run = {.base = 0, .width = r->width, .pitch = r->pitch, .rows = 0, .slice = r->slice, .depth = 1};
  for (size_t i = 0; i < r->rows; i++) {
    const uintptr_t from = r->base + i * r->pitch, to = from + r->width, end = m->at + m->nbytes;
    if (from >= m->at && to <= end) {
      if (run.rows++ == 0) run.base = from - m->at + memory->base;
    } else if (from < end && to > m->at) {
      const uintptr_t begin = from > m->at ? from : m->at;
      const sim_region part = sim_flat(begin - m->at + memory->base, (to < end ? to : end) - begin);
      fn(memory, &part, arg);
    }
  }
  if (run.rows > 0) fn(memory, &run, arg);
}

void sim_map_parts(const sim_alloc *a, const sim_region *r, void (*fn)(sim_alloc *, const sim_region *, void *),
                   void *arg) {
  const uintptr_t end = sim_region_end(r);
  for (const sim_map *m = a->maps->first; m != NULL; m = m->next) {
    if (m->at >= end || m->at + m->nbytes <= r->base) continue;
    for (size_t k = 0; k < r->depth; k++) {
      sim_region slice = *r;
      slice.base += k * r->slice;
      slice.depth = 1;
      part_of_slice(m, &slice, fn, arg);
    }
  }
}
