/* stacks.c: which of a state's stacks a thread works on, and what the state gets back from Python when it has the lock.
 *
 * Invariant: threads that are inside at the same time never share a stack. Must not know: what is called there. */
#include <stdlib.h>

#include "thread.h"

void mf__state_adopt(mf__state *state) {
  state->owner = mf__self();
  state->depth = 1;
}

void mf__locks_give_up(void) {
  mf__section section;
  mf__section_begin(&section);
  for (mf__state *state = mf__states; state != NULL; state = state->next)
    if (!state->hosted && state->owner == mf__self()) (void)mf__lock_lend(state);
  mf__section_end(&section);
}

static void drain(mf__state *state, lua_State *L) {
  state->dropped += state->unwanted_count;
  while (state->unwanted_count > 0) luaL_unref(L, LUA_REGISTRYINDEX, state->unwanted[--state->unwanted_count]);
}

void mf__state_arrive(mf__state *state, lua_State *L) {
  state->owner = mf__self();
  drain(state, L);
}

static const mf__frame *frame_of_thread(const mf__state *state) {
  const mf__frame *frame = mf__top;
  while (frame != NULL && frame->state != state) frame = frame->below;
  return frame;
}

static lua_State *stack_of_thread(const mf__state *state) {
  const mf__frame *frame = frame_of_thread(state);
  return frame != NULL ? frame->L : NULL;
}

/* Anchored for as long as the state lives: there are never more than threads were inside at once. */
static int new_stack(lua_State *L) {
  mf__state *state = lua_touserdata(L, 1);
  lua_State *stack = lua_newthread(L);
  mf__anchor(L, state);
  state->spare[0] = stack;
  state->spare_count = 1;
  state->spare_total++;
  return 0;
}

/* Lua's collector stands still meanwhile: a finalizer would run on the service's stack, and may let another thread in,
 * which needs a stack as well. Returns the status of lua_cpcall. */
static int make_stack(mf__state *state) {
  lua_State *service = state->service;
  const int collects = lua_gc(service, LUA_GCISRUNNING, 0);
  lua_gc(service, LUA_GCSTOP, 0);
  const int status = lua_cpcall(service, new_stack, state);
  if (status != 0) lua_pop(service, 1);
  if (collects) lua_gc(service, LUA_GCRESTART, 0);
  return status;
}

/* Gives a thread that comes while others are inside a separate stack. */
static lua_State *spare_stack(mf__state *state) {
  if (state->spare_count == 0) {
    size_t size = sizeof *state->spare * (size_t)(state->spare_total + 1);
    lua_State **room = realloc(state->spare, size);
    if (room == NULL) return NULL;
    state->spare = room;
    if (make_stack(state) != 0) return NULL;
  }
  return state->spare[--state->spare_count];
}

/* What a hook or a finalizer calls runs without hooks, as Lua has it, and so does what that calls by way of Python. */
static lua_State *choose_stack(mf__state *state) {
  const mf__frame *frame = frame_of_thread(state);
  if (frame != NULL) mf__marks_put(state, frame->turn.marks);
  lua_State *L = frame != NULL ? frame->L : NULL;
  if (L == NULL && state->busy == 0) L = state->L;
  if (L == NULL) return spare_stack(state);
  if (L == state->L) state->busy++;
  return L;
}

/* While the closing thread waits for those that are inside, nobody else gets in: Lua may have finalized what a new call
 * would use. */
static int may_enter(const mf__state *state) {
  return !mf__state_is_over(state) && (state->closer == NULL || stack_of_thread(state) != NULL);
}

lua_State *mf__state_enter(mf__state *state) {
  if (mf__lock(state, 0) != 0) return NULL;
  state->inside++;
  if (state->stop_hook != NULL) mf__stop_arm();
  const int may = may_enter(state);
  lua_State *L = may ? choose_stack(state) : NULL;
  if (L != NULL) {
    if (mf__room(L, MF__CALL_IN_ROOM) == 0) {
      drain(state, L);
      return L;
    }
    lua_pop(L, 1);
  }
  mf__state_leave(state, L);
  /* Without the lock: up to CPython 3.11 making an exception may start a collection. */
  if (may) PyErr_SetString(mf__lua_memory_error_type, "not enough memory");
  return NULL;
}

void mf__state_leave(mf__state *state, lua_State *L) {
  PyObject *reasons[2] = {NULL, NULL};
  state->inside--;
  if (state->stop_hook != NULL || state->stop != MF__STOP_NOT)
    mf__stop_disarm(state, stack_of_thread(state) == NULL, reasons);
  if (L != NULL && L == state->L) {
    state->busy--;
  } else if (L != NULL && stack_of_thread(state) != L) {
    state->spare[state->spare_count++] = L;
  }
  if (--state->depth == 0) mf__unlock(state);
  if (reasons[0] == NULL && reasons[1] == NULL) return;
  /* The call may have ended with an exception, which whatever the reasons run at their end must not see. */
  const aside exception = aside_begin();
  Py_DecRef(reasons[0]);
  Py_DecRef(reasons[1]);
  aside_end(exception);
}

static lua_State *peek(mf__state *state) {
  if (state->owner != NULL && state->owner != mf__self()) return NULL;
  lua_State *L = mf__top != NULL ? stack_of_thread(state) : NULL;
  if (L == NULL && state->busy == 0) L = state->L;
  if (L == NULL || !mf__has_room(L, 8)) return NULL;
  state->owner = mf__self();
  state->depth++;
  return L;
}

lua_State *mf__peek_begin(mf__state *state, mf__section *section) {
  mf__section_begin(section);
  lua_State *L = peek(state);
  if (L == NULL) mf__section_end(section);
  return L;
}

void mf__peek_end(mf__state *state, lua_State *L, int top, mf__section *section) {
  lua_settop(L, top);
  if (--state->depth == 0) mf__unlock(state);
  mf__section_end(section);
}

static int is_near_limit(const mf__memory *memory) {
  return memory != NULL && memory->limit != 0 && memory->used >= memory->limit - memory->limit / 8;
}

int mf__state_is_short(mf__state *state) {
  return state->dropped > state->patience && is_near_limit(state->memory);
}

/* Where most of the memory is in use, a collection after each value that Python drops would be nearly all that the
 * state does; so one that helped nothing doubles what is dropped before the next. */
void mf__state_collected(mf__state *state) {
  enum { PATIENCE_MAX = 64 };
  state->dropped = 0;
  state->patience = is_near_limit(state->memory) ? state->patience * 2 + 1 : 0;
  if (state->patience > PATIENCE_MAX) state->patience = PATIENCE_MAX;
}

/* Loses the reference where there is no memory: Lua keeps the value as long as the state lives. */
void mf__state_unref(mf__state *state, int ref) {
  if (state->L == NULL) return;
  if (state->unwanted_count == state->unwanted_room) {
    int room = state->unwanted_room * 2 + 16;
    int *grown = realloc(state->unwanted, sizeof *grown * (size_t)room);
    if (grown == NULL) return;
    state->unwanted = grown;
    state->unwanted_room = room;
  }
  state->unwanted[state->unwanted_count++] = ref;
}
