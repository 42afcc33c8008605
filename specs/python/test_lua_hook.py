"""The hooks of a state that was stopped: its script's own stay, and the one that stopped it goes."""

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
