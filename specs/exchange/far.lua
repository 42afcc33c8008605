-- The other end of a cell whose two libraries cannot live in one process: luajit far.lua LIBRARY SEGMENT
--
-- Takes what lies in the shared memory (multiprocessing.shared_memory) as Moonferry's tensor, gives it to the library,
-- and says on its standard output what came of it. Must not know who is at the other end.
package.path = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/?.lua;" .. package.path

local json = require "json"
local library = require "library"
local py = require "moonferry.python"
local trial = require "trial"

local segment = py.import("multiprocessing.shared_memory").SharedMemory(arg[2])
-- Whoever made the segment removes it, so Python's own keeper of segments must not.
py.import("multiprocessing.resource_tracker").unregister(segment._name, "shared_memory")
local B = library.open(library.find(require "host", arg[1]), library.HOST)
local moonferry, hashlib = py.import "moonferry", py.import "hashlib"
local y, dtype

local verbs = {}

-- take DTYPE COUNT EXTENT ...: B's array of the tensor at the start of the segment.
function verbs.take(name, count, ...)
  local shape = { ... }
  for i, extent in ipairs(shape) do
    shape[i] = tonumber(extent)
  end
  local flat = moonferry.frombuffer(segment.buf, name, tonumber(count))
  y, dtype = B.take(flat:reshape(shape), name), name
  flat:close()
  return {}
end

function verbs.bytes()
  return { bytes = hashlib.sha256(py.bytes(B.bytes(y, dtype))):hexdigest() }
end

function verbs.write()
  if B.write then
    B.write(y, 5)
  end
  return { wrote = B.write ~= nil }
end

function verbs.drop()
  y = nil
  trial.collect()
  return { alive = moonferry.ledger().tensors }
end

print("matrix: " .. json { version = B.version })
io.stdout:flush()
for line in io.lines() do
  local words = {}
  for word in line:gmatch "%S+" do
    words[#words + 1] = word
  end
  local ok, answer = pcall(verbs[words[1]], unpack(words, 2))
  print("matrix: " .. json(ok and answer or { error = trial.reason(answer) }))
  io.stdout:flush()
end
segment:close()
os.exit(0)
