/* graph.c: graphs of work, and launching them.
 *
 * Invariant: two nodes of a launch are ordered only if the graph orders them; all of a launch is ordered
 * between what its stream was told before and after, and behind the last launch of the same executable. It must
 * not know how a graph was made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "kernel.h"

sim_graph *sim_graph_new(sim_type type) {
  sim_graph *g = calloc(1, sizeof *g);
  if (g == NULL) abort();
  sim_object_add(&g->o, type);
  return g;
}

sim_node *sim_graph_add(sim_graph *g, const sim_work *w, sim_node *const *deps, size_t ndeps) {
  sim_node *n = calloc(1, sizeof *n);
  sim_node **copy = malloc((ndeps + 1) * sizeof(sim_node *));
  if (n == NULL || copy == NULL) abort();
  if (ndeps > 0) memcpy(copy, deps, ndeps * sizeof(sim_node *));
  if (g->nnodes == g->capacity) {
    g->capacity = g->capacity * 2 + 8;
    g->nodes = realloc(g->nodes, g->capacity * sizeof(sim_node *));
    if (g->nodes == NULL) abort();
  }
  sim_object_add(&n->o, SIM_NODE);
  n->o.hidden = true;
  n->work = *w;
  sim_launch_keep(w->launch);
  n->deps = copy;
  n->ndeps = ndeps;
  n->index = g->nnodes;
  g->nodes[g->nnodes++] = n;
  return n;
}

void sim_graph_end(sim_graph *g) {
  for (size_t i = 0; i < g->nnodes; i++) {
    sim_object_end(&g->nodes[i]->o);
    sim_launch_drop(g->nodes[i]->work.launch);
    g->nodes[i]->work.launch = NULL;
  }
  sim_op_drop(g->last);
  sim_clock_free(&g->clock);
  while (g->nbranches > 0) sim_clock_recycle(g->branches[--g->nbranches]);
  free(g->branches);
  free(g->slots);
  free(g->nodes);
  g->last = NULL;
  g->slots = NULL;
  g->branches = NULL;
  g->nodes = NULL;
  g->nnodes = 0;
  sim_object_end(&g->o);
  sim_user_let_go_all(g);
}

/* A node goes on with the branch of its first dependency if it is the first to do so; any other node begins a
 * branch, with a slot of its own in the vector clocks. */
static void assign_branches(sim_graph *g) {
  bool *taken = calloc(g->nnodes + 1, sizeof *taken);
  g->slots = calloc(g->nnodes + 1, sizeof *g->slots);
  g->branches = calloc(g->nnodes + 1, sizeof *g->branches);
  if (taken == NULL || g->slots == NULL || g->branches == NULL) abort();
  for (size_t i = 0; i < g->nnodes; i++) {
    const sim_node *n = g->nodes[i];
    const bool follows = n->ndeps > 0 && !taken[n->deps[0]->index];
    if (follows) taken[n->deps[0]->index] = true;
    if (!follows) g->branches[g->nbranches++] = sim_clock_slot(sim_host_clock());
    g->slots[i] = follows ? g->slots[n->deps[0]->index] : g->branches[g->nbranches - 1];
  }
  free(taken);
}

sim_graph *sim_graph_instantiate(const sim_graph *g) {
  sim_graph *x = sim_graph_new(SIM_EXEC);
  for (size_t i = 0; i < g->nnodes; i++) {
    const sim_node *n = g->nodes[i];
    sim_node **deps = malloc((n->ndeps + 1) * sizeof(sim_node *));
    if (deps == NULL) abort();
    for (size_t k = 0; k < n->ndeps; k++) deps[k] = x->nodes[n->deps[k]->index];
    sim_graph_add(x, &n->work, deps, n->ndeps);
    free(deps);
  }
  for (size_t i = 0; i < g->nheld; i++) {
    g->held[i]->refs++;
    sim_user_hold(x, g->held[i], 1);
  }
  assign_branches(x);
  return x;
}

static sim_op *launch_node(const sim_graph *g, size_t i, sim_op *begin, sim_op *const *ops) {
  const sim_node *n = g->nodes[i];
  sim_op *op = sim_op_new(&n->work, begin->who, begin->ctx);
  sim_clock_copy(&op->clock, &begin->clock);
  sim_op_needs(op, begin);
  for (size_t k = 0; k < n->ndeps; k++) {
    sim_op_needs(op, ops[n->deps[k]->index]);
    sim_clock_join(&op->clock, &ops[n->deps[k]->index]->clock);
  }
  op->slot = g->slots[i];
  op->time = sim_clock_tick(&op->clock, op->slot);
  sim_op_queue(op);
  return op;
}

/* Waiting for each node takes the end of the launch behind all of them. */
static void launch_all(sim_graph *g, sim_stream *s, sim_op *begin) {
  sim_op **ops = malloc((g->nnodes + 1) * sizeof(sim_op *));
  if (ops == NULL) abort();
  for (size_t i = 0; i < g->nnodes; i++) ops[i] = launch_node(g, i, begin, ops);
  for (size_t i = 0; i < g->nnodes; i++) {
    sim_stream_after(s, ops[i], &ops[i]->clock);
    sim_op_drop(ops[i]);
  }
  free(ops);
}

sim_status sim_graph_launch(sim_graph *g, sim_stream *s) {
  const sim_work empty = {.kind = SIM_EMPTY};
  sim_op *begin = NULL;
  if (s->capture != NULL) return SIM_NOT_SUPPORTED;
  sim_status rc = sim_capture_implicit(s);
  if (rc != SIM_OK) return rc;
  if (g->last != NULL) sim_stream_after(s, g->last, &g->clock);
  rc = sim_submit(s, &empty, &begin);
  if (rc != SIM_OK) return rc;
  sim_op_keep(begin);
  launch_all(g, s, begin);
  sim_op_drop(begin);
  sim_op_drop(g->last);
  g->last = sim_op_keep(s->last);
  sim_clock_copy(&g->clock, &s->last->clock);
  return SIM_OK;
}
