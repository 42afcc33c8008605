-- LUA_PATH="lua/?.lua;lua/?/init.lua;;" luajit examples/train.lua
--
-- PyTorch trained by Lua: the loop, the learning rate's schedule and the report are Lua's, the model, the gradients and
-- the picture Python's.
local py = require "moonferry.python"
py.import("matplotlib").use "Agg"
local torch, plt = py.import "torch", py.import "matplotlib.pyplot"
local Linear, Sequential, Tanh = py.from("torch.nn", "Linear", "Sequential", "Tanh")

torch.manual_seed(1)
local x = torch.linspace(-3, 3, 200):reshape(-1, 1)
local y = torch.sin(x)

local model = Sequential(Linear(1, 16), Tanh(), Linear(16, 1))
local optimizer = torch.optim.Adam(model:parameters(), py.kw { lr = 0.05 })
local schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, function(epoch)
  return 0.5 * (1 + math.cos(math.pi * epoch / 200))
end)

local losses = {}
for epoch = 1, 200 do
  optimizer:zero_grad()
  local loss = torch.nn.functional.mse_loss(model(x), y)
  loss:backward()
  optimizer:step()
  schedule:step()
  losses[epoch] = loss:item()
  if epoch % 50 == 0 then
    print(("epoch %3d   loss %.5f   learning rate %.4f"):format(epoch, losses[epoch], schedule:get_last_lr()[0]))
  end
end
assert(losses[200] < losses[1] / 50, "it has not learned")

local fitted = py.with(torch.no_grad(), function()
  return model(x)
end)
local _, axes = py.unpack(plt.subplots(1, 2, py.kw { figsize = { 8, 3 } }))
axes[0]:semilogy(losses)
axes[0]:set_title "loss"
axes[1]:plot(x, y, py.kw { label = "sine" })
axes[1]:plot(x, fitted, py.kw { label = "model" })
axes[1]:legend()
plt.savefig "train.png"
print "the curves are in train.png"
