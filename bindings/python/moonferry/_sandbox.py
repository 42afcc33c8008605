"""What a sandboxed script may see of the attributes of Python objects.

Invariant: no attribute that this lets through leads to a namespace, a frame, code, the attributes that a format string
names, or the inside of a callable; and none can be set of a class, a module or a callable. Items, calls, operators and
str() are no attributes: what a host hands in can be used. Must not know: Lua, states.
"""

from __future__ import annotations

import ctypes
import functools
import re
import string
import types
from collections import UserString
from typing import Any

from moonferry._core import Stream

# What is there to be called has nothing else to show: its attributes are its inside, and how it was made.
_CALLABLES: tuple[type, ...] = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    type(functools.lru_cache(len)),
    functools.partial,
    functools.partialmethod,
    functools.cached_property,
    property,
    staticmethod,
    classmethod,
    *ctypes.CFUNCTYPE(None).__bases__,  # C functions, which can be told to take any number for a pointer
)
_FRAMES_AND_CODE: tuple[type, ...] = (types.FrameType, types.CodeType, types.TracebackType, types.CellType)
# A stream is made of any number that is said to be the address of one.
_SEALED = (*_CALLABLES, *_FRAMES_AND_CODE, string.Formatter, Stream)
_TEXT: tuple[type, ...] = (str, UserString)

# Of generators, coroutines and asynchronous generators, compiled ones included: what they are suspended in.
_SUSPENDED = re.compile("(gi|cr|ag)_(frame|code|yieldfrom|await|origin)")


def _is_of(obj: Any, kinds: tuple[type, ...]) -> bool:
    """Whether obj is an instance of one of these types, or a class below one."""
    return isinstance(obj, kinds) or (isinstance(obj, type) and issubclass(obj, kinds))


def _is_compiled(obj: Any) -> bool:
    """Whether obj is a function of Cython or its like, or the class of those: they have what CPython's functions have,
    by other names, too (func_globals), and are of none of its types."""
    kind = obj if isinstance(obj, type) else type(obj)
    return callable(obj) and any("__code__" in vars(base) for base in kind.__mro__)


def _is_exported(module: types.ModuleType, name: str) -> bool:
    """Whether `from module import *` would give it, and it is no other package's module."""
    fields = vars(module)
    value = fields.get(name)
    if isinstance(value, types.ModuleType) and not value.__name__.startswith(module.__name__ + "."):
        return False
    return name in fields.get("__all__", (name,))


def _leads_out(obj: Any, name: str) -> bool:
    if name.startswith("_") or _SUSPENDED.fullmatch(name):
        return True
    if isinstance(obj, types.ModuleType):
        return not _is_exported(obj, name)
    if isinstance(obj, AttributeError) and name == "obj":
        return True
    if isinstance(obj, type) and name == "mro":
        return True
    return _is_of(obj, _TEXT) and name in ("format", "format_map")


def checked_name(obj: Any, name: Any, setting: bool, encoding: str, sealed: tuple[type, ...]) -> str:
    """The attribute's name as plain text, or AttributeError if a sandboxed script may not use that attribute.

    name: a str, or bytes in the encoding. sealed: further types of which nothing may be seen.
    """
    try:
        # Of a subclass of str not what it says of itself, but the text by which the attribute is looked up.
        text = name.decode(encoding) if isinstance(name, bytes) else str.__str__(name)
    except (TypeError, UnicodeError):
        text = None
    shut = _is_of(obj, (*_SEALED, *sealed)) or _is_compiled(obj)
    if text is None or shut or _leads_out(obj, text) or (setting and isinstance(obj, (type, types.ModuleType))):
        raise AttributeError(f"a sandboxed script may not use the attribute {name if text is None else text!r}")
    return text
