/* table.h: values and layouts of the declarations that were included before this.
 *
 * What the public header has only from ROCm 6 on comes last, so that an older header gives a shorter table. */
#include <stddef.h>
#include <stdint.h>

typedef struct entry {
  const char *name;
  uint64_t value;
} entry;

#define VALUE(x) {#x, (uint64_t)(int64_t)(x)},
#define SIZE(type) {"sizeof " #type, sizeof(type)},
#define FIELD(type, field) {#type "." #field, offsetof(type, field)},
static const entry entries[] = {
#include "types.def"
};
