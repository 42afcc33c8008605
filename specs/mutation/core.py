"""Judges a mutant of Python's extension module by Python's specs, one by one, on the host and on the simulated drivers.

Those specs that start threads when they are imported, or a process of their own for most of what they do, are not
asked: the process that holds them forks for each mutant. Those of OpenGL are, each file in a process of its own. Of
those in which Lua is at work, the two in which Lua calls the module are.
"""

from .bridge import Bridge, FileSpec
from .by_python import PYTHON as PROGRAM
from .by_python import of_device
from .judge import ROOT
from .runtime import DRIVERS

# Those that own memory or references, or order somebody's work; and what all of them read or raise.
FILES = [f"{name}.c" for name in (
    "args arrow ask buffer capi close copy create current device errors export format graphics hold import index "
    "methods module nested operators order producer raw ring ring_create scalar stream table tensor view".split()
)]  # fmt: skip
FILES += [f"{name}.h" for name in "answer aside close core free_threads".split()]
UNASKED = [f"test_{name}.py" for name in (
    "abi3 dlpack_header editor engine free_threads gl gl_order jax late_load love mpi names package reference worker"
    .split()
)]  # fmt: skip
OF_LUA = ("test_lua_foreign.py", "test_lua_tensor.py")  # import.c takes for Lua what no call of Python's gives it
UNASKED_OF_DEVICES = [f"test_{name}.py" for name in (
    "docs gl_share gl_texture lua_lost lua_lost_gl peers real warp".split()
)]  # fmt: skip


class Core(Bridge):
    """The module and the specs that load it."""

    folders, files, objects = ("python",), FILES, "_core"
    targets = {"_core": "_core.cpython-311-x86_64-linux-gnu.so"}

    def python_specs(self):
        folder = ROOT / "specs" / "python"
        names = [path for path in sorted(folder.glob("test_*.py"))
                 if path.name in OF_LUA or not path.name.startswith("test_lua_")]  # fmt: skip
        yield "host", [path for path in names if path.name not in UNASKED], {}
        names = [path for path in sorted((folder / "gpu").glob("test_*.py")) if path.name not in UNASKED_OF_DEVICES]
        for device in DRIVERS:
            yield device, names, of_device(device)

    def of_files(self):
        folder = ROOT / "specs" / "python"
        for name in ("test_gl.py", "test_gl_order.py", "gpu/test_gl_share.py", "gpu/test_gl_texture.py"):
            words = [PROGRAM, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", folder / name]
            yield FileSpec((folder / name).stem, words, of_device("cuda") if name.startswith("gpu/") else {})
