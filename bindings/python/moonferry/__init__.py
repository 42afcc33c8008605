"""Moonferry: strided arrays that cross between Lua, Python and their libraries without a copy.

    import moonferry, torch
    t = moonferry.from_dlpack(torch.arange(6.0).reshape(2, 3))  # shares the memory
    t[0, 1] = 7.0
    u = moonferry.into(torch.Tensor, t)  # the same memory again

    s = moonferry.Stream("cuda:0")
    with s:  # on s: made, copied, imported, exported
        g = t.to("cuda:0")
        v = cupy.from_dlpack(g)  # ready on the stream that CuPy asks for

What each function shares, keeps alive and raises stands in its docstring.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import os
from typing import Any, NamedTuple

from moonferry import _core, _hint
from moonferry._convert import asarray, tensor, wrap
from moonferry._core import (
    _C_API as _C_API,
)
from moonferry._core import (
    DriverError,
    ExchangeError,
    Ring,
    Stream,
    Tensor,
    current_stream,
    empty,
    equal,
    from_dlpack,
    frombuffer,
    full,
    into,
    ones,
    pool_limit,
    synchronize,
    threads,
    zeros,
)
from moonferry._cuda import from_cuda_array
from moonferry._dtype import Device, DType
from moonferry._fields import fields

__version__ = _core.version
_core._tensor_lacks(_hint.AbsentOfTensor)

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


class PoolStats(NamedTuple):
    """Memory of a device that Moonferry holds: in tensors, and kept for the next ones."""

    used_bytes: int
    cached_bytes: int
    limit_bytes: int
    deferred: int
    hits: int
    misses: int


def pool_stats(device: Any) -> PoolStats:
    """What Moonferry holds of a device's memory.

    used_bytes are in living tensors, cached_bytes are kept, limit_bytes is the limit of both (0: none), deferred
    counts released memories that wait for queued work, hits and misses the allocations without and with a call of
    the driver. Raises ValueError for no such device.
    """
    return PoolStats(*_core._pool_read(device))


def trim(device: Any = None) -> None:
    """Gives what is kept and not in use back to the driver: memory, streams, events, staging buffers.

    device: None is every device of the drivers that were opened. Where nothing of Moonferry's is left, pools, kernels
    and contexts of the driver go, too. Waits for no work. Raises ValueError for no such device, DriverError.
    """
    if device is not None:
        _core._pool_trim(device)
    else:
        _core._pools_trim(0)


@atexit.register
def _release_all() -> None:
    """What was released and waits for queued work may need the interpreter; the rest goes when the process ends."""
    with contextlib.suppress(RuntimeError):
        _core._pools_trim(1000)


def device_count(kind: str = "cuda") -> int:
    """How many devices of a kind ("cuda", "rocm", "cpu" ...) there are. 0 without a driver; device_reason says why.

    Raises ValueError for a name that is none, DriverError if the driver fails.
    """
    return _core._device_count(kind)[0]


def device_reason(kind: str = "cuda") -> str | None:
    """Why there are no devices of a kind: which driver was looked for, and what came of it. None if there are some."""
    return _core._device_count(kind)[1]


_NONE = ("default", "no_order", "refuse")


def stream_none(mode: str | None = None) -> str:
    """What __dlpack__(stream=None) means for memory of a GPU, in the whole process; with an argument, from now on.

    "default": the legacy default stream, as the array API says. "no_order": as -1, nothing is ordered, which is
    what a graph capture needs. "refuse": a ValueError. Returns the mode. At import it is taken from the environment
    variable MOONFERRY_STREAM_NONE. Memory that the host can read is not concerned: None is the host there.
    Raises ValueError for another mode.
    """
    if mode is None:
        return _NONE[_core._stream_none(None)]
    if mode not in _NONE:
        raise ValueError(f"mode is {mode!r}; one of {', '.join(_NONE)} expected")
    return _NONE[_core._stream_none(_NONE.index(mode))]


if os.environ.get("MOONFERRY_STREAM_NONE"):
    try:
        stream_none(os.environ["MOONFERRY_STREAM_NONE"])
    except ValueError as error:
        raise ImportError(f"MOONFERRY_STREAM_NONE: {error}") from None


def from_arrow(obj: Any, /, *, copy: builtins.bool | None = None) -> Tensor:
    """A read-only Tensor over an array of Apache Arrow: anything with __arrow_c_array__ or __arrow_c_stream__, such as
    a column of pyarrow, polars, pandas or duckdb.

    The dtype is Arrow's own; lists of fixed size become axes. The memory is shared, but for truth values, which are
    bits there and are copied. copy: True gives a writable copy, False refuses one. Raises ExchangeError for nulls, for
    more than one chunk, and for what is no number, TypeError for an object without these methods.
    Standard: Arrow PyCapsule interface.
    """
    from moonferry import _arrow

    return _arrow.read(obj, copy)


def get_include() -> str:
    """The directory of moonferry.h and moonferry_python.h, for a C compiler's -I."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def get_lua_path() -> str:
    """The directory that holds the Lua module: LUA_PATH needs its ?.lua and ?/init.lua."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lua")


_LUA = frozenset(
    ["Lua", "LuaError", "LuaFunction", "LuaInterrupt", "LuaMemoryError", "LuaObject", "LuaSyntaxError", "LuaTable"]
    + ["LuaThread", "as_attrgetter", "as_itemgetter", "lua_type", "unpacks_lua_table", "unpacks_lua_table_method"]
)


def __getattr__(name: str) -> Any:
    """LuaJIT is loaded when it is first asked for, and not needed by anything else."""
    if name in _LUA:
        from moonferry import luajit

        return getattr(luajit, name)
    raise AttributeError(_hint.of_module(name, [*__all__, *_LUA]))


def __dir__() -> list[str]:
    return sorted({*__all__, *_LUA, *(name for name in globals() if name.startswith("__"))})


__all__ = [
    "DType",
    "Device",
    "DriverError",
    "ExchangeError",
    "Ledger",
    "PoolStats",
    "Ring",
    "Stream",
    "Tensor",
    "asarray",
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "current_stream",
    "device_count",
    "device_reason",
    "empty",
    "equal",
    "fields",
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
    "from_arrow",
    "from_cuda_array",
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
    "pool_limit",
    "pool_stats",
    "stream_none",
    "synchronize",
    "threads",
    "tensor",
    "trim",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "wrap",
    "zeros",
]
