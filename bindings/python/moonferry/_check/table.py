"""Rules of DLPack's C exchange table, for libraries that publish one."""

from __future__ import annotations

import ctypes
from typing import Any

from . import abi
from .abi import CPU, DELETER, Foreign, Table, Versioned
from .library import Library, NotOffered, contents, expect
from .rules import HEADER, PYTHON, rule
from .values import FLOAT32, float32

SIX = float32(0, 1, 2, 3, 4, 5)
TABLE = HEADER

_FROM_PY = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_TO_PY = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
_SET_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, _SET_ERROR)


def capsule_of(array: Any) -> Any:
    found = getattr(type(array), "__dlpack_c_exchange_api__", None)
    if found is None:
        raise NotOffered(f"{type(array).__name__} has no __dlpack_c_exchange_api__")
    return found


def table_of(array: Any) -> Any:
    capsule = capsule_of(array)
    expect(type(capsule).__name__ == "PyCapsule", f"the attribute is {type(capsule).__name__}, no capsule")
    return Table.from_address(abi.address_of(capsule))


@rule("table-capsule", "must", PYTHON + "__dlpack_c_exchange_api__")
def capsule(lib: Library) -> None:
    """The table is in a capsule named dlpack_exchange_api on the type."""
    found = capsule_of(lib.array())
    expect(type(found).__name__ == "PyCapsule", f"the attribute is {type(found).__name__}, no capsule")
    expect(abi.name_of(found) == b"dlpack_exchange_api", f"the capsule is named {abi.name_of(found)!r}")


@rule("table-version", "must", HEADER + "DLPackExchangeAPIHeader")
def version(lib: Library) -> str:
    """Its major version is 1, or prev_api leads to a table of version 1."""
    table = table_of(lib.array())
    first = f"{table.version.major}.{table.version.minor}"
    while table.version.major > 1 and table.previous:
        table = Table.from_address(table.previous)
    expect(table.version.major == 1, f"its version is {first}, and none before it is 1")
    return first


@rule("table-slots", "must", HEADER + "DLPackExchangeAPI")
def slots(lib: Library) -> str | None:
    """All slots are filled; dltensor_from_py_object_no_sync may be NULL."""
    table = table_of(lib.array())
    for name in ("allocator", "managed_from_py", "managed_to_py", "current_work_stream"):
        expect(getattr(table, name), f"{name} is NULL")
    return None if table.dltensor_from_py else "dltensor_from_py_object_no_sync is NULL"


def owned(lib: Library, array: Any) -> Any:
    out = ctypes.c_void_p()
    code = _FROM_PY(table_of(array).managed_from_py)(array, ctypes.byref(out))
    expect(code == 0 and out.value, f"it returned {code}")
    return Versioned.from_address(out.value or 0)


@rule("table-export", "must", TABLE + "managed_tensor_from_py_object_no_sync")
def table_export(lib: Library) -> None:
    """An owning export has version 1, filled strides and the array's elements, and outlives the array."""
    array = lib.array()
    held = owned(lib, array)
    expected = contents(array)
    del array
    expect(held.version.major == 1, f"its version is {held.version.major}")
    expect(held.tensor.strides, "strides is NULL")
    expect(abi.elements(held.tensor) == expected, "the elements are others")
    if held.deleter:
        DELETER(held.deleter)(ctypes.addressof(held))


@rule("table-borrow", "must", TABLE + "dltensor_from_py_object_no_sync")
def table_borrow(lib: Library) -> None:
    """A borrowed DLTensor describes the array."""
    array = lib.array()
    table = table_of(array)
    if not table.dltensor_from_py:
        raise NotOffered("dltensor_from_py_object_no_sync is NULL")
    tensor = abi.Tensor()
    code = _FROM_PY(table.dltensor_from_py)(array, ctypes.byref(tensor))
    expect(code == 0, f"it returned {code}")
    expect(tensor.strides, "strides is NULL")
    expect(abi.elements(tensor) == contents(array), "the elements are others")


@rule("table-import", "must", TABLE + "managed_tensor_to_py_object_no_sync")
def table_import(lib: Library) -> None:
    """A managed tensor of another library becomes an array, and is deleted once, when that goes."""
    producer = Foreign(SIX, (2, 3), FLOAT32.triple)
    out = ctypes.c_void_p()
    struct = producer.managed(True)
    code = _TO_PY(table_of(lib.array()).managed_to_py)(ctypes.addressof(struct), ctypes.byref(out))
    expect(code == 0 and out.value, f"it returned {code}")
    array = ctypes.cast(out, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(out)
    expect(contents(array) == SIX, "the elements are others")
    expect(producer.deleted == 0, "the deleter was called while the array was there")
    del array
    expect(producer.deleted == 1, f"the deleter was called {producer.deleted} times")


@rule("table-stream", "must", TABLE + "current_work_stream")
def table_stream(lib: Library) -> None:
    """The CPU's stream is NULL, without an error."""
    out = ctypes.c_void_p(1)
    code = _STREAM(table_of(lib.array()).current_work_stream)(CPU, 0, ctypes.byref(out))
    expect(code == 0, f"it returned {code}")
    expect(not out.value, f"the stream is {out.value}")


def allocate(lib: Library, shape: tuple[int, ...]) -> tuple[int, Any, list[tuple[bytes, bytes]]]:
    errors: list[tuple[bytes, bytes]] = []

    @_SET_ERROR
    def set_error(_: int, kind: bytes, message: bytes) -> None:
        errors.append((kind, message))

    prototype = abi.Tensor()
    extents = (ctypes.c_int64 * len(shape))(*shape)
    prototype.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    prototype.ndim, prototype.dtype, prototype.device = len(shape), abi.DataType(2, 32, 1), abi.Device(CPU, 0)
    out = ctypes.c_void_p()
    function = _ALLOCATE(table_of(lib.array()).allocator)
    code = function(ctypes.byref(prototype), ctypes.byref(out), None, set_error)
    return code, Versioned.from_address(out.value) if out.value else None, errors


@rule("table-allocate", "must", TABLE + "managed_tensor_allocator")
def table_allocate(lib: Library) -> None:
    """The allocator makes a tensor of the prototype's shape and dtype, without the GIL."""
    code, held, errors = allocate(lib, (2, 3, 4))
    expect(code == 0 and held is not None, f"it returned {code}, {errors}")
    expect(abi.shape_of(held.tensor) == (2, 3, 4), f"the shape is {abi.shape_of(held.tensor)}")
    expect(abi.dtype_of(held.tensor) == FLOAT32.triple, f"the dtype is {abi.dtype_of(held.tensor)}")
    expect(held.tensor.strides and held.tensor.data, "strides or data is NULL")
    if held.deleter:
        DELETER(held.deleter)(ctypes.addressof(held))


@rule("table-allocate-error", "must", TABLE + "managed_tensor_allocator")
def table_allocate_error(lib: Library) -> str:
    """What cannot be allocated gives -1, and SetError is called once with the exception's name."""
    code, held, errors = allocate(lib, (1 << 40, 1 << 20))
    expect(code != 0 and held is None, f"2^60 elements were allocated: it returned {code}")
    expect(len(errors) == 1, f"SetError was called {len(errors)} times")
    return f"{errors[0][0].decode()}: {errors[0][1].decode(errors='replace')[:80]}"
