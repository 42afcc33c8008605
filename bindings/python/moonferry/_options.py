"""What moonferry.Lua takes: its arguments checked, and what is said of attributes that a state has not.

It must not know what a state does with them.
"""

from __future__ import annotations

import operator
import sys
from typing import Any, NoReturn


def ascii_text(text: Any, what: str) -> str | None:
    """A string of ASCII characters, as Lua's names of encodings and modes are; None stays None."""
    if text is None:
        return None
    if isinstance(text, (bytes, bytearray)):
        text = bytes(text).decode("ascii")
    if not isinstance(text, str):
        raise ValueError(f"{what} is {text!r}; a string expected")
    text.encode("ascii")
    return text


def handlers_of(handlers: Any) -> tuple[Any, Any]:
    """The two functions of attribute_handlers."""
    message = "attribute_handlers must be a sequence of two callables"
    if not handlers:
        return None, None
    try:
        getter, setter = handlers
    except (ValueError, TypeError):
        raise ValueError(message) from None
    if any(h is not None and not callable(h) for h in (getter, setter)):
        raise ValueError(message)
    return getter, setter


# What an empty state has comes on top, and the sum must be a size.
MEMORY_MAX = sys.maxsize // 2


def memory(limit: Any, others: str = "0 or None") -> int:
    """max_memory: bytes, or 0."""
    if isinstance(limit, bool) or not hasattr(limit, "__index__"):
        raise TypeError(f"max_memory must be a number of bytes, {others}, not {type(limit).__name__!r}")
    nbytes = operator.index(limit)
    if not 0 <= nbytes <= MEMORY_MAX:
        raise ValueError(f"max_memory is {nbytes}; a number of bytes from 0 to {MEMORY_MAX} expected")
    return nbytes


class NoAttributes:
    """A class whose instances have the attributes in __slots__ alone. Lua's globals are no attributes of the state."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        try:
            object.__setattr__(self, name, value)
        except AttributeError:
            self._lacks(name, f"lua.globals().{name} = value sets one of Lua's globals")

    def _lacks(self, name: str, remedy: str) -> NoReturn:
        raise AttributeError(f"a Lua state has no attribute {name!r}; {remedy}") from None
