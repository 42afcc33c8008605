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
  modules = {},
}
