-- The main job: a photograph goes from Pillow through Lua to PyTorch and back, and is painted on the way.
--
--   luajit examples/ferry.lua [picture.png]
--
-- CPython runs inside this LuaJIT process. Pillow decodes the photograph, NumPy sees its bytes, Lua grades it
-- and finds its edges in plain loops over rows, PyTorch convolves, Lua paints along the lines that came back,
-- and matplotlib writes the stages. The table at the end shows every hop: where the elements lay before and
-- after, and so whether anything was copied.
local root = arg[0]:match("^(.*)examples/[^/]*$") or "../"
package.path = root .. "lua/?.lua;" .. root .. "lua/?/init.lua;" .. package.path

local ffi = require "ffi"
local mf = require "moonferry"
local py = require "moonferry.python"

local REPEATS, ROUNDS = 50, 3
local floor, exp, sqrt, min, max = math.floor, math.exp, math.sqrt, math.min, math.max
local atan2, cos, sin, pi = math.atan2, math.cos, math.sin, math.pi

-- Time.

pcall(ffi.cdef, [[
struct mf_ferry_time { long seconds; long nanoseconds; };
int mf_ferry_clock(int clock, struct mf_ferry_time *time) __asm__("clock_gettime");
]])
local clock = ffi.new("struct mf_ferry_time")

local function nanoseconds()
  ffi.C.mf_ferry_clock(1, clock)
  return tonumber(clock.seconds) * 1e9 + tonumber(clock.nanoseconds)
end

-- The work of one stage, and the shortest of several times that it took, in milliseconds.
local function timed(work, ...)
  local best, result = math.huge, nil
  for _ = 1, ROUNDS do
    local start = nanoseconds()
    result = work(...)
    best = min(best, nanoseconds() - start)
  end
  return result, best / 1e6
end

-- Hops: how a tensor gets from one library to the next.

local hops = {}

-- Where the elements of an object lie, whoever's object it is.
local function address(object)
  if mf.is_tensor(object) then
    return tonumber(ffi.cast("uintptr_t", object:ptr()))
  elseif py.builtins.hasattr(object, "data_ptr") then
    return object:data_ptr()
  end
  return object.ctypes.data
end

local function let_go(object)
  if mf.is_tensor(object) then
    object:close()
  else
    py.close(object)
  end
end

-- How an object describes itself: device, dtype, shape.
local function described(object)
  if mf.is_tensor(object) then
    return object.device, object.dtype, table.concat(object.shape, "x")
  end
  local shape = table.concat({ py.unpack(object.shape) }, "x")
  return tostring(py.builtins.getattr(object, "device", "cpu")), (tostring(object.dtype):gsub("torch%.", "")), shape
end

-- Carries an object over REPEATS times, keeps the last result, and notes the shortest time, and whether the
-- elements lie where they lay: at `origin`, if the object cannot say it.
local function hop(from, to, what, object, carry, origin)
  local best, result = math.huge, nil
  for _ = 1, REPEATS do
    if result then
      let_go(result)
    end
    local start = nanoseconds()
    result = carry(object)
    best = min(best, nanoseconds() - start)
  end
  origin = origin or address(object)
  local device, dtype, shape = described(result)
  hops[#hops + 1] = {
    from, to, what, device, dtype, shape, ("0x%x"):format(address(result)),
    address(result) == origin and "no" or "yes", ("%.0f"):format(best),
  }
  return result
end

local function print_hops()
  local line = "%-7s  %-7s  %-10s  %-6s  %-7s  %-11s  %-14s  %-6s  %7s"
  print(line:format("from", "to", "what", "device", "dtype", "shape", "pointer", "copied", "ns"))
  for _, row in ipairs(hops) do
    print(line:format(unpack(row)))
  end
  print(("copied: whether the elements' address changed on the way; ns: the shortest of %d"):format(REPEATS))
end

-- Lua's part, first half: light and edges. Images are planes, [channel][y][x], as PyTorch wants them.

-- What film makes of each sRGB byte: linear light, through a toe and a shoulder, back to display values.
local film = ffi.new("float[256]")
for i = 0, 255 do
  local c = i / 255
  local x = 0.80 * (c <= 0.04045 and c / 12.92 or ((c + 0.055) / 1.055) ^ 2.4)
  film[i] = (x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14)) ^ (1 / 2.2)
end

-- Film curve, then shadows to teal and lights to amber.
local function grade(photo)
  local height, width = photo.shape[1], photo.shape[2]
  local graded = mf.empty({ 3, height, width }, "float32")
  for y, row in photo:reshape(height, width * 3):rows() do
    local red, green, blue = graded:row(0, y), graded:row(1, y), graded:row(2, y)
    for x = 0, width - 1 do
      local r, g, b = film[row[3 * x]], film[row[3 * x + 1]], film[row[3 * x + 2]]
      local light = 0.2126 * r + 0.7152 * g + 0.0722 * b
      local warm = (light - 0.42) * 0.26
      red[x] = min(1, max(0, light + (r - light) * 0.84 + warm))
      green[x] = min(1, max(0, light + (g - light) * 0.84 + warm * 0.25))
      blue[x] = min(1, max(0, light + (b - light) * 0.84 - warm * 0.9))
    end
  end
  return graded
end

local function lightness(planes)
  local height, width = planes.shape[2], planes.shape[3]
  local light = mf.empty({ height, width }, "float32")
  for y, row in light:rows() do
    local red, green, blue = planes:row(0, y), planes:row(1, y), planes:row(2, y)
    for x = 0, width - 1 do
      row[x] = 0.299 * red[x] + 0.587 * green[x] + 0.114 * blue[x]
    end
  end
  return light
end

-- Sobel gradients (gx, gy) as the three products that make up the structure tensor.
local function structure(light)
  local height, width = light.shape[1], light.shape[2]
  local products = mf.zeros({ 3, height, width }, "float32")
  for y = 1, height - 2 do
    local up, here, down = light:row(y - 1), light:row(y), light:row(y + 1)
    local xx, xy, yy = products:row(0, y), products:row(1, y), products:row(2, y)
    for x = 1, width - 2 do
      local gx = up[x + 1] - up[x - 1] + 2 * (here[x + 1] - here[x - 1]) + down[x + 1] - down[x - 1]
      local gy = down[x - 1] - up[x - 1] + 2 * (down[x] - up[x]) + down[x + 1] - up[x + 1]
      xx[x], xy[x], yy[x] = gx * gx, gx * gy, gy * gy
    end
  end
  return products
end

-- A direction as a colour: the circle of hues, twice as fast because a line has no front end.
local function hue(xx, xy, yy)
  local angle = atan2(2 * xy, xx - yy)
  return 0.5 + 0.5 * cos(angle), 0.5 + 0.5 * cos(angle - 2 * pi / 3), 0.5 + 0.5 * cos(angle + 2 * pi / 3)
end

local function colour_edges(products)
  local height, width = products.shape[2], products.shape[3]
  local picture = mf.empty({ 3, height, width }, "float32")
  for y = 0, height - 1 do
    local xx, xy, yy = products:row(0, y), products:row(1, y), products:row(2, y)
    local red, green, blue = picture:row(0, y), picture:row(1, y), picture:row(2, y)
    for x = 0, width - 1 do
      local strength = min(1, (xx[x] + yy[x]) ^ 0.35 * 0.85)
      local r, g, b = hue(xx[x], xy[x], yy[x])
      red[x] = strength * (0.25 + 0.75 * r)
      green[x] = strength * (0.25 + 0.75 * g)
      blue[x] = strength * (0.25 + 0.75 * b)
    end
  end
  return picture
end

-- What is bright enough to spill over: the colour, as far as the light goes over a threshold.
local function highlights(planes, light)
  local height, width = light.shape[1], light.shape[2]
  local bright = mf.empty({ 3, height, width }, "float32")
  for channel = 0, 2 do
    for y = 0, height - 1 do
      local from, to, level = planes:row(channel, y), bright:row(channel, y), light:row(y)
      for x = 0, width - 1 do
        local over = min(1, max(0, (level[x] - 0.5) / 0.4))
        to[x] = from[x] * over * over * (3 - 2 * over)
      end
    end
  end
  return bright
end

-- PyTorch's part: convolutions, with kernels that Lua makes.

local function gaussian(sigma, radius)
  local kernel = mf.empty({ 2 * radius + 1 }, "float32")
  local p, sum = kernel:ptr(), 0
  for i = -radius, radius do
    p[i + radius] = exp(-0.5 * (i / sigma) ^ 2)
    sum = sum + p[i + radius]
  end
  for i = 0, 2 * radius do
    p[i] = p[i] / sum
  end
  return kernel
end

-- Several blurs of all planes at once: first along x, then along y. Returns [planes][sigmas][y][x].
local function blur(torch, planes, sigmas, radius)
  local functional = torch.nn.functional
  local kernels = {}
  for i, sigma in ipairs(sigmas) do
    local kernel = gaussian(sigma, radius)
    kernels[i] = py.into(torch.Tensor, kernel)
    kernel:close()
  end
  local bank = torch.stack(kernels)
  local count, length = #sigmas, 2 * radius + 1
  local padded = functional.pad(planes:unsqueeze(1), py.tuple { radius, radius, radius, radius }, "reflect")
  local across = functional.conv2d(padded, bank:reshape(count, 1, 1, length))
  return functional.conv2d(across, bank:reshape(count, 1, length, 1), py.kw { groups = count })
end

-- Lua's part, second half: painting along the lines.

-- The direction of the lines at each pixel, as (cos, sin) in two planes, from the smoothed structure tensor.
local function directions(smooth)
  local height, width = smooth.shape[3], smooth.shape[4]
  local flow = mf.empty({ 2, height, width }, "float32")
  for y = 0, height - 1 do
    local xx, xy, yy = smooth:row(0, 0, y), smooth:row(1, 0, y), smooth:row(2, 0, y)
    local along, down = flow:row(0, y), flow:row(1, y)
    for x = 0, width - 1 do
      local angle = 0.5 * atan2(2 * xy[x], xx[x] - yy[x]) + pi / 2
      along[x], down[x] = cos(angle), sin(angle)
    end
  end
  return flow
end

-- Walks along the lines from (x, y), towards the end that `sign` picks; the weighted sum of what it meets.
local function walk(canvas, x, y, sign)
  local planes, flow, weights = canvas.planes, canvas.flow, canvas.weights
  local width, height, size = canvas.width, canvas.height, canvas.size
  local r, g, b, total, last_x, last_y = 0, 0, 0, 0, 0, 0
  local at = y * width + x
  for step = 1, canvas.steps do
    local along, down = flow[at], flow[at + size]
    -- A line has two ends: keep to the one that we are heading for.
    local turn = (step == 1 and sign or along * last_x + down * last_y) < 0 and -1 or 1
    last_x, last_y = along * turn, down * turn
    x, y = x + last_x, y + last_y
    if x < 0 or y < 0 or x > width - 1 or y > height - 1 then
      break
    end
    at = floor(y + 0.5) * width + floor(x + 0.5)
    local weight = weights[step]
    r, g, b = r + weight * planes[at], g + weight * planes[at + size], b + weight * planes[at + 2 * size]
    total = total + weight
  end
  return r, g, b, total
end

-- Each pixel becomes the mean of those on its line: a brush stroke of 2 * steps + 1 pixels.
local function stroke(planes, flow, steps)
  local height, width = flow.shape[2], flow.shape[3]
  local size = height * width
  local painted = mf.empty({ 3, height, width }, "float32")
  local from, to = planes:ptr(), painted:ptr()
  local weights = ffi.new("double[?]", steps + 1)
  for step = 1, steps do
    weights[step] = exp(-2 * (step / steps) ^ 2)
  end
  local canvas = {
    planes = from, flow = flow:ptr(), weights = weights, width = width, height = height, size = size, steps = steps,
  }
  for y = 0, height - 1 do
    for x = 0, width - 1 do
      local at = y * width + x
      local r1, g1, b1, t1 = walk(canvas, x, y, 1)
      local r2, g2, b2, t2 = walk(canvas, x, y, -1)
      local total = 1 + t1 + t2
      to[at] = (from[at] + r1 + r2) / total
      to[at + size] = (from[at + size] + g1 + g2) / total
      to[at + 2 * size] = (from[at + 2 * size] + b1 + b2) / total
    end
  end
  return painted
end

-- Grain for the brush to draw out into bristles.
local function noise(height, width)
  local grain = mf.empty({ 3, height, width }, "float32")
  local p = grain:ptr()
  math.randomseed(1906)
  for i = 0, grain.size - 1 do
    p[i] = math.random()
  end
  return grain
end

-- The lines themselves, coloured by direction and as bright as the picture is sure of them.
local function draw_flow(smooth, bristles)
  local height, width = bristles.shape[2], bristles.shape[3]
  local picture = mf.empty({ 3, height, width }, "float32")
  for y = 0, height - 1 do
    local xx, xy, yy = smooth:row(0, 0, y), smooth:row(1, 0, y), smooth:row(2, 0, y)
    local grain = bristles:row(0, y)
    local red, green, blue = picture:row(0, y), picture:row(1, y), picture:row(2, y)
    for x = 0, width - 1 do
      local sure = sqrt((xx[x] - yy[x]) ^ 2 + 4 * xy[x] ^ 2) / (xx[x] + yy[x] + 1e-4)
      local strength = min(1, (xx[x] + yy[x]) ^ 0.25 * 1.3)
      local line = min(1, max(0, 0.6 + (grain[x] - 0.5) * 5)) * (0.45 + 0.55 * sure) * (0.2 + 0.8 * strength)
      local r, g, b = hue(xx[x], xy[x], yy[x])
      red[x], green[x], blue[x] = line * (0.25 + 0.75 * r), line * (0.25 + 0.75 * g), line * (0.25 + 0.75 * b)
    end
  end
  return picture
end

-- The blurs of all sizes as one light.
local function glow_of(blurs)
  local height, width = blurs.shape[3], blurs.shape[4]
  local glow = mf.empty({ 3, height, width }, "float32")
  for channel = 0, 2 do
    for y = 0, height - 1 do
      local row = glow:row(channel, y)
      local near, mid, far = blurs:row(channel, 0, y), blurs:row(channel, 1, y), blurs:row(channel, 2, y)
      for x = 0, width - 1 do
        row[x] = 0.45 * near[x] + 0.55 * mid[x] + 0.6 * far[x]
      end
    end
  end
  return glow
end

-- Paint, sharpened, with bristles in relief, light spilling over, and darker corners.
local function finish(painted, bristles, glow)
  local height, width = painted.shape[2], painted.shape[3]
  local picture = mf.empty({ 3, height, width }, "float32")
  for channel = 0, 2 do
    for y = 0, height - 1 do
      local paint, light, to = painted:row(channel, y), glow:row(channel, y), picture:row(channel, y)
      local over, under = painted:row(channel, max(0, y - 1)), painted:row(channel, min(height - 1, y + 1))
      local grain, before = bristles:row(0, y), bristles:row(0, max(0, y - 1))
      for x = 0, width - 1 do
        local left, right = max(0, x - 1), min(width - 1, x + 1)
        local around = 0.25 * (over[x] + under[x] + paint[left] + paint[right])
        local relief = grain[x] - before[left]
        local dx, dy = x / width - 0.5, y / height - 0.42
        local ink = (paint[x] + 2.2 * (paint[x] - around)) * (1 + 1.1 * relief) * (1.04 - 0.85 * (dx * dx + dy * dy))
        to[x] = 1 - (1 - min(1, max(0, ink))) * (1 - 0.14 * min(1, light[x]))
      end
    end
  end
  return picture
end

-- The sheet of all stages.

local INK, PALE, NIGHT, SAME, COPIED = "#f0ede6", "#8b949e", "#0b0f14", "#56c98d", "#e8b04a"
local COLUMNS, WIDTH, MARGIN, GAP, HEAD, PANELS, LEGEND, HOP = 3, 1200, 36, 20, 92, 988, 70, 58
local LANES = { Pillow = 0.09, NumPy = 0.34, Lua = 0.63, PyTorch = 0.91 }

-- The hops, from the top to the bottom: an arrow from lane to lane, with what crossed and where it lay.
local function crossings(figure, text, top, bottom)
  local lines, annotate = py.import "matplotlib.lines", figure:add_axes({ 0, 0, 1, 1 })
  annotate:set_axis_off()
  annotate:set_xlim(0, WIDTH)
  annotate:set_ylim(bottom, 0)
  for name, x in pairs(LANES) do
    text(x * WIDTH, top, name, { fontsize = 15, fontweight = "bold", ha = "center" })
    annotate:add_line(lines.Line2D({ x * WIDTH, x * WIDTH }, { top + 18, bottom - 24 }, py.kw { color = "#30363d" }))
  end
  for i, row in ipairs(hops) do
    local from, to, y = LANES[row[1]] * WIDTH, LANES[row[2]] * WIDTH, top + i * HOP
    local colour = row[8] == "no" and SAME or COPIED
    annotate:annotate("", py.kw { xy = py.tuple { to, y }, xytext = py.tuple { from, y },
      arrowprops = py.dict { arrowstyle = "-|>", color = colour, lw = 2.5 } })
    local middle, fate = (from + to) / 2, row[8] == "no" and "same memory" or "copied"
    text(middle, y - 14, ("%s, %s %s"):format(row[3], row[5], row[6]), { fontsize = 11, ha = "center" })
    text(middle, y + 14, ("%s  %s  %.1f \194\181s"):format(row[7], fate, tonumber(row[9]) / 1000),
      { fontsize = 11, color = colour, ha = "center" })
  end
end

local function sheet(panels, heading, path)
  py.import("matplotlib").use("Agg")
  local np, plt = py.import "numpy", py.import "matplotlib.pyplot"
  local lanes = HEAD + PANELS + 24
  local bottom = lanes + (#hops + 1) * HOP
  local size = py.tuple { WIDTH / 100, bottom / 100 }
  local figure = plt.figure(py.kw { figsize = size, dpi = 100, facecolor = NIGHT })
  -- Positions count in pixels from the top left corner.
  local function text(x, y, what, options)
    options.color, options.va = options.color or INK, "center"
    figure:text(x / WIDTH, 1 - y / bottom, what, py.kw(options))
  end
  text(MARGIN, HEAD / 2, "Moonferry", { fontsize = 26, fontweight = "bold" })
  text(WIDTH - MARGIN, HEAD / 2, heading, { fontsize = 13, color = PALE, ha = "right" })
  crossings(figure, text, lanes, bottom)
  local width = (WIDTH - 2 * MARGIN - (COLUMNS - 1) * GAP) / COLUMNS
  local height = PANELS / 2 - LEGEND
  for i, panel in ipairs(panels) do
    local left = MARGIN + (i - 1) % COLUMNS * (width + GAP)
    local top = HEAD + floor((i - 1) / COLUMNS) * (height + LEGEND)
    local place = { left / WIDTH, 1 - (top + height) / bottom, width / WIDTH, height / bottom }
    local axes = figure:add_axes(place)
    local picture = panel.picture
    if mf.is_tensor(picture) then
      picture = np.clip(np.from_dlpack(picture):transpose(1, 2, 0), 0, 1)
    end
    axes:imshow(picture, py.kw { interpolation = "lanczos", aspect = "equal" })
    axes:set_axis_off()
    text(left, top + height + 18, ("%d   %s"):format(i, panel.title), { fontsize = 13, fontweight = "bold" })
    text(left, top + height + 38, panel.caption, { fontsize = 10, color = PALE })
  end
  figure:savefig(path, py.kw { facecolor = NIGHT })
  plt.close(figure)
  local image = py.import("PIL.Image").open(path):convert("RGB") -- few colours make a small file
  image:quantize(py.kw { palette = image:quantize(200) }):save(path, py.kw { optimize = true })
end

-- The journey.

local function journey(path)
  local np, torch = py.import "numpy", py.import "torch"
  local file = py.import("matplotlib.cbook").get_sample_data("grace_hopper.jpg", py.kw { asfileobj = false })
  local image = py.import("PIL.Image").open(file)
  image:load()

  -- Pillow does not tell where its pixels lie. But did NumPy look at them, it would look there each time.
  local elsewhere = np.asarray(image)
  local pixels = hop("Pillow", "NumPy", "photograph", image, np.asarray, address(elsewhere))
  local photo = hop("NumPy", "Lua", "photograph", pixels, py.tensor)
  local graded, grade_ms = timed(grade, photo)
  local light = lightness(graded)
  local products, edges_ms = timed(structure, light)
  local edges = colour_edges(products)
  local bright = highlights(graded, light)

  local function to_torch(t)
    return py.into(torch.Tensor, t)
  end
  local products_there = hop("Lua", "PyTorch", "gradients", products, to_torch)
  local smooth_there, smooth_ms = timed(blur, torch, products_there, { 4 }, 14)
  local smooth = hop("PyTorch", "Lua", "smoothed", smooth_there, py.tensor)
  local bright_there = hop("Lua", "PyTorch", "highlights", bright, to_torch)
  local blurs_there, glow_ms = timed(blur, torch, bright_there, { 2, 9, 30 }, 72)
  local blurs = hop("PyTorch", "Lua", "glow", blurs_there, py.tensor)

  local flow = directions(smooth)
  local bristles = stroke(noise(flow.shape[2], flow.shape[3]), flow, 16)
  local painted, paint_ms = timed(stroke, graded, flow, 11)
  local lines, glow = draw_flow(smooth, bristles), glow_of(blurs)
  local final, finish_ms = timed(finish, painted, bristles, glow)
  let_go(hop("Lua", "NumPy", "painting", final, np.from_dlpack))

  local function took(what, milliseconds)
    return ("%s, %.0f ms"):format(what, milliseconds)
  end
  sheet({
    { picture = pixels, title = "Pillow and NumPy", caption = "grace_hopper.jpg, uint8, as decoded" },
    { picture = graded, title = "Lua: film", caption = took("a tone curve in a loop over rows", grade_ms) },
    { picture = edges, title = "Lua: edges", caption = took("Sobel in a loop over rows, hue is direction", edges_ms) },
    { picture = lines, title = "PyTorch: flow", caption = took("conv2d of the gradients, drawn by Lua", smooth_ms) },
    { picture = glow, title = "PyTorch: light", caption = took("conv2d of what is bright, at three widths", glow_ms) },
    { picture = final, title = "Lua: painted",
      caption = took("brush strokes along the flow, lit", paint_ms + finish_ms) },
  }, "CPython inside LuaJIT: one memory crosses from library to library", path)
end

local path = arg[1] or root .. "build/ferry.png"
local folder = path:match("^(.*)/[^/]*$")
if folder then
  py.import("os").makedirs(folder, py.kw { exist_ok = true })
end

-- Whatever the journey makes in Lua is closed at its end; what Python holds goes with Lua's last references.
mf.scope(function()
  journey(path)
end)
collectgarbage()
collectgarbage()
py.collect()
py.import("gc").collect()

print_hops()
local left = mf.ledger()
print(("alive at the end: %d tensors, %d storages, %d bytes, %d blocks"):format(
  left.tensors, left.storages, left.bytes, left.blocks))
print(("the stages are in %s; times there are the shortest of %d"):format(path, ROUNDS))
