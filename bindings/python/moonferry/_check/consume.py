"""Rules of a consumer: what a library's from_dlpack does with producers that it does not know."""

from __future__ import annotations

import gc
from typing import Any

from . import abi
from .abi import READ_ONLY, Foreign
from .library import Broken, Library, NotOffered, contents, expect, export, refused, said
from .rules import API, HEADER, PYTHON, rule
from .values import DTYPES, FLOAT32, DType, float32

SIX = float32(0, 1, 2, 3, 4, 5)


def foreign(data: bytes = SIX, shape: tuple[int, ...] = (2, 3), **options: Any) -> Foreign:
    return Foreign(data, shape, FLOAT32.triple, **options)


def taken(lib: Library, producer: Foreign, data: bytes = SIX) -> Any:
    """The library's array, which must hold these elements."""
    array = lib.take(producer)
    found = contents(array)
    expect(found == data, f"the elements are others: {found.hex()} instead of {data.hex()}")
    return array


def taken_or_refused(lib: Library, producer: Foreign, data: bytes) -> str | None:
    try:
        array = lib.take(producer)
    except Exception as error:
        return f"refused: {said(error)}"
    found = contents(array)
    expect(found == data, f"the elements are others: {found.hex()} instead of {data.hex()}")
    return None


@rule("from-dlpack", "must", API + "from_dlpack")
def from_dlpack(lib: Library) -> None:
    """There is a from_dlpack, and it takes a versioned capsule of a producer that it does not know."""
    lib.importer()
    taken(lib, foreign())


@rule("takes-legacy", "must", PYTHON + "legacy capsules")
def takes_legacy(lib: Library) -> None:
    """A legacy capsule is taken."""
    taken(lib, foreign(versioned=False))


@rule("asks-version", "should", API + "from_dlpack, max_version")
def asks_version(lib: Library) -> str:
    """The consumer passes max_version, so that it can be given flags."""
    producer = foreign()
    lib.take(producer)
    versions = [call["max_version"] for call in producer.asked]
    expect(any(v is not None and v[0] >= 1 for v in versions), f"max_version was {versions}")
    return f"{versions[0]}"


class Old:
    """A producer of the time before max_version, dl_device and copy."""

    def __init__(self, inner: Foreign):
        self.inner = inner

    def __dlpack__(self, stream=None):
        return self.inner.capsule(False)

    def __dlpack_device__(self):
        return self.inner.device


@rule("old-producer", "should", PYTHON + "upgrade policy")
def old_producer(lib: Library) -> None:
    """A producer that knows no max_version is asked again without it."""
    array = lib.take(Old(foreign()))
    expect(contents(array) == SIX, "the elements are others")


@rule("asks-cpu-stream", "must", API + "array.__dlpack__, stream")
def asks_stream(lib: Library) -> None:
    """A producer on the CPU is asked with stream=None."""
    producer = foreign()
    lib.take(producer)
    streams = [call["stream"] for call in producer.asked]
    expect(all(s is None for s in streams), f"stream was {streams}")


@rule("renames", "must", PYTHON + "capsule names")
def renames(lib: Library) -> None:
    """A capsule that was taken is named used_..., so that it is taken once."""
    for versioned in (True, False):
        producer = foreign(versioned=versioned)
        array = lib.take(producer)
        name = abi.name_of(producer.last)
        expect(name.startswith(b"used_dltensor"), f"the capsule is named {name!r} afterwards")
        del array


@rule("takes-once", "must", PYTHON + "capsule names")
def takes_once(lib: Library) -> str:
    """A capsule that was taken already is refused."""
    producer = foreign()
    array = lib.take(producer)
    again = foreign(answer=lambda _: producer.last)
    seen = refused(lambda: lib.take(again), (Exception,), "a capsule that was taken before")
    del array
    return seen


def collected(producer: Foreign) -> int:
    gc.collect()
    return producer.deleted


@rule("deletes-once", "must", HEADER + "DLManagedTensorVersioned.deleter")
def deletes_once(lib: Library) -> None:
    """The deleter is called once, when the array goes and not before."""
    for versioned in (True, False):
        producer = foreign(versioned=versioned)
        array = lib.take(producer)
        pointer = export(array).pointer
        expect(pointer != producer.base or collected(producer) == 0, "it was called while the memory was in use")
        del array
        expect(collected(producer) == 1, f"it was called {producer.deleted} times")


@rule("null-deleter", "must", HEADER + "DLManagedTensorVersioned.deleter")
def null_deleter(lib: Library) -> None:
    """A deleter may be NULL, and then nothing is called."""
    array = taken(lib, foreign(null_deleter=True))
    del array
    gc.collect()


@rule("producer-gone", "must", HEADER + "DLManagedTensorVersioned.deleter")
def producer_gone(lib: Library) -> None:
    """The array lives on when the producer's object is gone."""
    array = lib.take(Old(foreign()))
    gc.collect()
    expect(contents(array) == SIX, "the elements have changed")


@rule("takes-offset", "must", HEADER + "DLTensor.byte_offset")
def takes_offset(lib: Library) -> None:
    """byte_offset is added to data."""
    for versioned in (True, False):
        producer = foreign(float32(*range(10)), (3,), start=4, by_offset=True, versioned=versioned)
        taken(lib, producer, float32(4, 5, 6))


@rule("takes-null-strides", "should", HEADER + "DLTensor.strides (before 1.2)")
def takes_null_strides(lib: Library) -> None:
    """A legacy capsule whose strides are NULL is compact and row-major."""
    taken(lib, foreign(strides=None, versioned=False))


@rule("takes-strides", "must", HEADER + "DLTensor.strides")
def takes_strides(lib: Library) -> str | None:
    """Strides are followed, or refused."""
    return taken_or_refused(lib, foreign(strides=(1, 2)), float32(0, 2, 4, 1, 3, 5))


@rule("takes-negative", "must", HEADER + "DLTensor.strides")
def takes_negative(lib: Library) -> str | None:
    """Negative strides are followed, or refused."""
    return taken_or_refused(lib, foreign(float32(0, 1, 2, 3), (4,), strides=(-1,), start=3), float32(3, 2, 1, 0))


@rule("takes-zero-strides", "must", HEADER + "DLTensor.strides")
def takes_zero(lib: Library) -> str | None:
    """Strides of 0 are followed, or refused."""
    return taken_or_refused(lib, foreign(float32(8), (3,), strides=(0,)), float32(8, 8, 8))


@rule("takes-size-0", "must", HEADER + "DLTensor.data")
def takes_empty(lib: Library) -> None:
    """A tensor without elements, whose data is NULL, is taken with its shape."""
    array = lib.take(foreign(b"", (0, 3), null_data=True))
    shape = tuple(int(n) for n in array.shape)
    expect(shape == (0, 3), f"the shape is {shape}")


@rule("takes-rank-0", "must", HEADER + "DLTensor.shape")
def takes_scalar(lib: Library) -> None:
    """A tensor of rank 0, whose shape and strides are NULL, is taken."""
    taken(lib, foreign(float32(7), ()), float32(7))


def writes(array: Any) -> None:
    try:
        array[0] = 9.0
    except Exception as error:
        raise NotOffered(f"the result cannot be written: {said(error)}") from None


def flags_arrived(producer: Foreign) -> None:
    if not producer.gave_versioned:
        raise NotOffered("it asks for legacy capsules only")


@rule("takes-read-only", "should", API + "from_dlpack, read-only")
def takes_read_only(lib: Library) -> str:
    """A library with read-only arrays makes one of what is READ_ONLY, or copies, or refuses it."""
    producer = foreign(float32(1, 2), (2,), flags=READ_ONLY)
    try:
        array = lib.take(producer)
    except BufferError as error:
        return f"refused: {said(error)}"
    flags_arrived(producer)
    try:
        writes(array)
    except NotOffered as error:
        return str(error)
    expect(producer.bytes() == float32(1, 2), "the result is writable, and writing it changed the read-only memory")
    return "the result is a copy"


@rule("takes-unknown-flags", "should", HEADER + "DLManagedTensorVersioned.flags")
def takes_flags(lib: Library) -> None:
    """Bits of the flags that mean nothing today do no harm."""
    producer = foreign(flags=1 << 40)
    taken(lib, producer)
    flags_arrived(producer)


def left_alone(producer: Foreign) -> None:
    """A struct that was not taken is either left to its capsule or deleted by the one who renamed that, not both."""
    gc.collect()
    if producer.last is None:
        return
    used = abi.name_of(producer.last).startswith(b"used_")
    state = "renamed" if used else "not renamed"
    expect(producer.deleted == int(used), f"refused, with the capsule {state} and the deleter called "
           f"{producer.deleted} times")  # fmt: skip


def refuses(lib: Library, producer: Foreign, what: str) -> str:
    seen = refused(lambda: lib.take(producer), (Exception,), what)
    left_alone(producer)
    return seen


@rule("refuses-major", "must", HEADER + "DLPackVersion")
def refuses_major(lib: Library) -> str:
    """A struct of another major version is refused, and left to its capsule or deleted once."""
    producer = foreign(version=(2, 0))
    try:
        return refuses(lib, producer, "a struct of version 2.0")
    except Broken:
        flags_arrived(producer)
        raise


def carried_or_refused(lib: Library, producer: Foreign, what: str) -> str:
    """A library that computes nothing may carry what it does not know, as long as it says the same of it."""
    try:
        array = lib.take(producer)
    except Exception as error:
        left_alone(producer)
        return f"refused: {said(error)}"
    held = export(array)
    found = abi.dtype_of(held.tensor), (held.tensor.device.type, held.tensor.device.id)
    expect(found == (producer.dtype, producer.device), f"{what} was accepted and became {found}")
    return "carried as it is"


@rule("takes-unknown-dtype", "must", HEADER + "DLDataTypeCode")
def refuses_dtype(lib: Library) -> str:
    """A dtype code that it does not know is refused or carried, and the struct deleted once."""
    return carried_or_refused(lib, Foreign(SIX, (2, 3), (99, 32, 1)), "a dtype of code 99")


@rule("takes-lanes", "must", HEADER + "DLDataType.lanes")
def refuses_lanes(lib: Library) -> str:
    """Vectors of several lanes are refused or carried, and the struct deleted once."""
    return carried_or_refused(lib, Foreign(SIX, (3,), (2, 32, 2)), "a dtype of 2 lanes")


@rule("takes-unknown-device", "must", API + "from_dlpack, device")
def refuses_device(lib: Library) -> str:
    """A device that it does not know is refused or carried, and the struct deleted once."""
    return carried_or_refused(lib, foreign(device=(16, 0)), "a tensor on device type 16")


@rule("refusal-kind", "should", API + "from_dlpack, raises")
def refusal_kind(lib: Library) -> str:
    """What cannot be taken is refused by BufferError."""
    producer = Foreign(SIX, (2, 3), (99, 32, 1))
    try:
        lib.take(producer)
    except BufferError as error:
        return said(error)
    except Exception as error:
        raise Broken(f"a dtype of code 99 raised {said(error)}") from None
    raise NotOffered("it takes any dtype")


@rule("refuses-extent", "should", HEADER + "DLTensor.shape")
def refuses_extent(lib: Library) -> str:
    """A negative extent is refused."""
    return refused(lambda: lib.take(foreign(SIX, (-2, 3))), (Exception,), "an extent of -2")


@rule("refuses-overflow", "should", HEADER + "DLTensor.shape")
def refuses_overflow(lib: Library) -> str:
    """Extents whose product is more than any memory are refused."""
    return refused(lambda: lib.take(foreign(SIX, (1 << 62, 1 << 62))), (Exception,), "2^124 elements")


@rule("refuses-no-producer", "should", API + "from_dlpack")
def refuses_no_producer(lib: Library) -> str:
    """An object without __dlpack__ is refused by AttributeError."""
    return refused(lambda: lib.take(object()), (AttributeError,), "an object without __dlpack__")


@rule("refuses-no-capsule", "must", PYTHON + "capsule names")
def refuses_no_capsule(lib: Library) -> str:
    """A __dlpack__ that returns no capsule is refused."""
    return refused(lambda: lib.take(foreign(answer=lambda _: 42)), (Exception,), "a __dlpack__ that returns 42")


def fails(_: Foreign) -> Any:
    raise BufferError("of the producer's own")


@rule("producer-error", "must", API + "from_dlpack")
def propagates(lib: Library) -> None:
    """A BufferError of the producer reaches the caller."""
    seen = refused(lambda: lib.take(foreign(answer=fails)), (BufferError,), "a producer that raises BufferError")
    expect("of the producer's own" in seen, f"it is another: {seen}")


def with_copy(lib: Library, copy: bool, producer: Foreign) -> Any:
    if not lib.takes("copy"):
        raise Broken("from_dlpack has no keyword `copy`")
    return lib.take(producer, copy=copy)


@rule("from-copy-true", "must", API + "from_dlpack, copy")
def from_copy_true(lib: Library) -> None:
    """from_dlpack(x, copy=True) has memory of its own."""
    producer = foreign()
    copied = with_copy(lib, True, producer)
    expect(export(copied).pointer != producer.base, "it shares the producer's memory")
    expect(contents(copied) == SIX, "the elements are others")


@rule("from-copy-false", "must", API + "from_dlpack, copy")
def from_copy_false(lib: Library) -> None:
    """from_dlpack(x, copy=False) shares the memory."""
    producer = foreign()
    expect(export(with_copy(lib, False, producer)).pointer == producer.base, "it was copied")


@rule("from-device", "must", API + "from_dlpack, device")
def from_device(lib: Library) -> None:
    """from_dlpack(x, device=d) takes the device of its own arrays."""
    where = getattr(lib.array(), "device", None)
    if where is None:
        raise NotOffered("its arrays have no device")
    if not lib.takes("device"):
        raise Broken("from_dlpack has no keyword `device`")
    expect(contents(lib.take(foreign(), device=where)) == SIX, "the elements are others")


@rule("round-trip", "must", API + "from_dlpack")
def round_trip(lib: Library) -> None:
    """A library takes its own arrays."""
    array = lib.array()
    expect(contents(lib.take(array)) == contents(array), "the elements are others")


def made_and_read(lib: Library, d: DType) -> None:
    """An array of the library's making has the dtype's numbers and bytes."""
    array = lib.array((len(d.values),), d.name, d.values)
    held = export(array)
    found = abi.dtype_of(held.tensor)
    expect(found == d.triple, f"{d.name} is exported as code, bits, lanes {found}; expected: {d.triple}")
    data = abi.elements(held.tensor)
    expect(lib.make is not None or data == d.data, f"the bytes are {data.hex()}; expected: {d.data.hex()}")


def given_and_read(lib: Library, d: DType) -> str | None:
    """Given by a producer and exported again, numbers and bytes are the same."""
    try:
        array = lib.take(Foreign(d.data, (6,), d.triple))
    except Exception as error:
        return said(error)
    held = export(array)
    found = abi.dtype_of(held.tensor)
    expect(found == d.triple, f"{d.name} comes back as {found}; expected: {d.triple}")
    data = abi.elements(held.tensor)
    expect(data == d.data, f"the bytes come back as {data.hex()}; expected: {d.data.hex()}")
    return None


def dtype_rule(d: DType) -> None:
    def run(lib: Library) -> str | None:
        named = False
        try:
            lib.dtype(d.name)
            named = True
            if d.values:
                made_and_read(lib, d)
        except NotOffered:
            pass
        why = given_and_read(lib, d)
        if why is None:
            return None if named else "taken, though the library has no dtype of that name"
        if not named or why.startswith("BufferError"):
            raise NotOffered(f"{d.name} is refused: {why}")
        raise Broken(f"it has {d.name}, but does not take it: {why}")

    run.__doc__ = f"{d.name} goes out and comes in as code {d.code} of {d.bits} bits, bit by bit."
    rule(f"dtype-{d.name}", "must", HEADER + "DLDataTypeCode")(run)


for _dtype in DTYPES:
    dtype_rule(_dtype)
