"""Signals that come while the prompt reads a line: what they do, and in which modes they leave the terminal."""

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios

import pytest
from terminal import edited

HEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
"""

# A Ctrl-C comes right after each look at whether one has come.
BEHIND_THE_LOOK = """
int sigpending(sigset_t *set) {
  int (*look)(sigset_t *) = (int (*)(sigset_t *))dlsym(RTLD_NEXT, "sigpending");
  const int status = look(set);
  kill(getpid(), SIGINT);
  return status;
}
"""

# One comes before the look.
BEFORE_THE_LOOK = BEHIND_THE_LOOK.replace("  const int", "  kill(getpid(), SIGINT);\n  const int").replace(
    "  kill(getpid(), SIGINT);\n  return", "  return"
)

# Before the program waits for a key, while its main thread blocks the signal, another thread gets it, once there is a
# file of the name "now".
IN_ANOTHER_THREAD = """
static void *other(void *number) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, *(int *)number);
  pthread_sigmask(SIG_UNBLOCK, &one, NULL);
  return NULL;
}
__attribute__((unused)) static void send(int number) {
  pthread_t thread;
  kill(getpid(), number);
  if (pthread_create(&thread, NULL, other, &number) == 0) pthread_join(thread, NULL);
}
int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask) {
  int (*wait)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
  *(void **)&wait = dlsym(RTLD_NEXT, "ppoll");
  if (unlink("now") == 0) send(SIGINT);
  return wait(fds, count, time, mask);
}
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask, size_t size) {
  (void)size;
  return ppoll(fds, count, time, mask);
}
"""

# There is a byte, and a Ctrl-C as well.
BESIDE_A_BYTE = IN_ANOTHER_THREAD.replace("send(SIGINT);", "poll(fds, 1, -1), kill(getpid(), SIGINT);")


def preload(folder, text):
    """The setting by which a program has functions of ours."""
    source, library = folder / "functions.c", folder / "functions.so"
    source.write_text(HEAD + text)
    command = ["gcc", "-std=gnu11", "-O1", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", source, "-o", library, "-ldl"]
    subprocess.run([*command, "-pthread"], check=True)
    return {"LD_PRELOAD": " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(library)]))}


SLOW = "slow = setmetatable({}, { __index = function() print('look' .. 'ing') while true do end end })"


@edited
def test_ctrl_c_that_comes_as_a_completion_begins_ends_it(prompt, tmp_path):
    t = prompt(**preload(tmp_path, BEHIND_THE_LOOK))
    t.line(SLOW)
    t.type("slow.name.\t\x155\r")
    t.expect("\n5\n> ")
    assert t.end() == 0


@edited
def test_ctrl_c_before_a_completion_and_behind_one_is_for_the_line(prompt, tmp_path):
    t = prompt()
    t.type("string.for\t")
    t.expect("string.format")
    t.interrupt()
    t.expect("^C\n> ")
    assert t.end() == 0
    t = prompt(**preload(tmp_path, BEFORE_THE_LOOK))
    t.line(SLOW)
    t.type("slow.name.\t")
    t.expect("^C\n> ")
    assert "looking" not in t.shown
    assert t.line("5") == "5"
    assert t.end() == 0


@edited
def test_ctrl_c_before_what_was_typed_ahead(prompt, tmp_path):
    t = prompt(**preload(tmp_path, BESIDE_A_BYTE))
    t.type("not")
    t.expect("not")
    (tmp_path / "now").touch()
    t.type(" 5\r")  # whether the space is behind the Ctrl-C or before it
    t.expect("^C\n> ")
    t.expect("5\n5\n> ")
    assert t.end() == 0


@edited
def test_a_window_that_becomes_narrow_while_a_line_is_typed(prompt):
    t = prompt()
    fcntl.ioctl(t.main, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    t.line("1")
    t.type("x" * 20)
    t.expect("x" * 20)
    fcntl.ioctl(t.main, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    t.type("y" * 20 + "z")
    t.expect("y" * 8 + " \b" + "y" * 12 + "z")  # the cursor is led into the second row
    t.type("\x15")
    assert t.end() == 0


@edited
def test_ctrl_c_that_another_thread_gets_clears_the_line(prompt, tmp_path):
    t = prompt(**preload(tmp_path, IN_ANOTHER_THREAD))
    t.type("not")
    t.expect("not")
    (tmp_path / "now").touch()
    t.type(" ")
    t.expect("^C\n> ")
    assert t.line("5") == "5"
    assert t.end() == 0


@edited
@pytest.mark.parametrize("name", ["TERM", "HUP", "QUIT"])
@pytest.mark.parametrize("typed", ["half a line", "slow.name.\t"])
def test_a_signal_that_ends_the_program_gives_the_terminal_back(prompt, name, typed):
    t = prompt()
    t.line(SLOW)
    t.type(typed)
    t.expect("looking" if "slow" in typed else typed)
    assert not t.takes_lines()
    t.child.send_signal(getattr(signal, f"SIG{name}"))
    assert t.wait() == -getattr(signal, f"SIG{name}")
    assert t.takes_lines()


@edited
def test_a_signal_that_is_ignored_outside_of_a_line_is_ignored_within(prompt):
    t = prompt(shell="trap '' TERM; exec $0")
    t.type("4")
    t.expect("4")
    t.child.send_signal(signal.SIGTERM)
    t.type("5\r")
    t.expect("5\n45\n> ")
    assert t.end() == 0


@edited
def test_a_signals_handler_of_pythons_runs_and_the_line_stays(prompt):
    t = prompt()
    t.line("py.exec [[import signal; signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))]]")
    t.type("py.None is")
    t.expect("None is")
    for _ in range(2):
        t.child.send_signal(signal.SIGTERM)
        t.expect("> py.None is")  # drawn again
        assert not t.takes_lines()
    t.type("\b\b\b\r")
    t.expect("told")
    t.expect("\n> ")
    assert t.end() == 0


@edited
def test_what_ends_the_program_in_a_completion_gives_the_terminal_back(prompt):
    t = prompt()
    t.line("last = setmetatable({}, { __index = function() os.exit(3) end })")
    t.type("last.name.\t")
    assert t.wait() == 3
    assert t.takes_lines()


@edited
def test_the_third_ctrl_c_in_a_completion_gives_the_terminal_back(prompt):
    """With -jon the loop is machine code, which looks for nothing."""
    t = prompt("-jon")
    t.line("require('jit').attach(function(what) if what == 'stop' then print('com' .. 'piled') end end, 'trace')")
    t.line("deaf = setmetatable({}, { __index = function() while true do end end })")
    t.type("deaf.name.\t")
    t.expect("compiled\n")
    t.interrupt()
    t.expect("\n")  # the line feed is the handler's
    t.interrupt()
    t.expect("Ctrl-C again ends the program")
    t.interrupt()
    assert t.wait() == -signal.SIGINT
    assert t.takes_lines()


@edited
def test_a_prompt_that_was_stopped_goes_on_with_its_line(prompt):
    t = prompt(shell="$0; stty -a; read line; fg")
    t.type("'on' .. ")
    t.expect("'on' .. ")
    t.type("\x1a")
    assert not re.search(r"-icanon|-echo\b", t.expect("echoke"))
    t.type("go on\r")
    t.expect("> 'on' .. ")
    assert not t.takes_lines()
    t.type("'ly'\r")
    t.expect('"only"\n> ')
    assert t.end() == 0
    assert t.takes_lines()
