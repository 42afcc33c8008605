#!/usr/bin/env python3
"""Writes the seed corpora: for each fuzz target small inputs that reach each of its branches.

Responsible for each input's format being written in one place beside the reader in specs/fuzz/NAME_fuzz.c. Run it after
such a format changes, or a spec that it reads, and commit what it writes to specs/fuzz/corpus/NAME/; `--check`, which
lint runs, only says what would change. What libFuzzer has found worth keeping
(`merge`, beside this file) is named by its hash and stays.
"""

import re
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NO_FAULT = 255
KEPT = re.compile(r"[0-9a-f]{40}")
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


PTX_HEAD = ".version 7.8\n.target sm_90\n.address_size 64\n"
# What the specs' instructions read, and have not written; a divisor is not 0.
PTX_SET = (
    "add.u32 %r2, %r2, 1;\ncvt.rn.f32.u32 %f0, %r1;\ncvt.rn.f64.u32 %g0, %r1;\nsetp.lt.u32 %p1, %r2, %r1;\n"
    + "".join(
        f"mov.b{bits} %{name}{i}, %{name}{i - 1};\n"
        for name, bits, first, last in zip("hrdfg", (16, 32, 64, 32, 64), (3, 3, 3, 1, 1), (3, 4, 3, 2, 1))
        for i in range(first, last + 1)
    )
)


def ptx_entry(body, around=""):
    return (
        f"{PTX_HEAD}{around}"
        ".visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)\n{\n"
        ".reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n.reg .f32 %f<4>;\n"
        ".reg .f64 %g<4>;\nld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nld.param.u32 %r1, [n];\n"
        "mov.u32 %r2, %tid.x;\ncvt.u16.u32 %h1, %r1;\ncvt.u16.u32 %h2, %r2;\n"
        f"{body}\nret;\n}}\n"
    ).encode()


PTX_FUNCTIONS = (
    ".extern .shared .align 16 .b8 more[];\n.const .align 4 .u32 odd[3] = {1, 3, 5};\n"
    ".global .align 4 .u32 even[2] = {2, 4};\n.extern .func (.param .b32 n) vprintf(.param .b64 f, .param .b64 v);\n"
    ".func (.param .b32 out) twice(.param .b32 in)\n{\n.reg .b32 %r<2>;\nld.param.u32 %r0, [in];\n"
    "add.u32 %r1, %r0, %r0;\nst.param.b32 [out], %r1;\nret;\n}\n"
    ".global .align 8 .u64 pointers[1] = {twice};\n"
    ".global .align 1 .b8 said[9] = {37, 100, 32, 37, 115, 32, 37, 102, 0};\n"
)
PTX_OWN = "{\n.param .b32 in;\n.param .b32 out;\nst.param.b32 [in], %r1;\n"
PTX_SHARED = ".shared .align 4 .b8 s[256];\nshl.b32 %r3, %r2, 2;\nmov.u32 %r4, s;\nadd.u32 %r4, %r4, %r3;\n"
PTX_POINTED = "ld.global.u64 %d3, [pointers];\np : .callprototype (.param .b32 _) _ (.param .b32 _);\n"
# What takes more than a line: blocks and warps, functions and pointers to them, variables, printing.
PTX_PROGRAMS = {
    "block": PTX_SHARED
    + "st.shared.u32 [%r4], %r2;\nbar.sync 0;\nld.shared.u32 %r5, [s+4];\nst.global.u32 [%d1], %r5;",
    "block_more": "mov.u32 %r4, more;\ncvt.u64.u32 %d3, %r4;\ncvta.shared.u64 %d3, %d3;\nst.u32 [%d3], %r2;",
    "atomics": (
        "atom.global.add.u32 %r3, [%d1], 1;\nred.add.relaxed.gpu.u32 [%d1], %r1;\n"
        "atom.global.cas.b32 %r3, [%d1], 1, 2;\natom.global.inc.u32 _, [%d1+28], 100;\n"
        "atom.global.exch.b64 %d3, [%d2], %d1;\nmembar.gl;\nfence.acq_rel.gpu;"
    ),
    "warp": (
        "setp.lt.u32 %p1, %r2, %r1;\nshfl.sync.down.b32 %r3|%p0, %r1, 1, 31, -1;\n"
        "vote.sync.ballot.b32 %r4, %p1, -1;\nbar.warp.sync -1;\nshfl.sync.idx.b32 %r3, %r1, 0, 31, -1;\n"
        "vote.sync.all.pred %p0, %p1, -1;\nst.global.u32 [%d1], %r4;"
    ),
    "call": PTX_OWN + "call.uni (out), twice, (in);\nld.param.b32 %r3, [out];\n}\nst.global.u32 [%d1], %r3;",
    "call_pointed": PTX_OWN + PTX_POINTED + "call (out), %d3, (in), p;\n}",
    "call_prototype": PTX_OWN + PTX_POINTED + "q : .callprototype ()_ ();\ncall (out), %d1, (in), q;\n}",
    "call_few": PTX_OWN + "call (out), twice;\n}",
    "call_no_result": PTX_OWN + "call twice, (in);\n}",
    "call_many": PTX_OWN + "call (out), twice, (in, in);\n}",
    "call_many_results": PTX_OWN + "call (out, in), twice, (in);\n}",
    "variables": (
        ".local .align 8 .b8 own[16];\nmov.u64 %d3, own;\nst.local.u32 [%d3+4], %r1;\n"
        "ld.const.u32 %r3, [odd+8];\nmov.u64 %d4, odd;\nld.const.u32 %r4, [%d4+4];\nst.global.u32 [even], %r3;\n"
        "mov.u64 %d5, even;"
    ),
    "printing": (
        "cvt.rn.f64.u32 %g0, %r1;\n.local .align 8 .b8 v[24];\nmov.u64 %d3, v;\nst.local.u32 [%d3], %r1;\n"
        "mov.u64 %d4, said;\ncvta.global.u64 %d4, %d4;\nst.local.u64 [%d3+8], %d4;\nst.local.f64 [%d3+16], %g0;\n"
        "cvta.local.u64 %d3, %d3;\n{\n.param .b64 x;\n.param .b64 y;\n.param .b32 z;\nst.param.b64 [x], %d4;\n"
        "st.param.b64 [y], %d3;\ncall (z), vprintf, (x, y);\n}"
    ),
    "followed": (
        "ld.global.u32 %r3, [%d1];\nand.b32 %r3, %r3, 4;\ncvt.u64.u32 %d3, %r3;\nadd.u64 %d3, %d3, %d2;\n"
        "ld.global.u32 %r4, [%d3];\nsetp.eq.u32 %p2, %r4, 0;\n@%p2 bra END;\nst.global.u32 [%d1], %r4;\nEND:"
    ),
    "memory": (
        "add.u64 %d1, %d1, 8;\nld.global.u32 %r3, [%d1+4];\nst.global.u32 [%d2], %r3;\n"
        "ld.global.v2.u64 {%d3, %d4}, [%d2];\nst.global.v2.u64 [%d2+16], {%d3, %d4};"
    ),
    "loop": (
        "mov.u32 %r3, 0;\nNEXT:\nsetp.ge.u32 %p1, %r3, %r1;\n@%p1 bra DONE;\nmul.wide.u32 %d3, %r3, 4;\n"
        "add.u64 %d4, %d1, %d3;\nst.global.u32 [%d4], %r3;\nadd.u32 %r3, %r3, 1;\nbra NEXT;\nDONE:"
    ),
    "scope": "{\n.reg .u32 %x;\nmov.u32 %x, 3;\nsetp.lt.u32 %p1, %r2, %x;\n@!%p1 bra L;\nL:\n}\n.loc 1 2 3",
}

# Each is the end of a text, so that one character too many that is read lies beyond it.
PTX_ENDS = '// //x /* /** " "x 1 0x 0f 1. 1.5e 1.5e+ . .x x. % @ {'.split()


def ptx_seeds():
    """Instructions as the simulator's specs have them, some to a text, and what those say is refused."""
    specs = HERE.parent / "sim" / "cuda"
    literals = r'X\(\w+, \'\w\',\s*\\?\s*((?:"[^"]*"\s*\\?\s*)+)'
    rows = ["".join(re.findall(r'"([^"]*)"', row)) for row in re.findall(literals, (specs / "ptx_spec.c").read_text())]
    for i in range(0, len(rows), 8):
        yield f"instructions_{i // 8}", ptx_entry(PTX_SET + "\n".join(rows[i : i + 8]))
    refused = re.findall(r'^\{"((?:[^"\\\n]|\\.)*)",', (specs / "refusals.def").read_text(), re.MULTILINE)
    for i, body in enumerate(refused):
        yield f"refused_{i}", ptx_entry(body.replace("\\n", "\n").replace('\\"', '"').replace("\\x01", "\x01"))
    for name, body in PTX_PROGRAMS.items():
        yield name, ptx_entry(body, PTX_FUNCTIONS)
    for i, end in enumerate(PTX_ENDS):
        yield f"end_{i}", (PTX_HEAD + end).encode()
    for length in (62, 63, 64):
        yield f"digits_{length}", ptx_entry(f"mov.f64 %g0, 1.{'5' * (length - 2)};")
    yield "comments", b'/* a */ // b\n.version 7.0\n.target sm_50, debug\n.address_size 64\n.file 1 "a"\n'


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


def stale(folder, seeds):
    """The committed seeds of a target that are not as they are made, and those that are missing."""
    written = {path.name: path.read_bytes() for path in folder.iterdir() if not KEPT.fullmatch(path.name)}
    return [name for name in sorted({*written, *seeds}) if written.get(name) != seeds.get(name)]


def main():
    wrong = []
    every = {"import": seeds, "ptx": ptx_seeds, "name": name_seeds, "format": format_seeds, "option": option_seeds}
    for target, make in every.items():
        folder, made = HERE / "corpus" / target, dict(make())
        if sys.argv[1:] == ["--check"]:
            wrong += [f"{folder.relative_to(HERE)}/{name}" for name in stale(folder, made)]
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not KEPT.fullmatch(old.name):
                old.unlink()
        for name, data in made.items():
            (folder / name).write_bytes(data)
    if wrong:
        sys.exit("specs/fuzz/make_seeds.py makes others than: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
