/* made_at.h: whether driver calls are made with the right GPU as the current one. device.h comes first. */
#ifndef MOONFERRY_SPEC_MADE_AT_H
#define MOONFERRY_SPEC_MADE_AT_H

static void *looks_for; /* what is current on that GPU */
static int looks_there;

static inline void looks_begin(int ordinal) {
  other_current_set(ordinal);
  looks_for = other_current();
  other_current_set(0);
  looks_there = 0;
}

static inline void look_where(void *unused) {
  (void)unused;
  looks_there += other_current() == looks_for;
}

/* Counts the next call of that name, if it is made there. */
static inline void look_at(const char *cuda, const char *rocm) {
  sim_ask_at(cuda, rocm, 1, look_where, NULL);
}

#endif
