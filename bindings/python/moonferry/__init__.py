"""Moonferry: strided arrays that Lua, Python and their array libraries share without copies.

    import moonferry, torch
    t = moonferry.from_dlpack(torch.arange(6.0).reshape(2, 3))  # shares the memory
    t[0, 1] = 7.0
    u = moonferry.into(torch.Tensor, t)  # the same memory again

    s = moonferry.Stream("cuda:0")
    with s:  # tensors are made, copied, imported and exported on s
        g = t.to("cuda:0")
        v = cupy.from_dlpack(g)  # the stream that CuPy names waits for s

Each docstring says what the function shares, keeps alive and raises.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import os
from typing import Any, NamedTuple

from moonferry import _core, _hint
from moonferry._convert import asarray, tensor
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
from moonferry._wrap import wrap

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
    """The numbers of what is alive in this process. All are zero when every tensor and every exchange is gone."""

    tensors: int
    storages: int
    bytes: int
    blocks: int


def ledger() -> Ledger:
    """Returns how many tensors, storages, bytes of element memory and blocks of the runtime's allocator are alive."""
    return Ledger(*_core._ledger())


class PoolStats(NamedTuple):
    """The memory of a device that Moonferry holds; pool_stats explains the fields."""

    used_bytes: int
    cached_bytes: int
    limit_bytes: int
    deferred: int
    hits: int
    misses: int


def pool_stats(device: Any) -> PoolStats:
    """Returns how much memory of a device Moonferry holds.

    used_bytes is held by tensors, cached_bytes is kept for the next ones, and limit_bytes limits the sum (0: no limit).
    deferred counts released memories that wait for queued work. hits counts the allocations that the cache served,
    misses those that called the driver.
    Raises ValueError if there is no such device.
    """
    return PoolStats(*_core._pool_read(device))


def trim(device: Any = None) -> None:
    """Returns unused memory, streams, events and staging buffers to the driver, without waiting for any work.

    device: None means every device whose driver was opened. If Moonferry uses nothing else of a driver, its pools,
    kernels and contexts are released, too.
    Raises ValueError if there is no such device, DriverError.
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
    """Returns the number of devices of a kind: "cuda", "rocm", "cpu" ...; 0 if the driver is missing or fails (see
    device_reason).

    Raises ValueError if kind is not a known name.
    """
    return _core._device_count(kind)[0]


def device_reason(kind: str = "cuda") -> str | None:
    """Returns why there are no devices of a kind: which driver was looked for and what failed. None if there are
    devices.
    """
    return _core._device_count(kind)[1]


_NONE = ("default", "no_order", "refuse")


def stream_none(mode: str | None = None) -> str:
    """Sets what __dlpack__(stream=None) means for GPU memory, in the whole process, and returns the setting. For memory
    that the host can read, None always means the host.

    The first setting is that of the environment variable MOONFERRY_STREAM_NONE, read at import, else "default".

    mode: None changes nothing. "default" is the legacy default stream, as the array API says. "no_order" orders
    nothing, as stream=-1, which a graph capture needs. "refuse" raises ValueError.
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


_asked = os.environ.get("MOONFERRY_THREADS")
if _asked and not (_asked.isascii() and _asked.isdigit() and 1 <= int(_asked) <= 64):
    raise ImportError(f"MOONFERRY_THREADS is {_asked!r}; a number from 1 to 64 expected")


def from_arrow(obj: Any, /, *, copy: builtins.bool | None = None) -> Tensor:
    """Returns a read-only Tensor over an Apache Arrow array: an object with __arrow_c_array__ or __arrow_c_stream__,
    such as a column of pyarrow, polars, pandas or duckdb.

    The dtype is Arrow's; fixed-size lists become axes. The memory is shared, except for booleans: Arrow stores them as
    bits, so they are copied.
    copy: True returns a writable copy; False raises ExchangeError if a copy is needed.
    Raises ExchangeError if there are nulls, more than one chunk, or elements that are not numbers; TypeError if obj has
    neither method.
    Standard: Arrow PyCapsule interface.
    """
    from moonferry import _arrow, _convert

    _convert.check_copy(copy)
    return _arrow.read(obj, copy)


def get_include() -> str:
    """Returns the directory of moonferry.h and moonferry_python.h, for a C compiler's -I."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def get_lua_path() -> str:
    """Returns the directory of the Lua module. LUA_PATH needs its ?.lua and ?/init.lua."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lua")


# In messages, help and pickles they are the package's.
for _function in (current_stream, empty, equal, from_dlpack, frombuffer, full, into, ones, pool_limit, zeros):
    _function.__module__ = "moonferry"
synchronize.__module__ = threads.__module__ = "moonferry"

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
