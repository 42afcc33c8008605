#!/usr/bin/env python3
"""Writes lua/moonferry/cdef.lua, LuaJIT's view of moonferry.h and dlpack.h.

Responsible for: the declarations being those of the headers and nothing else. The C preprocessor
reads the headers with empty stand-ins for <stdint.h> and <stddef.h> (LuaJIT has their types built
in); enum-typed fields become int32_t, because LuaJIT boxes a C enum when it reads one.

    lua/generate_cdef.py            writes the file
    lua/generate_cdef.py --check    exits 1 if the committed file is stale, and writes nothing

Must not know: what the declarations mean.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = os.path.join(ROOT, "runtime", "include", "moonferry.h")
DLPACK = os.path.join(ROOT, "runtime", "abi")
TARGET = os.path.join(ROOT, "lua", "moonferry", "cdef.lua")
# Enumerators share one namespace with those of every other library, and Lua needs names, not numbers.
UNUSED = ("DLDeviceType", "DLDataTypeCode")
CONSTANTS = (
    "MF_MAX_NDIM",
    "MF_ALIGNMENT",
    "MF_CREATE_PAGES",
    "MF_RING_MAX",
    "DLPACK_MAJOR_VERSION",
    "DLPACK_MINOR_VERSION",
    "DLPACK_FLAG_BITMASK_READ_ONLY",
    "DLPACK_FLAG_BITMASK_IS_COPIED",
    "DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED",
    "MF_STREAM_CURRENT",
    "MF_STREAM_DEFAULT",
    "MF_STREAM_PER_THREAD",
    "MF_STREAM_NO_ORDER",
    "MF_STREAM_HOST",
)


def preprocess(source, include):
    """What the C preprocessor makes of `source`, without line markers."""
    with tempfile.TemporaryDirectory() as stand_ins:
        for name in ("stdint.h", "stddef.h"):
            open(os.path.join(stand_ins, name), "w").close()
        command = [os.environ.get("CC", "cc"), "-E", "-P", "-nostdinc", "-DMF_API=", "-x", "c", "-"]
        for directory in (stand_ins, os.path.dirname(HEADER), include):
            command += ["-I", directory]
        return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def declarations(text):
    """Splits C text at the semicolons and braces that end top-level declarations."""
    depth, start = 0, 0
    for position, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == ";" and depth == 0:
            declaration = " ".join(text[start : position + 1].split())
            yield re.sub(r"(?<=\w) ?(\*+) ?(?=\w)", r" \1", declaration)  # however the header spaces its pointers
            start = position + 1


def declared_name(declaration):
    """The name that a typedef introduces, or None for a function."""
    if not declaration.startswith("typedef"):
        return None
    pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", declaration)
    if pointer and "{" not in declaration:
        return pointer.group(1)
    last = re.search(r"(\w+)\s*;$", declaration)
    return last.group(1) if last else None


def pretty(declaration):
    """One member a line for structs and enums, wrapped lines for everything else."""
    body = re.match(r"([^{]*\{)(.*)(\}[^}]*;)$", declaration)
    if not body:
        glued = re.sub(r"(?<!,) ", "\0", declaration)
        return textwrap.fill(glued, 96, subsequent_indent="  ", break_long_words=False).replace("\0", " ")
    head, inner, tail = body.groups()
    separator = "," if "enum" in head else ";"
    lines, depth, item = [], 0, ""
    for char in inner.strip() + separator:
        depth += (char == "{") - (char == "}")
        if char == separator and depth == 0:
            if item.strip():
                lines.append("  " + item.strip() + separator)
            item = ""
        else:
            item += char
    return "\n".join([head.strip(), *lines, tail.strip()])


def constants(include):
    """The integer value of each macro in CONSTANTS."""
    probes = "".join(f'\nprobe "{name}" {name};' for name in CONSTANTS)
    text = preprocess('#include "moonferry.h"' + probes, include)
    found = dict(re.findall(r'probe "(\w+)" ([^;]+);', text))
    for name in CONSTANTS:
        expression = re.sub(r"(?<=\d)[UL]+|\(mf_stream\)", "", found[name])
        yield name, eval(expression, {"__builtins__": {}})  # digits and operators of our own headers


def generate(include):
    """The whole text of cdef.lua."""
    with open(HEADER, "rb") as header:
        digest = hashlib.sha256(header.read()).hexdigest()[:16]
    dlpack, moonferry = [], []
    for declaration in declarations(preprocess('#include "moonferry.h"\n', include)):
        name = declared_name(declaration)
        if name in UNUSED or (name and name.startswith("DLPack") and name != "DLPackVersion"):
            continue
        declaration = declaration.replace("DLDeviceType", "int32_t")
        if name and name.startswith("DL"):
            dlpack.append((name, pretty(declaration)))
        else:
            moonferry.append(pretty(declaration))
    lines = [
        "-- LuaJIT's view of moonferry.h and dlpack.h. Written by lua/generate_cdef.py; do not edit.",
        "-- Each part is declared only if its name is still unknown: another library may have declared",
        "-- DLPack's structs, and a second run of this module in one process must not declare ours again.",
        "return {",
        f'  header_hash = "{digest}",',
        "  constants = {",
        *(f"    {name} = {value}," for name, value in constants(include)),
        "  },",
        "  parts = {",
    ]
    for name, text in dlpack:
        lines.append(f'    {{ "{name}", [[\n{text}\n]] }},')
    text = "\n".join(moonferry)
    lines.append(f'    {{ "mf_error", [[\n{text}\n]] }},')
    lines += ["  },", "}", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if stale")
    parser.add_argument("--dlpack-include", default=DLPACK, help="the directory that holds dlpack/dlpack.h")
    options = parser.parse_args()
    text = generate(options.dlpack_include)
    if options.check:
        committed = open(TARGET).read() if os.path.exists(TARGET) else ""
        if committed != text:
            sys.exit("lua/moonferry/cdef.lua is stale: run lua/generate_cdef.py")
        return
    with open(TARGET, "w") as target:
        target.write(text)


if __name__ == "__main__":
    main()
