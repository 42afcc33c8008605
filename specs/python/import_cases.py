"""Hand-made structs, right and wrong, and a runner that imports each in a process of its own.

A case is a name, what to change in a `Producer`, and what must come of it: "taken" with a check of the
tensor, or a word that the refusal's message must hold. Run as a program it forks once per case and prints one JSON
object per case with the problems found; the spec (test_import.py) reads those.
"""

import ctypes as c
import json
import os
import sys

import dlpack_abi as abi
import moonferry as mf

MAX64 = 2**63 - 1
NO_DELETER = "no deleter"


def pointer(value):
    return c.cast(value, c.POINTER(c.c_int64))


def dl(**fields):
    """A change of fields of the DLTensor; arrays are kept alive by the producer."""

    def change(p):
        for name, value in fields.items():
            if name in ("shape", "strides") and value is not None:
                kept = (c.c_int64 * max(len(value), 1))(*value)
                setattr(p, name, kept)
                value = pointer(kept)
            elif name == "dtype":
                value = abi.DLDataType(*value)
            elif name == "device":
                value = abi.DLDevice(*value)
            setattr(p.dl, name, value)

    return change


def layout(shape, strides="same", **fields):
    strides = {} if strides == "same" else {"strides": strides}
    return dl(ndim=len(shape), shape=shape, **strides, **fields)


def struct(**fields):
    def change(p):
        for name, value in fields.items():
            setattr(p.struct, name, value)

    return change


def both(*changes):
    def change(p):
        for one in changes:
            one(p)

    return change


def moved(nbytes, **more):
    def change(p):
        p.dl.data += nbytes
        dl(**more)(p)

    return change


def describes(**expected):
    def check(t, p):
        return [f"{k} is {getattr(t, k)!r}" for k, v in expected.items() if getattr(t, k) != v]

    return check


def values(expected):
    def check(t, p):
        return [] if t.tolist() == expected else [f"values {t.tolist()!r}"]

    return check


def at(offset):
    def check(t, p):
        return [] if t.data_ptr == c.addressof(p.memory) + offset else ["data_ptr is elsewhere"]

    return check


def all_of(*checks):
    return lambda t, p: [problem for check in checks for problem in check(t, p)]


def version(major, minor):
    return struct(version=abi.DLPackVersion(major, minor))


def garbage(p):
    """Every field but version, deleter and context points nowhere: a foreign major is not read."""
    p.dl.data, p.dl.ndim = 1, -7
    p.dl.shape = p.dl.strides = c.cast(8, c.POINTER(c.c_int64))
    p.dl.dtype, p.dl.device = abi.DLDataType(200, 0, 0), abi.DLDevice(-9, -9)


TAKEN = {
    "as it should be": (dl(), describes(shape=(2, 3), strides=(3, 1), dtype="float32", flags=0, readonly=False)),
    "NULL strides": (dl(strides=None), describes(strides=(3, 1), is_contiguous=True)),
    "NULL strides, rank 3": (layout((2, 3, 4), None), describes(strides=(12, 4, 1))),
    "rank 0": (layout((), ()), all_of(describes(shape=(), strides=()), values(0.0))),
    "rank 0 with NULL shape and strides": (dl(ndim=0, shape=None, strides=None), values(0.0)),
    "rank 0 with pointers to nowhere": (
        lambda p: (dl(ndim=0)(p), setattr(p.dl, "shape", c.cast(8, c.POINTER(c.c_int64)))),
        values(0.0),
    ),
    "rank 64": (layout((1,) * 64, (1,) * 64), describes(ndim=64, size=1)),
    "no elements": (layout((2, 0)), describes(size=0, nbytes=0, is_contiguous=True)),
    "no elements and NULL data": (layout((0, 3), data=None), describes(size=0)),
    "no elements and data nowhere": (layout((0, 3), data=1), describes(size=0)),
    "no elements and odd strides": (layout((0, 3), (-7, MAX64)), describes(size=0)),
    "no elements and data at the end of memory": (layout((0,), (1,), data=2**64 - 1), describes(size=0)),
    "a byte offset": (dl(byte_offset=8), at(8)),
    "a byte offset that aligns nothing": (dl(byte_offset=3), all_of(at(3), values([[0.0] * 3] * 2))),
    "data that is not aligned": (moved(1), at(1)),
    "negative strides": (moved(20, strides=(-3, -1)), all_of(at(20), describes(strides=(-3, -1)))),
    "negative strides by byte offset": (dl(strides=(-3, -1), byte_offset=20), at(20)),
    "zero strides": (dl(strides=(0, 0)), describes(strides=(0, 0))),
    "transposed": (dl(strides=(1, 2)), describes(strides=(1, 2), is_contiguous=False)),
    "any stride where the extent is 1": (layout((1, 3), (MAX64, 1)), describes(strides=(MAX64, 1), is_contiguous=True)),
    "the least stride where the extent is 1": (layout((1, 3), (-MAX64 - 1, 1)), describes(strides=(-MAX64 - 1, 1))),
    "lanes 4": (dl(dtype=(2, 8, 4)), describes(nbytes=24)),
    "an integer of 24 bits": (dl(dtype=(0, 24, 1)), describes(dtype="int24")),
    "a packed int4": (layout((5,), (1,), dtype=(0, 4, 1)), describes(dtype="int4", nbytes=3)),
    "float6": (layout((4,), (1,), dtype=(15, 6, 1)), describes(dtype="float6_e2m3fn")),
    "float4 in pairs": (layout((4,), (1,), dtype=(17, 4, 2)), describes(dtype="float4_e2m1fnx2", nbytes=4)),
    "handles": (layout((4,), (1,), dtype=(3, 64, 1)), describes(dtype="handle64")),
    "bool of one bit": (layout((9,), (1,), dtype=(6, 1, 1)), describes(dtype="bool1", nbytes=2)),
    **{
        f"dtype code {code}": (dl(dtype=(code, bits, 1)), describes(readonly=False))
        for code, bits in enumerate([32, 32, 16, 64, 16, 64, 8, *[8] * 8, 6, 6, 4])
    },
}
TAKEN_VERSIONED = {
    "an older minor": (version(1, 0), describes(flags=0)),
    "a newer minor": (version(1, 99), describes(flags=0)),
    "read-only": (struct(flags=1), describes(flags=1, readonly=True)),
    "copied": (struct(flags=2), describes(flags=2, readonly=False)),
    "unknown flags are dropped": (struct(flags=2**64 - 1 - 4), describes(flags=3)),
    "a padded int4": (both(layout((5,), (1,), dtype=(0, 4, 1)), struct(flags=4)), describes(flags=4, nbytes=5)),
    "padded says nothing of whole bytes": (struct(flags=4), describes(nbytes=24)),
}
REFUSED = {
    **{
        f"device type {n}": (dl(device=(n, 0)), "device")
        for n in (0, 2, 3, 4, 5, 10, 11, 13, 18, 19, 21, 99, -1, 2**31 - 1)
    },
    **{f"device id {n}": (dl(device=(1, n)), "device_id") for n in (1, -1, 2**31 - 1, -(2**31))},
    **{f"ndim {n}": (dl(ndim=n), "ndim") for n in (-1, 65, 2**31 - 1, -(2**31))},
    "no shape": (dl(shape=None), "shape"),
    "no shape and no strides": (dl(shape=None, strides=None), "shape"),
    **{f"an extent of {n}": (layout((2, n)), "shape") for n in (-1, -(2**63))},
    "a negative extent beside 0": (layout((0, -1)), "shape"),
    "extents whose product overflows": (layout((2**32, 2**32), None), ""),
    "bytes that overflow": (layout((2**31, 2**31), None, dtype=(2, 64, 1)), ""),
    "one extent beyond memory": (layout((MAX64,), (1,)), ""),
    "a stride that overflows": (dl(strides=(MAX64, 1)), "stride"),
    "a stride that overflows in bytes": (dl(strides=(2**61, 1)), ""),
    "the least stride": (dl(strides=(-(2**63), 1)), "stride"),
    "strides that overflow together": (layout((3, 3), (2**60, 2**60)), ""),
    "strides that reach below address 0": (dl(strides=(-(2**60), 1)), ""),
    "no data": (dl(data=None), "data"),
    "no data at rank 0": (dl(ndim=0, data=None), "data"),
    "no data but an offset": (dl(data=None, byte_offset=64), "data"),
    "data at the end of memory": (dl(data=2**64 - 8), ""),
    "an offset beyond memory": (dl(byte_offset=2**64 - 1), "byte_offset"),
    **{f"dtype code {n}": (dl(dtype=(n, 32, 1)), "code") for n in (18, 19, 100, 255)},
    "dtype bits 0": (dl(dtype=(2, 0, 1)), "bits"),
    "dtype lanes 0": (dl(dtype=(2, 32, 0)), "lanes"),
    "all of dtype 0": (dl(dtype=(0, 0, 0)), "bits"),
    **{f"float6 of {n} bits": (dl(dtype=(15, n, 1)), "bits") for n in (4, 8)},
    "the other float6 of 8 bits": (dl(dtype=(16, 8, 1)), "bits"),
    **{f"float4 of {n} bits": (dl(dtype=(17, n, 1)), "bits") for n in (6, 8)},
    "lanes that overflow": (layout((2**50,), (1,), dtype=(2, 255, 65535)), ""),
}
REFUSED_VERSIONED = {
    **{f"major {n}": (both(version(n, 0), garbage), "version") for n in (0, 2, 99, 2**32 - 1)},
}

CASES = {}
for _kind, _versioned in (("legacy", False), ("versioned", True)):
    _taken = {**TAKEN, **(TAKEN_VERSIONED if _versioned else {})}
    _refused = {**REFUSED, **(REFUSED_VERSIONED if _versioned else {})}
    for _name, (_change, _check) in _taken.items():
        CASES[f"{_kind}: taken: {_name}"] = (_versioned, _change, True, _check)
        CASES[f"{_kind}: taken: {_name}: {NO_DELETER}"] = (
            _versioned,
            both(_change, struct(deleter=None)),
            True,
            _check,
        )
    for _name, (_change, _word) in _refused.items():
        CASES[f"{_kind}: refused: {_name}"] = (_versioned, _change, False, _word)
    CASES[f"{_kind}: refused: no data: {NO_DELETER}"] = (
        _versioned,
        both(dl(data=None), struct(deleter=None)),
        False,
        "data",
    )


class Hands:
    """An object that hands one capsule out, as a library's array does."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **kwargs):
        return self.capsule


def attempt(source):
    """The tensor, or the exception that refused it, without its traceback."""
    try:
        return mf.from_dlpack(source), None
    except Exception as error:
        return None, error.with_traceback(None)


def refusal_problems(p, capsule, error, word, by_hand):
    if not isinstance(error, mf.ExchangeError):
        yield f"raised {type(error).__name__}: {error}"
    elif word not in str(error):
        yield f"the message does not name {word!r}: {error}"
    elif not by_hand and "Hands" not in str(error):
        yield f"the message does not name the producer: {error}"
    if abi.capsule_name(capsule) != p.name:
        yield "the refused capsule was consumed"
    if p.deletes:
        yield "the deleter of a refused struct was called"


def case_problems(versioned, change, taken, check, by_hand):
    p = abi.Producer(versioned=versioned)
    change(p)
    image, owed = p.image(), 1 if p.struct.deleter else 0
    capsule = p.capsule()
    hands = capsule if by_hand else Hands(capsule)
    t, error = attempt(hands)
    if (t is not None) != taken:
        yield f"was refused: {error!r}" if taken else "was taken"
    elif not taken:
        yield from refusal_problems(p, capsule, error, check, by_hand)
    else:
        yield from check(t, p)
        repr(t) if t.size else None
        if abi.capsule_name(capsule) != b"used_" + p.name:
            yield "the capsule was not consumed"
    del hands, capsule, error
    if taken and p.deletes:
        yield "the deleter was called while the tensor lived"
    del t
    if p.deletes != owed:
        yield f"the deleter was called {p.deletes} times, not {owed}"
    if p.image() != image:
        yield "the struct was changed"
    if tuple(mf.ledger()) != (0, 0, 0, 0):
        yield f"left behind: {mf.ledger()}"


def child(name, out):
    versioned, change, taken, check = CASES[name]
    problems = []
    for by_hand in (True, False):
        problems += case_problems(versioned, change, taken, check, by_hand)
    os.write(out, json.dumps(problems).encode())


def run_alone(name):
    """One case in a forked process: its problems, or how the process died."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        status = 1
        try:
            child(name, writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read()
    status = os.waitpid(pid, 0)[1]
    return json.loads(text) if status == 0 else [f"the process ended with status {status}"]


if __name__ == "__main__":
    abi.probe()
    for each in CASES:
        print(json.dumps([each, run_alone(each)]))
    sys.exit(0)
