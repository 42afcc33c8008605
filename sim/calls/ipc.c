/* ipc.c: memory and events of another process.
 *
 * What one process gives another is a ticket: who it is of, and under which descriptor that process has the file. It
 * crosses by whatever way the program has. Invariant: a ticket whose file is another one by now opens nothing. It must
 * not know what is in the files. */
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"

#define MEMORY 0x79726f6d656d6d73ull
#define EVENT 0x746e657665656d73ull
#define POOL 0x6c6f6f706c6f6f70ull

typedef struct ticket {
  uint64_t kind, process, serial;
  int fd;
  char rest[SIM_TICKET - 28];
} ticket;

_Static_assert(sizeof(ticket) == SIM_TICKET, "both drivers' handles have this size");

static sim_status refuse(const ticket *t, sim_status rc, const char *why) {
  char here[200];
  const sim_place now = sim_here();
  sim_found(SIM_MISUSE, "%s: a handle of process %d %s\n  here   %s", sim_here().call, sim_process_pid(t->process), why,
            sim_place_text(&now, here, sizeof here));
  return rc;
}

/* A handle of this process's own opens nothing: what it is of is here already. */
static sim_status read_ticket(const void *handle, uint64_t kind, ticket *t) {
  memcpy(t, handle, sizeof *t);
  if (t->kind != kind) return SIM_BAD_HANDLE;
  if (t->process == sim_process()) return refuse(t, SIM_BAD_CONTEXT, "is opened by that process itself");
  return SIM_OK;
}

static void write_ticket(uint64_t kind, uint64_t serial, int fd, void *out) {
  const ticket t = {.kind = kind, .process = sim_process(), .serial = serial, .fd = fd};
  memcpy(out, &t, sizeof t);
}

static sim_status give_memory(sim_alloc *a, void *out) {
  uint64_t at;
  if (a->share == NULL) {
    const int data = sim_alloc_file(a, &at), fd = sim_share_file(0);
    a->share = fd < 0 ? NULL : sim_share_new(fd, a, data, at);
    if (a->share == NULL) return SIM_NOMEM;
    for (size_t i = 0; i < a->naccesses; i++) sim_share_write(a, &a->accesses[i]);
  }
  write_ticket(MEMORY, sim_share_facts(a->share).serial, sim_share_descriptor(a->share), out);
  return SIM_OK;
}

sim_status sim_call_ipc_memory(uintptr_t p, void *out) {
  sim_context *c;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_context_of(&c));
  sim_alloc *a = sim_live(p);
  const bool plain = a != NULL && a->space == SIM_DEVICE && a->pool == NULL && a->kept == NULL && a->maps == NULL;
  if (!plain || a->base != p || a->backed) return SIM_INVALID;
  return give_memory(a, out);
}

static sim_alloc *already_open(const ticket *t) {
  sim_alloc *a = sim_alloc_first();
  while (a != NULL && !sim_share_is(a->share, t->process, t->serial)) a = a->after;
  return a;
}

static sim_status take_memory(const ticket *t, sim_alloc **out) {
  const int fd = sim_process_file(t->process, t->fd);
  sim_share *share = fd < 0 ? NULL : sim_share_open(fd);
  if (share == NULL && fd >= 0) close(fd);
  const sim_shared facts = share == NULL ? (sim_shared){.freed = true} : sim_share_facts(share);
  if (facts.freed || facts.serial != t->serial || sim_device_at(facts.device) == NULL) {
    sim_share_close(share);
    return refuse(t, SIM_BAD_HANDLE, "is opened, and its memory is gone");
  }
  const int data = sim_process_file(t->process, facts.data);
  const sim_status rc = data < 0 ? SIM_BAD_HANDLE
                                 : sim_alloc_borrow(facts.device, facts.nbytes, data, facts.data_at, out);
  if (data >= 0) close(data);
  if (rc != SIM_OK) {
    sim_share_close(share);
    return rc;
  }
  (*out)->share = share;
  sim_share_use(share, true);
  return SIM_OK;
}

sim_status sim_call_ipc_open(const void *handle, unsigned flags, void *out) {
  enum { LAZY_PEER_ACCESS = 1 };
  sim_context *c;
  ticket t;
  if (out == NULL || flags != LAZY_PEER_ACCESS) return SIM_INVALID;
  SIM_TRY(sim_context_of(&c));
  SIM_TRY(read_ticket(handle, MEMORY, &t));
  SIM_TRY(sim_capture_unsafe());
  sim_alloc *a = already_open(&t);
  if (a != NULL && a->ctx != c) return refuse(&t, SIM_BAD_CONTEXT, "is open in another context");
  if (a == NULL) SIM_TRY(take_memory(&t, &a));
  a->ctx = c;
  a->opened++;
  if (a->device != c->device->id) c->peers[a->device] = true;
  sim_log_detail("%zu bytes of process %d at %#zx", a->nbytes, sim_process_pid(t.process), (size_t)a->base);
  sim_put(out, a->base);
  return SIM_OK;
}

sim_status sim_call_ipc_close(uintptr_t p) {
  sim_context *c;
  SIM_TRY(sim_context_of(&c));
  sim_alloc *a = sim_alloc_find(p);
  if (a == NULL || a->base != p || a->freed || a->opened == 0) {
    sim_found(SIM_STALE, "%s of %#zx, which is no other process's memory that is open", sim_here().call, (size_t)p);
    return SIM_INVALID;
  }
  SIM_TRY(sim_capture_unsafe());
  if (--a->opened > 0) return SIM_OK;
  const sim_region whole = sim_flat(a->base, a->nbytes);
  sim_check_unmapped(a, &whole);
  sim_alloc_end(a);
  return SIM_OK;
}

static uint64_t serial_of(int fd) {
  struct stat file;
  return fstat(fd, &file) == 0 ? (uint64_t)file.st_ino : 0;
}

sim_status sim_call_ipc_event(const void *event, void *out) {
  sim_event *e;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_given(event, SIM_EVENT, &e));
  if (e->shared == NULL) return SIM_BAD_HANDLE;
  write_ticket(EVENT, serial_of(e->fd), e->fd, out);
  return SIM_OK;
}

sim_status sim_call_ipc_open_event(const void *handle, unsigned flags, void *out) {
  sim_context *c;
  ticket t;
  if (out == NULL) return SIM_INVALID;
  SIM_TRY(sim_context_of(&c));
  SIM_TRY(read_ticket(handle, EVENT, &t));
  const int fd = sim_process_file(t.process, t.fd);
  sim_semaphore *m = fd < 0 || serial_of(fd) != t.serial ? NULL : sim_semaphore_open(fd);
  if (m == NULL) {
    if (fd >= 0) close(fd);
    return refuse(&t, SIM_BAD_HANDLE, "is opened, and its event is gone");
  }
  sim_event *e = sim_event_new(c, flags, false);
  e->shared = m;
  e->fd = fd;
  sim_put(out, e->o.handle);
  return SIM_OK;
}

/* A pool crosses as a descriptor of a file that says which device it is of. */
sim_status sim_call_pool_export(const void *pool, unsigned kind, unsigned long long flags, int *out) {
  sim_pool *p;
  ticket t;
  if (out == NULL || kind != SIM_POSIX_FD || flags != 0) return SIM_INVALID;
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  if (!p->exportable || p->imported) return SIM_INVALID;
  write_ticket(POOL, p->o.id, p->device, &t);
  const int fd = sim_share_file(0);
  if (fd < 0) return SIM_NOMEM;
  if (pwrite(fd, &t, sizeof t, 0) != sizeof t) return SIM_NOMEM;
  *out = fd;
  return SIM_OK;
}

sim_status sim_call_pool_import(int fd, unsigned kind, unsigned long long flags, void *out) {
  ticket t;
  if (out == NULL || kind != SIM_POSIX_FD || flags != 0) return SIM_INVALID;
  if (pread(fd, &t, sizeof t, 0) != sizeof t || t.kind != POOL || sim_device_at(t.fd) == NULL) return SIM_INVALID;
  sim_pool *p = sim_pool_new(sim_device_at(t.fd), false);
  p->exportable = p->imported = true;
  sim_put(out, p->o.handle);
  return SIM_OK;
}

sim_status sim_call_pool_export_pointer(uintptr_t p, void *out) {
  sim_alloc *a = sim_live(p);
  if (out == NULL || a == NULL || a->base != p || a->pool == NULL) return SIM_INVALID;
  if (!a->pool->exportable || a->pool->imported) return SIM_INVALID;
  return give_memory(a, out);
}

/* As memory of the pool's, which is freed as all of it is. */
sim_status sim_call_pool_import_pointer(const void *pool, const void *handle, void *out) {
  sim_context *c;
  sim_pool *p;
  sim_alloc *a;
  ticket t;
  if (out == NULL || handle == NULL) return SIM_INVALID;
  SIM_TRY(sim_context_of(&c));
  SIM_TRY(sim_given(pool, SIM_POOL, &p));
  SIM_TRY(read_ticket(handle, MEMORY, &t));
  if (!p->imported) return SIM_INVALID;
  if (already_open(&t) != NULL) return refuse(&t, SIM_MAPPED, "is open here");
  SIM_TRY(take_memory(&t, &a));
  a->pool = p;
  a->ctx = c;
  p->used += a->nbytes;
  p->reserved += a->room;
  sim_put(out, a->base);
  return SIM_OK;
}
