/* privileged.h: in the place of the C library's getauxval, for a spec in a program with raised privileges. Included by
 * one file of a program. It must not know what the runtime does differently there. */
#ifndef MOONFERRY_SPEC_PRIVILEGED_H
#define MOONFERRY_SPEC_PRIVILEGED_H

#include <stdbool.h>
#include <sys/auxv.h>

static bool is_privileged;

unsigned long __getauxval(unsigned long type);

__attribute__((visibility("default"))) unsigned long getauxval(unsigned long type) {
  return type == AT_SECURE ? is_privileged : __getauxval(type);
}

#endif
