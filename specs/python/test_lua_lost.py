"""What becomes garbage in Lua is given back, also where its finalizer, or whoever was to have it, has no memory.

Each of what makes something is tried with the state's limit at the first byte, then a little further each time, until
it succeeds; its garbage is collected below the limit.
"""

import contextlib
import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import moonferry as mf
from drawn import FEWER, one_in
from limit import collect, within

# Functions of a tensor. What they make is garbage when they are done or have failed, but for an export, whose taker
# owns it from the moment that it has it.
MAKERS = {
    "a tensor": "return mf.zeros(3)",
    "a view": "return t:view(1)",
    "a view of a view": "return t:view(1):view(0)",
    "a copy": "return t:copy()",
    "another dtype": "return t:astype 'int16'",
    "a tensor that is closed": "return t:copy():close()",
    "a scope": "return mf.scope(function() return t:view(1):copy().size end)",
    "a tensor of Python's": "return new()",
    "a ring of a handle": "return mf.ring_from_handle(ring.handle)",
    "a ring that is closed": "mf.ring_from_handle(ring.handle):close()",
    "a slot of a ring": "slot = false slot = ring:begin(0)",
    "a tensor of a reference": "local handle = keep(t) return mf.from_handle(handle)",
    "memory whose owner is a tensor": "return mf.wrap(t._dl.data, 3, nil, { owner = t:view() })",
    "a context of OpenGL's": "return gl.open(nothing)",
    "a buffer over a tensor's memory": "context:pinned(t):close()",
    "a buffer that OpenGL refuses": "refusal = 5 context:pinned(t)",
    "a ring in a buffer": "open.ring = context:ring({ 3 }) open.ring:close()",
    "a ring that is copied": "open.ring = context:ring({ 3 }, nil, { route = 'copied' }) open.ring:close()",
    "a fence": "open.context = gl.open(nothing) open.context:fence_tensor(t)",
    "a fence that is refused": "open.context = gl.open(nothing) refused(open.context.fence_tensor, open.context, t, 9)",
    "an export": "taken = t:to_dlpack()",
    "an export with options": "taken = t:to_dlpack { copy = true }",
    "an export of the old kind": "taken = t:to_dlpack_legacy()",
}

PROGRAM = """
local mf, t, new, others = require "moonferry", ...
jit.off()
local ring, taken = mf.ring({ 3 }, "int8", 2)
local ffi, gl = require "ffi", require "moonferry.gl"
ffi.cdef 'void spec_keep(mf_tensor *t) __asm__("mf_tensor_retain"); int getpid(void);'
others_that_have_finalizers = {}
for i = 1, others or 0 do others_that_have_finalizers[i] = ffi.gc(ffi.new "char[1]", type) end
local C, owners, room = require "moonferry.lib", require "moonferry.owner", require "moonferry.place".room
local spec_keep = C.spec_keep
local function keep(t)
  local handle = ffi.new("mf_tensor *[1]", t.handle)[0] -- another object, with no finalizer
  spec_keep(handle)
  return handle
end

-- An OpenGL whose functions do nothing, but that count.
local something = ffi.cast("void *", ffi.C.getpid)
local nothing = { getproc = function() return something end, current = something }
local context = assert(gl.open { getproc = function(name) return name ~= "glGetStringi" and something or nil end,
  current = something })
rawset(context, "buffer_storage", nil)
rawset(context, "pinned_memory", nil)
local buffers, open, memory = 0, { ring = false, context = false }, ffi.new "uint8_t[20000]"
local slot -- false: it was asked for
local failure, refusal = 0, 0
local call = context.call
function call.BufferData() failure = refusal end
function call.GetError()
  local code = failure
  failure = 0
  return code
end
function call.MapBufferRange() return memory end
function call.GenBuffers(_, name)
  buffers = buffers + 1
  name[0] = buffers
end
function call.DeleteBuffers() buffers = buffers - 1 end

-- Calls what is refused for what it is given, if it has memory.
local function refused(...)
  local _, message = pcall(...)
  return message:find "expected" or message:rep(2 ^ 30)
end

local function make()
  %s
end
local function give_back()
  failure, refusal = 0, 0
  owners.sweep()
  local export = taken
  taken = nil
  if export then
    export.deleter(export)
  end
  if open.ring then
    open.ring:close()
    open.ring = false
  end
  if open.context then
    open.context:fence_tensor(t)
    open.context:finish()
    open.context = false
  end
  local kept = slot == false and not pcall(ring.begin, ring, 0)
  if slot ~= nil then
    ring:done()
    slot = nil
  end
  return buffers + (kept and 1 or 0)
end
-- At another depth of calls Lua's stack grows in another place, and leaves memory for what comes next. Below 0 it has
-- grown before.
local function at_depth(n)
  if n < 0 then room() end
  if n > 0 then at_depth(n - 1) else make() end
  return nil
end
return at_depth, give_back
"""


def opened(maker, others=0):
    lua = mf.Lua(max_memory=0)
    make, give_back = lua.execute(PROGRAM % maker, mf.zeros((2, 3)), lambda: mf.zeros(3), others)
    for _ in range(3):
        lua.gccollect()
    return lua, make, give_back


@pytest.mark.parametrize("depth", [-1, 0, 13, *one_in(20, range(1, 40))])
@pytest.mark.parametrize("name", MAKERS)
def test_a_limit_at_every_place_loses_nothing(name, depth):
    lua, make, give_back = opened(MAKERS[name])
    before, more = mf.ledger(), 0
    while not within(lua, more, make, depth):
        collect(lua)
        lua.set_max_memory(0)
        assert give_back() == 0, more
        for _ in range(2):
            lua.gccollect()
        assert mf.ledger() == before, more
        more += 8 * FEWER
    assert more > 24
    lua.set_max_memory(0)
    give_back()


@pytest.mark.parametrize("others", one_in(6, range(12)))
@pytest.mark.parametrize("name", ["a view", "a tensor of Python's", "a tensor of a reference", "a ring of a handle"])
def test_a_full_table_of_finalizers_loses_nothing(name, others):
    """What got no finalizer, because LuaJIT's table of them could not grow, cannot be taken out of it either."""
    lua, make, give_back = opened(MAKERS[name], others)
    more = 0
    while not within(lua, more, make):
        collect(lua)
        lua.set_max_memory(0)
        give_back()
        for _ in range(2):
            lua.gccollect()
        more += 8 * FEWER
    lua.set_max_memory(0)
    give_back()
    del lua, make, give_back
    assert not any(mf.ledger())


@pytest.mark.parametrize("name", ["a tensor", "a view", "a copy"])
def test_a_state_that_closes_below_its_limit_loses_nothing(name):
    for more in one_in(5, range(0, 1 << 20, 24)):
        lua, make, give_back = opened(MAKERS[name])
        done = within(lua, more, make)
        collect(lua)
        del lua, make, give_back
        gc.collect()
        assert not any(mf.ledger()), more
        if done:
            break
    assert done


EXPORTED = """
jit.off()
local function export(t) taken = t:to_dlpack() end
return function(new)
  local t = new()
  local ok, message = pcall(export, t)
  t:close()
  if not ok then error(message, 0) end
  taken.deleter(taken)
end
"""


def test_an_export_that_nobody_took_gives_its_memory_back_where_other_threads_may_use_the_state():
    """The memory is NumPy's, and its finalizer waits for a thread that calls Lua."""
    lua = mf.Lua(max_memory=0)
    export = lua.execute(EXPORTED)
    export(lambda: mf.zeros(3))  # which loads what it takes
    done, more = False, 0

    def call_lua():
        with contextlib.suppress(MemoryError):
            lua.eval("1")

    def call_lua_on_another_thread():
        thread = threading.Thread(target=call_lua, daemon=True)
        thread.start()
        thread.join(10)
        return not thread.is_alive()

    def new():
        array = np.zeros(3)
        made.append(True)
        weakref.finalize(array, lambda: entered.append(call_lua_on_another_thread()))
        return mf.from_dlpack(array)

    while not done:
        made, entered = [], []
        lua.gccollect()
        done = within(lua, more, lambda _: export(new))
        collect(lua)
        lua.set_max_memory(0)
        for _ in range(2):
            lua.gccollect()
        lua.execute("require('moonferry').zeros(1):close()")
        assert entered == made, more
        more += 8 * FEWER
    assert more > 24


def test_the_first_finalizer_of_a_state_needs_no_memory():
    lua, make, _ = opened("for _ = 1, 9 do mf.zeros(3) end collectgarbage 'stop'")
    before = mf.ledger().tensors
    make(0)
    made = mf.ledger().tensors
    lua.set_max_memory(1, total=True)
    collect(lua)
    assert (made - before, mf.ledger().tensors - before) == (9, 0)


NAMED = """local gen = call.GenBuffers
function call.GenBuffers(...) gen(...) error "struck" end
pcall(context.ring, context, { 3 })
call.GenBuffers = gen"""


def test_a_buffer_whose_name_comes_with_an_error_is_deleted():
    """As that of a debug hook's is, between two instructions."""
    _, make, give_back = opened(NAMED)
    make(0)
    assert give_back() == 0


SCOPED = """
local mf, scope = require "moonferry", require "moonferry.scope"
jit.off()
local made
local function nothing() end
local function leaves_it() return pcall(scope.outside, nothing) end
local function body()
  mf.scope(function()
    coroutine.yield()
    coroutine.yield((leaves_it()))
    made = mf.zeros(1)
  end)
end
local step, left
local function begin()
  left, step = false, coroutine.wrap(body)
  step()
end
local function leave() left = step() end
local function finish()
  step()
  return left, pcall(function() return made.size end)
end
return begin, leave, finish
"""


def test_what_leaves_a_scope_for_a_moment_comes_back_to_it_without_memory():
    """The scope's coroutine rests between what leaves it, at each limit, and what is made in it afterwards."""
    lua = mf.Lua(max_memory=0)
    begin, leave, finish = lua.execute(SCOPED)
    came = set()
    for more in range(0, 4000, 8):
        begin()
        lua.gccollect()
        within(lua, more, lambda depth: leave())
        lua.set_max_memory(0)
        left, is_open, _ = finish()
        assert not is_open, more
        came.add(left)
    assert came == {False, True}


STRUCK = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import moonferry as mf
from limit import struck
lua = mf.Lua()
make, give_back = lua.execute(sys.argv[1], mf.zeros((2, 3)), lambda: mf.zeros(3))
lua.gccollect()
before = mf.ledger()
for at in struck(lua, make):
    give_back()
    for _ in range(2):
        lua.gccollect()
    now = mf.ledger()
    if sys.argv[2] == "keeps":
        assert now == before, (at, before, now)
    assert before.tensors <= now.tensors <= before.tensors + 3, (at, before, now)
    before = now
print("ended", at > 20)
"""
# What the program was to give back itself; an owner that was held and whose memory was not wrapped any more; a fence
# that was made and given to nobody.
MAY_LOSE = {"a tensor of a reference", "memory whose owner is a tensor"}
MAY_LOSE.update(name for name in MAKERS if "export" in name or "fence" in name)


@pytest.mark.parametrize("name", MAKERS)
def test_an_error_of_a_debug_hook_loses_nothing_and_gives_nothing_back_twice(name):
    """Between any two instructions. In a process of its own, because what such an error may lose is no leak to
    report."""
    keeps = "loses" if name in MAY_LOSE else "keeps"
    command = [sys.executable, "-X", "faulthandler", "-c", STRUCK, PROGRAM % MAKERS[name], keeps]
    env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended True\n", "")
