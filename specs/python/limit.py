"""A function of Lua's that has so much memory and no more, and what is garbage behind it."""

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
