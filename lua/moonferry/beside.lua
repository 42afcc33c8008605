-- The Python package that belongs to the library of this process, for a Python that Lua hosts.
--
-- Responsible for: `import moonferry` there giving the package that lies beside libmoonferry, wherever that is,
-- because two builds cannot share a process. It is found before any other, and nothing else in its folder is. Without
-- such a package, or with one for another CPython, Python looks where it always does. Must not know: how Python starts.
local ffi = require "ffi"
local lib = require "moonferry.lib"

local beside = {}

local PATH_NBYTES = 4096 -- Linux's PATH_MAX

pcall(ffi.cdef, [[
int mf_python_dladdr(const void *address, void *info) __asm__("dladdr");
char *mf_python_realpath(const char *path, char *resolved) __asm__("realpath");
]])

-- A path with its links resolved, or as it is.
local function resolved(path)
  local real = ffi.new("char[?]", PATH_NBYTES)
  return ffi.C.mf_python_realpath(path, real) ~= nil and ffi.string(real) or path
end

---The folder of the library, or nil: of the file itself, since a program may be linked with a link to it.
---@return string? with its last slash
function beside.folder()
  local info = ffi.new("const char *[4]")
  local found = ffi.C.mf_python_dladdr(ffi.cast("void *", lib.mf_build_id), info) ~= 0
  return found and resolved(ffi.string(info[0])):match("^(.*/)[^/]*$") or nil
end

local FINDER = [==[
import os, sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import spec_from_file_location

class Beside:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "moonferry":
            return spec_from_file_location(name, folder + "__init__.py", submodule_search_locations=[folder[:-1]])

has_core = any(os.path.exists(folder + "_core" + suffix) for suffix in EXTENSION_SUFFIXES)
if has_core and os.path.exists(folder + "__init__.py") and "moonferry" not in sys.modules:
    sys.meta_path.insert(0, Beside)
]==]

---Once Python has been started.
---@param py table moonferry.python
function beside.offer(py)
  local folder = beside.folder()
  if folder then
    local scope = py.dict {}
    scope:__setitem__("folder", py.import("os").fsdecode(py.bytes(folder)))
    py.exec(FINDER, scope)
  end
end

return beside
