"""What a sandboxed state keeps from its scripts."""

import pathlib
import re
import sys
import types

import pytest

import moonferry as mf
import small_stack


@pytest.fixture
def box():
    state = mf.Lua(sandbox=True)
    yield state
    for _ in range(3):
        state.gccollect()


# What leads out of a state that is no sandbox: each is something there.
WAYS_OUT = """
    io.open  io.popen  io.lines  os.execute  os.getenv  os.remove  os.exit  os.tmpname
    package.loadlib  package.loaded  package.preload  package.path  require  module  require('ffi').C
    require('jit.util')
    debug.getregistry()  debug.getupvalue  debug.setupvalue  debug.sethook  debug.getinfo  debug.getmetatable('')
    debug.setmetatable  debug.getlocal  debug.getfenv  debug.traceback()  jit.off  jit.attach  jit.opt
    dofile  loadfile  getfenv(0)  setfenv  newproxy(true)  collectgarbage('count')  gcinfo()
    string.dump  getmetatable('').__index.dump  ('').dump  load(string.dump(print_twice))
    python.eval('1+1')  python.builtins.open  python.none  python.as_attrgetter(python.builtins)  python.args{1}
    python.as_function(python.builtins.len)  python.iter(python.builtins.list())  python.set_overflow_handler
    python.tensor
    _G.python  _G['io']  rawget(_G,'os')  getmetatable(io.stdout).__gc
""".split()


@pytest.mark.parametrize("way", WAYS_OUT)
def test_what_leads_out_is_not_there(box, way):
    code = f"""
        function print_twice(x) print(x) print(x) end
        local ok, found = pcall(function() return {way} end)
        return ok and found ~= nil"""
    assert box.execute(code) is False
    assert mf.Lua().execute(code) is True


PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python-hosts-lua.md"
# Every function and table that can be had from a script's own values, each as the path that leads to it.
WALK = """
    local seen, paths = {}, {}
    local function walk(value, path)
      if value == nil or seen[value] then return end
      if type(value) == 'function' or type(value) == 'table' then paths[#paths + 1] = path end
      seen[value] = type(value) == 'table'
      local metatable = type(value) ~= 'string' and getmetatable(value)
      if metatable then walk(metatable, path .. '!') end
      if type(value) == 'table' then
        for key, field in pairs(value) do walk(field, (path == '' and '' or path .. '.') .. tostring(key)) end
      end
    end
    walk(_G, '')
    walk(getmetatable(''), 'string!')
    for _, value in ipairs{1, true, print, coroutine.create(print), 1LL, 1i, (select(1, ...)), (select(2, ...))} do
      walk(getmetatable(value), type(value) .. '!')
    end
    return table.concat(paths, ' ')"""


def documented():
    """What the page says that a script has, and of these what only some builds of LuaJIT have."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Sandbox\n")[2]
    rows = re.findall(r"^\| (base|`\w+`|of Lua 5.2[^|]*) \| (.*) \|$", section, re.MULTILINE)
    names, only_some = set(), set()
    for library, row in rows:
        prefix = library.strip("`") + "." if library.startswith("`") else ""
        (only_some if library.startswith("of") else names).update(prefix + n for n in re.findall(r"`([\w.]+)`", row))
    return names, only_some


def test_a_script_has_what_the_page_names_and_no_more(box):
    def fail():
        raise ValueError

    names, only_some = documented()
    _, error = box.eval("pcall(...)", fail)
    found = set(box.execute(WALK, object(), error).split())
    constants = {"_VERSION", "math.huge", "math.pi"}
    libraries = {name.split(".")[0] for name in names if "." in name}
    # What getmetatable shows of Python objects are four of their events, and of strings the table string.
    shown = {"userdata!", *(f"userdata!.__{event}" for event in ("index", "newindex", "call", "tostring")), "string!"}
    assert found - only_some - {""} == names - constants - {"_G"} | libraries | shown
    assert all(box.eval(f"{name} ~= nil") for name in names)


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


PIECES = "function() text, last = last return text end"


@pytest.mark.parametrize(
    "given",
    [
        "'x x'",
        "'x x', nil",
        "'x x', 'name'",
        "'x x', '=name'",
        "'x x', nil, 't'",
        "'return 1', nil, 'b'",
        "'return 1', nil, 'bt'",
        "'return 1', nil, ''",
        PIECES,
        f"{PIECES}, nil",
        f"{PIECES}, '@name'",
        f"{PIECES}, nil, 'b'",
        "function() text, last = last and 'return 5' return text end",
    ],
)
def test_what_is_loaded_has_the_name_and_the_mode_that_it_has_elsewhere(box, given):
    code = f"last = 'x x' local loaded, error = load({given}) return error or loaded()"
    assert box.execute(code) == mf.Lua().execute(code)


def test_pieces_that_are_no_text_are_refused(box):
    for piece in ("{}", "true", "print"):
        code = f"load(function() return {piece} end)"
        assert box.eval(code) == mf.Lua().eval(code) == (None, "reader function must return a string")
    assert box.execute("last = 5 return load(" + PIECES + ")") == (None, "(load):1: unexpected symbol near '5'")


def test_what_fails_while_it_gives_the_pieces_is_what_load_returns(box):
    for fails in ("error('x')", "error('x', 0)", "error()", "coroutine.yield()"):
        code = f"return load(function() {fails} end)"
        assert box.execute(code) == mf.Lua().execute(code), fails
    assert box.execute("local e = {} return select(2, load(function() error(e) end)) == e") is True
    assert box.execute("return pcall(load, error)") == (True, None, None)


@pytest.mark.parametrize("given", ["1", "'x'", "print", "true"])
def test_an_environment_that_is_no_table_is_refused(box, given):
    kind = mf.Lua().eval(f"type({given})")
    with pytest.raises(mf.LuaError, match=rf"bad argument #4 to 'load' \(table expected, got {kind}\)"):
        box.execute(f"load('return 1', 'name', 't', {given})")


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


def test_a_module_gives_what_it_exports_and_its_own_modules(box):
    plain, listed = types.ModuleType("plain"), types.ModuleType("listed")
    plain.os, plain.part, plain.value = sys, types.ModuleType("plain.part"), 1
    listed.__all__, listed.seen, listed.kept = ["seen", "sys"], 2, 3
    listed.sys = sys
    assert box.eval("(...).value", plain) == 1 and box.eval("(...).seen", listed) == 2
    assert box.eval("(...).part", plain) is plain.part
    for module, name in ((plain, "os"), (listed, "kept"), (listed, "sys"), (listed, "lacking")):
        with pytest.raises(AttributeError, match="sandbox"):
            box.eval(f"(...).{name}", module)


def test_names_that_lead_out_of_some_objects_are_free_in_others(box):
    class Thing:
        obj, format, mro = 1, 2, 3

    for name, value in (("obj", 1), ("format", 2), ("mro", 3)):
        assert box.eval(f"(...).{name}", Thing()) == value
    error = AttributeError("no")
    error.name, error.obj = "x", sys  # as CPython 3.10 and later set them
    assert box.eval("(...).name", error) == "x"
    for thing, name in ((error, "obj"), (Thing, "mro")):
        with pytest.raises(AttributeError, match="sandbox"):
            box.eval(f"(...).{name}", thing)
    assert box.eval("(...).upper()", mf.luajit.as_attrgetter("text")) == "TEXT"


NESTING = [
    "local function f(n) return coroutine.wrap(function() return f(n + 1) end)() end return f(0)",
    "local function f(n) return coroutine.resume(coroutine.create(f), n + 1) end error(select(-1, f(0)))",
    "local function f(s) return (s:gsub('.', f)) end return f('x')",
    "local m = {} m.__tostring = function(t) return ('%s!'):format(t) end f = ('%s'):format(setmetatable(m, m))",
    "local function f() table.sort({1, 2, 3}, f) return true end f()",
    "local function f() assert(load(f)) end f()",
    "local m = {} m.__tostring = function(t) print(t) return '' end print(setmetatable(m, m))",
    "local function f(e) error(select(2, xpcall(error, f, e)), 0) end error(select(2, xpcall(error, f)), 0)",
]


@pytest.mark.parametrize("code", NESTING)
def test_what_nests_on_the_c_stack_fails_before_that_ends(box, code):
    with pytest.raises(mf.LuaError):
        small_stack.call(256 * 1024, lambda: box.execute(code))
    assert box.eval("1 + 1") == 2


def test_what_cannot_nest_too_deeply_works_as_ever(box):
    assert box.eval("('abc'):gsub('b', string.upper)") == ("aBc", 1)
    assert box.eval("('%s %d'):format('x', 5)") == "x 5"
    assert box.eval("xpcall(error, function(e) return e .. '!' end, 'x')") == (False, "x!")
    assert box.eval("xpcall(select, error, '#', nil, nil)") == (True, 2)
    assert box.eval("coroutine.wrap(function() return xpcall(coroutine.yield, error, 5) end)()") == 5
    assert box.eval("select(2, pcall(xpcall, error))").startswith("bad argument #2")
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


def refuse(obj, name, *setting):
    raise AttributeError(f"no {name}")


@pytest.mark.parametrize(
    "options", [{"attribute_filter": refuse}, {"attribute_handlers": (refuse, refuse)}, {"sandbox": True}]
)
def test_a_name_that_is_known_is_asked_about_each_time(options):
    """Names are remembered in the whole process, and those that are known have a shorter way."""

    class Secret:
        __secret = 7

    read = "function(o) return o._Secret__secret end"
    mf.Lua().eval(read)(Secret())
    lua = mf.Lua(**options)
    for _ in range(4):
        with pytest.raises(AttributeError):
            lua.eval(read)(Secret())
    assert mf.Lua().eval(read)(Secret()) == 7


# Lua finds the length by doubling: of a table whose keys are all powers of two it is the last of them.
FEIGNED = """
local t = {}
for i = 1, 200 do t["k" .. i] = true end
for i = 1, 200 do t["k" .. i] = nil end
for i = 0, 24 do t[2 ^ i] = i end
return t
"""


def test_a_length_that_a_table_feigns_takes_none_of_the_hosts_memory():
    box = mf.Lua(sandbox=True, max_memory=1_000_000)
    count = mf.unpacks_lua_table(lambda *args: len(args))
    table = box.execute(FEIGNED)
    assert len(table) == 2**24
    for call in (lambda: count(table), lambda: box.eval("function(f, t) return f(t) end")(count, table)):
        with pytest.raises(ValueError, match="16777216 arguments, most of which are nil"):
            call()
    assert count(box.eval(f"{{{'nil, 5, ' * 4500}}}")) == 9000
    assert count(box.eval("{nil, nil, nil, nil, 5}")) == 5
