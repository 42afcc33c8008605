"""Moonferry: strided arrays that cross between Lua, Python and their libraries without a copy.

    import moonferry, torch
    t = moonferry.from_dlpack(torch.arange(6.0).reshape(2, 3))   # shares the memory
    t[0, 1] = 7.0
    u = moonferry.into(torch.Tensor, t)                          # the same memory again

Every tensor here is on the CPU. What each function shares, keeps alive and raises stands in its docstring.
"""

import os
from typing import NamedTuple

from moonferry import _core
from moonferry._convert import asarray, tensor
from moonferry._core import (
    _C_API as _C_API,
)
from moonferry._core import (
    ExchangeError,
    Tensor,
    empty,
    equal,
    from_dlpack,
    frombuffer,
    full,
    into,
    ones,
    zeros,
)
from moonferry._dtype import Device, DType

__version__ = _core.version

bool = DType("bool")
int8 = DType("int8")
int16 = DType("int16")
int32 = DType("int32")
int64 = DType("int64")
uint8 = DType("uint8")
uint16 = DType("uint16")
uint32 = DType("uint32")
uint64 = DType("uint64")
float16 = DType("float16")
bfloat16 = DType("bfloat16")
float32 = DType("float32")
float64 = DType("float64")
complex64 = DType("complex64")
complex128 = DType("complex128")
float8_e3m4 = DType("float8_e3m4")
float8_e4m3 = DType("float8_e4m3")
float8_e4m3b11fnuz = DType("float8_e4m3b11fnuz")
float8_e4m3fn = DType("float8_e4m3fn")
float8_e4m3fnuz = DType("float8_e4m3fnuz")
float8_e5m2 = DType("float8_e5m2")
float8_e5m2fnuz = DType("float8_e5m2fnuz")
float8_e8m0fnu = DType("float8_e8m0fnu")
float6_e2m3fn = DType("float6_e2m3fn")
float6_e3m2fn = DType("float6_e3m2fn")
float4_e2m1fn = DType("float4_e2m1fn")
int4 = DType("int4")
uint4 = DType("uint4")


class Ledger(NamedTuple):
    """What is alive in this process. All zero once every tensor and every exchange is gone."""

    tensors: int
    storages: int
    bytes: int
    blocks: int


def ledger() -> Ledger:
    """The live tensors, storages, bytes of element memory and blocks of the runtime's allocator."""
    return Ledger(*_core._ledger())


def get_include() -> str:
    """The directory of moonferry.h and moonferry_python.h, for a C compiler's -I."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def get_lua_path() -> str:
    """The directory that holds the Lua module: LUA_PATH needs its ?.lua and ?/init.lua."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lua")


__all__ = [
    "DType",
    "Device",
    "ExchangeError",
    "Ledger",
    "Tensor",
    "asarray",
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "empty",
    "equal",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "frombuffer",
    "full",
    "get_include",
    "get_lua_path",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "into",
    "ledger",
    "ones",
    "tensor",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "zeros",
]
