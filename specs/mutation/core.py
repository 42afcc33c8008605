"""Judges a mutant of Python's extension module by Python's specs, on the host.

Those specs that start threads, or a process of their own for most of what they do, are not asked: the process that
holds them forks for each mutant.
"""

from .bridge import Bridge
from .judge import ROOT

PYTHON = ROOT / "bindings" / "python"
# Those that own memory or references, or order somebody's work.
FILES = [f"{name}.c" for name in (
    "arrow buffer close current export hold import order producer raw ring ring_create table tensor".split()
)]  # fmt: skip
UNASKED = [f"test_{name}.py" for name in (
    "abi3 dlpack_header editor engine free_threads gl gl_order jax late_load love mpi names package reference worker"
    .split()
)]  # fmt: skip


class Core(Bridge):
    """The module and the specs that load it."""

    folder, files, objects = PYTHON, FILES, "_core"
    targets = {"_core": "_core.cpython-311-x86_64-linux-gnu.so"}

    def python_files(self):
        files = sorted((ROOT / "specs" / "python").glob("test_*.py"))
        return [path for path in files if path.name not in UNASKED and not path.name.startswith("test_lua_")]

    def of_lua(self):
        return []
