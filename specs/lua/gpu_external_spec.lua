-- What another API has exported as file descriptors: its semaphores on streams. The other API is the simulator, because
-- no driver of Vulkan's for the CPU exports one.
local ffi = require "ffi"
local mf = require "moonferry"
local gpu = require "gpu"
local helper = require "helper"
local refuses = helper.refuses

pcall(ffi.cdef, [[
int sim_semaphore_create(uint64_t value, int binary);
int sim_semaphore_read(int fd, uint64_t *value);
int sim_semaphore_signal(int fd, uint64_t value);
int dup(int fd);
int close(int fd);
]])

gpu.describe("what another API exports", function()
  local external = require "moonferry.external"
  local sim, fd = gpu.sim, nil
  if not sim then
    it("takes an API that exports", gpu.simulated)
    return
  end

  local function value()
    local out = ffi.new "uint64_t[1]"
    assert.are.equal(0, sim.sim_semaphore_read(fd, out))
    return tonumber(out[0])
  end

  before_each(function()
    fd = sim.sim_semaphore_create(0, 0)
  end)

  after_each(function()
    ffi.C.close(fd)
  end)

  it("is a semaphore that streams wait for and signal", function()
    local semaphore = assert(external.semaphore(ffi.C.dup(fd), { device = gpu.name }))
    local s = mf.stream(gpu.name)
    local t = mf.zeros({ 64 }, "float32", { device = gpu.name })
    assert(semaphore:wait(s, 3))
    t:record(s, "write")
    t:fill(7)
    t:acquire(s, "write")
    assert(semaphore:signal(s, 4ULL))
    assert.is_false(s:query())
    assert.are.equal(0, value())
    assert.are.equal(0, sim.sim_semaphore_signal(fd, 3))
    assert(s:synchronize())
    assert.are.equal(4, value())
    assert.are.equal(7, t:to("cpu"):get(63))
    semaphore:close()
    semaphore:close()
    t:close()
    s:close()
  end)

  it("ends with the collector where nobody closes it", function()
    for _ = 1, 3 do
      assert(assert(external.semaphore(ffi.C.dup(fd), { device = gpu.name })):signal(nil, value() + 1))
      mf.synchronize(gpu.name)
    end
    assert.are.equal(3, value())
  end)

  it("says what is wrong", function()
    local semaphore = assert(external.semaphore(ffi.C.dup(fd), { device = gpu.name }))
    refuses("device is cpu", external.semaphore, fd, { device = "cpu" })
    refuses("fd is -1", external.semaphore, -1, { device = gpu.name })
    refuses("options: expected a table", external.semaphore, fd)
    refuses("wait: value: expected 0 or more, got -1", semaphore.wait, semaphore, nil, -1)
    refuses("stream", semaphore.wait, semaphore, 17, 1)
    refuses("options: expected a table", external.tensor, fd, { 2 }, "float32")
    refuses("do not fit in the memory's 4", external.tensor, fd, { 2 }, "float32", { device = gpu.name, nbytes = 4 })
    refuses("fd is -1", external.tensor, -1, { 2 }, "float32", { device = gpu.name, nbytes = 8 })
    semaphore:close()
    refuses("the semaphore is closed", semaphore.signal, semaphore, nil, 1)
  end)
end)
