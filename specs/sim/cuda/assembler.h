/* assembler.h: the toolkit's own assembler, where it is on the machine.
 *
 * It only checks the specs: what is right for the simulator must be right for it, and what it refuses the simulator
 * must refuse. */
#ifndef SIM_SPEC_ASSEMBLER_H
#define SIM_SPEC_ASSEMBLER_H

#include <unistd.h>

#include "spec.h"

#ifndef PTXAS
#define PTXAS ""
#endif

#define NEEDS_ASSEMBLER                                                                                     \
  if (*PTXAS == '\0') {                                                                                     \
    print_message("skip %s: there was no ptxas when this was configured (SIM_PTXAS sets where)\n", __func__); \
    skip();                                                                                                 \
  }

static inline bool assembles(const char *text) {
  char path[] = "/tmp/sim-ptx-XXXXXX", command[512];
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
  snprintf(command, sizeof command, "%s -arch=sm_90 %s -o /dev/null >/dev/null 2>&1", PTXAS, path);
  const int status = system(command);
  unlink(path);
  return status == 0;
}

#endif
