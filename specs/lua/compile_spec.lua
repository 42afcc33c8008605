-- The loops that are promised to run at C speed are compiled: a trace for each, and no abort.
local mf = require "moonferry"
local helper = require "helper"

local PRELUDE = [[
local mf = require "moonferry"
local util = require "jit.util"
local aborts, traces = {}, 0
jit.attach(function(what, _, _, _, code, reason)
  if what == "stop" then
    traces = traces + 1
  elseif what == "abort" then
    local text = require("jit.vmdef").traceerr[code]
    aborts[#aborts + 1] = text and text:format(tonumber(reason) or -1) or tostring(code)
  end
end, "trace")
local N = 300
]]

local EPILOGUE = [[
-- Not failures: an outer loop is tried before its inner loop, and a function that is called twice per turn
-- is tried on its own before the loop that calls it, where a way out of its trace may go round and round that loop.
local HARMLESS = { "leaving loop", "inner loop", "return to lower frame", "loop unroll limit" }
for _, text in ipairs(aborts) do
  local harmless = false
  for _, known in ipairs(HARMLESS) do
    harmless = harmless or text:find(known, 1, true) ~= nil
  end
  if not harmless then print("ABORT " .. text) end
end
local linked, stitched = 0, 0
for i = 1, traces do
  local info = util.traceinfo(i)
  -- "root": an outer loop, compiled from the end of its inner loop back to its start.
  if info and (info.linktype == "loop" or info.linktype == "root") then linked = linked + 1 end
  if info and info.linktype == "stitch" then stitched = stitched + 1 end
end
print(("LOOPS %d STITCHES %d"):format(linked, stitched))
]]

local LOOPS = {
  row = [[
    local t, s = mf.ones({ N, N }, "float32"), 0
    for i = 0, N - 1 do
      local row = t:row(i)
      for j = 0, N - 1 do s = s + row[j] end
    end
    assert(s == N * N)]],
  rows = [[
    local t, s = mf.ones({ N, N }, "float32"), 0
    for _, row in t:rows() do
      for j = 0, N - 1 do s = s + row[j] end
    end
    assert(s == N * N)]],
  ["rows of short length"] = [[
    local t, s = mf.ones({ N, 3 }, "uint8"), 0
    for _, row in t:rows() do s = s + row[0] + row[1] + row[2] end
    assert(s == N * 3)]],
  at = [[
    local t, s = mf.ones({ N, N }, "float64"), 0
    for i = 0, N - 1 do
      for j = 0, N - 1 do s = s + t:at(i, j) end
    end
    assert(s == N * N)]],
  ["at, rank 3 and 5"] = [[
    local t, u, s = mf.ones({ N, 2, 2 }, "int32"), mf.ones({ N, 1, 1, 1, 2 }, "int32"), 0
    for i = 0, N - 1 do s = s + t:at(i, 1, 1) end
    for i = 0, N - 1 do s = s + u:at(i, 0, 0, 0, 1) end
    assert(s == 2 * N)]],
  set = [[
    local t = mf.zeros({ N, N }, "int16")
    for i = 0, N - 1 do
      for j = 0, N - 1 do t:set(i, j, i) end
    end
    assert(t:get(7, 5) == 7)]],
  ptr = [[
    local p = mf.ones(N, "float32"):ptr()
    for i = 0, N - 1 do p[i] = 2 * p[i] end
    assert(p[5] == 2)]],
  ["export and delete"] = [[
    local t = mf.zeros({ 3, 4 })
    for _ = 1, N do
      local m = t:to_dlpack()
      m.deleter(m)
    end]],
  ["legacy export and delete"] = [[
    local t = mf.zeros({ 3, 4 })
    for _ = 1, N do
      local m = t:to_dlpack_legacy()
      m.deleter(m)
    end]],
  ["create and close"] = [[
    for _ = 1, N do mf.empty({ 3, 4 }):close() end]],
  ["view and close"] = [[
    local t = mf.zeros({ 3, 4 })
    for _ = 1, N do t:as_readonly():close() end]],
  ["export, from_dlpack and close"] = [[
    local t = mf.zeros({ 3, 4 })
    for _ = 1, N do
      mf.from_dlpack(t:to_dlpack()):close()
    end]],
}

for _, name in ipairs { "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32",
  "float64" } do
  local value = name == "bool" and "true" or "i % 100"
  LOOPS["get and put of " .. name] = ([[
    local t = mf.zeros({ N, 2 }, "%s")
    for i = 0, N - 1 do t:put(i, 1, %s) end
    local last
    for i = 0, N - 1 do last = t:get(i, -1) end
    assert(last == (type(last) == "boolean" or (N - 1) %% 100))]]):format(name, value)
end

describe("compiled:", function()
  after_each(helper.nothing_left)

  if not jit.status() then
    pending("the JIT is off in this run")
    return
  end

  for name, body in pairs(LOOPS) do
    it(name, function()
      local program = PRELUDE .. "do\n" .. body .. "\nend\n" .. EPILOGUE
      local output, code = helper.luajit(program)
      assert.are.equal(0, code, output)
      assert.is_nil(output:match("ABORT[^\n]*"), output)
      local loops, stitches = output:match("LOOPS (%d+) STITCHES (%d+)")
      local _, wanted = body:gsub("for [%w_]+ = ", "")
      assert.is_true(tonumber(loops) >= wanted, wanted .. " loops should be compiled\n" .. output)
      assert.are.equal("0", stitches, output)
    end)
  end

  -- Where foreign code is due, `close` leaves compiled code; loops over memory of our own must not pay for that later.
  -- LuaJIT gives up on a function for good when enough attempts to compile it have failed, and how many that are is
  -- drawn by lot. So there are many more, and what counts afterwards is each attempt at the one loop in question:
  -- which other functions get a trace by then, and of what kind, is chance.
  for how, foreign in pairs {
    ["in a loop"] = "for i = #list, 1, -1 do list[i]:close() list[i] = nil end",
    ["one by one"] = ("list[#list]:close() list[#list] = nil "):rep(100),
  } do
    it("close is still compiled into a loop after much of other libraries' memory was closed " .. how, function()
      local program = ("local close_foreign = loadstring %q\n"):format("local list = ... " .. foreign)
      local output, code = helper.luajit(program .. [[
        local mf = require "moonferry"
        local helper = require "helper"
        local util, vmdef = require "jit.util", require "jit.vmdef"
        for _ = 1, 2000 do
          local list, lent = {}, {}
          for i = 1, 100 do
            lent[i] = helper.managed()
            list[i] = mf.from_dlpack(lent[i])
          end
          close_foreign(list)
          lent[1].flags = 0 -- until here the structs are needed
        end
        local function close_own(t, count)
          for _ = 1, count do
            t:as_readonly():close()
          end
        end
        local attempts, current = {}, nil
        local function listen(what, trace, func, pc, code)
          if what == "start" then
            local in_loop = func == close_own and util.funcinfo(func, pc).currentline > util.funcinfo(func).linedefined
            current = in_loop and trace or nil
          elseif trace == current then
            attempts[#attempts + 1] = what == "stop" and util.traceinfo(trace).linktype or vmdef.traceerr[code]
          end
        end
        jit.off(listen)
        local t = mf.zeros { 3, 4 }
        close_own(t, 1) -- what C offers is found once, and by the interpreter
        jit.attach(listen, "trace")
        close_own(t, 3000)
        print(table.concat(attempts, ", "))]])
      assert.are.equal(0, code, output)
      assert.are.equal("loop\n", output)
    end)
  end

  it("loads in the process of the specs too", function()
    assert.is_table(mf)
  end)
end)
