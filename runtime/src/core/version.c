/* version.c: says which library this is. The build sets MF_BUILD_ID; see CMakeLists.txt. */
#include "core/core.h"

#ifndef MF_BUILD_ID
#error "MF_BUILD_ID must be defined by the build"
#endif

const char *mf_version_string(void) {
  return MF_VERSION_STRING;
}

const char *mf_build_id(void) {
  return MF_BUILD_ID;
}
