/* interrupt.c: Ctrl-C in a process that Lua hosts.
 *
 * The host's handler stops Lua code, but cannot stop Python; so while this thread is in Python a KeyboardInterrupt is
 * raised there instead. Only where the host has a handler: who leaves SIGINT alone or ignores it gets just that.
 * Invariant: in Lua code SIGINT does what it did before Python was started. Must not know: which host it is. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sigaction, siginfo_t */
#endif
#include <signal.h>

#include "../bridge/open.h"
#include "start.h"

/* The host's handlers, the first one first. A later one may call ours, which was there before it: then the one before
 * it is meant. The number tells how many of them this thread is in; where one has jumped out, the first is called
 * afterwards. */
enum { HANDLERS_MAX = 8 };
static struct sigaction hosts[HANDLERS_MAX];
static int last = -1;
static _Thread_local volatile sig_atomic_t nesting;
static struct sigaction ours;

/* A handler that sets itself again each time has taken our place. Where it passes the signal on to us, it would come to
 * itself the next time. */
static void take_place_again(void) {
  struct sigaction now;
  if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == hosts[last].sa_handler) sigaction(SIGINT, &ours, NULL);
}

static void call_host(int number, siginfo_t *info, void *context) {
  const struct sigaction *host = &hosts[last > nesting ? last - nesting : 0];
  nesting++;
  if (host->sa_flags & SA_SIGINFO) host->sa_sigaction(number, info, context);
  else host->sa_handler(number);
  nesting--;
  take_place_again();
}

static void remember_host(const struct sigaction *now) {
  if (last >= 0 && hosts[last].sa_handler == now->sa_handler) last--;
  if (last < HANDLERS_MAX - 1) last++;
  hosts[last] = *now;
}

/* Where Python runs, and in a moonferry.Lua that can be stopped, the signal is Python's; else it is the host's. */
static void on_interrupt(int number, siginfo_t *info, void *context) {
  if (mf__top != NULL && (mf__top->thread == NULL || mf__top->state->stop_hook != NULL)) {
    mf__interrupted = 1;
    PyErr_SetInterrupt();
    mf__stop_signal();
  } else {
    call_host(number, info, context);
  }
}

/* Sets Python's handler of the signal, unless the program has set one. Not signal.default_int_handler, although that
 * does the same: asyncio.run would replace that, and this file's handler with it. */
static int teach_python(void) {
  static const char code[] =
      "import _signal\n"
      "def interrupt(number, frame):\n"
      "    raise KeyboardInterrupt\n"
      "own = _signal.getsignal(_signal.SIGINT)\n"
      "if not callable(own) or own is _signal.default_int_handler:\n"
      "    _signal.signal(_signal.SIGINT, interrupt)\n";
  PyObject *names = PyDict_New();
  const int failed = mf__run_code(code, names);
  if (failed) PyErr_Clear();
  Py_DecRef(names);
  return !failed;
}

/* Python installs a handler of SIGINT, where there is none, when its module is loaded, which happens sooner or later.
 * So the module is loaded now, and the disposition restored. */
static void load_signal_module(const struct sigaction *now) {
  PyObject *module = PyImport_ImportModule("_signal");
  if (module == NULL) PyErr_Clear();
  Py_DecRef(module);
  sigaction(SIGINT, now, NULL);
}

void mf__interrupt_arm(void) {
  static int begun, taught;
  struct sigaction now;
  if (sigaction(SIGINT, NULL, &now) != 0) return;
  int is_ours = (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_interrupt;
  int is_unhandled = now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN;
  if (is_unhandled && !begun) load_signal_module(&now);
  begun = 1;
  if (is_ours || is_unhandled) return;
  if (!taught && !teach_python()) return;
  taught = 1;
  remember_host(&now);
  /* Without SA_RESTART, because a system call in which Python waits has to return for the exception to be raised
   * (POSIX, sigaction). The host's handler finds blocked what it has asked for, and itself where it may interrupt
   * itself: one that passes the signal on waits for that. */
  const int kept = now.sa_flags & (SA_NODEFER | SA_ONSTACK);
  ours = (struct sigaction){.sa_sigaction = on_interrupt, .sa_mask = now.sa_mask, .sa_flags = SA_SIGINFO | kept};
  sigaction(SIGINT, &ours, NULL);
}
