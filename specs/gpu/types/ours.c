/* ours.c: a driver's declarations as the runtime has them. Built once for each driver. */
#include "driver/driver.h"

#define SINCE_ROCM_6
#include "table.h"

#ifdef OF_HIP
const type_entry *our_hip(size_t *n) {
  *n = NENTRIES;
  return entries;
}
#else
const type_entry *our_cuda(size_t *n) {
  *n = NENTRIES;
  return entries;
}
#endif
