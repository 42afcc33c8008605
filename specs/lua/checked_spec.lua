-- The checked mode: what goes past the end of a row unseen is an error there, and all else is as it was.
local process = require "process"

-- Runs a chunk in a program of its own with MOONFERRY_CHECKED; `t` is int32, 2 x 3, and `mf` is there.
local function run(code, setting)
  local program = ([[
    local ffi, mf = require "ffi", require "moonferry"
    local t = mf.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, "int32")
    local ok, message = pcall(function() %s end)
    print(ok and "fine" or message)
    local values = t:tolist()
    print(table.concat(values[1], " ") .. " | " .. table.concat(values[2], " "))
    t:close()
    collectgarbage() collectgarbage()
    print(mf.ledger().tensors .. mf.ledger().bytes)
  ]]):format(code)
  return process.runs(program, "MOONFERRY_CHECKED=" .. (setting or "1"))
end

local REFUSED = {
  { "for y, row in t:rows() do for i = 1, 3 do row[i] = y end end", "row: coordinate 3 is outside 0 ... 2" },
  { "local _ = t:row(0)[-1]", "row: coordinate -1 is outside 0 ... 2" },
  { "local _ = t:row(1)[0.5]", "row: coordinate: expected an integer, got 0.5" },
  { "t:row()[6] = 1", "row: coordinate 6 is outside 0 ... 5" },
  { "t:row(2)", "row: coordinate 0 is 2, outside 0 ... 1" },
  { "t:at(0, 3)", "at: coordinate 1 is 3, outside 0 ... 2" },
  { "t:at(0)", "at: expected 2 coordinates, got 1" },
  { "t:set(0, 3, 7)", "set: coordinate 1 is 3, outside 0 ... 2" },
  { "t:set(0, 7)", "set: expected 2 coordinates and a value, got 2 arguments" },
  { "t:as_readonly():row(0)[0] = 1", "row: the tensor is read-only" },
  { "local u = t:copy() local row = u:row(0) u:close() local _ = row[0]", "tensor closed" },
  { "local _ = t:row(0) + 1", "is no pointer" },
  { "local row = t:row(0) getmetatable(row).__len(row)", "row: a row has no length; t.shape has the extents" },
}

describe("the checked mode", function()
  for _, case in ipairs(REFUSED) do
    it(("refuses `%s`"):format(case[1]), function()
      local said = run(case[1])
      assert.is_truthy(said:match("^[^\n]*"):find(case[2], 1, true), said)
      assert.is_truthy(said:find("\n00\n", 1, true), said)
    end)
  end

  it("lets a right program be", function()
    local said = run [[
      for y, row in t:rows() do for x = 0, 2 do row[x] = row[x] + 10 * y end end
      t:set(0, 0, 7) t:row(1, 2)[0] = t:at(0, 1) t:ptr()[1] = -1
      assert(t:view({ nil, nil, -1 }):row(0)[0] == 14)
    ]]
    assert.are.equal("fine\n7 -1 3 | 14 15 2\n00\n", said)
  end)

  it("is off unless it is asked for", function()
    assert.are.equal("fine\n1 2 3 | 4 5 6\n00\n", run("local _ = t:row(0)[3]", "0"))
  end)
end)
