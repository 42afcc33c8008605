"""Lua's collector, as Python stops it and lets it go on."""

import pytest

import moonferry as mf


def test_nogc_and_gccollect():
    lua = mf.Lua()
    with lua.nogc():
        before = lua.eval("collectgarbage('count')")
        lua.execute("for i = 1, 20000 do kept = {} end")
        assert lua.eval("collectgarbage('count')") > before + 500
    lua.gccollect()
    assert lua.eval("collectgarbage('count')") < before + 500


COUNTED = """
jit.off()
local collected = 0
function mark() getmetatable(newproxy(true)).__gc = function() collected = collected + 1 end end
function count() for i = 1, 2e5 do local t = { i } end return collected end
"""


def test_the_collector_stands_still_until_the_last_block_ends():
    lua = mf.Lua()
    lua.execute(COUNTED)
    mark, count = lua.globals().mark, lua.globals().count
    first, second = lua.nogc(), lua.nogc()
    with first:
        with second:
            mark()
        assert count() == 0  # nested
        second = lua.nogc()
        second.__enter__()
    assert count() == 0  # overlapping
    second.__exit__(None, None, None)
    assert count() == 1


def test_the_collector_stands_still_again_behind_a_collection():
    lua = mf.Lua()
    lua.execute(COUNTED)
    mark, count = lua.globals().mark, lua.globals().count
    with lua.nogc():
        mark()
        lua.gccollect()
        mark()
        assert count() == 1


def test_the_collector_stands_still_for_what_python_objects_weigh():
    class Heavy:
        nbytes = 1 << 40

    lua = mf.Lua()
    lua.execute(COUNTED)
    mark, count, take = lua.globals().mark, lua.globals().count, lua.eval("function() end")
    with lua.nogc():
        mark()
        for _ in range(3):
            take(Heavy())
        assert count() == 0
    take(Heavy())
    assert count() == 1


def test_the_collector_stands_still_again_when_memory_has_ended():
    lua = mf.Lua(max_memory=2_000_000)
    lua.execute(COUNTED.replace("2e5", "1e4"))  # so that it fits below the limit
    mark, count = lua.globals().mark, lua.globals().count
    with lua.nogc():
        mark()
        with pytest.raises(mf.LuaMemoryError):
            lua.execute("local t = {} while true do t[#t + 1] = {} end")
        assert count() == 1
        mark()
        assert count() == 1
