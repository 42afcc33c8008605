"""A process that forks while threads use or wait for a Lua state."""

import os
import signal
import subprocess
import sys

import pytest

FORK = """
import os, signal, sys, threading
import moonferry as mf
sys.setswitchinterval(0.2)
lua = mf.Lua()
younger = mf.Lua()  # of several states none is passed over

def in_child(code):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            code()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\\n".encode())
            os._exit(1)
    print(os.waitpid(pid, 0)[1], flush=True)
"""

FORKS = {
    # The lock was handed to a thread that had not taken it: nobody was inside.
    "while another thread's turn has come": (
        "flag = mf.zeros(1)\n"
        "def other():\n    while flag[0] == 0: pass\n    assert lua.eval('2') == 2\n"
        "thread = threading.Thread(target=other)\nthread.start()\n"
        "def use():\n    assert lua.eval('3') == 3 and mf.Lua().eval('4') == 4\n"
        "lua.execute('''local flag, fork = ... flag:fill(1) local t = os.clock()"
        " while os.clock() - t < 0.3 do end fork()''', flag, lambda: in_child(use))\n"
        "thread.join()\nprint(lua.eval('5'))",
        "0\n5\n",
        "",
    ),
    # The second of them still waited in line, and is not in the child.
    "while two other threads wait": (
        "flags = mf.zeros(2)\n"
        "def other(i):\n    while flags[i] == 0: pass\n    assert lua.eval('2') == 2\n"
        "threads = [threading.Thread(target=other, args=(i,)) for i in range(2)]\nfor t in threads: t.start()\n"
        "def use():\n    assert lua.eval('3') == 3 and lua.eval('4') == 4\n"
        "lua.execute('''local flags, fork = ... flags:fill(1) local t = os.clock()"
        " while os.clock() - t < 0.6 do end fork()''', flags, lambda: in_child(use))\n"
        "for t in threads: t.join()\nprint(lua.eval('5'))",
        "0\n5\n",
        "",
    ),
    # A turn was handed over once, and nobody is inside any more.
    "after threads have waited": (
        "busy = 'local t = os.clock() while os.clock() - t < 0.1 do end'\n"
        "threads = [threading.Thread(target=lambda: lua.execute(busy)) for i in range(3)]\n"
        "for t in threads: t.start()\nfor t in threads: t.join()\n"
        "in_child(lambda: lua.eval('3'))\nprint(lua.eval('5'))",
        "0\n5\n",
        "",
    ),
    "while another thread is inside": (
        "flags = mf.zeros(2)\n"
        "thread = threading.Thread(target=lambda: lua.execute('local f = ... f:put(0, 1)"
        " while f:get(1) == 0 do end', flags))\n"
        "thread.start()\nwhile flags[0] == 0: pass\n"
        "in_child(lambda: lua.eval('3'))\nflags[1] = 1\nthread.join()\nprint(lua.eval('5'))",
        "256\n5\n",
        "RuntimeError: the Lua state was in use by another thread when this process was forked\n",
    ),
    # The system gives it what it gave the other one, its thread-local variables among it.
    "while another thread is inside, and a new one takes its place": (
        "flags = mf.zeros(2)\n"
        "thread = threading.Thread(target=lambda: lua.execute('local f = ... f:put(0, 1)"
        " while f:get(1) == 0 do end', flags))\n"
        "thread.start()\nwhile flags[0] == 0: pass\n"
        "def use():\n"
        "    for call in (lambda: lua.eval('3'), lua.close):\n"
        "        try: call()\n        except RuntimeError as error: os.write(2, f'{error}\\n'.encode())\n"
        "def use_on_a_thread():\n    thread = threading.Thread(target=use)\n    thread.start()\n    thread.join()\n"
        "in_child(use_on_a_thread)\nflags[1] = 1\nthread.join()\nprint(lua.eval('5'))",
        "0\n5\n",
        "the Lua state was in use by another thread when this process was forked\n" * 2,
    ),
    # No call of the other thread's is there any more: none is to end, and none is in the way of a close.
    "while another thread is in Python that Lua has called": (
        "import gc, weakref\n"
        "class Thing: pass\n"
        "lua = mf.Lua(interruptible=True)\nlua.globals().thing = thing = Thing()\nthing = weakref.ref(thing)\n"
        "two = lua.eval('function() return 2 end')\n"
        "endless = lua.eval('function() while true do end end')\n"
        "inside, leaves = threading.Event(), threading.Event()\n"
        "def other():\n"
        "    try: lua.execute('(...)()', lambda: (inside.set(), leaves.wait()))\n"
        "    except mf.LuaInterrupt: print('ended', flush=True)\n"
        "thread = threading.Thread(target=other)\nthread.start()\ninside.wait()\n"
        "reason = mf.LuaInterrupt()\nlua.interrupt(reason)\n"
        "def use():\n"
        "    try:\n        with lua.time_limit(0.01): endless()\n"
        "    except TimeoutError: os.write(2, b'it was too long\\n')\n"
        "    assert sys.getrefcount(reason) == 2  # the state has let go of it\n"
        "    assert two() == 2\n    lua.interrupt()\n    assert lua.eval('3') == 3\n"
        "    lua.execute('local x = 1 for i = 1, 1000 do x = x + i end')\n"
        "    lua.close()\n    gc.collect()\n    assert thing() is None\n"
        "in_child(use)\nleaves.set()\nthread.join()\nprint(lua.eval('5'))",
        "0\nended\n5\n",
        "it was too long\n",
    ),
    # The call of the thread that forks is there, and still to end.
    "while another thread is to end, which forks": (
        "lua = mf.Lua(interruptible=True)\n"
        "def ends(call):\n    try: call()\n    except mf.LuaInterrupt: print('ended', flush=True)\n"
        "def forks():\n    global pid\n    lua.interrupt()\n    pid = os.fork()\n"
        "    if pid: os.waitpid(pid, 0)\n    else: signal.alarm(20)\n"
        "def other():\n"
        "    ends(lambda: lua.execute('local f = ... f() while true do end', forks))\n    if not pid: os._exit(0)\n"
        "thread = threading.Thread(target=other)\nthread.start()\nthread.join()",
        "ended\nended\n",
        "",
    ),
    "after states have ended, whose memory others have": (
        "import gc\nstates = [mf.Lua() for _ in range(20)]\nsize = mf.Lua.__basicsize__\ndel states\ngc.collect()\n"
        "kept = [b'\\xff' * n for n in range(size - 64, size + 16) for _ in range(40)]\n"
        "def use():\n    assert all(set(memory) == {255} for memory in kept)\n    assert lua.eval('3') == 3\n"
        "in_child(use)",
        "0\n",
        "",
    ),
    "and uses threads in the child": (
        "def use():\n"
        "    got = []\n    busy = 'local t = os.clock() while os.clock() - t < 0.05 do end return 3'\n"
        "    threads = [threading.Thread(target=lambda: got.append(lua.execute(busy))) for _ in range(4)]\n"
        "    for t in threads: t.start()\n    for t in threads: t.join()\n    assert got == [3] * 4\n"
        "lua.execute('(...)()', lambda: in_child(use))\nprint(lua.eval('5'))",
        "0\n5\n",
        "",
    ),
}


@pytest.mark.parametrize("name", FORKS)
def test_a_fork(name):
    code, said, told = FORKS[name]
    command = [sys.executable, "-W", "ignore", "-c", FORK + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, told)


# Another thread is in Lua, in the same state, while Python code that Lua has called forks.
BELOW = """
flags = mf.zeros(2)
other = threading.Thread(target=lambda: lua.execute("local f = ... f:put(0, 1) while f:get(1) == 0 do end", flags))
pid = 0

def fork():
    global pid
    other.start()
    while flags[0] == 0: pass
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
    else:
        print(os.waitpid(pid, 0)[1], flush=True)
        flags[1] = 1

lua.execute("(...)()", fork)
if pid == 0:
    os.write(1, b"the child went on in Lua\\n")
    os._exit(0)
other.join()
print(lua.eval("5"))
"""


def test_a_fork_below_lua_while_another_thread_is_inside():
    """The child has no Lua to go back to: it ends, and says so."""
    command = [sys.executable, "-W", "ignore", "-c", FORK + BELOW]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert (done.returncode, done.stdout) == (0, f"{signal.SIGABRT}\n5\n"), done.stderr
    why = "a forked child cannot go back into a Lua state that another thread was using"
    assert done.stderr.startswith(f"Fatal Python error: {why}\n"), done.stderr
