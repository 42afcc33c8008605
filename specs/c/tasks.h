/* tasks.h: how many threads this process has. */
#ifndef MOONFERRY_SPEC_TASKS_H
#define MOONFERRY_SPEC_TASKS_H

#include "spec.h"

#include <dirent.h>

static inline int tasks(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/task");
  assert_non_null(dir);
  for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) n += e->d_name[0] != '.';
  closedir(dir);
  return n;
}

#endif
