-- What the Lua specs share: hand-made DLPack structs that count their deletions, the ledger at zero, and
-- programs run in a process of their own.
local assert = require "luassert"
local ffi = require "ffi"
local mf = require "moonferry"
local C = require "moonferry.lib"

pcall(ffi.cdef, [[
void support_release(void *ctx);
void support_delete(DLManagedTensorVersioned *self);
void support_delete_legacy(DLManagedTensor *self);
int support_on_thread(void (*run)(void *), void *argument);
void support_call(void *ctx);
void support_delete_and_call(DLManagedTensorVersioned *self);
int support_failures(void);
int32_t support_wait(void *ctx, uint64_t value, int64_t ns);
]])

-- lent: what calling deleters point to, by their numbers, kept as long as the process.
local helper = { C = C, lent = {} }

local build = os.getenv("MOONFERRY_BUILD") or "build/dev"
local support_path = build .. "/specs/lua_support.so"
local support = ffi.load(support_path)
helper.support = support

--- Collects what can be collected and asserts that nothing of Moonferry is alive. Compiled code keeps the
--- constants that it met, tensors in upvalues among them, so it goes first.
function helper.nothing_left()
  C.mf_fault_arm(-1, 0)
  jit.flush()
  collectgarbage()
  collectgarbage()
  assert.are.same({ tensors = 0, storages = 0, bytes = 0, blocks = 0 }, mf.ledger())
end

--- The same where Python is hosted, too: its collector lets go of what Lua's has left to it.
function helper.nothing_left_by_either()
  collectgarbage()
  collectgarbage()
  require("moonferry.python").collect()
  helper.nothing_left()
end

--- What `work` leaves to the collector: by how much each count of the ledger grows while nothing is collected. `settle`
--- is called before each count, so that no device is still at work; the default does nothing.
function helper.left_by(work, settle)
  local function count()
    if settle then settle() end
    return mf.ledger()
  end
  collectgarbage()
  collectgarbage "stop"
  local passed, left = pcall(function()
    local before = count()
    work()
    local now = count()
    for what, number in pairs(before) do now[what] = now[what] - number end
    return now
  end)
  collectgarbage "restart"
  assert.is_true(passed, left)
  return left
end

helper.NOTHING = { tensors = 0, storages = 0, bytes = 0, blocks = 0 }

--- A function that says of one case of a long list after another whether it is run: one in `count`, others with each
--- seed, all of them where MOONFERRY_SPEC_EVERY is set.
function helper.one_in(count)
  if os.getenv "MOONFERRY_SPEC_EVERY" then count = 1 end
  local at = tonumber(os.getenv "MOONFERRY_SPEC_SEED" or 0) % count
  return function()
    at = at + 1
    return at % count == 0
  end
end

-- What a hand-made struct points to, kept as long as the struct.
local anchors = setmetatable({}, { __mode = "k" })

local function fill(view, fields, anchor)
  anchor.data = fields.data or ffi.new("float[6]", 1, 2, 3, 4, 5, 6)
  anchor.shape = ffi.new("int64_t[8]", fields.shape or { 2, 3 })
  anchor.strides = ffi.new("int64_t[8]", fields.strides or { 3, 1 })
  anchor.count = ffi.new("int32_t[1]")
  view.data = anchor.data
  view.device.device_type = fields.device_type or 1
  view.device.device_id = fields.device_id or 0
  view.ndim = fields.ndim or #(fields.shape or { 2, 3 })
  view.dtype.code = fields.code or 2
  view.dtype.bits = fields.bits or 32
  view.dtype.lanes = fields.lanes or 1
  view.shape = anchor.shape
  if fields.strides ~= false then
    view.strides = anchor.strides
  end
  view.byte_offset = fields.byte_offset or 0
end

--- A `DLManagedTensorVersioned *` made by hand, and the counter of its deleter's calls. It describes 2 x 3
--- floats, 1 to 6, but for what `fields` says.
function helper.managed(fields)
  local box, anchor = ffi.new("DLManagedTensorVersioned[1]"), {}
  local m = ffi.cast("DLManagedTensorVersioned *", box)
  fill(m.dl_tensor, fields or {}, anchor)
  m.version.major, m.version.minor = fields and fields.major or 1, fields and fields.minor or 3
  m.flags = fields and fields.flags or 0
  m.manager_ctx = anchor.count
  m.deleter = support.support_delete
  anchor.box = box
  anchors[m] = anchor
  return m, anchor.count, anchor
end

--- The same as `DLManagedTensor *`.
function helper.managed_legacy(fields)
  local box, anchor = ffi.new("DLManagedTensor[1]"), {}
  local m = ffi.cast("DLManagedTensor *", box)
  fill(m.dl_tensor, fields or {}, anchor)
  m.manager_ctx = anchor.count
  m.deleter = support.support_delete_legacy
  anchor.box = box
  anchors[m] = anchor
  return m, anchor.count, anchor
end

--- What the memory below calls when it is given back: once for the process, with the number that it was made with.
function helper.calls(fn)
  assert(package.loadlib(support_path, "support_calls"))(fn)
end

--- A struct whose deleter calls that function.
function helper.managed_calling(number, fields)
  local m, box, anchor = helper.managed(fields)
  box[0] = number
  m.deleter = support.support_delete_and_call
  helper.lent[number] = anchor
  return m
end

--- A tensor over wrapped memory whose release callback does.
function helper.wrapped_calling(number)
  local like, out = ffi.new("DLTensor[1]"), ffi.new("mf_tensor *[1]")
  local m, box, anchor = helper.managed()
  box[0] = number
  helper.lent[number] = anchor
  like[0] = m.dl_tensor
  assert.are.equal(0, C.mf_tensor_wrap(like, 0, support.support_call, box, out, nil))
  return mf.from_handle(out[0])
end

--- Calls a C function of one pointer on another thread.
function helper.on_thread(fn, argument)
  assert.are.equal(0, support.support_on_thread(ffi.cast("void (*)(void *)", fn), ffi.cast("void *", argument)))
end

--- A fence that cannot be waited for until the number that comes with it is set to something else than 0.
function helper.fence()
  local fence, reached = ffi.new("mf_fence"), ffi.new("int32_t[1]")
  fence.ctx, fence.wait = reached, support.support_wait
  return fence, reached
end

--- Runs luajit on a program text; gives what it printed and its exit code.
function helper.luajit(program, options, environment)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(program)
  file:close()
  local command = ("%s luajit %s %s 2>&1; echo \"exit $?\""):format(environment or "", options or "", path)
  local pipe = assert(io.popen(command))
  local output = pipe:read("*a")
  pipe:close()
  os.remove(path)
  local text, code = output:match("^(.*)exit (%d+)\n$")
  return text, tonumber(code)
end

local views, own_hits = {}, 0 -- what use_up made, and how often memory failed it

--- Makes views of `t` of what the runtime has kept of earlier tensors, so that each new one needs memory.
function helper.use_up(t)
  local before = tonumber(helper.C.mf_fault_hits())
  for _ = 1, 8 do
    views[#views + 1] = t:view()
  end
  own_hits = own_hits + tonumber(helper.C.mf_fault_hits()) - before
end

--- Calls fn(), of which each of the runtime's allocations fails in turn, and all that follow it: it says so, and
--- returns nothing, until it has what it needs. Returns what it returned then. `t`, where one is given, is used up
--- before each call.
function helper.scarce(fn, t)
  for nth = 0, 200 do
    if t then
      helper.use_up(t)
    end
    own_hits = 0
    helper.C.mf_fault_arm(nth, 1)
    local ok, made, message, code = pcall(fn)
    local hits = tonumber(helper.C.mf_fault_hits())
    helper.C.mf_fault_arm(-1, 0)
    assert.is_true(ok, made)
    if made then
      assert.is_true(nth > 1, "nothing was allocated")
      assert.are.equal(own_hits, hits, "it passes over a failure")
      for i = #views, 1, -1 do
        views[i]:close()
        views[i] = nil
      end
      return made
    end
    assert.are.equal(mf.ENOMEM, code)
    assert.matches("no memory for", message)
  end
  error "it never had enough"
end

--- Asserts that the call raises and that the message, which names this spec's line, matches a plain text.
function helper.refuses(text, fn, ...)
  local ok, message = pcall(fn, ...)
  assert.is_false(ok, "no error")
  assert.is_string(message)
  assert.is_truthy(message:find(text, 1, true), ("%q does not contain %q"):format(message, text))
  assert.is_truthy(message:match("^[^:]*specs/lua/[%w_]+%.lua:%d+: "), ("%q names another place"):format(message))
end

return helper
