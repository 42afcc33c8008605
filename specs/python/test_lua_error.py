"""Errors that cross between Python and Lua."""

import traceback

import pytest

import moonferry as mf


@pytest.fixture
def lua():
    return mf.Lua()


def test_a_lua_error_has_message_value_and_stack(lua):
    with pytest.raises(mf.LuaError) as caught:
        lua.execute("local function inner() error('abc') end\ninner()", name="=chunk")
    error = caught.value
    assert error.message == "chunk:1: abc" == error.value
    assert "stack traceback:" in error.traceback and "inner" in error.traceback
    lines = str(error).splitlines()
    assert lines[:2] == ["chunk:1: abc", "stack traceback:"]
    assert "main chunk" in lines[2] and "error" in lines[-1]


@pytest.mark.parametrize("value", ["{code = 7}", "42", "nil", "true", "print", "python.none", "'\\255'"])
def test_error_values_of_any_type_survive(lua, value):
    with pytest.raises(mf.LuaError) as caught:
        lua.execute(f"value = {value} error(value, 0)")
    error = caught.value
    assert error.value == (b"\xff" if "255" in value else lua.eval("value"))


def test_a_table_thrown_through_python_is_the_same_table(lua):
    lua.execute("t = {} function throw() error(t) end")
    assert lua.eval("select(2, pcall(...)) == t", lambda: lua.globals().throw())
    with pytest.raises(mf.LuaError) as caught:
        lua.eval("(...)()", lambda: lua.globals().throw())
    assert caught.value.value == lua.globals().t


def test_tostring_of_an_error_object_is_the_message(lua):
    with pytest.raises(mf.LuaError, match="^thing\n") as caught:
        lua.execute("error(setmetatable({}, {__tostring = function() return 'thing' end}))")
    assert caught.value.message == "thing"
    with pytest.raises(mf.LuaError):
        lua.execute("error(setmetatable({}, {__tostring = function() error('worse') end}))")


def test_an_error_object_whose_tostring_fails_is_still_the_value(lua):
    with pytest.raises(mf.LuaError, match="the error object is a Lua table") as caught:
        lua.execute("e = setmetatable({}, {__tostring = function() error('no') end}) error(e)")
    assert caught.value.value == lua.eval("e")


def test_a_python_exception_is_the_same_object_on_the_other_side(lua):
    exception = KeyError("x")

    def fail():
        raise exception

    with pytest.raises(KeyError) as caught:
        lua.execute("local function step(f) local r = f() return r end\nreturn step(...) + 1", fail, name="=script")
    assert caught.value is exception
    text = "".join(traceback.format_exception(KeyError, exception, exception.__traceback__))
    assert "in fail" in text
    assert any("script:1:" in note for note in exception.__notes__)
    assert lua.eval("pcall(...)", fail) == (False, exception)
    assert lua.eval("select(2, pcall(...))", fail) is exception


def test_an_exception_through_many_levels(lua):
    call = lua.eval("function(f, ...) local r = f(...) return r end")

    def descend(n):
        return call(descend, n - 1) if n else 1 / 0

    with pytest.raises(ZeroDivisionError):
        descend(20)
    assert lua.eval("1") == 1


def test_lua_can_handle_a_python_exception_and_go_on(lua):
    assert lua.execute(
        "local ok, e = pcall(...) return ok, tostring(e):match('ZeroDivisionError') ~= nil", lambda: 1 / 0
    ) == (False, True)
    assert lua.execute("return xpcall(..., function(e) return 'handled' end)", lambda: 1 / 0) == (False, "handled")
    assert lua.execute("local ok, e = pcall(...) return pcall(error, e)", lambda: 1 / 0)[0] is False


def test_a_python_exception_can_be_thrown_again_in_lua(lua):
    with pytest.raises(ZeroDivisionError):
        lua.execute("local ok, e = pcall(...) error(e)", lambda: 1 / 0)


def test_a_lua_error_after_a_handled_exception_is_its_own(lua):
    with pytest.raises(mf.LuaError, match="index"):
        lua.execute("pcall(...) local x = nil; x = x.y", lambda: 1 / 0)


def test_errors_in_error_handling(lua):
    with pytest.raises(mf.LuaError):
        lua.execute("local ok, e = xpcall(error, function() error('again') end) error(e)")
    with pytest.raises(mf.LuaError, match="stack overflow|error in error"):
        lua.execute("local function f() return 1 + f() end f()")
    assert lua.eval("1") == 1


def test_base_exceptions_cross(lua):
    def leave():
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        lua.eval("(...)()", leave)


def test_a_program_without_debug_gets_no_stack(lua):
    lua.execute("debug = nil")
    with pytest.raises(mf.LuaError) as caught:
        lua.execute("error('abc')")
    assert "stack traceback" not in str(caught.value)


def test_classes():
    assert issubclass(mf.LuaSyntaxError, mf.LuaError) and issubclass(mf.LuaMemoryError, (mf.LuaError, MemoryError))
    assert issubclass(mf.LuaMemoryError, MemoryError) and issubclass(mf.LuaInterrupt, mf.LuaError)
