-- What the specs about hosted Python share. Python is asked for when a function is called, not when this is loaded.
local hosted = {}

local loaded = 0 -- modules when Python's collector was last told to leave out what is there

--- What either language has dropped is gone afterwards, in the other too. What libraries have loaded is not walked each
--- time (specs/python/garbage.py).
function hosted.collect()
  local py = require "moonferry.python"
  local gc, modules = py.import "gc", py.builtins.len(py.import("sys").modules)
  for _ = 1, 2 do
    collectgarbage()
    py.collect()
    gc.collect()
  end
  if modules > loaded then
    gc.freeze()
    loaded = modules
  end
end

--- Whether Python could import it.
function hosted.has(module)
  local py = require "moonferry.python"
  return py.import("importlib.util").find_spec(module) ~= py.None
end

return hosted
