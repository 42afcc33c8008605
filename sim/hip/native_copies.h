/* native_copies.h: the copies of one size, under names of their own. Included once for each, behind SIZE, LINES, LINE
 * and OF(name). */
#define item OF(item)
#define take_item OF(take_item)
#define mf_copy OF(mf_copy)
#define mf_transpose OF(mf_transpose)
#define copied OF(copied)
#define transposed OF(transposed)
#include "driver/hip_copy.h"
static inline void copied(const void *given) {
  mf_copy(*(const job *)given);
}
static void transposed(const void *given) {
  mf_transpose(*(const job *)given);
}
#undef item
#undef take_item
#undef mf_copy
#undef mf_transpose
#undef copied
#undef transposed
#undef SIZE
#undef LINES
#undef LINE
#undef OF
