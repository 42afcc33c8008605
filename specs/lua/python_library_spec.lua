-- What people use a hosted Python for: plots, data frames, training, fits. Each in plain Lua.
local ffi = require "ffi"
local py = require "moonferry.python"
local has = require("hosted").has

-- A test that needs a library, or says that it is not there.
local function with_library(module, name, test)
  it(name, function()
    if not has(module) then
      return pending(module .. " is not installed: ./setup.sh installs what specs/requirements.txt names")
    end
    test()
  end)
end

describe("a Lua program", function()
  with_library("matplotlib", "plots its table into a PNG", function()
    py.import("matplotlib"):use "Agg"
    local plt = py.import "matplotlib.pyplot"
    local x, y = {}, {}
    for i = 1, 100 do
      x[i], y[i] = i, i * i
    end
    local figure, axes = py.unpack(plt.subplots(py.kw { figsize = { 2, 2 }, dpi = 50 }))
    local lines = axes:plot(x, y, py.kw { color = "red", linewidth = 3 })
    axes:set_axis_off()
    assert.are.equal(1, #lines)
    local path = os.tmpname() .. ".png"
    figure:savefig(path)
    plt.close(figure)
    local pixels = plt.imread(path)
    os.remove(path)
    local height, width, channels = py.unpack(pixels.shape)
    assert.are.same({ 100, 100, 4 }, { height, width, channels })
    -- Red along the parabola, white above it on the left and below it on the right.
    local t = py.tensor(pixels)
    local red, columns = 0, {}
    for row = 0, height - 1 do
      for column = 0, width - 1 do
        if t:get(row, column, 0) > 0.9 and t:get(row, column, 1) < 0.1 then
          red = red + 1
          columns[column] = columns[column] or row
        end
      end
    end
    assert.is_true(red > 100, red .. " red pixels")
    assert.is_true(columns[20] > columns[60] and columns[60] > columns[80])
    assert.are.equal(1, t:get(5, 20, 1))
    t:close()
  end)

  with_library("pandas", "groups a frame that it built", function()
    local pd = py.import "pandas"
    local frame = pd.DataFrame {
      ship = { "ferry", "tug", "ferry", "tug", "ferry" },
      cargo = { 10, 1, 20, 3, 30 },
    }
    local sums = py.get(frame:groupby "ship", "cargo"):sum()
    assert.are.equal(60, py.number(sums.loc:__getitem__ "ferry"))
    assert.are.equal(4, py.number(py.get(sums.loc, "tug")))
    -- A Lua function per group, per row, per cell.
    local spans = py.get(frame:groupby "ship", "cargo"):apply(function(series)
      return py.number(series:max()) - py.number(series:min())
    end)
    assert.are.equal(20, py.number(py.get(spans, "ferry")))
    local doubled = frame:apply(function(row)
      return py.get(row, "ship") .. ":" .. py.number(py.get(row, "cargo")) * 2
    end, py.kw { axis = 1 })
    assert.are.same({ "ferry:20", "tug:2", "ferry:40", "tug:6", "ferry:60" }, { py.unpack(doubled) })
    local heavy = py.get(frame, py.op.gt(py.get(frame, "cargo"), 5))
    assert.are.equal(3, #heavy)
    local seen = {}
    for index, row in py.each(heavy:iterrows()) do
      seen[#seen + 1] = index .. py.get(row, "ship")
    end
    assert.are.same({ "0ferry", "2ferry", "4ferry" }, seen)
  end)

  with_library("torch", "trains a model, with its own schedule and hooks", function()
    local torch = py.import "torch"
    local nn, optim = torch.nn, torch.optim
    torch.manual_seed(0)
    local x = torch.linspace(-1, 1, 64):reshape(-1, 1)
    local y = 3 * x + 0.5
    local model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    local calls, rates, losses, text = 0, {}, {}, {}
    local hook = model:register_forward_hook(function(module, inputs, output)
      assert.is_true(py.op.is_(module, model))
      assert.are.equal(1, #inputs)
      calls = calls + output.shape[0] / 64
    end)
    local optimizer = optim.SGD(model:parameters(), py.kw { lr = 0.1 })
    local schedule = optim.lr_scheduler.LambdaLR(optimizer, function(epoch)
      return 0.98 ^ epoch
    end)
    for epoch = 1, 60 do
      optimizer:zero_grad()
      local loss = nn.functional.mse_loss(model(x), y)
      loss:backward()
      optimizer:step()
      schedule:step()
      losses[epoch] = loss:item()
      rates[epoch] = schedule:get_last_lr()[0]
      if epoch % 20 == 0 then
        text[#text + 1] = ("epoch %d: loss %.3f"):format(epoch, losses[epoch])
      end
    end
    hook:remove()
    assert.are.equal(60, calls)
    assert.is_true(losses[60] < losses[1] / 20, losses[1] .. " to " .. losses[60])
    assert.is_true(math.abs(rates[60] - 0.1 * 0.98 ^ 60) < 1e-9)
    assert.are.equal(3, #text)
    -- The loss of no gradient, through a context manager.
    local detached = py.with(torch.no_grad(), function()
      return model(x).requires_grad
    end)
    assert.is_false(detached)
    assert.is_true(model(x).requires_grad)
  end)

  with_library("torch", "writes a differentiable function of its own", function()
    local torch = py.import "torch"
    local seen
    local w = torch.tensor({ 1, 2, 3 }, py.kw { dtype = torch.float32, requires_grad = true })
    w:register_hook(function(gradient)
      seen = gradient:tolist()
      return gradient * 10
    end);
    (w * w):sum():backward()
    assert.are.equal("[2.0, 4.0, 6.0]", tostring(seen))
    assert.are.equal("[20.0, 40.0, 60.0]", tostring(w.grad:tolist()))
  end)

  with_library("scipy", "fits a Lua function to data, and minimises another", function()
    local optimize = py.import "scipy.optimize"
    local np = py.import "numpy"
    local xs, ys = {}, {}
    for i = 1, 20 do
      xs[i] = i / 10
      ys[i] = 2 * math.exp(-1.5 * xs[i])
    end
    local fitted = optimize.curve_fit(function(x, a, b)
      return a * np.exp(-b * x)
    end, xs, ys)
    local a, b = py.unpack(fitted[0])
    assert.is_true(math.abs(py.number(a) - 2) < 1e-6)
    assert.is_true(math.abs(py.number(b) - 1.5) < 1e-6)
    local result = optimize.minimize(function(p)
      return (1 - p[0]) ^ 2 + 100 * (p[1] - p[0] ^ 2) ^ 2
    end, { -1, 2 })
    assert.is_true(result.success)
    assert.is_true(math.abs(py.number(result.x[0]) - 1) < 1e-3)
    local root = optimize.brentq(function(x) return x * x - 2 end, 0, 2)
    assert.is_true(math.abs(root - math.sqrt(2)) < 1e-9)
    local err = select(2, pcall(optimize.brentq, function() error("no function", 0) end, 0, 2))
    assert.are.equal("no function", err)
  end)

  with_library("numpy", "fills arrays from typed rows, vectorises and reduces", function()
    local np = py.import "numpy"
    local a = np.zeros(py.tuple { 4, 5 }, py.kw { dtype = "float64" })
    local t = py.tensor(a)
    for y, row in t:rows() do
      for x = 0, 4 do
        row[x] = y * 10 + x
      end
    end
    t:close()
    assert.are.equal(34, py.number(py.get(a, 3, 4)))
    assert.are.equal("[ 0. 10. 20. 30.]", tostring(py.get(a, py.slice(), 0)))
    local cubes = np.vectorize(function(x) return x ^ 3 end)(np.arange(4))
    assert.are.equal("[ 0  1  8 27]", tostring(cubes))
    assert.are.equal("[11. 13.]", tostring(py.get(a[1], np.array { false, true, false, true, false })))
    local big = np.int64(py.eval "2**62 + 1")
    assert.are.equal(4611686018427387905LL, py.int64(big))
    assert.is_true(ffi.istype("int64_t", py.int64(big)))
  end)

  with_library("numpy", "reads and writes files, JSON, regular expressions and dates", function()
    local json, re, datetime = py.import "json", py.import "re", py.import "datetime"
    local decoded = json.loads '{"a": [1, 2.5, null, "x"], "big": 12345678901234567890}'
    assert.are.equal(py.None, py.get(decoded, "a")[2])
    assert.are.equal("12345678901234567890", tostring(py.get(decoded, "big")))
    assert.are.equal('{"list": [1, 2], "name": "ferry"}', json.dumps({ name = "ferry", list = { 1, 2 } },
      py.kw { sort_keys = true }))
    assert.are.equal("F-e-r-r-y", re.sub("(?<=.)(?=.)", "-", "Ferry"))
    assert.are.equal("<1> and <22>", re.sub("\\d+", function(match)
      return "<" .. match:group(0) .. ">"
    end, "1 and 22"))
    local day = datetime.date(2026, 11, 21) + datetime.timedelta(py.kw { days = 40 })
    assert.are.equal("2026-12-31", tostring(day))
    assert.is_true(day > datetime.date(2026, 11, 21))
    local days = day - datetime.date(2026, 1, 1)
    assert.are.equal(364, days.days)
    local csv, io_module = py.import "csv", py.import "io"
    local out = io_module.StringIO()
    local writer = csv.writer(out)
    writer:writerow { "a", 1, 2.5 }
    assert.are.equal("a,1,2.5\r\n", out:getvalue())
  end)
end)
