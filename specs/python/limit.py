"""A function of Lua's that has so much memory and no more, or is struck by an error at some instruction; and what is
garbage behind it."""

import contextlib


def within(lua, more, make, depth=0):
    """Whether there was memory enough to make it; there is none at all then."""
    lua.set_max_memory(lua.get_memory_used(total=True) + more, total=True)
    try:
        make(depth)
        return True
    except MemoryError:
        return False
    finally:
        lua.set_max_memory(1, total=True)


def collect(lua):
    """LuaJIT itself may want memory for its table of finalizers."""
    with contextlib.suppress(MemoryError):
        lua.gccollect()


# Calls make with a debug hook that raises an error at that instruction; how many came until then.
STRUCK = """
local make, at = ...
local count = 0
local function hook()
  count = count + 1
  if count == at then
    error "struck"
  end
end
pcall(function()
  debug.sethook(hook, "", 1)
  make(0)
  debug.sethook()
end)
debug.sethook()
return count
"""


def struck(lua, make, last=None):
    """Once for each instruction, or for the last ones, at which an error has come; what was made is garbage that is
    gone."""
    at = 1 if last is None else max(1, lua.execute(STRUCK, make, 0) - last)
    done = False
    while not done:
        done = lua.execute(STRUCK, make, at) < at
        for _ in range(2):
            lua.gccollect()
        yield at
        at += 1
