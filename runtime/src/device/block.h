/* block.h: what pool.c, block.c and owned.c share. */
#ifndef MOONFERRY_BLOCK_H
#define MOONFERRY_BLOCK_H

#include "device/device.h"

typedef struct mf__home {
  mf_stream stream;
  int32_t ordinal;
  uint32_t thread; /* whose per-thread stream */
} mf__home;

typedef struct mf__block_event {
  void *event;
  int32_t ordinal;
  bool of_home; /* of the stream that the block's home names */
} mf__block_event;

typedef struct mf__block {
  struct mf__block *next;
  void *pool;
  void *data;
  mf__record *record; /* while mf__retire holds it */
  mf__device device;
  int64_t nbytes;
  int32_t ordinal; /* of the device that it was allocated for */
  int32_t nevents;
  _Atomic int32_t owner_locked;
  mf__storage *owner; /* while a tensor has it; under that lock, which is owned.c's */
  bool has_home;
  mf__home home; /* in use: the stream that it was taken on */
  mf__block_event events[MF__ENTRIES_INSIDE];
} mf__block;

/* A request for a block: the stream that wants it, and what may be done to get it. */
typedef struct mf__claim {
  const mf__queue *on;
  mf__home home;
  bool captured;
  bool may_block; /* wait for what a block needs: on the device for its memory, on the host for the host's */
} mf__claim;

/* owned.c: a block that the driver gave, and one that it will get back. */
int mf__owned_add(mf__block *b, mf_error *err);
void mf__owned_remove(const mf__block *b);

mf__claim mf__claim_of(const mf__queue *on);
/* Asks the driver whether the claim's stream is being captured. */
int mf__claim_look(mf__claim *c, mf_error *err);

bool mf__home_same(const mf__home *a, const mf__home *b);
/* The block is the claim's from now on, and nothing else has to be waited for. */
void mf__block_take(mf__block *b, const mf__claim *c);

/* Notes all that the record knows of, and takes its events. False, with nothing noted, if that is not possible now. */
bool mf__block_note(mf__block *b, mf__record *record);
/* Whether the claim's stream may have it with no call at all. */
bool mf__block_is_clean(const mf__block *b, const mf__claim *c);
/* Whether it can be found out, or be made so, that the claim's stream may have it. */
bool mf__block_is_candidate(const mf__block *b, const mf__claim *c);
/* Does that, within a scope; whoever is told so takes the block, or frees it. */
bool mf__block_ready(mf__block *b, const mf__claim *c);
/* Gives the memory to the driver in the order of the claim's stream. *freed becomes true if it is gone, even where that
 * failed. */
int mf__block_free(mf__block *b, const mf__claim *c, bool *freed, mf_error *err);
/* On which stream to do that: its home's, which waits for nothing else. */
mf__queue mf__block_queue(mf__block *b);

#endif
