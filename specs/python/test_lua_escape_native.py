"""A sandboxed script and the process below it: what would crash it, hang it or fill its memory ends as an error.

Each attempt runs in a process of its own, so that a crash or a hang is that attempt's, and on a thread with the small
stack that other systems give. Afterwards the same state must still compute.
"""

import itertools
import subprocess
import sys
import textwrap

import pytest

from drawn import one_in

CHILD = """
import sys, threading
import moonferry as mf

def attempt():
    box = mf.Lua(sandbox=True, **OPTIONS)
    try:
        with WITHIN:
            print("gave", box.execute(CODE, *ARGUMENTS))
    except Exception as error:
        print(type(error).__name__, error)
    print("then", box.eval("1 + 1"))

class Unlimited:
    def __enter__(self): return self
    def __exit__(self, *what): return False

threading.stack_size(KIB * 1024)
thread = threading.Thread(target=attempt)
thread.start()
thread.join()
"""


def run_child(code, options="", within="Unlimited()", arguments="", kib=512):
    """What the attempt printed: first what came of it, then what the state computes afterwards."""
    program = CHILD.replace("OPTIONS", f"dict({options})").replace("WITHIN", within).replace("KIB", str(kib))
    program = program.replace("CODE", repr(textwrap.dedent(code))).replace("ARGUMENTS", f"[{arguments}]")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"it ended with {done.returncode}: {done.stdout}{done.stderr}"
    lines = done.stdout.strip().splitlines()
    assert lines[-1] == "then 2", done.stdout + done.stderr
    return "\n".join(lines[:-1])


# What is no table as the environment of a chunk: LuaJIT's C function believes its caller.
ENVIRONMENTS = ["42", "1e-310", "'text'", "true", "print", "coroutine.create(print)"]


@pytest.mark.parametrize("value", ENVIRONMENTS)
@pytest.mark.parametrize("loader", ["load", "loadstring"])
def test_the_environment_of_a_chunk_is_a_table(loader, value):
    said = run_child(f"return {loader}('x = 1 return x', 'name', 't', {value})()")
    assert said.startswith("LuaError") and "bad argument #4 to 'load' (table expected, got " in said


# Each nests C calls in one another; the C stack's end must come as an error, whoever asks for the next call.
NESTING = {
    "wrap": "local function f() return coroutine.wrap(function() return f() end)() end f()",
    "resume": "local function f() local _, e = coroutine.resume(coroutine.create(f)) return e end error(f())",
    "gsub": "local function f(s) return (s:gsub('.', f)) end f('x')",
    "gsub by a table": """
        local t = {} setmetatable(t, {__index = function(_, s) return (s:gsub('.', t)) end})
        ; ('x'):gsub('.', t)""",
    "format": "local m = {} m.__tostring = function(t) return ('%s'):format(t) end ; ('%s'):format(setmetatable(m, m))",
    "sort": "local function f() table.sort({1, 2, 3}, f) return true end f()",
    "sort by __lt": """
        local m = {} m.__lt = function() table.sort({setmetatable({}, m), setmetatable({}, m)}) return true end
        table.sort({setmetatable({}, m), setmetatable({}, m)})""",
    "load": "local function f() assert(load(f)) end f()",
    "print": "local m = {} m.__tostring = function(t) print(t) return '' end print(setmetatable(m, m))",
    "print by tostring": "tostring = function(x) return print(x) end print(1)",
    "print as tostring": "tostring = print print(1)",
    "message handler": """
        local met
        local function h() pcall(error) local _, e = xpcall(error, h) met = met or e end
        xpcall(error, h)
        error(met)""",
    "message handler of a coroutine": """
        local met
        local function h() coroutine.wrap(function() local _, e = xpcall(error, h) met = met or e end)() end
        xpcall(error, h)
        error(met)""",
}


@pytest.mark.parametrize(("name", "kib"), one_in(3, itertools.product(NESTING, [256, 8192])))
def test_c_calls_that_nest_end_before_the_stack(name, kib):
    said = run_child(NESTING[name], kib=kib)
    assert said.startswith("LuaError")


# The parser nests, too: at the top of a stack that is nearly full it must not begin on a text that is nested deeply.
NESTED_TEXTS = {
    "functions": "('function f() '):rep(190) .. ('end '):rep(190)",
    "function values": "('a(function() '):rep(90) .. ('end) '):rep(90)",
    "parentheses": "'return ' .. ('('):rep(190) .. '1' .. (')'):rep(190)",
    "tables": "'return ' .. ('{'):rep(190) .. '1' .. ('}'):rep(190)",
}


@pytest.mark.parametrize("name", NESTED_TEXTS)
@pytest.mark.parametrize("kib", [256, 512])
def test_the_parser_does_not_begin_where_the_stack_may_end(name, kib):
    code = f"""
        local text = {NESTED_TEXTS[name]}
        local refused, loaded = 0, 0
        local function deeper()
          local ok, chunk = pcall(load, text)
          if ok and chunk then loaded = loaded + 1 else refused = refused + 1 end
          pcall(string.gsub, 'x', 'x', deeper)
        end
        deeper()
        return refused > 0, loaded > 0, load('return 7')()"""
    # The two longer texts never begin on the smallest stack.
    may_load = kib > 256 or name in ("parentheses", "tables")
    assert run_child(code, kib=kib) == f"gave (True, {may_load}, 7)"


# Each runs for ever. With a time limit it ends, wherever Lua is: below a host's call, in a handler, in an error's text.
LOOP = "function() while true do end end"
ENDLESS = {
    "loop": "while true do end",
    "tail calls": "local function f() return f() end f()",
    "caught": "while true do pcall(error) end",
    "caught again": "while true do pcall(function() while true do end end) end",
    "handler": f"while true do xpcall(error, {LOOP}) end",
    "coroutine": f"while true do coroutine.wrap({LOOP})() end",
    "gsub": f"while true do pcall(string.gsub, 'x', 'x', {LOOP}) end",
    "sort": "local t = {} for i = 1, 20 do t[i] = i end while true do pcall(table.sort, t, function() end) end",
    "load": f"while true do pcall(load, {LOOP}) end",
    "__index": f"return setmetatable({{}}, {{__index = {LOOP}}}).x",
    "__eq": f"local m = {{__eq = {LOOP}}} return setmetatable({{}}, m) == setmetatable({{}}, m)",
    "__concat": f"return setmetatable({{}}, {{__concat = {LOOP}}}) .. 'x'",
    "print": f"print(setmetatable({{}}, {{__tostring = {LOOP}}}))",
    "format": f"return ('%s'):format(setmetatable({{}}, {{__tostring = {LOOP}}}))",
    "text of the error": f"error(setmetatable({{}}, {{__tostring = {LOOP}}}))",
    "text of the error, by tail calls": """
        local m = {} m.__tostring = function(t) return tostring(t) end
        error(setmetatable(m, m))""",
    "concatenation with an object": f"return (...) .. setmetatable({{}}, {{__tostring = {LOOP}}})",
    "called by the host": f"return select(2, ...)({LOOP})",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_time_limit_ends_it(name):
    limits = {"options": "interruptible=True, max_memory=1 << 24", "within": "box.time_limit(0.1)"}
    said = run_child(ENDLESS[name], **limits, arguments="object(), lambda f: f()", kib=8192)
    assert said == "TimeoutError a Lua script ran for more than 0.1 s"


# Each wants more memory than there is.
BOMBS = {
    "table": "local t = {} while true do t[#t + 1] = {} end",
    "string": "local s = 'x' while true do s = s .. s end",
    "rep": "return ('x'):rep(2^30)",
    "rep with a separator": "return ('x'):rep(2^20, ('y'):rep(2^10))",
    "gsub": "local s = 'x' while true do s = s:gsub('.', '%0%0') end",
    "gsub by a table": "local s = 'x' while true do s = s:gsub('.', {x = ('x'):rep(1000)}) end",
    "format": "local s = 'x' while true do s = ('%s%s'):format(s, s) end",
    "concat": "local t = {} for i = 1, 2^16 do t[i] = ('x'):rep(2^10) end return table.concat(t)",
    "insert": "local t = {} while true do table.insert(t, 1) end",
    "coroutines": "local t = {} while true do t[#t + 1] = coroutine.create(print) end",
    "closures": "local t = {} while true do t[#t + 1] = function() return t end end",
    "text of a chunk": "local i = 0 assert(load(function() i = i + 1 return ('x = 1 '):rep(2^16) .. i end))",
    "names": "local s = {} for i = 1, 2^16 do s[i] = 'a' .. i .. '=1' end return load(table.concat(s, ' '):rep(64))",
    "globals": "local i = 0 while true do i = i + 1 _G['g' .. i] = i end",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_memory_limit_ends_it(name):
    options = "interruptible=True, max_memory=1 << 22"
    said = run_child(BOMBS[name], options=options, kib=8192)
    assert said.startswith("LuaMemoryError")


def test_a_script_that_catches_the_end_of_its_memory_meets_the_time_limit():
    code = """
        local t = {}
        local function fill() while true do t[#t + 1] = ('x'):rep(#t) end end
        while true do pcall(fill) end"""
    said = run_child(code, options="interruptible=True, max_memory=1 << 22", within="box.time_limit(0.5)", kib=8192)
    assert said == "TimeoutError a Lua script ran for more than 0.5 s"


# Each is more than some fixed limit of LuaJIT's, and ends at that.
LIMITS = {
    "recursion": ("local function f() return 1 + f() end return f()", "stack overflow"),
    "__index": ("local m = {} m.__index = m return setmetatable(m, m).x", "loop in gettable"),
    "__call": ("local m = {} m.__call = m return setmetatable(m, m)()", "attempt to call"),
    "__concat": (
        "local m = {} m.__concat = function(a, b) return a .. b end setmetatable(m, m) return m .. m",
        "stack",
    ),
    "unpack": ("return unpack({}, 1, 2^24)", "too many results"),
    "byte": ("return ('x'):rep(2^20):byte(1, -1)", "slice too long"),
    "captures": ("return ('x'):find(('('):rep(100))", "too many captures"),
    "pattern": ("return ('a'):rep(1000):find(('a?'):rep(1000) .. 'b')", "pattern too complex"),
    "order": ("local t = {} for i = 1, 100 do t[i] = i end table.sort(t, function() return true end)", "invalid order"),
    "syntax levels": ("assert(load('return ' .. ('('):rep(1000)))", "syntax levels"),
    "locals": ("assert(load('local ' .. ('a,'):rep(300) .. 'a'))", "local variables"),
    "error in a handler": ("error(select(-1, xpcall(error, error)))", "LuaError"),
    "yield": ("coroutine.yield()", "attempt to yield"),
    "itself": ("local co co = coroutine.wrap(function() return co() end) co()", "cannot resume running coroutine"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_fixed_limit_ends_it(name):
    code, word = LIMITS[name]
    said = run_child(code)
    assert said.startswith("LuaError") and word in said
