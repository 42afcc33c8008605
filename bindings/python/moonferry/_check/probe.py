"""What one library offers of the exchange protocols, for `moonferry doctor`: one line "KEY<TAB>VALUE" for each fact.

It runs in a process of its own, which the library may end. Must not know: which libraries there are.
"""

from __future__ import annotations

import sys
from typing import Any

from . import abi
from .library import Library, load, said

STREAMS = ("Stream", "cuda.Stream", "cuda.stream", "experimental.Stream")


def say(key: str, value: Any) -> None:
    text = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    print(f"{key}\t{text.splitlines()[0] if text else ''}", flush=True)


def version_of(module: Any, name: str) -> str:
    for part in (name, name.partition(".")[0]):
        found = getattr(sys.modules.get(part), "__version__", None)
        if found:
            return str(found)
    return str(getattr(module, "__version__", ""))


def capsule_kind(array: Any, **keywords: Any) -> str:
    try:
        held = abi.Managed(array.__dlpack__(**keywords))
    except Exception as error:
        return said(error)
    if not held.versioned:
        return "legacy"
    return f"{held.struct.version.major}.{held.struct.version.minor}"


def exchange_table(array: Any) -> str:
    found = getattr(type(array), "__dlpack_c_exchange_api__", None)
    if found is None:
        return "no"
    if type(found).__name__ != "PyCapsule":
        return f"{type(found).__name__}, no capsule"
    version = abi.Table.from_address(abi.address_of(found)).version
    return f"{version.major}.{version.minor}"


def has_buffer(array: Any) -> bool:
    try:
        memoryview(array).release()
    except Exception:
        return False
    return True


def stream_protocol(module: Any) -> bool | str:
    classes = []
    for name in STREAMS:
        found = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not None:
            classes.append(found)
    return any(hasattr(c, "__cuda_stream__") for c in classes) if classes else "no streams"


def main(words: list[str], _start: list[str]) -> int:
    """Status 0 if the library is there, 1 if not; the reason is a line of its own."""
    name = words[0]
    try:
        module = load(name)
    except BaseException as error:
        say("importable", False)
        say("reason", said(error))
        return 1
    say("importable", True)
    say("version", version_of(module, name))
    say("from_dlpack", callable(getattr(module, "from_dlpack", None)))
    say("cuda_stream", stream_protocol(module))
    try:
        array = Library(name).array()
    except BaseException as error:
        say("array", f"none could be made: {said(error)}")
        return 0
    say("array", f"{type(array).__module__}.{type(array).__qualname__}")
    say("dlpack", hasattr(array, "__dlpack__"))
    if hasattr(array, "__dlpack__"):
        say("dlpack_default", capsule_kind(array))
        say("dlpack_max_version_1_3", capsule_kind(array, max_version=(1, 3)))
        say("dlpack_device", tuple(int(n) for n in array.__dlpack_device__()))
    say("exchange_table", exchange_table(array))
    say("array_interface", hasattr(array, "__array_interface__"))
    say("cuda_array_interface", hasattr(array, "__cuda_array_interface__"))
    say("buffer", has_buffer(array))
    return 0
