"""A stream that is garbage in Lua is given back, also where there was no memory to make it, to close or to collect it.

The state's limit is at the first byte, then a little further each time.
"""

import contextlib

import pytest

import moonferry as mf
from limit import struck

PROGRAM = """
local mf, device = require "moonferry", ...
jit.off()
return function() {} end
"""


CURRENT = """
local mf, device = require "moonferry", ...
jit.off()
local s, nothing = mf.stream(device), function() end
local routine
local function is_left()
  routine = coroutine.wrap(function()
    mf.with_stream(s, nothing)
  end)
  local used = s
  s = mf.stream(device)
  used:close()
  return mf.current_stream(device) == mf.default_stream(device)
end
is_left()
return function() %s end, is_left
"""


def limits(lua, make):
    """How much memory there was, each time when `make` has failed and its garbage is gone, until it succeeds."""
    lua.gccollect()
    more, done = 0, False
    while not done:
        lua.set_max_memory(lua.get_memory_used(total=True) + more, total=True)
        try:
            make()
            done = True
        except MemoryError:
            pass
        lua.set_max_memory(1, total=True)
        with contextlib.suppress(MemoryError):
            lua.gccollect()
        lua.set_max_memory(0)
        for _ in range(2):
            lua.gccollect()
        yield more
        more += 8


@pytest.fixture
def simulated(gpu):
    if not gpu.simulated:
        pytest.skip("only a simulator counts the calls of its driver")
    return gpu


@pytest.mark.parametrize("maker", ["local _ = mf.stream(device)", "mf.stream(device):close()"])
def test_a_limit_at_every_place_loses_no_stream(simulated, device, maker):
    mf.Stream(device)  # the first that the runtime makes and keeps
    lua = mf.Lua(max_memory=0)
    make = lua.execute(PROGRAM.format(maker), device)
    created = simulated.calls(simulated.names["create"])
    assert sum(1 for _ in limits(lua, make)) > 3
    assert simulated.calls(simulated.names["create"]) == created


@pytest.mark.parametrize("maker", ["local _ = mf.stream(device)", "mf.stream(device):close()"])
def test_an_error_of_a_debug_hook_loses_no_stream(simulated, device, maker):
    mf.Stream(device)
    lua = mf.Lua()
    make = lua.execute(PROGRAM.format(maker), device)
    created = simulated.calls(simulated.names["create"])
    assert sum(1 for _ in struck(lua, make)) > 30
    assert simulated.calls(simulated.names["create"]) == created


@pytest.mark.parametrize("how", ["mf.with_stream(s, nothing)", "routine()"])
def test_a_limit_at_every_place_leaves_no_stream_current(simulated, device, how):
    lua = mf.Lua(max_memory=0)
    make, is_left = lua.execute(CURRENT % how, device)
    for more in limits(lua, make):
        assert is_left(), more
