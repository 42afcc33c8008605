/* semaphore.c: semaphores that streams share with another API: a page of a file with a value, which either side may
 * wait for and signal.
 *
 * Invariant: one file is one semaphore, however often it is opened, until its last user is gone. A wait is ordered
 * behind the signals of this process that were queued before it, and behind nothing else. It must not know whose file
 * it is. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"

#define MAGIC 0x65726f68706d6573ull /* "semphore" */

enum { ROOM = 1 << 16, PAUSE_NS = 5000000, SIGNALS = 64, MOMENTS = 4000 };

/* What stands in the file. */
typedef struct shared {
  uint64_t magic;
  sim_semaphore_kind kind;
  _Atomic uint64_t value;
  _Atomic uint64_t issued;   /* an event's: records that began */
  pthread_mutex_t lock;      /* of what follows */
  uint64_t recorded;         /* the last one that there is, and what it comes after */
  size_t ntold;
  sim_moment told[MOMENTS];
} shared;

_Static_assert(sizeof(shared) <= ROOM, "it is mapped whole");

/* A signal of ours, for the order of waits. */
typedef struct signal {
  struct signal *next;
  uint64_t value;
  sim_clock clock;
} signal;

struct sim_semaphore {
  sim_semaphore *next;
  size_t refs;
  dev_t device;
  ino_t file;
  shared *at;
  signal *signals;
};

static sim_semaphore *all;

int sim_semaphore_new(uint64_t value, sim_semaphore_kind kind) {
  const int fd = memfd_create("semaphore", MFD_CLOEXEC);
  if (fd < 0) return -1;
  shared *s = ftruncate(fd, ROOM) != 0 ? MAP_FAILED : mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (s == MAP_FAILED) {
    close(fd);
    return -1;
  }
  sim_shared_lock_init(&s->lock);
  s->kind = kind;
  s->value = value;
  s->magic = MAGIC;
  munmap(s, ROOM);
  return fd;
}

static sim_semaphore *known(const struct stat *file) {
  for (sim_semaphore *m = all; m != NULL; m = m->next)
    if (m->device == file->st_dev && m->file == file->st_ino) return m;
  return NULL;
}

sim_semaphore *sim_semaphore_keep(sim_semaphore *m) {
  if (m != NULL) m->refs++;
  return m;
}

sim_semaphore *sim_semaphore_open(int fd) {
  struct stat file;
  uint64_t magic;
  if (fstat(fd, &file) != 0 || pread(fd, &magic, sizeof magic, 0) != sizeof magic || magic != MAGIC) return NULL;
  sim_semaphore *m = known(&file);
  if (m != NULL) return sim_semaphore_keep(m);
  void *at = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  m = calloc(1, sizeof *m);
  if (at == MAP_FAILED || m == NULL) abort();
  *m = (sim_semaphore){.next = all, .refs = 1, .device = file.st_dev, .file = file.st_ino, .at = at};
  all = m;
  return m;
}

static void free_semaphore(sim_semaphore *m) {
  for (signal *s = m->signals; s != NULL;) {
    signal *next = s->next;
    sim_clock_free(&s->clock);
    free(s);
    s = next;
  }
  munmap(m->at, ROOM);
  free(m);
}

void sim_semaphore_drop(sim_semaphore *m) {
  if (m == NULL || --m->refs > 0) return;
  for (sim_semaphore **link = &all; *link != NULL; link = &(*link)->next) {
    if (*link != m) continue;
    *link = m->next;
    break;
  }
  free_semaphore(m);
}

bool sim_semaphore_binary(const sim_semaphore *m) {
  return m->at->kind == SIM_BINARY;
}

uint64_t sim_semaphore_value(const sim_semaphore *m) {
  return m->at->value;
}

bool sim_semaphore_reached(const sim_semaphore *m, uint64_t value) {
  return m->at->value >= value;
}

void sim_semaphore_taken(sim_semaphore *m) {
  if (m->at->kind == SIM_BINARY) m->at->value = 0;
}

/* A value of a timeline only rises; a binary one that is signalled cannot be signalled again (Vulkan 1.3, 7.4). */
void sim_semaphore_set(sim_semaphore *m, uint64_t value) {
  char here[200];
  const sim_place now = sim_here();
  const uint64_t before = m->at->value;
  const char *why = m->at->kind == SIM_BINARY ? "nobody has waited for it" : "its value must rise";
  if (before >= value && m->at->kind == SIM_SHARED_EVENT) return; /* streams may record in any order */
  if (before >= value)
    sim_found(SIM_MISUSE, "a semaphore that has %llu is signalled with %llu: %s\n  here  %s",
              (unsigned long long)before, (unsigned long long)value, why,
              sim_place_text(&now, here, sizeof here));
  else m->at->value = value;
  sim_changed();
}

/* All that are surely done when the value is reached: those up to the first that reaches it. */
static void learn(sim_stream *s, const sim_semaphore *m, uint64_t value) {
  const signal *reaching = NULL;
  for (const signal *g = m->signals; g != NULL; g = g->next) {
    if (g->value < value) sim_stream_learns(s, &g->clock);
    else if (reaching == NULL || g->value < reaching->value) reaching = g;
  }
  if (reaching != NULL) sim_stream_learns(s, &reaching->clock);
}

/* Of many, the oldest two become one, so that a program may go on for long. */
static void fold(sim_semaphore *m) {
  size_t n = 0;
  for (signal *g = m->signals; g->next != NULL; g = g->next) {
    if (++n < SIGNALS || g->next->next != NULL) continue;
    sim_clock_join(&g->clock, &g->next->clock);
    sim_clock_free(&g->next->clock);
    free(g->next);
    g->next = NULL;
    return;
  }
}

static void note_signal(sim_semaphore *m, uint64_t value, const sim_op *op) {
  signal *g = calloc(1, sizeof *g);
  if (g == NULL) abort();
  g->value = value;
  sim_clock_copy(&g->clock, &op->clock);
  g->next = m->signals;
  m->signals = g;
  fold(m);
}

/* A binary one stands for its last signal. */
sim_status sim_semaphore_queue(sim_stream *s, sim_semaphore *m, sim_work_kind kind, uint64_t value) {
  const sim_work w = {.kind = kind, .semaphore = m, .reach = m->at->kind == SIM_BINARY ? 1 : value};
  sim_op *op;
  if (s->capture != NULL) return sim_capture_forbid(s, SIM_CAP_UNSUPPORTED);
  if (kind == SIM_WAIT) learn(s, m, w.reach);
  const sim_status rc = sim_submit(s, &w, &op);
  if (rc == SIM_OK && kind == SIM_SIGNAL) note_signal(m, w.reach, op);
  return rc;
}

/* A device that is lost waits for nothing. */
bool sim_semaphore_blocks(const sim_op *op) {
  if (op->work.kind != SIM_WAIT || op->late != 0 || sim_semaphore_reached(op->work.semaphore, op->work.reach))
    return false;
  return sim_device_verdict(op->ctx->device) == SIM_OK;
}

/* Another process may signal it, too, of which nobody here is told. */
void sim_semaphore_sleep(sim_op *op) {
  char made[200];
  const uint64_t at = sim_now();
  if (op->since == 0) op->since = at;
  if (at - op->since < sim_conf.patience * 1000000000u) {
    sim_sleep_a_while(PAUSE_NS);
    return;
  }
  sim_found(SIM_MISUSE, "%s waits for %llu of a semaphore that has %llu, and nobody has signalled it for %llu s: a GPU "
                        "would wait for ever\n  queued  %s", op->who, (unsigned long long)op->work.reach,
            (unsigned long long)sim_semaphore_value(op->work.semaphore), (unsigned long long)sim_conf.patience,
            sim_place_text(&op->place, made, sizeof made));
  op->work.reach = 0;
}

uint64_t sim_semaphore_issue(sim_semaphore *m) {
  return ++m->at->issued;
}

/* Records of two processes may be written down in another order than they were numbered in. */
void sim_semaphore_tell(sim_semaphore *m, uint64_t number, const sim_clock *clock) {
  shared *s = m->at;
  sim_shared_lock(&s->lock);
  if (number > s->recorded) {
    s->recorded = number;
    s->ntold = sim_clock_tell(clock, s->told, MOMENTS);
  }
  sim_shared_unlock(&s->lock);
}

uint64_t sim_semaphore_told(sim_semaphore *m, sim_clock *into) {
  shared *s = m->at;
  sim_shared_lock(&s->lock);
  const uint64_t number = s->recorded;
  sim_clock_hear(into, s->told, s->ntold);
  sim_shared_unlock(&s->lock);
  return number;
}

bool sim_semaphore_wanted(const sim_op *op) {
  return op->work.kind == SIM_SIGNAL && op->work.semaphore->at->kind == SIM_SHARED_EVENT;
}
