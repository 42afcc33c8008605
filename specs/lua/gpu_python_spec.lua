-- Tensors and streams of devices between Lua and the Python that it hosts, and through it to other libraries.
local ffi = require "ffi"
local mf = require "moonferry"
local gpu = require "gpu"
local collect = require("hosted").collect

local D = gpu.name
local NBYTES = 64

local py

-- A NumPy-like library of a GPU, as Python code that knows only the driver's stream and DLPack.
local CONSUMER = [[
import moonferry

class Stream:
    "Another library's stream object."
    def __init__(self, handle):
        self.handle = handle
    def __cuda_stream__(self):
        return (0, self.handle)

class Producer:
    "Another library's array: it notes which stream it was asked to be ready on."
    def __init__(self, tensor):
        self.tensor, self.asked = tensor, []
    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()
    def __dlpack__(self, *, stream=None, **more):
        self.asked.append(stream)
        return self.tensor.__dlpack__(stream=stream, **more)
]]

gpu.describe("python", function()
  setup(function()
    py = require "moonferry.python"
    py.exec(CONSUMER)
  end)

  it("gets a device's tensor as any other, and gives it back", function()
    local t = mf.tensor({ 1, 2, 3 }, "float32", { device = D })
    py.exec "def same(x): return x"
    local back = py.main.same(t)
    assert.are.equal(D, back.device)
    assert.is_true(back._dl.data == t._dl.data)
    assert.are.equal(D, tostring(py.object(t).device))
    t:close()
    assert.are.same({ 1, 2, 3 }, back:tolist())
    back:close()
    collect()
  end)

  it("shares the current stream, and gets streams as values", function()
    local s = mf.stream(D)
    local moonferry = py.import "moonferry"
    local theirs = mf.with_stream(s, moonferry.current_stream, D)
    assert.is_true(py.stream(theirs) == s)
    coroutine.wrap(function()
      assert.is_true(py.stream(mf.with_stream(s, moonferry.current_stream, D)) == s)
    end)()
    assert.is_true(theirs == py.object(s))
    for _, named in ipairs { mf.default_stream(D), mf.per_thread_stream(D) } do
      assert.is_true(py.stream(py.object(named), D) == named)
    end
    local made = moonferry.Stream(D)
    local mine = py.stream(made)
    assert.are.equal(made.handle, tonumber(ffi.cast("intptr_t", mine.handle)))
    made = nil -- luacheck: ignore 311
    collect()
    assert.is_true(mine:synchronize())
    mine:close()
    s:close()
    assert.matches("stream closed", select(2, pcall(py.object, s)))
    collect()
  end)

  it("has the stream current that was, after a coroutine and a generator in it were given up", function()
    py.exec [[
def entered(device):
    with moonferry.Stream(device):
        yield 1
]]
    local s = mf.stream(D)
    local step = coroutine.wrap(function()
      mf.with_stream(s, function()
        for n in py.iter(py.main.entered(D)) do
          coroutine.yield(n)
        end
      end)
    end)
    assert.are.equal(1, step())
    assert.is_true(mf.current_stream(D) == mf.default_stream(D))
    step = nil -- luacheck: ignore 311
    s:close()
    collect()
    assert.is_true(mf.current_stream(D) == mf.default_stream(D))
  end)

  it("lets streams of other libraries be used here, which stay as long", function()
    local theirs = gpu.driver.stream()
    local number = tonumber(ffi.cast("intptr_t", theirs))
    local object = py.main.Stream(number)
    local gone = py.import("weakref").ref(object)
    local s = py.stream(object)
    assert.are.equal(D, s.device)
    assert.is_true(s.handle == theirs)
    py.close(object)
    local t = mf.with_stream(s, mf.full, 8, 3, "int32", { device = D })
    assert.are.same({ 3, 3, 3, 3, 3, 3, 3, 3 }, t:tolist())
    t:close()
    s:close()
    s = nil -- luacheck: ignore 311
    object = nil -- luacheck: ignore 311
    collect()
    assert.are.equal(py.None, gone())
    gpu.driver.destroy(theirs)
    assert.is_false((pcall(py.stream, py.main)))
    assert.is_false((pcall(py.stream, 12345)))
  end)

  it("keeps another library's stream past the end of a scope and past py.close", function()
    local theirs = gpu.driver.stream()
    local lives = py.eval "lambda ref: ref() is not None"
    local ref = py.import("weakref").ref
    local s, gone = py.scope(function(scope)
      local object = py.main.Stream(tonumber(ffi.cast("intptr_t", theirs)))
      local wrapped = py.stream(object)
      local watch = scope:keep(ref(object))
      py.close(object)
      return wrapped, watch
    end)
    collect()
    assert.is_true(lives(gone))
    assert.is_true(s:synchronize())
    s:close()
    collect()
    assert.is_false(lives(gone))
    gpu.driver.destroy(theirs)
  end)

  it("gives what a coroutine keeps to no scope that has ended without it", function()
    local s = mf.stream(D)
    local thread, ended, kept
    local outer = coroutine.create(function()
      mf.scope(function(scope)
        ended = scope
        mf.with_stream(s, function()
          thread = coroutine.running()
          coroutine.yield()
          kept = mf.scope(function(inner) return inner:keep(py.list { 1 }) end)
        end)
      end)
    end)
    assert.is_true(coroutine.resume(outer))
    s:close()
    assert.matches("stream closed", select(2, coroutine.resume(outer)))
    assert.is_true(ended.ended)
    assert.is_true(coroutine.resume(thread))
    assert.are.equal(1, #kept)
    py.close(kept)
    collect()
  end)

  it("imports on the stream that is current here", function()
    gpu.seeds(function(seed)
      local a, b = mf.stream(D), mf.stream(D)
      local t = mf.with_stream(a, mf.full, NBYTES, seed, "uint8", { device = D })
      local producer = py.main.Producer(t)
      local u = mf.with_stream(b, py.tensor, producer)
      assert.are.equal(tonumber(ffi.cast("intptr_t", b.handle)), producer.asked[0])
      gpu.driver.fill(gpu.address(u), seed + 1, NBYTES, b.handle)
      assert.are.equal(seed + 1, mf.with_stream(a, t.tolist, t)[NBYTES])
      u:close()
      t:close()
      py.close(producer)
      producer = nil -- luacheck: ignore 311
      collect()
      a:close()
      b:close()
    end)
  end)

  it("may label pinned memory as the cpu's, and Lua waits all the same", function()
    gpu.seeds(function(seed)
      local pinned = mf.zeros(NBYTES, "uint8", { device = gpu.pinned })
      local label = py.object(pinned):to "cpu"
      assert.are.equal("cpu", label.device)
      assert.is_true(label._dl.data == pinned._dl.data)
      assert.are.equal(0, label:get(0))
      local s = mf.stream(D)
      pinned:acquire(s, "write")
      gpu.driver.fill(gpu.address(pinned), seed + 1, NBYTES, s.handle)
      assert.are.equal(seed + 1, label:ptr()[NBYTES - 1])
      gpu.host_uses(label._dl.data, NBYTES, false)
      label:close()
      pinned:close()
      s:close()
      collect()
    end)
  end)
end)
