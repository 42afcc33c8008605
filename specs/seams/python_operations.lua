-- The operations of Lua's interface to Python, each a function that gives the same each time. Called with what
-- operations.lua shares, into whose table it enters them. Must not know which event strikes, nor where.
local shared = ...
local py = require "moonferry.python"
local np = py.import "numpy"
local builtins, bench = py.builtins, py.import "bench"
local op, plain, list, callback, asked = shared.op, shared.plain, shared.list, shared.callback, shared.asked
local reach, tensor, ok = shared.reach, shared.tensor, shared.ok

op["py.import"] = function() return py.import("json").dumps(bench.Index(1).value) end
op["py.from"] = function() return py.from("json", "dumps")(3) end
op["py.start"] = function() return py.start() == py end
op["py.call"] = function() return py.call(bench.Items(1), { 4 }) end
op["py.call-keywords"] = function() return bench.Items(1)(5, py.kw { a = 1 }) end
op["py.call-mapping"] = function() return py.call(bench.Items(1), bench.Items(6), py.dict { a = 2 }) end
op["py.call-table"] = function() return #bench.Items(1)(list(1, 2, 3)) end
op["py.call-tensor"] = function() return plain(bench.Items(1)(tensor())) end
op["py.call-of_lua"] = function() return py.builtins.list(py.builtins.map(callback, { 1, 2 }))[1] end
op["py.call-error"] = function()
  local fine, e = pcall(bench.Items(1).__getitem__, 5)
  return fine, e.type, #e.message > 0, #e.traceback > 0, e:is "IndexError", e.class ~= nil, #tostring(e) > 0
end
op["py.call-lua_error"] = function()
  local mine = { code = 1 }
  local fine, e = pcall(py.builtins.list, py.builtins.map(function() error(mine) end, { 1 }))
  return fine, e == mine
end
op["py.attribute"] = function()
  local o = bench.Items(1)
  o.field = o.field
  return o.field
end
op["py.get"] = function() return py.get(bench.Items(7), 0) end
op["py.set"] = function()
  local o = bench.Items(1)
  py.set(o, 0, 5)
  return o[0]
end
op["py.delete"] = function() py.delete(bench.Items(1), 0) end
op["py.slice"] = function() return #py.list { 1, 2, 3 }[py.slice(bench.Index(1), nil)] end
op["py.operators"] = function()
  local a = bench.Index(3)
  return a + 1, 2 * a, #tostring(a), a == bench.Index(3), a < bench.Index(4), a .. "x"
end
op["py.op"] = function() return py.op.contains(bench.Items(1, 2), 2) end
op["py.number"] = function() return py.number(bench.Index(3)) + tonumber(py.int64(py.eval "2**60") / 2 ^ 50) end
op["py.uint64"] = function() return tonumber(py.uint64(py.eval "2**63") / 2 ^ 50) end
op["py.float"] = function() return py.number(py.float(bench.Index(2))) + py.number(py.int(bench.Index(2))) end
op["py.bytes"] = function() return #py.bytes "abc" end
op["py.object"] = function() return py.object("a-b"):split("-")[1] end
op["py.list"] = function() return #py.list(list(1, bench.Items(2), callback)) end
op["py.tuple"] = function() return #py.tuple({ 1, nil, 3 }, 3) end
op["py.dict"] = function() return #py.dict { a = 1, [bench.Index(2)] = 2 } end
op["py.dict-of_python"] = function() return #py.builtins.dict(bench.Pairs(1, 2)) end
op["py.mapping"] = function()
  local view = py.mapping { a = 1, b = callback }
  return #py.builtins.list(view), py.get(view, "a")
end
op["py.sequence"] = function()
  local view = py.sequence { 1, 2, 3 }
  view:append(4)
  return view[3], #view
end
op["py.iterator"] = function() return #py.builtins.list(py.iterator(ipairs { 1, 2, 3 })) end
op["py.iterator-of_lua"] = function()
  return py.builtins.sum(py.iterator(function(_, i)
    reach()
    return i < 3 and i + 1 or nil
  end, nil, 0))
end
op["py.coroutine"] = function()
  return py.builtins.sum(coroutine.create(function()
    for i = 1, 3 do
      reach()
      coroutine.yield(i)
    end
  end))
end
op["py.live_table"] = function()
  return py.builtins.len(py.builtins.str(asked)), py.builtins.getattr(asked, "name")
end
op["py.iter"] = function()
  local sum = 0
  for x in py.iter(bench.Items(1, 2, 3)) do
    sum = sum + x
  end
  return sum
end
op["py.each"] = function()
  local sum = 0
  for a, b in py.each(bench.Items(py.tuple { 1, 2 }, py.tuple { 3, 4 })) do
    sum = sum + a * b
  end
  return sum
end
op["py.items"] = function()
  local sum = 0
  for _, v in py.items(bench.Pairs(1, 2)) do
    sum = sum + v
  end
  return sum
end
op["py.enumerate"] = function()
  local sum = 0
  for i, v in py.enumerate(bench.Items(1, 2)) do
    sum = sum + i * v
  end
  return sum
end
op["py.zip"] = function()
  local sum = 0
  for a, b in py.zip(bench.Items(1, 2), { 3, 4 }) do
    sum = sum + a * b
  end
  return sum
end
op["py.unpack"] = function() return select("#", py.unpack(bench.Items(1, 2, 3))) end
op["py.with"] = function() return py.with(bench.Items(5), callback) end
op["py.with-error"] = function() return (pcall(py.with, bench.Items(5), function() error "x" end)) end
op["py.raise"] = function() return (pcall(py.raise, builtins.KeyError, bench.Items(1))) end
op["py.is_instance"] = function() return py.is_instance(bench.Items(1), bench.Items) and py.is(bench) end
op["py.eval"] = function() return py.eval("x + 1", { x = 2 }) end
op["py.exec"] = function()
  local scope = { x = 20, f = callback }
  py.exec("y = f(x) + 1", scope)
  return scope.y
end
op["py.close"] = function() py.close(bench.noisy()) end
op["py.collect"] = function()
  local held = bench.noisy() -- luacheck: ignore 231
  held = nil -- luacheck: ignore 311
  collectgarbage()
  return select("#", py.collect()) == 0
end
op["py.collect-weighed"] = function() return #bench.noisy(py.tuple { 100, 100 }) end
op["py.tensor"] = function() return plain(py.tensor(bench.Producer(bench.noisy()))) end
op["py.tensor-deleter"] = function()
  local made = py.tensor(bench.Loan())
  local text = plain(made)
  made:close()
  return text
end
op["py.into"] = function() return plain(py.into(py.import("moonferry").Tensor, tensor())) end
op["py.main"] = function()
  py.main.held = tensor()
  return plain(tensor())
end
op["py.numpy"] = function() return py.number(np.asarray(ok(tensor():to "cpu")):sum()) end
