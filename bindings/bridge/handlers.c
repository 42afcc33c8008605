/* handlers.c: handlers of SIGINT that are set before the one that is there, and pass the signal on to it.
 *
 * A handler that was set after ours may call ours, as the one that was there before it. So each of ours stands for one
 * host, the handler that it was set before, and passes the signal on to that one alone: nothing has to be remembered
 * of who calls whom, on which thread or stack, and a handler may jump out. A host that has been set again may have kept
 * ours as the one before it, and would get the signal from there a second time; so each has two, which take turns: the
 * one that is out of turn stands for the host before. Must not know: what a signal is for. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sigaction, siginfo_t */
#endif
#include <signal.h>

#include "thread.h"

typedef void entry(int number, siginfo_t *info, void *context);

struct mf__signal {
  int number;
  siginfo_t *info;
  void *context;
  int place; /* of the entry that was called */
};

typedef struct host {
  struct sigaction action;
  mf__handler *ours; /* what comes before it */
  int kept;          /* which of its flags ours has */
  int turn;          /* which of its entries stands for it, 0 or 1 */
} host;

/* The oldest comes first. None ever leaves, because another handler may have kept its entries. */
enum { HOSTS_MAX = 8 };
static host hosts[HOSTS_MAX];
static int count;

static void enter(int place, int number, siginfo_t *info, void *context) {
  const mf__signal signal = {.number = number, .info = info, .context = context, .place = place};
  hosts[place / 2].ours(&signal);
}

#define ENTRY(place) \
  static void entry_##place(int number, siginfo_t *info, void *context) { enter(place, number, info, context); }
ENTRY(0) ENTRY(1) ENTRY(2) ENTRY(3) ENTRY(4) ENTRY(5) ENTRY(6) ENTRY(7)
ENTRY(8) ENTRY(9) ENTRY(10) ENTRY(11) ENTRY(12) ENTRY(13) ENTRY(14) ENTRY(15)

static entry *const entries[2 * HOSTS_MAX] = {entry_0,  entry_1,  entry_2,  entry_3, entry_4,  entry_5,
                                              entry_6,  entry_7,  entry_8,  entry_9, entry_10, entry_11,
                                              entry_12, entry_13, entry_14, entry_15};

/* Where ours is in the table, or -1. */
static int place_of(const struct sigaction *action) {
  int place = 2 * count - 1;
  while (place >= 0 && action->sa_sigaction != entries[place]) place--;
  return place;
}

static int is_of(int number, const struct sigaction *action) {
  return action->sa_handler == hosts[number].action.sa_handler;
}

static void take_place(int number) {
  host *its = &hosts[number];
  struct sigaction action = its->action;
  its->turn = !its->turn;
  action.sa_sigaction = entries[2 * number + its->turn];
  action.sa_flags = SA_SIGINFO | (its->action.sa_flags & its->kept);
  sigaction(SIGINT, &action, NULL);
}

void mf__handler_set(mf__handler *ours, int kept) {
  struct sigaction now;
  if (sigaction(SIGINT, NULL, &now) != 0 || now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN) return;
  if (place_of(&now) >= 0) return;
  int number = 0;
  while (number < count && !is_of(number, &now)) number++;
  if (number == HOSTS_MAX) return;
  if (number == count) count++;
  hosts[number] = (host){.action = now, .ours = ours, .kept = kept, .turn = hosts[number].turn};
  take_place(number);
}

void mf__handler_unset(mf__handler *ours) {
  struct sigaction now;
  if (sigaction(SIGINT, NULL, &now) != 0) return;
  const int place = place_of(&now);
  if (place >= 0 && hosts[place / 2].ours == ours) sigaction(SIGINT, &hosts[place / 2].action, NULL);
}

/* A handler that the system was to call once has been called. */
static void reset(void) {
  const struct sigaction none = {.sa_handler = SIG_DFL};
  sigaction(SIGINT, &none, NULL);
}

/* As the system would call it. A host that sets itself again each time takes our place, which is taken back. */
static void call(int number, const mf__signal *signal, int has_place) {
  const struct sigaction *action = &hosts[number].action;
  const unsigned flags = (unsigned)action->sa_flags;
  struct sigaction now;
  if (has_place && (flags & (unsigned)SA_RESETHAND)) reset();
  if (flags & SA_SIGINFO) action->sa_sigaction(signal->number, signal->info, signal->context);
  else action->sa_handler(signal->number);
  if (has_place && sigaction(SIGINT, NULL, &now) == 0 && is_of(number, &now)) take_place(number);
}

void mf__pass_on(const mf__signal *signal) {
  struct sigaction now;
  int number = signal->place / 2;
  if (sigaction(SIGINT, NULL, &now) != 0) return;
  /* A host that has taken our place is the one that calls us. */
  if (signal->place % 2 != hosts[number].turn || is_of(number, &now)) number--;
  if (number >= 0) call(number, signal, place_of(&now) == signal->place);
}
