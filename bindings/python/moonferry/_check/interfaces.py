"""Rules of what stands beside DLPack, and of the exchange with Moonferry's own tensors."""

from __future__ import annotations

import importlib
from typing import Any

from .abi import CPU
from .library import Library, NotOffered, contents, expect, export
from .rules import API, rule
from .values import float32

SIX = float32(0, 1, 2, 3, 4, 5)


@rule("array-interface", "must", "array interface, version 3")
def array_interface(lib: Library) -> None:
    """__array_interface__ has its keys, and the pointer that DLPack gives."""
    array = lib.array()
    found = getattr(array, "__array_interface__", None)
    if found is None:
        raise NotOffered("its arrays have no __array_interface__")
    missing = [key for key in ("shape", "typestr", "version") if key not in found]
    expect(not missing, f"it lacks {', '.join(missing)}")
    expect(tuple(found["shape"]) == (2, 3), f"shape is {found['shape']}")
    expect(found["typestr"] == "<f4", f"typestr is {found['typestr']!r}")
    data = found.get("data")
    expect(not isinstance(data, tuple) or data[0] == export(array).pointer, "data is not where DLPack says")


@rule("buffer", "must", "PEP 3118")
def buffer(lib: Library) -> None:
    """A memoryview has the array's shape, format and bytes."""
    array = lib.array()
    try:
        view = memoryview(array)
    except (TypeError, BufferError) as error:
        raise NotOffered(f"memoryview(array): {error}") from None
    expect(view.shape == (2, 3), f"shape is {view.shape}")
    expect(view.format.lstrip("@=<") == "f", f"format is {view.format!r}")
    expect(view.tobytes() == contents(array), "the bytes are others")


@rule("cuda-interface", "must", "CUDA array interface, version 3")
def cuda_interface(lib: Library) -> None:
    """An array on the CPU has no __cuda_array_interface__."""
    array = lib.array()
    if int(array.__dlpack_device__()[0]) != CPU:
        raise NotOffered("its arrays are not on the CPU")
    expect(not hasattr(array, "__cuda_array_interface__"), "it has one")


def moonferry() -> Any:
    try:
        return importlib.import_module("moonferry")
    except ImportError as error:
        raise NotOffered(f"moonferry cannot be imported here: {error}") from None


@rule("takes-moonferry", "must", API + "from_dlpack")
def takes_moonferry(lib: Library) -> str | None:
    """Moonferry's tensors are taken, and the memory is shared where the library shares any."""
    tensor = moonferry().asarray([[0, 1, 2], [3, 4, 5]], dtype="float32")
    array = lib.take(tensor)
    expect(contents(array) == SIX, "the elements are others")
    return None if export(array).pointer == tensor.data_ptr else "it was copied"


@rule("given-to-moonferry", "must", API + "from_dlpack")
def given_to_moonferry(lib: Library) -> str | None:
    """Moonferry takes the library's arrays."""
    array = lib.array()
    tensor = moonferry().from_dlpack(array)
    expect(contents(tensor) == contents(array), "the elements are others")
    return None if export(array).pointer == tensor.data_ptr else "it was copied"
