#!/usr/bin/env python3
"""Writes the seed corpora: for each fuzz target small inputs that reach each of its branches.

Responsible for each input's format being written in one place beside the reader in specs/fuzz/NAME_fuzz.c. Run it after
such a format changes, and commit what it writes to specs/fuzz/corpus/NAME/. What libFuzzer has found worth keeping
(`merge`, beside this file) is named by its hash and stays.
"""

import re
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
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


def ptx_entry(body):
    return (
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)\n{\n"
        ".reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n.reg .f32 %f<4>;\n"
        ".reg .f64 %g<4>;\nld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nld.param.u32 %r1, [n];\n"
        f"mov.u32 %r2, %tid.x;\ncvt.u16.u32 %h1, %r1;\ncvt.u16.u32 %h2, %r2;\n{body}\nret;\n}}\n"
    ).encode()


def ptx_seeds():
    """Instructions as the simulator's specs have them, some to a text, and what those say is refused."""
    specs = HERE.parent / "sim" / "cuda"
    rows = re.findall(r'X\(\w+, \'\w\', "([^"]+)"', (specs / "ptx_spec.c").read_text())
    for i in range(0, len(rows), 12):
        yield f"instructions_{i // 12}", ptx_entry("\n".join(rows[i : i + 12]))
    refused = re.findall(r'^\{"((?:[^"\\\n]|\\.)*)",', (specs / "refusals.def").read_text(), re.MULTILINE)
    for i, body in enumerate(refused[::6]):
        yield f"refused_{i}", ptx_entry(body.replace("\\n", "\n"))
    yield (
        "memory",
        ptx_entry(
            "add.u64 %d1, %d1, 8;\nld.global.u32 %r3, [%d1+4];\nst.global.u32 [%d2], %r3;\n"
            "ld.global.v2.u64 {%d3, %d4}, [%d2];\nst.global.v2.u64 [%d2+16], {%d3, %d4};"
        ),
    )
    yield (
        "loop",
        ptx_entry(
            "mov.u32 %r3, 0;\nNEXT:\nsetp.ge.u32 %p1, %r3, %r1;\n@%p1 bra DONE;\nmul.wide.u32 %d3, %r3, 4;\n"
            "add.u64 %d4, %d1, %d3;\nst.global.u32 [%d4], %r3;\nadd.u32 %r3, %r3, 1;\nbra NEXT;\nDONE:"
        ),
    )
    yield "scope", ptx_entry("{\n.reg .u32 %x;\nmov.u32 %x, 3;\n@!%p1 bra L;\nL:\n}\n.loc 1 2 3")
    yield "comments", b'/* a */ // b\n.version 7.0\n.target sm_50, debug\n.file 1 "a"\n.address_size 64\n'


def name_seeds():
    names = "bool int8 uint16 float32 float64x4 complex64 bfloat16 float8_e4m3fn float6_e2m3fn float4_e2m1fnx2 int4"
    names += " uint2 bool1 handle64 float8_e5m2_b16 int256 float32x65536 float032"
    names += " cpu cuda:1 cuda_host rocm:0 cuda_managed 99:7"
    for name in names.split():
        yield re.sub(r"\W", "_", name), name.encode()
    yield "dtype", struct.pack("<BBHB", 2, 32, 4, 12)
    yield "longest_dtype", struct.pack("<BBHB", 9, 255, 65535, 31)
    yield "device", struct.pack("<iiB", 2, 1, 20)
    yield "nameless_device", struct.pack("<iiB", 2147483647, -2147483648, 31)


def format_seeds():
    for size, letters in ((1, "?cbB"), (2, "hHe"), (4, "iIlLf"), (8, "lLqQnNdF"), (16, "D")):
        for letter in letters:
            name = f"{'upper' if letter.isupper() else 'lower'}_{letter.replace('?', 'bool')}_{size}"
            yield name, bytes([size]) + letter.encode()
    for i, (size, text) in enumerate(((8, "Zf"), (16, "Zd"), (4, "<f"), (4, ">f"), (4, "=i"), (8, "@l"), (1, ">b"))):
        yield f"prefixed_{i}", bytes([size]) + text.encode()
    yield "struct", bytes([12]) + b"T{i:a:d:b:}"
    yield "empty", bytes([1])


def option_seeds():
    lines = ["--help", "-h", "--word\na", "--word=a=b", "--word=", "--number\n7", "--number=1001", "--number=0x10"]
    lines += ["--size=4G\n--size\n1K", "--numbers=18446744073709551615", "--numbers=18446744073709551616", "--"]
    lines += ["--word\na\n--\n--help", "-\n--help", "--none", "--help=1", "--word", "--size=18446744073709551615K"]
    for i, text in enumerate(lines):
        yield f"words_{i}", text.encode()


def main():
    every = {"import": seeds, "ptx": ptx_seeds, "name": name_seeds, "format": format_seeds, "option": option_seeds}
    for target, make in every.items():
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not re.fullmatch(r"[0-9a-f]{40}", old.name):
                old.unlink()
        for name, data in make():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
