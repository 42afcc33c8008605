-- MPI from Lua: the plate of with_mpi.py, its heat moved by a compiled loop of LuaJIT.
--
--     LUA_PATH="lua/?.lua;lua/?/init.lua;;" mpiexec -n 2 luajit examples/distributed/with_mpi.lua
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"
local MPI, mpi = py.import "mpi4py.MPI", py.import "moonferry.mpi"

local world = MPI.COMM_WORLD
local rank = world:Get_rank()
local other = 1 - rank
local edge, ghost = rank == 0 and 7 or 1, rank == 0 and 8 or 0

local function step(plate, before)
  local p, q = before:copy(plate):ptr(), plate:ptr()
  for i = 9, 9 * 15 - 1 do
    local x = i % 9
    if x > 0 and x < 8 then
      q[i] = p[i] + 0.2 * (p[i - 9] + p[i + 9] + p[i - 1] + p[i + 1] - 4 * p[i])
    end
  end
end

local function run(plate, before)
  local sent = mpi.message(plate:view(mf.all, { edge, edge + 1 })) -- 16 floats with a stride of 9
  local got = mpi.message(plate:view(mf.all, { ghost, ghost + 1 }))
  for _ = 1, 50 do
    world:Sendrecv(sent, other, py.kw { recvbuf = got, source = other })
    step(plate, before)
  end
  if rank == 0 then
    local given = py.get(sent, 0):ptr() == ffi.cast("uint8_t *", plate:ptr() + edge)
    print("Sendrecv of a column, by its message: " .. (given and "not copied" or "copied"))
  end
end

local plate, before = mf.zeros({ 16, 9 }, "float32"), mf.empty({ 16, 9 }, "float32")
if rank == 0 then
  plate:view({ 4, 12 }, 3):fill(100)
end
run(plate, before)

local mine = 0
for _, row in plate:rows() do
  for x = rank, rank + 7 do
    mine = mine + row[x]
  end
end
local total = world:allreduce(mine)
if rank == 0 then
  print(("heat on the left %.1f, on the right %.1f"):format(mine, total - mine))
end

plate:close()
before:close()
for _ = 1, 2 do
  collectgarbage() -- the views that the messages were made of
  py.collect()
end
print(("rank %d, at its end: %d tensors"):format(rank, mf.ledger().tensors))
MPI.Finalize() -- which Python does at its end, and a Python inside LuaJIT has none
