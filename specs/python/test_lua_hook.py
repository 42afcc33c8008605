"""The hooks of a state that was stopped: its script's own stay, and the one that stopped it goes, but not before."""

import re
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
import sys
import moonferry as mf
lua = mf.Lua(interruptible=True)
run = lua.eval(f"function() {sys.argv[1]} end")
for _ in range(int(sys.argv[2])):
    try:
        with lua.time_limit(0.0003):
            run()
    except TimeoutError:
        pass
print("done")
"""


@pytest.mark.parametrize(
    ("script", "times"),
    [
        ("while true do pcall(error) end", 4000),
        ("debug.sethook(function() end, '', 1) while true do end", 500),
        ("while true do debug.sethook(function() end, '', 1) end", 500),
    ],
)
def test_no_interrupt_is_lost_where_the_script_changes_its_hook_or_the_byte_of_it(script, times):
    """LuaJIT changes the byte where a protected call or a hook ends: what the thread that interrupts writes there may
    be lost, or bring back what was there before."""
    command = [sys.executable, "-c", LIMITED, script, str(times)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("interruptible", [False, True])
def test_a_hook_that_is_none_is_refused_where_the_script_sets_it(interruptible):
    lua = mf.Lua(interruptible=interruptible)
    for code, told in (
        ("1, '', 1", "#1 to 'sethook' (function expected, got number)"),
        ("print", "#2 to 'sethook' (string expected, got no value)"),
        ("print, '', {}", "#3 to 'sethook' (number expected, got table)"),
        ("coroutine.create(print), 1, 'c'", "#2 to 'sethook' (function expected, got number)"),
    ):
        with pytest.raises(mf.LuaError, match=re.escape(f"1: bad argument {told}")):
            lua.execute(f"debug.sethook({code})")
    lua.execute("debug.sethook(nil) debug.sethook()")
