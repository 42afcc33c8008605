"""The `moonferry` program, run by specs, and small programs that use a simulated GPU."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MOONFERRY_BUILD", ROOT / "build" / "dev"))
MOONFERRY = os.environ.get("MOONFERRY_PROGRAM", str(BUILD / "bin" / "moonferry"))
PACKAGE = Path(MOONFERRY).resolve().parents[1]
LIBRARIES = ROOT / "build" / "sim"

# A race: one stream writes, another reads, and nothing orders them. `order` is what a right program does.
CUDA = """
import ctypes, os, signal, subprocess, sys
drv = ctypes.CDLL("libcuda.so.1")
SIZE = ctypes.c_size_t
def ok(name, *args):
    status = getattr(drv, name)(*args)
    assert status == 0, (name, status)
def made(name, kind, *args):
    out = kind()
    ok(name, ctypes.byref(out), *args)
    return out
ok("cuInit", 0)
context = made("cuDevicePrimaryCtxRetain", ctypes.c_void_p, 0)
ok("cuCtxPushCurrent_v2", context)
def race(order=False, value=7):
    a, b = (made("cuMemAlloc_v2", ctypes.c_uint64, SIZE(64)) for _ in "ab")
    s, t = (made("cuStreamCreate", ctypes.c_void_p, 1) for _ in "st")
    ok("cuMemsetD8Async", a, ctypes.c_ubyte(value), SIZE(64), s)
    if order:
        ok("cuStreamSynchronize", s)
    ok("cuMemcpyDtoDAsync_v2", b, a, SIZE(64), t)
    ok("cuStreamSynchronize", t)
    host = (ctypes.c_ubyte * 64)()
    ok("cuMemcpyDtoH_v2", host, b, SIZE(64))
    ok("cuStreamSynchronize", s)
    for stream in (s, t):
        ok("cuStreamDestroy_v2", stream)
    for memory in (a, b):
        ok("cuMemFree_v2", memory)
    return host[0]
def end():
    ok("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    ok("cuDevicePrimaryCtxRelease_v2", 0)
"""

HIP = """
import ctypes
hip = ctypes.CDLL("libamdhip64.so.7")
SIZE = ctypes.c_size_t
def ok(name, *args):
    assert getattr(hip, name)(*args) == 0, name
def made(name, kind, *args):
    out = kind()
    ok(name, ctypes.byref(out), *args)
    return out
a = made("hipMalloc", ctypes.c_void_p, SIZE(64))
s, t = (made("hipStreamCreateWithFlags", ctypes.c_void_p, 1) for _ in "st")
ok("hipMemsetAsync", a, 7, SIZE(64), s)
if not RIGHT:
    ok("hipMemsetAsync", a, 8, SIZE(64), t)
ok("hipDeviceSynchronize")
ok("hipStreamDestroy", s)
ok("hipStreamDestroy", t)
ok("hipFree", a)
"""


def compiled(folder, text, *files):
    """A program of some of the program's files."""
    source = ROOT / "bindings" / "cli"
    (folder / "main.c").write_text(text)
    sources = [folder / "main.c", *(source / name for name in files)]
    subprocess.run(["gcc", "-std=gnu11", f"-I{source}", *sources, "-o", folder / "program"], check=True)
    return folder / "program"


class Sim:
    """Runs `moonferry sim` in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()

    def environment(self, **settings):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SIM_", "MOONFERRY_SIM", "LD_LIBRARY"))}
        return {**clean, "TMPDIR": str(self.temporary), "PYTHONDONTWRITEBYTECODE": "1", **settings}

    def __call__(self, *words, env=None, **rest):
        done = subprocess.run(
            [MOONFERRY, "sim", *map(str, words)],
            env=self.environment(**(env or {})),
            cwd=self.folder,
            capture_output=True,
            timeout=600,
            errors="replace",
            **{"text": True, "stdin": subprocess.DEVNULL, **rest},
        )
        assert "stays: " in done.stderr or not list(self.temporary.iterdir()), "a folder was left behind"
        return done

    def python(self, program, *options, **rest):
        """A program behind the CUDA lines above, which must end by itself with status 0 unless it says so."""
        return self(*options, "--", sys.executable, self.script(program), **rest)

    def script(self, program, head=CUDA):
        path = self.folder / f"program-{len(list(self.folder.iterdir()))}.py"
        path.write_text(head + textwrap.dedent(program))
        return path
