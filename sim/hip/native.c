/* native.c: runs the kernels whose texts the runtime has for HIP, as the host's compiler has compiled the same files.
 *
 * What a thread touches passes the functions below, which look at it. A block's threads run one after the other, from
 * the beginning up to the place where they meet; then again, from the beginning, up to the next one. What lies before
 * the part that is due has no effect then, and what it loads is 0: no thread may keep what it has loaded in a variable
 * while it waits. Invariant: each part is done once. It must not know when a launch runs. */
#include "native.h"

#include <stdio.h>
#include <string.h>

enum { NSLOTS = 2048 }; /* of a block's memory, more than a tile has */

/* Who wrote and who read an item of the block's memory last, and in which part. */
typedef struct slot {
  unsigned block, writer, written, reader, read;
} slot;

/* The thread that runs. */
static struct {
  const native_grid *grid;
  sim_launch *launch;
  bool follows, waits;
  unsigned block, index;
  unsigned phase, due; /* the part that it is in, and the one that has an effect */
  native_end end;
  slot slots[NSLOTS];
} now;

static void wrong(native_end end, sim_kind kind, const char *text) {
  char here[200];
  now.end = end;
  sim_found(kind, "%s, thread %u of block %u: %s\n  launched %s", now.grid->entry->name, now.index, now.block, text,
            sim_place_text(&now.grid->made, here, sizeof here));
}

static bool is_due(void) {
  return now.phase == now.due && now.end == NATIVE_DONE;
}

/* Whether the bytes may be touched now; the launch is told. */
static bool touches(const void *at, size_t nbytes, bool write, bool atomic) {
  const sim_thread_access access = {.base = (uintptr_t)at,
                                    .nbytes = nbytes,
                                    .thread = now.block * NATIVE_THREADS + now.index,
                                    .index = now.index,
                                    .block = now.block,
                                    .phase = now.phase,
                                    .write = write,
                                    .atomic = atomic};
  const char *why = NULL;
  char text[200];
  if (!is_due() || !now.follows) return is_due();
  sim_kind kind = SIM_BOUNDS;
  if ((uintptr_t)at % nbytes != 0) why = "which is no multiple of that";
  else kind = sim_launch_add_access(now.launch, &access, &why);
  if (why == NULL) return false;
  snprintf(text, sizeof text, "%s %zu bytes at %p, %s", write ? "writes" : "reads", nbytes, at, why);
  wrong(NATIVE_ILLEGAL, kind, text);
  return false;
}

static slot *slot_of(const void *at, int n) {
  return &now.slots[(uintptr_t)at / (unsigned)n % NSLOTS];
}

/* What hip_thread.h has for hiprtc. */

typedef unsigned long long u64;

static unsigned thread(void) {
  return now.index;
}

static unsigned block(void) {
  return now.block;
}

static unsigned blocks(void) {
  return now.grid->blocks;
}

static void take(void *to, const char *from, int n) {
  memset(to, 0, (size_t)n);
  if (touches(from, (size_t)n, false, false)) memcpy(to, sim_view((uintptr_t)from), (size_t)n);
}

static void give(char *to, const void *from, int n) {
  if (touches(to, (size_t)n, true, false)) memcpy(sim_view((uintptr_t)to), from, (size_t)n);
}

/* Whether another thread of the block has done it since they met. */
static bool meanwhile(const slot *s, unsigned who, unsigned phase) {
  return s->block == now.block + 1 && phase == now.phase + 1 && who != now.index;
}

static void put(void *to, const void *from, int n) {
  slot *s = slot_of(to, n);
  if (!is_due()) return;
  if (meanwhile(s, s->writer, s->written) || meanwhile(s, s->reader, s->read))
    wrong(NATIVE_STUCK, SIM_RACE, "writes to the block's memory what another thread has used since they met");
  *s = (slot){.block = now.block + 1, .writer = now.index, .written = now.phase + 1};
  memcpy(to, from, (size_t)n);
}

static void get(void *to, const void *from, int n) {
  slot *s = slot_of(from, n);
  if (!is_due()) return;
  if (s->block != now.block + 1)
    wrong(NATIVE_STUCK, SIM_RACE, "reads from the block's memory what no thread has written");
  else if (meanwhile(s, s->writer, s->written))
    wrong(NATIVE_STUCK, SIM_RACE, "reads from the block's memory what another thread has written since they met");
  s->reader = now.index;
  s->read = now.phase + 1;
  memcpy(to, from, (size_t)n);
}

static bool meet(void) {
  now.waits = now.phase == now.due;
  if (!now.waits) now.phase++;
  return now.waits;
}

static void tell(bool found, unsigned *differs) {
  if (touches(differs, sizeof *differs, true, true) && found) *(unsigned *)sim_view((uintptr_t)differs) |= 1;
}

/* The texts. */

#define MF__HIP_TEXT(name, ...) __VA_ARGS__
#define INSIDE static inline
#define ENTRY static void
#define SHARED static
#define THREADS NATIVE_THREADS
#include "driver/hip_walk.h"
_Static_assert(sizeof(job) == NATIVE_JOB, "the parameter of a kernel");

#define SIZE 1
#define LINES 1
#define LINE 1
#define OF(name) name##_1
#include "native_copies.h"
#define SIZE 2
#define LINES 1
#define LINE 2
#define OF(name) name##_2
#include "native_copies.h"
#define SIZE 4
#define LINES 1
#define LINE 4
#define OF(name) name##_4
#include "native_copies.h"
#define SIZE 8
#define LINES 1
#define LINE 8
#define OF(name) name##_8
#include "native_copies.h"
#define SIZE 16
#define LINES 1
#define LINE 16
#define OF(name) name##_16
#include "native_copies.h"
#define SIZE 1
#define LINES 4
#define LINE 4
#define OF(name) name##_1_by_words
#include "native_copies.h"
#define SIZE 2
#define LINES 2
#define LINE 4
#define OF(name) name##_2_by_words
#include "native_copies.h"

#define TO (*(const format *)(const void *)now.grid->program->to)
#define FROM (*(const format *)(const void *)now.grid->program->from)
#define LANES now.grid->program->lanes
#include "driver/hip_number.h"
_Static_assert(sizeof(format) == NATIVE_FORMAT * sizeof(unsigned), "a format of a text");

static void cast_one(const void *given) {
  mf_cast_one(*(const job *)given);
}

static void cast_some(const void *given) {
  mf_cast_some(*(const job *)given);
}

static void compare_one(const void *given, unsigned *differs) {
  mf_compare_one(*(const job *)given, differs);
}

static void compare_some(const void *given, unsigned *differs) {
  mf_compare_some(*(const job *)given, differs);
}

#define COPIES(size) {{"mf_copy", copied_##size, NULL}, {"mf_transpose", transposed_##size, NULL}}
#define SMALL_COPIES(size)                                                                      \
  {{"mf_copy", copied_##size, NULL}, {"mf_transpose", transposed_##size, NULL},                 \
   {"mf_transpose_words", transposed_##size##_by_words, NULL}}

static const native_entry copies[][NATIVE_ENTRIES] = {SMALL_COPIES(1), SMALL_COPIES(2), COPIES(4), COPIES(8),
                                                      COPIES(16)};
static const native_entry casts[NATIVE_ENTRIES] = {{"mf_cast_one", cast_one, NULL}, {"mf_cast_some", cast_some, NULL}};
static const native_entry compares[NATIVE_ENTRIES] = {{"mf_compare_one", NULL, compare_one},
                                                      {"mf_compare_some", NULL, compare_some}};

static const native_entry *entries_of(const native_program *p) {
  int which = 0;
  if (p->kind != NATIVE_COPIES) return p->kind == NATIVE_CASTS ? casts : compares;
  while (1u << which < p->size) which++;
  return copies[which];
}

const native_entry *native_find(const native_program *p, const char *name) {
  const native_entry *entries = entries_of(p);
  for (int i = 0; i < NATIVE_ENTRIES && entries[i].name != NULL; i++)
    if (strcmp(entries[i].name, name) == 0) return &entries[i];
  return NULL;
}

/* One part of a block: what lies between two places where its threads meet. True while there is another one. */
static bool run_part(void) {
  unsigned nwaiting = 0;
  for (now.index = 0; now.index < NATIVE_THREADS && now.end == NATIVE_DONE; now.index++) {
    now.phase = 0;
    now.waits = false;
    if (now.grid->entry->copy != NULL) now.grid->entry->copy(now.grid->job);
    else now.grid->entry->compare(now.grid->job, now.grid->differs);
    nwaiting += now.waits;
  }
  if (now.end == NATIVE_DONE && nwaiting != 0 && nwaiting != NATIVE_THREADS)
    wrong(NATIVE_STUCK, SIM_MISUSE, "some threads of the block wait for others that have ended");
  return nwaiting != 0 && now.end == NATIVE_DONE;
}

native_end native_run(const native_grid *g, sim_launch *l, bool follows) {
  memset(&now, 0, sizeof now);
  now.grid = g;
  now.launch = l;
  now.follows = follows;
  for (now.block = 0; now.block < g->blocks && now.end == NATIVE_DONE; now.block++)
    for (now.due = 0; run_part();) now.due++;
  return now.end;
}
