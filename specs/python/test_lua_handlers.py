"""Handlers of SIGINT that others have set, before and after ours: each is called as the system would call it.

Each case is a program of its own, in which Ctrl-C comes where the program sends it: nothing depends on time.
"""

import os
import signal
import subprocess
import sys

import pytest

# What a program does, and what it prints.
HANDLERS = {
    "a handler of C code's that wants to know more and passes it on": (
        "pass_on()\nhandler = action()\nset_action(handler, SA_SIGINFO | SA_NODEFER)\n"
        "stopped(lambda: lua().execute(ENDLESS, send_now))\n"
        "print(action() == handler)",
        "stopped\nTrue\n",
    ),
    "a handler that gets to know what there is to know": (
        "def handle(n, info, context):\n"
        "    seen.append((n, ctypes.c_int.from_address(info).value, context is not None))\n"
        "handler = c_handler(handle)\nset_action(handler, SA_SIGINFO)\n"
        "lua().execute('local send = ... send(2)', send_now)\nprint(seen, action() == address(handler))",
        "[(2, 2, True)] True\n",
    ),
    "a handler whose flags and mask ours has": (
        "handler = c_handler(lambda n, *unknown: seen.append(n))\n"
        "set_action(handler, SA_RESTART | SA_NODEFER | SA_ONSTACK, mask=1 << signal.SIGUSR1 - 1)\n"
        "kept = lua().eval('(...)()', get_action)\n"
        "print(kept[0] == address(handler), kept[1], kept[17] & (SA_RESTART | SA_NODEFER | SA_ONSTACK | SA_RESETHAND))",
        f"False {1 << signal.SIGUSR1 - 1} {0x58000000}\n",
    ),
    "a handler that the system calls once": (
        "handler = c_handler(lambda n, *unknown: seen.append((n, action())))\nset_action(handler, SA_RESETHAND)\n"
        "lua().eval('(...)(2)', send_now)\nprint(seen, action())",
        "[(2, None)] None\n",
    ),
    "a handler that the system calls once and that sets itself again": (
        "def handle(n, *unknown):\n    seen.append(n)\n    set_action(handler, SA_RESETHAND)\n"
        "handler = c_handler(handle)\nhandle(0)\n"
        "lua().execute('local send = ... send(2) send(2)', send_now)\nprint(seen, action() == address(handler))",
        "[0, 2, 2] True\n",
    ),
    "a handler that sets itself again, before which ours stays": (
        "handler = c_handler(lambda *unknown: set_action(handler))\nset_action(handler)\n"
        "inside = lua().execute('local send, action = ... send(2) return action()', send_now, action)\n"
        "print(inside != address(handler), action() == address(handler))",
        "True True\n",
    ),
    "the handler that was there, after one script in another": (
        "for _ in range(3):\n    lua().execute('(...)()', lambda: lua().execute('x = 1'))\n"
        "    print(action() == before)",
        "True\nTrue\nTrue\n",
    ),
    "a handler that the system would call once, and one of a script's that passes it on": (
        "first = c_handler(lambda n, *unknown: seen.append(n))\nset_action(first, SA_RESETHAND)\n"
        "chain = Chain('chain')\n"
        "def inner():\n    chain.set()\n    lua().execute('local send = ... send(2) send(2)', send_now)\n"
        "lua().execute('(...)()', inner)\nprint(seen, action() == address(chain.handler))",
        "['chain', 2, 'chain', 2] True\n",
    ),
    "a handler that a script has set and taken away": (
        "def inner():\n    pass_on()\n    lua().execute('x = 1')\n"
        "    faulthandler.unregister(signal.SIGINT)\n"
        "lua().execute('(...)()', inner)\nprint(action() == before)\nstopped(send_now_and_wait)",
        "True\nstopped\n",
    ),
    "a handler that a script has set and that stays": (
        "lua().execute('(...)()', pass_on)\nhandler = action()\nprint(handler != before)\n"
        "stopped(send_now_and_wait)\nstopped(lambda: lua().execute(ENDLESS, send_now))\nprint(action() == handler)",
        "True\nstopped\nstopped\nTrue\n",
    ),
    "handlers that are set again, and may have kept ours as the one before": (
        "one, two = Chain('one'), Chain('two')\n"
        "def send():\n    lua().execute('(...)(2)', send_now)\n    seen.append(';')\n"
        "def third():\n    one.set()\n    send_now(2)\n    seen.append(';')\n    send()\n"
        "def second():\n    two.set()\n    send()\n    lua().execute('(...)()', third)\n"
        "set_action(one.handler)\nlua().execute('(...)()', second)\nprint(*seen)",
        "two one ; one two ; one two ;\n",
    ),
    "more handlers than can be told apart": (
        "handlers = [c_handler(lambda n, *unknown, i=i: seen.append(i)) for i in range(12)]\n"
        "for handler in handlers + handlers[:2]:\n    set_action(handler)\n"
        "    lua().execute('local send = ... send(2)', send_now)\n    assert action() == address(handler)\n"
        "print(*seen)",
        "0 1 2 3 4 5 6 7 8 9 10 11 0 1\n",
    ),
}

BEGIN = """
import ctypes, faulthandler, os, signal
import moonferry as mf
ENDLESS = "local send = ... send(2) while true do end"
def lua():
    return mf.Lua(interruptible=True)
def stopped(script):
    try:
        script()
    except KeyboardInterrupt:
        print("stopped", flush=True)
    else:
        print("not stopped", flush=True)
SA_SIGINFO, SA_ONSTACK, SA_RESTART, SA_NODEFER, SA_RESETHAND = 4, 0x08000000, 0x10000000, 0x40000000, 0x80000000
c_handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
seen, nowhere = [], open(os.devnull, "w")
def get_action():
    kept = (ctypes.c_void_p * 32)()
    assert ctypes.CDLL(None).sigaction(signal.SIGINT, None, kept) == 0
    return kept
def set_action(handler, flags=0, mask=None):
    kept = (ctypes.c_void_p * 32)(address(handler), mask)
    kept[17] = flags
    assert ctypes.CDLL(None).sigaction(signal.SIGINT, kept, None) == 0
def address(handler):
    return ctypes.cast(handler, ctypes.c_void_p).value
def pass_on():
    "Sets a handler that is C code alone and has the one before it called."
    faulthandler.register(signal.SIGINT, nowhere, chain=True)
def action():
    "What the system calls."
    return get_action()[0]
class Chain:
    "A handler that says its name and calls the one before it, which it keeps unless that is itself."
    def __init__(self, name):
        self.handler, self.name, self.before = c_handler(self.handle), name, None
    def handle(self, n, *unknown):
        seen.append(self.name)
        if self.before: c_handler(self.before)(n, None, None)
    def set(self):
        if action() != address(self.handler):
            self.before = action()
            set_action(self.handler)
# To this thread, and no Python code runs after it.
send_now = ctypes.CDLL(None)["raise"]
def send_now_and_wait():
    send_now(2)
    while True: pass
before = action()
"""


@pytest.mark.parametrize("name", HANDLERS)
def test_handlers(name):
    code, said = HANDLERS[name]
    command = [sys.executable, "-X", "faulthandler", "-c", BEGIN + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
