/* guest.c: the language that another one brought into this process, as far as a program in C speaks to it.
 *
 * And the first moment of the process's end. There the thread_local objects of the main thread die, before any exit
 * function and any destructor of a library. Only the main thread can have that moment told, so it is asked for where
 * the main thread loads this library. Invariant: there is one guest or none. Must not know: which language it is. */
#include "core/core.h"

static const mf_guest *_Atomic guest;
static int32_t tells_of_the_end;

static void end_of_main(void *unused) {
  (void)unused;
  const mf_guest *there = atomic_load(&guest);
  if (there != NULL && there->leave != NULL) there->leave();
}

__attribute__((constructor)) static void ask_for_the_end(void) {
  tells_of_the_end = mf__at_end_of_main(end_of_main);
}

int32_t mf_guest_set(const mf_guest *there) {
  atomic_store(&guest, there);
  return tells_of_the_end;
}

int mf_guest_collect(mf_error *err) {
  const mf_guest *there = atomic_load(&guest);
  return mf__end(there != NULL ? there->collect(err) : MF_OK, __func__, err);
}

int mf_guest_finish(int32_t wait_ms, int32_t *late, mf_error *err) {
  const mf_guest *there = atomic_load(&guest);
  int32_t left_behind = 0;
  int rc = MF_OK;
  if (wait_ms < 0) rc = mf__fail(err, MF_EINVAL, "wait_ms is %d; 0 or more is expected", (int)wait_ms);
  else if (there != NULL) rc = there->finish(wait_ms, &left_behind, err);
  if (late != NULL) *late = left_behind;
  return mf__end(rc, __func__, err);
}
