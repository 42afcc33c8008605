/* types.h: one number that a declaration stands for, and where the tables of them are. */
#ifndef GPU_TYPES_H
#define GPU_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef struct type_entry {
  const char *name;
  uint64_t value;
} type_entry;

const type_entry *our_cuda(size_t *n);
const type_entry *our_hip(size_t *n);
const type_entry *their_cuda(size_t *n);
const type_entry *their_hip(size_t *n);

#endif
