-- The prompt of the `moonferry` program: what a chunk is, what is kept of it, and where the history lies.
local repl = {}
function repl.open(line, remember, editing, version)
  repl.line = line
end
function repl.next()
  local text = repl.line("> ")
  if text then return assert(loadstring(text, "=stdin")) end
end
function repl.show(...) print(...) end
return repl
