-- What waits for OpenGL waits for as long as it takes, and nothing else does: on a real OpenGL whose fences are reached
-- when the spec says so. No spec of what is drawn can tell, because Mesa has drawn before anybody looks.
jit.off() -- fences call back into Lua
local ffi = require "ffi"
local mf = require "moonferry"
local C = require "moonferry.lib"
local egl = require "egl"
local gl = require "moonferry.gl"
local helper = require "helper"
local refuses = helper.refuses

local EXPIRED, SIGNALED = 0x911B, 0x911A
local ARRAY, ARRAY_BINDING, PACK, PACK_BINDING = 0x8892, 0x8894, 0x88EB, 0x88ED
ffi.cdef "void *eglGetCurrentContext(void);"
local find = egl.open()
local library = ffi.load "libEGL.so.1"

-- The queue: fences are numbered; those up to `reached` are.
local queue = {}
local overridden = {
  glFenceSync = ffi.cast("void *(*)(uint32_t, uint32_t)", function()
    if queue.broken then
      return nil
    end
    queue.made = queue.made + 1
    return ffi.cast("void *", queue.made)
  end),
  glClientWaitSync = ffi.cast("uint32_t (*)(void *, uint32_t, uint64_t)", function(fence)
    return tonumber(ffi.cast("intptr_t", fence)) <= queue.reached and SIGNALED or EXPIRED
  end),
  glDeleteSync = ffi.cast("void (*)(void *)", function()
    queue.deleted = queue.deleted + 1
  end),
}

local function getproc(name)
  return overridden[name] or find(name:sub(3), "void *")
end

-- Whether somebody who reads `t` ("r") or writes it ("w") would have to wait now.
local function waits(t, use)
  local done = ffi.new "int32_t[1]"
  assert(C.mf_tensor_fence_wait(t.handle, use == "w" and C.MF_WRITE or C.MF_READ, 0, done, nil) == 0)
  return done[0] == 0
end

describe("moonferry.gl, while OpenGL has not drawn yet,", function()
  local context, calls
  before_each(function()
    queue.made, queue.deleted, queue.reached = 0, 0, 0
    calls = {}
    context = assert(gl.open { getproc = getproc, current = ffi.cast("void *(*)(void)", library.eglGetCurrentContext) })
    function context.call.ReadPixels() -- there is nothing to read from
    end
    for _, name in ipairs { "Finish", "GenBuffers", "DeleteBuffers", "UnmapBuffer" } do
      local real = context.call[name]
      context.call[name] = function(...)
        calls[#calls + 1] = name
        if name == "Finish" then
          queue.reached = queue.made
        end
        return real(...)
      end
    end
  end)
  after_each(function()
    context:finish()
    context = nil
    helper.nothing_left()
    assert.are.equal(queue.made, queue.deleted)
    local names = table.concat(calls, " ")
    assert.are.equal(select(2, names:gsub("GenBuffers", "")), select(2, names:gsub("DeleteBuffers", "")))
    assert.are.equal(0, find("GetError", "unsigned (*)(void)")())
  end)

  it("does not give a slot that is drawn", function()
    local ring = assert(context:ring({ 4 }, "float32", { slots = 2 }))
    for _ = 1, 2 do
      assert(ring:begin(0))
      ring:submit()
      assert(ring:done())
      refuses("no slot was begun", ring.submit, ring)
    end
    local none, _, code = ring:begin(0)
    assert.are.same({ nil, mf.ETIMEOUT }, { none, code })
    refuses("no slot was begun", ring.submit, ring)
    queue.reached = 1
    assert.are.equal(1, select(2, ring:begin(0)))
    assert.is_true(ring:close())
  end)

  it("gives a copied slot again at once", function()
    local ring = assert(context:ring({ 4 }, "float32", { slots = 1, route = "copied" }))
    for _ = 1, 3 do
      assert(ring:begin(0))
      ring:submit()
      assert(ring:done())
      refuses("no slot was begun", ring.submit, ring)
    end
    assert.is_true(ring:close())
  end)

  for _, route in ipairs { "mapped", "copied" } do
    it("closes a ring one of whose slots is closed: " .. route, function()
      local ring = assert(context:ring({ 4 }, "float32", { route = route }))
      ring.slots[2]:close()
      assert.is_true(ring:close())
    end)
  end

  it("has readers wait for what OpenGL writes, and writers for both", function()
    local ring = assert(context:ring({ 4 }, "float32", { slots = 2 }))
    local read, t = assert(ring:begin(0)), mf.zeros(4)
    assert(ring:done())
    local written = assert(ring:begin(0))
    assert(ring:done(C.MF_WRITE))
    assert.are.same({ false, true }, { waits(read, "r"), waits(read, "w") })
    assert.are.same({ true, true }, { waits(written, "r"), waits(written, "w") })
    assert(context:fence_tensor(t))
    assert.are.same({ false, true }, { waits(t, "r"), waits(t, "w") })
    assert(context:fence_tensor(t, C.MF_WRITE))
    helper.refuses("fence_tensor: use: expected an integer of 32 bits", context.fence_tensor, context, t, 2 ^ 32 + 2)
    assert.are.same({ true, true }, { waits(t, "r"), waits(t, "w") })
    queue.reached = queue.made
    assert.are.same({ false, false }, { waits(t, "w"), waits(written, "w") })
    t:close()
    assert.is_true(ring:close())
  end)

  it("does not give a worker what the renderer held", function()
    local ring = assert(context:ring({ 4 }, "float32", { slots = 3 }))
    local worker = mf.ring_from_handle(ring.handle)
    local _, first = worker:begin(0)
    worker:publish()
    ring:latest()
    assert(ring:hold())
    for _ = 1, 6 do
      local _, at = worker:begin(0)
      assert.is_truthy(at and at ~= first)
      worker:publish()
      ring:latest()
    end
    queue.reached = queue.made
    worker:close()
    assert.is_true(ring:close())
  end)

  it("says why nothing holds a slot, and holds it when it is asked again", function()
    local ring = assert(context:ring({ 4 }, "float32", { slots = 3 }))
    local worker = mf.ring_from_handle(ring.handle)
    worker:begin(0)
    worker:publish()
    local t = ring:latest()
    queue.broken = true
    local held, message, code = ring:hold()
    queue.broken = false
    assert.are.same({ nil, C.MF_EDRIVER }, { held, code })
    assert.matches("glFenceSync", message)
    assert.is_false(waits(t, "w"))
    assert.is_true(ring:hold())
    assert.is_true(waits(t, "w"))
    queue.reached = queue.made
    worker:close()
    assert.is_true(ring:close())
  end)

  it("has a picture when it has come, and not one that is read anew", function()
    local reader = assert(context:reader(4, 4, "rgba8", { slots = 2 }))
    assert(reader:read())
    assert.is_nil(reader:latest())
    queue.reached = 1
    local picture = assert(reader:latest())
    assert(reader:read())
    assert.are.equal(picture, reader:latest())
    queue.reached = 2
    assert(not rawequal(reader:latest(), picture))
    assert(reader:read())
    assert(not rawequal(reader:latest(), picture))
    queue.reached = 3
    assert.are.equal(picture, reader:latest())
    for _ = 1, 2 do
      assert(reader:read()) -- the second one into what latest gave
    end
    assert.is_nil(reader:latest())
    assert.is_true(reader:close())
  end)

  it("reads on after a picture that could not be read", function()
    local reader = assert(context:reader(4, 4, "rgba8", { slots = 1 }))
    local read = context.call.ReadPixels
    function context.call.ReadPixels()
      error("the debug callback of the program", 0)
    end
    assert.are.same({ false, "the debug callback of the program" }, { pcall(reader.read, reader) })
    context.call.ReadPixels = read
    assert(reader:read())
    assert.is_true(reader:close())
  end)

  it("waits for it before a ring's buffer goes", function()
    local ring = assert(context:ring({ 4 }, "float32"))
    local view = assert(ring:begin(0)):view { 1 }
    assert(ring:done())
    assert.is_false(ring:close())
    assert.are.same({ "GenBuffers", "Finish" }, calls)
    view:close()
    assert.is_true(ring:close())
    assert.are.same({ "Finish", "UnmapBuffer", "DeleteBuffers" }, { unpack(calls, 3) })
  end)

  it("waits for it before the context goes, and then nobody waits for the context", function()
    local t = mf.zeros(4)
    assert(context:fence_tensor(t))
    context:finish()
    assert.are.same({ "Finish" }, calls)
    queue.reached = 0
    assert.is_false(waits(t, "w"))
    t:close()
    queue.deleted = queue.made -- it goes with its context
  end)

  it("lets go of memory with the context", function()
    local released, out = 0, ffi.new "mf_tensor *[1]"
    local release = ffi.cast("void (*)(void *)", function()
      released = released + 1
    end)
    local like = mf.zeros(4)
    assert(C.mf_tensor_wrap(like._dl, 0, release, nil, out, nil) == 0)
    local t = mf.from_handle(out[0])
    assert(context:fence_tensor(t))
    t:close()
    assert.are.equal(0, released)
    context:finish()
    assert.are.equal(1, released)
    queue.deleted = queue.made
    like:close()
    release:free()
  end)

  it("drops the fence of whoever refuses it", function()
    local ring = assert(context:ring({ 4 }, "float32"))
    refuses("no slot", ring.done, ring)
    assert.are.same({ 1, 1 }, { queue.made, queue.deleted })
    assert.is_true(ring:close())
  end)

  it("deletes the buffer of a ring that it cannot make", function()
    local map = context.call.MapBufferRange
    function context.call.MapBufferRange()
      return nil
    end
    local ring = assert(context:ring({ 4 }, "float32"))
    assert.are.equal("copied", ring.route)
    assert.matches("glMapBufferRange failed", ring.reason, 1, true)
    assert.is_true(ring:close())
    context.call.MapBufferRange = map
    local store = context.call.BufferStorage
    function context.call.BufferStorage()
      error("the debug callback of the program", 0)
    end
    assert.are.same({ false, "the debug callback of the program" }, { pcall(context.ring, context, { 4 }) })
    context.call.BufferStorage = store
    for _, route in ipairs { "mapped", "copied" } do
      for _, slots in ipairs { 0, 65, 1.5, "3", 0 / 0, math.huge } do
        refuses("gl.ring: slots: expected a", context.ring, context, { 4 }, "float32", {
          slots = slots, route = route,
        })
      end
    end
  end)

  it("leaves bound what was", function()
    local get = find("GetIntegerv", "void (*)(unsigned, int *)")
    local bind = find("BindBuffer", "void (*)(unsigned, unsigned)")
    local names, bound = ffi.new "unsigned[1]", ffi.new "int[1]"
    find("GenBuffers", "void (*)(int, unsigned *)")(1, names)
    bind(ARRAY, names[0])
    bind(PACK, names[0])
    for _, route in ipairs { "mapped", "copied" } do
      local ring = assert(context:ring({ 4 }, "float32", { route = route }))
      local reader = assert(context:reader(4, 4, "rgba8", { route = route }))
      assert(ring:begin(0))
      ring:submit()
      assert(ring:done() and reader:read())
      assert.is_true(ring:close() and reader:close())
      get(ARRAY_BINDING, bound)
      assert.are.equal(names[0], bound[0])
      get(PACK_BINDING, bound)
      assert.are.equal(names[0], bound[0])
    end
    bind(ARRAY, 0)
    bind(PACK, 0)
    find("DeleteBuffers", "void (*)(int, const unsigned *)")(1, names)
  end)
end)
