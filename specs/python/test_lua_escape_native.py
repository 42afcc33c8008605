"""A sandboxed script and the process below it: what would crash it, hang it or fill its memory ends as an error.

Each attempt runs in a process of its own, on a thread with the stack that macOS gives, so that a crash or a hang is that
attempt's. A script that gets away with it says "out"; afterwards the same state must still compute.
"""

import subprocess
import sys
import textwrap

import pytest

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
    "resume": "local function f() return coroutine.resume(coroutine.create(f)) end error(select(-1, f()))",
    "gsub": "local function f(s) return (s:gsub('.', f)) end f('x')",
    "gsub by a table": """
        local t = {} setmetatable(t, {__index = function(_, s) return (s:gsub('.', t)) end})
        ; ('x'):gsub('.', t)""",
    "format": "local m = {} m.__tostring = function(t) return ('%s!'):format(t) end ; ('%s'):format(setmetatable(m, m))",
    "sort": "local function f() table.sort({1, 2, 3}, f) return true end f()",
    "sort by __lt": """
        local m = {} m.__lt = function() table.sort({setmetatable({}, m), setmetatable({}, m)}) return true end
        table.sort({setmetatable({}, m), setmetatable({}, m)})""",
    "load": "local function f() load(f) return 1 end f()",
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


@pytest.mark.parametrize("name", NESTING)
@pytest.mark.parametrize("kib", [256, 512, 8192])
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
@pytest.mark.parametrize("kib", [256, 512, 8192])
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
