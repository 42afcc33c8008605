/* user.c: objects of the program's whose life a graph shares.
 *
 * Invariant: the destructor runs once, when the last reference goes, whoever holds it; an executable graph holds
 * what the graph held that it was made from. It must not know what the objects are. */
#include <stdlib.h>

#include "engine.h"

sim_user *sim_user_new(void (*destroy)(void *), void *arg, unsigned refs) {
  sim_user *u = calloc(1, sizeof *u);
  if (u == NULL) abort();
  sim_object_add(&u->o, SIM_USER);
  u->destroy = destroy;
  u->arg = arg;
  u->refs = refs;
  return u;
}

sim_status sim_user_release(sim_user *u, unsigned count) {
  if (count == 0 || count > u->refs) return SIM_INVALID;
  u->refs -= count;
  if (u->refs > 0) return SIM_OK;
  sim_object_end(&u->o);
  sim_call_out(u->destroy, u->arg);
  return SIM_OK;
}

void sim_user_hold(sim_graph *g, sim_user *u, unsigned count) {
  g->held = realloc(g->held, (g->nheld + count) * sizeof(sim_user *));
  if (g->held == NULL) abort();
  for (unsigned i = 0; i < count; i++) g->held[g->nheld++] = u;
}

sim_status sim_user_let_go(sim_graph *g, sim_user *u, unsigned count) {
  size_t kept = 0;
  unsigned gone = 0;
  for (size_t i = 0; i < g->nheld; i++) {
    const bool take = g->held[i] == u && gone < count;
    gone += take;
    if (!take) g->held[kept++] = g->held[i];
  }
  g->nheld = kept;
  return gone == count ? sim_user_release(u, count) : SIM_INVALID;
}

/* The list is taken out of the graph first: a destructor may be slow, and others may look at the graph. */
void sim_user_let_go_all(sim_graph *g) {
  sim_user **held = g->held;
  const size_t n = g->nheld;
  g->held = NULL;
  g->nheld = 0;
  for (size_t i = 0; i < n; i++) sim_user_release(held[i], 1);
  free(held);
}
