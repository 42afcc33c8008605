#!/usr/bin/env python3
"""Compares how the simulators' calls take their parameters with how the drivers' real headers declare them.

The names of types differ, because the simulators say int where a header has an enumeration. So what counts is what a
caller hands over: how many parameters there are, the kind and size of each, and of the number that a pointer points to.
Its argument is the build of this folder, which has found the headers. Prints a line for each simulator.
Must not know what a call does, nor values and layouts (types_spec.c).
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FLAGS = ["-D_GNU_SOURCE", *(f"-I{ROOT}/sim/{room}" for room in ("include", "engine", "calls", "cuda"))]
NUMBER = re.compile(
    "(unsigned )?(char|short|int|long long)|unsigned|size_t|float|double|(u|cuu)?int(32|64)_t|CUdeviceptr|CUdevice"
)
LISTS = {
    "cuda": "#define CALL(name, symbol, since, how, params, args) OURS symbol params;",
    "hip": "#define CALL(name, version, how, params, args) OURS name params;\n"
    "#define SCALL(name, version, spt, how, params, args) OURS name params;",
    "cudart": "#define CALL(name, how, params, args) OURS name params;",
}
# Those that no header declares which is installed with the others: of profilers and OpenGL, and what nvcc calls.
ELSEWHERE = re.compile(r"\w+Profiler(Start|Stop)|hipGraphicsGL\w+|__cuda\w+")


def compiler(words, text):
    done = subprocess.run(["cc", "-w", "-x", "c", *words, "-"], input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"signatures.py: the compiler says:\n{done.stderr[:4000]}")
    return done.stdout


def parameters(text):
    """The words between a function's parentheses, one string each."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    parts = [part.strip() for part in parts]
    return [] if parts in ([""], ["void"]) else [type_of(part) for part in parts]


def type_of(parameter):
    """Without its name and const; an array and a function are pointers."""
    if "(*" in parameter:
        return "void *"
    text = " ".join(re.sub(r"\bconst\b", "", parameter).replace("*", " * ").split())
    plain = text.partition("[")[0].strip()
    words = plain.split()
    if len(words) > 1 and re.fullmatch(r"\w+", words[-1]) and words[-1] not in ("int", "char", "short", "long"):
        words.pop()
    return " ".join(words + ["*"] * ("[" in text))


def prototypes(result, text):
    found = rf"\b(?:{result})\s+(?:__attribute__\s*\(\([^)]*\)\)\s*)*(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*;"
    return {name: parameters(inside) for name, inside in re.findall(found, text)}


def pointed_to(name):
    """The number that a pointer points to, if it is one to a number."""
    inner = name.removesuffix("*").strip()
    return inner if name.endswith("*") and NUMBER.fullmatch(inner) else None


def kinds(flags, head, types):
    """What each type is to who hands it over: a pointer, a number, a struct; and its size."""
    every = sorted(types | {pointed_to(t) for t in types} - {None})
    rows = "".join(f'  printf("%d %zu\\n", __builtin_classify_type(*({t} *)0), sizeof({t}));\n' for t in every)
    program = f"{head}\n#include <stdio.h>\nint main(void) {{\n{rows}  return 0;\n}}\n"
    path = Path(sys.argv[1]) / "signatures"
    compiler([*flags, "-o", str(path)], program)
    said = subprocess.run([path], capture_output=True, text=True, check=True).stdout.split("\n")
    return {t: tuple(map(int, line.split())) for t, line in zip(every, said)}


def differences(ours, theirs, our_kinds, their_kinds):
    for name in sorted(ours.keys() & theirs.keys()):
        a, b = ours[name], theirs[name]
        same = len(a) == len(b) and all(our_kinds[x] == their_kinds[y] for x, y in zip(a, b))
        for x, y in zip(a, b):
            inner, other = pointed_to(x), pointed_to(y)
            same &= not (inner and other) or our_kinds[inner] == their_kinds[other]
        if not same:
            yield f"{name}: ({', '.join(a)}), and the header has ({', '.join(b)})"


def compare(title, room, result, theirs_head, theirs_flags, ours_head):
    ours_flags = [f"-I{ROOT}/sim/{room}", *FLAGS]
    listed = f"{LISTS[room]}\n#ifndef SCALL\n#define SCALL CALL\n#endif\n#define DCALL SCALL\n#define REFUSE(...)\n"
    ours = prototypes("OURS", compiler(["-E", "-P", *ours_flags], f'{ours_head}{listed}#include "calls.def"\n'))
    theirs = prototypes(result, compiler(["-E", "-P", *theirs_flags], theirs_head))
    both = ours.keys() & theirs.keys()
    our_kinds = kinds(ours_flags, ours_head, {t for name in both for t in ours[name]})
    their_kinds = kinds(theirs_flags, theirs_head, {t for name in both for t in theirs[name]})
    wrong = list(differences(ours, theirs, our_kinds, their_kinds))
    missing = sorted(name for name in ours.keys() - both if not ELSEWHERE.fullmatch(name))
    print(f"{title}: {len(both)} calls" + (", not in this header: " + ", ".join(missing) if missing else ""))
    if len(missing) * 3 > len(ours):
        wrong.append("these are too many for an older header")
    return [f"{title}: {line}" for line in wrong]


def main():
    cache = (Path(sys.argv[1]) / "CMakeCache.txt").read_text()
    found = dict(re.findall(r"^(MOONFERRY_\w+_H):PATH=(.*)$", cache, re.MULTILINE))
    cuda, hip, cuda_12 = (found.get(f"MOONFERRY_{name}_H", "") for name in ("CUDA", "HIP", "CUDA_12"))
    driver = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaGL.h>\n"
    runtime, of_hip = "#include <cuda_runtime_api.h>\n", "#include <hip/hip_runtime_api.h>\n"
    wrong = compare("cuda", "cuda", "CUresult", driver, [f"-I{cuda}"], '#include "driver.h"\n')
    wrong += compare(
        "hip", "hip", "hipError_t", of_hip, [f"-I{hip}", "-D__HIP_PLATFORM_AMD__"], '#include "runtime.h"\n'
    )
    for major, folder in (("13", cuda), ("12", cuda_12)):
        if Path(folder, "cuda_runtime_api.h").exists():
            flags, head = [f"-I{folder}", f"-I{cuda}"], f'#define CUDART_MAJOR {major}\n#include "runtime.h"\n'
            wrong += compare(f"cudart {major}", "cudart", "cudaError_t", runtime, flags, head)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
