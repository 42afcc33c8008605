"""What moonferry.Lua says to options that it cannot fulfil, and its functions to what is no open state."""

import contextlib
import ctypes
import functools
import gc
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf
import scarce
from moonferry import _lua

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize("seed", [0, 42, "text"])
def test_a_hash_seed_is_refused(seed):
    with pytest.raises(ValueError, match=f"string_hash_seed is {seed!r}; None expected"):
        mf.Lua(string_hash_seed=seed)


MEMORY_MAX = sys.maxsize // 2


@pytest.mark.parametrize("limit", ["1M", 2.5, True])
def test_a_limit_that_is_no_number_is_named(limit):
    kind = type(limit).__name__
    with pytest.raises(TypeError, match=f"max_memory must be a number of bytes, 0 or None, not '{kind}'"):
        mf.Lua(max_memory=limit)
    with pytest.raises(TypeError, match=f"max_memory must be a number of bytes, or 0, not '{kind}'"):
        mf.Lua(max_memory=0).set_max_memory(limit)


@pytest.mark.parametrize("limit", [-1, MEMORY_MAX + 1, 2**64 - 1, 2**70])
def test_a_limit_that_no_memory_has_is_named(limit):
    lua = mf.Lua(max_memory=0)
    set_total = functools.partial(lua.set_max_memory, total=True)
    for use in (lambda limit: mf.Lua(max_memory=limit), lua.set_max_memory, set_total):
        with pytest.raises(ValueError, match=f"max_memory is {limit}; a number of bytes from 0 to {MEMORY_MAX} exp"):
            use(limit)
    assert lua.get_max_memory() == 0


def test_a_limit_may_be_as_large_as_a_size():
    assert mf.Lua(max_memory=MEMORY_MAX).get_max_memory() == MEMORY_MAX
    assert mf.Lua(max_memory=np.int64(1 << 20)).get_max_memory() == 1 << 20


def compiled(name):
    return abi.compile_shared(os.path.join(HERE, f"{name}.c"), f"{name}.so", [], ["-ldl"])


@pytest.fixture(scope="module")
def no_gc64():
    return compiled("no_gc64")


@pytest.fixture(scope="module")
def no_state():
    return compiled("no_state")


def run_with(library, code):
    preload = filter(None, (os.environ.get("LD_PRELOAD"), library, "libluajit-5.1.so.2"))
    env = {**os.environ, "LD_PRELOAD": " ".join(preload)}
    command = [sys.executable, "-c", f"import moonferry as mf\n{code}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")
@pytest.mark.parametrize("options", ["max_memory=1 << 20", "interruptible=True", "max_memory=0, sandbox=True"])
def test_a_luajit_without_gc64_takes_no_allocator(no_gc64, options):
    code, said = run_with(no_gc64, f"mf.Lua({options})")
    expected = "RuntimeError: max_memory and interruptible need a LuaJIT that was built with GC64"
    assert code == 1 and expected in said


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")
def test_without_them_it_serves(no_gc64):
    assert run_with(no_gc64, "print(mf.Lua(sandbox=True).eval('6 * 7'))") == (0, "42\n")


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")
def test_a_state_that_has_no_memory_to_begin_with_says_so(no_state):
    code, said = run_with(no_state, "mf.Lua(max_memory=1 << 20)")
    assert code == 1 and said.endswith("moonferry.LuaMemoryError: LuaJIT gives no state: not enough memory\n")


# lua_gc's: bytes in all are 1024 * COUNT + COUNTB.
COUNT, COUNTB = 3, 4
IS_OLD = "-beta" in mf.Lua().eval("jit.version")
COMPILED = {
    "": True,
    "max_memory=1 << 20": not IS_OLD,
    "sandbox=True": False,
    "sandbox=True, max_memory=1 << 20": False,
    "interruptible=True": False,
}


@pytest.mark.parametrize("options", COMPILED)
def test_what_is_compiled(options):
    """Where Lua has no memory, compiled code ends the process up to LuaJIT 2.1.0-beta3. What a loop without garbage
    leaves in Lua's memory is its compiled form."""
    lua = eval(f"mf.Lua({options})")
    lua.execute("thread = coroutine.create(function() end)")
    thread = ctypes.c_void_p(int(lua.eval("tostring(thread)").split("0x")[1], 16))
    loop = lua.eval("function() local x = 0 for i = 1, 1000 do x = x + i end return x end")
    luajit = ctypes.CDLL("libluajit-5.1.so.2")

    def used():
        return luajit.lua_gc(thread, COUNT, 0) * 1024 + luajit.lua_gc(thread, COUNTB, 0)

    before = used()
    assert loop() == 500500
    assert (used() > before) is COMPILED[options]


def test_the_compiler_stays_off_where_memory_is_limited():
    refused = pytest.raises(mf.LuaError, match="this state has max_memory, and compiled code that meets it would end")
    with refused if IS_OLD else contextlib.nullcontext():
        mf.Lua(max_memory=1 << 20).execute("jit.on()")


def called(*_):
    pass


REFUSED = {
    "attribute_filter must be callable": {"attribute_filter": 5},
    "attribute_filter and attribute_handlers are mutually exclusive": [
        {"attribute_filter": called, "attribute_handlers": handlers}
        for handlers in ((called, None), (None, called), (called, called))
    ],
    "attribute_handlers must be a sequence of two callables": [
        {"attribute_handlers": handlers} for handlers in (5, (called,), (called, 5), (5, called))
    ],
    "overflow_handler must be callable": {"overflow_handler": 5},
    "string_hash_seed is 5; None expected: LuaJIT takes no seed": {"string_hash_seed": 5},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_a_state_cannot_have_is_refused(said):
    for options in REFUSED[said] if isinstance(REFUSED[said], list) else [REFUSED[said]]:
        with pytest.raises(ValueError, match=f"^{said}$"):
            mf.Lua(**options)
    mf.Lua(attribute_filter=called, attribute_handlers=(None, None), overflow_handler=called)


# Like many modules for Lua, it is linked with no LuaJIT, and finds that of the process.
MODULE = """
extern int lua_gettop(void *);
extern void lua_pushinteger(void *, long);
int luaopen_module_of_c(void *L) {
  lua_pushinteger(L, lua_gettop(L));
  return 1;
}
"""
WITH_MODULE = """
import sys
import moonferry as mf

def loads(**options):
    lua = mf.Lua(**options)
    lua.globals().package.cpath = sys.argv[1]
    return lua.eval("pcall(require, 'module_of_c')")[0]

print(loads(), loads(c_modules=False), loads(c_modules=True), loads())
"""


def test_modules_in_c_find_lua_where_that_is_asked_for(tmp_path):
    source = tmp_path / "module.c"
    source.write_text(MODULE)
    where = os.path.join(os.path.dirname(abi.compile_shared(str(source), "module_of_c.so")), "?.so")
    command = [sys.executable, "-c", WITH_MODULE, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("False False True True\n", "")


# A Lua thread that runs nothing has no protected call below it, and its state's panic function.
UNPROTECTED = """
import ctypes, sys
import moonferry as mf

lua = mf.Lua({options})
lua.execute("thread = coroutine.create(function() end)")
address = lua.eval("tostring(thread):match('0x%x+')")
luajit = ctypes.CDLL("libluajit-5.1.so.2")
thread = ctypes.c_void_p(int(address, 16))
luajit.lua_settop(thread, 0)
{push}
luajit.lua_error(thread)
"""
PUSHED = {
    "luajit.lua_pushstring(thread, b'nobody caught this')": "nobody caught this",
    "luajit.lua_pushboolean(thread, 1)": "an error that is no text",
}


@pytest.mark.parametrize("options", ["", "max_memory=1 << 20", "interruptible=True"])
@pytest.mark.parametrize("push", PUSHED)
def test_an_error_that_no_call_protects_ends_the_process_with_a_word(options, push):
    program = UNPROTECTED.format(options=options, push=push)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    said = f"moonferry: Lua raised an error outside of a protected call, which ends the process: {PUSHED[push]}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


FUNCTIONS = {
    "load": lambda state: _lua.load(state, b"", b"", None),
    "globals": _lua.globals,
    "table": lambda state: _lua.table(state, [], []),
    "collector": lambda state: _lua.collector(state, 2, []),
    "set_overflow_handler": lambda state: _lua.set_overflow_handler(state, None),
    "memory": _lua.memory,
    "set_limit": lambda state: _lua.set_limit(state, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_state_that_was_never_opened_does_nothing(name):
    state = _lua.State()
    with pytest.raises(RuntimeError, match="closed, or never opened"):
        FUNCTIONS[name](state)
    assert _lua.interrupt(state, KeyError()) is _lua.encoding(state) is _lua.close(state) is None


@pytest.mark.parametrize("name", [*FUNCTIONS, "close", "encoding", "interrupt"])
def test_what_is_no_state_is_refused(name):
    functions = {**FUNCTIONS, "close": _lua.close, "encoding": _lua.encoding,
                 "interrupt": lambda state: _lua.interrupt(state, KeyError())}  # fmt: skip
    for other in (object(), None, mf.Lua().table()):
        with pytest.raises(TypeError, match="a Lua state is expected"):
            functions[name](other)


def test_a_table_is_made_of_lists_of_values_and_pairs():
    lua = mf.Lua()
    for values, pairs in (((), []), ([], ()), (1, 2)):
        with pytest.raises(TypeError, match="two lists are expected"):
            _lua.table(lua, values, pairs)
    for pair in (1, (1,), (1, 2, 3), [1, 2]):
        with pytest.raises(mf.LuaError, match="an item of a mapping is no pair"):
            _lua.table(lua, [], [pair])
    with pytest.raises(TypeError, match="a LuaTable is expected"):
        _lua.arguments_of({})


def test_a_table_has_what_came_before_its_lists_were_emptied_on_the_way(on_encode):
    lua = mf.Lua(encoding="x-held")
    for values, pairs in (([], [("key", object()), (1, 2), (3, 4)]), (["key", 2, 3], [])):
        on_encode["key"] = lambda values=values, pairs=pairs: (values.clear(), pairs.clear())
        with pytest.raises(IndexError):
            _lua.table(lua, values, pairs)
    pairs = [("key", [1] * 100)]
    on_encode["key"] = pairs.clear
    assert [value for _, value in _lua.table(lua, [], pairs).items()] == [[1] * 100]


@pytest.mark.parametrize("limit", [-1, 2**64, 2**70])
def test_a_limit_that_is_no_size_opens_no_state(limit):
    options = [None, "utf-8", b"", *[None] * 5, limit, False, False, False]
    with pytest.raises(OverflowError):
        _lua.open(mf.Lua, *options)


@pytest.mark.parametrize("options", [{}, {"interruptible": True}, {"max_memory": 0}, {"max_memory": 10**7}])
def test_a_collector_that_has_a_limit_to_meet_begins_early(options):
    pace = mf.Lua(**options).execute("return collectgarbage('setpause', 200), collectgarbage('setstepmul', 200)")
    assert pace == ((110, 400) if "max_memory" in options else (200, 200))


def test_what_is_counted_begins_without_the_garbage_of_opening():
    lua = mf.Lua(max_memory=0)
    before = lua.get_memory_used(total=True)
    lua.gccollect()
    assert before - lua.get_memory_used(total=True) < 1000


def test_a_limit_is_only_for_a_state_that_has_one():
    for lua, limit in ((mf.Lua(), 10), (mf.Lua(interruptible=True), 10), (mf.Lua(max_memory=10000), -1)):
        with pytest.raises(RuntimeError, match="max_memory must be set on creation"):
            _lua.set_limit(lua, limit)
    assert mf.Lua(interruptible=True).get_memory_used() is None


@pytest.mark.parametrize("kind", [int, object, dict, type, mf.Tensor, mf.LuaTable, 5, None])
def test_a_class_that_is_no_state_s_gets_none(kind):
    with pytest.raises(TypeError, match=f"{re.escape(repr(kind))}.*: this is no subclass of moonferry.Lua"):
        mf.Lua.__new__(kind)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
@pytest.mark.skipif(sys.version_info[:2] == (3, 13), reason="3.13 imports no extension module from such a folder")
@pytest.mark.parametrize("options", ["", "interruptible=True"])
def test_the_folder_of_the_package_may_have_a_name_that_is_no_text(tmp_path, options):
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)
    os.symlink(os.fsencode(os.path.dirname(mf.__file__)), os.path.join(folder, b"moonferry"))
    code = f"""import moonferry as mf, os, sys
lua = mf.Lua({options})
print(b"caf\\xe9" in os.fsencode(mf.__file__), lua.execute("return (require 'moonferry').ones(2)").tolist())"""
    command = [sys.executable, "-c", code]
    env = {**os.environb, b"PYTHONPATH": folder}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "True [1.0, 1.0]\n"), done.stderr


HOSTS = """
local ffi = require "ffi"
ffi.cdef "void scarce_arm(long); long scarce_failed(void);"
local py = require "moonferry.python"
local nth, failed = -1, 1
while failed ~= 0 do
  nth = nth + 1
  ffi.C.scarce_arm(nth)
  local ok, message = pcall(py.start)
  failed = tonumber(ffi.C.scarce_failed())
  ffi.C.scarce_arm(-1)
  assert(ok == (failed == 0) and (ok or message:find "memory"), message)
end
py.exec "import gc; gc.collect()"
print(nth > 1, py.eval "sum(type(thing).__name__ == 'State' for thing in gc.get_objects())")
"""


def test_a_lua_program_that_had_no_memory_for_python_has_one_state_at_last():
    folder = mf.get_lua_path()
    path = f"{folder}/?.lua;{folder}/?/init.lua"
    env = {**scarce.preloaded(), "LUA_PATH": path, "MOONFERRY_PYTHON": sys.executable}
    done = subprocess.run(["luajit", "-e", HOSTS], env=env, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "true\t1\n", "")


def unseen(kind):
    """How many of a type's references are not those of what the collector knows."""
    gc.collect()
    return sys.getrefcount(kind) - len(gc.get_referrers(kind))


def loaded_again(name):
    return importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, _lua.__file__))


@pytest.mark.skipif(sysconfig.get_config_var("Py_GIL_DISABLED"), reason="types have no count of all references there")
def test_a_module_that_is_loaded_again_has_references_to_the_types_of_its_own():
    kinds = [_lua.State, _lua.LuaObject, _lua.LuaTable, _lua.LuaFunction, _lua.LuaError, _lua.LuaMemoryError]
    again = [loaded_again("again._lua")]
    before = [unseen(kind) for kind in kinds]
    again.append(loaded_again("and_again._lua"))
    assert [getattr(again[1], kind.__name__) for kind in kinds] == kinds
    assert [unseen(kind) for kind in kinds] == before
