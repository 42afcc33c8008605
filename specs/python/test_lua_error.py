"""Errors that cross between Python and Lua."""

import gc
import sys
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


def test_an_object_that_was_thrown_is_the_value(lua):
    thrown = [1]
    with pytest.raises(mf.LuaError) as caught:
        lua.execute("error(...)", thrown)
    assert caught.value.value is thrown


def test_an_object_that_was_closed_and_thrown_is_none(lua):
    """It is nil where it comes back into a program of Lua's."""
    lua.execute("py = require 'moonferry.python' function throw() local o = py.list {} py.close(o) error(o) end")
    count = 5000
    gc.collect()
    before = sys.getrefcount(None)
    for _ in range(count):
        with pytest.raises(mf.LuaError, match="^the error object is a Lua userdata\n") as caught:
            lua.eval("throw()")
        assert caught.value.value is None
    gc.collect()
    assert abs(sys.getrefcount(None) - before) < count / 2  # others have some, too
    code = "local ok, e = pcall(py.eval 'lambda f: f()', throw) return ok, e == nil"
    assert lua.execute(code) == (False, True)


def test_an_error_without_a_stack_takes_no_reference_of_none(lua):
    table, count = lua.table(), 5000
    gc.collect()
    before = sys.getrefcount(None)
    for _ in range(count):
        with pytest.raises(mf.LuaError, match="NaN"):
            table[float("nan")] = 1
    gc.collect()
    assert abs(sys.getrefcount(None) - before) < count / 2  # others have some, too


def test_a_table_thrown_through_python_is_the_same_table(lua):
    lua.execute("t = {} function throw() error(t) end")
    assert lua.eval("select(2, pcall(...)) == t", lambda: lua.globals().throw())
    with pytest.raises(mf.LuaError) as caught:
        lua.eval("(...)()", lambda: lua.globals().throw())
    assert caught.value.value == lua.globals().t


@pytest.mark.parametrize(("encoding", "message"), [("UTF-8", "'x'"), ("UTF-8", "'\\255'"), (None, "'x'")])
def test_text_thrown_through_python_is_an_exception(encoding, message):
    lua = mf.Lua(encoding=encoding)
    throw = lua.eval(f"function() error({message}, 0) end")
    assert lua.eval("type(select(2, pcall(...))) == 'userdata'", lambda: throw())


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


@pytest.mark.parametrize("code", ["error('x')", "error({})", "({})[nil] = 1", "(...)[0 / 0] = 1"])
def test_the_context_of_a_lua_error_is_what_is_being_handled(lua, code):
    """As of any exception that Python raises, which its traceback shows."""
    handled, table = KeyError("handled"), lua.table()
    with pytest.raises(mf.LuaError) as caught:
        try:
            raise handled
        except KeyError:
            lua.execute(code, table)
    assert caught.value.__context__ is handled and not caught.value.__suppress_context__
    with pytest.raises(mf.LuaError) as caught:
        lua.execute(code, table)
    assert caught.value.__context__ is None


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


@pytest.mark.parametrize("code", ["debug = nil", "debug = 1", "debug.traceback = nil", "debug = {}"])
def test_a_program_without_debug_gets_no_stack(lua, code):
    lua.execute(code)
    with pytest.raises(mf.LuaError) as caught:
        lua.execute("error('abc')")
    assert "stack traceback" not in str(caught.value)


# How Lua gets into Python, and the Python code that then calls the function `boom` of the same state.
INNER = {
    "a call": "return o(2)",
    "a method": "return python.as_attrgetter(o).method(o)",
    "a property": "return python.as_attrgetter(o).property",
    "an attribute that is made": "return python.as_attrgetter(o).missing",
    "an item": "return python.as_itemgetter(o)[1]",
    "an attribute that is set": "python.as_attrgetter(o).property = 1 return 1",
    "an operator": "return o + 1",
    "a length": "return #o",
    "a text": "return #tostring(o)",
    "a loop": "for v in python.iter(o) do return v end",
    "a loop with numbers": "for i, v in python.enumerate(o) do return v end",
}


class Calls:
    """Each way into it calls Lua, keeps the stack that Lua's error tells, and gives 1."""

    def __init__(self, boom):
        self.__dict__.update(boom=boom, stacks=[])

    def __call__(self, *ignored):
        with pytest.raises(mf.LuaError) as caught:
            self.boom()
        self.stacks.append(caught.value.traceback)
        return 1

    method = __getitem__ = __add__ = __len__ = __next__ = __call__
    property = property(__call__, __call__)

    def __getattr__(self, name):
        return self()

    def __setattr__(self, name, value):
        self()

    def __iter__(self):
        return self

    def __str__(self):
        return "x" * self()


@pytest.mark.parametrize("handlers", [False, True], ids=["", "handlers"])
@pytest.mark.parametrize("way", INNER)
def test_a_stack_ends_at_the_call_from_python(way, handlers):
    handled = (lambda o, n: getattr(o, n) if isinstance(n, str) else o[n], lambda o, n, v: setattr(o, n, v))
    lua = mf.Lua(attribute_handlers=handled if handlers else None)
    calls = Calls(lua.eval("function() local function innermost() error('x') end innermost() end"))
    outer = lua.execute(f"local function outer(o) {INNER[way]} end return function(o) local r = outer(o) return r end")
    assert outer(calls) == 1
    assert len(calls.stacks) == 1
    lines = calls.stacks[0].splitlines()
    assert lines[0] == "stack traceback:" and "error" in lines[1] and "innermost" in lines[2]
    assert len(lines) == 4, calls.stacks[0]


@pytest.mark.parametrize("way", INNER)
def test_a_stack_of_one_call_ends_there_too(lua, way):
    """Python calls the very function that fails."""
    calls = Calls(lua.eval("error"))
    outer = lua.execute(f"local function outer(o) {INNER[way]} end return function(o) local r = outer(o) return r end")
    assert outer(calls) == 1
    (stack,) = calls.stacks
    assert len(stack.splitlines()) == 2, stack


def test_a_stack_goes_on_below_a_function_of_lua_s_own_library(lua):
    with pytest.raises(mf.LuaError) as caught:
        lua.execute("local function outer() local r = ('x'):gsub('x', function() error() end) return r end outer()")
    assert [name for name in ("'gsub'", "'outer'", "main chunk") if name not in caught.value.traceback] == []


def test_a_stack_may_be_as_deep_as_lua_s(lua):
    """Each of its calls takes three places of Lua's stack, which has 65,500."""
    deep = lua.eval(
        "function(n) local function f(n) if n == 0 then error('deep', 0) end return 1 + f(n - 1) end f(n) end"
    )
    with pytest.raises(mf.LuaError, match="^deep\nstack traceback:\n") as caught:
        deep(20_000)
    assert caught.value.message == "deep" and len(caught.value.traceback.splitlines()) > 20


def test_a_stack_ends_there_at_any_depth(lua):
    """Python and Lua call each other in turn; each error tells of the last Lua function alone."""
    stacks = []

    def descend(n):
        try:
            call(descend, n - 1)
        except mf.LuaError as error:
            stacks.append(error.traceback.splitlines())
            raise

    call = lua.eval("function(f, n) if n == 0 then error('x') end local r = f(n) return r end")
    with pytest.raises(mf.LuaError):
        descend(5)
    assert len(stacks[0]) == 3, stacks[0]


def test_a_stack_begins_at_the_users_own_call(lua):
    """Moonferry's own files are below what a user can mend. A file of the same name elsewhere is the user's."""
    lua.execute("mf = require 'moonferry' t = mf.zeros(3)")
    with pytest.raises(mf.LuaError, match="index 9 is out of range for axis 0") as caught:
        lua.execute("local function mine() local e = t:get(9) return e end local x = mine()", name="=chunk")
    lua.execute("t:close()")
    lines = [line.strip() for line in caught.value.traceback.splitlines()]
    assert lines == ["stack traceback:", "chunk:1: in function 'mine'", "chunk:1: in main chunk"]
    theirs = "local function own() error('x') end own()"
    with pytest.raises(mf.LuaError) as caught:
        lua.execute(theirs, name="@/elsewhere/moonferry/errors.lua")
    assert [line.strip().split(": ", 1)[1] for line in caught.value.traceback.splitlines()[1:]] == [
        "in function 'error'",
        "in function 'own'",
        "in main chunk",
    ]


def test_a_stack_of_moonferry_alone_is_left_out(lua):
    zeros = lua.eval("require('moonferry').zeros")
    with pytest.raises(mf.LuaError, match=r"^zeros: shape\[1\] is -1; at least 0 expected$") as caught:
        zeros(-1)
    assert caught.value.traceback is None


@pytest.mark.parametrize("loaded", ["nil", "7", "{}", "{misuse = 7}", "{misuse = print}", "setmetatable({}, {})"])
def test_a_stack_is_whole_where_no_file_is_known(lua, loaded):
    lua.execute(f"package.loaded['moonferry.errors'] = {loaded}")
    with pytest.raises(mf.LuaError) as caught:
        lua.execute("local function own() error('x') end own()", name="=chunk")
    assert [line.strip() for line in caught.value.traceback.splitlines()] == [
        "stack traceback:",
        "[C]: in function 'error'",
        "chunk:1: in function 'own'",
        "chunk:1: in main chunk",
    ]


def test_an_exception_tells_the_lua_functions_that_it_went_through(lua):
    """The entry into Python at the top of the stack is where it was raised, not where it ends."""
    read = lua.execute("local function inner(o) local v = o.missing return v end return inner", name="=chunk")
    with pytest.raises(AttributeError) as caught:
        read(object())
    lines = [line.strip() for line in caught.value.__notes__[0].splitlines()]
    assert lines == ["Lua stack traceback:", "[C]: in function '__index'", "chunk:1: in function <chunk:1>"]


MEMORY = "not enough memory"


@pytest.mark.parametrize(
    "code",
    [
        f"error('the shop has {MEMORY} sticks')",
        f"error('the shop has {MEMORY}')",
        f"error('the shop: {MEMORY}', 0)",
        f"error('1, {MEMORY}', 0)",
        f"error(': {MEMORY}', 0)",
        f"error('{MEMORY}\\n')",
    ],
)
def test_an_error_that_mentions_memory_is_an_ordinary_one(lua, code):
    with pytest.raises(mf.LuaError, match=MEMORY) as caught:
        lua.execute(code)
    assert type(caught.value) is mf.LuaError and caught.value.traceback is not None


@pytest.mark.parametrize("code", [f"x = = '{MEMORY}'", MEMORY, f"x = '{MEMORY}"])
def test_code_that_mentions_memory_is_no_memory_error(lua, code):
    with pytest.raises(mf.LuaSyntaxError, match="memory") as caught:
        lua.execute(code, name=f"={MEMORY}")
    assert type(caught.value) is mf.LuaSyntaxError


@pytest.mark.parametrize(
    "code",
    [
        "(...)()",
        "local ok, e = pcall(...) error(e)",
        "local ok, e = pcall(...) error(e, 0)",
        "coroutine.wrap(...)()",
        "local ok, e = coroutine.resume(coroutine.create(...)) error(e, 0)",
    ],
)
def test_a_memory_error_that_is_thrown_on_stays_one(code):
    lua = mf.Lua(max_memory=100_000)
    with pytest.raises(mf.LuaMemoryError):
        lua.execute(code, lua.eval("function() return ('x'):rep(1e6) end"))


def test_classes():
    assert issubclass(mf.LuaSyntaxError, mf.LuaError) and issubclass(mf.LuaMemoryError, (mf.LuaError, MemoryError))
    assert issubclass(mf.LuaMemoryError, MemoryError) and issubclass(mf.LuaInterrupt, mf.LuaError)


@pytest.mark.parametrize("code", [f"error('1: {MEMORY}', 0)", f"error('{MEMORY}', 0)"])
def test_what_says_no_more_than_a_line_and_that_memory_ended_is_a_memory_error(lua, code):
    with pytest.raises(mf.LuaMemoryError):
        lua.execute(code)


class Refusing(Exception):
    """Takes no attributes."""

    def __setattr__(self, name, value):
        raise KeyError(name)


class Seeing(Exception):
    def __setattr__(self, name, value):
        super().__setattr__("seen", name)
        super().__setattr__(name, value)


class Noted(Exception):
    def __init__(self):
        self.__notes__ = ["a note of its own"]


@pytest.mark.parametrize("kind, others", [(KeyError, []), (Seeing, []), (Noted, ["a note of its own"])])
def test_an_exception_keeps_its_notes_and_gets_one_for_each_way_through_lua(lua, kind, others):
    error, call = kind(), lua.eval("function(f) f() end")

    def fails():
        raise error

    with pytest.raises(kind) as caught:
        call(lambda: call(fails))
    assert caught.value is error
    assert [note.splitlines()[0] for note in error.__notes__] == others + ["Lua stack traceback:"] * 2
    assert getattr(error, "seen", "__notes__") == "__notes__"


def test_an_exception_that_takes_no_notes_crosses_all_the_same(lua):
    error = Refusing("why")

    def fails():
        raise error

    for _ in range(2):
        with pytest.raises(Refusing) as caught:
            lua.eval("function(f) f() end")(fails)
        assert caught.value is error and not hasattr(error, "__notes__")


def test_an_error_that_has_lost_its_value_is_an_exception_to_its_state(lua, monkeypatch):
    monkeypatch.delattr(mf.LuaError, "value")

    def throw():
        try:
            lua.execute("error({})")
        except mf.LuaError as error:
            del error.value
            raised.append(error)
            raise

    raised, seen = [], []
    lua.eval("(function(throw, see) see(select(2, pcall(throw))) end)(...)", throw, lambda e: seen.extend(iter([e])))
    assert seen[0] is raised[0]
    with pytest.raises(mf.LuaError) as info:
        lua.eval("(...)()", throw)
    assert info.value is raised[1]


def test_an_exception_that_no_lua_function_saw_gets_no_note(lua):
    with pytest.raises(UnicodeEncodeError) as caught:
        lua.eval("function(x) end")("\ud800")
    assert not hasattr(caught.value, "__notes__")


def test_a_function_of_luas_that_holds_a_userdata_may_fail(lua):
    with pytest.raises(mf.LuaError, match="bad argument"):
        lua.execute("io.tmpfile():lines(newproxy())()")


def test_an_error_without_a_stack_of_its_own_has_no_other_one(lua):
    with pytest.raises(mf.LuaError, match="stack traceback"):
        lua.execute("local function f() error 'with a stack' end f()")
    with pytest.raises(TypeError, match="no length") as raised:
        len(lua.eval("function() end"))
    assert not getattr(raised.value, "__notes__", [])


@pytest.mark.parametrize("length, error", [("'x'", TypeError), ("1.5", TypeError), ("-1", ValueError)])
def test_a_length_that_is_none_is_an_error_of_its_own(lua, length, error):
    value = lua.eval(
        f"(function() local u = newproxy(true) getmetatable(u).__len = function() return {length} end return u end)()"
    )
    with pytest.raises(error):
        len(value)


def test_a_function_in_a_class_stays(lua):
    """It is read there as it is, and one that was made alone is not given back by that."""
    kind = type("Kind", (), {"f": lua.eval("function(x) return x end")})
    for _ in range(20):
        assert kind.f(3) == 3 and kind().f(4) == 4
    assert sys.getrefcount(vars(kind)["f"]) >= 2
