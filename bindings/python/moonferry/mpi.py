"""Tensors as MPI messages. A view is sent without a copy, by a derived datatype made from its strides.

    from moonferry import mpi
    world.Send(mpi.message(t[:, ::2]), dest=1)      # no copy on either side
    world.Recv(mpi.message(u.T), source=0)

Responsible for the datatype and the memory that it applies to. Invariant: a message keeps its memory, and its datatype
is freed when nobody has it any more. mpi4py is imported when the first is made. Must not know ranks and requests.
"""

from __future__ import annotations

import weakref
from typing import Any

from moonferry import _hint
from moonferry._convert import asarray
from moonferry._core import ExchangeError, Tensor
from moonferry._wrap import wrap

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
    try:
        for extent, step in steps:
            inner, made = made, made.Create_hvector(extent, 1, step)
            inner.Free()
        if below:
            inner, made = made, made.Create_hindexed_block(1, [below])
            inner.Free()
        return made.Commit()
    except BaseException:
        made.Free()
        raise


def datatype(array: Any) -> Any:
    """Returns a new, committed mpi4py Datatype for an array's layout: its elements in row-major order, counted from the
    address of the first.

    The caller must Free the datatype, which is allowed as soon as an MPI call has used it. Its type signature is that
    of the elements, so the other rank may receive into an array of any layout. A dtype that this MPI lacks, such as
    float8, is sent as bytes. Reductions accept no derived datatypes: pass them array.copy(). Any thread that may call
    MPI may call this.

    array: a tensor in host memory, or what asarray accepts without a copy.
    Raises ExchangeError for a GPU's memory and for elements narrower than a byte.
    """
    return _nested(_host_tensor("datatype", array), 0)


def _free(handle: int) -> None:
    from mpi4py import MPI

    if not MPI.Is_finalized():
        MPI.Datatype.fromhandle(handle).Free()


def message(array: Any) -> list[Any]:
    """Returns [memory, count, datatype] of an array, which mpi4py's Send, Recv, Bcast ... accept. Nothing is copied.

    A compact array is sent as elements of its dtype, which reductions accept, too. Any other array is sent by a derived
    datatype (see datatype), which is freed with the list. The message keeps the memory alive, and so does an mpi4py
    request made of it. Read-only memory, and a broadcast view, whose elements share memory, can be sent but not
    received into. Any thread that may call MPI may call this.

    array: a tensor in host memory, or what asarray accepts without a copy.
    Raises ExchangeError for a GPU's memory and for elements narrower than a byte.
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
