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

local REPEATS = 50
local floor, exp, log, sqrt, min, max = math.floor, math.exp, math.log, math.sqrt, math.min, math.max
local atan2, cos, sin, abs, pi = math.atan2, math.cos, math.sin, math.abs, math.pi

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

-- The work of one stage, and how long it took in milliseconds.
local function timed(work, ...)
  local start = nanoseconds()
  local result = work(...)
  return result, (nanoseconds() - start) / 1e6
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
-- elements lie where they lay. `origin` is their address where only the caller knows it.
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
  origin = origin and origin(result) or address(object)
  local device, dtype, shape = described(result)
  hops[#hops + 1] = {
    from, to, what, device, dtype, shape, ("0x%x"):format(address(result)),
    address(result) == origin and "no" or "yes", ("%.0f"):format(best),
  }
  return result
end

local HEADINGS = { "from", "to", "what", "device", "dtype", "shape", "pointer", "copied", "ns" }

local function print_hops()
  local widths = {}
  for column, heading in ipairs(HEADINGS) do
    widths[column] = #heading
    for _, row in ipairs(hops) do
      widths[column] = max(widths[column], #row[column])
    end
  end
  local function line(row)
    local cells = {}
    for column, cell in ipairs(row) do
      local right = column == #HEADINGS and "" or "-"
      cells[column] = (("%%%s%ds"):format(right, widths[column])):format(cell)
    end
    print(table.concat(cells, "  "))
  end
  line(HEADINGS)
  for _, row in ipairs(hops) do
    line(row)
  end
  print(("copied: whether the elements' address changed on the way; ns: the shortest of %d"):format(REPEATS))
end

-- Lua's part, first half: light and edges. Images are planes, [channel][y][x], as PyTorch wants them.

-- sRGB bytes to linear light.
local linear = ffi.new("float[256]")
for i = 0, 255 do
  local c = i / 255
  linear[i] = c <= 0.04045 and c / 12.92 or ((c + 0.055) / 1.055) ^ 2.4
end

-- The shoulder and toe of film, then back to display values.
local function film(x)
  x = x * 0.95
  return (x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14)) ^ (1 / 2.2)
end

-- Film curve, and shadows to teal, lights to amber.
local function grade(photo)
  local height, width = photo.shape[1], photo.shape[2]
  local graded = mf.empty({ 3, height, width }, "float32")
  local bytes = photo:reshape(height, width * 3)
  for y, row in bytes:rows() do
    local red, green, blue = graded:row(0, y), graded:row(1, y), graded:row(2, y)
    for x = 0, width - 1 do
      local r, g, b = film(linear[row[3 * x]]), film(linear[row[3 * x + 1]]), film(linear[row[3 * x + 2]])
      local light = 0.2126 * r + 0.7152 * g + 0.0722 * b
      local warm = (light - 0.45) * 0.16
      red[x] = min(1, max(0, light + (r - light) * 1.12 + warm))
      green[x] = min(1, max(0, light + (g - light) * 1.12 + warm * 0.25))
      blue[x] = min(1, max(0, light + (b - light) * 1.12 - warm * 1.1))
    end
  end
  bytes:close()
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

-- What is bright enough to spill over.
local function highlights(planes)
  local bright = mf.empty(planes.shape, "float32")
  local from, to = planes:ptr(), bright:ptr()
  for i = 0, planes.numel - 1 do
    local over = max(0, from[i] - 0.55) / 0.45
    to[i] = over * over
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
local function walk(flow, planes, size, width, height, x, y, sign, weights, steps)
  local r, g, b, total, last_x, last_y = 0, 0, 0, 0, 0, 0
  local at = y * width + x
  for step = 1, steps do
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
  local from, to, lines = planes:ptr(), painted:ptr(), flow:ptr()
  local weights = ffi.new("double[?]", steps + 1)
  for step = 1, steps do
    weights[step] = exp(-2 * (step / steps) ^ 2)
  end
  for y = 0, height - 1 do
    for x = 0, width - 1 do
      local at = y * width + x
      local r1, g1, b1, t1 = walk(lines, from, size, width, height, x, y, 1, weights, steps)
      local r2, g2, b2, t2 = walk(lines, from, size, width, height, x, y, -1, weights, steps)
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
  for i = 0, grain.numel - 1 do
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
      local line = min(1, max(0, 0.5 + (grain[x] - 0.5) * 4)) * (0.35 + 0.65 * sure)
      local r, g, b = hue(xx[x], xy[x], yy[x])
      red[x], green[x], blue[x] = line * (0.2 + 0.8 * r), line * (0.2 + 0.8 * g), line * (0.2 + 0.8 * b)
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
        row[x] = 0.30 * near[x] + 0.35 * mid[x] + 0.35 * far[x]
      end
    end
  end
  return glow
end

-- Paint, with bristles in relief, light spilling over, and darker corners.
local function finish(painted, bristles, glow)
  local height, width = painted.shape[2], painted.shape[3]
  local picture = mf.empty({ 3, height, width }, "float32")
  for channel = 0, 2 do
    local warmth = 1.05 - 0.12 * channel
    for y = 0, height - 1 do
      local paint, light, to = painted:row(channel, y), glow:row(channel, y), picture:row(channel, y)
      local grain, above = bristles:row(0, y), bristles:row(0, max(0, y - 1))
      for x = 0, width - 1 do
        local relief = grain[x] - above[max(0, x - 1)]
        local dx, dy = x / width - 0.5, y / height - 0.45
        local corner = 1 - 0.9 * (dx * dx + dy * dy)
        local ink = min(1, max(0, paint[x] * (1 + 0.9 * relief) * corner))
        to[x] = 1 - (1 - ink) * (1 - min(1, 0.55 * warmth * light[x]))
      end
    end
  end
  return picture
end

-- The sheet of all stages.

local INK, PALE, NIGHT = "#e8e6e1", "#8b939e", "#0d1117"

local function sheet(panels, path)
  local matplotlib = py.import "matplotlib"
  matplotlib.use("Agg")
  local np, plt = py.import "numpy", py.import "matplotlib.pyplot"
  local figure = plt.figure(py.kw { figsize = py.tuple { 15.6, 13.6 }, dpi = 100, facecolor = NIGHT })
  local function text(x, y, what, options)
    options.color = options.color or INK
    figure:text(x, y, what, py.kw(options))
  end
  text(0.03, 0.965, "Moonferry", { fontsize = 27, fontweight = "bold" })
  text(0.97, 0.969, "one LuaJIT process, CPython inside, one copy of every picture",
    { fontsize = 13, color = PALE, ha = "right" })
  for i, panel in ipairs(panels) do
    local column, row = (i - 1) % 3, floor((i - 1) / 3)
    local left, bottom = 0.03 + column * 0.3183, 0.521 - row * 0.487
    local axes = figure:add_axes(py.list { left, bottom, 0.3033, 0.408 })
    local picture = panel.picture
    if mf.is_tensor(picture) then
      picture = np.clip(np.from_dlpack(picture):transpose(1, 2, 0), 0, 1)
    end
    axes:imshow(picture, py.kw { interpolation = "lanczos" })
    axes:set_axis_off()
    text(left, bottom - 0.021, ("%d  %s"):format(i, panel.title), { fontsize = 14.5, fontweight = "bold" })
    text(left, bottom - 0.040, panel.caption, { fontsize = 11.5, color = PALE })
  end
  figure:savefig(path, py.kw { facecolor = NIGHT })
  plt.close(figure)
end

-- The journey.

local function journey(path)
  local np, torch = py.import "numpy", py.import "torch"
  local file = py.import("matplotlib.cbook").get_sample_data("grace_hopper.jpg", py.kw { asfileobj = false })
  local image = py.import("PIL.Image").open(file)
  image:load()

  -- Pillow packs its pixels into a bytes object; NumPy looks at those bytes, and may not write to them.
  local bytes_of = py.eval "lambda array: id(array.base) + bytes.__basicsize__ - 1"
  local pixels = hop("Pillow", "NumPy", "photograph", image, np.asarray, bytes_of)
  local photo = hop("NumPy", "Lua", "photograph", pixels, py.tensor)
  local graded, grade_ms = timed(grade, photo)
  local light = lightness(graded)
  local products, edges_ms = timed(structure, light)
  local edges = colour_edges(products)
  local bright = highlights(graded)

  local function to_torch(t)
    return py.into(torch.Tensor, t)
  end
  local products_there = hop("Lua", "PyTorch", "gradients", products, to_torch)
  local smooth_there, smooth_ms = timed(blur, torch, products_there, { 2.6 }, 8)
  local smooth = hop("PyTorch", "Lua", "smoothed", smooth_there, py.tensor)
  local bright_there = hop("Lua", "PyTorch", "highlights", bright, to_torch)
  local blurs_there, glow_ms = timed(blur, torch, bright_there, { 3, 9, 26 }, 64)
  local blurs = hop("PyTorch", "Lua", "glow", blurs_there, py.tensor)

  local flow, flow_ms = timed(directions, smooth)
  local bristles, bristles_ms = timed(stroke, noise(flow.shape[2], flow.shape[3]), flow, 14)
  local lines = draw_flow(smooth, bristles)
  local glow = glow_of(blurs)
  local painted, paint_ms = timed(stroke, graded, flow, 9)
  local final, finish_ms = timed(finish, painted, bristles, glow)
  let_go(hop("Lua", "NumPy", "painting", final, np.from_dlpack))
  let_go(hop("Lua", "Lua", "a clone, on purpose", final, final.copy))

  local function ms(text, value)
    return ("%s, %.1f ms"):format(text, value)
  end
  sheet({
    { picture = pixels, title = "Pillow, NumPy", caption = "grace_hopper.jpg, uint8, as decoded" },
    { picture = graded, title = "Lua: film grade", caption = ms("loops over rows", grade_ms) },
    { picture = edges, title = "Lua: edges", caption = ms("Sobel, hue is direction", edges_ms) },
    { picture = lines, title = "PyTorch: flow", caption = ms("gradients through conv2d", smooth_ms) },
    { picture = glow, title = "PyTorch: light", caption = ms("three wide blurs, conv2d", glow_ms) },
    { picture = final, title = "Lua: painted", caption = ms("strokes along the flow", flow_ms + paint_ms) },
  }, path)
end

local path = arg[1] or root .. "build/ferry.png"
journey(path)
print_hops()
