/* assembler.h: the toolkit's own assembler, where it is on the machine.
 *
 * It only checks the specs: what is right for the simulator must be right for it, and what it refuses the simulator
 * must refuse. */
#ifndef SIM_SPEC_ASSEMBLER_H
#define SIM_SPEC_ASSEMBLER_H

#include <unistd.h>

#include "spec.h"

/* "" if there is none. */
static inline const char *assembler(void) {
  const char *path = getenv("MOONFERRY_PTXAS");
  return path == NULL ? "" : path;
}

#define NEEDS_ASSEMBLER                                                       \
  if (*assembler() == '\0') {                                                 \
    print_message("skip %s: MOONFERRY_PTXAS names no assembler\n", __func__); \
    skip();                                                                   \
  }

static inline bool assembles(const char *text) {
  char path[] = "/tmp/sim-ptx-XXXXXX", command[512];
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
  snprintf(command, sizeof command, "%s -arch=sm_90 %s -o /dev/null >/dev/null 2>&1", assembler(), path);
  const int status = system(command);
  unlink(path);
  return status == 0;
}

#endif
