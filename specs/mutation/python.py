"""Judges a mutant of the Python files of the package by Python's specs, one by one, on the host and on the simulated
drivers: those of the core's judge and those of Lua's that Python hosts; those of OpenGL and MPI by files.

A copy of the package has the mutated file as compiled code that holds all of its mutants, behind a few lines of source;
another has all files with a mark at the beginning of each function. Both know from `moonferry._mutant`, which only the
copies have, which mutant is chosen and where the marks are.
"""

import marshal
import shutil

from . import find, find_python
from .bridge import BINDINGS, FileSpec
from .by_python import PYTHON, of_device
from .core import Core
from .judge import ROOT, WORK
from .runtime import DEV
from .schemata import MARKS_NBYTES

PACKAGE = BINDINGS / "python" / "moonferry"
# All but those that check another library from outside, and the programs' beginnings.
FILES = [path.name for path in sorted(PACKAGE.glob("*.py")) if path.name not in ("__main__.py", "_tool.py")]
UNASKED = ("test_finalize.py",)  # counts what an import leaves
FILE_SPECS = "test_mpi.py", "test_gl.py", "test_gl_order.py", "gpu/test_gl_share.py", "gpu/test_gl_texture.py"
CHOSEN = f"""
import contextlib
import mmap
import os

nothing = contextlib.nullcontext()
number = 0
marks = bytearray({MARKS_NBYTES})


def choose():
    global number
    number = int(os.environ.get("MUTANT") or 0)


choose()
os.register_at_fork(after_in_child=choose)
if "MUTANT_REACHED" in os.environ:
    with open(os.environ["MUTANT_REACHED"], "r+b") as file:
        marks = mmap.mmap(file.fileno(), {MARKS_NBYTES})
"""
LOADS = """
from moonferry import _mutant as mutant__

with open({path!r}, "rb") as mutant__.file:
    exec(__import__("marshal").load(mutant__.file))
"""


class Package:
    """A copy of the package with some of its files as compiled code."""

    def __init__(self, name):
        self.folder = WORK / f"python-{name}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.where = self.folder / "python"
        shutil.rmtree(self.where, ignore_errors=True)
        shutil.copytree(DEV / "python", self.where, symlinks=True)
        (self.where / "moonferry" / "_mutant.py").write_text(CHOSEN)

    def write(self, path, tree):
        code, inside = self.folder / f"{path.stem}.code", self.where / "moonferry" / path.name
        # Under the name that it has there: some specs act at each line of the package.
        code.write_bytes(marshal.dumps(compile(tree, str(inside), "exec")))
        inside.unlink()
        inside.write_text(LOADS.format(path=str(code)))


class Mutated(Package):
    """With all mutants of one file."""

    no_code = frozenset()

    def __init__(self, path):
        super().__init__(path.stem)
        self.write(path, find_python.Finder(path).everything())


class Marked(Package):
    """With marks in all files."""

    def __init__(self, paths):
        super().__init__("marked")
        self.names = []
        for path in paths:
            tree, names = find_python.Finder(path).marked(len(self.names))
            self.write(path, tree)
            self.names += [f"{find.listed_as(path)} {name}" for name in names]

    def reached_by(self, marks):
        return [name for name, mark in zip(self.names, marks) if mark]


class Python(Core):
    """The package's files and the specs that load them."""

    folders, files = ("python/moonferry",), FILES

    def __init__(self):
        super().__init__()
        self.finder_of = lambda path, kinds: find_python.Finder(path)

    def python_specs(self):
        for name, paths, env in super().python_specs():
            yield name, [path for path in paths if path.name not in UNASKED], env
        yield "lua", sorted((ROOT / "specs" / "python").glob("test_lua_*.py")), {}

    def of_files(self):
        for name in FILE_SPECS:
            words = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", ROOT / "specs" / "python" / name]
            yield FileSpec(words[-1].stem, words, of_device("cuda") if name.startswith("gpu/") else {})

    def mutated_of(self, kind, path):
        with self.preparing:
            if (kind, find.listed_as(path)) not in self.mutated:
                self.mutated[kind, find.listed_as(path)] = Mutated(path)
            return self.mutated[kind, find.listed_as(path)]

    def marked(self):
        self.package = self.package or Marked(self.paths(()))
        return self.package
