std = "luajit"
max_line_length = 120
codes = true
max_cyclomatic_complexity = 15
files["specs/lua"] = { std = "luajit+busted" }
files["lua/moonferry/cdef.lua"] = { max_line_length = false }
files["examples/shared"] = { globals = { "paint", "compare" }, read_globals = { "memory" } }
files["examples/engine"] = { globals = { "swarm", "frame", "finish" }, read_globals = { "ring" } }
files["examples/love"] = { globals = { "love" } }
files["examples/worker"] = { globals = { "love" } }
files["examples/neovim"] = { globals = { "vim" } }
files["specs/lua/alone.lua"] = { globals = { "assert", "describe", "it", "finally", "pending" } }
