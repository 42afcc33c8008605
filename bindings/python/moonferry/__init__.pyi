import builtins
from typing import Any, NamedTuple

from moonferry._convert import asarray as asarray
from moonferry._convert import tensor as tensor
from moonferry._core import _C_API as _C_API
from moonferry._core import DriverError as DriverError
from moonferry._core import ExchangeError as ExchangeError
from moonferry._core import Ring as Ring
from moonferry._core import Stream as Stream
from moonferry._core import Tensor as Tensor
from moonferry._core import current_stream as current_stream
from moonferry._core import empty as empty
from moonferry._core import equal as equal
from moonferry._core import from_dlpack as from_dlpack
from moonferry._core import frombuffer as frombuffer
from moonferry._core import full as full
from moonferry._core import into as into
from moonferry._core import ones as ones
from moonferry._core import pool_limit as pool_limit
from moonferry._core import synchronize as synchronize
from moonferry._core import threads as threads
from moonferry._core import zeros as zeros
from moonferry._cuda import from_cuda_array as from_cuda_array
from moonferry._dtype import Device as Device
from moonferry._dtype import DType as DType
from moonferry._fields import fields as fields
from moonferry._wrap import wrap as wrap
from moonferry.luajit import Lua as Lua
from moonferry.luajit import LuaError as LuaError
from moonferry.luajit import LuaFunction as LuaFunction
from moonferry.luajit import LuaInterrupt as LuaInterrupt
from moonferry.luajit import LuaMemoryError as LuaMemoryError
from moonferry.luajit import LuaObject as LuaObject
from moonferry.luajit import LuaSyntaxError as LuaSyntaxError
from moonferry.luajit import LuaTable as LuaTable
from moonferry.luajit import LuaThread as LuaThread
from moonferry.luajit import as_attrgetter as as_attrgetter
from moonferry.luajit import as_itemgetter as as_itemgetter
from moonferry.luajit import lua_type as lua_type
from moonferry.luajit import unpacks_lua_table as unpacks_lua_table
from moonferry.luajit import unpacks_lua_table_method as unpacks_lua_table_method

__version__: str

bool: DType
int4: DType
int8: DType
int16: DType
int32: DType
int64: DType
uint4: DType
uint8: DType
uint16: DType
uint32: DType
uint64: DType
float16: DType
bfloat16: DType
float32: DType
float64: DType
complex64: DType
complex128: DType
float8_e3m4: DType
float8_e4m3: DType
float8_e4m3b11fnuz: DType
float8_e4m3fn: DType
float8_e4m3fnuz: DType
float8_e5m2: DType
float8_e5m2fnuz: DType
float8_e8m0fnu: DType
float6_e2m3fn: DType
float6_e3m2fn: DType
float4_e2m1fn: DType

class Ledger(NamedTuple):
    tensors: int
    storages: int
    bytes: int
    blocks: int

def ledger() -> Ledger: ...

class PoolStats(NamedTuple):
    used_bytes: int
    cached_bytes: int
    limit_bytes: int
    deferred: int
    hits: int
    misses: int

def pool_stats(device: Any) -> PoolStats: ...
def trim(device: Any = None) -> None: ...
def device_count(kind: str = "cuda") -> int: ...
def device_reason(kind: str = "cuda") -> str | None: ...
def stream_none(mode: str | None = None) -> str: ...
def from_arrow(obj: Any, /, *, copy: builtins.bool | None = None) -> Tensor: ...
def get_include() -> str: ...
def get_lua_path() -> str: ...
def __dir__() -> list[str]: ...

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
