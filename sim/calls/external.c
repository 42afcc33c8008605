/* external.c: memory that another API has exported as an opaque file descriptor.
 *
 * The descriptors of one driver are known: Mesa's for the CPU (lavapipe, llvmpipe), whose file begins with a header
 * that says where the memory lies in it. Invariant: what is mapped is the memory itself, so that each side sees what
 * the other writes. It must not know which API it came from. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"

enum { PAGE = 4096 };

typedef struct external {
  sim_object o;
  int fd;
  uint64_t at, nbytes; /* of the memory in the file */
} external;

/* How Mesa begins such a file. */
typedef struct header {
  uint64_t nbytes, offset;
} header;

static sim_status refuse(int fd, const char *why) {
  char here[200];
  const sim_place now = sim_here();
  sim_found(SIM_MISUSE, "file descriptor %d %s: %s", fd, why, sim_place_text(&now, here, sizeof here));
  return SIM_INVALID;
}

sim_status sim_call_external_import(int fd, uint64_t nbytes, void *out) {
  sim_context *c;
  struct stat file;
  header h;
  if (out == NULL || nbytes == 0) return SIM_INVALID;
  SIM_TRY(sim_context_of(&c));
  if (fstat(fd, &file) != 0) return refuse(fd, "is not open");
  const uint64_t all = (uint64_t)file.st_size;
  if (pread(fd, &h, sizeof h, 0) != sizeof h || h.offset % PAGE != 0 || h.offset == 0 || h.offset >= all)
    return refuse(fd, "is no memory that Mesa's drivers for the CPU export");
  if (nbytes > all - h.offset) return refuse(fd, "has less memory than the call says");
  external *e = calloc(1, sizeof *e);
  if (e == NULL) return SIM_NOMEM;
  *e = (external){.fd = fd, .at = h.offset, .nbytes = nbytes};
  sim_object_add(&e->o, SIM_EXTERNAL);
  sim_put(out, e->o.handle);
  return SIM_OK;
}

/* Where a page of a file ends, so does a mapping: the offset is a multiple of one. */
sim_status sim_call_external_map(const void *handle, uint64_t offset, uint64_t nbytes, void *out) {
  external *e;
  sim_context *c;
  sim_alloc *a;
  SIM_TRY(sim_given(handle, SIM_EXTERNAL, &e));
  SIM_TRY(sim_context_of(&c));
  if (out == NULL || nbytes == 0 || offset > e->nbytes || nbytes > e->nbytes - offset) return SIM_INVALID;
  if (offset % PAGE != 0) return SIM_NOT_SUPPORTED;
  SIM_TRY(sim_capture_unsafe());
  SIM_TRY(sim_alloc_new(SIM_DEVICE, c->device->id, nbytes, NULL, &a));
  a->ctx = c;
  const sim_status rc = sim_alloc_back(a, e->fd, e->at + offset);
  if (rc != SIM_OK) {
    sim_alloc_end(a);
    return rc;
  }
  sim_log_detail("%llu bytes at %#zx", (unsigned long long)nbytes, (size_t)a->base);
  sim_put(out, a->base);
  return SIM_OK;
}

/* What is mapped stays, until it is freed. */
sim_status sim_call_external_end(const void *handle) {
  external *e;
  SIM_TRY(sim_given(handle, SIM_EXTERNAL, &e));
  close(e->fd);
  sim_object_end(&e->o);
  return SIM_OK;
}
