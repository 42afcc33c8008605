"""Judges a mutant of Python's extension module by Python's specs: one by one on the host, by files on the simulated
driver.

Those specs of the host that start threads, or a process of their own for most of what they do, are not asked: the
process that holds them forks for each mutant.
"""

from .bridge import Bridge, FileSpec
from .by_python import PYTHON as INTERPRETER
from .judge import ROOT
from .runtime import DEV, DRIVERS

PYTHON = ROOT / "bindings" / "python"
# Those that own memory or references, or order somebody's work.
FILES = [f"{name}.c" for name in (
    "arrow buffer close current export hold import order producer raw ring ring_create table tensor".split()
)]  # fmt: skip
UNASKED = [f"test_{name}.py" for name in (
    "abi3 dlpack_header editor engine free_threads gl gl_order jax late_load love mpi names package reference worker"
    .split()
)]  # fmt: skip
UNASKED_OF_DEVICES = [f"test_{name}.py" for name in "docs gl_share gl_texture matrix peers real warp".split()]


class Core(Bridge):
    """The module and the specs that load it."""

    folder, files, objects = PYTHON, FILES, "_core"
    targets = {"_core": "_core.cpython-311-x86_64-linux-gnu.so"}

    def python_files(self):
        files = sorted((ROOT / "specs" / "python").glob("test_*.py"))
        return [path for path in files if path.name not in UNASKED and not path.name.startswith("test_lua_")]

    def of_files(self):
        for device, (folder, _) in DRIVERS.items():
            env = {"LD_LIBRARY_PATH": str(DEV / "python/moonferry/sim" / folder), "SIM_EXIT": "3",
                   "SIM_LEDGER_OF": "libmoonferry", "MOONFERRY_SPEC_DEVICE": device}  # fmt: skip
            for path in sorted((ROOT / "specs" / "python" / "gpu").glob("test_*.py")):
                if path.name not in UNASKED_OF_DEVICES:
                    yield FileSpec(f"{path.stem} on {device}", [INTERPRETER, "-m", "pytest", "-q", "-x", path], env)
