"""Tensors as MPI's messages: a view goes as it lies in memory, by a derived datatype made from its strides.

    from moonferry import mpi
    world.Send(mpi.message(t[:, ::2]), dest=1)      # no copy, on neither side
    world.Recv(mpi.message(u.T), source=0)

Responsible for the datatype and the memory that it applies to. Invariant: a message keeps its memory, and its datatype
is freed when nobody has it any more. mpi4py is imported when the first is made. Must not know ranks and requests.
"""

from __future__ import annotations

import weakref
from typing import Any

from moonferry import _hint
from moonferry._convert import asarray, wrap
from moonferry._core import ExchangeError, Tensor

__all__ = ["datatype", "message"]

# MPI's own names. A dtype that is not here, or that the MPI in use lacks, goes as bytes.
_NAMES = {
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}_T" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{"bool": "C_BOOL", "float16": "FLOAT16_T", "bfloat16": "BFLOAT16_T", "float32": "FLOAT", "float64": "DOUBLE"},
    **{"complex64": "C_FLOAT_COMPLEX", "complex128": "C_DOUBLE_COMPLEX"},
}


def _host_tensor(what: str, array: Any) -> Tensor:
    try:
        t = asarray(array, copy=False)
    except ExchangeError as error:
        why = str(error).removeprefix("asarray: ").removeprefix("copy=False, but ")
        raise ExchangeError(f"{what}: {why}; asarray(x) is a tensor, which can be sent") from None
    if t.device != "cpu":
        raise ExchangeError(f"{what}: the tensor is on {t.device}; MPI reads the host's memory: to('cpu') copies")
    if t.dtype.bits * t.dtype.lanes != 8 * t.itemsize:
        raise ExchangeError(f"{what}: elements of {t.dtype} share bytes; reinterpret('uint8') gives the bytes")
    return t


def _item(t: Tensor) -> tuple[Any, int]:
    """MPI's datatype of an element, and how many of them an element has: one, or its bytes."""
    from mpi4py import MPI

    named = getattr(MPI, _NAMES.get(str(t.dtype), ""), MPI.DATATYPE_NULL)
    return (MPI.BYTE, t.itemsize) if named == MPI.DATATYPE_NULL else (named, 1)


def _nested(t: Tensor, below: int) -> Any:
    """The committed datatype of all elements in C's order. below: bytes from the memory's start to the first one."""
    made, count = _item(t)
    steps: list[tuple[int, int]] = []
    for extent, stride in zip(reversed(t.shape), reversed(t.strides)):
        if not steps and (extent == 1 or stride * t.itemsize == count * made.Get_size()):
            count *= extent  # elements that follow each other are one block
        elif extent != 1:
            steps.append((extent, stride * t.itemsize))
    made = made.Create_contiguous(count)
    for extent, step in steps:
        inner, made = made, made.Create_hvector(extent, 1, step)
        inner.Free()
    if below:
        inner, made = made, made.Create_hindexed_block(1, [below])
        inner.Free()
    return made.Commit()


def datatype(array: Any) -> Any:
    """The mpi4py Datatype of an array's layout: its elements in C's order, counted from the address of the first.

    array: a tensor in the host's memory, or what asarray takes without a copy. The datatype is new and committed, and
    the caller's to Free; it may be freed as soon as a call has taken it. One element of it has the type signature of
    as many elements of the dtype, so the other rank may receive it into an array of any layout. A dtype that this MPI
    lacks, such as float8, goes as its bytes. Reductions take no derived datatypes: give them array.copy(). Raises
    ExchangeError for a GPU's memory and for elements narrower than a byte. Any thread that may call MPI.
    """
    return _nested(_host_tensor("datatype", array), 0)


def _free(handle: int) -> None:
    from mpi4py import MPI

    if not MPI.Is_finalized():
        MPI.Datatype.fromhandle(handle).Free()


def message(array: Any) -> list[Any]:
    """[memory, count, datatype] of an array as it lies in memory, which mpi4py's Send, Recv, Bcast ... take. No copy.

    array: a tensor in the host's memory, or what asarray takes without a copy. A compact one goes as elements of its
    dtype, which reductions take as well; any other by a derived datatype (datatype), which MPI gets back with the list.
    The message keeps the memory, and so does a request that mpi4py makes of it. Memory that is read-only, and a
    broadcast view, of which two elements are one, can be sent and not received into. Raises ExchangeError for a GPU's
    memory and for elements narrower than a byte. Any thread that may call MPI.
    """
    t = _host_tensor("message", array)
    reach = [(extent - 1) * stride * t.itemsize for extent, stride in zip(t.shape, t.strides)] if t.size else []
    below = -sum(step for step in reach if step < 0)
    span = sum(map(abs, reach)) + t.itemsize if t.size else 0
    overlaps = any(extent > 1 and stride == 0 for extent, stride in zip(t.shape, t.strides))
    keep = t[...]  # which nobody else can close
    memory = wrap(t.data_ptr - below, span, "uint8", owner=keep, readonly=t.readonly or overlaps)
    if t.is_contiguous:
        item, parts = _item(t)
        return [memory, t.size * parts, item]
    kind = _nested(t, below)
    weakref.finalize(kind, _free, kind.handle)
    return [memory, 1, kind]


__getattr__ = _hint.lacks(__name__, __all__)
