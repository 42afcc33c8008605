/* types.c: makes the Python types of the bridge. */
#include "open.h"

int mf__types_ready(void) {
  if (mf__iterator_type != NULL) return 0;
  if (mf__error_types_ready() != 0) return -1;
  const int watches = mf__state_type != NULL ||
                      (mf__forks_watch() == 0 && mf__door_watch_forks() == 0 && mf__collections_find() == 0);
  if (!watches) return -1;
  mf__marks_find();
  if (mf__state_type_ready() != 0 || mf__object_type_ready() != 0 || mf__function_types_ready() != 0) return -1;
  if (mf__error_copies_ready() != 0) return -1;
  return mf__thread_type_ready() != 0 || mf__table_types_ready() != 0 ? -1 : 0;
}
