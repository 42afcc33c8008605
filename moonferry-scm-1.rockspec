-- What LuaJIT needs of Moonferry: the Lua files, and the runtime, libmoonferry.so.0, which is built with CMake and a C
-- compiler. Hosting Python is no part of it: pip install brings that, with Lua files of its own.
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
  type = "cmake",
  variables = {
    CMAKE_BUILD_TYPE = "Release",
    MOONFERRY_PYTHON = "OFF",
    MOONFERRY_SIM = "OFF",
    MOONFERRY_ROCK_LIBDIR = "$(LIBDIR)",
    MOONFERRY_ROCK_LUADIR = "$(LUADIR)",
  },
}
