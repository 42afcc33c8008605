"""A sandboxed script and the process below it: what would crash it, hang it or fill its memory ends as an error.

Each attempt runs in a process of its own, on a thread with the stack that macOS gives, so that a crash or a hang is that
attempt's. A script that gets away with it says "out"; afterwards the same state must still compute.
"""

import subprocess
import sys
import textwrap

import pytest

CHILD = """
import sys, threading
import moonferry as mf

def attempt():
    box = mf.Lua(sandbox=True, **OPTIONS)
    try:
        with WITHIN:
            print("gave", box.execute(CODE, *ARGUMENTS))
    except Exception as error:
        print(type(error).__name__, error)
    print("then", box.eval("1 + 1"))

class Unlimited:
    def __enter__(self): return self
    def __exit__(self, *what): return False

threading.stack_size(KIB * 1024)
thread = threading.Thread(target=attempt)
thread.start()
thread.join()
"""


def run_child(code, options="", within="Unlimited()", arguments="", kib=512):
    """What the attempt printed: first what came of it, then what the state computes afterwards."""
    program = CHILD.replace("OPTIONS", f"dict({options})").replace("WITHIN", within).replace("KIB", str(kib))
    program = program.replace("CODE", repr(textwrap.dedent(code))).replace("ARGUMENTS", f"[{arguments}]")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"it ended with {done.returncode}: {done.stdout}{done.stderr}"
    lines = done.stdout.strip().splitlines()
    assert lines[-1] == "then 2", done.stdout + done.stderr
    return "\n".join(lines[:-1])


# What is no table as the environment of a chunk: LuaJIT's C function believes its caller.
ENVIRONMENTS = ["42", "1e-310", "'text'", "true", "print", "coroutine.create(print)"]


@pytest.mark.parametrize("value", ENVIRONMENTS)
@pytest.mark.parametrize("loader", ["load", "loadstring"])
def test_the_environment_of_a_chunk_is_a_table(loader, value):
    said = run_child(f"return {loader}('x = 1 return x', 'name', 't', {value})()")
    assert said.startswith("LuaError") and "bad argument #4 to 'load' (table expected, got " in said
