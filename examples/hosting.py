"""Python hosts Lua: a compiled loop over NumPy's memory, a generator, and an exception that comes back as it was."""

import numpy as np

import moonferry

lua = moonferry.Lua()

# LuaJIT compiles this loop; a row is a typed pointer into the memory that NumPy made.
smooth = lua.execute("""
return function(t)
  for _, row in t:rows() do
    for x = 1, t.shape[2] - 1 do
      row[x] = 0.5 * (row[x - 1] + row[x])
    end
  end
end
""")
a = np.array([[0, 0, 8, 0, 0], [1, 3, 1, 3, 1]], dtype="float32")
smooth(moonferry.from_dlpack(a))
print(a)

squares = lua.eval("function(n) for i = 1, n do coroutine.yield(i * i) end end")
print(list(squares.coroutine(5)))

call = lua.eval("function(f, x) local y = f(x) return y end")
try:
    call(int, "seven")
except ValueError as error:
    print(error, *error.__notes__, sep="\n")
