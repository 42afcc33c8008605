"""What moonferry.Lua takes: its arguments checked, and what is said of attributes that a state has not.

It must not know what a state does with them.
"""

from __future__ import annotations

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


def check_memory(limit: Any) -> None:
    """max_memory: bytes, 0 or None."""
    if limit is not None and not hasattr(limit, "__index__"):
        raise TypeError(f"max_memory must be a number of bytes, 0 or None, not {type(limit).__name__!r}")
    if limit is not None and limit < 0:
        raise ValueError(f"max_memory is {limit!r}; a number of bytes, or 0, expected")


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
