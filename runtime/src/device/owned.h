/* owned.h: declares owned.c, which finds the storage of ours that an address of a device belongs to. */
#ifndef MOONFERRY_OWNED_H
#define MOONFERRY_OWNED_H

#include "device/device.h"

/* Memory of ours: the pool's, which is in a block, or what was mapped for us. */
struct mf__owned {
  void *data;
  int64_t nbytes;
  const mf__backend *backend;
  _Atomic int32_t locked;
  mf__storage *owner; /* while a tensor has it; under that lock */
};

/* Once the driver has given the memory, and before it has it back. */
int mf__owned_add(mf__owned *o, mf_error *err);
void mf__owned_remove(const mf__owned *o);
/* The first says which storage has the memory from now on; the second, when its last reference was dropped, that it has
 * it no more: false if another thread found the storage meanwhile and has a reference. */
void mf__owned_set(mf__owned *o, mf__storage *owner);
bool mf__owned_clear(mf__owned *o, mf__storage *owner);
/* The living storage of ours whose memory this is, with a reference; NULL for all other memory. */
mf__storage *mf__owned_find(const mf__region *memory);

#endif
