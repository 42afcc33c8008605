/* lua_error.c: turns Lua errors into Python exceptions, and back.
 *
 * An error that is a Python exception arrives as that exception, with Lua's stack as a note. Any other becomes a
 * LuaError: its str() is the message and Lua's stack, `value` is the value that was thrown, `message` and `traceback`
 * are the two texts. Where such an exception gets back into its Lua state, `value` is thrown again, so that the same
 * error arrives. Invariant: after a failure exactly one Python exception is pending. */
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "convert.h"

/* Whether the function at the top is one that mf__push_entry made, of whatever kind: its second upvalue is a
 * bridge's box.
 * */
static int is_entry(lua_State *L) {
  if (!lua_iscfunction(L, -1) || lua_getupvalue(L, -1, 2) == NULL) return 0;
  void *box = lua_touserdata(L, -1);
  lua_pop(L, 1);
  for (const mf__bridge *bridge = mf__top->state->bridges; box != NULL && bridge != NULL; bridge = bridge->next) {
    if (bridge->box == box) return 1;
  }
  return 0;
}

/* Whether the function at the top is the body of an entry at ${level}: the first upvalue of that. */
static int is_body_of(lua_State *L, int level) {
  lua_Debug frame;
  if (!lua_getstack(L, level, &frame)) return 0;
  lua_getinfo(L, "f", &frame);
  int is = is_entry(L) && lua_getupvalue(L, -1, 1) != NULL;
  if (is) {
    is = lua_rawequal(L, -1, -3);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return is;
}

/* More than luaL_traceback shows of any stack: the innermost twelve, "..." and the outermost ten. */
enum { LEVELS_MAX = 32 };
#define BEFORE_CALL "\n\t"
#define LEFT_OUT BEFORE_CALL "..."

/* How many calls there are above the one from Python: above mf__call_in_runner or, where Lua was called without it,
 * above the entry by which Lua had called Python, or its body if it needed that. (An entry at the top is what
 * failed.) At most LEVELS_MAX: Lua looks for each level from the top, so that going down a full stack takes seconds. */
static int levels_above_call_in(lua_State *L) {
  lua_Debug frame;
  int level = 1;
  for (; level <= LEVELS_MAX && lua_getstack(L, level, &frame); level++) {
    lua_getinfo(L, "f", &frame);
    int runner = lua_tocfunction(L, -1) == mf__call_in_runner, entry = is_entry(L);
    int body = !entry && lua_iscfunction(L, -1) && is_body_of(L, level + 1);
    lua_pop(L, 1);
    if (runner || body || (entry && level > 1)) break;
  }
  return level - 1;
}

/* Whether the stack has calls outside of the one from Python, which is on it. */
static int is_nested(lua_State *L) {
  const mf__frame *frame = mf__top->below;
  while (frame != NULL && frame->L != L) frame = frame->below;
  return frame != NULL;
}

/* How much of the traceback ${text} is about its first ${count} calls. A name may have ends of lines of its own. Where
 * the middle of a deep stack is left out, what follows is the end of all of it: mostly of this call, and then the
 * runner is the last, because LEVELS_MAX have not reached it. Leaves something on the stack. */
static size_t size_of_calls(lua_State *L, const char *text, int count) {
  const char *call = strstr(text, BEFORE_CALL);
  for (; call != NULL && count > 0; count--) {
    if (strncmp(call, LEFT_OUT BEFORE_CALL, sizeof LEFT_OUT BEFORE_CALL - 1) == 0 && is_nested(L))
      return (size_t)(call - text) + sizeof LEFT_OUT - 1;
    call = strstr(call + 1, BEFORE_CALL);
  }
  if (call == NULL) {
    void *runner = (void *)(uintptr_t)mf__call_in_runner;
    call = strstr(text, lua_pushfstring(L, BEFORE_CALL "[C]: at %p", runner));
  }
  return call != NULL ? (size_t)(call - text) : strlen(text);
}

/* The source of errors.lua as Lua has it, "@FOLDER/errors.lua", or NULL before Moonferry's Lua files are loaded. A
 * script may put anything in their place: then no frame is left out. */
static const char *own_source(lua_State *L) {
  lua_Debug of = {0};
  static const char *const keys[] = {"_LOADED", "moonferry.errors", "misuse"};
  lua_pushvalue(L, LUA_REGISTRYINDEX);
  for (int i = 0; i < 3; i++) {
    if (!lua_istable(L, -1)) return NULL;
    lua_pushstring(L, keys[i]);
    lua_rawget(L, -2);
  }
  if (!lua_isfunction(L, -1)) return NULL;
  lua_getinfo(L, ">S", &of);
  return of.source;
}

/* The innermost of so many levels that is not Moonferry's own: what its files raise is about the call of them. */
static int level_of_user(lua_State *L, int levels) {
  lua_Debug frame;
  const char *own = own_source(L), *name = own != NULL ? strrchr(own, '/') : NULL;
  lua_settop(L, 1);
  int first = 1;
  for (int level = 1; name != NULL && level <= levels && lua_getstack(L, level, &frame); level++) {
    lua_getinfo(L, "S", &frame);
    if (strncmp(frame.source, own, (size_t)(name + 1 - own)) == 0)
      first = level + 1;
    else if (*frame.what != 'C') /* error() itself, say */
      break;
  }
  return first;
}

int mf__error_handler(lua_State *L) {
  if (!lua_checkstack(L, LUA_MINSTACK)) return 1; /* the error as it is, without its lines */
  const int levels = levels_above_call_in(L), first = level_of_user(L, levels);
  luaL_traceback(L, L, NULL, first);
  const char *text = lua_tostring(L, -1);
  size_t size = size_of_calls(L, text, levels + 1 - first);
  /* Without a call there was no Lua: the body itself failed. */
  if (memchr(text, '\n', size) != NULL) {
    lua_pushlstring(L, text, size);
    lua_rawseti(L, lua_upvalueindex(1), MF__BRIDGE_TRACE);
  }
  lua_settop(L, 1);
  return 1;
}

PyObject *mf__text_of_error(const char *text, size_t size) {
  const mf__options *options = &mf__top->bridge->state->options;
  if (options->encoding != NULL && !options->utf8) {
    PyObject *object;
    MF__OUTSIDE(object, PyUnicode_Decode(text, (Py_ssize_t)size, options->encoding, NULL));
    if (object != NULL || !answer_is_set()) return object;
    mf__clear_error();
  }
  PyObject *object = PyUnicode_DecodeUTF8(text, (Py_ssize_t)size, NULL);
  if (object != NULL) return object;
  PyErr_Clear();
  return PyUnicode_DecodeLatin1(text, (Py_ssize_t)size, NULL);
}

/* Whether the error at the top is such an exception. */
static int is_exit(lua_State *L) {
  PyObject *exception = mf__fault_exception(L, -1);
  return exception != NULL && answer_is_exit(exception);
}

/* The text of the error value at ${index}, held. A __tostring that fails is none. */
static PyObject *message_of(lua_State *L, int index) {
  lua_pushvalue(L, index);
  if (luaL_getmetafield(L, index, "__tostring")) {
    lua_insert(L, -2);
    if (mf__run_protected(L, 1, 1) != 0) {
      if (is_exit(L)) lua_error(L);
      lua_pop(L, 1);
      lua_pushnil(L);
    }
  }
  size_t size;
  const char *text = lua_tolstring(L, -1, &size);
  PyObject *message = text != NULL ? mf__text_of_error(text, size)
                                   : PyUnicode_FromFormat("the error object is a Lua %s", luaL_typename(L, index));
  mf__hold(L, message);
  lua_pop(L, 1);
  return message;
}

/* Lua's stack at the last error, outermost call last, held; or None. */
static PyObject *take_trace(lua_State *L) {
  lua_rawgeti(L, lua_upvalueindex(1), MF__BRIDGE_TRACE);
  size_t size;
  const char *text = lua_tolstring(L, -1, &size);
  if (text == NULL) Py_IncRef(Py_None);
  PyObject *trace = mf__hold(L, text != NULL ? mf__text_of_error(text, size) : Py_None);
  lua_pop(L, 1);
  lua_pushnil(L);
  lua_rawseti(L, lua_upvalueindex(1), MF__BRIDGE_TRACE);
  return trace;
}

/* "stack traceback:" and the calls below it, the innermost one last, as Python has it. */
static PyObject *python_order(PyObject *trace) {
  PyObject *before = PyUnicode_FromString(BEFORE_CALL);
  PyObject *lines = before != NULL ? PyUnicode_Split(trace, before, -1) : NULL;
  Py_ssize_t count = lines != NULL ? PyList_Size(lines) : 0;
  PyObject *calls = lines != NULL ? PyList_GetSlice(lines, 1, count) : NULL;
  PyObject *ordered = NULL;
  if (calls != NULL && PyList_Reverse(calls) == 0 && PyList_SetSlice(lines, 1, count, calls) == 0)
    ordered = PyUnicode_Join(before, lines);
  Py_DecRef(before);
  Py_DecRef(calls);
  Py_DecRef(lines);
  return ordered;
}

static int set(PyObject *exception, const char *name, PyObject *value) {
  return PyObject_SetAttrString(exception, name, value != NULL ? value : Py_None);
}

PyObject *mf__error_new(PyObject *type, PyObject *message, PyObject *value, PyObject *trace) {
  PyObject *full = NULL;
  if (trace != NULL && trace != Py_None) {
    PyObject *ordered = python_order(trace);
    full = ordered != NULL ? PyUnicode_FromFormat("%U\n%U", message, ordered) : NULL;
    Py_DecRef(ordered);
  } else {
    Py_IncRef(message);
    full = message;
  }
  PyObject *exception = full != NULL ? PyObject_CallFunctionObjArgs(type, full, NULL) : NULL;
  Py_DecRef(full);
  if (exception == NULL) return NULL;
  PyObject *state = (PyObject *)mf__top->bridge->state;
  if (set(exception, "message", message) || set(exception, "value", value) || set(exception, "traceback", trace) ||
      set(exception, "_state", value != NULL ? state : NULL)) {
    Py_DecRef(exception);
    return NULL;
  }
  return exception;
}

/* A program that took debug.traceback away from Lua gets no stack in its messages: lupa's rule. */
static int may_trace(lua_State *L) {
  lua_pushliteral(L, "debug");
  lua_rawget(L, LUA_GLOBALSINDEX);
  int may = lua_type(L, -1) == LUA_TTABLE;
  if (may) {
    lua_pushliteral(L, "traceback");
    lua_rawget(L, -2);
    may = lua_type(L, -1) == LUA_TFUNCTION;
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return may;
}

/* Python prints notes below the traceback, from 3.11 on. An exception that takes none does without. What is no answer
 * stays pending. */
static void add_note(PyObject *exception, PyObject *trace) {
  PyObject *text = trace != Py_None ? PyUnicode_FromFormat("Lua %U", trace) : NULL;
  if (text == NULL) return;
  PyObject *notes = PyObject_GetAttrString(exception, "__notes__");
  if (notes == NULL) {
    notes = answer_is_no() ? Py_BuildValue("[O]", text) : NULL;
    if (notes != NULL) (void)PyObject_SetAttrString(exception, "__notes__", notes);
  } else if (PyList_Check(notes)) {
    (void)PyList_Append(notes, text);
  }
  Py_DecRef(notes);
  Py_DecRef(text);
}

/* The error value in Python: bytes where text cannot be decoded, a table itself, never a copy, and None for a Python
 * object that was closed. Held. */
static PyObject *value_of(lua_State *L, int index) {
  if (mf__is_object(L, index) && mf__unprotected_ref(L, mf__top->bridge, index) == NULL) {
    Py_IncRef(Py_None);
    return mf__hold(L, Py_None);
  }
  if (lua_type(L, index) == LUA_TTABLE) return mf__hold(L, mf__lua_object(L, index));
  if (lua_type(L, index) != LUA_TSTRING) return mf__hold(L, mf__to_python(L, index));
  size_t size;
  const char *data = lua_tolstring(L, index, &size);
  PyObject *text = PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, NULL);
  if (text != NULL) return mf__hold(L, text);
  PyErr_Clear();
  return mf__hold(L, PyBytes_FromStringAndSize(data, (Py_ssize_t)size));
}

/* Whether ${text} is LuaJIT's own memory error, which a script or coroutine.wrap has thrown on: then there may be a
 * position before it. Or `require` has, whose module could not be compiled: then there is a line of its own before. */
static int is_memory_text(const char *text) {
  static const char own[] = "not enough memory";
  size_t size = strlen(text), rest = sizeof own - 1;
  if (size < rest || strcmp(text + size - rest, own) != 0) return 0;
  size -= rest;
  if (size >= 3 && memcmp(text + size - 3, ":\n\t", 3) == 0) return 1;
  return size == 0 || (size >= 3 && memcmp(text + size - 2, ": ", 2) == 0 && isdigit((unsigned char)text[size - 3]));
}

int mf__error_to_python(lua_State *L, void *status) {
  PyObject *trace = take_trace(L);
  PyObject *exception = mf__fault_exception(L, 1);
  if (exception != NULL) {
    Py_IncRef(exception);
    mf__hold(L, exception);
    mf__outside_begin();
    add_note(exception, trace);
    /* In the place of what its notes have raised, but for Ctrl-C and an exit. */
    if (PyErr_Occurred() == NULL || PyErr_ExceptionMatches(PyExc_Exception)) mf__restore_error(exception);
    mf__outside_end();
    return 0;
  }
  int no_memory = *(int *)status == LUA_ERRMEM;
  if (no_memory) { /* which needs none: LuaJIT keeps this text for it */
    lua_pushliteral(L, "not enough memory");
    lua_replace(L, 1);
  }
  if (lua_type(L, 1) == LUA_TSTRING) no_memory = no_memory || is_memory_text(lua_tostring(L, 1));
  PyObject *type = no_memory ? mf__lua_memory_error_type : mf__lua_error_type;
  if (!may_trace(L) || no_memory) trace = NULL;
  PyObject *message = message_of(L, 1), *value = value_of(L, 1);
  MF__OUTSIDE(exception, mf__error_new(type, message, value, trace));
  mf__hold(L, exception);
  /* So what is being handled is its context, as that of any new exception. */
  PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
  return 0;
}

void mf__error_fallback(lua_State *L, int status) {
  mf__clear_error();
  PyObject *exception = mf__fault_exception(L, -1);
  const char *text = status == LUA_ERRRUN && lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
  if (exception != NULL && !PyErr_GivenExceptionMatches(exception, PyExc_MemoryError)) {
    mf__restore_error(exception);
  } else if (text != NULL && !is_memory_text(text)) {
    PyErr_Format(mf__lua_error_type, "an error in Lua cannot be told, because of another one: %s", text);
  } else {
    PyErr_SetString(mf__lua_memory_error_type, "not enough memory to say what went wrong in Lua");
  }
}

PyObject *mf__thrown_value(PyObject *exception) {
  if (Py_TYPE(exception) != (PyTypeObject *)mf__lua_error_type) return NULL;
  PyObject *state = PyObject_GetAttrString(exception, "_state");
  int ours = state == (PyObject *)mf__top->bridge->state;
  Py_DecRef(state);
  PyObject *value = ours ? PyObject_GetAttrString(exception, "value") : NULL;
  if (value == NULL) PyErr_Clear();
  return value;
}

void mf__push_thrown(lua_State *L, PyObject *value) {
  if (value == Py_None) {
    Py_DecRef(value);
    lua_pushnil(L);
  } else {
    mf__to_lua(L, value);
  }
}

PyObject *mf__pending_exception(lua_State *L) {
  PyObject *type, *value, *trace;
  mf__fetch_error(&type, &value, &trace);
  mf__hold(L, value);
  mf__put_traceback(value, trace);
  mf__let_go(type);
  mf__let_go(trace);
  return value;
}

PyObject *mf__exception_of(lua_State *L) {
  int status = LUA_ERRRUN;
  mf__error_to_python(L, &status);
  return mf__pending_exception(L);
}
