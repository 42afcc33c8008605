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
  for i, view in ipairs(slots:into(function(t) return moonferry.into(torch.Tensor, t) end)) do
    view:select(1, 3):copy_(torch.linspace(0, 1, n))
    swarm.drawn[i] = { position = view:narrow(1, 0, 2), speed = view:select(1, 2) }
  end
  swarm.goal, swarm.turn = torch.zeros(2), torch.tensor(py.list { py.list { 0, 1 }, py.list { -1, 0 } })
  swarm.away, swarm.distance = torch.empty(n, 2), torch.empty(n, 1)
end

local PULL, TURN, DRAG = 0.0006, 0.0004, 0.985
local s, norm = swarm, torch.linalg.vector_norm
local position, velocity, away, distance, goal = s.position, s.velocity, s.away, s.distance, s.goal
local to_distance = kw { dim = 1, keepdim = true, out = distance }
local turn = s.turn:float()

function frame(slot, time, x, y)
  local drawn = s.drawn[slot]
  goal[0] = x + 0.3 * math.cos(time)
  goal[1] = y + 0.3 * math.sin(1.7 * time)
  torch.sub(goal, position, kw { out = away })
  norm(away, 2, to_distance)
  away:div_(distance:add_(0.1))
  velocity:mul_(DRAG):add_(away, kw { alpha = PULL }):addmm_(away, turn, kw { alpha = TURN })
  position:add_(velocity):clamp_(-0.99, 0.99)
  drawn.position:copy_(position)
  torch.sum(velocity:abs(), 1, kw { out = drawn.speed })
end
