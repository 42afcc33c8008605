"""Judges a mutant of the bridge between the languages by the specs of both that cross it.

Both modules that hold the bridge, Lua's and Python's, have the mutants; they are linked by the commands of build/dev
and lie in a copy of its package. Python's specs are asked one by one, in children of a process that has imported all
that they need (forks.py); Lua's are asked by files, each in a process of its own.
"""

import json
import shlex
import shutil

from . import find
from .by_python import MEMORY, PYTHON, PythonSpecs, environment
from .judge import ROOT, WORK, Judge, Spec, build
from .runtime import DEV

BRIDGE = ROOT / "bindings" / "bridge"
FILES = "guard.c lock.c refs.c stacks.c state.c call_in.c".split()
TARGETS = {"moonferry_bridge": "moonferry_bridge.so", "_lua": "_lua.abi3.so"}
BUSTED = 'require "busted.runner"({ standalone = false })'
UNASKED = "python_environment_spec"  # how a hosted Python is set up: long, and no matter of the bridge


class FileSpec(Spec):
    """A file of Lua's specs, in a process of its own, on a package that lies elsewhere."""

    memory = MEMORY

    def environment(self, where):
        return {**self.env, **environment(where)}


class Bridge(Judge):
    """The two modules and the specs that load one of them."""

    folder, files, objects = BRIDGE, FILES, "bridge"
    targets = TARGETS

    def __init__(self):
        sources = [*self.folder.glob("*.h"), *self.folder.glob("*.c"), *(ROOT / "runtime/src").rglob("*.h")]
        super().__init__(find.declared([*sources, ROOT / "runtime/include/moonferry.h"]))
        self.python = {}  # of each file

    def paths(self, names):
        return [self.folder / name for name in names or self.files]

    def python_files(self):
        folder = ROOT / "specs" / "python"
        return [*sorted(folder.glob("test_lua_*.py")), folder / "test_memory.py"]

    def prepare(self, seconds=None):
        WORK.mkdir(parents=True, exist_ok=True)
        self.seconds = seconds or float("inf")
        self.commands = json.loads((DEV / "compile_commands.json").read_text())
        self.specs = {"dev": list(self.of_files())}

    def of_files(self):
        for source in sorted((ROOT / "specs" / "lua").glob("python*_spec.lua")):
            words = f"arg = {{[0] = 'busted', '--ignore-lua', '-o', 'TAP', 'specs/lua/{source.name}'}} {BUSTED}"
            if source.stem not in UNASKED:
                yield FileSpec(source.stem, ["luajit", "-e", words], {})
        yield FileSpec("alone", ["luajit", "specs/seams/alone.lua", "cpu"], {})
        words = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "specs/life"]
        yield FileSpec("life", words, {"MOONFERRY_SPEC_LIVES": "1"})

    def judge(self, mutant, remembered):
        """By Lua's specs first where one of them has caught it before."""
        mutated = self.mutated_of("dev", mutant.path)
        if mutant.index in mutated.no_code:
            return None
        ways = [self.by_python, super().judge]
        if remembered and remembered.split()[0] in (spec.name for spec in self.specs["dev"]):
            ways.reverse()
        return ways[0](mutant, remembered) or ways[1](mutant, remembered)

    def by_python(self, mutant, remembered):
        name = mutant.path.name
        with self.preparing:
            if name not in self.python:
                self.python[name] = PythonSpecs(self.python_files(), self.mutated["dev", name])
        first = [(remembered or "").removesuffix(" (it hangs)"), *self.killers.get(("python", name), [])]
        why = self.python[name].judge(mutant, first, self.seconds, self.only)
        if why:
            self.caught("python", mutant.path, why.removesuffix(" (it hangs)"))
        return why

    def compilers(self, kind, path, source, folder):
        """By the build's own words, without link-time optimization."""
        for entry in self.commands:
            if entry["file"] == str(path):
                words = [w for w in shlex.split(entry["command"]) if w != "-Werror" and not w.startswith("-flto")]
                words[words.index("-c") + 1] = source
                words[words.index("-o") + 1] = folder / "mutants.o"
                yield [*words, "-O1", "-w", "-D_GNU_SOURCE", f"-I{self.folder}", "-fmax-errors=0"]

    def link_mutants(self, kind, path, folder):
        package = folder / "python"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(DEV / "python", package, symlinks=True)
        for target, name in self.targets.items():
            text = build(["ninja", "-C", DEV, "-t", "commands", target]).splitlines()[-1]
            words = shlex.split(text.removeprefix(": && ").removesuffix(" && :").replace(r"\$", "$"))
            words[words.index(f"CMakeFiles/{self.objects}.dir/{path.relative_to(ROOT)}.o")] = folder / "mutants.o"
            words[words.index("-o") + 1] = package / "moonferry" / name
            build(words, DEV)
        return package
