"""max_memory reached in each crossing: a LuaMemoryError there, and everything works again when there is memory.

Each crossing is tried with the limit at the first byte, then a little further each time, until it succeeds. That is a
process of its own for each, because what this looks for ends the process or skips Python's frames.
"""

import contextlib
import os
import subprocess
import sys

import pytest

import moonferry as mf

PROLOGUE = """
import gc, sys, threading
import moonferry as mf

def deep(count, f):
    return f() if count == 0 else deep(count - 1, f)

class Thing:
    value = 7
    def __getattr__(self, name):
        return len(name)
    def __str__(self):
        return "a thing"
    def __iter__(self):
        return iter([1, None, "x" * 40])
    def fail(self):
        raise KeyError("k" * 40)

class Left(Exception):
    pass
"""

# What is done once before (with `lua`), the crossing, and what it gives.
CROSSINGS = {
    "a call without arguments": ("f = lua.eval('function() return 1 end')", "f()", "1"),
    "a call of few arguments": ("f = lua.eval('function(a, b) return b end')", "f(1, 2)", "2"),
    "a call of many arguments": ("f = lua.eval('function(...) return select(200, ...) end')", "f(*range(200))", "199"),
    "a call with a long string": ("f = lua.eval('function(x) return #x end')", "f('x' * 5000)", "5000"),
    "a call with objects": ("f = lua.eval('function(a, b) return b end'); t = Thing()", "f(len, t) is t", "True"),
    "few results": ("f = lua.eval('function() return 1, 2, 3 end')", "f()", "(1, 2, 3)"),
    "many results": (
        "lua.execute('local t = {} for i = 1, 66 do t[i] = i end function f() return unpack(t) end')\n"
        "f = lua.globals().f",
        "sum(f())",
        "66 * 67 // 2",
    ),
    "results that are objects": ("f = lua.eval('function() return {}, {}, print end')", "len(f())", "3"),
    "a table as the result": ("f = lua.eval('function() return {5} end')", "f()[1]", "5"),
    "a function made": ("", "lua.eval('function() end') is not None", "True"),
    "code compiled": ("", "lua.execute('local a = {1, 2, 3} return #a')", "3"),
    "a table made": ("", "lua.table(1, 2, a='x' * 50)['a'] == 'x' * 50", "True"),
    "globals": ("", "lua.globals().print is not None", "True"),
    "a field that is new": ("t = lua.table()", "t.__setitem__('name' * 20, 'v' * 50)", "None"),
    "fields until the table grows": ("t = lua.table()", "[t.__setitem__(i, i) for i in range(1, 40)] and len(t)", "39"),
    "a field read": ("t = lua.table(a='x' * 50)", "[t['a'] for _ in range(3)][2] == 'x' * 50", "True"),
    "a field of a metatable": (
        "t = lua.eval('setmetatable({}, {__index = function(_, k) return {k} end})')",
        "t['abc'][1]",
        "'abc'",
    ),
    "a key looked for": ("t = lua.table(a=1)", "('missing' * 9 in t, 'a' in t)", "(False, True)"),
    "keys gone through": ("t = lua.eval('{10, 20, a = {}, b = print}')", "len(list(t.items()))", "4"),
    "a length": ("t = lua.eval('{1, 2}')", "len(t)", "2"),
    "a text": (
        "t = lua.eval('setmetatable({}, {__tostring = function() return (\"x\"):rep(99) end})')",
        "len(str(t))",
        "99",
    ),
    "a coroutine begun": ("f = lua.eval('function(...) return ... end')", "next(f.coroutine(1, 2))", "(1, 2)"),
    "a coroutine begun with many values": (
        "f = lua.eval('function(...) return select(\"#\", ...) end')",
        "next(f.coroutine(*range(300)))",
        "300",
    ),
    "many values sent": (
        "f = lua.eval('function() return select(\"#\", coroutine.yield()) end')",
        "(lambda co: (next(co), co.send(tuple(range(300)))))(f.coroutine())[1]",
        "300",
    ),
    "many values yielded": (
        "f = lua.eval('function() local t = {} for i = 1, 99 do t[i] = i end coroutine.yield(unpack(t)) end')",
        "len(next(f.coroutine()))",
        "99",
    ),
    "an exception thrown into a coroutine": (
        "f = lua.eval('function() return (pcall(function() coroutine.yield(1) end)) end')",
        "(lambda co: (next(co), co.throw(KeyError('k' * 40))))(f.coroutine())",
        "(1, False)",
    ),
    "a callback": (
        "f = lua.eval('function(g) return g(1, \"x\", {}) end')",
        "f(lambda a, b, c: b * 50) == 'x' * 50",
        "True",
    ),
    "a callback of many arguments": (
        "f = lua.eval('function(g) local t = {} for i = 1, 99 do t[i] = i end return g(unpack(t)) end')",
        "f(lambda *a: len(a))",
        "99",
    ),
    "attributes": (
        "f = lua.eval('function(o) return o.value + o.something + o.value end'); o = Thing()",
        "f(o)",
        "23",
    ),
    "an attribute that is an object": (
        "f = lua.eval('function(o) return o.__class__ end')",
        "f(Thing()) is Thing",
        "True",
    ),
    "a loop over an iterable": (
        "f = lua.eval('function(o) local n = 0 for x in python.iter(o) do n = n + 1 end return n end')",
        "f(Thing())",
        "3",
    ),
    "tostring of an object": ("f = lua.eval('function(o) return tostring(o) end')", "f(Thing())", "'a thing'"),
    "python.args": (
        "f = lua.eval('function(g) return g(python.args{1, b = 2}) end')",
        "f(lambda a, b: (a, b))",
        "(1, 2)",
    ),
    "as_function": ("f = lua.eval('function(o) return python.as_function(o)(5) end')", "f(lambda x: x + 1)", "6"),
    "an exception caught in Lua": (
        "f = lua.eval('function(o) local ok, e = pcall(o.fail) return not ok and e.type end')",
        "f(Thing()) in ('KeyError', None)",
        "True",
    ),
    "an exception through Lua": (
        "f = lua.eval('function(o) o.fail() end')",
        "caught(f, Thing())",
        "True",
    ),
    "a Lua error": ("f = lua.eval('function() error({}) end')", "caught(f)", "True"),
    "a tensor to Lua": (
        "f = lua.eval('function(t) return t.size end'); f(mf.zeros(2)); a = mf.zeros((2, 3))",
        "f(a)",
        "6",
    ),
    "a tensor to Python": (
        "f = lua.eval('function() return require(\"moonferry\").zeros(3) end'); f()",
        "f().shape",
        "(3,)",
    ),
    "calls that nest": (
        "f = lua.eval('function(g, n) return n == 0 and 0 or 1 + g(n - 1) end')\ndef again(n): return f(again, n)",
        "again(12)",
        "12",
    ),
    "another thread, while this one is inside": (
        "f = lua.eval('function(g) return g() end')\nh = lua.eval('function(...) return select(\"#\", ...) end')\n"
        "def other():\n"
        "    got = []\n"
        "    def run():\n"
        "        try: got.append(h(*range(60)))\n"
        "        except BaseException as e: got.append(e)\n"
        "    thread = threading.Thread(target=run); thread.start(); thread.join()\n"
        "    if isinstance(got[0], BaseException): raise got[0]\n"
        "    return got[0]",
        "f(other)",
        "60",
    ),
}

# What needs no memory of Lua's, and so never fails.
FREE = {
    "a call without arguments",
    "a call of few arguments",
    "few results",
    "globals",
    "a field read",
    "keys gone through",
    "a length",
    "attributes",
}

EPILOGUE = """
def caught(f, *args):
    try:
        f(*args)
    except mf.LuaMemoryError:
        raise
    except (mf.LuaError, KeyError):
        return True

def crossing():
    return {crossing}

inside = []
def attempt(lua):
    inside.append("in")
    try:
        return crossing()
    finally:
        inside.pop()

failures = done = 0
more = 0
while done < 3:
    lua = mf.Lua(max_memory=1 << 24)
    f = t = h = a = o = again = other = None
    exec(preparation, globals())
    assert lua.gccollect() is None
    lua.set_max_memory(lua.get_memory_used() + more)
    try:
        got = attempt(lua)
        done += 1
    except mf.LuaMemoryError:
        failures += 1
        done = 0
        got = wanted
    assert got == wanted, (got, more)
    assert not inside
    lua.set_max_memory(0)
    for _ in range(2):
        assert attempt(lua) == wanted, more
    more += 24 if more < 4000 else 800
lua = f = t = h = a = o = None
gc.collect()
print("failed" if failures else "never failed", tuple(mf.ledger())[0])
"""


@pytest.mark.parametrize("name", CROSSINGS)
def test_a_limit_at_every_place(name):
    preparation, crossing, wanted = CROSSINGS[name]
    program = PROLOGUE + f"preparation = {preparation!r}\nwanted = {wanted}\n" + EPILOGUE.format(crossing=crossing)
    command = [sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ)
    said = "never failed 0\n" if name in FREE else "failed 0\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


# Lua's memory ends in the script, behind all that it makes itself. How many results fill its stack is not known.
RESULTS = """
import moonferry as mf

lua, ends = mf.Lua(max_memory=0), set()
make = lua.eval('''function(end_memory, n)
  local t = {{}}
  for i = 1, n do t[i] = i end
  return function() end_memory() return unpack(t) end
end''')
call = lua.eval("function(f) return f() end")
wrap = lua.eval("coroutine.wrap") # whose results leave less room on the stack than a function's

def end_memory():
    lua.set_max_memory(1, total=True)

def let_the_stack_shrink():
    for _ in range(3):
        lua.gccollect()

for n in range(2, 150):
    f = make(end_memory, n)
    let_the_stack_shrink()
    try:
        got = {call}
        ends.add("given")
        assert got == tuple(range(1, n + 1)), got
    except mf.LuaMemoryError:
        ends.add("failed")
    lua.set_max_memory(0)
    del f
    let_the_stack_shrink()
print(sorted(ends))
"""


@pytest.mark.parametrize("call", ["f()", "call(f)", "wrap(f)()", "f.coroutine().send(None)"])
def test_any_number_of_results_without_memory(call):
    command = [sys.executable, "-X", "faulthandler", "-c", RESULTS.format(call=call)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['failed', 'given']\n", "")


# The frame of the last C function, where compiled code allocates, is overwritten by numbers.
HOT = """
import moonferry as mf

lua = mf.Lua(max_memory=10_000_000)
lua.globals().limit = lambda on: lua.set_max_memory(1 if on else 0, total=True)
lua.execute("""
HOT_LUA = """
local function call(on, b, c, d) local x, y, z = 1, 2, 3; limit(on) return x end
local function allocate(n)
  local a, b, c, d, e, f, g, h, i, j = 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 1.5
  local k, l, m, o, p, q = 1e300, 1e300, 1e300, 1e300, 1e300, 1e300
  local last
  for i = 1, n do
    local t1, t2, t3, t4, t5, t6, t7, t8 = 1e300 + i, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300
    last = { i, a + i, k }
    a = a + t1 + t2 + t3 + t4 + t5 + t6 + t7 + t8
    k, l, m, o, p, q = l, m, o, p, q, k
  end
  return last, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q
end
function run(on, n)
  call(on)
  return (allocate(n))
end
"""


def test_a_hot_loop_that_meets_the_limit():
    program = f"{HOT}{HOT_LUA!r})\nfor n in range(5):\n    lua.globals().run(False, 1000)\n"
    program += "try:\n    lua.globals().run(True, 10**6)\nexcept mf.LuaMemoryError as error:\n    print(error)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "not enough memory\n", "")


def test_a_finalizer_that_fails_in_the_collection_before_a_call_is_not_in_its_way():
    """Memory is nearly all in use, and Python has dropped a value; the next call collects first."""
    lua = mf.Lua(max_memory=0)
    seen, call, dropped = lua.eval("{}"), lua.eval("function(...) return ... end"), lua.eval("{}")
    fails = "local seen = ... getmetatable(newproxy(true)).__gc = function() seen[1] = true error 'no' end"
    lua.execute(fails, seen)
    lua.set_max_memory(int(lua.eval("collectgarbage 'count'") * 1024 * 1.1), total=True)
    del dropped
    assert (call(7), seen[1]) == (7, True)


COUNTS_COLLECTIONS = """
kept, collections = ("x"):rep(8e6), 0
local function again()
  getmetatable(newproxy(true)).__gc = function() collections = collections + 1 again() end
end
again()
for _ = 1, 9 do collectgarbage() end -- the buffer that the text was made in goes by and by
collections = 0
"""


def test_where_collections_help_nothing_they_come_more_rarely_but_go_on():
    lua = mf.Lua(max_memory=0)
    lua.execute(COUNTS_COLLECTIONS)
    make = lua.eval("function() return {} end")
    lua.set_max_memory(int(lua.eval("collectgarbage 'count'") * 1024 * 1.1), total=True)
    seen = []
    for _ in range(4):
        for _ in range(1000):
            make()
        seen.append(lua.globals().collections)
    assert seen[0] < 40 and all(now - then > 10 for then, now in zip(seen, seen[1:]))


def test_a_coroutine_without_memory_for_what_it_is_sent():
    """It goes on or is dead, and is not taken for one that runs."""
    lua, ends = mf.Lua(max_memory=1 << 24), set()
    make = lua.eval("function() while true do coroutine.yield(1) end end").coroutine
    for more in range(0, 600_000, 10_000):
        coroutine = make()
        assert next(coroutine) == 1
        lua.execute("collectgarbage()")
        lua.set_max_memory(lua.get_memory_used() + more)
        try:
            coroutine.send(tuple(range(6000)))
            ends.add("sent")
        except mf.LuaMemoryError:
            ends.add("alive" if coroutine else "dead")
            lua.set_max_memory(0)
            assert next(coroutine, None) == (1 if coroutine else None)
        lua.set_max_memory(0)
    assert ends == {"alive", "dead", "sent"}


def test_finalizers_after_a_memory_error_do_not_lose_it():
    seen = []

    def note():
        with contextlib.suppress(KeyError):
            {}[seen.append(1)]

    for _ in range(3):
        lua = mf.Lua(max_memory=1_000_000)
        lua.globals().note = note
        lua.execute(
            "collectgarbage('stop')"
            "for i = 1, 3 do local p = newproxy(true) getmetatable(p).__gc = function() note() end end"
        )
        with pytest.raises(mf.LuaMemoryError):
            lua.eval("('x'):rep(5000000)")
    assert len(seen) == 9


def test_a_stack_overflow_after_a_memory_error_is_none():
    """Lua gives both as an error in the handling of an error, which a refusal before this call does not explain."""
    lua = mf.Lua(max_memory=1 << 24)
    for _ in range(2):
        with pytest.raises(mf.LuaMemoryError):
            lua.execute("local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end")
        with pytest.raises(mf.LuaError, match="stack overflow") as raised:
            lua.execute("local function f() return 1 + f() end f()")
        assert type(raised.value) is mf.LuaError


def test_finalizers_have_some_memory_when_a_state_closes_at_its_limit(tmp_path):
    lua = mf.Lua(max_memory=1 << 20)
    lua.execute(
        """
        local path = ...
        guard = newproxy(true)
        getmetatable(guard).__gc = function()
          local file = io.open(path, "w")
          file:write(("x"):rep(20000))
          file:close()
        end
        full = {}""",
        str(tmp_path / "written"),
    )
    for size in (1000, 100, 1):
        with pytest.raises(mf.LuaMemoryError):
            lua.execute("local size = ... while true do full[#full + 1] = ('y'):rep(size) .. #full end", size)
    lua.close()
    assert (tmp_path / "written").read_text() == "x" * 20000


def test_what_would_reach_the_limit_fails_to_the_byte():
    lua, seen = mf.Lua(max_memory=0), []
    make = lua.eval("function(before, after) before() local made = {} after() end")

    def note():
        seen.append(lua.get_memory_used(total=True))

    def limit(more):
        lua.set_max_memory(lua.get_memory_used(total=True) + more, total=True)

    lua.execute("collectgarbage 'stop'")
    make(note, note)
    make(note, note)
    nbytes = seen[-1] - seen[-2]
    assert nbytes > 0
    make(lambda: limit(nbytes + 1), note)
    lua.set_max_memory(0)
    with pytest.raises(mf.LuaMemoryError):
        make(lambda: limit(nbytes), note)


def test_memory_is_given_back_above_the_limit():
    """A stack and a buffer that shrink ask for a smaller block."""
    lua = mf.Lua(max_memory=0)
    lua.execute("local function deep(n) return n == 0 and 0 or 1 + deep(n - 1) end deep(10000) return #('x'):rep(1e6)")
    grown = lua.get_memory_used(total=True)
    lua.set_max_memory(1, total=True)
    for _ in range(4):
        lua.gccollect()
    assert lua.get_memory_used(total=True) < grown / 4


def test_what_a_state_is_made_of_does_not_count_and_garbage_is_no_part_of_it():
    lua = mf.Lua(max_memory=0)
    assert 0 <= lua.get_memory_used() < 500
    before = lua.get_memory_used(total=True)
    lua.gccollect()
    assert 0 <= lua.get_memory_used() < 500 and before - lua.get_memory_used(total=True) < 500
    lua.set_max_memory(lua.get_memory_used() + 1)


def test_the_collector_keeps_pace_with_a_script_that_has_used_two_thirds():
    lua = mf.Lua(max_memory=0)
    lua.execute("kept = {} for i = 1, 20000 do kept[i] = { i } end")
    lua.gccollect()
    lua.set_max_memory(int(lua.get_memory_used() * 1.5))
    lua.execute("for i = 1, 500000 do local made = { i } end")


def test_a_state_that_closes_at_its_limit_loses_no_tensor():
    before = mf.ledger()
    lua = mf.Lua(max_memory=1 << 23)
    lua.execute("mf, made, full = require 'moonferry', {}, {}")
    with pytest.raises(mf.LuaMemoryError):
        lua.execute("while true do made[#made + 1] = mf.zeros({ 1 }, 'uint8') end")
    for size in (1000, 100, 1):
        with pytest.raises(mf.LuaMemoryError):
            lua.execute("local size = ... while true do full[#full + 1] = ('y'):rep(size) .. #full end", size)
    assert mf.ledger().tensors > 1000
    lua.close()
    assert mf.ledger() == before


def test_an_error_after_memory_that_was_done_without_is_the_scripts():
    lua = mf.Lua(max_memory=1 << 22)
    with pytest.raises(mf.LuaError, match="mine") as error:
        lua.execute("assert(not pcall(string.rep, 'x', 1e8)) error 'mine'")
    assert not isinstance(error.value, MemoryError)
