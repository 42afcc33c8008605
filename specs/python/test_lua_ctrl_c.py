"""Ctrl-C: which scripts it ends, in whichever states and threads they are, each in a program of its own."""

import os
import signal
import subprocess
import sys

import pytest

# Programs in which Ctrl-C comes, and what they print. `ready`, which a script calls, starts the thread that sends it
# when the script goes on, by what the system says of its thread: it has run on for a while or it waits for something.
CTRL_C = {
    "in a state inside of another": (
        "stopped(lambda: lua().execute('(...)()', lambda: lua().execute(LOOP, ready)))",
        "KeyboardInterrupt\n",
    ),
    "in a state inside of one that cannot be stopped": (
        "stopped(lambda: mf.Lua().execute('(...)()', lambda: lua().execute(LOOP, ready)))",
        "KeyboardInterrupt\n",
    ),
    "in Python, caught in a state that cannot be stopped, inside of one that can": (
        "catches = mf.Lua().eval('function(f) return (pcall(f)) end')\n"
        "stopped(lambda: lua().execute('(...)()', lambda: print(catches(send_now_and_wait), flush=True)))",
        "False\nnot stopped\n",
    ),
    "in the third state": (
        "inner = lambda: lua().execute('(...)()', lambda: lua().execute(LOOP, ready))\n"
        "stopped(lambda: lua().execute('(...)()', inner))",
        "KeyboardInterrupt\n",
    ),
    "in the same state, called again": (
        "l = lua()\nstopped(lambda: l.execute('(...)()', lambda: l.execute(LOOP, ready)))\nprint(l.eval('1'))",
        "KeyboardInterrupt\n1\n",
    ),
    "in the same state, called again by a script that goes on": (
        "l, got = lua(), []\n"
        "def other():\n    got.append(l.eval('(debug.gethook())'))\n"
        "    try: l.execute('error(1)')\n    except mf.LuaError: got.append('its own error')\n"
        "def inner():\n    stopped(lambda: l.execute(LOOP, ready))\n    on_thread(other)\n"
        "stopped(lambda: l.execute('local f = ... while true do pcall(f) end', inner))\nprint(got, l.eval('4'))",
        "KeyboardInterrupt\nKeyboardInterrupt\n[None, 'its own error'] 4\n",
    ),
    "in the outer state, after the inner one was left": (
        "stopped(lambda: lua().execute('local f, ready = ... f() ' + LOOP.replace('...', 'ready'),"
        " lambda: lua().execute('x = 1'), ready))",
        "KeyboardInterrupt\n",
    ),
    "in an inner script whose caller catches all errors": (
        "inner = lua()\ncall = lambda: inner.execute(LOOP, ready)\n"
        "stopped(lambda: lua().execute('local f = ... while true do pcall(f) end', call))",
        "KeyboardInterrupt\n",
    ),
    "in Python, whose caller in Lua catches all errors": (
        "def f():\n    ready()\n    time.sleep(60)\n"
        "stopped(lambda: lua().execute('local f = ... while true do pcall(f) end', f))",
        "KeyboardInterrupt\n",
    ),
    "in an inner script, caught by Python between": (
        "def f():\n    stopped(lambda: lua().execute(LOOP, ready))\n    return 5\nprint(lua().eval('(...)()', f))",
        "KeyboardInterrupt\n5\n",
    ),
    "in a coroutine": (
        "f = lua().eval('function(ready) ' + LOOP.replace('...', 'ready') + ' end')\n"
        "stopped(lambda: list(f.coroutine(ready)))",
        "KeyboardInterrupt\n",
    ),
    "in a message handler": (
        "handler = 'function() ' + LOOP.replace('...', 'ready') + ' end'\n"
        "stopped(lambda: lua().execute('local ready = ... xpcall(error, ' + handler + ')', ready))",
        "KeyboardInterrupt\n",
    ),
    "while another thread is inside, in Python": (
        "inside, go, l, got = threading.Event(), threading.Event(), lua(), []\n"
        "def callback():\n    inside.set()\n    go.wait()\n    return 6\n"
        "def other():\n    got.append(l.eval('(...)() + 1', callback))\n"
        "thread = threading.Thread(target=other)\nthread.start()\ninside.wait()\n"
        "stopped(lambda: l.execute(LOOP, ready))\nprint(l.eval('3'))\n"
        "go.set()\nthread.join()\nprint(got, l.eval('4'))",
        "KeyboardInterrupt\n3\n[7] 4\n",
    ),
    "while another thread comes and goes": (
        "l, end = lua(), []\nf = l.eval('function(g) for i = 1, 100 do g() end return 1 end')\n"
        "def other():\n    while not end: assert f(lambda: None) == 1\n"
        "thread = threading.Thread(target=other)\nthread.start()\n"
        "stopped(lambda: l.execute('local r, g = ... r() while true do g() end', ready, lambda: None))\n"
        "end.append(1)\nthread.join()\nprint(l.eval('4'))",
        "KeyboardInterrupt\n4\n",
    ),
    "while this thread waits for a script of another one": (
        "l, inside = lua(), threading.Event()\n"
        "def other():\n    try: l.execute(LOOP, inside.set)\n    except mf.LuaInterrupt: print('ended')\n"
        "thread = threading.Thread(target=other)\nthread.start()\ninside.wait()\n"
        "stopped(lambda: (ready(), l.eval('1')))\nl.interrupt()\nthread.join()\nprint(l.eval('4'))",
        "KeyboardInterrupt\nended\n4\n",
    ),
    "while this thread waits to go on in Lua": (
        "l, flags = lua(), (ctypes.c_int * 3)()\n"
        "code = '''local p = require('ffi').cast('volatile int *', ...) p[0] = 1\n"
        "while p[1] == 0 do end p[2] = 1'''\n"
        "other = threading.Thread(target=lambda: l.execute(code, ctypes.addressof(flags)))\n"
        "def inner():\n"
        "    me = threading.get_ident(), threading.get_native_id(), sys._getframe()\n"
        "    def go():\n        send(*me)\n        for _ in range(200): time.sleep(0.001)\n        flags[1] = 1\n"
        "    other.start()\n    while not flags[0]: pass\n    threading.Thread(target=go).start()\n"
        "stopped(lambda: l.execute('(...)()', inner))\nprint(flags[2])\nother.join()\nprint(l.eval('4'))",
        "KeyboardInterrupt\n1\n4\n",
    ),
    "with a handler that does not raise": (
        "seen = []\nsignal.signal(signal.SIGINT, lambda n, f: seen.append(n))\n"
        "code = 'local r, seen = ... r() while not seen() do end return 8, (debug.gethook())'\n"
        "print(lua().execute(code, ready, lambda: bool(seen)))",
        "(8, None)\n",
    ),
    "with a handler that runs a script of its own": (
        "seen, l = [], lua()\nscript = 'local f = ... return f() + f() + 1'\n"
        "run = lambda n, f: seen.append((lua().eval('(...)() + 1', int), l.execute(script, int)))\n"
        "signal.signal(signal.SIGINT, run)\n"
        "code = 'local r, seen = ... r() while not seen() do end return 8'\n"
        "print(l.execute(code, ready, lambda: bool(seen)), seen)",
        "8 [(1, 1)]\n",
    ),
    "with a handler that does not raise, before an exception of the script's own": (
        "signal.signal(signal.SIGINT, lambda n, f: None)\ndef f():\n    send_now(2)\n    raise KeyError\n"
        "print(lua().eval('(pcall(...))', f))",
        "False\n",
    ),
    "with a handler that does not raise, after an interrupt": (
        "seen, l = [], lua()\nsignal.signal(signal.SIGINT, lambda n, f: seen.append(n))\n"
        "def f():\n    l.interrupt(KeyError())\n    send_now(2)\n    while not seen: pass\n"
        "stopped(lambda: l.execute('local f = ... f() return 1', f))",
        "KeyError\n",
    ),
    "with a handler that interrupts the script and raises": (
        "def handler(n, f):\n    l.interrupt(KeyError())\n    why = Why()\n    whys.append(weakref.ref(why))\n"
        "    raise why\n"
        "l = lua()\nsignal.signal(signal.SIGINT, handler)\nstopped(lambda: l.execute(LOOP, ready))\n"
        "gc.collect()\nprint([why() for why in whys])",
        "KeyError\n[None]\n",
    ),
    "with a handler whose exception an interrupt replaces": (
        "def handler(n, f):\n    why = Why()\n    whys.append(weakref.ref(why))\n    raise why\n"
        "def inner():\n    try: l.execute(LOOP, ready)\n    except Why: l.interrupt(KeyError())\n"
        "l = lua()\nsignal.signal(signal.SIGINT, handler)\nstopped(lambda: l.execute('(...)()', inner))\n"
        "gc.collect()\nprint([why() for why in whys])",
        "KeyError\n[None]\n",
    ),
    "before an interrupt, which another thread ends by": (
        "l, inside, go, got = lua(), threading.Event(), threading.Event(), []\n"
        "def other():\n"
        "    try: l.execute('(...)()', lambda: (inside.set(), go.wait()))\n"
        "    except BaseException as error: got.append(type(error).__name__)\n"
        "thread = threading.Thread(target=other)\nthread.start()\ninside.wait()\n"
        "def inner():\n"
        "    try: l.execute(LOOP, ready)\n    finally: on_thread(lambda: l.interrupt(KeyError()))\n"
        "stopped(lambda: l.execute('(...)()', inner))\n"
        "stopped(lambda: l.execute('while true do end'))\n"
        "go.set()\nthread.join()\nprint(got, l.eval('4'))",
        "KeyboardInterrupt\nKeyError\n['KeyError'] 4\n",
    ),
    "while its handler runs, an interrupt": (
        "def handler(n, f):\n    on_thread(lambda: l.interrupt(KeyError()))\n    raise KeyboardInterrupt\n"
        "l = lua()\nsignal.signal(signal.SIGINT, handler)\nstopped(lambda: l.execute(LOOP, ready))\nprint(l.eval('4'))",
        "KeyboardInterrupt\n4\n",
    ),
    "after an interrupt, in Python that the script has called": (
        "def f():\n    l.interrupt(KeyError())\n    send_now_and_wait()\n"
        "for l in (lua(), mf.Lua()):\n"
        "    stopped(lambda: l.execute('local f = ... pcall(f) f()', f))\n    print(l.eval('4'))",
        "KeyboardInterrupt\n4\n" * 2,
    ),
    "never, but an interrupt, and a coroutine is closed then": (
        "l = lua()\nco = l.eval('function() coroutine.yield(1) end').coroutine()\nnext(co)\n"
        "def f():\n    l.interrupt(KeyError())\n    try: co.close()\n    except KeyError: print('closed')\n"
        "stopped(lambda: l.execute('(...)()', f))",
        "closed\nKeyError\n",
    ),
    "with a handler that ends the program, in Python that the script has called": (
        "signal.signal(signal.SIGINT, lambda n, f: sys.exit(3))\n"
        "stopped(lambda: lua().execute('pcall(...)', send_now_and_wait))",
        "SystemExit\n",
    ),
    "with a handler whose exception has a class and frames that end with it": (
        "def handler(n, f):\n    class Own(KeyError): pass\n    local = Why()\n"
        "    whys.extend([weakref.ref(Own), weakref.ref(local)])\n    raise Own\n"
        "signal.signal(signal.SIGINT, handler)\nstopped(lambda: lua().execute(LOOP, ready))\n"
        "gc.collect()\nprint([why() is None or isinstance(why(), keeps) for why in whys])",
        "Own\n[True, True]\n",
    ),
    "with a handler that Python sets inside of a script": (
        "def other(n, f):\n    raise KeyError\n"
        "def inner():\n    signal.signal(signal.SIGINT, other)\n    lua().execute(LOOP, ready)\n"
        "stopped(lambda: lua().execute('(...)()', inner))\nsignal.signal(signal.SIGINT, before[0])",
        "KeyError\n",
    ),
    "with a handler that uses the state in another thread": (
        "l = lua()\n"
        "def handler(n, f):\n"
        "    thread = threading.Thread(target=lambda: print(l.eval('9')))\n    thread.start()\n    thread.join()\n"
        "    raise KeyError\n"
        "signal.signal(signal.SIGINT, handler)\nstopped(lambda: l.execute(LOOP, ready))",
        "9\nKeyError\n",
    ),
    "while another thread runs the same state": (
        "l, flags, got = lua(), (ctypes.c_int * 2)(), []\n"
        "code = '''local p = require('ffi').cast('volatile int *', ...) p[0] = 1\n"
        "while p[1] == 0 do end return (debug.gethook())'''\n"
        "def inner():\n"
        "    thread = threading.Thread(target=lambda: got.append(l.execute(code, ctypes.addressof(flags))))\n"
        "    thread.start()\n    while not flags[0]: pass\n"
        "    stopped(send_now_and_wait)\n    flags[1] = 1\n    thread.join()\n    return 5\n"
        "print(l.eval('(...)()', inner), got)",
        "KeyboardInterrupt\n5 [None]\n",
    ),
    "while another thread's script has a KeyboardInterrupt of its own": (
        "l, got = lua(), []\ndef f():\n    raise KeyboardInterrupt\n"
        "def inner():\n    stopped(send_now_and_wait)\n"
        "    on_thread(lambda: got.append(l.eval('(pcall(...))', f)))\n    return 5\n"
        "print(l.eval('(...)()', inner), got)",
        "KeyboardInterrupt\n5 [False]\n",
    ),
    "that did not come, though Python code raises its exception": (
        "def f():\n    raise KeyboardInterrupt\nprint(lua().eval('(pcall(...))', f))",
        "False\n",
    ),
    "that a C function sends, after which no Python code runs": (
        "stopped(lambda: lua().execute('local send = ... send(2) while true do end', send_now))",
        "KeyboardInterrupt\n",
    ),
    "with a handler that C code has installed, which wants to know more": (
        "seen, kept = [], (ctypes.c_void_p * 32)()\n"
        "handler = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(lambda *a: seen.append(a[0]))\n"
        "kept[0], kept[17] = ctypes.cast(handler, ctypes.c_void_p).value, 4  # SA_SIGINFO\n"
        "assert ctypes.CDLL(None).sigaction(signal.SIGINT, kept, None) == 0\n"
        "lua().eval('(...)(2)', send_now)\nprint(seen, action() == kept[0])",
        "[2] True\n",
    ),
    "that the program ignores": (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint(lua().eval('(...)(2)', send_now))\n"
        "signal.signal(signal.SIGINT, before[0])",
        "0\n",
    ),
    "that the program ignores from within a script on": (
        "lua().execute('(...)()', lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))\n"
        "print(action() == int(signal.SIG_IGN))\nsignal.signal(signal.SIGINT, before[0])",
        "True\n",
    ),
    "that ends a process at once": (
        "pid = os.fork()\nif pid == 0:\n    signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "    lua().execute('(...)(2)', send_now)\n    os._exit(0)\nprint(os.WTERMSIG(os.waitpid(pid, 0)[1]))",
        "2\n",
    ),
    "after an interrupt of a state that only ends where it calls Python": (
        "l = mf.Lua()\nstopped(lambda: l.execute('local f = ... f() f()', lambda: l.interrupt(KeyError())))\n"
        "stopped(lambda: lua().execute(LOOP, ready))",
        "KeyError\nKeyboardInterrupt\n",
    ),
    "that another thread gets": (
        "def get():\n    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        "stopped(lambda: lua().execute(LOOP, threading.Thread(target=get).start))",
        "KeyboardInterrupt\n",
    ),
    "in a child, which has the thread that forked for its main thread": (
        "def fork():\n    l = lua()\n    l.execute('local x = 1')\n"
        "    warnings.simplefilter('ignore', DeprecationWarning)  # from 3.12 on, forking beside threads is one\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n        signal.alarm(20)\n"
        "        stopped(lambda: l.execute(LOOP, ready))\n        os._exit(0)\n"
        "    print('child', os.waitpid(pid, 0)[1])\n"
        "thread = threading.Thread(target=fork)\nthread.start()\nthread.join()",
        "KeyboardInterrupt\nchild 0\n",
    ),
    "in a child of a thread that was in a script, which goes on there": (
        "def fork():\n    global child\n"
        "    warnings.simplefilter('ignore', DeprecationWarning)  # from 3.12 on, forking beside threads is one\n"
        "    child = os.fork()\n    if child == 0: signal.alarm(60)\n"
        "    else: print('child', os.waitpid(child, 0)[1])\n    return child == 0\n"
        "def work():\n"
        "    stopped(lambda: lua().execute('local fork, send = ... if fork() then send(2) while true do end end', "
        "fork, send_now))\n"
        "    if child == 0:\n"
        "        stopped(lambda: lua().execute('local f, ready = ... f() ' + LOOP.replace('...', 'ready'),"
        " lambda: lua().execute('x = 1'), ready))\n"
        "        os._exit(action() != before[1])\n"
        "on_thread(work)",
        "KeyboardInterrupt\nKeyboardInterrupt\nchild 0\nnot stopped\n",
    ),
    "in a parent, whose main thread is not the child's": (
        "def go_on():\n    if child == 0:\n        print('went on')\n        l.interrupt(KeyError())\n"
        "def work():\n"
        "    stopped(lambda: l.execute('local f, g = ... f() for i = 1, 1000 do end g()', fork, go_on))\n"
        "    if child == 0: os._exit(0)\n"
        "def inner():\n    stopped(lambda: l.execute(LOOP, ready))\n    on_thread(work)\n"
        "l = lua()\nstopped(lambda: l.execute('(...)()', inner))",
        "KeyboardInterrupt\nwent on\nKeyError\nchild 0\nnot stopped\nKeyboardInterrupt\n",
    ),
    "in a parent, whose main thread is the child's": (
        "def inner():\n    stopped(lambda: l.execute(LOOP, ready))\n    fork()\n"
        "l = lua()\nstopped(lambda: l.execute('local f = ... f() return 1', inner))\n"
        "if child == 0: os._exit(0)",
        "KeyboardInterrupt\nKeyboardInterrupt\nchild 0\nKeyboardInterrupt\n",
    ),
    "in a child of a thread that was in no script, beside one that was": (
        "def fork():\n"
        "    warnings.simplefilter('ignore', DeprecationWarning)  # from 3.12 on, forking beside threads is one\n"
        "    pid = os.fork()\n    if pid == 0: os._exit(action() != before[1])\n"
        "    print('child', os.waitpid(pid, 0)[1])\n"
        "lua().execute('(...)()', lambda: on_thread(fork))",
        "child 0\n",
    ),
    "that ends one script, and then another": (
        "for _ in range(3):\n    stopped(lambda: lua().execute(LOOP, ready))",
        "KeyboardInterrupt\n" * 3,
    ),
}

CTRL_C_BEGIN = """
import ctypes, gc, os, signal, sys, sysconfig, threading, time, warnings, weakref
import moonferry as mf
LOOP = "local ready = ... ready() while true do pcall(function() while true do end end) end"
def lua():
    return mf.Lua(interruptible=True)
def is_inside(thread, frame):
    at = sys._current_frames()[thread]
    while at is not None and at is not frame:
        at = at.f_back
    return at is frame
def state_of(task):
    "Whether it sleeps, and how long it has run, in hundredths of a second."
    fields = open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()
    return fields[0] == "S", int(fields[11]) + int(fields[12])
def send(thread, task, frame):
    while is_inside(thread, frame):
        time.sleep(0.001)
    asleep, before = 0, state_of(task)[1]
    while asleep < 10 and state_of(task)[1] < before + 2:
        time.sleep(0.001)
        asleep = asleep + 1 if state_of(task)[0] else 0
    os.kill(os.getpid(), signal.SIGINT)
def ready():
    me = threading.get_ident(), threading.get_native_id(), sys._getframe()
    threading.Thread(target=send, args=me, daemon=True).start()
def stopped(script):
    try:
        script()
    except (KeyboardInterrupt, KeyError, SystemExit) as error:
        print(type(error).__name__, flush=True)
    else:
        print("not stopped", flush=True)
def action():
    "What the system calls."
    libc, kept = ctypes.CDLL(None), (ctypes.c_void_p * 32)()
    assert libc.sigaction(signal.SIGINT, None, kept) == 0
    return kept[0]
def on_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
def fork():
    "The parent goes on when the child has ended."
    global child
    warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on, forking beside threads is one
    child = os.fork()
    if child == 0: signal.alarm(60)
    else: print("child", os.waitpid(child, 0)[1], flush=True)
# To this thread, and no Python code runs after it.
send_now = ctypes.CDLL(None)["raise"]
def send_now_and_wait():
    send_now(2)
    while True: pass
class Why(Exception): pass
whys = []
# CPython 3.13 without the GIL lets no class go once there has been a second thread.
keeps = type if sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info < (3, 14) else ()
before = signal.getsignal(signal.SIGINT), action()
"""


@pytest.mark.parametrize("name", CTRL_C)
def test_ctrl_c(name):
    code, said = CTRL_C[name]
    end = "" if "handler" in name else "\nassert (signal.getsignal(signal.SIGINT), action()) == before\n"
    command = [sys.executable, "-X", "faulthandler", "-c", CTRL_C_BEGIN + code + end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_what_lua_imports_leaves_the_handler_of_python_s_host(lua):
    before = signal.getsignal(signal.SIGINT)
    lua.execute("require('moonferry.python').import 'wave'")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_that_a_script_has_set_may_call_the_one_before_it():
    code = """
import faulthandler, os, signal, moonferry
outer, inner = moonferry.Lua(interruptible=True), moonferry.Lua(interruptible=True)
def nest():
    faulthandler.register(signal.SIGINT, open(os.devnull, "w"), chain=True)
    inner.execute("local kill, pid = ... kill(pid, 2) while true do end", os.kill, os.getpid())
try:
    outer.execute("local nest = ... nest()", nest)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "interrupted\n", done.stderr[-2000:]
