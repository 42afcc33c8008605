/* interrupt.c: Ctrl-C while Lua runs.
 *
 * The handler sets a hook, which is the one thing that LuaJIT allows there; the hook raises the error. Code that
 * was compiled to machine code checks no hook, and neither does a C function, so a second Ctrl-C that finds the first
 * still waiting says so, and a third ends the program. It must not know what runs. */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "host.h"

static lua_State *volatile running;
static volatile sig_atomic_t waiting; /* how many came since the hook last ran */
static volatile sig_atomic_t presses; /* how many came since this chunk began */
static volatile sig_atomic_t forgives;

/* Once, so that what a pcall of the chunk's own has to clean up can run. A chunk that goes on in spite of it gets the
 * error again and again after a second Ctrl-C, until it has ended. */
static void stop(lua_State *L, lua_Debug *unused) {
  (void)unused;
  lua_sethook(L, stop, presses > 1 ? LUA_MASKCOUNT : 0, 1); /* none with a mask of 0 */
  waiting = 0;
  luaL_error(L, "interrupted!");
}

static void end_program(void) {
  edit_give_back();
  signal(SIGINT, SIG_DFL);
  raise(SIGINT);
}

static void on_interrupt(int number) {
  static const char text[] =
      "(it has not stopped: it is in compiled or foreign code; Ctrl-C again ends the program)\n";
  (void)number;
  if (running == NULL) {
    if (!forgives) end_program();
    return;
  }
  waiting++;
  presses++;
  if (waiting > (forgives ? 2 : 1)) {
    end_program();
    return;
  }
  if (forgives && write(STDERR_FILENO, "\n", 1) < 0) return; /* behind the terminal's ^C */
  if (waiting == 2 && write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
  lua_sethook(running, stop, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

/* The handler stays once it is set: a Python that is hosted puts its own before it, which must not be taken away. */
void host_interruptible(lua_State *L, bool forgiving) {
  static bool set;
  struct sigaction action, before;
  waiting = 0;
  presses = 0;
  forgives = forgiving;
  running = L;
  if (set) return;
  set = true;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, NULL, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGINT, &action, NULL); /* nohup stays nohup */
}

/* An interrupt that came too late to stop anything is forgotten. */
bool host_uninterruptible(void) {
  lua_State *L = running;
  running = NULL;
  if (L != NULL && presses > 0) lua_sethook(L, NULL, 0, 0);
  waiting = 0;
  return presses > 0;
}
