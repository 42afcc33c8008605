"""Which calls the stack of an error in Lua has: all of the call from Python, and none of others, or of Moonferry's."""

import pytest

import moonferry as mf

DEEP = "function(n, f) local function g(n) if n == 0 then f() end return 1 + g(n - 1) end local r = g(n) return r end"


@pytest.fixture
def lua():
    return mf.Lua()


def lines_of(call, *arguments):
    """The lines of the error that a call raises, from the innermost one."""
    with pytest.raises(mf.LuaError) as caught:
        call(*arguments)
    lines = [line.strip() for line in caught.value.traceback.splitlines()]
    assert lines[0] == "stack traceback:"
    return lines[1:]


def test_a_stack_in_the_text_of_an_error_has_the_innermost_call_last(lua):
    with pytest.raises(mf.LuaError) as caught:
        lua.execute("local function inner() error('x') end inner()", name="=chunk")
    assert [line.strip() for line in str(caught.value).splitlines()] == [
        "chunk:1: x",
        "stack traceback:",
        "chunk:1: in main chunk",
        "chunk:1: in function 'inner'",
        "[C]: in function 'error'",
    ]


@pytest.mark.parametrize("end", ["\n", "\r", "\f", "\x85", "\u2028"], ids=repr)
def test_a_name_may_have_ends_of_lines(lua, end):
    code = "local t = {[(...)] = function() error('x', 0) end} t[(...)]()"
    with pytest.raises(mf.LuaError) as caught:
        lua.execute("return load(...)", code, f"=a{end}b")(f"c{end}d")
    calls = [f"a{end}b:1: in main chunk", f"a{end}b:1: in function <a{end}b:1>", "[C]: in function 'error'"]
    assert str(caught.value) == "\n\t".join(["x\nstack traceback:", *calls])
    assert caught.value.traceback == "\n\t".join(["stack traceback:", *reversed(calls)])


@pytest.mark.parametrize("depth", [2, 8, 9, 10, 11, 12, 15, 20, 25, 35, 100, 10_000])
def test_a_deep_stack_ends_at_the_call_from_python(lua, depth):
    """Where LuaJIT leaves the middle of all calls out, what comes last is the outermost call of the other language."""
    deep = lua.eval(DEEP, name="=inner")
    fail, outer = lua.eval("function() error('x') end", name="=fail"), lua.eval(DEEP, name="=outer")
    alone = lines_of(deep, depth, fail)
    assert alone[:2] == ["[C]: in function 'error'", "fail:1: in function 'f'"]
    assert alone[-1] == "inner:1: in function <inner:1>"
    assert all(line == "..." or line.startswith("inner:1: in function") for line in alone[2:])
    assert len(alone) == depth + 4 if depth < 18 else 20 < len(alone) < 24
    nested = []

    def call():
        nested.extend(lines_of(deep, depth, fail))
        raise LookupError

    with pytest.raises(LookupError):
        outer(40, call)
    assert nested == alone if depth < 8 else nested == [*alone[:11], "..."]
    nested.clear()
    with pytest.raises(LookupError):
        mf.Lua().eval(DEEP)(40, call)
    assert nested == alone


METAMETHODS = {
    "__index": lambda value: value.x,
    "__newindex": lambda value: setattr(value, "x", 1),
    "__len": len,
    "__tostring": str,
    "__call": lambda value: value(),
}


@pytest.mark.parametrize("event", METAMETHODS)
def test_a_metamethod_is_the_outermost_call(lua, event):
    value = lua.eval("function(e) local p = newproxy(true) getmetatable(p)[e] = error return p end")(event)
    if event != "__newindex":
        (line,) = lines_of(METAMETHODS[event], value)
    table = lua.eval("function(e) return setmetatable({}, {[e] = function() error('x') end}) end", name="=own")(event)
    if event != "__len":  # LuaJIT has none of a table's
        assert lines_of(METAMETHODS[event], table) == [
            "[C]: in function 'error'",
            "own:1: in function <own:1>",
        ]
