-- The end of a Lua state that hosts Python, while threads of Python's are about to come in.
local helper = require "helper"

local build = os.getenv("MOONFERRY_BUILD") or "build/dev"
local preloads = ("LD_PRELOAD=%s:%s/specs/lua_late.so"):format(os.getenv("LD_PRELOAD") or "", build)

-- `first` is older than what the bridge has in the state, so that its finalizer comes later.
local PROGRAM = [[
local C = require("ffi").C
require("ffi").cdef "void late_await(void); int late_go_on(int seconds);"
local go_on = C.late_go_on
first = newproxy(true)
getmetatable(first).__gc = function() if held then go_on(120) end end
local py = require "moonferry.python"
py.main.f = function() return 1 end
py.exec [=[
import ctypes, threading
late = ctypes.CDLL(None)
said = []
def call():
    try:
        said.append(str(f()))
    except Exception as error:
        said.append(str(error))
def work():
    global text
    late.late_begin()
    call()
    call()
    text = ctypes.create_string_buffer("; then: ".join(said).encode())
    late.late_end(text)
threading.Thread(target=work, daemon=True).start()
]=]
C.late_await()
held = true
]]

describe("the end of a Lua state that hosts Python", function()
  after_each(helper.nothing_left)

  -- A thread that waited in line by then is let go; one that gets in line afterwards would have nobody to do that. Its
  -- next call finds the state closed.
  it("is told to a thread that had found it open and was not yet in line", function()
    local output, code = helper.luajit(PROGRAM, "", preloads)
    assert.are.equal("this Lua state was closed; then: this Lua state was closed\n", output)
    assert.are.equal(0, code)
  end)
end)
