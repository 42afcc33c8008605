"""Rules of a producer: what a library's own arrays answer, and what their capsules hold.

Invariant: a capsule has a name of its own while the next one is asked for. One that is dropped while an exception is on
its way may have a destructor that loses the exception.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any

from . import abi
from .abi import CPU, IS_COPIED, PADDED, READ_ONLY, Foreign, Managed
from .library import Broken, Library, NotOffered, expect, export, refused, said
from .rules import API, HEADER, PYTHON, rule
from .values import FLOAT32, float32

LISTED_DEVICES = {1, 2, 3, 4, 7, 8, 9, 10, 13, 14}


def versioned(array: Any, **keywords: Any) -> Managed:
    """A versioned export, for the rules that are about what only it has."""
    try:
        held = Managed(array.__dlpack__(max_version=(1, 3), **keywords))
    except TypeError as error:
        raise NotOffered(f"no versioned capsule: {said(error)}") from None
    if not held.versioned:
        raise NotOffered("it gives legacy capsules only, whatever max_version is")
    return held


@rule("methods", "must", API + "array.__dlpack__")
def methods(lib: Library) -> None:
    """An array has __dlpack__ and __dlpack_device__."""
    array = lib.array()
    for name in ("__dlpack__", "__dlpack_device__"):
        expect(callable(getattr(array, name, None)), f"{type(array).__name__} has no {name}")


@rule("keywords", "must", API + "array.__dlpack__")
def keywords(lib: Library) -> None:
    """__dlpack__ takes stream, max_version, dl_device and copy as keywords, each of which may be None."""
    array = lib.array()
    for name in ("stream", "max_version", "dl_device", "copy"):
        try:
            array.__dlpack__(**{name: None})
        except Exception as error:
            raise Broken(f"__dlpack__({name}=None) raised {said(error)}") from None


@rule("device", "must", API + "array.__dlpack_device__")
def device(lib: Library) -> str:
    """__dlpack_device__ gives a device type of the standard's list and an integer id."""
    answer = lib.array().__dlpack_device__()
    expect(isinstance(answer, tuple) and len(answer) == 2, f"it gave {answer!r}, no pair")
    kind, index = answer
    expect(isinstance(kind, int) and isinstance(index, int), f"it gave {answer!r}, no integers")
    expect(int(kind) in LISTED_DEVICES, f"its type {int(kind)} is none of the listed")
    return f"({int(kind)}, {int(index)})"


@rule("device-agrees", "must", API + "array.__dlpack_device__")
def device_agrees(lib: Library) -> None:
    """The capsule's device is the one that __dlpack_device__ named, and a host device has id 0."""
    array = lib.array()
    promised = tuple(int(n) for n in array.__dlpack_device__())
    held = export(array)
    found = held.tensor.device.type, held.tensor.device.id
    expect(found == promised, f"__dlpack_device__ says {promised}, the capsule {found}")
    expect(found[0] not in (1, 3, 11, 13) or found[1] == 0, f"the id of host memory is {found[1]}")


@rule("legacy", "must", API + "array.__dlpack__, max_version")
def legacy(lib: Library) -> str | None:
    """Without max_version the capsule is a "dltensor", or it is refused by BufferError."""
    try:
        held = Managed(lib.array().__dlpack__())
    except BufferError as error:
        return f"refused: {said(error)}"
    expect(not held.versioned, "the capsule is versioned, which an old consumer cannot read")
    return None


@rule("versioned", "must", API + "array.__dlpack__, max_version")
def is_versioned(lib: Library) -> None:
    """For max_version=(1, 0) the capsule is a "dltensor_versioned" of major version 1."""
    held = Managed(lib.array().__dlpack__(max_version=(1, 0)))
    expect(held.versioned, "the capsule is a legacy one")
    expect(held.struct.version.major == 1, f"its version is {held.struct.version.major}")


@rule("version-newer", "must", API + "array.__dlpack__, max_version")
def newer(lib: Library) -> None:
    """A consumer that knows a newer major version gets the producer's own."""
    held = Managed(lib.array().__dlpack__(max_version=(2, 0)))
    expect(held.versioned, "for max_version=(2, 0) the capsule is a legacy one")
    expect(held.struct.version.major == 1, f"its version is {held.struct.version.major}")


@rule("version-older", "must", API + "array.__dlpack__, max_version")
def older(lib: Library) -> str | None:
    """A consumer that knows version 0 alone gets a legacy capsule, or BufferError."""
    for version in ((0, 8), (0, 0)):
        try:
            held = Managed(lib.array().__dlpack__(max_version=version))
        except BufferError as error:
            return f"refused: {said(error)}"
        expect(not held.versioned, f"for max_version={version} the capsule is versioned")
    return None


@rule("flags", "must", HEADER + "DLManagedTensorVersioned.flags")
def flags(lib: Library) -> str | None:
    """Bits of the flags that mean nothing are 0, and an export without a copy is not flagged as copied."""
    held = versioned(lib.array())
    expect(held.flags & ~(READ_ONLY | IS_COPIED | PADDED) == 0, f"the flags are {held.flags:#x}")
    expect(not held.flags & IS_COPIED, "IS_COPIED is set")
    return "READ_ONLY is set" if held.flags & READ_ONLY else None


@rule("strides", "must", HEADER + "DLTensor.strides (1.2)")
def strides(lib: Library) -> None:
    """Strides are filled, in elements, also where the array is contiguous."""
    held = export(lib.array((2, 3)))
    expect(held.tensor.strides or not held.versioned, "strides is NULL")
    expect(held.tensor.strides, "strides is NULL (in a legacy capsule)")
    expect(abi.strides_of(held.tensor) == (3, 1), f"strides of a 2 x 3 array are {abi.strides_of(held.tensor)}")


@rule("contents", "must", HEADER + "DLTensor.data, byte_offset")
def contents(lib: Library) -> None:
    """Shape, dtype and elements are the array's."""
    held = export(lib.array((2, 3)))
    found = abi.shape_of(held.tensor), abi.dtype_of(held.tensor)
    expect(found == ((2, 3), FLOAT32.triple), f"a 2 x 3 float32 array has {found}")
    if lib.make is None:
        expect(abi.elements(held.tensor) == float32(0, 1, 2, 3, 4, 5), "the elements are others")


def view(array: Any, key: Any) -> Any:
    try:
        return array[key]
    except Exception as error:
        raise NotOffered(f"array[{key}]: {said(error)}") from None


def check_view(array: Any, key: Any, data: bytes, shape: tuple[int, ...]) -> str | None:
    """The view's elements, whether the library keeps the memory or makes a compact copy first."""
    part = view(array, key)
    try:
        held = export(part)
    except BufferError as error:
        return f"refused: {said(error)}"
    expect(abi.shape_of(held.tensor) == shape, f"the shape is {abi.shape_of(held.tensor)}")
    expect(abi.elements(held.tensor) == data, "the elements are others")
    return f"strides {abi.strides_of(held.tensor)}"


@rule("offset", "must", HEADER + "DLTensor.byte_offset")
def offset(lib: Library) -> str | None:
    """A view that begins inside the array is found at data + byte_offset."""
    return check_view(lib.array((6,)), slice(2, None), float32(2, 3, 4, 5), (4,))


@rule("stepped-view", "must", HEADER + "DLTensor.strides")
def stepped(lib: Library) -> str | None:
    """A view of every second element arrives as those elements."""
    return check_view(lib.array((6,)), slice(None, None, 2), float32(0, 2, 4), (3,))


@rule("negative-strides", "must", HEADER + "DLTensor.strides")
def negative(lib: Library) -> str | None:
    """A reversed view arrives as its elements, or is refused by BufferError."""
    return check_view(lib.array((4,)), slice(None, None, -1), float32(3, 2, 1, 0), (4,))


@rule("transposed", "must", HEADER + "DLTensor.strides")
def transposed(lib: Library) -> str | None:
    """A transposed view arrives as its elements."""
    array = lib.array((2, 3))
    turned = getattr(array, "T", None)
    if turned is None:
        raise NotOffered("its arrays have no T")
    try:
        held = export(turned)
    except BufferError as error:
        return f"refused: {said(error)}"
    expect(abi.elements(held.tensor) == float32(0, 3, 1, 4, 2, 5), "the elements are others")
    return f"strides {abi.strides_of(held.tensor)}"


@rule("zero-strides", "must", HEADER + "DLTensor.strides")
def broadcast(lib: Library) -> str | None:
    """A broadcast view arrives as its elements, or is refused by BufferError."""
    function = getattr(lib.xp, "broadcast_to", None)
    if function is None:
        raise NotOffered(f"{lib.name} has no broadcast_to")
    try:
        held = export(function(lib.array((2,)), (3, 2)))
    except BufferError as error:
        return f"refused: {said(error)}"
    expect(abi.elements(held.tensor) == float32(0, 1, 0, 1, 0, 1), "the elements are others")
    return f"strides {abi.strides_of(held.tensor)}"


@rule("size-0", "must", HEADER + "DLTensor.data")
def empty(lib: Library) -> None:
    """An array without elements can be exported, with its shape."""
    held = export(lib.array((0, 3)))
    expect(abi.shape_of(held.tensor) == (0, 3), f"the shape is {abi.shape_of(held.tensor)}")
    held.release()


@rule("size-0-null", "should", HEADER + "DLTensor.data")
def empty_is_null(lib: Library) -> None:
    """The pointer of an array without elements should be NULL."""
    if not lib.makes():
        raise NotOffered(f"{lib.name} makes no arrays of its own")
    data = export(lib.array((0, 3))).tensor.data
    expect(not data, "it is not")


@rule("rank-0", "must", HEADER + "DLTensor.shape")
def rank_zero(lib: Library) -> None:
    """An array of rank 0 can be exported, with its one element."""
    held = export(lib.array((), values=[7]))
    expect(held.tensor.ndim == 0, f"ndim is {held.tensor.ndim}")
    expect(lib.make is not None or abi.elements(held.tensor) == float32(7), "the element is another")


@rule("stream-none", "must", API + "array.__dlpack__, stream")
def stream_none(lib: Library) -> None:
    """On the CPU stream=None is accepted."""
    array = lib.array()
    if int(array.__dlpack_device__()[0]) != CPU:
        raise NotOffered("its arrays are not on the CPU")
    Managed(array.__dlpack__(stream=None))


@rule("stream-number", "should", API + "array.__dlpack__, stream")
def stream_number(lib: Library) -> str:
    """On the CPU, which has no streams, stream=1 is refused."""
    array = lib.array()
    if int(array.__dlpack_device__()[0]) != CPU:
        raise NotOffered("its arrays are not on the CPU")
    return refused(lambda: array.__dlpack__(stream=1), (Exception,), "__dlpack__(stream=1)")


@rule("stream-type", "should", API + "array.__dlpack__, stream")
def stream_type(lib: Library) -> str:
    """A stream that is no number is refused."""
    array = lib.array()
    return refused(lambda: array.__dlpack__(stream="s"), (Exception,), "__dlpack__(stream='s')")


@rule("dl-device-own", "must", API + "array.__dlpack__, dl_device")
def device_own(lib: Library) -> None:
    """dl_device may name the device that the array is on; that needs no copy."""
    array = lib.array()
    own = tuple(int(n) for n in array.__dlpack_device__())
    plain = export(array)
    asked = export(array, dl_device=own)
    expect(plain.pointer == asked.pointer, "it was copied")


@rule("dl-device-cpu", "must", API + "array.__dlpack__, dl_device")
def device_cpu(lib: Library) -> None:
    """Every array can be had on the CPU."""
    held = export(lib.array(), dl_device=(CPU, 0))
    expect(held.tensor.device.type == CPU, f"the device is {held.tensor.device.type}")


@rule("dl-device-unknown", "must", API + "array.__dlpack__, dl_device")
def device_unknown(lib: Library) -> str:
    """A device that the library cannot export to is refused by BufferError."""
    array = lib.array()
    return refused(lambda: array.__dlpack__(dl_device=(16, 0)), (BufferError,), "__dlpack__(dl_device=(16, 0))")


@rule("copy-true", "must", API + "array.__dlpack__, copy")
def copy_true(lib: Library) -> None:
    """copy=True gives other memory with the same elements."""
    array = lib.array()
    plain = export(array)
    copied = export(array, copy=True)
    expect(plain.pointer != copied.pointer, "the memory is the same")
    expect(abi.elements(plain.tensor) == abi.elements(copied.tensor), "the elements are others")


@rule("copy-flag", "must", HEADER + "DLPACK_FLAG_BITMASK_IS_COPIED")
def copy_flag(lib: Library) -> None:
    """A copy is flagged as one, and is not read-only."""
    held = versioned(lib.array(), copy=True)
    expect(held.flags & IS_COPIED, f"the flags of copy=True are {held.flags:#x}, without IS_COPIED")
    expect(not held.flags & READ_ONLY, "the copy is READ_ONLY")


@rule("copy-legacy", "must", API + "array.__dlpack__, copy")
def copy_legacy(lib: Library) -> None:
    """copy=True works for a legacy capsule too."""
    array = lib.array()
    plain = Managed(array.__dlpack__())
    copied = Managed(array.__dlpack__(copy=True))
    expect(plain.pointer != copied.pointer, "the memory is the same")


@rule("copy-false", "must", API + "array.__dlpack__, copy")
def copy_false(lib: Library) -> None:
    """copy=False gives the same memory each time, and no flag of a copy."""
    array = lib.array()
    first = export(array, copy=False)
    second = export(array, copy=False)
    expect(first.pointer == second.pointer, "two exports have different memory")
    expect(not first.flags & IS_COPIED, "IS_COPIED is set")


def read_only_array(lib: Library) -> Any:
    """An array that its library does not let one write to."""
    array = lib.array((3,))
    for freeze in (lambda: setattr(array.flags, "writeable", False), lambda: array.setflags(write=False)):
        try:
            freeze()
            return array
        except Exception:
            continue
    try:
        array[0] = 1.0
    except Exception as error:
        if any(word in str(error) for word in ("immutable", "read-only", "readonly")):
            return array
    raise NotOffered(f"{lib.name} has no read-only arrays that this check can make")


@rule("read-only", "must", HEADER + "DLPACK_FLAG_BITMASK_READ_ONLY")
def read_only(lib: Library) -> str | None:
    """An array that may not be written is exported with READ_ONLY, or refused by BufferError."""
    array = read_only_array(lib)
    try:
        held = Managed(array.__dlpack__(max_version=(1, 3)))
    except BufferError as error:
        return f"refused: {said(error)}"
    expect(held.versioned, "it is exported in a legacy capsule, which cannot say so, where a versioned one was asked")
    expect(held.flags & READ_ONLY, "it is exported without READ_ONLY")
    return None


@rule("read-only-legacy", "should", API + "array.__dlpack__, max_version")
def read_only_legacy(lib: Library) -> str | None:
    """Read-only data does not leave in a legacy capsule, which cannot say so."""
    array = read_only_array(lib)
    return refused(lambda: array.__dlpack__(), (BufferError,), "__dlpack__() of a read-only array")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def grown(action: Any, times: int) -> int:
    action()
    gc.collect()
    before = resident()
    for _ in range(times):
        action()
    gc.collect()
    return resident() - before


def large(lib: Library) -> Any:
    for name in ("ones", "zeros"):
        if callable(make := getattr(lib.xp, name, None)) and lib.make is None:
            return make((1 << 20,), dtype=lib.dtype("float32"))
    raise NotOffered(f"{lib.name} has neither ones nor zeros")


def gives_back(lib: Library, once: Any, what: str) -> None:
    """Of memory of the library's own by size, of a producer's by its deleter."""
    producer = Foreign(float32(1, 2), (2,), FLOAT32.triple)
    once(lib.take(producer))
    gc.collect()
    expect(producer.deleted == 1, f"after an export {what}, and the array's end, the deleter was called "
           f"{producer.deleted} times")  # fmt: skip
    try:
        size = grown(lambda: once(large(lib)), 24)
    except NotOffered:
        return
    expect(size < 12 << 22, f"24 exports of 4 MiB {what} left {size >> 20} MiB")


@rule("capsule-dropped", "must", PYTHON + "capsule destructor")
def dropped(lib: Library) -> None:
    """A capsule that nobody took gives its memory back."""
    gives_back(lib, export, "that nobody took")


def take_and_delete(array: Any) -> None:
    held = export(array)
    shape = abi.shape_of(held.tensor)
    held.take()
    gc.collect()
    expect(abi.shape_of(held.tensor) == shape, "the struct is gone with the capsule")
    held.release_taken()


@rule("capsule-taken", "must", PYTHON + "capsule destructor")
def taken(lib: Library) -> None:
    """A capsule that was renamed leaves the struct to its taker, whose delete gives the memory back."""
    gives_back(lib, take_and_delete, "that were deleted")


@rule("lifetime", "must", HEADER + "DLManagedTensorVersioned.deleter")
def lifetime(lib: Library) -> None:
    """What was exported lives on when the array is gone, until it is deleted."""
    array = lib.array((2, 3))
    held = export(array)
    before = abi.elements(held.tensor)
    held.take()
    del array
    gc.collect()
    others = [lib.array((2, 3), values=[9] * 6) for _ in range(50)]
    expect(abi.elements(held.tensor) == before, "the elements have changed")
    held.release_taken()
    del others


@rule("deleter-thread", "must", PYTHON + "deleter and the GIL")
def deleter_thread(lib: Library) -> None:
    """The deleter may run on a thread that Python does not know, without the GIL."""
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    for _ in range(8):
        held = export(lib.array())
        held.take()
        if not held.struct.deleter:
            continue
        start = ctypes.c_void_p(held.struct.deleter)
        code = libc.pthread_create(ctypes.byref(thread), None, start, ctypes.c_void_p(held.address))
        expect(code == 0, "pthread_create failed")
        libc.pthread_join(thread, None)


@rule("destructor-exception", "must", PYTHON + "capsule destructor")
def destructor_exception(lib: Library) -> None:
    """A capsule that goes while an exception is in flight does not disturb it."""

    def fails() -> None:
        capsule = lib.array().__dlpack__()
        raise LookupError("ours", type(capsule))

    for _ in range(3):
        try:
            fails()
        except LookupError as error:
            expect(error.args[0] == "ours", "the exception is another")
