#!/usr/bin/env python3
"""Writes the seed corpus of import_fuzz.c: small inputs that reach each of its branches.

Responsible for the input's format being written in one place beside the reader in import_fuzz.c. Run it
after that format changes, and commit what it writes to specs/fuzz/corpus/import/.
"""

import struct
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus" / "import"
NO_FAULT = 255
LEGACY, NULL_SHAPE, NULL_STRIDES, MAJOR, NULL_DELETER, DEVICE = 1, 2, 4, 8, 16, 32


def number(n):
    return struct.pack("b", n) if -112 <= n <= 127 else b"\x80" + struct.pack("<q", n)


def numbers(values):
    return b"".join(number(n) for n in values)


def head(form=0, dtype=(2, 32, 1), shape=(), strides=None, fault=NO_FAULT, flags=0, device=None, major=None, ndim=None):
    """Everything up to the memory: fault, form, version, flags, device, dtype, ndim, shape, strides."""
    form |= NULL_STRIDES if strides is None else 0
    form |= MAJOR if major is not None else 0
    form |= DEVICE if device else 0
    out = bytes([fault, form])
    out += bytes([major]) if major is not None else b""
    out += bytes([3]) + number(flags)
    out += numbers(device) if device else b""
    out += bytes(dtype[:2]) + number(dtype[2])
    out += number(len(shape) if ndim is None else ndim)
    out += b"" if form & NULL_SHAPE else numbers(shape)
    out += b"" if strides is None else numbers(strides)
    return out


def memory(how=0, offset=None, address=None):
    """How the memory is given: 0 of the declared size, 1 with an offset, 2 at an address, 4 not at all."""
    how |= 1 if offset is not None else 0
    how |= 2 if address is not None else 0
    out = bytes([how])
    out += number(offset) if offset is not None else b""
    out += number(address) if address is not None else b""
    return out


def view(which, *payload, dtype=(0, 8, 0)):
    """An operation that is a view: a code that selects views, a dtype, the kind of view, its arguments."""
    return bytes([3, *dtype, which]) + b"".join(payload)


def item(kind, start=0, stop=0, step=1):
    return bytes([kind]) + numbers((start, stop, step))


def seeds():
    filler = bytes(range(64))
    good = head(shape=(2, 3, 4)) + memory() + filler
    ints = head(dtype=(0, 16, 1), shape=(4, 4), strides=(4, 1)) + memory() + filler[:32]
    yield "plain", good
    yield "legacy", head(LEGACY, shape=(2, 3)) + memory() + filler[:24]
    yield "null_deleter", head(NULL_DELETER, shape=(5,)) + memory() + filler[:20]
    yield "null_shape", head(NULL_SHAPE, shape=(), ndim=2) + memory(4)
    yield "rank_0", head(dtype=(0, 64, 1)) + memory() + filler[:8]
    yield "empty", head(shape=(3, 0, 2), strides=(99, -99, 7)) + memory()
    yield "negative", head(shape=(3, 4), strides=(-4, -1)) + memory() + filler[:48]
    yield "repeated", head(shape=(3, 4), strides=(0, 1)) + memory() + filler[:16]
    yield "packed", head(dtype=(0, 4, 1), shape=(5, 2)) + memory() + filler[:5]
    yield "padded", head(dtype=(15, 6, 1), shape=(6,), flags=4) + memory() + filler[:6]
    yield "read_only", head(shape=(6,), flags=1) + memory() + filler[:24] + bytes([0, 1, 0, 0])
    yield "offset", head(shape=(6,)) + memory(offset=16) + filler[:24]
    yield "wild_offset", head(shape=(6,)) + memory(offset=-1, address=1 << 40)
    yield "wild_address", head(shape=(6,)) + memory(address=-8)
    yield "null_data", head(shape=(6,)) + memory(4)
    yield "major_2", head(shape=(6,), major=2) + memory()
    yield "device", head(shape=(6,), device=(2, 0)) + memory()
    yield "device_id", head(shape=(6,), device=(1, 7)) + memory()
    yield "code", head(dtype=(18, 8, 1), shape=(6,)) + memory()
    yield "lanes_0", head(dtype=(2, 32, 0), shape=(6,)) + memory()
    yield "rank_65", head(shape=(1,), ndim=65) + memory()
    yield "rank_negative", head(shape=(), ndim=-1) + memory()
    yield "extent_negative", head(shape=(2, -3)) + memory()
    yield "overflow", head(shape=(2**62, 2**62)) + memory()
    yield "far", head(shape=(2, 2), strides=(2**59, 1)) + memory(address=1 << 40)
    for nth in range(6):
        yield f"fault_{nth}", head(shape=(2, 2), fault=nth) + memory() + filler[:16] + bytes([0, 2, 0, 0] * 3)
        yield f"fault_{nth}_sticky", head(LEGACY, shape=(2, 2), fault=nth | 64) + memory() + filler[:16] + bytes(9)
    yield "hops", good + bytes([0, 0, 0, 0, 1, 0, 0, 2])
    yield "index", ints + view(0, b"\x02", item(0, -1), item(1, -128, -128, -1))
    yield "slice", ints + view(0, b"\x03", item(3), item(1, 3, 0, -2), item(2))
    yield "transpose_copy", ints + bytes([2, 0, 0, 0, 1, 0]) + bytes([2, 0, 0, 0, 1, 2, 1, 0])
    yield "reshape", good + view(2, b"\x02", numbers((6, -1)))
    yield "broadcast", good + view(3, b"\x04", numbers((2, 2, 3, 4)))
    yield "squeeze_expand", good + view(5, b"\x00") + view(4, b"\x00")
    yield "diagonal", ints + view(6, b"\x02\x00\x01", number(1))
    yield "reinterpret", ints + view(7, dtype=(1, 8, 0)) + view(7, dtype=(0, 4, 0))
    yield "readonly", ints + view(8) + bytes([0, 1])
    for code, bits in ((0, 8), (2, 16), (4, 16), (2, 64), (5, 64), (6, 8), (10, 8), (14, 8), (17, 4), (3, 64)):
        yield f"work_{code}_{bits}", ints + bytes([1, 1, code, bits]) + numbers((77, 1, -1))
        yield (
            f"from_{code}_{bits}",
            head(dtype=(code, bits, 1), shape=(7,)) + memory() + filler[:56] + bytes([1, 3, 2, 32, 5, 2]),
        )


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    for old in CORPUS.iterdir():
        old.unlink()
    for name, data in seeds():
        (CORPUS / name).write_bytes(data)


if __name__ == "__main__":
    main()
