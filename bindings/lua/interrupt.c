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

static struct sigaction host;

/* Where Python runs, and in a moonferry.Lua that can be stopped, the signal is Python's; else it is the host's. */
static void on_interrupt(int number, siginfo_t *info, void *context) {
  if (mf__top != NULL && (mf__top->thread == NULL || mf__top->state->stop_hook != NULL)) {
    mf__interrupted = 1;
    PyErr_SetInterrupt();
    mf__stop_signal();
  } else if (host.sa_flags & SA_SIGINFO) {
    host.sa_sigaction(number, info, context);
  } else {
    host.sa_handler(number);
  }
}

/* Sets Python's handler of the signal. Not signal.default_int_handler, although that does the same: asyncio.run would
 * replace that, and this file's handler with it. */
static int teach_python(void) {
  static const char code[] =
      "import _signal\n"
      "def interrupt(number, frame):\n"
      "    raise KeyboardInterrupt\n"
      "_signal.signal(_signal.SIGINT, interrupt)\n";
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
  host = now;
  /* Without SA_RESTART, because a system call in which Python waits has to return for the exception to be raised
   * (POSIX, sigaction). */
  const struct sigaction ours = {.sa_sigaction = on_interrupt, .sa_flags = SA_SIGINFO};
  sigaction(SIGINT, &ours, NULL);
}
