/* table.h: what the runtime needs of a driver's interface, as the declarations that stand before this have it. */
#include <stddef.h>
#include <stdint.h>

#include "types.h"

#define VALUE(name) {#name, (uint64_t)(int64_t)(intptr_t)(name)},
#define SIZE(type) {"sizeof " #type, sizeof(type)},
#define FIELD(type, member) {#type "." #member, offsetof(type, member)},
static const type_entry entries[] = {
#ifdef OF_HIP
#include "hip.def"
#else
#include "cuda.def"
#endif
};
#define NENTRIES (sizeof entries / sizeof *entries)
