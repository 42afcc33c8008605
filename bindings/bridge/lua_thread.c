/* lua_thread.c: makes Lua coroutines Python generators.
 *
 * next() and send() resume the coroutine; they return the values that it yields, and at last those that it returns. A
 * coroutine is resumed only when it is suspended: Lua's resume would harm one that runs. */
#include <luajit.h>

#include "objects.h"

struct thread {
  mf__value value;
  PyObject *arguments; /* a tuple until it has begun, then NULL */
  lua_State *coroutine;
};

enum { SUSPENDED, RUNNING, DEAD };

static int status_of(lua_State *coroutine) {
  lua_Debug frame;
  int status = lua_status(coroutine);
  if (status == LUA_YIELD) return SUSPENDED;
  if (status != 0) return DEAD;
  if (lua_getstack(coroutine, 0, &frame)) return RUNNING;
  return lua_gettop(coroutine) > 0 ? SUSPENDED : DEAD;
}

static PyObject *new_thread(lua_State *L, int index) {
  PyObject *object = mf__value_new(L, index, mf__thread_type);
  ((struct thread *)object)->coroutine = lua_tothread(L, index);
  return object;
}

static PyObject *make_thread(lua_State *L, int index) {
  lua_State *coroutine = lua_tothread(L, index);
  int begun = status_of(coroutine) != SUSPENDED || lua_gettop(coroutine) != 1;
  if (begun || !mf__top->bridge->policy->starts_coroutines) return new_thread(L, index);
  lua_pushvalue(coroutine, 1);
  lua_xmove(coroutine, L, 1);
  PyObject *object = mf__value_new(L, lua_gettop(L), mf__factory_type);
  lua_pop(L, 1);
  return object;
}

struct start {
  mf__value *function;
  PyObject *result;
};

static int start_body(lua_State *L, void *data) {
  struct start *start = data;
  mf__value_push(L, start->function);
  if (lua_type(L, -1) != LUA_TFUNCTION) {
    PyErr_SetString(PyExc_TypeError, "Lua object is not a function");
    mf__raise(L);
  }
  lua_State *coroutine = lua_newthread(L);
  lua_insert(L, -2);
  lua_xmove(L, coroutine, 1);
  start->result = new_thread(L, lua_gettop(L));
  return 0;
}

PyObject *mf__thread_start(PyObject *function, PyObject *arguments) {
  struct start start = {(mf__value *)function, NULL};
  if (mf__call_in_by(start.function, start_body, &start) != 0) return NULL;
  Py_IncRef(arguments);
  ((struct thread *)start.result)->arguments = arguments;
  return start.result;
}

struct resume {
  struct thread *thread;
  PyObject *arguments; /* a tuple, or NULL: those that it was made with, if it has not begun; borrowed */
  PyObject *exception; /* to raise where the coroutine waits, or NULL; borrowed */
  PyObject *result;    /* new; NULL at the end */
  int ended;
  int fault;           /* a registry reference to the exception as Lua has it, until it was raised; else LUA_NOREF */
  lua_Hook hook;       /* what the state's hook was before */
  int mask, count;
  int hooked;          /* the hook that raises has run */
};

/* Moves the topmost ${count} values to the coroutine. Its stack may grow for that; where there is no memory for it, the
 * error has taken LuaJIT's mark from the coroutine that it is suspended, and it would count as one that runs. A call of
 * nil, in the place of that error, gives it the mark that it is dead. */
static void move_values(lua_State *L, lua_State *coroutine, int count) {
  if (count == 0) return;
  if (mf__grow(coroutine, count + LUA_MINSTACK) == 0) {
    lua_xmove(L, coroutine, count);
    return;
  }
  lua_xmove(coroutine, L, 1);
  lua_pushnil(L);
  lua_xmove(L, coroutine, 1);
  lua_resume(coroutine, 0);
  lua_error(L);
}

static void give_fault_back(lua_State *L, struct resume *resume) {
  luaL_unref(L, LUA_REGISTRYINDEX, resume->fault);
  resume->fault = LUA_NOREF;
}

static void take_hook_back(lua_State *L, const struct resume *resume) {
  lua_sethook(L, resume->hook, resume->mask, resume->count);
}

/* Runs before the first instruction of the coroutine that was resumed, as if what it waits in had failed. */
static void raise_where_it_waits(lua_State *L, lua_Debug *activation) {
  (void)activation;
  struct resume *resume = mf__top->state->raising;
  resume->hooked = 1;
  if (L != resume->thread->coroutine || resume->fault == LUA_NOREF) return;
  take_hook_back(L, resume);
  lua_rawgeti(L, LUA_REGISTRYINDEX, resume->fault);
  give_fault_back(L, resume);
  lua_error(L);
}

static int refuse_inside(lua_State *L) {
  return mf__fail(L, "a debug hook or a finalizer of this state has called this; the coroutine waits as before");
}

/* While a hook or a finalizer of this thread's runs, the thread runs no other hook. Ours would not raise then, and the
 * coroutine would go on. So the chunk at the top of the stack, of one instruction, tries it first. */
static void check_hooks(lua_State *L, struct resume *resume) {
  const int status = lua_pcall(L, 0, 0, 0);
  if (status == 0 && (resume->hooked || lua_gethook(L) != raise_where_it_waits)) return;
  if (lua_gethook(L) == raise_where_it_waits) take_hook_back(L, resume);
  mf__top->state->raising = NULL;
  give_fault_back(L, resume);
  if (status != 0) lua_error(L);
  refuse_inside(L);
}

/* LuaJIT refuses that in a finalizer. */
static int flush_compiled(lua_State *L) {
  luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_FLUSH);
  return 0;
}

/* LuaJIT has no call that resumes with an error, but runs the hook of a state in each of its coroutines; not in
 * compiled code, in which a coroutine may go on that had yielded there, so that none is left. All that allocates comes
 * before the hook is set: a finalizer that calls Python leaves the state to other threads, which may not have this hook
 * and may resume the coroutine. */
static void arm_fault(lua_State *L, struct resume *resume) {
  PyErr_SetObject((PyObject *)Py_TYPE(resume->exception), resume->exception);
  mf__push_raised(L);
  resume->fault = mf__anchor(L, mf__top->state);
  int status = luaL_loadbuffer(L, "", 0, "=");
  if (status == 0 && status_of(resume->thread->coroutine) != SUSPENDED) {
    lua_pushliteral(L, "cannot resume this coroutine");
    status = LUA_ERRRUN;
  }
  const int flushed = status == 0 ? lua_cpcall(L, flush_compiled, NULL) : 0;
  if (status != 0 || flushed != 0) {
    give_fault_back(L, resume);
    if (flushed == LUA_ERRRUN) refuse_inside(L);
    lua_error(L);
  }
  resume->hook = lua_gethook(L);
  resume->mask = lua_gethookmask(L);
  resume->count = lua_gethookcount(L);
  mf__top->state->raising = resume;
  lua_sethook(L, raise_where_it_waits, LUA_MASKCOUNT, 1);
  check_hooks(L, resume);
}

/* The coroutine came to its end, or to the next yield, without an instruction. */
static int raise_late(lua_State *L, struct resume *resume) {
  if (lua_gethook(L) == raise_where_it_waits) take_hook_back(L, resume);
  lua_settop(resume->thread->coroutine, 0);
  lua_rawgeti(L, LUA_REGISTRYINDEX, resume->fault);
  give_fault_back(L, resume);
  return lua_error(L);
}

/* One that has not begun, or has ended, waits nowhere: the exception is Python's, and does not cross. */
static int raise_at_once(const struct resume *resume) {
  lua_settop(resume->thread->coroutine, 0);
  PyErr_SetObject((PyObject *)Py_TYPE(resume->exception), resume->exception);
  return 0;
}

static PyObject *take_arguments(struct thread *thread) {
  return __atomic_exchange_n(&thread->arguments, NULL, __ATOMIC_ACQ_REL);
}

/* Lets go, when the call ends, of what the coroutine was made with: whether there was anything. */
static int drop_arguments(struct thread *thread) {
  PyObject *arguments = take_arguments(thread);
  if (arguments != NULL) mf__keep(arguments);
  return arguments != NULL;
}

/* Pushes what the coroutine is resumed with, and returns how many values. What it was made with stays there until it
 * begins, because the conversion may fail, and may run any code, which may resume the coroutine. */
static int push_arguments(lua_State *L, struct resume *resume) {
  struct thread *thread = resume->thread;
  PyObject *own = resume->arguments == NULL ? __atomic_load_n(&thread->arguments, __ATOMIC_ACQUIRE) : NULL;
  PyObject *arguments = own != NULL ? own : resume->arguments;
  if (own != NULL) {
    Py_IncRef(own);
    mf__keep(own);
  }
  const int count = arguments == NULL ? 0 : mf__push_tuple(L, arguments, "too many arguments");
  if (status_of(thread->coroutine) != SUSPENDED || (own != NULL && !drop_arguments(thread)))
    mf__fail(L, "cannot resume this coroutine");
  return count;
}

/* Returns lua_resume's status, and raises what did not come from the coroutine. */
static int run_coroutine(lua_State *L, struct resume *resume, int count) {
  if (resume->exception != NULL) arm_fault(L, resume);
  mf__run_begin(mf__top);
  const int status = lua_resume(resume->thread->coroutine, count);
  resume->ended = status != LUA_YIELD;
  const int stopped = mf__run_end(mf__top);
  if (resume->exception != NULL) mf__top->state->raising = NULL;
  if (resume->fault != LUA_NOREF) return raise_late(L, resume);
  if (stopped && (status == 0 || status == LUA_YIELD)) return luaL_error(L, "interrupted");
  return status;
}

static int resume_body(lua_State *L, void *data) {
  struct resume *resume = data;
  lua_State *coroutine = resume->thread->coroutine;
  mf__value_push(L, &resume->thread->value); /* kept alive by this stack, whatever Python drops meanwhile */
  int first = lua_gettop(L) + 1;
  int status = status_of(coroutine);
  resume->ended = 1;
  if (status == RUNNING) mf__fail(L, "cannot resume a coroutine that is running");
  if (resume->exception != NULL || status == DEAD) (void)drop_arguments(resume->thread);
  if (resume->exception != NULL && (status == DEAD || lua_status(coroutine) != LUA_YIELD))
    return raise_at_once(resume);
  if (status == DEAD) return 0;
  int count = push_arguments(L, resume);
  move_values(L, coroutine, count);
  status = run_coroutine(L, resume, count);
  if (status != 0 && status != LUA_YIELD) {
    luaL_traceback(L, coroutine, NULL, 0);
    lua_rawseti(L, lua_upvalueindex(1), MF__BRIDGE_TRACE);
    lua_xmove(coroutine, L, 1);
    return lua_error(L);
  }
  count = lua_gettop(coroutine);
  mf__slots(L, count + LUA_MINSTACK, "too many values");
  lua_xmove(coroutine, L, count);
  if (status == LUA_YIELD || count > 0) resume->result = mf__results(L, first);
  return 0;
}

static PyObject *resume_thread(struct thread *thread, PyObject *arguments) {
  struct resume resume = {.thread = thread, .arguments = arguments, .fault = LUA_NOREF};
  return mf__call_in_by(&thread->value, resume_body, &resume) == 0 ? resume.result : NULL;
}

static PyObject *thread_next(PyObject *self) {
  return resume_thread((struct thread *)self, NULL);
}

static PyObject *thread_send(PyObject *self, PyObject *value) {
  struct thread *target = (struct thread *)self;
  PyObject *arguments = NULL;
  if (value != Py_None && target->arguments != NULL) {
    PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started generator");
    return NULL;
  } else if (PyTuple_Check(value)) {
    Py_IncRef(value);
    arguments = value;
  } else if (value != Py_None) {
    arguments = PyTuple_Pack(1, value);
    if (arguments == NULL) return NULL;
  }
  PyObject *result = resume_thread(target, arguments);
  Py_DecRef(arguments);
  if (result == NULL && !PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration);
  return result;
}

/* An exception of ${given}, a class or an exception. */
static PyObject *exception_of(PyObject *given) {
  if (PyExceptionClass_Check(given)) {
    PyObject *made = PyObject_CallObject(given, NULL);
    if (made == NULL || PyExceptionInstance_Check(made)) return made;
    PyErr_Format(PyExc_TypeError, "throw: %R() gave no exception", given);
    Py_DecRef(made);
    return NULL;
  }
  if (PyExceptionInstance_Check(given)) {
    Py_IncRef(given);
    return given;
  }
  PyErr_Format(PyExc_TypeError, "throw: an exception or its class expected, got %R", given);
  return NULL;
}

/* Raises ${exception} where the coroutine waits. What it yields then; at its end NULL without an exception. */
static PyObject *throw_into(struct thread *thread, PyObject *exception, int *ended) {
  struct resume resume = {.thread = thread, .exception = exception, .fault = LUA_NOREF};
  const int status = mf__call_in_by(&thread->value, resume_body, &resume);
  *ended = resume.ended;
  return status == 0 ? resume.result : NULL;
}

static PyObject *thread_throw(PyObject *self, PyObject *given) {
  int ended;
  PyObject *exception = exception_of(given);
  if (exception == NULL) return NULL;
  PyObject *result = throw_into((struct thread *)self, exception, &ended);
  Py_DecRef(exception);
  if (result == NULL && !PyErr_Occurred()) PyErr_SetNone(PyExc_StopIteration);
  return result;
}

static PyObject *thread_close(PyObject *self, PyObject *unused) {
  (void)unused;
  int ended;
  if (((struct thread *)self)->value.bridge->state == NULL) return Py_BuildValue("");
  PyObject *exit = PyObject_CallObject(PyExc_GeneratorExit, NULL);
  if (exit == NULL) return NULL;
  PyObject *result = throw_into((struct thread *)self, exit, &ended);
  Py_DecRef(exit);
  if (result == NULL && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_GeneratorExit)) return NULL;
  PyErr_Clear();
  Py_XDECREF(result);
  if (ended) return Py_BuildValue("");
  PyErr_SetString(PyExc_RuntimeError, "the coroutine caught GeneratorExit and went on; it has not ended");
  return NULL;
}

struct question {
  struct thread *thread;
  int answer;
};

static int alive_body(lua_State *L, void *data) {
  (void)L;
  struct question *question = data;
  question->answer = status_of(question->thread->coroutine) != DEAD;
  return 0;
}

static int thread_bool(PyObject *self) {
  struct question question = {(struct thread *)self, 0};
  return mf__call_in_by(&question.thread->value, alive_body, &question) == 0 ? question.answer : -1;
}

static void thread_dealloc(PyObject *self) {
  PyObject_GC_UnTrack(self);
  Py_DecRef(take_arguments((struct thread *)self));
  mf__value_dealloc(self);
}

static int thread_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(((struct thread *)self)->arguments);
  return mf__value_traverse(self, visit, arg);
}

static int thread_clear(PyObject *self) {
  Py_DecRef(take_arguments((struct thread *)self));
  return 0;
}

static PyMethodDef methods[] = {
    {"send", thread_send, METH_O,
     "send(value): resumes the coroutine with a value, or with the items of a tuple, and returns what it yields."},
    {"throw", thread_throw, METH_O,
     "throw($self, exception, /)\n--\n\n"
     "Raises an exception, given as an object or a class, where the coroutine has yielded, and returns what it\n"
     "yields next.\n"
     "\n"
     "Raises what the coroutine does not catch; StopIteration if it catches the exception and ends without a value.\n"
     "To catch it, a pcall must be around a Lua function that yields: pcall(function() coroutine.yield() end), not\n"
     "pcall(coroutine.yield).\n"
     "\n"
     "Raises LuaError while the coroutine is running, and where a debug hook or a finalizer (__gc) of its state has\n"
     "called this, even by way of other functions; the coroutine then waits as before."},
    {"close", thread_close, METH_NOARGS,
     "close($self, /)\n--\n\n"
     "Ends the coroutine as throw(GeneratorExit) does, and returns None. Does nothing if the coroutine has ended or\n"
     "its state was closed. Raises RuntimeError if the coroutine catches GeneratorExit and yields again, and LuaError\n"
     "where throw does."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_dealloc, thread_dealloc},
                              {Py_tp_traverse, thread_traverse},
                              {Py_tp_clear, thread_clear},
                              {Py_tp_iter, PyObject_SelfIter},
                              {Py_tp_iternext, thread_next},
                              {Py_nb_bool, thread_bool},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, "A Lua coroutine: an iterator with send(), true until it has ended."},
                              {0, NULL}};

int mf__thread_type_ready(void) {
  mf__makers.thread = make_thread;
  if (mf__thread_type == NULL)
    mf__thread_type = mf__value_subtype("moonferry.LuaThread", sizeof(struct thread), slots, 0);
  return mf__thread_type != NULL ? 0 : -1;
}
