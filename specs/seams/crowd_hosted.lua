-- crowd.py in a process that Lua hosts; the arguments are that program's.
local py = require "moonferry.python"
py.start()
py.import("sys").path:insert(0, arg[0]:match "^(.*)/")
os.exit(py.import("crowd").main(unpack(arg)) and 0 or 1)
