/* table.h: fills a table with what types.def lists, as the header included before sees it. */
#include <stddef.h>
#include <stdint.h>

#define VALUE(name) {#name, (uint64_t)(uintptr_t)(name)},
#define SIZE(type) {"sizeof " #type, sizeof(type)},
#define FIELD(type, member) {#type "." #member, offsetof(type, member)},
typedef struct entry {
  const char *name;
  uint64_t value;
} entry;
static const entry entries[] = {
#include "types.def"
};
