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
int dup2(int fd, int other);
int close(int fd);
int fcntl(int fd, int what, ...);
int memfd_create(const char *name, unsigned int flags);
int64_t pwrite(int fd, const void *from, size_t nbytes, int64_t offset);
]])

local F_GETFD = 1
local function is_open(fd)
  return ffi.C.fcntl(fd, F_GETFD) >= 0
end

-- The next descriptor that the process would get: one that was left open is seen by it.
local function next_fd()
  local fd = ffi.C.dup(2)
  ffi.C.close(fd)
  return fd
end

-- Memory as the simulator takes it from another API, behind a page that says where it is: 1024 numbers, each its place.
local function memory_fd()
  local fd, numbers = ffi.C.memfd_create("memory", 0), ffi.new "int32_t[1024]"
  for i = 0, 1023 do
    numbers[i] = i
  end
  assert.are.equal(16, tonumber(ffi.C.pwrite(fd, ffi.new("uint64_t[2]", 4096, 4096), 16, 0)))
  assert.are.equal(4096, tonumber(ffi.C.pwrite(fd, numbers, 4096, 4096)))
  return fd
end

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

  it("is memory, whose descriptor belongs to the tensor", function()
    local free, given = next_fd(), memory_fd()
    local t = assert(external.tensor(given, { 16 }, "int32", { device = gpu.name, nbytes = 4096, byte_offset = 64 }))
    assert.is_false(is_open(given))
    assert.are.equal(16 + 3, t:to("cpu"):get(3))
    t:close()
    mf.synchronize(gpu.name)
    mf.trim(gpu.name)
    assert.are.equal(free, next_fd())
  end)

  it("keeps the descriptor after a refusal", function()
    local memory = memory_fd()
    local free = next_fd()
    refuses("do not fit in the memory's 4", external.tensor, memory, { 2 }, "int32", { device = gpu.name, nbytes = 4 })
    local none, message = external.semaphore(fd, { device = gpu.kind .. ":99" })
    assert.is_nil(none)
    assert.is_truthy(message:find(gpu.kind .. ":99", 1, true), message)
    assert.is_true(is_open(memory) and is_open(fd))
    assert.are.equal(free, next_fd())
    ffi.C.close(memory)
  end)

  it("is a semaphore, whose descriptor belongs to it until it is closed", function()
    local free, given, blocks = next_fd(), ffi.C.dup(fd), mf.ledger().blocks
    collectgarbage "stop"
    local semaphore = assert(external.semaphore(given, { device = gpu.name }))
    semaphore:close()
    local after, left = next_fd(), mf.ledger().blocks
    collectgarbage "restart"
    assert.is_false(is_open(given))
    assert.are.same({ free, blocks }, { after, left })
  end)

  it("takes a descriptor where the process has no standard input", function()
    local free, given, input = next_fd(), ffi.C.dup(fd), ffi.C.dup(0)
    ffi.C.close(0)
    local semaphore, message = external.semaphore(given, { device = gpu.name })
    local open = { is_open(0), is_open(given) }
    ffi.C.dup2(input, 0)
    ffi.C.close(input)
    assert(semaphore, message):close()
    assert.are.same({ false, false }, open)
    assert.are.equal(free, next_fd())
  end)

  it("says what is wrong", function()
    local semaphore = assert(external.semaphore(ffi.C.dup(fd), { device = gpu.name }))
    refuses("device is cpu", external.semaphore, fd, { device = "cpu" })
    refuses("fd is -1", external.semaphore, -1, { device = gpu.name })
    refuses("options: expected a table", external.semaphore, fd)
    refuses("wait: value: expected 0 or more, got -1", semaphore.wait, semaphore, nil, -1)
    refuses("stream", semaphore.wait, semaphore, 17, 1)
    refuses("options: expected a table", external.tensor, fd, { 2 }, "float32")
    refuses("external.tensor: options: unknown option \"byte_ofset\"", external.tensor, fd, { 2 }, "float32",
      { device = gpu.name, nbytes = 8, byte_ofset = 4 })
    refuses("external.semaphore: options: unknown option \"timeline\"", external.semaphore, fd,
      { device = gpu.name, timeline = true })
    refuses("do not fit in the memory's 4", external.tensor, fd, { 2 }, "float32", { device = gpu.name, nbytes = 4 })
    refuses("fd is -1", external.tensor, -1, { 2 }, "float32", { device = gpu.name, nbytes = 8 })
    semaphore:close()
    refuses("the semaphore is closed", semaphore.signal, semaphore, nil, 1)
  end)
end)
