-- What moonferry.gl finds that a context can do, and what it calls then, on an OpenGL that does nothing but count: the
-- extensions that the ways differ in are on no one machine.
jit.off() -- its functions call back into Lua
local ffi = require "ffi"
local mf = require "moonferry"
local gl = require "moonferry.gl"
local helper = require "helper"

ffi.cdef "int getpid(void);"
local something = ffi.cast("void *", ffi.C.getpid)
local MAJOR, MINOR, NUM_EXTENSIONS = 0x821B, 0x821C, 0x821D

-- What the context answers that is asked now.
local integers, texts
local syncs = 0
local functions = {
  glFenceSync = ffi.cast("void *(*)(unsigned, unsigned)", function()
    syncs = syncs + 1
    return something
  end),
  glDeleteSync = ffi.cast("void (*)(void *)", function()
    syncs = syncs - 1
  end),
  glGetIntegerv = ffi.cast("void (*)(unsigned, int *)", function(name, out)
    out[0] = integers[name] or 0
  end),
  glGetStringi = ffi.cast("const char *(*)(unsigned, unsigned)", function(_, i)
    return texts[i]
  end),
}

-- A context of that version (4.3 is 43) with these extensions; `absent`: a function that it does not have.
local function opened(version, extensions, absent)
  integers, texts = { [MAJOR] = math.floor(version / 10), [MINOR] = version % 10, [NUM_EXTENSIONS] = #extensions }, {}
  for i, name in ipairs(extensions) do
    texts[i - 1] = ffi.new("char[?]", #name + 1, name)
  end
  return assert(gl.open {
    getproc = function(name)
      if name ~= absent then
        return functions[name] or something
      end
    end,
    current = something,
  })
end

describe("the ways of a context of OpenGL", function()
  local STORAGE, PINNED = "GL_ARB_buffer_storage", "GL_AMD_pinned_memory"
  local NO_PINNED = "there is no GL_AMD_pinned_memory"
  for _, case in ipairs {
    { 44, {}, nil, nil, NO_PINNED },
    { 46, {}, nil, nil, NO_PINNED },
    { 50, {}, nil, nil, NO_PINNED },
    { 43, {}, nil, "OpenGL 4.3 has no GL_ARB_buffer_storage", NO_PINNED },
    { 43, { "GL_other", STORAGE }, nil, nil, NO_PINNED },
    { 33, { "GL_other", "GL_another" }, nil, "OpenGL 3.3 has no GL_ARB_buffer_storage", NO_PINNED },
    { 44, { STORAGE }, "glBufferStorage", "OpenGL 4.4 has no GL_ARB_buffer_storage", NO_PINNED },
    { 21, { STORAGE, PINNED }, "glGetStringi", "OpenGL 2.1 has no GL_ARB_buffer_storage", NO_PINNED },
    { 46, { PINNED }, nil, nil, nil },
    { 46, { "GL_other", PINNED, "GL_another" }, nil, nil, nil },
  } do
    local version, extensions, absent, storage, pinned = unpack(case, 1, 5)
    it(("are known: %d, %s without %s"):format(version, table.concat(extensions, " "), absent or "nothing"), function()
      local context = opened(version, extensions, absent)
      assert.are.same({ storage, pinned }, { context.buffer_storage, context.pinned_memory })
      context:finish()
    end)
  end

  it("need both functions of the program's", function()
    for _, from in ipairs { { getproc = print }, { current = something }, {} } do
      helper.refuses("gl.open: getproc and current expected", gl.open, from)
    end
    helper.refuses("gl.open: current: expected a C function, got a function", gl.open,
      { getproc = print, current = print })
  end)
end)

describe("a fence", function()
  it("that was refused, and not dropped because Lua had no memory to call, is dropped by the next call", function()
    for _, call in ipairs { "fence", "finish" } do
      local context = opened(44, {})
      assert(context:fence())
      context._refused = true
      assert.are.equal(1, syncs)
      context[call](context)
      assert.are.equal(call == "fence" and 1 or 0, syncs)
      context._refused = call == "fence"
      context:finish()
      assert.are.equal(0, syncs)
    end
  end)
end)

describe("a picture", function()
  local context, sent
  before_each(function()
    context, sent = opened(44, {}), {}
    function context.call.TexSubImage2D(_, _, x, y, width, rows)
      sent[#sent + 1] = table.concat({ x, y, width, rows }, " ")
    end
  end)
  after_each(function()
    context:finish()
    context = nil
    helper.nothing_left()
  end)

  it("is sent in one call where OpenGL can step over what is between its rows, and row by row elsewhere", function()
    local wide, odd = mf.zeros({ 2, 6, 3 }, "uint8"), mf.zeros({ 2, 10 }, "uint8")
    for _, case in ipairs {
      { mf.zeros({ 2, 3, 3 }, "uint8"), { "5 7 3 2" } },
      { odd:view(mf.all, { 0, 9 }):reshape(2, 3, 3), { "5 7 3 1", "5 8 3 1" } }, -- between whole pixels
      { wide:view(mf.all, { 1, 4 }), { "5 7 3 2" } },
      { wide:view({ nil, nil, -1 }), { "5 7 6 1", "5 8 6 1" } },
      { wide:view(mf.all, { 1, 2 }), { "5 7 1 2" } },
      { mf.wrap(ffi.new "uint8_t[36]", { 2, 1, 3 }, "uint8", { strides = { 18, 7, 1 } }), { "5 7 1 2" } },
    } do
      sent = {}
      assert(context:upload(1, case[1], "rgb8", 5, 7))
      assert.are.same(case[2], sent)
    end
  end)

  it("has compact pixels, and is told what else it may be", function()
    local t, deep = mf.zeros({ 2, 3, 4 }, "uint8"), mf.zeros({ 2, 3, 1 }, "uint32")
    for _, view in ipairs { t:view(mf.all, mf.all, { nil, nil, -1 }), t:view(mf.all, { nil, nil, 2 }),
      t:view(mf.all, { nil, nil, -1 }) } do
      helper.refuses("upload: strides: expected compact pixels in each row", context.upload, context, 1, view, "rgba8")
    end
    helper.refuses("upload: shape: expected height x width x 3, got {2, 3, 4}", context.upload, context, 1, t, "rgb8")
    helper.refuses("upload: shape: expected height x width, got {2, 3, 1}", context.upload, context, 1, deep,
      "rgb10_a2")
    assert.are.same({}, sent)
  end)
end)

describe("a buffer over a tensor's memory", function()
  local NAME = 7
  local context, calls, failures
  before_each(function()
    context, calls, failures = opened(46, { "GL_AMD_pinned_memory" }), {}, {}
    local function logged(name, ...)
      calls[#calls + 1] = table.concat({ name, ... }, " ")
    end
    local call = context.call
    function call.GenBuffers(count, names)
      logged("GenBuffers", count)
      names[0] = NAME
    end
    function call.DeleteBuffers(count, names)
      logged("DeleteBuffers", count, names[0])
    end
    function call.BindBuffer(target, name)
      logged("BindBuffer", target, name)
    end
    function call.BufferData(target, nbytes)
      logged("BufferData", target, nbytes)
    end
    function call.Finish()
      logged "Finish"
    end
    function call.GetError()
      return table.remove(failures, 1) or 0
    end
  end)
  after_each(function()
    context:finish()
    context = nil
    helper.nothing_left()
  end)
  local MADE = { "GenBuffers 1", "BindBuffer 37216 7", "BufferData 37216 12", "BindBuffer 37216 0" }

  it("lives until it is closed, whoever has forgotten it, and waits for what is drawn then", function()
    local t = mf.zeros(3)
    local weak = setmetatable({ (context:pinned(t)) }, { __mode = "v" })
    assert.are.same(MADE, calls)
    assert.are.equal(NAME, weak[1].buffer)
    t:close()
    collectgarbage()
    collectgarbage()
    assert.are.equal(1, mf.ledger().tensors)
    calls = {}
    for _ = 1, 2 do
      weak[1]:close()
      assert.is_nil(weak[1].buffer)
      assert.are.same({ "Finish", "DeleteBuffers 1 7" }, calls)
      assert.are.equal(0, mf.ledger().tensors)
    end
    collectgarbage()
    assert.is_nil(weak[1])
  end)

  it("is not made where OpenGL refuses it, which an error of before is not", function()
    local t = mf.zeros(3)
    failures = { 0x500, 0x501 }
    context:pinned(t):close()
    failures, calls = { 0x500, 0, 0x502 }, {}
    local none, message, code = context:pinned(t)
    assert.are.same({ nil, "pinned: glBufferData answered 0x502", mf.EDRIVER }, { none, message, code })
    assert.are.same({ "Finish", "DeleteBuffers 1 7" }, { calls[#calls - 1], calls[#calls] })
    t:close()
    assert.are.equal(0, mf.ledger().tensors)
  end)

  it("wants a compact tensor of the host", function()
    local t = mf.zeros({ 2, 3 })
    helper.refuses("pinned: expected a compact tensor on the cpu, got one with strides {1, 3} on cpu", context.pinned,
      context, t:permute_dims())
    helper.refuses("pinned: t: expected a tensor, got 3", context.pinned, context, 3)
    rawset(context, "pinned_memory", "the machine has none")
    assert.are.same({ nil, "pinned: the machine has none", mf.EDEVICE }, { context:pinned(t) })
    assert.are.same({}, calls)
    t:close()
  end)
end)

describe("a ring in a buffer", function()
  local READ, WRITE, PERSISTENT, COHERENT = 0x1, 0x2, 0x40, 0x80
  local context, flags
  local memory = ffi.new "uint8_t[20480]"
  local function map_to_memory()
    flags = {}
    function context.call.BufferStorage(_, _, _, these)
      flags[1] = these
    end
    function context.call.MapBufferRange(_, _, _, these)
      flags[2] = these
      return memory
    end
  end
  for name, version in pairs { copied = 43, mapped = 44 } do
    describe("that is " .. name, function()
      before_each(function()
        context = opened(version, {})
        map_to_memory()
        ffi.fill(memory, 20480, 1)
        collectgarbage()
        collectgarbage "stop"
      end)
      after_each(function()
        collectgarbage "restart"
        context:finish()
        context = nil
        helper.nothing_left()
      end)

      it("has its slots and nothing else alive, and zeros in them", function()
        local ring = assert(context:ring({ 3 }, "float32", { slots = 5 }))
        assert.are.same({ name, 5 }, { ring.route, mf.ledger().tensors })
        for _, slot in ipairs(ring.slots) do
          assert.are.same({ 0, 0, 0 }, slot:tolist())
        end
        assert.is_true(ring:close())
        assert.are.equal(0, mf.ledger().tensors)
      end)

      it("is not made where there is no memory, and says so", function()
        local buffers = 0
        function context.call.GenBuffers() buffers = buffers + 1 end
        function context.call.DeleteBuffers() buffers = buffers - 1 end
        local ring = helper.scarce(function()
          assert(buffers == 0 and mf.ledger().tensors == 0)
          return context:ring({ 3 }, "float32")
        end)
        assert.are.same({ name, 1 }, { ring.route, buffers })
        assert.is_true(ring:close())
        assert.are.equal(0, buffers)
      end)

      it("gives its buffer back where an error of a debug hook comes as soon as there is one", function()
        local deleted
        function context.call.GenBuffers(_, names)
          names[0] = 9
          error("of a hook", 0)
        end
        function context.call.DeleteBuffers(_, names) deleted = names[0] end
        assert.has_error(function() context:ring({ 3 }, "float32") end, "of a hook")
        assert.are.equal(9, deleted)
      end)

      it("gives no slot to draw before there is one", function()
        local ring = assert(context:ring({ 3 }, "float32"))
        helper.refuses("hold: latest gave no slot yet", ring.hold, ring)
        helper.refuses("submit: no slot was begun", ring.submit, ring)
        helper.refuses("submit: expected the slot that latest gave, none, got 1", ring.submit, ring, 1)
        assert.is_true(ring:close())
      end)

      it("closes beside views that are garbage", function()
        for _, drop in ipairs { function(t) t:view(1) end, function(t) mf.from_dlpack(t:to_dlpack()) end } do
          local ring = assert(context:ring({ 3 }, "float32"))
          drop(ring.slots[1])
          assert.is_true(ring:close())
        end
      end)
    end)
  end

  it("is mapped for reading where OpenGL writes it, and says why it is not mapped", function()
    for target, use in pairs { vertex = WRITE, index = WRITE, unpack = WRITE, pack = READ + WRITE } do
      context = opened(44, {})
      map_to_memory()
      local ring = assert(context:ring({ 3 }, "float32", { target = target }))
      assert.are.same({ use + PERSISTENT + COHERENT, use + PERSISTENT + COHERENT }, flags)
      assert.is_true(ring:close())
      context:finish()
    end
    context = opened(43, {})
    assert.are.same({ nil, "gl.ring: OpenGL 4.3 has no GL_ARB_buffer_storage", mf.EDEVICE },
      { context:ring({ 3 }, "float32", { route = "mapped" }) })
    context:finish()
  end)
end)
