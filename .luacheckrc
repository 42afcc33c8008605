std = "luajit"
max_line_length = 120
codes = true
files["specs/lua"] = { std = "luajit+busted" }
files["lua/moonferry/cdef.lua"] = { max_line_length = false }
