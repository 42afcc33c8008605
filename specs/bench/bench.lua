-- bench.lua: the rows of the benchmark that LuaJIT must time itself. Prints "name nanoseconds" lines.
-- MOONFERRY_BENCH_LOOPS names the library with the C loops that these are compared with.
local ffi = require "ffi"
local mf = require "moonferry"

ffi.cdef [[
double loops_sum_rows(const float *data, long rows, long columns);
typedef struct bench_timespec { long sec; long nsec; } bench_timespec;
int clock_gettime(int clock, bench_timespec *out);
]]
local loops = ffi.load(os.getenv "MOONFERRY_BENCH_LOOPS")
local time = ffi.new "bench_timespec"

local function now()
  ffi.C.clock_gettime(1, time)
  return tonumber(time.sec) * 1e9 + tonumber(time.nsec)
end

local function least(rounds, ...)
  local best = {}
  for _ = 1, rounds do
    for i = 1, select("#", ...) do
      local start = now()
      select(i, ...)()
      best[i] = math.min(best[i] or math.huge, now() - start)
    end
  end
  return best
end

local N = 1000000
local small = mf.zeros({64, 64}, "float32")
local function export_and_delete()
  for _ = 1, N do
    local managed = small:to_dlpack()
    managed.deleter(managed)
  end
end

local ROWS, COLUMNS = 1000, 1000
local matrix = mf.full({ROWS, COLUMNS}, 0.5, "float32")
local pointer = matrix:ptr()
local sum
local function sum_rows()
  local s = 0
  for _, row in matrix:rows() do
    for j = 0, COLUMNS - 1 do
      s = s + row[j]
    end
  end
  sum = s
end
local function sum_rows_in_c()
  sum = loops.loops_sum_rows(pointer, ROWS, COLUMNS)
end

local exports = least(10, export_and_delete)
print(("export_delete %.3f"):format(exports[1] / N))
local sums = least(60, sum_rows, sum_rows_in_c)
assert(sum == ROWS * COLUMNS * 0.5)
print(("sum_rows %.1f"):format(sums[1]))
print(("sum_rows_in_c %.1f"):format(sums[2]))
