-- swarm.lua: the script of examples/engine: 100,000 particles round the pointer, moved by PyTorch. Change a number here
-- while the engine runs, and press R.
local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"
local torch, moonferry = py.import "torch", py.import "moonferry"
local kw = py.kw

-- The slots of the engine's vertex buffer as tensors of PyTorch's, made once. They outlive a reload, as the swarm does.
if not swarm then
  local slots = mf.ring_from_handle(ffi.cast("mf_ring *", ring))
  local n = slots.slots[1].shape[1]
  torch.manual_seed(7)
  swarm = { slots = slots, position = torch.rand(n, 2) * 2 - 1, velocity = torch.zeros(n, 2), drawn = {} }
  swarm.reach = torch.rand(n, 1) * 1.6 + 0.2 -- how strongly each particle is drawn, and so how far out it goes
  for i, view in ipairs(slots:into(function(t) return moonferry.into(torch.Tensor, t) end)) do
    view:select(1, 3):copy_(swarm.reach:squeeze(1) * 0.55)
    swarm.drawn[i] = { position = view:narrow(1, 0, 2), speed = view:select(1, 2) }
  end
  swarm.goal, swarm.turn = torch.zeros(2), torch.tensor(py.list { py.list { 0, 1 }, py.list { -1, 0 } })
  swarm.away, swarm.distance = torch.empty(n, 2), torch.empty(n, 1)
end

local PULL, TURN, DRAG = 0.0018, 0.0004, 0.985

-- Bound methods and arguments are made once, too, so that a frame leaves little to Lua's collector.
local s = swarm
local toward = torch.sub
local norm, total = torch.linalg.vector_norm, torch.sum
local position, velocity, away, distance, goal = s.position, s.velocity, s.away, s.distance, s.goal
local move, clamp, slow, pull, turn = position.add_, position.clamp_, velocity.mul_, velocity.add_, velocity.addmm_
local widen, divide, weigh, size = distance.add_, away.div_, away.mul_, velocity.abs
local reach = s.reach
local to_away, to_distance = kw { out = away }, kw { dim = 1, keepdim = true, out = distance }
local by_pull, by_turn, around = kw { alpha = PULL }, kw { alpha = TURN }, s.turn:float()
for _, drawn in ipairs(s.drawn) do
  drawn.show, drawn.to_speed = drawn.position.copy_, kw { out = drawn.speed }
end

function frame(slot, time, x, y)
  local drawn = s.drawn[slot]
  goal[0] = x + 0.3 * math.cos(time)
  goal[1] = y + 0.3 * math.sin(1.7 * time)
  toward(goal, position, to_away)
  norm(away, 2, to_distance)
  widen(0.1)
  divide(distance)
  weigh(reach)
  slow(DRAG)
  pull(away, by_pull)
  turn(away, around, by_turn)
  move(velocity)
  clamp(-0.99, 0.99)
  drawn.show(position)
  total(size(), 1, drawn.to_speed)
end

-- Before the engine takes its buffer back: nothing of Python's may refer to it any more.
function finish()
  swarm.slots:close()
  swarm, frame, finish = nil, nil, nil
  s, position, velocity, away, distance, goal = nil, nil, nil, nil, nil, nil
  move, clamp, slow, pull, turn, widen, divide, weigh = nil, nil, nil, nil, nil, nil, nil, nil
  size, reach, to_away, to_distance = nil, nil, nil, nil
  collectgarbage()
  collectgarbage()
  py.collect()
end
