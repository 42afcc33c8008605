/* call_in.c: calls from Python into Lua, and makes an exception of an error there. */
#include "convert.h"
#include <moonferry_lua.h>

/* Collects after a script that ran out of memory: its garbage would keep the next one from running. An exception is
 * pending. */
static void collect_after(mf__frame *frame) {
  const aside exception = aside_begin();
  mf__call_in_collect(frame);
  aside_end(exception);
}

/* Where the message handler has no memory either, a LuaJIT of 2023 and later says that it failed, not why. */
static int is_for_want_of_memory(const mf__frame *frame, int status) {
  const mf__memory *memory = frame->state->memory;
  return status == LUA_ERRMEM || (status == LUA_ERRERR && memory != NULL && memory->refused != frame->refused);
}

/* Leaves nothing but the error at the top of what the call has on the stack. Results may fill that to its end, and no
 * push may make it grow here. */
static void keep_error(const mf__frame *frame) {
  if (lua_gettop(frame->L) > frame->top + 1) lua_replace(frame->L, frame->top + 1);
  lua_settop(frame->L, frame->top + 1);
}

/* If the error came out of `require`, the next call can load that module again. */
static void forget_broken_loads(const mf__frame *frame) {
  if (frame->state->hosted && frame->state->inside == 1) (void)mf_lua__unfinished(frame->L, "", 1);
}

void mf__call_in_fail(mf__frame *frame, int status) {
  mf__state *state = frame->state;
  keep_error(frame);
  if (is_for_want_of_memory(frame, status)) status = LUA_ERRMEM;
  mf__let_all_go(frame);
  if (!mf__stopped(state)) {
    const int told = mf__call_in_body(frame, mf__error_to_python, &status, 1);
    if (told != 0) mf__error_fallback(frame->L, told);
    mf__stopped(state); /* a script's __tostring may have run for the text, and was ended */
  }
  if (status == LUA_ERRMEM) collect_after(frame);
  forget_broken_loads(frame);
}

int mf__call_in(mf__bridge *bridge, int (*body)(lua_State *L, void *data), void *data) {
  mf__frame frame;
  if (mf__call_in_begin(bridge, &frame) == NULL) return -1;
  int status = mf__call_in_body(&frame, body, data, 0);
  if (status != 0) mf__call_in_fail(&frame, status);
  mf__call_in_end(&frame);
  return status == 0 ? 0 : -1;
}

int mf__call_in_by(mf__value *value, int (*body)(lua_State *L, void *data), void *data) {
  Py_INCREF((PyObject *)value);
  const int status = mf__call_in(value->bridge, body, data);
  Py_DECREF((PyObject *)value);
  return status;
}
