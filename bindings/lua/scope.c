/* scope.c: the functions by which lua/moonferry/scope.lua closes Python objects.
 *
 * Invariant: a scope that is not open (any more) is looked for, never looked into. Must not know: whose scope it is. */
#include <stdlib.h>

#include "copy.h"

static mf__scope *scope_at(lua_State *L, int index) {
  void *scope = lua_touserdata(L, index);
  return scope != NULL && mf__scope_is_open(mf__top->state, scope) ? scope : NULL;
}

/* If the value at ${index} is an open Python object of ${scope}, it goes over to ${outer}. */
static void hand_over(lua_State *L, int index, const mf__scope *scope, mf__scope *outer) {
  if (!mf__is_object(L, index)) return;
  mf__ref *ref = *(mf__ref **)lua_touserdata(L, index);
  if (ref != NULL && ref->scope == scope) mf__ref_enter(ref, outer);
}

/* scope_begin() -> scope */
static int scope_begin(lua_State *L) {
  mf__state *state = mf__top->state;
  mf__scope *scope = calloc(1, sizeof *scope);
  if (scope == NULL) mf__fail(L, "not enough memory");
  scope->next = state->scopes;
  state->scopes = scope;
  lua_pushlightuserdata(L, scope);
  return 1;
}

/* scope_keep(scope, outer or nil, object): the outer scope has it now. */
static int scope_keep(lua_State *L) {
  mf__ref_check(L, 3);
  mf__scope *scope = scope_at(L, 1);
  if (scope != NULL) hand_over(L, 3, scope, scope_at(L, 2));
  return 0;
}

/* From here on nobody finds ${scope}, which has its objects still. */
static void take_out(mf__state *state, const mf__scope *scope) {
  mf__scope **link = &state->scopes;
  while (*link != scope) link = &(*link)->next;
  *link = scope->next;
}

/* scope_end(scope, outer or nil, survivor): closes all that was made in it, but for the survivor, if that is a Python
 * object: the outer scope has it then. What comes first each time, because letting go of it may run any code, which may
 * close others, or end a scope of which it says that it is this one. */
static int scope_end(lua_State *L) {
  mf__scope *scope = scope_at(L, 1);
  if (scope == NULL) return 0;
  hand_over(L, 3, scope, scope_at(L, 2));
  take_out(mf__top->state, scope);
  while (scope->made != NULL) mf__close_ref(scope->made);
  free(scope);
  return 0;
}

void mf__put_scopes(lua_State *L, int bridge) {
  static const luaL_Reg verbs[] = {
      {"scope_begin", scope_begin}, {"scope_keep", scope_keep}, {"scope_end", scope_end}, {NULL, NULL}};
  mf__put_verbs(L, verbs, bridge);
}
