-- Other people's GPU libraries from Lua: cuda.core on CUDA, CuPy on ROCm, each with a stream of its own. What they keep
-- of memory and streams is theirs, so the driver is not asked here what is left; races are.
local ffi = require "ffi"
local mf = require "moonferry"
local gpu = require "gpu"

local D = gpu.name
local NBYTES = 64

-- CuPy is built for one kind of GPU.
local PEERS = {
  cuda = "import cuda.core",
  rocm = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY); import cupy; assert cupy.cuda.runtime.is_hip",
}

-- make(): a stream. alloc(stream, value): memory of NBYTES filled on it. read(array, stream): what is in its last byte,
-- after waiting for that stream only.
local CODE = {
  cuda = [[
from cuda.core import Device
from cuda.bindings import driver
import moonferry

device = Device(0)
device.set_current()

def make():
    return device.create_stream()

def alloc(stream, value):
    memory = device.allocate(NBYTES, stream=stream)
    memory.fill(value, stream=stream)
    return memory

def read(tensor, stream):
    host = bytearray(NBYTES)
    exported = tensor.__dlpack__(stream=int(stream.handle))
    driver.cuMemcpyDtoHAsync(host, tensor.__cuda_array_interface__["data"][0], NBYTES, stream.handle)
    stream.sync()
    del exported
    return host[-1]
]],
  rocm = [[
import os
import sys
sys.setdlopenflags(os.RTLD_LAZY)
import cupy

def make():
    return cupy.cuda.Stream(non_blocking=True)

def alloc(stream, value):
    with stream:
        array = cupy.empty(NBYTES, "uint8")
        array.data.memset_async(value, NBYTES, stream)
    return array

def read(tensor, stream):
    with stream:
        return int(cupy.from_dlpack(tensor).get(stream=stream)[-1])
]],
}

describe("another library", function()
  local reason = not gpu.kind and "no GPU for these specs"
  local py = gpu.kind and require "moonferry.python"
  if py then
    local started, message = py.start()
    local found, why
    if started then
      found, why = pcall(py.exec, PEERS[gpu.kind])
    end
    reason = not started and message or not found and ("`%s`: %s"):format(PEERS[gpu.kind], tostring(why))
  end
  if reason then
    pending(reason)
    return
  end

  local function collect()
    for _ = 1, 2 do
      collectgarbage()
      py.collect()
      py.import("gc").collect()
    end
  end

  setup(function()
    py.exec("NBYTES = " .. NBYTES)
    py.exec(CODE[gpu.kind])
    if gpu.sim then
      gpu.sim.sim_reset()
    end
  end)

  after_each(function()
    collect()
    assert.is_true(mf.synchronize(D))
    assert.are.equal(0, mf.ledger().tensors)
    if gpu.sim then
      assert.are.equal(0, gpu.take_races())
    end
  end)

  it("gives its memory to our stream", function()
    gpu.seeds(function(seed)
      local theirs, s = py.main.make(), mf.stream(D)
      local wrapped = py.stream(theirs, D)
      local array = py.main.alloc(theirs, seed)
      -- Neither library knows which of its streams wrote last, so the one that did is current for the import.
      local t = mf.with_stream(wrapped, py.tensor, array)
      assert.are.equal(D, t.device)
      assert.are.equal(seed, mf.with_stream(s, t.tolist, t)[NBYTES])
      t:close()
      s:close()
      wrapped:synchronize()
      wrapped:close()
    end)
  end)

  it("takes ours on its stream", function()
    gpu.seeds(function(seed)
      local theirs, s = py.main.make(), mf.stream(D)
      local t = mf.with_stream(s, mf.full, NBYTES, seed, "uint8", { device = D })
      assert.are.equal(seed, py.main.read(t, theirs))
      mf.with_stream(s, t.fill, t, 1)
      t:close()
      s:close()
    end)
  end)

  it("has streams that are ours by their handles", function()
    local theirs = py.main.make()
    local wrapped = py.stream(theirs, D)
    assert.is_true(wrapped == mf.wrap_stream(D, ffi.cast("void *", wrapped.handle)))
    assert.is_true(wrapped:synchronize())
    wrapped:close()
  end)
end)
