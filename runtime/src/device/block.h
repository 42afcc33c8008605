/* block.h: declares blocks and requests for them, which pool.c and block.c share. */
#ifndef MOONFERRY_BLOCK_H
#define MOONFERRY_BLOCK_H

#include "device/owned.h"

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
  mf__owned memory;
  mf__record *record; /* while mf__retire holds it */
  mf__device device;
  int32_t ordinal; /* of the device that it was allocated for */
  int32_t nevents;
  bool has_home;
  bool may_run;  /* to be freed: a kernel of ours that uses it may be queued yet */
  mf__home home; /* in use: the stream that it was taken on */
  mf__block_event events[MF__ENTRIES_INSIDE];
} mf__block;

/* A request for a block: the stream that wants it, and what may be done to get it. */
typedef struct mf__block_request {
  const mf__queue *on;
  mf__home home;
  bool captured;
  bool may_block; /* a device's stream, or for host memory the host, may wait for what a block needs */
} mf__block_request;

mf__block_request mf__block_request_make(const mf__queue *on);
/* Asks the driver whether the requesting stream is being captured. */
int mf__block_request_ask_capture(mf__block_request *r, mf_error *err);

bool mf__home_same(const mf__home *a, const mf__home *b);
/* Gives the block to the requesting stream, which has nothing left to wait for. */
void mf__block_take(mf__block *b, const mf__block_request *r);

/* Takes the block's home and its events from the record of the tensor that had it. Returns false, and takes nothing,
 * while an event cannot be recorded. */
bool mf__block_take_events(mf__block *b, mf__record *record);
/* Whether the requesting stream may have it with no call at all. */
bool mf__block_is_clean(const mf__block *b, const mf__block_request *r);
/* Whether mf__block_ready may succeed. */
bool mf__block_is_candidate(const mf__block *b, const mf__block_request *r);
/* Whether the requesting stream may have the block, once it was made to wait where the request allows that. Called
 * within a scope; after true the caller takes the block or frees it. */
bool mf__block_ready(mf__block *b, const mf__block_request *r);
/* Looks whether a kernel of ours may be queued on the stream where the block is to be freed. Before mf__block_free, and
 * before the memory of other blocks is freed there, which is work, too. */
void mf__block_look(mf__block *b, const mf__queue *on);
/* Gives the memory to the driver in the order of the requesting stream. *freed becomes true if it is gone, even where
 * that failed. */
int mf__block_free(mf__block *b, const mf__block_request *r, bool *freed, mf_error *err);
/* Ends a block whose memory the driver has. */
void mf__block_leave(mf__block *b);
/* The stream on which to free the block: its home, which waits for nothing else. */
mf__queue mf__block_queue(mf__block *b);

#endif
