-- What the specs of devices share: the device to use, another library on the same driver, and the simulator.
--
-- The other library is LuaJIT's FFI on the driver itself. It allocates, copies and fills on streams of its own, and
-- gives and takes memory as raw pointers and DLPack structs, as any program beside Moonferry does. On a simulated
-- driver every finding of the simulator fails the spec that caused it.
local assert = require "luassert"
local busted = require "busted"
local ffi = require "ffi"
local mf = require "moonferry"
local helper = require "helper"

local gpu = {}

pcall(ffi.cdef, [[
int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDevicePrimaryCtxRetain(void **context, int ordinal);
int cuDevicePrimaryCtxRelease_v2(int ordinal);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuCtxGetCurrent(void **context);
int cuMemAlloc_v2(uint64_t *ptr, size_t nbytes);
int cuMemFree_v2(uint64_t ptr);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t nbytes, void *stream);
int cuMemsetD8Async(uint64_t dst, unsigned char value, size_t nbytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t nbytes, void *stream);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuGraphDestroy(void *graph);

int hipInit(unsigned flags);
int hipGetDeviceCount(int *count);
int hipSetDevice(int ordinal);
int hipGetDevice(int *ordinal);
int hipMalloc(void **ptr, size_t nbytes);
int hipFree(void *ptr);
int hipMemcpyAsync(void *dst, const void *src, size_t nbytes, int kind, void *stream);
int hipMemsetAsync(void *dst, int value, size_t nbytes, void *stream);
int hipStreamCreateWithFlags(void **stream, unsigned flags);
int hipStreamDestroy(void *stream);
int hipStreamSynchronize(void *stream);
int hipStreamBeginCapture(void *stream, int mode);
int hipStreamEndCapture(void *stream, void **graph);
int hipGraphDestroy(void *graph);
]])
pcall(ffi.cdef, [[
uint64_t sim_calls(const char *name);
void sim_reset(void);
uint64_t sim_findings(int kind);
const char *sim_finding(size_t i);
int sim_fail(const char *rules);
int64_t sim_left(const char *what);
void sim_host_access(const void *p, size_t nbytes, int write);
void sim_seed(uint64_t seed);
]])

local ANY, RACE, BOUNDS, MISUSE = 0, 1, 3, 4
local NON_BLOCKING, THREAD_LOCAL = 1, 1

local FILES = { cuda = "libcuda.so.1", rocm = "libamdhip64.so.7" }

local handle = ffi.new("void *[1]")
local address = ffi.new("uint64_t[1]")

local function ok(status)
  assert.are.equal(0, status)
end

-- A driver as the other library sees it: addresses are uint64_t, streams void *.
local DRIVERS = {}

function DRIVERS.cuda(lib)
  local driver = {}

  function driver.begin(ordinal)
    ok(lib.cuInit(0))
    ok(lib.cuDevicePrimaryCtxRetain(handle, ordinal))
    ok(lib.cuCtxPushCurrent_v2(handle[0]))
  end

  function driver.finish(ordinal)
    ok(lib.cuCtxPopCurrent_v2(handle))
    ok(lib.cuDevicePrimaryCtxRelease_v2(ordinal))
  end

  function driver.current()
    ok(lib.cuCtxGetCurrent(handle))
    return tostring(handle[0])
  end

  function driver.alloc(nbytes)
    ok(lib.cuMemAlloc_v2(address, nbytes))
    return address[0]
  end

  function driver.free(ptr)
    ok(lib.cuMemFree_v2(ptr))
  end

  function driver.copy(dst, src, nbytes, stream)
    ok(lib.cuMemcpyAsync(dst, src, nbytes, stream))
  end

  function driver.fill(dst, value, nbytes, stream)
    ok(lib.cuMemsetD8Async(dst, value, nbytes, stream))
  end

  function driver.stream()
    ok(lib.cuStreamCreate(handle, NON_BLOCKING))
    return handle[0]
  end

  function driver.destroy(stream)
    ok(lib.cuStreamDestroy_v2(stream))
  end

  function driver.synchronize(stream)
    ok(lib.cuStreamSynchronize(stream))
  end

  function driver.capture(stream)
    ok(lib.cuStreamBeginCapture_v2(stream, THREAD_LOCAL))
  end

  function driver.end_capture(stream)
    local rc = lib.cuStreamEndCapture(stream, handle)
    if rc == 0 then
      ok(lib.cuGraphDestroy(handle[0]))
    end
    return rc
  end

  driver.memory_call, driver.stream_call = "cuMemcpyHtoDAsync", "cuStreamCreate"
  return driver
end

local function pointer(ptr)
  return ffi.cast("void *", ffi.cast("intptr_t", ptr))
end

function DRIVERS.rocm(lib)
  local driver = {}
  local ANY_KIND = 4
  local ordinal_box = ffi.new("int[1]")

  function driver.begin(ordinal)
    ok(lib.hipSetDevice(ordinal))
  end

  function driver.finish() end

  function driver.current()
    ok(lib.hipGetDevice(ordinal_box))
    return tostring(ordinal_box[0])
  end

  function driver.alloc(nbytes)
    ok(lib.hipMalloc(handle, nbytes))
    return ffi.cast("uint64_t", ffi.cast("intptr_t", handle[0]))
  end

  function driver.free(ptr)
    ok(lib.hipFree(pointer(ptr)))
  end

  function driver.copy(dst, src, nbytes, stream)
    ok(lib.hipMemcpyAsync(pointer(dst), pointer(src), nbytes, ANY_KIND, stream))
  end

  function driver.fill(dst, value, nbytes, stream)
    ok(lib.hipMemsetAsync(pointer(dst), value, nbytes, stream))
  end

  function driver.stream()
    ok(lib.hipStreamCreateWithFlags(handle, NON_BLOCKING))
    return handle[0]
  end

  function driver.destroy(stream)
    ok(lib.hipStreamDestroy(stream))
  end

  function driver.synchronize(stream)
    ok(lib.hipStreamSynchronize(stream))
  end

  function driver.capture(stream)
    ok(lib.hipStreamBeginCapture(stream, THREAD_LOCAL))
  end

  function driver.end_capture(stream)
    local rc = lib.hipStreamEndCapture(stream, handle)
    if rc == 0 then
      ok(lib.hipGraphDestroy(handle[0]))
    end
    return rc
  end

  return driver
end

local COUNTS = { cuda = { "cuInit", "cuDeviceGetCount" }, rocm = { "hipInit", "hipGetDeviceCount" } }

-- How many devices the driver of a kind says there are, asked without Moonferry; 0 where there is no driver.
local function count_of(kind)
  local count = ffi.new("int[1]")
  local there, lib = pcall(ffi.load, FILES[kind])
  local init, ask = unpack(COUNTS[kind])
  return there and lib[init](0) == 0 and lib[ask](count) == 0 and count[0] or 0, lib
end

-- The kind that MOONFERRY_SPEC_DEVICE names, which must have a device; without it the first kind that has one, or nil.
local function find()
  local wanted = os.getenv("MOONFERRY_SPEC_DEVICE")
  for _, kind in ipairs(wanted and { wanted } or { "cuda", "rocm" }) do
    local count, lib = count_of(kind)
    if count > 0 then
      return kind, count, lib
    end
  end
  if wanted then
    error("MOONFERRY_SPEC_DEVICE is " .. wanted .. ", and its driver has no device here")
  end
end

local kind, count, lib = find()
if kind then
  gpu.kind, gpu.count = kind, count
  gpu.name, gpu.pinned, gpu.managed = kind .. ":0", kind .. "_host:0", kind == "cuda" and "cuda_managed:0" or nil
  gpu.second = count > 1 and kind .. ":1" or nil
  gpu.driver = DRIVERS[kind](lib)
  local simulated = pcall(function()
    return lib.sim_calls
  end)
  gpu.sim = simulated and lib or nil
end

--- The numbers that the seeds run over: 0 is strictly lazy, the others draw an order, another one in each commit.
gpu.SEEDS = 20
local SHIFT = tonumber(os.getenv "MOONFERRY_SPEC_SEED" or 0)

--- All addresses of a tensor that the other library needs.
function gpu.address(t)
  return ffi.cast("uint64_t", ffi.cast("intptr_t", t._dl.data))
end

--- Tells the simulator that the host reads, or writes, this memory now.
function gpu.host_uses(p, nbytes, write)
  if gpu.sim then
    gpu.sim.sim_host_access(p, nbytes, write and 1 or 0)
  end
end

local function findings()
  local texts = {}
  for i = 0, tonumber(gpu.sim.sim_findings(ANY)) - 1 do
    local text = gpu.sim.sim_finding(i)
    texts[#texts + 1] = text ~= nil and ffi.string(text) or nil
  end
  return table.concat(texts, "\n")
end

--- How many races the simulator has found since the last spec; it forgets them.
function gpu.take_races()
  local races = tonumber(gpu.sim.sim_findings(RACE))
  assert.are.equal(races, tonumber(gpu.sim.sim_findings(ANY)), findings())
  gpu.sim.sim_reset()
  return races
end

--- How often the driver was called since the last reset.
function gpu.calls(name)
  return tonumber(gpu.sim.sim_calls(name))
end

--- How often the driver registered an object of OpenGL's of this kind, "Buffer" or "Image", minus how often it gave one
--- of any kind back.
function gpu.registered(what)
  local begin = gpu.kind == "cuda" and "cuGraphics" or "hipGraphics"
  return gpu.calls(begin .. "GLRegister" .. what) - gpu.calls(begin .. "UnregisterResource")
end

local LEFT = { "allocations", "streams", "events", "captures", "pending" }

local function pushed()
  return gpu.sim and tonumber(gpu.sim.sim_left("contexts"))
end

local before

local function begin()
  gpu.driver.begin(0)
  before = { current = gpu.driver.current(), pushed = pushed() }
  if gpu.sim then
    gpu.sim.sim_seed(0)
    gpu.sim.sim_reset()
  end
end

local function each_device(verb)
  for ordinal = 0, gpu.count - 1 do
    assert.is_true(mf[verb](("%s:%d"):format(kind, ordinal)))
  end
end

-- Memory that is freed gives back events of the devices; and to free it is queued work, too, for which ROCm's streams
-- stay until the next trim.
local function trim()
  each_device "synchronize"
  assert.is_true(mf.trim(gpu.pinned))
  if gpu.managed then
    assert.is_true(mf.trim(gpu.managed))
  end
  each_device "trim"
  each_device "synchronize"
  each_device "trim"
end

-- Nothing of Moonferry is left, here or in the driver, the caller's device is as it was, and nobody raced.
local function finish()
  jit.flush() -- compiled code keeps what it met
  collectgarbage()
  collectgarbage()
  trim()
  local current, contexts = gpu.driver.current(), pushed()
  gpu.driver.finish(0)
  helper.nothing_left()
  assert.are.equal(before.current, current)
  assert.are.equal(before.pushed, contexts)
  if gpu.sim then
    assert.are.equal("", findings())
    for _, what in ipairs(LEFT) do
      assert.are.same({ what, 0 }, { what, tonumber(gpu.sim.sim_left(what)) })
    end
  end
end

--- `describe`, with everything checked after each spec; where there is no GPU, pending with the reason.
function gpu.describe(name, body)
  busted.describe(name, function()
    if not gpu.kind then
      busted.pending("no driver has a GPU for these specs")
      return
    end
    busted.before_each(begin)
    busted.after_each(finish)
    body()
  end)
end

--- Runs `body` once for each seed of the simulator, or once on a real GPU.
function gpu.seeds(body)
  if not gpu.sim then
    return body(0)
  end
  for seed = 0, gpu.SEEDS do
    gpu.sim.sim_seed(seed == 0 and 0 or seed + SHIFT)
    body(seed)
  end
  gpu.sim.sim_seed(0)
end

--- Keeps streams at work for some tens of milliseconds on a GPU, all of them equally long: nothing that takes time, as
--- getting memory does, is between. A simulated one is as late as it may be anyway.
function gpu.keep_busy(streams)
  if gpu.sim or os.getenv "MOONFERRY_SPEC_MUTE" then return end
  local scratch = {}
  for i, stream in ipairs(streams) do
    scratch[i] = mf.with_stream(stream, mf.zeros, 256 * 2 ^ 20, "uint8", { device = gpu.name })
  end
  mf.synchronize(gpu.name)
  for value = 1, 200 do
    for i, stream in ipairs(streams) do mf.with_stream(stream, scratch[i].fill, scratch[i], value % 2) end
  end
  for _, t in ipairs(scratch) do t:close() end
end

--- Waits for the GPU, and lets what only waited for it go.
function gpu.settle()
  assert(mf.synchronize(gpu.name))
  assert(mf.empty({}, "uint8", { device = gpu.name })):close()
end

--- Whether a spec that needs the simulator can run; else it is pending.
function gpu.simulated()
  if not gpu.sim then
    busted.pending("this one looks into the simulated driver")
  end
  return gpu.sim ~= nil
end

gpu.BOUNDS, gpu.MISUSE = BOUNDS, MISUSE

-- Two streams, and bytes that go between them.

gpu.NBYTES = 256

-- Moonferry's stream and the other library's, as handle and as wrapped.
function gpu.streams()
  local theirs = gpu.driver.stream()
  return mf.stream(gpu.name), theirs, mf.wrap_stream(gpu.name, theirs)
end

-- The other library is done with its stream once Moonferry has released what it touched there.
function gpu.finish(theirs, wrapped)
  collectgarbage()
  collectgarbage()
  wrapped:synchronize()
  mf.synchronize(gpu.name)
  wrapped:close()
  gpu.driver.destroy(theirs)
end

-- All bytes of their memory, as the host sees them when their stream is done.
function gpu.bytes_of(ptr, theirs)
  gpu.driver.synchronize(theirs)
  local t = mf.wrap(ptr, gpu.NBYTES, "uint8", { device = gpu.name, owner = false })
  local first, last = t:tolist()[1], t:tolist()[gpu.NBYTES]
  t:close()
  assert.are.equal(first, last)
  return first
end

function gpu.on(s, t, method, ...)
  return mf.with_stream(s, t[method], t, ...)
end

return gpu
