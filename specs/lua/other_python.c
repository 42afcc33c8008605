/* other_python.c: has any CPython, where it is preloaded, say that it is the version OTHER_PYTHON. */
#include <stdlib.h>

__attribute__((visibility("default"))) const char *Py_GetVersion(void);

const char *Py_GetVersion(void) {
  return getenv("OTHER_PYTHON");
}
