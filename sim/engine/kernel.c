/* kernel.c: loaded code, and launches of it.
 *
 * A launch is followed once, before it is queued, to learn which bytes its threads touch; what it found is
 * gathered here into few regions. Invariant: a launch never changes once it is sealed, and no byte is touched when
 * it runs that was not among its regions, so running needs no checks. It must not know what the code is made of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum {
  MOST_ENTRIES = 1 << 20, /* beyond this what is gathered is merged, and threads are not told apart any more */
  MOST_REGIONS = 512      /* of one allocation; beyond this small gaps count as touched */
};

sim_module *sim_module_new(sim_type type, sim_context *ctx, void *code, void (*drop)(void *)) {
  sim_module *m = calloc(1, sizeof *m);
  if (m == NULL) abort();
  sim_object_add(&m->o, type);
  *m = (sim_module){.o = m->o, .ctx = ctx, .code = code, .drop = drop, .refs = 1};
  return m;
}

static void let_go(sim_module *m) {
  if (--m->refs > 0) return;
  m->drop(m->code);
  m->code = NULL;
}

static void report_busy(const sim_module *m) {
  char here[200], made[200];
  const sim_place now = sim_here();
  sim_found(SIM_MISUSE, "a %s is unloaded while a launch of it may be queued or running\n  unloaded %s\n  loaded   %s",
            sim_type_name(m->o.type), sim_place_text(&now, here, sizeof here),
            sim_place_text(&m->o.made, made, sizeof made));
}

sim_alloc *sim_module_variable(const sim_module *m, const sim_context *c, size_t which) {
  for (const sim_variable *v = m->variables; v != NULL; v = v->next)
    if (v->ctx == c && v->which == which) return v->alloc;
  return NULL;
}

sim_status sim_module_place(sim_module *m, sim_context *c, size_t which, const void *bytes, size_t nbytes,
                            sim_alloc **out) {
  *out = sim_module_variable(m, c, which);
  if (*out != NULL) return SIM_OK;
  const sim_status rc = sim_alloc_new(SIM_DEVICE, c->device->id, nbytes, NULL, out);
  if (rc != SIM_OK) return rc;
  (*out)->ctx = c;
  (*out)->of_module = true;
  (*out)->kept = "is a module's variable, which goes with the module";
  memcpy(sim_view((*out)->base), bytes, nbytes);
  sim_variable *v = calloc(1, sizeof *v);
  if (v == NULL) abort();
  *v = (sim_variable){c, which, *out, m->variables};
  m->variables = v;
  return SIM_OK;
}

/* Those in a context, or in all of them. As a free does, this counts as a write by the host. */
static void end_variables(sim_module *m, const sim_context *c) {
  sim_variable **link = &m->variables;
  while (*link != NULL) {
    sim_variable *v = *link;
    const sim_region whole = sim_flat(v->alloc->base, v->alloc->nbytes);
    if (c != NULL && v->ctx != c) {
      link = &v->next;
      continue;
    }
    sim_check_host(v->alloc, &whole, true, true);
    sim_poison(v->alloc, SIM_GONE);
    sim_alloc_end(v->alloc);
    *link = v->next;
    free(v);
  }
}

void sim_module_end(sim_module *m) {
  const sim_clock *seen = sim_host_clock();
  bool busy = false;
  for (uint32_t slot = 0; slot < m->used.size; slot++)
    if (!sim_clock_covers(seen, slot, m->used.at[slot])) busy = true;
  if (busy) report_busy(m);
  for (sim_object *o = sim_object_first(); o != NULL; o = o->after)
    if (o->type == SIM_FUNCTION && ((sim_function *)(void *)o)->module == m) sim_object_end(o);
  end_variables(m, NULL);
  sim_clock_free(&m->used);
  sim_object_end(&m->o);
  let_go(m);
}

size_t sim_module_end_all(const sim_context *c) {
  size_t n = 0;
  for (sim_object *o = sim_object_first(); o != NULL; o = o->after) {
    sim_module *m = (sim_module *)(void *)o;
    if (o->type == SIM_LIBRARY) end_variables(m, c);
    if (o->type != SIM_MODULE || m->ctx != c) continue;
    n += !m->o.hidden;
    sim_module_end(m);
  }
  return n;
}

sim_function *sim_function_of(sim_module *m, sim_context *ctx, const void *entry) {
  for (sim_object *o = sim_object_first(); o != NULL; o = o->after) {
    sim_function *had = (sim_function *)(void *)o;
    if (o->type == SIM_FUNCTION && had->module == m && had->ctx == ctx && had->entry == entry) return had;
  }
  sim_function *f = calloc(1, sizeof *f);
  if (f == NULL) abort();
  sim_object_add(&f->o, SIM_FUNCTION);
  f->o.hidden = true;
  f->module = m;
  f->ctx = ctx;
  f->entry = entry;
  return f;
}

sim_launch *sim_launch_new(sim_module *m, int device) {
  sim_launch *l = calloc(1, sizeof *l);
  if (l == NULL) abort();
  l->refs = 1;
  l->module = m;
  l->device = device;
  m->refs++;
  return l;
}

sim_launch *sim_launch_keep(sim_launch *l) {
  if (l != NULL) l->refs++;
  return l;
}

void sim_launch_drop(sim_launch *l) {
  if (l == NULL || --l->refs > 0) return;
  if (l->drop != NULL) l->drop(l->body);
  let_go(l->module);
  sim_launch_forget(l);
  free(l->accesses);
  free(l);
}

void sim_launch_pin(const sim_launch *l, bool on) {
  for (size_t i = 0; l != NULL && i < l->naccesses; i++) {
    if (on) l->accesses[i].alloc->pins++;
    if (!on) sim_alloc_unpin(l->accesses[i].alloc);
  }
}

/* A graph may hold a launch longer than the program holds the code. */
static void report_unloaded(const sim_module *m, const sim_op *op) {
  char here[200], gone[200];
  if (m->o.live || !sim_found_pair(SIM_STALE, &m->o.gone, &op->place)) return;
  sim_found(SIM_STALE, "a kernel of a %s that was unloaded is launched\n  launched %s\n  unloaded %s",
            sim_type_name(m->o.type), sim_place_text(&op->place, here, sizeof here),
            sim_place_text(&m->o.gone, gone, sizeof gone));
}

void sim_launch_check(sim_launch *l, const sim_op *op) {
  if (l == NULL) return;
  report_unloaded(l->module, op);
  for (size_t i = 0; i < l->naccesses; i++) {
    const sim_launch_access *t = &l->accesses[i];
    sim_check_op(t->alloc, &t->region, t->write, op);
  }
  sim_clock now = {0};
  sim_clock_copy(&now, &op->clock);
  for (uint32_t slot = 0; slot < now.size; slot++)
    if (slot != op->slot) now.at[slot] = 0;
  sim_clock_join(&l->module->used, &now);
  sim_clock_free(&now);
}

/* The program's own memory may be gone by now; the simulator's is still there, freed or not. */
static bool gone(const sim_launch *l) {
  for (size_t i = 0; i < l->naccesses; i++)
    if (l->accesses[i].alloc->space == SIM_FOREIGN && l->accesses[i].alloc->freed) return true;
  return false;
}

void sim_launch_run(sim_launch *l) {
  if (gone(l))
    sim_stick(sim_device_at(l->device), l->illegal);
  else
    l->run(l);
}

static const char *why_not(const sim_launch *l, const sim_alloc *a, const sim_thread_access *r, sim_kind *kind) {
  *kind = SIM_BOUNDS;
  if (a == NULL) return sim_ours(r->base) ? "which belongs to no allocation" : "which is the host's own memory";
  if (r->base + r->nbytes > a->base + a->nbytes) return "and ends behind its allocation";
  if (!sim_device_can_access(l->device, a)) return "which is another device's memory";
  const char *forbidden = sim_map_forbids(a, r->base, r->base + r->nbytes, l->device, r->write);
  if (forbidden != NULL) return forbidden;
  *kind = SIM_STALE;
  return a->freed ? "which is freed memory" : NULL;
}

static int by_address(const void *a, const void *b) {
  const sim_thread_access *x = a, *y = b;
  if (x->base != y->base) return x->base < y->base ? -1 : 1;
  if (x->nbytes != y->nbytes) return x->nbytes < y->nbytes ? -1 : 1;
  if (x->write != y->write) return x->write - y->write;
  if (x->block != y->block) return x->block < y->block ? -1 : 1;
  if (x->phase != y->phase) return x->phase < y->phase ? -1 : 1;
  return x->thread < y->thread ? -1 : x->thread > y->thread;
}

/* Joins what overlaps or leaves a gap of at most `gap`, never across the end of an allocation. The entries are
 * sorted by address. */
static size_t join(sim_thread_access *r, size_t n, size_t gap) {
  size_t kept = 0;
  uintptr_t end = 0;
  for (size_t i = 0; i < n; i++) {
    sim_thread_access *last = kept > 0 ? &r[kept - 1] : NULL;
    if (last != NULL && r[i].base < end && r[i].base <= last->base + last->nbytes + gap) {
      const uintptr_t to = r[i].base + r[i].nbytes;
      if (to > last->base + last->nbytes) last->nbytes = to - last->base;
      continue;
    }
    const sim_alloc *a = sim_alloc_find(r[i].base);
    end = a == NULL ? r[i].base : a->base + a->nbytes;
    r[kept++] = r[i];
  }
  return kept;
}

static size_t part(sim_thread_access *r, size_t n, bool write, sim_thread_access *out) {
  size_t m = 0;
  for (size_t i = 0; i < n; i++)
    if (r[i].write == write) out[m++] = r[i];
  return m;
}

static sim_thread_access *room_for(size_t n) {
  sim_thread_access *r = malloc((n + 1) * sizeof *r);
  if (r == NULL) abort();
  return r;
}

static void blur(sim_launch *l) {
  sim_thread_access *kept = room_for(l->ngathered);
  size_t n = 0;
  qsort(l->gathered, l->ngathered, sizeof *l->gathered, by_address);
  for (int write = 0; write < 2; write++) {
    const size_t m = part(l->gathered, l->ngathered, write != 0, kept + n);
    n += join(kept + n, m, 0);
  }
  memcpy(l->gathered, kept, n * sizeof *kept);
  free(kept);
  l->ngathered = n;
  l->blurred = true;
}

static bool same_but_place(const sim_thread_access *a, const sim_thread_access *b) {
  return a->write == b->write && a->thread == b->thread && a->phase == b->phase && a->sync == b->sync &&
         a->line == b->line && a->atomic == b->atomic;
}

static void gather(sim_launch *l, const sim_thread_access *r) {
  sim_thread_access *last = l->ngathered > 0 ? &l->gathered[l->ngathered - 1] : NULL;
  const bool again = last != NULL && same_but_place(last, r) && last->base <= r->base;
  if (again && r->base + r->nbytes <= last->base + last->nbytes) return;
  if (again && r->base == last->base + last->nbytes) {
    last->nbytes += r->nbytes;
    return;
  }
  const bool full = l->ngathered == l->room;
  if (full && l->ngathered >= MOST_ENTRIES) blur(l);
  if (full && l->ngathered * 2 >= l->room) {
    l->room = l->room * 2 + 64;
    l->gathered = realloc(l->gathered, l->room * sizeof *l->gathered);
    if (l->gathered == NULL) abort();
  }
  l->gathered[l->ngathered++] = *r;
}

sim_kind sim_launch_add_access(sim_launch *l, const sim_thread_access *r, const char **why) {
  sim_kind kind;
  sim_alloc **cached = &l->recent[r->write];
  if (*cached == NULL || r->base - (*cached)->base >= (*cached)->nbytes) *cached = sim_alloc_find(r->base);
  *why = why_not(l, *cached, r, &kind);
  if (*why != NULL) return kind;
  gather(l, r);
  return SIM_ANY;
}

void sim_launch_add_whole(sim_launch *l, uintptr_t at, bool write) {
  const char *why;
  const sim_alloc *a = sim_alloc_find(at);
  if (a == NULL) return;
  uintptr_t from = a->base, to = a->base + a->nbytes;
  if (a->maps != NULL) sim_map_run(a, at, &from, &to);
  const sim_thread_access all = {.base = from, .nbytes = to - from, .write = write};
  if (sim_launch_add_access(l, &all, &why) == SIM_ANY) l->blurred = true;
}

void sim_launch_forget(sim_launch *l) {
  free(l->gathered);
  l->gathered = NULL;
  l->ngathered = l->room = 0;
  l->blurred = false;
  l->recent[0] = l->recent[1] = NULL;
}

sim_kind sim_launch_add_checked(sim_launch *l, const sim_thread_access *r, const char **why) {
  for (size_t i = 0; i < l->naccesses; i++) {
    const sim_launch_access *t = &l->accesses[i];
    const bool inside = r->base >= t->region.base && r->base + r->nbytes <= t->region.base + t->region.width;
    if (!inside || t->write != r->write) continue;
    gather(l, r);
    return SIM_ANY;
  }
  *why = "which is in no allocation that its parameters lead to";
  return SIM_BOUNDS;
}

/* Rows of one width at one distance become one region, and such regions at one distance become its slices. */
static size_t rows(const sim_thread_access *r, size_t n, sim_region *out) {
  *out = sim_flat(r->base, r->nbytes);
  if (n < 2 || r[1].nbytes != r->nbytes) return 1;
  size_t count = 2;
  const size_t pitch = r[1].base - r[0].base;
  while (count < n && r[count].nbytes == r->nbytes && r[count].base - r[count - 1].base == pitch) count++;
  *out = (sim_region){r->base, r->nbytes, pitch, count, pitch * count, 1};
  return count;
}

static bool extends(const sim_region *into, const sim_region *next) {
  const bool alike = into->width == next->width && into->rows == next->rows && into->pitch == next->pitch;
  if (!alike || next->depth != 1) return false;
  return into->depth == 1 || next->base == into->base + into->depth * into->slice;
}

static void add_region(sim_launch *l, sim_alloc *a, const sim_region *r, bool write) {
  sim_launch_access *last = l->naccesses > 0 ? &l->accesses[l->naccesses - 1] : NULL;
  if (last != NULL && last->alloc == a && last->write == write && extends(&last->region, r)) {
    if (last->region.depth == 1) last->region.slice = r->base - last->region.base;
    last->region.depth++;
    return;
  }
  l->accesses = realloc(l->accesses, (l->naccesses + 1) * sizeof *l->accesses);
  if (l->accesses == NULL) abort();
  l->accesses[l->naccesses++] = (sim_launch_access){a, *r, write};
}

/* What lies in one allocation: as it is, or with gaps filled until it is few enough. */
static void add_all(sim_launch *l, sim_thread_access *r, size_t n, bool write) {
  sim_alloc *a = sim_alloc_find(r->base);
  const size_t before = l->naccesses;
  for (size_t gap = 8; true; gap *= 2) {
    for (size_t i = 0; i < n;) {
      sim_region region;
      i += rows(r + i, n - i, &region);
      add_region(l, a, &region, write);
    }
    if (l->naccesses - before <= MOST_REGIONS) return;
    l->naccesses = before;
    n = join(r, n, gap);
  }
}

static void add_kind(sim_launch *l, bool write) {
  sim_thread_access *r = room_for(l->ngathered);
  const size_t n = join(r, part(l->gathered, l->ngathered, write, r), 0);
  for (size_t from = 0, to; from < n; from = to) {
    const sim_alloc *a = sim_alloc_find(r[from].base);
    for (to = from + 1; to < n && r[to].base < a->base + a->nbytes;) to++;
    add_all(l, r + from, to - from, write);
  }
  free(r);
}

void sim_launch_seal(sim_launch *l, const char *name) {
  const sim_place now = sim_here();
  if (l->ngathered > 0) qsort(l->gathered, l->ngathered, sizeof *l->gathered, by_address);
  sim_launch_collide(l, name, &now);
  add_kind(l, false);
  add_kind(l, true);
  sim_launch_forget(l);
}

void sim_launch_ran(sim_launch *l, const char *name, const sim_place *made) {
  if (l->ngathered > 0) qsort(l->gathered, l->ngathered, sizeof *l->gathered, by_address);
  sim_launch_collide(l, name, made);
  sim_launch_forget(l);
}
