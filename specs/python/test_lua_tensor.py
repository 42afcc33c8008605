"""Tensors in states that Python hosts: the same memory on both sides."""

import gc
import sys
import weakref

import numpy as np
import pytest

import moonferry as mf
from moonferry.luajit import LuaInterrupt


def test_a_tensor_arrives_as_a_tensor_over_the_same_memory(lua):
    t = mf.zeros((2, 3), dtype="float32")
    lua.execute("local t = ... assert(t.shape[2] == 3 and t.dtype == 'float32') t:put(1, 2, 5)", t)
    assert t[1, 2] == 5
    back = lua.eval("...", t)
    assert isinstance(back, mf.Tensor) and back.data_ptr == t.data_ptr


def test_tensors_of_lua_outlive_their_state(lua):
    t = lua.execute("local mf = require 'moonferry' local t = mf.tensor({{1, 2}, {3, 4}}, 'float64') return t")
    del lua
    assert isinstance(t, mf.Tensor) and np.from_dlpack(t).tolist() == [[1, 2], [3, 4]]


def test_tensors_inside_of_tables_results_and_callbacks(lua):
    a, b = mf.zeros((2,)), mf.ones((2,))
    t = lua.table(a, named=b)
    assert t[1].data_ptr == a.data_ptr and t.named.data_ptr == b.data_ptr
    assert [x.data_ptr for x in t.values()] == [a.data_ptr, b.data_ptr]
    seen = []
    lua.execute("local f, t = ... f(t, {t})", lambda x, y: seen.append((x, y[1])), a)
    assert [x.data_ptr for x in seen[0]] == [a.data_ptr] * 2
    first, second = lua.eval("(function(t) return t, t:view(0) end)(...)", a)
    assert first.data_ptr == a.data_ptr == second.data_ptr and second.shape == ()
    co = lua.eval("function(t) coroutine.yield(t) end").coroutine(b)
    assert next(co).data_ptr == b.data_ptr


def test_other_libraries_arrays_on_request(lua):
    a = np.arange(6, dtype="float32").reshape(2, 3)
    assert lua.eval("type(...)", a) == "userdata"
    assert lua.eval("(...)[1][2]", a) == 5
    total = lua.execute(
        """
        local t = python.tensor(...)
        local s = 0
        for _, row in t:rows() do for x = 0, 2 do s = s + row[x]; row[x] = -row[x] end end
        return s""",
        a,
    )
    assert total == 15 and a[1, 2] == -5
    with pytest.raises(AttributeError, match="has no __dlpack__ method"):
        lua.eval("python.tensor(python.builtins.object())")


def test_a_bug_in_dlpack_is_not_taken_for_the_lack_of_it(lua):
    asked = []

    class Broken:
        def __dlpack__(self, **kwargs):
            asked.append(kwargs)
            return self.nothing

    with pytest.raises(AttributeError, match="'Broken' object has no attribute 'nothing'"):
        lua.eval("python.tensor(...)", Broken())
    assert len(asked) == 1


def test_the_error_that_says_more_is_raised_for_what_is_no_array(lua):
    with pytest.raises(TypeError, match="'str'"):
        lua.eval("python.tensor(...)", [1, "a"])
    with pytest.raises(AttributeError, match="a 'set' cannot be imported"):
        lua.eval("python.tensor(...)", {1})


def test_what_dlpack_lacks_leaves_no_references(lua):
    """What is no DLPack has an error that names it, which is not raised."""
    tensor, seen = lua.eval("python.tensor"), [bytearray(4), object()]
    before = [sys.getrefcount(x) for x in seen]
    for _ in range(20):
        assert tensor(seen[0]).shape == (4,)
        with pytest.raises(AttributeError):
            tensor(seen[1])
    lua.gccollect()
    gc.collect()
    assert [sys.getrefcount(x) for x in seen] == before


def test_a_state_in_a_lua_that_never_needs_tensors_loads_no_tensors(lua):
    lua.eval("{1}, setmetatable({}, {})")
    assert lua.eval("package.loaded.moonferry") is None
    lua.eval("...", mf.zeros((1,)))
    assert lua.eval("package.loaded.moonferry") is not None


def test_moonferry_python_in_a_hosted_state_is_this_interpreter(lua):
    marker = object()
    lua.globals().marker = marker
    py = "local py = require 'moonferry.python' "
    assert lua.execute(py + "return py.import('sys').version_info[0]") == 3
    assert lua.execute(py + "return py.builtins.id(marker)") == id(marker)
    assert lua.execute(py + "return py.eval('[1, 2]')") == [1, 2]


def test_a_scope_releases_what_lua_got_by_either_way(lua):
    """By moonferry.python, and by what Python has given to this state."""

    class Thing:
        pass

    seen = weakref.WeakSet()

    def make():
        thing = Thing()
        seen.add(thing)
        return thing

    before, kept, closed = lua.execute(
        """
        local py, make = require "moonferry.python", ...
        local before, kept, lost = make()
        py.scope(function(s)
          kept = s:keep(make())
          lost = make()
          py.builtins.list { lost }
          assert(make() ~= before and tostring(before):find "Thing")
        end)
        return before, kept, select(2, pcall(tostring, lost))""",
        make,
    )
    assert type(before) is type(kept) is Thing
    assert "this Python object was closed" in str(closed)
    assert set(seen) == {before, kept}


ARRAYS = {  # Lua code over `t`, a NumPy array that was given for a tensor, and the exception
    "t:rows()": IndexError,
    "t:get(0, 0)": IndexError,
    "t.shape[1]": IndexError,
    "mf.from_dlpack(t)": mf.LuaError,
    "mf.tensor(t)": mf.LuaError,
    "mf.wrap(t, 6)": mf.LuaError,
    "mf.zeros({ 2, 3 }):copy(t)": mf.LuaError,
    "mf.zeros(2).get(t, 0)": mf.LuaError,
}


@pytest.mark.parametrize("code", ARRAYS)
def test_an_array_in_the_place_of_a_tensor_is_told_what_to_do(lua, code):
    run = lua.eval("function(t) local mf = require 'moonferry' local _ = " + code + " end")
    with pytest.raises(ARRAYS[code], match=r"Python.*python\.tensor"):
        run(np.zeros((2, 3), "float32"))


def test_an_objects_own_error_of_an_item_stays(lua):
    with pytest.raises(TypeError, match="list indices"):
        lua.eval("(...).rows", [1, 2])
    with pytest.raises(IndexError, match="out of bounds"):
        lua.eval("(...)[7]", np.zeros(2))
    with pytest.raises(KeyError, match="rows"):
        lua.eval("(...).rows", {})


def test_a_closed_tensor_is_refused_and_lua_keeps_what_it_has(lua):
    before = mf.ledger()
    t = mf.tensor([1.0, 2.0])
    keep, get = lua.eval("function(t) kept = t end"), lua.eval("function() return kept:get(1) end")
    keep(t)
    t.close()
    assert get() == 2.0
    for use in (keep, lua.eval("function(t) return t end"), lambda t: lua.globals().__setitem__("x", t)):
        with pytest.raises(ValueError, match="tensor is closed"):
            use(t)
    lua.execute("kept:close()")
    assert mf.ledger() == before


CROSSING = """
local cross, same, t = ...
debug.sethook(function() cross() end, "", 1)
local got = same(t)
debug.sethook()
return got
"""


def test_tensors_that_cross_while_one_crosses(lua):
    """Between any two instructions of the Lua function that takes a tensor over, all of them by the same place."""
    take, crossed = lua.eval("function(t) return t end"), []
    lua.execute(CROSSING, lambda: None, lambda t: t, mf.zeros(1))  # all is loaded

    def cross():
        crossed.append(take(mf.full(3, len(crossed))).tolist())

    def left():
        for _ in range(3):
            lua.gccollect()
            gc.collect()
        return mf.ledger()

    before = left()
    for i in range(3):
        assert lua.execute(CROSSING, cross, lambda t: t.astype("int8"), mf.full(2, i)).tolist() == [i, i]
    assert len(crossed) > 30 and crossed == [[i] * 3 for i in range(len(crossed))]
    assert left() == before


@pytest.mark.parametrize("handle", ["ffi.cast('void *', 4096)", "ffi.new('int64_t[1]', 4096)", "4096", "'text'"])
def test_a_table_with_the_field_of_a_tensor_is_a_table(handle):
    lua = mf.Lua()
    same = lua.eval("function(x) return x end")
    ours = lua.eval("require('moonferry').zeros(2)")
    forged = lua.execute(f"local ffi = require 'ffi' return {{ _handle = {handle} }}")
    for _ in range(3):
        assert same(ours).data_ptr == ours.data_ptr
        assert type(forged).__name__ == type(same(forged)).__name__ == "LuaTable"


def fill(lua):
    """Takes all the memory that the state may have; give(n) gives n thousand bytes back. Where LuaJIT's FFI cannot
    begin for want of memory, LuaJIT loses what it has allocated for that; so it begins before."""
    lua.execute(
        """
        require "ffi"
        kept = {}
        pcall(function() while true do kept[#kept + 1] = ("x"):rep(1000) .. #kept end end)
        function give(n) for _ = 1, n do kept[#kept] = nil end collectgarbage() end"""
    )


def test_what_lua_loads_for_the_first_tensor_is_loaded_again_where_memory_ended():
    tensor, kinds = mf.ones((2,)), set()
    for room in range(10, 400, 13):
        lua = mf.Lua(max_memory=4_000_000)
        fill(lua)
        lua.execute("give(...)", room)
        try:
            assert lua.eval("(...):get(1)", tensor) == 1
            kinds.add(None)
        except mf.LuaError as error:
            kinds.add(type(error))
        lua.execute("kept = nil collectgarbage()")
        assert lua.eval("(...):get(1)", tensor) == 1
    assert mf.LuaMemoryError in kinds and kinds <= {mf.LuaMemoryError, None}


# Stops the loading of moonferry's numbers.lua once, in the middle of all the others.
BROKEN_ONCE = """
local stop = ...
package.preload["moonferry.numbers"] = function(...)
  package.preload["moonferry.numbers"] = nil
  stop()
  return dofile(package.searchpath("moonferry.numbers", package.path))
end"""


@pytest.mark.parametrize("interruptible", [False, True])
@pytest.mark.parametrize("code", ["(...):get(1)", "require('moonferry').ones({2}):get(1)"])
def test_what_was_being_loaded_when_a_script_was_stopped_is_loaded_again(code, interruptible):
    lua, tensor = mf.Lua(interruptible=interruptible), mf.ones((2,))
    lua.execute(BROKEN_ONCE, lua.interrupt)
    with pytest.raises(LuaInterrupt):
        lua.eval(code, tensor)
    assert lua.eval(code, tensor) == 1


def test_a_script_that_goes_on_after_its_first_tensor_failed_gets_the_next():
    lua, tensor = mf.Lua(), mf.ones((2,))

    def fail():
        raise ValueError

    lua.execute(BROKEN_ONCE, fail)
    assert lua.eval("(function(f) return pcall(f), f():get(1) end)(...)", lambda: tensor) == (False, 1)


def test_a_module_whose_loading_goes_on_stays_marked():
    """A tensor that comes meanwhile is refused, and nothing is loaded twice."""
    lua, tensor = mf.Lua(), mf.ones((2,))
    lua.execute(
        """
        local tensor = ...
        package.preload["moonferry.numbers"] = function()
          loads = (loads or 0) + 1
          fine, marked = pcall(tensor), package.loaded["moonferry.numbers"] ~= nil
          return dofile(package.searchpath("moonferry.numbers", package.path))
        end
        package.preload.zero = function() return 0 end
        require "zero" """,
        lambda: tensor,
    )
    assert lua.eval("(...):get(1)", tensor) == 1
    assert lua.eval("fine, marked, loads") == (False, True, 1)
    with pytest.raises(mf.LuaError):
        lua.execute("error('x')")
    assert lua.eval("package.loaded.zero") == 0
    with pytest.raises(mf.LuaError):
        lua.execute("debug.getregistry()._LOADED = nil error('x')")


FINALIZED_AT = """
local at, first, meanwhile = ...
local count, kept = 0
local function renew()
  getmetatable(newproxy(true)).__gc = function()
    count = count + 1
    if count == at then kept = meanwhile() else renew() end
  end
end
require "moonferry.crossing" -- which a finalizer cannot load
collectgarbage("setpause", 0)
collectgarbage("setstepmul", 1e6)
collectgarbage()
renew()
local came = first()
collectgarbage("setpause", 200)
collectgarbage("setstepmul", 200)
return count, kept == nil or rawequal(kept, meanwhile()), rawequal(came, first())
"""


def crosses_at(point, first, meanwhile):
    """The first tensor of a state crosses, and in a finalizer at that point, where Lua allocates, another one."""
    count, is_known, is_same = mf.Lua().execute(FINALIZED_AT, point, lambda: first, lambda: meanwhile)
    assert is_known and is_same, point
    return count


@pytest.mark.parametrize("same", [False, True])
def test_a_finalizer_gets_a_tensor_while_the_first_one_crosses(same):
    first = mf.zeros(3)
    meanwhile = first if same else mf.zeros(4)
    last = crosses_at(-1, first, meanwhile)
    assert last > 5
    for point in range(1, last + 1):
        crosses_at(point, first, meanwhile)
