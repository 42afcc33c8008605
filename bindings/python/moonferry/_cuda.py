"""The CUDA array interface: arrays of Numba, CuPy and others that describe themselves by a dict.

Responsible for `__cuda_array_interface__` both ways. Invariant: what goes out is ready on the stream that it names;
what comes in keeps its exporter alive and is not used before the work on the stream that it names. It must not know
how order is kept: tensors remember streams. Exchange by DLPack is preferred wherever both exist.

Standard: CUDA array interface, versions 2 and 3.
"""

from __future__ import annotations

import os
from typing import Any

from moonferry import _convert, _core, _typestr
from moonferry._core import ExchangeError, Stream, Tensor
from moonferry._interface import Interface, integer

_NAME = "__cuda_array_interface__"
_USABLE = ("cuda", "cuda_host", "cuda_managed")


def _version():
    text = os.environ.get("MOONFERRY_CUDA_ARRAY_INTERFACE", "3")
    if text not in ("2", "3"):
        raise RuntimeError(f"MOONFERRY_CUDA_ARRAY_INTERFACE is {text!r}; 2 or 3 expected")
    return int(text)


def _ready(t, version):
    """Makes the tensor ready for whoever gets the dict: on the current stream, or for everybody."""
    if version == 3:
        stream = _core.current_stream(t.device)
        t.acquire(stream, not t.readonly)
        return {"stream": stream.handle}
    t.acquire("host", not t.readonly)
    t.record(1, not t.readonly)
    return {}


def array_interface(t):
    """Tensor.__cuda_array_interface__."""
    if t.device.partition(":")[0] not in _USABLE:
        raise AttributeError(f"{_NAME}: the tensor is on {t.device}, which CUDA cannot use")
    version = _version()
    typestr = _typestr.of(t.dtype, _NAME)
    return {
        "version": version,
        "shape": t.shape,
        "typestr": typestr,
        "data": (t.data_ptr if t.size else 0, t.readonly),
        "strides": None if t.is_contiguous else tuple(s * t.dtype.itemsize for s in t.strides),
        **_ready(t, version),
    }


def _producer_stream(interface):
    """The stream that orders the producer's work, None where it says that there is nothing to wait for."""
    if interface.get("stream") is None:
        return None
    number = integer(interface.get("stream"), 1, 2**64 - 1)
    if number is None:
        raise interface.refusal("stream", "None, 1, 2 or a stream's handle")
    return number


def _record(t, number, write):
    try:
        t.record(number, write)
    except ValueError as error:
        raise ExchangeError(f"{_NAME}: {error}") from None


def _syncs(sync):
    return sync and os.environ.get("MOONFERRY_CUDA_ARRAY_INTERFACE_SYNC", "1") != "0"


def _interface_of(obj):
    fields = getattr(obj, _NAME, None)
    if fields is None:
        raise AttributeError(f"from_cuda_array: a {_convert.describe(obj)} has no {_NAME}")
    if not isinstance(fields, dict):
        raise ExchangeError(f"{_NAME} of a {_convert.describe(obj)} is a {_convert.describe(fields)}, not a dict")
    interface = Interface(_NAME, fields, _convert.describe(obj))
    if integer(interface.get("version"), 2) is None:
        raise interface.refusal("version", "an integer from 2")
    interface.refuse_mask()
    return interface


def _place(address):
    """Where the driver says that the memory is; an array without elements is nowhere, which is on the first GPU."""
    if address == 0:
        return "cuda:0"
    try:
        return _core._device_of_pointer("cuda", address)
    except ValueError as error:
        raise ExchangeError(f"{_NAME}: {error}") from None


def from_cuda_array(obj: Any, *, stream: Stream | Any = None, sync: bool = True) -> Tensor:
    """Returns a Tensor over the memory of an object with __cuda_array_interface__, version 2 or later.

    obj stays alive until nothing refers to the memory and the work queued on it is done. Work that is already queued on
    the stream that the interface names comes first: any other stream that uses the tensor waits for it on the device.
    The reverse is the producer's task: before it uses the memory again, it must wait for the work that Moonferry queued
    on other streams.
    stream: a Stream, or an object or number as for Tensor.to, that waits now, for work that the caller queues itself.
    sync: False uses the memory at once and waits for nothing, as MOONFERRY_CUDA_ARRAY_INTERFACE_SYNC=0 in the
    environment does.
    Raises AttributeError if obj lacks the interface; ExchangeError for a mask, a foreign byte order, an unknown dtype,
    or a pointer that CUDA does not know.
    """
    interface = _interface_of(obj)
    shape = interface.shape()
    text, dtype = interface.typestr()
    if _typestr.is_swapped(text):
        raise interface.refusal("typestr", "this machine's byte order")
    strides = interface.strides(shape, dtype.itemsize)
    address, readonly = interface.address(shape)
    number = _producer_stream(interface)
    device = _place(address)
    t = interface.wrapped(address, shape, strides, dtype, readonly, obj, device)
    if address and number is not None and _syncs(sync):
        _record(t, number, not readonly)
    if address and stream is not None:
        t.acquire(stream, not readonly)
    return t
