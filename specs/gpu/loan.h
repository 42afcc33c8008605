/* loan.h: somebody's memory on gpu 0, imported, with a deleter that counts. */
#ifndef MOONFERRY_SPEC_LOAN_H
#define MOONFERRY_SPEC_LOAN_H

#include <stdatomic.h>

#include "device.h"

enum { NBYTES = 4096 };

typedef struct loan {
  DLManagedTensorVersioned managed;
  int64_t shape[1], strides[1];
  atomic_int deleted;
  void (*then)(struct loan *self);
  struct loan *next;
} loan;

static inline void loan_deleter(DLManagedTensorVersioned *self) {
  loan *l = (loan *)self;
  atomic_fetch_add(&l->deleted, 1);
  if (l->then != NULL) l->then(l);
}

static inline loan *loan_new(void) {
  loan *l = calloc(1, sizeof *l);
  l->shape[0] = NBYTES;
  l->strides[0] = 1;
  l->managed.version = (DLPackVersion){1, 0};
  l->managed.deleter = loan_deleter;
  l->managed.dl_tensor = (DLTensor){.data = other_alloc(0, NBYTES), .device = gpu(0), .ndim = 1,
                                    .dtype = {kDLUInt, 8, 1}, .shape = l->shape, .strides = l->strides};
  return l;
}

static inline mf_tensor *import(loan *l) {
  mf_tensor *t;
  OK(mf_tensor_import(&l->managed, &t, &err));
  return t;
}

static inline void loan_end(loan *l) {
  assert_int_equal(atomic_load(&l->deleted), 1);
  other_free(0, l->managed.dl_tensor.data);
  free(l);
}

static inline int calls_of(const loan *l) {
  return atomic_load(&l->deleted);
}

/* Any operation on a device looks at what waits. */
static inline void poll(void) {
  mf_tensor_release(create(gpu(0), NBYTES));
}

static inline int64_t deferred(void) {
  return stats(gpu(0)).deferred;
}

/* What the deleter frees at once must be nobody's by then: the race checker sees the free. */
static inline void free_at_once(loan *self) {
  other_free(0, self->managed.dl_tensor.data);
  self->managed.dl_tensor.data = NULL;
}

#endif
