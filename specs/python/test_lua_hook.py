"""The hooks of a state that was stopped: its script's own stay, and the one that stopped it goes, but not before."""

import subprocess
import sys

import pytest

import moonferry as mf


def test_a_state_that_cannot_be_stopped_keeps_the_hook_of_its_script():
    """It ends where it calls Python again."""
    lua = mf.Lua()
    lua.execute("debug.sethook(function() hooked = true end, '', 1e6)")
    with pytest.raises(KeyError):
        lua.execute("local f, g = ... f() g()", lambda: lua.interrupt(KeyError()), lambda: None)
    assert lua.eval("select(3, debug.gethook())") == 1e6


def test_a_state_that_was_stopped_has_no_hook():
    """Seen by a function of C's, before which no instruction of Lua's runs."""
    lua = mf.Lua(interruptible=True)
    hook = lua.eval("debug.gethook")
    with pytest.raises(KeyError):
        lua.execute("local f = ... f() while true do end", lambda: lua.interrupt(KeyError()))
    assert hook()[0] is None


LIMITED = """
import moonferry as mf
lua = mf.Lua(interruptible=True)
run = lua.eval("function() while true do pcall(error) end end")
for _ in range(4000):
    try:
        with lua.time_limit(0.0003):
            run()
    except TimeoutError:
        pass
print("done")
"""


def test_no_interrupt_is_lost_where_the_script_leaves_a_protected_call():
    """LuaJIT then writes to the byte that has the events of the hook which ends the script."""
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
