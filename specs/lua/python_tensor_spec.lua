-- Tensors between Lua and the Python that it hosts: the same memory on both sides.
local ffi = require "ffi"
local helper = require "helper"
local mf = require "moonferry"
local py = require "moonferry.python"
local collect, has = require("hosted").collect, require("hosted").has

-- The error of a call that must fail.
local function failure(f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  return tostring(message)
end

describe("tensors through moonferry.python", function()
  local before

  before_each(function()
    collect()
    before = mf.ledger()
  end)

  after_each(function()
    collect()
    assert.are.same(before, mf.ledger())
  end)

  it("says why where the package of Python cannot be imported", function()
    local output, code = helper.luajit [[
local mf, py = require "moonferry", require "moonferry.python"
py.exec "import sys\nsys.modules['moonferry'] = None"
for _ = 1, 2 do
  local ok, e = pcall(py.builtins.id, mf.zeros(2))
  print(ok, (tostring(e):gsub("\n.*", "")))
end
py.exec "del sys.modules['moonferry']"
print(py.builtins.len(mf.zeros(2)))
]]
    assert.are.equal(0, code, output)
    assert.matches("^false\t.*moonferry.*\nfalse\t.*moonferry.*\n2\n$", output)
  end)

  it("looks for the package of Python, which is not imported, without leaving a reference", function()
    local output, code = helper.luajit [[
local py = require "moonferry.python"
py.exec "import sys\ndef references(): return sys.getrefcount('moonferry')"
local before = py.main.references()
for _ = 1, 100 do py.eval "object()" end
assert(not py.eval "'moonferry' in sys.modules")
print(py.main.references() - before)
]]
    assert.are.equal(0, code, output)
    assert.is_true(tonumber(output) < 50, output)
  end)

  it("tells what to do with an array in the place of a tensor", function()
    local array = py.import("numpy").zeros(py.tuple { 2, 3 })
    for _, call in ipairs {
      function() mf.from_dlpack(array) end, function() mf.tensor(array) end, function() mf.wrap(array, 6) end,
      function() mf.zeros({ 2, 3 }):copy(array) end, function() mf.zeros(2).get(array, 0) end,
    } do
      local said = failure(call)
      assert.is_truthy(said:find("a Python object; py.tensor(x)", 1, true), said)
    end
  end)

  describe("tensors", function()
    it("is the same Lua value each time it comes, as long as that is open", function()
      local held = py.list { mf.zeros { 2 } }
      local a, b = held[0], held[0]
      assert.is_true(rawequal(a, b))
      a:close()
      local again = held[0]
      assert.is_false(rawequal(a, again))
      assert.are.equal(0, again:get(1))
    end)

    it("go to Python over the same memory", function()
      local t = mf.tensor({ { 1, 2 }, { 3, 4 } }, "float32")
      local view = py.builtins.memoryview(t)
      assert.are.equal(3, py.get(view, 1, 0))
      py.set(view, 1, 0, 30)
      assert.are.equal(30, t:get(1, 0))
      view:release()
      t:close()
    end)

    it("come back as the tensor that they are", function()
      py.exec "def identity(x): return x"
      local t = mf.zeros({ 2, 3 }, "int16")
      local back = py.main.identity(t)
      assert.is_true(mf.is_tensor(back))
      assert.are.equal("int16", back.dtype)
      assert.are.same({ 2, 3 }, back.shape)
      assert.are.equal(t.handle, back.handle)
      t:close()
      back:put(1, 2, 9)
      assert.are.equal(9, back:get(1, 2))
      back:close()
    end)

    it("live as long as Python holds them", function()
      py.exec "kept = []"
      local t = mf.full({ 4 }, 7, "float64")
      py.main.kept:append(t)
      t:close()
      collect()
      assert.are.equal(before.storages + 1, mf.ledger().storages)
      local back = py.main.kept[0]
      assert.are.equal(7, back:get(3))
      back:close()
      py.main.kept:clear()
    end)

    it("that are closed are refused", function()
      local t = mf.zeros(3)
      t:close()
      assert.matches("tensor closed", failure(py.builtins.repr, t))
      local forged = mf.zeros(3)
      local handle = forged.handle
      forged._handle = 5
      assert.matches("cannot be passed", failure(py.builtins.repr, forged))
      forged._handle = handle
      forged:close()
    end)

    it("go inside lists, dicts and keyword arguments", function()
      local t = mf.tensor({ 1, 2 }, "int32")
      py.exec "def total(ts, *, extra): return sum(v for t in ts for v in t.tolist()) + extra['t'].tolist()[0]"
      assert.are.equal(7, py.main.total({ t, t }, py.kw { extra = py.dict { t = t } }))
      t:close()
    end)

    it("takes what has no DLPack, as moonferry.asarray does", function()
      local memory = py.import("array").array("f", { 1, 2, 3 })
      local t = py.tensor(memory)
      assert.are.equal("float32", t.dtype)
      t:put(1, 20)
      assert.are.equal(20, memory[1]) -- the same memory
      local copied = py.tensor(memory, py.kw { copy = true })
      t:put(0, 10)
      assert.are.same({ 1, 20, 3 }, copied:tolist())
      local listed = py.tensor(py.eval "[[1, 2], [3, 4]]")
      assert.are.same({ { 1, 2 }, { 3, 4 } }, listed:tolist())
      assert.matches("copy=False", failure(py.tensor, py.eval "[1, 2]", py.kw { copy = false }))
      assert.matches("a 'module' cannot be imported", failure(py.tensor, py.import "sys"))
      assert.matches("TypeError", failure(py.tensor, py.eval "['one']"))
      -- What has DLPack and fails says why.
      assert.matches("KeyError", failure(py.tensor, py.eval(
        "type('X', (), {'__dlpack__': lambda s, **k: {}['no'], '__dlpack_device__': lambda s: (1, 0)})()")))
      for _, each in ipairs { t, copied, listed } do
        each:close()
      end
    end)

    it("are shared with NumPy both ways", function()
      if not has "numpy" then
        return pending "NumPy is not installed"
      end
      local np = py.import "numpy"
      local t = mf.zeros({ 3, 4 }, "float32")
      local a = np.from_dlpack(t)
      t:put(1, 2, 5)
      assert.are.equal(5, a:item(1, 2))
      assert.are.equal(tonumber(ffi.cast("uintptr_t", t:ptr())), a.ctypes.data)
      py.set(np.asarray(t), 1, 2, 6) -- NumPy before 2.1 takes DLPack's structs as read-only
      assert.are.equal(6, t:get(1, 2))
      local straight = np.arange(6, py.kw { dtype = "int64" }):reshape(2, 3)
      local b = straight.T
      local u = py.tensor(b)
      assert.are.same({ 3, 2 }, u.shape)
      assert.are.equal(4, tonumber(u:get(1, 1)))
      local rows = py.tensor(straight)
      assert.are.equal(b.ctypes.data, tonumber(ffi.cast("uintptr_t", rows:ptr())))
      u:put(0, 0, 100)
      assert.are.equal("100", tostring(b:max()))
      local copied = py.tensor(straight, py.kw { copy = true })
      assert.are_not.equal(b.ctypes.data, tonumber(ffi.cast("uintptr_t", copied:ptr())))
      b.flags.writeable = false
      local major, minor = np.__version__:match "^(%d+)%.(%d+)"
      if tonumber(major) * 100 + tonumber(minor) >= 201 then
        local locked = py.tensor(b)
        assert.is_true(locked.readonly)
        locked:close()
      else -- which knows no structs with a version, and so cannot say read-only
        assert.matches("BufferError", failure(py.tensor, b))
      end
      for _, each in ipairs { t, u, rows, copied } do
        each:close()
      end
    end)

    it("are shared with PyTorch both ways", function()
      if not has "torch" then
        return pending "PyTorch is not installed"
      end
      local torch = py.import "torch"
      local t = mf.full({ 2, 3 }, 2, "float32")
      local p = py.into(torch.Tensor, t)
      assert.are.equal(tonumber(ffi.cast("uintptr_t", t:ptr())), p:data_ptr())
      p:mul_(10)
      assert.are.equal(20, t:get(1, 2))
      local back = py.tensor(torch.nn.functional.relu(p))
      assert.are.equal(20, back:get(0, 0))
      assert.matches("__dlpack_c_exchange_api__", failure(py.into, py.builtins.dict, t))
      assert.matches("Error", failure(py.tensor, py.builtins))
      t:close()
      back:close()
    end)
  end)

  describe("other libraries", function()
    it("such as tvm-ffi take and give tensors", function()
      if not has "tvm_ffi" then
        return pending "tvm-ffi is not installed"
      end
      local t = mf.tensor({ 1, 2, 3 }, "float32")
      local theirs = py.import("tvm_ffi").from_dlpack(t)
      local back = py.tensor(theirs)
      assert.are.equal(tonumber(ffi.cast("uintptr_t", t:ptr())), tonumber(ffi.cast("uintptr_t", back:ptr())))
      t:close()
      back:close()
    end)
  end)

  describe("without memory", function()
    it("tensors raise MemoryError, and nothing is lost", function()
      local C = require "moonferry.lib"
      local moonferry = py.import "moonferry"
      local t = mf.zeros { 2, 3 }
      local crossings = {
        function() return moonferry.from_dlpack(t) end,
        function() return moonferry.zeros(py.tuple { 2, 3 }) end,
        function() return moonferry.frombuffer(py.bytes "12345678") end,
        function() return moonferry.from_dlpack(t, py.kw { copy = true }) end,
      }
      local live, refused = mf.ledger(), 0
      for _, cross in ipairs(crossings) do
        for nth = 0, 8 do
          for sticky = 0, 1 do
            C.mf_fault_arm(nth, sticky)
            local ok, result = pcall(cross)
            local hits = tonumber(C.mf_fault_hits())
            C.mf_fault_arm(-1, 0)
            assert.are.equal(hits == 0, ok, result)
            if ok and mf.is_tensor(result) then
              result:close()
            elseif not ok then
              refused = refused + 1
              assert.matches("MemoryError", result)
            end
            result = nil -- luacheck: ignore 311
            collect()
            assert.are.same(live, mf.ledger())
          end
        end
      end
      assert.is_true(refused > 0)
      t:close()
    end)
  end)
end)
