-- The worker: a Lua state of its own on a thread of its own, with Python. It paints into the renderer's memory, one
-- slot after another, and never waits for the renderer.
local address, folder = ...
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"

local pictures = mf.ring_from_handle(ffi.cast("mf_ring *", ffi.cast("intptr_t", address)))
py.import("sys").path:insert(0, folder)

local function work()
  local views = pictures:into(py.import("torch").from_dlpack)
  local painter = py.import("painter").Painter(unpack(pictures.slots[1].shape, 1, 2))
  local told, number = love.thread.getChannel "to the worker", 0
  py.settle()
  while told:peek() ~= "end" do
    local _, i = pictures:begin()
    number = number + 1
    painter:paint(views[i], number)
    pictures:publish()
  end
end

-- The scope lets go of the pictures, also after an error, of which LÖVE shows texts alone.
local worked, failure = pcall(py.scope, work)
pictures:close()
if not worked then
  error(tostring(failure), 0)
end
