-- Frames of an engine's script for `make bench-engine`: three tensors out to PyTorch and back in each, once called from
-- Lua, once by a Python function that does the same and times itself, in turns.
--
--   luajit engine_frames.lua FRAMES TIMES     prints a table of figures; TIMES gets the nanoseconds of each frame
--
-- All times are CPU time of this thread. Invariant: both ways make the same calls of PyTorch on the same arrays.
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"

ffi.cdef "typedef struct { long s, ns; } bench_timespec; int clock_gettime(int clock, bench_timespec *out);"
local THREAD_CPUTIME, clock = 3, ffi.new "bench_timespec"
local function now()
  ffi.C.clock_gettime(THREAD_CPUTIME, clock)
  return tonumber(clock.s) * 1e9 + tonumber(clock.ns)
end

local FRAMES, WARM, times = tonumber(arg[1]), 3000, assert(io.open(arg[2], "w"))
local torch = py.import "torch"
torch.set_num_threads(1)
local rings = {
  vertices = mf.ring({ 20000, 4 }), colors = mf.ring({ 20000, 4 }, "uint8"), heights = mf.ring { 512, 512 },
}
local velocity, tint, wind = torch.ones(20000, 4), torch.ones(20000, 4):byte(), torch.ones(512, 512)

py.exec [[
import time
class Work:
    """What the script does, without Lua."""
    def __init__(self, vertices, colors, heights, velocity, tint, wind):
        self.slots, self.velocity, self.tint, self.wind = list(zip(vertices, colors, heights)), velocity, tint, wind
    def __call__(self, i):
        before = time.thread_time_ns()
        vertices, colors, heights = self.slots[i - 1]
        vertices.mul_(0.99)
        vertices.add_(self.velocity)
        vertices.clamp_(-1, 1)
        colors.add_(self.tint)
        heights.add_(self.wind)
        heights.sin_()
        return time.thread_time_ns() - before
]]
local slots = {}
for name, ring in pairs(rings) do
  for i, view in ipairs(ring:into(torch.from_dlpack)) do
    slots[i] = slots[i] or {}
    slots[i][name] = view
  end
end
local function views(name)
  local list = {}
  for i = 1, #slots do
    list[i] = slots[i][name]
  end
  return py.list(list)
end
local work = py.main.Work(views "vertices", views "colors", views "heights", velocity, tint, wind)
for _, s in ipairs(slots) do
  s.slow, s.move, s.clamp = s.vertices.mul_, s.vertices.add_, s.vertices.clamp_
  s.shade, s.raise, s.wave = s.colors.add_, s.heights.add_, s.heights.sin_
end

local vertices, colors, heights = rings.vertices, rings.colors, rings.heights
local function begin()
  local _, i = vertices:begin()
  colors:begin()
  heights:begin()
  return i
end

local function done()
  vertices:done()
  colors:done()
  heights:done()
end

local function frame()
  local s = slots[begin()]
  s.slow(0.99)
  s.move(velocity)
  s.clamp(-1, 1)
  s.shade(tint)
  s.raise(wind)
  s.wave()
  done()
end

local function resident()
  collectgarbage()
  collectgarbage()
  for line in io.lines "/proc/self/status" do
    local kib = line:match "^VmRSS:%s+(%d+)"
    if kib then
      return tonumber(kib)
    end
  end
end

local function percentile(list, share)
  local sorted = { unpack(list, 1, 0) }
  for i = 1, #list do
    sorted[i] = list[i]
  end
  table.sort(sorted)
  return sorted[math.max(1, math.ceil(#sorted * share))]
end

local function garbage()
  local per_frame = {}
  collectgarbage()
  collectgarbage "stop"
  for i = 1, 101 do
    local before = collectgarbage "count"
    frame()
    per_frame[i] = collectgarbage "count" - before
  end
  collectgarbage "restart"
  return percentile(per_frame, 0.5)
end

py.settle()
local scripted, alone = {}, {}
for i = 1, FRAMES do
  scripted[i], alone[i] = 0, 0
end
local kib, blocks
for n = 1, FRAMES + WARM do
  if n == WARM + 1 then
    kib, blocks = resident(), mf.ledger().blocks
  end
  local before = now()
  frame()
  local took = now() - before
  local without = tonumber(work(begin()))
  done()
  if n > WARM then
    scripted[n - WARM], alone[n - WARM] = took, without
  end
end
local grown, new_blocks = resident() - kib, mf.ledger().blocks - blocks
for i = 1, FRAMES do
  times:write(("%d %d\n"):format(scripted[i], alone[i]))
end
times:close()
print(("p50=%d alone=%d p99=%d p999=%d grown_kib=%d blocks=%d garbage_kib=%.3f"):format(percentile(scripted, 0.5),
  percentile(alone, 0.5), percentile(scripted, 0.99), percentile(scripted, 0.999), grown, new_blocks, garbage()))
