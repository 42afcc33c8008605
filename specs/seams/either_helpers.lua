-- What the lines of either_language.py call, in Lua. What is not here is Python's, in both languages. Its environment
-- has `py`, which steps through an iterable of Python's, and Python's helpers under their names with "python_" before.
-- luacheck: ignore 111 113

function number(x) return type(x) == "number" and x % 997 or 0 end

function add(a, b) return (number(a) + number(b)) % 997 end

local function shown(a)
  if type(a) == "number" then return "n" end
  return type(a) == "string" and #a < 12 and a or "o"
end

function text(a, b) return shown(a) .. shown(b) end

-- A list begins at 1 where it is Lua's.
function item(list, at) return list[type(list) == "table" and at + 1 or at] end

function put(list, at, x) list[type(list) == "table" and at + 1 or at] = number(x) end

-- Errors are strings, objects of Lua's, or Python's exceptions.
function fail(a, k, n)
  local message = "T" .. n .. "!"
  if number(a) % 5 ~= k then return end
  if n % 3 == 0 then error(message, 0) end
  if n % 3 == 1 then error(setmetatable({}, { __tostring = function() return message end })) end
  python_fail(a, k, n)
end

function collect(k)
  if k == 0 then collectgarbage() elseif k == 1 then collectgarbage("step", 10) end
  for i = 1, 50 do shown { i } end
end

function read(t, at) return t:get(at) end

function write(t, at, x) t:put(at, number(x)) end

function seen(t, k)
  if k == 0 then return t:view { nil, nil, -1 } end
  return k == 1 and t:reshape(2, 2):reshape(4) or python_seen(t, k)
end

function called(f, x) return (f(x)) end

function mourned(k)
  local object = newproxy(true)
  -- What is collected with it may be finalized before it, by another thread: the function that it calls, too.
  getmetatable(object).__gc = function()
    local ok, e = pcall(died)
    if not ok and not tostring(e):find("deleted python object", 1, true) then error(e, 0) end
  end
  return k
end

-- One that is there, and one that is not.
function attribute(x)
  local object = python_namespace()
  object.x = number(x)
  return not pcall(function() return object.missing end) and object.x or nil
end

function tag(e) return type(e) == "string" and e:match "T%d+!" or python_tag(e) end

function guarded(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  return tag(result)
end

function bound(f, _, ...)
  local rest, n = { ... }, select("#", ...)
  return function(x) return f(x, unpack(rest, 1, n)) end
end

local function coroutine_of(f, step, n, _, ...)
  local rest, count = { ... }, select("#", ...)
  return coroutine.create(function()
    local x = 0
    for i = 1, n do x = step(function(y) return number(f(y, unpack(rest, 1, count))) end, i, x) end
  end)
end

function each(f, ...)
  return coroutine_of(f, function(of, i) coroutine.yield(of(i)) end, ...)
end

-- An error that comes to where it has yielded is noted, but the one that ends it.
function each_guarded(f, ...)
  return coroutine_of(f, function(of, i)
    local ok, e = pcall(function() coroutine.yield(of(i)) end)
    if not ok and is_end(e) then error(e, 0) end
    if not ok then note("caught", tag(e)) end
  end, ...)
end

function each_sent(f, ...)
  return coroutine_of(f, function(of, _, x)
    local sent = coroutine.yield(of(x))
    note("sent", number(sent))
    return sent
  end, ...)
end

-- The sum of what it yields, of so many at most.
function stepped(it, most)
  local sum, count = 0, 0
  local function take(x)
    sum, count = (sum * 3 + number(x)) % 997, count + 1
    return count < most
  end
  if type(it) == "thread" then
    repeat
      local ok, x = coroutine.resume(it)
      if not ok then error(x, 0) end
    until coroutine.status(it) == "dead" or not take(x)
  else
    for x in iterate(it) do
      if not take(x) then break end
    end
  end
  return sum
end

function in_a_coroutine(f, ...)
  local ok, result = coroutine.resume(coroutine.create(function(...) return (f(...)) end), ...)
  if not ok then error(result, 0) end
  return result
end

function sorted_by(f, ...)
  for x = 3, 1, -1 do bound(f, ...)(x) end
  return 1
end

function replaced_by(f, ...)
  local g = bound(f, ...)
  return (("axbx"):gsub("x", function() return tostring(number(g(1))) end))
end

function indexed(f, ...)
  local g = bound(f, ...)
  return setmetatable({}, { __index = function(_, x) return number(g(x)) end })[2]
end

function assigned(f, ...)
  local g = bound(f, ...)
  setmetatable({}, { __newindex = function(_, _, x) g(x) end }).x = 3
  return 3
end

function compared(f, ...)
  local g, meta = bound(f, ...), {}
  meta.__lt = function() return number(g(1)) % 2 == 0 end
  return setmetatable({}, meta) < setmetatable({}, meta)
end

-- A chain of calls from language to language.
function deep(n) return n == 0 and 0 or 1 + python_deep(n - 1) end

function through_lua(f) local result = f() return result end

-- The error that comes out of many calls is the one that was raised.
function keeps_its_error(k)
  local mark = {}
  local function bad() error(mark) end
  local ok, e = pcall(function()
    if k == 0 then return through_python(bad) end
    return through_python(function() return through_lua(function() return through_python(bad) end) end)
  end)
  return not ok and e == mark
end
