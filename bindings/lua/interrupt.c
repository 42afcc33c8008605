/* interrupt.c: Ctrl-C in a process that Lua hosts.
 *
 * The host's handler stops Lua code, but cannot stop Python; so while this thread is in Python a KeyboardInterrupt is
 * raised there instead. Only where the host has a handler: who leaves SIGINT alone or ignores it gets just that.
 * Invariant: in Lua code SIGINT does what it did before Python was started. Must not know: which host it is. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sigaction */
#endif
#include <signal.h>

#include "../bridge/open.h"
#include "start.h"

/* Where Python runs, and in a moonferry.Lua that can be stopped, the signal is Python's; else it is the host's. */
static void on_interrupt(const mf__signal *signal) {
  if (mf__top != NULL && (mf__top->thread == NULL || mf__top->state->stop_hook != NULL)) {
    mf__interrupted = 1;
    PyErr_SetInterrupt();
    mf__stop_signal();
  } else {
    mf__pass_on(signal);
  }
}

/* Sets Python's handler of the signal, unless the program has set one, and restores the disposition. The handler is not
 * signal.default_int_handler, although that does the same: asyncio.run would replace it, and ours with it. */
static int teach_python(const struct sigaction *now) {
  static const char code[] =
      "import _signal\n"
      "def interrupt(number, frame):\n"
      "    raise KeyboardInterrupt\n"
      "own = _signal.getsignal(_signal.SIGINT)\n"
      "if not callable(own) or own is _signal.default_int_handler:\n"
      "    _signal.signal(_signal.SIGINT, interrupt)\n";
  PyObject *names = PyDict_New();
  const int failed = mf__run_code(code, names);
  sigaction(SIGINT, now, NULL);
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
  int is_unhandled = now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN;
  if (is_unhandled && !begun) load_signal_module(&now);
  begun = 1;
  if (is_unhandled) return;
  if (!taught) taught = teach_python(&now);
  if (!taught) return;
  /* Without SA_RESTART, because a system call in which Python waits has to return for the exception to be raised
   * (POSIX, sigaction). The host's handler finds blocked what it has asked for, and itself where it may interrupt
   * itself: one that passes the signal on waits for that. */
  mf__handler_set(on_interrupt, SA_NODEFER | SA_ONSTACK);
}
