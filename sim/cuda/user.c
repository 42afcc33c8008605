/* user.c: user objects, as the program sees them.
 *
 * It must not know when they are destroyed. */
#include "front.h"

enum { NO_DESTRUCTOR_SYNC = 1, MOVE = 1 };

CUresult do_cuUserObjectCreate(CUuserObject *out, void *arg, CUhostFn destroy, unsigned refs, unsigned flags) {
  if (out == NULL || destroy == NULL || refs == 0 || flags != NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  *out = (CUuserObject)sim_user_new(destroy, arg, refs)->o.handle;
  return CUDA_SUCCESS;
}

CUresult do_cuUserObjectRetain(CUuserObject handle, unsigned count) {
  sim_user *u;
  TRY(object_of(handle, SIM_USER, &u));
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  u->refs += count;
  return CUDA_SUCCESS;
}

CUresult do_cuUserObjectRelease(CUuserObject handle, unsigned count) {
  sim_user *u;
  TRY(object_of(handle, SIM_USER, &u));
  return from(sim_user_release(u, count));
}

CUresult do_cuGraphRetainUserObject(CUgraph graph, CUuserObject handle, unsigned count, unsigned flags) {
  sim_graph *g;
  sim_user *u;
  TRY(object_of(graph, SIM_GRAPH, &g));
  TRY(object_of(handle, SIM_USER, &u));
  if (count == 0 || flags > MOVE || (flags == MOVE && count > u->refs)) return CUDA_ERROR_INVALID_VALUE;
  if (flags != MOVE) u->refs += count;
  sim_user_hold(g, u, count);
  return CUDA_SUCCESS;
}

CUresult do_cuGraphReleaseUserObject(CUgraph graph, CUuserObject handle, unsigned count) {
  sim_graph *g;
  sim_user *u;
  TRY(object_of(graph, SIM_GRAPH, &g));
  TRY(object_of(handle, SIM_USER, &u));
  return from(sim_user_let_go(g, u, count));
}
