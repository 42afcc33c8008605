/* raise.c: raises errors in Lua: our own, and Python's exceptions.
 *
 * An exception becomes a userdata that owns it and remembers where in Lua it was raised; py_exception.c gives it
 * fields. The userdata of any other object is made here as well. Invariant: no Python exception is pending afterwards.
 * Must not know: how values cross. */
#include <stdarg.h>
#include <string.h>

#include "handle.h"

/* The Lua code that called: above the body and mf__enter. */
#define CALLER_LEVEL 2

/* Whether a function is of a file that calls Python for the program: py.exec and its like are in these. The source of a
 * text is that text. */
static int is_own(const char *source) {
  static const char *const own[] = {"moonferry/python.lua", "moonferry/borrowed.lua", "moonferry/life.lua",
                                    "moonferry/scope.lua", "moonferry/views.lua"};
  for (size_t i = 0; *source == '@' && i < sizeof own / sizeof *own; i++) {
    const char *found = strstr(source, own[i]);
    if (found != NULL && found[strlen(own[i])] == '\0') return 1;
  }
  return 0;
}

/* Pushes "file:line: " of the program's line, which is what one wants to know. A function of C's, such as pcall, is
 * ours where one of ours has called it; a message handler's may be as many as there is room for. */
static void push_place(lua_State *L) {
  enum { MOST = CALLER_LEVEL + 10 };
  lua_Debug frame;
  int place = CALLER_LEVEL;
  for (int level = place; level < MOST && lua_getstack(L, level, &frame); level++) {
    lua_getinfo(L, "S", &frame);
    const int own = is_own(frame.source);
    if (own) place = level + 1;
    if (!own && *frame.what != 'C') break;
  }
  luaL_where(L, place);
}

int mf__fail(lua_State *L, const char *format, ...) {
  va_list args;
  va_start(args, format);
  push_place(L);
  lua_pushvfstring(L, format, args);
  va_end(args);
  lua_concat(L, 2);
  return lua_error(L);
}

volatile sig_atomic_t mf__interrupted;

/* Python has signals for its main thread alone. Where Python hosts Lua, its own handler is the one that is called, and
 * tells nobody but Python. */
int mf__interrupt_came(void) {
  if ((!mf__interrupted && !mf__top->state->hosted) || !mf__on_main_thread()) return 0;
  int raised;
  mf__interrupted = 0;
  MF__OUTSIDE(raised, PyErr_CheckSignals());
  return raised != 0;
}

void mf__check_interrupt(lua_State *L) {
  if (mf__interrupt_came()) mf__raise(L);
}

/* Lua's stack as text. Where it is very deep, only its top: luaL_traceback walks all of it, and where a message handler
 * that fails is called again and again it would do so at each level. */
static void push_stack(lua_State *L) {
  enum { DEEP = 1000, SHOWN = 10 };
  lua_Debug frame;
  if (!lua_getstack(L, DEEP, &frame)) {
    luaL_traceback(L, L, NULL, CALLER_LEVEL);
    return;
  }
  int first = lua_gettop(L) + 1;
  lua_pushliteral(L, "stack traceback:");
  for (int level = CALLER_LEVEL; level < CALLER_LEVEL + SHOWN; level++) {
    lua_getstack(L, level, &frame);
    lua_getinfo(L, "Sl", &frame);
    lua_pushfstring(L, "\n\t%s:%d:", frame.short_src, frame.currentline);
  }
  lua_pushliteral(L, "\n\t...");
  lua_concat(L, lua_gettop(L) - first + 1);
}

mf__ref *mf__push_ref(lua_State *L, PyObject *object, int metatable) {
  mf__ref **box = lua_newuserdata(L, sizeof *box);
  *box = mf__ref_new(&mf__top->state->refs, object);
  if (*box == NULL) mf__fail(L, "not enough memory");
  Py_IncRef(object);
  lua_rawgeti(L, lua_upvalueindex(1), metatable);
  lua_setmetatable(L, -2);
  mf__scope_register(L, *box);
  return *box;
}

/* A userdata of the exception, raised by the Lua code that called. */
static void push_fault(lua_State *L, PyObject *exception) {
  mf__push_ref(L, exception, MF__BRIDGE_FAULT);
  lua_createtable(L, MF__FAULT_STACK, 0);
  push_place(L);
  lua_rawseti(L, -2, MF__FAULT_WHERE);
  push_stack(L);
  lua_rawseti(L, -2, MF__FAULT_STACK);
  lua_setfenv(L, -2);
}

/* exec, eval, locals, vars and dir want the variables of the Python function that calls them. Where Lua calls, they
 * raise one of these, as if CPython were broken; no Python function is in the traceback then. Before 3.14 globals
 * raises nothing at all; it returns None since. The exception is not asked for its text, because one that has been
 * given something else may answer that by code of its own. */
static int lacks_frame(PyObject *type, PyObject *value) {
  static const char *const texts[] = {
    "frame does not exist",
    "globals and locals cannot be NULL",
    "eval must be given globals and locals when called without a frame",
  };
  if (PyEval_GetFrame() != NULL) return 0;
  if (type == NULL) return 1;
  if (type != PyExc_SystemError && type != PyExc_TypeError) return 0;
  PyObject *given = PyObject_GetAttrString(value, "args");
  PyObject *text = given != NULL && PyTuple_Size(given) == 1 ? PyTuple_GetItem(given, 0) : NULL;
  int lacks = 0;
  for (size_t i = 0; i < sizeof texts / sizeof *texts && text != NULL && PyUnicode_Check(text); i++)
    lacks |= PyUnicode_CompareWithASCIIString(text, texts[i]) == 0;
  Py_DecRef(given);
  PyErr_Clear();
  return lacks;
}

void mf__push_raised(lua_State *L) {
  PyObject *type, *value, *trace;
  mf__fetch_error(&type, &value, &trace);
  if (trace == NULL && lacks_frame(type, value)) {
    Py_DecRef(type);
    Py_DecRef(value);
    PyErr_SetString(PyExc_SystemError, "no Python function calls here, whose variables could be meant: py.exec and "
                                       "py.eval run a text, py.main has its variables");
    mf__fetch_error(&type, &value, &trace);
  }
  if (type == NULL) mf__fail(L, "Python reported a failure without an exception");
  mf__hold(L, type);
  mf__hold(L, value);
  if (trace != NULL) mf__hold(L, trace);
  mf__put_traceback(value, trace);
  mf__slots(L, LUA_MINSTACK, "no room for a Python exception");
  mf__stop_by(mf__top->state, value);
  if (!mf__top->bridge->policy->thrown(L, value)) push_fault(L, value);
}

int mf__raise(lua_State *L) {
  mf__push_raised(L);
  return lua_error(L);
}

PyObject *mf__hold(lua_State *L, PyObject *object) {
  if (object == NULL) mf__raise(L);
  mf__keep(object);
  return object;
}
