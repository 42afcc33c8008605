-- What the specs about hosted Python share. Python is asked for when a function is called, not when this is loaded.
local hosted = {}

--- What either language has dropped is gone afterwards, in the other too.
function hosted.collect()
  local py = require "moonferry.python"
  for _ = 1, 2 do
    collectgarbage()
    py.collect()
    py.import("gc").collect()
  end
end

--- Whether Python could import it.
function hosted.has(module)
  local py = require "moonferry.python"
  return py.import("importlib.util").find_spec(module) ~= py.None
end

return hosted
