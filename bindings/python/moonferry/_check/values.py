"""DLPack's dtypes: their numbers, and a few values of each with the bytes that stand for them.

Must not know: any library.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple


class DType(NamedTuple):
    name: str
    code: int
    bits: int
    values: tuple[Any, ...]  # none: only bytes are compared
    data: bytes

    @property
    def triple(self) -> tuple[int, int, int]:
        return self.code, self.bits, 1


def _integers(signed: bool, bits: int) -> DType:
    least = -(1 << (bits - 1)) if signed else 0
    most = (1 << (bits - signed)) - 1
    values = (least, most, 1, 2, 3, 100)
    data = b"".join(v.to_bytes(bits // 8, "little", signed=signed) for v in values)
    return DType(f"{'' if signed else 'u'}int{bits}", 0 if signed else 1, bits, values, data)


_REALS = (0.0, 1.0, -2.5, 0.15625, 96.0, float("inf"))
_COMPLEX = (0j, 1 + 2j, -2.5j, 3 + 0.5j, 96 + 0j, -1 - 1j)


def _floats(letter: str, bits: int) -> DType:
    return DType(f"float{bits}", 2, bits, _REALS, struct.pack(f"<6{letter}", *_REALS))


def _complex(letter: str, bits: int) -> DType:
    parts = [p for v in _COMPLEX for p in (v.real, v.imag)]
    return DType(f"complex{bits}", 5, bits, _COMPLEX, struct.pack(f"<12{letter}", *parts))


def _packed(name: str, code: int, bits: int) -> DType:
    return DType(name, code, bits, (), bytes((0x21, 0x43, 0x65, 0x12, 0x03))[: (6 * bits + 7) // 8])


def _raw(name: str, code: int) -> DType:
    return DType(name, code, 8, (), bytes((0x00, 0x01, 0x38, 0x40, 0x55, 0x7A)))


_bfloat16 = b"".join(struct.pack("<f", v)[2:] for v in _REALS)

DTYPES = (
    DType("bool", 6, 8, (False, True, True, False, True, False), bytes((0, 1, 1, 0, 1, 0))),
    *(_integers(True, bits) for bits in (8, 16, 32, 64)),
    *(_integers(False, bits) for bits in (8, 16, 32, 64)),
    _floats("e", 16),
    _floats("f", 32),
    _floats("d", 64),
    DType("bfloat16", 4, 16, _REALS, _bfloat16),
    _complex("f", 64),
    _complex("d", 128),
    _raw("float8_e3m4", 7),
    _raw("float8_e4m3", 8),
    _raw("float8_e4m3b11fnuz", 9),
    _raw("float8_e4m3fn", 10),
    _raw("float8_e4m3fnuz", 11),
    _raw("float8_e5m2", 12),
    _raw("float8_e5m2fnuz", 13),
    _raw("float8_e8m0fnu", 14),
    _packed("float6_e2m3fn", 15, 6),
    _packed("float6_e3m2fn", 16, 6),
    _packed("float4_e2m1fn", 17, 4),
    _packed("int4", 0, 4),
    _packed("uint4", 1, 4),
)
BY_NAME = {d.name: d for d in DTYPES}
FLOAT32 = BY_NAME["float32"]


def float32(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def nested(values: Any, shape: tuple[int, ...]) -> Any:
    """A flat sequence as lists in lists."""
    if not shape:
        return values[0]
    step = 1
    for extent in shape[1:]:
        step *= extent
    return [nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
