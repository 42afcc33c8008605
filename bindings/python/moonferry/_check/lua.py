"""Whether this Python can have moonferry.Lua, for `moonferry doctor`: one line "KEY<TAB>VALUE" for each fact.

It runs in a process of its own, in which no other LuaJIT is, and asks the Moonferry that this Python imports. Must not
know: how that loads LuaJIT.
"""

from __future__ import annotations

import os
import re

from .probe import say


def luajit_file() -> str:
    """Of the library that this process has, whatever a wheel calls its own."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = re.search(r"/\S*/libluajit[^/\n]*$", maps.read(), re.MULTILINE)
    return found[0] if found else ""


def main(_words: list[str], _start: list[str]) -> int:
    """Status 0 if it can, 1 if not; the reason is a line of its own."""
    try:
        import moonferry

        say("package", os.path.dirname(moonferry.__file__))
        version = moonferry.Lua().lua_implementation
    except BaseException as error:
        say("available", False)
        say("reason", f"{type(error).__name__}: {error}")
        return 1
    say("available", True)
    say("version", version)
    say("library", luajit_file())
    return 0
