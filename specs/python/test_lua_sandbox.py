"""What a sandboxed state keeps from its scripts."""

import sys
import threading
import types

import pytest

import moonferry as mf


@pytest.fixture
def box():
    state = mf.Lua(sandbox=True)
    yield state
    for _ in range(3):
        state.gccollect()


ABSENT = "io os ffi package require module debug jit python dofile loadfile getfenv setfenv newproxy gcinfo"


@pytest.mark.parametrize("name", [*ABSENT.split(), "collectgarbage"])
def test_what_is_not_there(box, name):
    assert box.eval(name) is None


def test_what_is_there(box):
    code = "return ('x'):rep(3), table.concat({1, 2}), math.floor(2.5), bit.band(6, 3)"
    assert box.execute(code) == ("xxx", "12", 2, 2)
    assert box.eval("coroutine.wrap(function() coroutine.yield(5) end)()") == 5
    assert box.eval("pcall(error, 'x')") == (False, "x")
    assert box.eval("string.dump") is None
    assert box.eval("getmetatable('').__index.dump") is None


def test_code_can_be_loaded_as_text_alone(box):
    assert box.eval("loadstring('return 1 + 1')()") == 2
    assert box.eval("load('return ...')(7)") == 7
    assert box.execute("local n = 0 return load(function() n = n + 1 return ({'return ', '4'})[n] end)()") == 4
    assert box.eval("loadstring('return x', 'name')") is not None
    assert box.execute("local f = load('x = 5', 'n', 't', {}) f() return x") is None
    bytecode = mf.Lua(encoding=None).eval("string.dump(function() return 7 end)")
    for loader in ("load", "loadstring"):
        result = box.eval(f"{loader}(...)", bytecode)
        assert result == (None, "attempt to load chunk with wrong mode")
    with pytest.raises(mf.LuaSyntaxError):
        box.eval(bytecode)
    with pytest.raises(mf.LuaSyntaxError):
        box.compile(bytecode, mode="b")


def test_private_attributes_of_objects_are_out_of_reach(box):
    class Thing:
        public = 1
        _private = 2

    assert box.eval("(...).public", Thing()) == 1
    for name in ("_private", "__class__", "__dict__"):
        with pytest.raises(AttributeError, match="sandbox"):
            box.eval(f"(...).{name}", Thing())
    with pytest.raises(AttributeError, match="sandbox"):
        box.eval("(...).__globals__", lambda: None)


def fails():
    raise ValueError("no")


def test_exceptions_lead_nowhere_either(box):
    assert box.eval("select(2, pcall(...)).message", fails) == "no"
    for name in ("__traceback__", "__class__", "value.__traceback__", "_x"):
        with pytest.raises(AttributeError, match="sandbox"):
            box.execute(f"local ok, e = pcall(...) return e.{name}", fails)


def test_an_attribute_filter_is_asked_about_exceptions_too():
    asked = []

    def only_args(obj, name, setting):
        asked.append((type(obj), name, setting))
        if name != "args":
            raise AttributeError("filtered")
        return name

    state = mf.Lua(attribute_filter=only_args)
    assert state.execute("local ok, e = pcall(...) return e.args", fails) == ("no",)
    with pytest.raises(AttributeError, match="filtered"):
        state.execute("local ok, e = pcall(...) return e.with_traceback", fails)
    assert asked == [(ValueError, "args", False), (ValueError, "with_traceback", False)]
    handled = mf.Lua(attribute_handlers=(lambda obj, name: [name], None))
    assert handled.execute("local ok, e = pcall(...) return e.code", fails) == ["code"]
    assert mf.Lua(encoding=None).execute(b"local ok, e = pcall(...) return e.args", fails) == ("no",)


def test_frames_and_code_are_out_of_reach(box):
    def generator():
        yield sys._getframe()

    frame = next(generator())
    objects = {"gi_frame": generator(), "gi_code": generator(), "f_globals": frame, "f_back": frame, "tb_frame": None}
    objects["co_consts"] = frame.f_code
    for name, value in objects.items():
        with pytest.raises(AttributeError, match="sandbox"):
            box.eval(f"(...).{name}", value if value is not None else types.TracebackType(None, frame, 0, 1))


def test_format_reads_no_attributes():
    box = mf.Lua(sandbox=True, encoding=None)
    read = box.eval(b"function(s, name) return s[name] end")
    for text in ("{0._x}", type("Text", (str,), {})("{0._x}"), str):
        view = mf.luajit.as_attrgetter(text)
        for name in (b"format", b"format_map"):
            with pytest.raises(AttributeError, match="sandbox"):
                read(view, name)


NESTING = [
    "local function f(n) return coroutine.wrap(function() return f(n + 1) end)() end return f(0)",
    "local function f(n) return coroutine.resume(coroutine.create(f), n + 1) end error(select(-1, f(0)))",
    "local function f(s) return (s:gsub('.', f)) end return f('x')",
    "local m = {} m.__tostring = function(t) return ('%s!'):format(t) end f = ('%s'):format(setmetatable(m, m))",
    "local function f() table.sort({1, 2, 3}, f) return true end f()",
    "local function f() load(f) return 1 end f()",
]


@pytest.mark.parametrize("code", NESTING)
def test_what_nests_on_the_c_stack_fails_before_that_ends(box, code):
    failed = []

    def run():
        with pytest.raises(mf.LuaError):
            box.execute(code)
        failed.append(code)

    before = threading.stack_size(256 * 1024)
    thread = threading.Thread(target=run)
    thread.start()
    threading.stack_size(before)
    thread.join()
    assert failed == [code]
    assert box.eval("1 + 1") == 2


def test_what_cannot_nest_too_deeply_works_as_ever(box):
    assert box.eval("('abc'):gsub('b', string.upper)") == ("aBc", 1)
    assert box.eval("('%s %d'):format('x', 5)") == "x 5"
    assert box.execute("local t = {3, 1, 2} table.sort(t) return unpack(t)") == (1, 2, 3)
    code = "local s = 0 for x in coroutine.wrap(function() for i = 1, 4 do coroutine.yield(i) end end) do s = s + x end"
    assert box.execute(code + " return s") == 10
    code = "local co = coroutine.create(function(...) error({coroutine.yield(...)}) end) coroutine.resume(co, 1)"
    assert box.execute(code + " local ok, e = coroutine.resume(co, 7) return ok, e[1]") == (False, 7)


def test_tensors_stay_python_objects(box):
    t = mf.ones((3,))
    assert box.eval("type(...)", t) == "userdata"
    assert box.eval("(...)[2]", t) == 1
    assert box.eval("...", t) is t


def test_integers_with_a_suffix_stay_lua_objects(box):
    assert mf.lua_type(box.eval("1LL")) == "cdata"


def test_limits_go_with_it():
    box = mf.Lua(sandbox=True, interruptible=True, max_memory=1 << 20)
    with pytest.raises(mf.LuaMemoryError):
        box.execute("local t = {} while true do t[#t + 1] = {} end")
    with pytest.raises(TimeoutError), box.time_limit(0.05):
        box.execute("while true do end")
