-- What to write instead of a name that is not there: a slip of the finger, or another library's word.
--
-- Invariant: asked only on the way to an error, and answers nothing rather than a bad guess. Must not know: tensors.
local hint = {}

-- Restricted Damerau-Levenshtein distance: letters added, left out, changed, or two neighbours exchanged.
local function distance(a, b)
  local last, row = nil, {}
  for j = 0, #b do
    row[j] = j
  end
  for i = 1, #a do
    local before = last
    last, row = row, { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      row[j] = math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (same and 0 or 1))
      if before and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = math.min(row[j], before[j - 2] + 1)
      end
    end
  end
  return row[#b]
end

--- The name among `names` (its keys) that `typed` was probably meant to be: one slip for each three letters.
---@param typed any
---@param ... table<string, any>
---@return string?
function hint.nearest(typed, ...)
  if type(typed) ~= "string" or #typed > 40 then
    return nil
  end
  local best, least = nil, math.floor(#typed / 3) + 1
  for i = 1, select("#", ...) do
    for name in pairs((select(i, ...))) do
      local steps = distance(typed:lower(), name)
      if steps < least or steps == least and best and name < best then
        best, least = name, steps
      end
    end
  end
  return best
end

-- What others call a tensor's fields and methods, and how that is written here.
local ELSEWHERE = {
  numel = "t.size", length = "t.size", count = "t.size", len = "t.size", n = "t.size", rank = "t.ndim",
  T = "t:permute_dims()", transpose = "t:permute_dims", swapaxes = "t:permute_dims", permute = "t:permute_dims",
  cast = "t:astype", type = "t.dtype or t:astype", float = "t:astype \"float32\"", int = "t:astype \"int32\"",
  totable = "t:tolist", list = "t:tolist", table = "t:tolist", value = "t:get",
  clone = "t:copy", flatten = "t:reshape(-1)", ravel = "t:reshape(-1)",
  unsqueeze = "t:expand_dims", expand = "t:expand_dims or t:broadcast_to", broadcast = "t:broadcast_to",
  expand_as = "t:broadcast_to",
  slice = "t:view", narrow = "t:view", select = "t:view", sub = "t:view", index = "t:view",
  data = "t:ptr", data_ptr = "t:ptr", pointer = "t:ptr", writable = "t.readonly",
  cpu = "t:to \"cpu\"", cuda = "t:to \"cuda:0\"", free = "t:close", destroy = "t:close", release = "t:close",
  numpy = "moonferry.python's values, which NumPy takes as they are", zero = "t:fill(0)", fill_ = "t:fill",
  copy_ = "t:copy(src)", equals = "t:equal", allclose = "t:equal", __dlpack__ = "t:to_dlpack",
  save = "mf.save(path, t)", map = "a loop over t:rows()", apply = "a loop over t:rows()",
}

-- What others compute: NumPy has functions of these names, and arrays over the same memory.
local COMPUTED = {}
local WORDS = "abs add all any argmax argmin argsort ceil clip cos cross cumprod cumsum divide dot exp floor log "
  .. "matmul max maximum mean median min minimum multiply negative nonzero power prod repeat round sign sin sort "
  .. "split sqrt std subtract sum take tan tanh trace var where"
for word in WORDS:gmatch "%a+" do
  COMPUTED[word] = ("a loop over t:rows(), or NumPy by moonferry.python: py.import \"numpy\".%s(t)"):format(word)
end

--- How what somebody calls `typed` is written, or nil.
---@param typed any
---@param methods table<string, function>
---@param fields table<string, function>
---@return string?
function hint.of_tensor(typed, methods, fields)
  if ELSEWHERE[typed] or COMPUTED[typed] then
    return ELSEWHERE[typed] or COMPUTED[typed]
  end
  local name = hint.nearest(typed, methods, fields)
  return name and (methods[name] and "t:" or "t.") .. name
end

-- What NumPy, PyTorch and other Lua libraries call what the module has, or has not.
local MODULE_ELSEWHERE = {
  array = "mf.tensor", asarray = "mf.tensor, or python.tensor for Python's arrays", new = "mf.empty or mf.tensor",
  Tensor = "mf.tensor", from_numpy = "moonferry.python's tensor", frombuffer = "mf.wrap", from_table = "mf.tensor",
  arange = "mf.tensor of a table", range = "mf.tensor of a table", linspace = "mf.tensor of a table",
  rand = "mf.empty and a loop over t:rows()", equal = "t:equal", copy = "t:copy", to_dlpack = "t:to_dlpack",
  device_reason = "what mf.empty gives beside nil", float32 = "the name \"float32\"", int32 = "the name \"int32\"",
  python = "require \"moonferry.python\"", gl = "require \"moonferry.gl\"", Lua = "moonferry.Lua, in Python",
  npy = "mf.load and mf.save", load_npy = "mf.load", save_npy = "mf.save", dtype = "t.dtype, a name",
  concat = "NumPy by moonferry.python", concatenate = "NumPy by moonferry.python",
  stack = "NumPy by moonferry.python", eye = "NumPy by moonferry.python",
  zeros_like = "mf.zeros(t.shape, t.dtype, { device = t.device })",
  empty_like = "mf.empty(t.shape, t.dtype, { device = t.device })",
}

--- What an error says to write instead of a field that an object lacks: "; use s:wait", or "".
---@param typed any
---@param object string what a program calls such an object
---@param methods table<string, any>
---@param fields table<string, any>
---@return string
function hint.instead(typed, object, methods, fields)
  local near = hint.nearest(typed, methods, fields)
  return near and ("; use %s%s%s"):format(object, methods[near] and ":" or ".", near) or ""
end

--- The same of the module's names.
---@param typed any
---@param names table<string, any>
---@return string?
function hint.of_module(typed, names)
  if MODULE_ELSEWHERE[typed] or COMPUTED[typed] then
    return MODULE_ELSEWHERE[typed] or COMPUTED[typed]
  end
  local name = hint.nearest(typed, names)
  return name and "mf." .. name
end

--- What to write instead of a name that moonferry.python lacks.
---@param typed any
---@param py table<string, any>
---@return string
function hint.of_python(typed, py)
  local near = hint.nearest(typed, py)
  return near and "use py." .. near
    or ("py.import %q gives a module, py.builtins.%s what Python itself has"):format(tostring(typed), tostring(typed))
end

--- How many names were given, of which there must be one.
---@param verb string
---@param errors table the module of that name
---@param ... any
---@return number
function hint.at_least_one(verb, errors, ...)
  if select("#", ...) == 0 then
    errors.misuse("%s takes the module's name and then the names to import from it, got no such name", verb)
  end
  return select("#", ...)
end

--- Whether it can be called. A Python function is a userdata, whose metatable does not show.
---@param value any
---@return boolean
function hint.is_callable(value)
  local kind, mt = type(value), getmetatable(value)
  return kind == "function" or kind == "userdata" and type(mt) == "string" or type(mt) == "table" and mt.__call ~= nil
end

--- Raises unless `body` can be called.
---@param verb string
---@param body any
---@param errors table the module of that name
function hint.callable(verb, body, errors)
  if not hint.is_callable(body) then
    errors.misuse("%s: expected a function of the value, got %s", verb, errors.show(body))
  end
end

--- Has every name that a module or a class lacks raise, with the one that was probably meant.
---@param names table<string, any>
---@param what string such as "moonferry.gl"
---@param before string what is written before a name, such as "gl."
---@param errors table the module of that name
---@param optional? table<string, true> names that may be nil
function hint.guard(names, what, before, errors, optional)
  setmetatable(names, {
    __index = function(_, key)
      if optional and optional[key] then
        return nil
      end
      local near = hint.nearest(key, names)
      errors.misuse("%s has no %s%s", what, errors.show(key), near and ("; use %s%s"):format(before, near) or "")
    end,
  })
end

return hint
