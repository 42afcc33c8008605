"""What becomes a tensor, and what a tensor becomes, where a few microseconds do not matter.

Responsible for asarray and tensor, __array_interface__ both ways, __array__ and pickling. Invariant: memory is shared
unless a copy was asked for, and a shared tensor keeps its owner. Exchange by DLPack is not done here but in C.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

from moonferry import _core, _typestr
from moonferry._core import ExchangeError, Tensor
from moonferry._dtype import Device, DType, remedy
from moonferry._interface import Interface, integer

# The formats of PEP 3118 whose byte order matters, in the sizes that stand behind a sign for it.
_FORMATS = {
    **{"h": DType("int16"), "i": DType("int32"), "l": DType("int32"), "q": DType("int64")},
    **{"H": DType("uint16"), "I": DType("uint32"), "L": DType("uint32"), "Q": DType("uint64")},
    **{"e": DType("float16"), "f": DType("float32"), "d": DType("float64")},
    **{"Zf": DType("complex64"), "Zd": DType("complex128")},
}


def describe_class(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


def describe(obj):
    return describe_class(type(obj))


def check_copy(copy):
    """What equals True or False, as 0 and NumPy's do, is neither: with `is` it would mean something else."""
    if copy is not None and copy is not True and copy is not False:
        raise TypeError(f"copy must be True, False or None, not {copy!r}")


def _is_buffer(obj):
    try:
        memoryview(obj).release()
    except TypeError:
        return False
    except (BufferError, ValueError):
        return True
    return True


def _from_ml_dtypes(obj, copy):
    """A tensor over a NumPy array of a dtype that NumPy cannot export itself; None for any other obj. Where each
    element lies in a byte of its own, only a compact array is shared."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(obj, numpy.ndarray) or obj.dtype.kind not in "fViu":
        return None
    if obj.dtype.isbuiltin != 2:
        return None
    try:
        dtype = DType(obj.dtype)
    except TypeError:  # another package's dtype: quaternions, rational numbers
        return None
    raw = _core.from_dlpack(obj.view(f"uint{8 * obj.dtype.itemsize}"))
    if dtype.bits == 8 * obj.dtype.itemsize:
        return raw.reinterpret(dtype)
    # Narrower than a byte: ml_dtypes keeps each element in a byte of its own.
    if not raw.is_contiguous:
        if copy is False:
            raise ExchangeError(f"asarray: copy=False, but elements of {dtype} with strides must be copied")
        raw = raw.copy()
    return _core._from_raw(raw, obj.shape, dtype, True)


def refuse_mask(obj, what="asarray"):
    """NumPy's masked arrays give their data without their mask, by each protocol."""
    ma = sys.modules.get("numpy.ma")
    if ma is None or not isinstance(obj, ma.MaskedArray) or not ma.is_masked(obj):
        return
    count = int(obj.mask.sum())
    raise ExchangeError(f"{what}: {count} masked elements; a tensor has no mask: x.filled(value) or x.data has none")


def _columns(obj):
    """Those of a table of polars, pyarrow or pandas; any other obj itself, for which the names may mean anything."""
    for name in ("iter_columns", "itercolumns"):
        if callable(ask := getattr(obj, name, None)):
            return ask()
    if not (hasattr(obj, "columns") and callable(ask := getattr(obj, "items", None))):
        return (obj,)
    return (pair[1] for pair in ask() if isinstance(pair, tuple) and len(pair) == 2)


def _nulls_of(column):
    count = getattr(column, "null_count", None)
    has_na = type(getattr(getattr(column, "dtype", None), "na_value", None)).__name__ == "NAType"
    if count is None and has_na and hasattr(column, "isna"):
        count = column.isna().sum()
    return integer(count() if callable(count) else count) or 0


def _refuse_nulls(obj):
    """For their nulls, columns and tables give NaN, and floats for integers."""
    count = sum(map(_nulls_of, _columns(obj)))
    if count:
        of = f"asarray: {count} nulls in a {describe(obj)}; a tensor has none"
        raise ExchangeError(f"{of}: fill or drop them first, or give x.to_numpy(), which has NaN")


def _from_protocols(obj, copy, device=None):
    """A tensor that shares the memory of an array of any kind, None if obj is no array. device: what the producer is
    asked for where it does not give what it has as it is."""
    refused = None
    made = obj if isinstance(obj, Tensor) else _from_ml_dtypes(obj, copy)
    if made is not None:
        return made.copy() if copy else made.__enter__()  # which refuses a closed one
    refuse_mask(obj)
    if hasattr(type(obj), "__dlpack__"):
        try:
            return _from_dlpack(obj, copy, device)
        except (BufferError, TypeError) as error:  # a TypeError is how NumPy 1 refuses what is read-only
            refused = error
    try:
        if not isinstance(obj, type) and getattr(obj, "__cuda_array_interface__", None) is not None:
            from moonferry import _cuda

            made = _cuda.from_cuda_array(obj)
            return made.copy() if copy else made
        shared: Any = None if isinstance(obj, (str, list, tuple)) else _from_memory(obj, copy, refused)
        if shared is None and refused is not None:
            raise refused
        return shared
    finally:
        refused = None  # its traceback has this frame: obj would stay until Python's collector comes


def _from_dlpack(obj, copy, device):
    try:
        return _core.from_dlpack(obj, copy=copy)
    except (BufferError, TypeError):
        if device is None:
            raise
    return _core.from_dlpack(obj, device=device, copy=copy)


def _from_memory(obj, copy, refused):
    """By buffer protocol, __array_interface__ or __array__, copied if copy says so; None if there is none of them."""
    if _is_buffer(obj):
        made = _from_buffer(obj, copy, refused)
    elif isinstance(interface := getattr(obj, "__array_interface__", None), dict):
        made = _from_interface(obj, interface, copy)
    elif hasattr(type(obj), "__array__"):
        _refuse_nulls(obj)
        given, left = _array_of(obj, copy, refused)
        if given is obj:
            raise TypeError(f"asarray: __array__ of a {describe(obj)} gave itself, which is no array")
        return _from_protocols(given, left)
    elif hasattr(type(obj), "__arrow_c_array__") or hasattr(type(obj), "__arrow_c_stream__"):
        from moonferry import _arrow

        made = _arrow.read(obj, copy)
        return made.copy() if copy and made.readonly else made
    else:
        return None
    return made.copy() if copy else made


def _from_swapped(obj):
    """A copy of a buffer whose elements have their bytes in the other order; None of any other."""
    with memoryview(obj) as memory:
        swapped = memory.format[:1] in (">!" if _typestr.LITTLE else "<")
        dtype = _FORMATS.get(memory.format[1:]) if swapped else None
        if dtype is None:
            return None
        return _native(_core.frombuffer(bytearray(memory.tobytes())), memory.shape, dtype)


def _refused(obj, why):
    """The error of asarray for what DLPack or another protocol says, with what helps for the dtype of ${obj}."""
    return ExchangeError(f"asarray: {why.removeprefix('from_dlpack: ')}{remedy(getattr(obj, 'dtype', None))}")


def _from_buffer(obj, copy, refused):
    kind = getattr(getattr(obj, "dtype", None), "kind", "")
    if kind in "OUSTMmV" and kind and not getattr(obj, "shape", None):  # a NumPy scalar, which is a buffer of bytes
        raise _refused(obj, f"a {describe(obj)} is no number")
    try:
        made = None if copy is False else _from_swapped(obj)
        return _core._from_buffer(obj, copy is not False) if made is None else made
    except (BufferError, ValueError) as error:
        kind = getattr(obj, "dtype", None)
        of = f"a {describe(obj)}" + (f" of dtype {kind}" if kind is not None else "")
        raise _refused(obj, f"{str(refused or error).rstrip('.')} (from {of})") from None


def _native(raw, shape, dtype):
    """A tensor of elements whose bytes lie in the other order in ${raw}."""
    parts = 2 if dtype.code == 5 else 1
    size = dtype.itemsize // parts
    swapped = raw.reshape(raw.size // size, size)[:, ::-1].copy()
    return swapped.reshape(-1).reinterpret(dtype).reshape(shape)


def _array_of(obj, copy, why):
    """What __array__ gives, and what is left of copy. Before NumPy 2 it took no copy. why: the error of DLPack."""
    if copy is None:
        return _asked_array_of(obj, why), None
    try:
        return obj.__array__(copy=copy), False if copy is False else None
    except TypeError:
        if copy:
            return _asked_array_of(obj, why), True
        said = str(why or "").removeprefix("from_dlpack: ").removeprefix("copy=False, but ")
        refused = said or f"__array__ of a {describe(obj)} cannot be told not to copy"
    except ValueError as error:
        refused = str(error)
    raise _refused(obj, f"copy=False, but {refused}") from None


def _asked_array_of(obj, why):
    """Where DLPack has refused obj as well, the error says what either has against it."""
    try:
        return obj.__array__()
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        if why is None:
            raise
        first, second = (str(reason) or repr(reason) for reason in (why, error))
        raise _refused(obj, f"{first}; __array__: {second} (from a {describe(obj)})") from error


def _from_interface(obj, fields, copy):
    interface = Interface("__array_interface__", fields, describe(obj))
    shape = interface.shape()
    text, dtype = interface.typestr()
    swapped = _typestr.is_swapped(text)
    if swapped and copy is False:
        raise ExchangeError(f"asarray: copy=False, but the bytes of {text!r} are in the other order")
    interface.refuse_mask()
    strides = interface.strides(shape, dtype.itemsize)
    if isinstance(interface.get("data"), (tuple, list)):
        address, readonly = interface.address(shape)
        made = interface.wrapped(address, shape, strides, dtype, readonly, obj)
    else:
        memory = _bytes_of(interface)
        interface.check_extent(memory.nbytes, shape, strides, dtype.itemsize)
        made = interface.wrapped(memory.data_ptr, shape, strides, dtype, memory.readonly, memory)
    return _native(made.copy().reshape(-1).reinterpret("uint8"), shape, dtype) if swapped else made


def _bytes_of(interface):
    """Those of the buffer that has the elements."""
    try:
        memory = _core.frombuffer(interface.get("data"))
    except TypeError:
        expected = "an address and a bool, or an object with the buffer protocol,"
        raise interface.refusal("data", expected) from None
    offset = interface.get("offset")
    first = integer(0 if offset is None else offset, 0, memory.nbytes)
    if first is None:
        raise interface.refusal("offset", f"an integer from 0 to {memory.nbytes}, the bytes of the buffer,")
    return memory[first:]


def _converted(made, dtype):
    return made if dtype is None else made.astype(dtype, copy=False)


def _placed(made, device, copy):
    return made if device is None else made.to(device, copy=copy)


def _from_array(obj, dtype, device, copy):
    """A tensor of an array of any kind, None if obj is no array. A GPU converts nothing, so the host does."""
    made = _from_protocols(obj, None if device is not None and copy else copy, device)
    if made is None:
        return None
    if copy is False and dtype is not None and made.dtype != DType(dtype):
        raise ExchangeError(f"asarray: copy=False, but {made.dtype} would become {DType(dtype)}")
    if device is not None and _on_gpu(made):
        return _converted(_placed(made, device, copy), dtype)
    converted = _converted(made, dtype)
    fresh = converted is not made
    return _placed(converted, device, None if copy and fresh else copy)


def asarray(obj: Any, dtype: Any = None, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Returns a Tensor of obj: a Tensor (itself), an array of another library, an object with the buffer protocol,
    __array_interface__ or __cuda_array_interface__, nested sequences of numbers, or a number. If the memory is shared,
    the tensor keeps its owner alive.

    dtype: None keeps the array's dtype, and chooses one for numbers as NumPy does.
    device: None leaves the elements where they are; numbers are put in host memory.
    copy: True always copies; False raises ExchangeError if a copy is needed; None copies only if needed.
    Raises TypeError if obj is none of these; ExchangeError if it has nulls or masked elements, which a tensor has not,
    or if it refuses, with its reasons.
    Standard: array API 2025.12, asarray; PEP 3118.
    """
    check_copy(copy)
    made = _from_array(obj, dtype, device, copy)
    if made is not None:
        return made
    if copy is False:
        raise ExchangeError(f"asarray: copy=False, but the numbers in a {describe(obj)} must be copied")
    return _placed(_core._from_nested(obj, dtype), device, None)


def source_for(obj, dtype):
    """What t[...] = obj copies: an array of any kind as it is, numbers as elements of the dtype."""
    made = _from_array(obj, None, None, None)
    return _core._from_nested(obj, dtype) if made is None else made


def tensor(obj: Any, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Returns a new Tensor with a copy of obj: a number, nested sequences of numbers, or any array. The copy is compact
    and writable.

    dtype: None keeps an array's dtype, and chooses bool, int64, float64 or complex128 for numbers, as NumPy does.
    device: None leaves the elements where they are; numbers are put in host memory.
    Raises ValueError for ragged sequences and for nan in an integer dtype; TypeError if obj is none of these;
    OverflowError for a number that the dtype cannot hold. (astype converts any number to any dtype.)
    """
    made = _from_protocols(obj, True if dtype is None and device is None else None)
    if made is None:
        return _placed(_core._from_nested(obj, dtype), device, None)
    if device is not None and (dtype is None or _on_gpu(made)):
        return _converted(made.to(device, copy=True), dtype)
    if dtype is None:
        return made.contiguous()  # NumPy's copy for DLPack lies as the array does
    return _placed(made.astype(dtype), device, None)


def numpy_dtype(t):
    """Tensor.__numpy_dtype__. AttributeError where NumPy has none, because then the property is what is missing."""
    import numpy

    try:
        return numpy.dtype(str(t.dtype))
    except TypeError:
        pass
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, t.dtype))
    except (ImportError, AttributeError):
        raise AttributeError(f"__numpy_dtype__: neither NumPy nor ml_dtypes has a dtype for {t.dtype}") from None


# Where from_dlpack is, below a library's first name, and libraries that define their classes under another name.
_PLACES = ("", ".dlpack")
_LIBRARIES = {"jaxlib": "jax"}


def into_by_protocol(both):
    """into(cls, t) for a class without an exchange table: what its library's own from_dlpack makes."""
    cls, t = both
    first = cls.__module__.partition(".")[0]
    library = _LIBRARIES.get(first, first)
    for place in _PLACES:
        take = getattr(sys.modules.get(library + place), "from_dlpack", None)
        if take is not None:
            made = take(t)
            if not isinstance(made, cls):
                gave = f"{library + place}.from_dlpack gave a {describe(made)}"
                raise TypeError(f"into: {gave}, not a {describe_class(cls)}")
            return made
    raise AttributeError(
        f"into: '{describe_class(cls)}' has no __dlpack_c_exchange_api__ of DLPack 1, and {library} has no from_dlpack"
        + ("; t.tolist() gives Python's numbers" if library == "builtins" else "")
    )


def array_interface(t):
    """NumPy's array interface, version 3, of a tensor."""
    text = _typestr.of(t.dtype, "__array_interface__")
    try:
        memoryview(t).release()
    except BufferError as error:
        if not _on_gpu(t):
            raise
        raise AttributeError(f"__array_interface__: {error}") from None
    return {
        "version": 3,
        "shape": t.shape,
        "typestr": text,
        "data": (t.data_ptr, t.readonly),
        "strides": None if t.is_contiguous else tuple(s * t.dtype.itemsize for s in t.strides),
    }


def _on_gpu(t):
    return t.device.type in (2, 10)


def _numpy_view(numpy, t):
    """A NumPy array over a tensor's memory, in ml_dtypes' dtypes where NumPy has none."""
    try:
        return numpy.asarray(memoryview(t))
    except BufferError:
        if hasattr(numpy, t.dtype):
            raise  # it is the memory that cannot be had
        if t.dtype.lanes != 1 or (t.dtype.bits % 8 and not t.flags & 4):  # ml_dtypes pads each element to a byte
            hint = '; astype("int8") or astype("float32") has one' if t.dtype.lanes == 1 else ""
            raise TypeError(f"NumPy has no dtype for {t.dtype}{hint}") from None
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"NumPy has {t.dtype} only with ml_dtypes, which is not installed") from None
    foreign = getattr(ml_dtypes, t.dtype, None)
    if foreign is None:
        raise TypeError(f"neither NumPy nor ml_dtypes has a dtype for {t.dtype}")
    return numpy.asarray(memoryview(t.reinterpret(f"uint{max(8, t.dtype.bits)}"))).view(foreign)


def to_numpy(t, dtype=None, copy=None):
    """Tensor.__array__."""
    import numpy

    check_copy(copy)
    if _on_gpu(t):
        raise TypeError(f'__array__: the tensor is on {t.device}; to("cpu") copies it to the host')
    made = _numpy_view(numpy, t)
    if dtype is not None and made.dtype != numpy.dtype(dtype):
        if copy is False:
            raise ValueError(f"__array__: copy=False, but {made.dtype} would become {numpy.dtype(dtype)}")
        return made.astype(dtype)
    return made.copy() if copy else made


def _raw(compact):
    """The bytes of a compact tensor on the host: its memory, or a copy if the elements end within a byte, whose other
    bits may be another element's, or what was there before the tensor."""
    raw = _core._raw_bytes(compact)
    used = 0 if compact.flags & 4 else compact.size * compact.dtype.bits * compact.dtype.lanes % 8
    if not used:
        return raw
    data = bytearray(memoryview(raw))
    data[-1] &= (1 << used) - 1
    return bytes(data) if compact.readonly else data


def to_bytes(t):
    """Tensor.tobytes."""
    host = t.to("cpu") if _on_gpu(t) else t
    return bytes(memoryview(_raw(host.contiguous())))


def rebuild_shared(buffer, shape, dtype, padded, axes=None):
    """Unpickles a tensor over a buffer, which it keeps; read-only if the buffer is.

    axes: those of the tensor, in the order in which they lie in the buffer; None is row-major.
    """
    flat = _core.frombuffer(buffer)
    return _in_order(_core._from_raw(flat, shape, DType(dtype), padded), axes)


def rebuild_copied(data, shape, dtype, padded, readonly, axes=None):
    """Unpickles a tensor from bytes, which it copies."""
    made = _in_order(_core._from_raw(_core.frombuffer(data).copy(), shape, DType(dtype), padded), axes)
    return made.as_readonly() if readonly else made


def _in_order(t, axes):
    return t if axes is None else t.permute_dims(*(axes.index(i) for i in range(len(axes))))


def _dense(t):
    """A tensor as a compact row-major one, and the order of its axes there.

    Itself; else with its axes in the order in which they lie in memory; else a copy, where the memory has gaps or
    elements share it.
    """
    if t.is_contiguous:
        return t, None
    axes = tuple(sorted(range(t.ndim), key=lambda i: (t.shape[i] == 1, -t.strides[i])))
    turned = t.permute_dims(*axes)
    return (turned, axes) if turned.is_contiguous else (t.copy(), None)


def rebuild_placed(t, device):
    """Unpickles a tensor of a device: there, if the device exists here, else on the cpu."""
    there = Device(device)
    if _core._device_count(there)[0] <= there.id:
        return t
    made = t.to(there)
    return made.as_readonly() if t.readonly else made


def reduce_ex(t, protocol):
    """Tensor.__reduce_ex__."""
    if t.device != "cpu":
        host = t.to("cpu")
        return rebuild_placed, (host.as_readonly() if t.readonly else host, str(t.device))
    compact, axes = _dense(t)
    if t.readonly and not compact.readonly:
        compact = compact.as_readonly()
    raw: Any = _raw(compact)
    padded = bool(t.flags & 4)
    if protocol >= 5:
        return rebuild_shared, (pickle.PickleBuffer(raw), compact.shape, str(t.dtype), padded, axes)
    data = bytes(memoryview(raw))
    return rebuild_copied, (data, compact.shape, str(t.dtype), padded, t.readonly, axes)
