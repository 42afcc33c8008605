-- Two ranks that send each other tensors from Lua: mpiexec -n 2 luajit mpi_ranks.lua
--
-- Run by test_mpi.py, as mpi_ranks.py is. Each tensor is Lua's; mpi4py, in the Python that LuaJIT hosts, takes it by
-- DLPack. Rank 0 prints `ok NAME` for what held in both; an error ends both.
local mf = require "moonferry"
local py = require "moonferry.python"

local MPI = py.import "mpi4py.MPI"
local mpi = py.import "moonferry.mpi"
local world = MPI.COMM_WORLD
local rank = world:Get_rank()
local other = 1 - rank

local function done(name)
  world:Barrier()
  if rank == 0 then
    print("ok " .. name)
    io.flush()
  end
end

local function ramp()
  local t = mf.zeros({ 4, 6 }, "float32")
  for y, row in t:rows() do
    for x = 0, 5 do
      row[x] = 6 * y + x
    end
  end
  return t
end

local checks = {}

function checks.send_and_receive()
  local t, got = ramp(), mf.zeros({ 4, 6 }, "float32")
  if rank == 0 then
    world:Send(t, py.kw { dest = 1 })
    world:Recv(got, py.kw { source = 1 })
  else
    world:Recv(got, py.kw { source = 0 })
    world:Send(got, py.kw { dest = 0 })
  end
  assert(got:equal(t))
  done "send, receive"
end

function checks.all_reduce()
  local t, total = ramp(), mf.zeros({ 4, 6 }, "float32")
  world:Allreduce(t, total)
  for y, row in total:rows() do
    for x = 0, 5 do
      assert(row[x] == 2 * (6 * y + x))
    end
  end
  done "all-reduce"
end

function checks.scatter()
  local part = mf.zeros({ 2, 6 }, "float32")
  world:Scatter(rank == 0 and ramp() or py.None, part)
  assert(part:equal(ramp():view({ 2 * rank, 2 * rank + 2 })))
  done "scatter"
end

-- Every second column, reversed, by a derived datatype that moonferry.mpi makes of the strides.
function checks.strided()
  local t = rank == 0 and ramp() or mf.zeros({ 4, 6 }, "float32")
  local view = t:view({ nil, nil, -1 }, { nil, nil, 2 })
  if rank == 0 then
    world:Send(mpi.message(view), py.kw { dest = 1 })
  else
    world:Recv(mpi.message(view), py.kw { source = 0 })
    assert(view:equal(ramp():view({ nil, nil, -1 }, { nil, nil, 2 })))
    assert(t:get(1, 1) == 0 and t:get(3, 5) == 0)
  end
  done "strided, by a derived datatype"
end

function checks.refused()
  local view, got = ramp():view(mf.all, { nil, nil, 2 }), mf.zeros({ 4, 3 }, "float32")
  local sent, why = pcall(world.Send, world, view, py.kw { dest = other })
  assert(not sent and tostring(why):find("contiguous"), why)
  world:Sendrecv(view:copy(), other, py.kw { recvbuf = got, source = other })
  assert(got:equal(view))
  done "strided: refused, and its copy sent"
end

-- The next line must not be reached by one rank alone: the other would wait for it.
local function checked(name)
  local ok, why = pcall(checks[name])
  if not ok then
    io.stderr:write(name, ": ", tostring(why), "\n")
    world:Abort(1)
  end
end

for _, name in ipairs { "send_and_receive", "all_reduce", "scatter", "strided", "refused" } do
  checked(name)
end
for _ = 1, 2 do
  collectgarbage()
  py.collect()
end
local left = mf.ledger()
assert(left.tensors == 0 and left.bytes == 0, left.tensors)
done "nothing left"
MPI.Finalize() -- else the rank that ends first ends the other
