/* types.h: values and layouts of the declarations that were included before this, as the driver's types.def lists them.
 *
 * What the public header has only from some version on comes last there, so that an older header gives a shorter
 * table. */
#include <stddef.h>
#include <stdint.h>

typedef struct entry {
  const char *name;
  uint64_t value;
} entry;

#define VALUE(name) {#name, (uint64_t)(int64_t)(intptr_t)(name)},
#define SIZE(type) {"sizeof " #type, sizeof(type)},
#define FIELD(type, member) {#type "." #member, offsetof(type, member)},
static const entry entries[] = {
#include "types.def"
};
