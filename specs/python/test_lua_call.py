"""Calls between Python and Lua: arguments, results, coroutines, the ways in."""

import ctypes
import functools
import gc
import inspect
import subprocess
import sys

import allocated
import pytest

import moonferry as mf
import small_stack

CALLABLE = "setmetatable({}, {__call = function(self, x) return x end})"


@pytest.fixture
def lua():
    return mf.Lua()


def test_results_are_none_one_value_or_a_tuple(lua):
    assert lua.eval("function() end")() is None
    assert lua.execute("return") is None
    assert lua.eval("function() return nil end")() is None
    assert lua.eval("1, nil, 'x'") == (1, None, "x")
    assert lua.eval("...", 1, None) == (1, None)
    assert lua.execute("return ...", *range(100)) == tuple(range(100))


def test_many_arguments(lua):
    count = lua.eval("function(...) return select('#', ...) end")
    for n in (0, 1, 11, 12, 13, 20, 250, 7000):
        assert count(*[1.5] * n) == n == count(*["x"] * n)
    with pytest.raises(mf.LuaError, match="too many"):
        count(*[1] * 100_000)
    assert len(lua.eval("unpack", *[])(lua.table_from(range(5000)))) == 5000


def test_lua_functions_take_no_keywords(lua):
    with pytest.raises(TypeError, match="keyword"):
        lua.eval("print")(x=1)
    with pytest.raises(TypeError, match="keyword"):
        lua.eval("print").__call__(x=1)


def test_functions_work_where_python_wants_callables(lua):
    negative = lua.eval("function(x) return -x end")
    assert sorted([3, 1, 2], key=negative) == [3, 2, 1]
    assert list(map(negative, [1, 2])) == [-1, -2]
    assert negative.__call__(5) == -5


def test_compile_and_execute(lua):
    f = lua.compile("local a = ... return a + 1", name="adder")
    assert f(1) == 2
    with pytest.raises(mf.LuaSyntaxError, match="near '<'"):
        lua.compile("<")
    with pytest.raises(mf.LuaSyntaxError, match="error loading code"):
        lua.eval("1 +")
    assert lua.execute("return debug.getinfo(1, 'S').source", name="=here") == "=here"
    assert lua.eval(b"1 + 1") == 2 == lua.eval(bytearray(b"2"))
    with pytest.raises(TypeError):
        lua.eval(5)
    with pytest.raises(mf.LuaSyntaxError):
        lua.compile(b"\x1bLJ", mode="t")


def test_require_and_globals(lua):
    assert lua.require("math").floor(2.5) == 2
    lua.globals().answer = 42
    assert lua.eval("answer") == 42
    with pytest.raises(mf.LuaError, match="no_such_module"):
        lua.require("no_such_module")
    with pytest.raises(TypeError):
        lua.require(5)
    lua.globals().require = None
    with pytest.raises(mf.LuaError, match="not defined"):
        lua.require("math")


def test_version(lua):
    assert lua.lua_version == (5, 1) and lua.lua_implementation.startswith("LuaJIT 2.1")


def test_a_coroutine_is_a_generator(lua):
    count = lua.eval("function(n) for i = 1, n do coroutine.yield(i, -i) end return 'end' end")
    assert list(count.coroutine(2)) == [(1, -1), (2, -2), "end"]
    running = count.coroutine(3)
    assert bool(running) and next(running) == (1, -1)
    made = lua.eval("coroutine.create(...)", count)
    assert [list(made(1)), list(made(1))] == [[(1, -1), "end"]] * 2
    assert mf.lua_type(running) == "thread"


def test_send_gives_values_to_yield(lua):
    echo = lua.eval("function(a) while true do a = coroutine.yield(a) end end")
    co = echo.coroutine("first")
    with pytest.raises(TypeError, match="just-started"):
        co.send(1)
    assert [co.send(None), co.send(2), co.send((3, 4)), co.send(None)] == ["first", 2, 3, None]


def test_what_is_sent_is_held_as_often_as_before(lua):
    coroutine = lua.eval("function(...) while true do coroutine.yield(...) end end").coroutine(1)
    next(coroutine)
    for value in ((1, object()), object(), [1]):
        before = sys.getrefcount(value)
        coroutine.send(value)
        coroutine.send(None)
        for _ in range(2):
            lua.execute("collectgarbage() collectgarbage()")
            gc.collect()
        assert sys.getrefcount(value) == before, value


def test_a_coroutine_that_has_ended(lua):
    co = lua.eval("function() end").coroutine()
    assert list(co) == [] and not co
    for _ in range(2):
        with pytest.raises(StopIteration):
            co.send(None)


def test_an_error_that_meets_the_end_of_a_coroutine_leaves_nothing_to_resume(lua):
    """pcall answers before the first instruction after the yield, so that the error comes late."""
    coroutine = lua.eval("function() return pcall(coroutine.yield, 1) end").coroutine()
    assert next(coroutine) == 1
    with pytest.raises(ValueError, match="late"):
        coroutine.throw(ValueError("late"))
    assert not coroutine and list(coroutine) == []


def test_a_coroutine_that_fails(lua):
    co = lua.eval("function() coroutine.yield(1) error('inside') end").coroutine()
    assert next(co) == 1
    with pytest.raises(mf.LuaError, match="inside") as caught:
        next(co)
    assert "stack traceback" in str(caught.value)
    assert not co and list(co) == []


def test_a_coroutine_cannot_be_resumed_from_within(lua):
    box = []
    co = lua.eval("function(resume) coroutine.yield(resume()) end").coroutine(lambda: next(box[0]))
    box.append(co)
    with pytest.raises(mf.LuaError, match="running"):
        next(co)
    box.clear()


def test_python_can_call_lua_from_within_a_coroutine(lua):
    inner = lua.eval("function(x) return x * 2 end")
    co = lua.eval("function(f) for i = 1, 3 do coroutine.yield(f(i)) end end").coroutine(lambda i: inner(i) + 1)
    assert list(co) == [3, 5, 7]


def test_deep_recursion_through_both_languages_ends_in_an_error(lua):
    lua.globals().back = lambda n: lua.globals().forth(n)
    lua.execute("function forth(n) return back(n + 1) end")
    with pytest.raises(RecursionError):
        lua.globals().forth(0)
    assert lua.eval("1 + 1") == 2


@pytest.mark.parametrize("stack_size", [256 * 1024, 2048 * 1024])
def test_recursion_ends_before_the_c_stack_does(lua, stack_size):
    found = []
    forth = lua.eval("function(back, n) return 1 + back(n + 1) end")
    across = lua.eval("function(back, n) return coroutine.wrap(function() return 1 + back(n + 1) end)() end")

    def recurse():
        for function in (forth, across):
            try:
                call = functools.partial(function, lambda n: call(n))  # noqa: B023
                call(0)
            except RecursionError as error:
                found.append(str(error))

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        small_stack.call(stack_size, recurse)
    finally:
        sys.setrecursionlimit(before)
    assert len(found) == 2
    assert all("recursion depth" in text for text in found)
    assert lua.eval("1 + 1") == 2


def test_python_is_not_called_where_the_c_stack_has_little_room(lua):
    """Each level of gsub takes kilobytes of it; nothing but the call at the end asks whether there is any left."""
    deep = lua.eval("""function(n, call)
      local function down(k)
        if k == 0 then return call() end
        return (("x"):gsub("x", function() return down(k - 1) end))
      end
      return pcall(down, n)
    end""")
    found = []

    def descend():
        for n in range(150):
            found.append(deep(n, lambda: "y"))
            if not found[-1][0]:
                break

    small_stack.call(256 * 1024, descend)
    assert len(found) > 3 and found[:-1] == [(True, "y")] * (len(found) - 1)
    assert found[-1][0] is False and "C stack overflow" in found[-1][1]
    assert lua.eval("1 + 1") == 2


def test_no_keywords_are_none(lua):
    function, table = lua.eval("function(x) return x end"), lua.eval(CALLABLE)
    factory = lua.eval("coroutine.create(function(x) coroutine.yield(x) end)")
    assert function(*(1,), **{}) == table(*(1,), **{}) == 1
    assert list(factory(*(1,), **{})) == [1]
    for callee in (function, table, factory):
        with pytest.raises(TypeError, match="takes no keyword arguments"):
            callee(x=1)


@pytest.mark.skipif(not hasattr(ctypes.pythonapi, "PyObject_Vectorcall"), reason="no function of this CPython's")
def test_no_names_of_keywords_are_none(lua):
    vectorcall = ctypes.pythonapi.PyObject_Vectorcall
    vectorcall.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_size_t, ctypes.py_object]
    vectorcall.restype = ctypes.py_object
    assert vectorcall(lua.eval("function(x) return x end"), None, 0, ()) is None


@pytest.mark.parametrize("count", [0, 1, 40])  # with so many the call has a frame of its own in Lua
def test_a_call_without_results_takes_no_reference_of_none(lua, count):
    before = sys.getrefcount(None)
    for callee in (lua.eval("function() end"), lua.eval("setmetatable({}, {__call = function() end})")):
        for _ in range(500):
            assert callee(*range(count)) is None
    assert abs(sys.getrefcount(None) - before) < 400


def test_a_call_of_a_table_leaves_nothing(lua):
    table, arguments = lua.eval(CALLABLE), tuple(range(10))
    assert allocated.blocks_left_by(lambda: table(*arguments)) < 50


BEGUN = {
    "runs": "co = coroutine.create(function() f(co) end) coroutine.resume(co)",
    "has resumed the one that runs": "local inner = coroutine.create(function() f(co) end)"
    " co = coroutine.create(function() coroutine.resume(inner) end) coroutine.resume(co)",
    "has yielded": "co = coroutine.create(coroutine.yield) coroutine.resume(co, 5) f(co)",
    "has ended": "co = coroutine.create(tostring) coroutine.resume(co, 5) f(co)",
    "has failed": "co = coroutine.create(error) coroutine.resume(co, 'why') f(co)",
}


@pytest.mark.parametrize("how", BEGUN)
def test_a_coroutine_that_has_begun_is_not_one_to_begin(lua, how):
    seen = []
    lua.execute(f"local f, co = ... {BEGUN[how]}", seen.append)
    assert type(seen[0]).__name__ == "LuaThread"
    assert type(lua.eval("coroutine.create(print)")).__name__ == "LuaCoroutineFunction"


def test_a_coroutine_that_python_was_given_can_be_begun_by_lua(lua):
    code = "local f = ... local co = coroutine.create(function(x) return x + 1 end) f(co)"
    assert lua.execute(f"{code} return coroutine.resume(co, 4)", lambda coroutine: None) == (True, 5)


@pytest.mark.parametrize(
    ("encoding", "parameters", "signature"),
    [
        ("UTF-8", "from, class", "(from, class, /, *_more)"),
        ("UTF-8", "_, _, __", "(_, __, ___, /, *_more)"),
        ("UTF-8", "_more", "(__more, /, *_more)"),
        ("UTF-8", "é, →, x", "(é, _, x, /, *_more)"),
        ("latin-1", "é", "(é, /, *_more)"),
        (None, "é, a, a", "(é, a, _a, /, *_more)"),
    ],
)
def test_a_signature_has_names_that_python_can_have(encoding, parameters, signature):
    function = mf.Lua(encoding=encoding).eval(f"function({parameters}) end")
    assert str(inspect.signature(function)) == signature


def test_a_signature_leaves_no_names():
    function = mf.Lua().eval("function(same, same, →→→, same) end")
    assert allocated.blocks_left_by(lambda: inspect.signature(function)) < 50


def test_parameters_are_named_whatever_is_no_text():
    lua = mf.Lua(encoding=None, source_encoding="latin-1")
    assert str(inspect.signature(lua.eval("function(é, b) end"))) == "(é, b, /, *_more)"


def test_a_static_method_of_a_c_type_is_bound_to_no_object(lua):
    with pytest.raises(TypeError) as python_s:
        str.maketrans(None)
    for call in ("f(python.none)", "f(nil, python.args{})", "f(python.args{python.none})"):
        with pytest.raises(TypeError) as error:
            lua.execute(f"local f = python.builtins.str.maketrans {call}")
        assert str(error.value) == str(python_s.value)
    assert "__bool__" in lua.eval("python.none:__dir__()")


def test_two_keys_of_a_table_are_no_keyword_twice():
    """The codec makes one name of both."""
    lua = mf.Lua(encoding="utf-7")
    with pytest.raises(TypeError, match="gave the keyword 'a' for two keys"):
        lua.execute(b"python.args{['a'] = 1, ['+AGE-'] = 2}")
    assert lua.eval(b"(...)(python.args{['+AGE-'] = 2})", dict) == {"a": 2}


def test_an_object_is_called_through_its_metatable_with_what_comes_behind_it(lua):
    call = "getmetatable(python.builtins).__call(python.as_function(...), 1)"
    assert lua.eval(call, lambda *arguments: len(arguments)) == 1


@pytest.mark.parametrize(
    "name, told",
    [
        (".foo", r'python has no "foo"; python.builtins has'),
        ("['eval\\0x']", "python has no name that contains a NUL"),
        (".None", r'python has no "None"; use python.none'),
        ("[1]", r'python has no "number"; python.builtins has'),
        ("[{}]", r'python has no "table"; python.builtins has'),
    ],
)
def test_what_the_table_python_lacks_is_named(lua, name, told):
    with pytest.raises(mf.LuaError, match=told):
        lua.execute(f"return python{name}")


def test_an_int_that_lua_has_no_number_for_leaves_nothing(lua):
    call = lua.eval("function(f) for _ = 1, 4000 do assert(not pcall(f)) end collectgarbage() end")
    assert allocated.blocks_left_by(lambda: call(lambda: 2**5000), rounds=1) < 2000
    with pytest.raises(OverflowError, match="an int of 5001 bits is"):
        lua.eval("(...)()", lambda: 2**5000)


def test_the_text_of_an_error_of_lua_s_that_comes_back_leaves_nothing(lua):
    fails = lua.eval("function(i) error('number ' .. i, 0) end")
    call = lua.eval("function(f) for i = 1, 4000 do assert(not pcall(f, i)) end collectgarbage() end")
    assert allocated.blocks_left_by(lambda: call(lambda i: fails(i)), rounds=1) < 2000


WITHOUT_MEMORY = """
import sys
import moonferry as mf
from _testcapi import remove_mem_hooks, set_nomemory
lua, n, got = mf.Lua(), 2**5000, []
call = lua.eval(sys.argv[1])
def f(*arguments):
    return n if arguments == () else arguments
for nth in range(100):
    set_nomemory(nth, nth + 1)
    try:
        result = call(f)
    except (MemoryError, OverflowError) as error:
        result = error
    finally:
        remove_mem_hooks()
    got.append("no memory" if isinstance(result, MemoryError) else str(result))
print(*sorted(set(got)), sep="\\n")
"""


@pytest.mark.parametrize(
    "code, told",
    [
        ("function(f) return f() end", "an int of 5001 bits is beyond 2^53, up to which Lua's numbers are exact"),
        ("function(f) local a = python.args{1, 2, 3} return f(a, a, a, a) end", str((1, 2, 3) * 4)),
    ],
)
def test_a_call_that_has_no_memory_says_so(code, told):
    pytest.importorskip("_testcapi")
    command = [sys.executable, "-X", "faulthandler", "-c", WITHOUT_MEMORY, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (sorted(done.stdout.splitlines()), done.stderr) == (sorted(["no memory", told]), "")
