"""Judges a mutant of the bridge between the languages by the specs of both that cross it.

Both modules that hold the bridge, Lua's and Python's, have the mutants; they are linked by the commands of build/dev
and lie in a copy of its package. A spec is a file of specs/lua or specs/python.
"""

import json
import shlex
import shutil

from . import find
from .judge import ROOT, WORK, Judge, Spec, build
from .runtime import DEV

BRIDGE = ROOT / "bindings" / "bridge"
FILES = "guard.c lock.c refs.c stacks.c state.c visit.c".split()
TARGETS = {"moonferry_bridge": "moonferry_bridge.so", "_lua": "_lua.abi3.so"}
PYTHON = str(ROOT / ".venv" / "bin" / "python")
START = 'require "busted.runner"({ standalone = false })'


class FileSpec(Spec):
    """A file of specs, in a process of its own, on a package that lies elsewhere."""

    memory = 12 << 30  # coroutines that nest to the end of a large C stack

    def environment(self, where):
        return {**self.env, "PYTHONPATH": str(where), "MOONFERRY_LIBRARY": str(where / "moonferry/libmoonferry.so.0")}


class Bridge(Judge):
    """The two modules and the specs that load one of them."""

    def __init__(self):
        sources = [*BRIDGE.glob("*.h"), *BRIDGE.glob("*.c"), *(ROOT / "runtime/src").rglob("*.h")]
        super().__init__(find.declared([*sources, ROOT / "runtime/include/moonferry.h"]))

    def paths(self, names):
        return [BRIDGE / name for name in names or FILES]

    def prepare(self, seconds=None):
        WORK.mkdir(parents=True, exist_ok=True)
        self.seconds = seconds or float("inf")
        self.commands = json.loads((DEV / "compile_commands.json").read_text())
        self.specs = {"dev": [*self.of_lua(), *self.of_python()]}

    def environment(self):
        lua = f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;{ROOT}/specs/lua/?.lua;;"
        return {"LUA_PATH": lua, "MOONFERRY_BUILD": str(DEV), "MOONFERRY_PYTHON": PYTHON,
                "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip

    def of_lua(self):
        for source in sorted((ROOT / "specs" / "lua").glob("python*_spec.lua")):
            words = f"arg = {{[0] = 'busted', '--ignore-lua', '-o', 'TAP', 'specs/lua/{source.name}'}} {START}"
            yield FileSpec(source.stem, ["luajit", "-e", words], self.environment())

    def of_python(self):
        folder = ROOT / "specs" / "python"
        for source in [*sorted(folder.glob("test_lua_*.py")), folder / "test_memory.py"]:
            command = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", source]
            yield FileSpec(source.stem, command, self.environment())

    def compilers(self, kind, path, source, folder):
        """By the build's own words, without link-time optimization."""
        for entry in self.commands:
            if entry["file"] == str(path):
                words = [w for w in shlex.split(entry["command"]) if w != "-Werror" and not w.startswith("-flto")]
                words[words.index("-c") + 1] = source
                words[words.index("-o") + 1] = folder / "bridge.o"
                yield [*words, "-O1", "-w", "-D_GNU_SOURCE", f"-I{BRIDGE}", "-fmax-errors=0"]

    def link_mutants(self, kind, path, folder):
        package = folder / "python"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(DEV / "python", package, symlinks=True)
        for target, name in TARGETS.items():
            text = build(["ninja", "-C", DEV, "-t", "commands", target]).splitlines()[-1]
            words = shlex.split(text.removeprefix(": && ").removesuffix(" && :"))
            words[words.index(f"CMakeFiles/bridge.dir/bindings/bridge/{path.name}.o")] = folder / "bridge.o"
            words[words.index("-o") + 1] = package / "moonferry" / name
            build(words, DEV)
        return package
