"""A stream that is garbage in Lua is given back, also where there was no memory to make it, to close or to collect it.

The state's limit is at the first byte, then a little further each time.
"""

import contextlib

import pytest

import moonferry as mf

PROGRAM = """
local mf, device = require "moonferry", ...
jit.off()
return function() {} end
"""


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
    lua.gccollect()
    created = simulated.calls(simulated.names["create"])
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
        more += 8
    assert more > 24
    assert simulated.calls(simulated.names["create"]) == created
