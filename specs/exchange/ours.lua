-- Moonferry's and NumPy's entries in the matrix of a device, the same for each; cuda.lua says what an entry is.
local ENTRIES = {
  { name = "Moonferry", module = "moonferry",
    setup = [[
def make(value, stream):
    with stream:
        return moonferry.full((64,), value, "uint8", device="DEVICE")

def fill(x, value, stream):
    with stream:
        x.fill(value)

def read(x, stream):
    with stream:
        return bytes(x.reinterpret("uint8").tolist())
]],
    stream = "moonferry.Stream('DEVICE')", handle = "stream.handle", make = "make(value, stream)",
    give = "x[...]", take = "t[...]", fill = "fill(x, value, stream)", read = "read(x, stream)", pointer = "x.data_ptr",
    seen = "(x.shape, x.strides)" },

  { name = "NumPy (host)", module = "numpy", host = "yes",
    setup = "def give(x):\n    return moonferry.from_dlpack(x).to('DEVICE')",
    stream = "None", handle = "0", make = "numpy.full(64, value, 'uint8')", give = "give(x)",
    take = "numpy.asarray(t.to('cpu'))", fill = "x.fill(value)", read = "x.tobytes()", pointer = "x.ctypes.data",
    seen = "(x.shape, tuple(s // x.itemsize for s in x.strides))",
    note = "the host; Moonferry copies in to()" },
}

--- Both entries, for that device.
return function(device)
  local made = {}
  for i, entry in ipairs(ENTRIES) do
    made[i] = {}
    for key, value in pairs(entry) do
      made[i][key] = value:gsub("DEVICE", device)
    end
  end
  return unpack(made)
end
