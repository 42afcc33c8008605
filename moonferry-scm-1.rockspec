-- The Lua files alone. The runtime, libmoonferry.so.0, comes from `pip install .`, from the distribution,
-- or from a build in this tree; MOONFERRY_LIBRARY names one that lies elsewhere.
rockspec_format = "3.0"
package = "moonferry"
version = "scm-1"
source = { url = "git+file://." }
description = {
  summary = "Tensors between Lua, Python and C through DLPack, without a copy",
  license = "Apache-2.0",
}
dependencies = { "lua == 5.1" }
build = {
  type = "builtin",
  modules = {
    ["moonferry.array"] = "lua/moonferry/array.lua",
    ["moonferry.beside"] = "lua/moonferry/beside.lua",
    ["moonferry.bridge"] = "lua/moonferry/bridge.lua",
    ["moonferry.bulk"] = "lua/moonferry/bulk.lua",
    ["moonferry.cdef"] = "lua/moonferry/cdef.lua",
    ["moonferry.create"] = "lua/moonferry/create.lua",
    ["moonferry.crossing"] = "lua/moonferry/crossing.lua",
    ["moonferry.device"] = "lua/moonferry/device.lua",
    ["moonferry.dtype"] = "lua/moonferry/dtype.lua",
    ["moonferry.element"] = "lua/moonferry/element.lua",
    ["moonferry.errors"] = "lua/moonferry/errors.lua",
    ["moonferry.exchange"] = "lua/moonferry/exchange.lua",
    ["moonferry.foreign"] = "lua/moonferry/foreign.lua",
    ["moonferry.fields"] = "lua/moonferry/fields.lua",
    ["moonferry.format"] = "lua/moonferry/format.lua",
    ["moonferry.hint"] = "lua/moonferry/hint.lua",
    ["moonferry.gl"] = "lua/moonferry/gl.lua",
    ["moonferry.gl_picture"] = "lua/moonferry/gl_picture.lua",
    ["moonferry.gl_share"] = "lua/moonferry/gl_share.lua",
    ["moonferry.ring"] = "lua/moonferry/ring.lua",
    ["moonferry"] = "lua/moonferry/init.lua",
    ["moonferry.interpreter"] = "lua/moonferry/interpreter.lua",
    ["moonferry.guard"] = "lua/moonferry/guard.lua",
    ["moonferry.lib"] = "lua/moonferry/lib.lua",
    ["moonferry.life"] = "lua/moonferry/life.lua",
    ["moonferry.numbers"] = "lua/moonferry/numbers.lua",
    ["moonferry.owner"] = "lua/moonferry/owner.lua",
    ["moonferry.place"] = "lua/moonferry/place.lua",
    ["moonferry.pressure"] = "lua/moonferry/pressure.lua",
    ["moonferry.python"] = "lua/moonferry/python.lua",
    ["moonferry.scope"] = "lua/moonferry/scope.lua",
    ["moonferry.stream"] = "lua/moonferry/stream.lua",
    ["moonferry.tensor"] = "lua/moonferry/tensor.lua",
    ["moonferry.transfer"] = "lua/moonferry/transfer.lua",
    ["moonferry.view"] = "lua/moonferry/view.lua",
    ["moonferry.views"] = "lua/moonferry/views.lua",
  },
}
