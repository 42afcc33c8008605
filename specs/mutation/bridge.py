"""Judges a mutant of the bridge between the languages, or of what one of them does with it, by the specs of both.

Both modules that hold the bridge, Lua's and Python's, have the mutants; they are linked by the commands of build/dev
and lie in a copy of its package. Python's specs are asked one by one, in children of a process that has imported all
that they need (forks.py); Lua's are asked by files, each in a process of its own.
"""

import json
import os
import shlex
import shutil
import threading

from . import find, headers
from .by_python import MEMORY, PYTHON, PythonSpecs, environment, of_device
from .judge import HANGS, ROOT, WORK, Judge, Spec, build, make
from .runtime import DEV

BINDINGS = ROOT / "bindings"
FOLDERS = ("bridge", "lua", "python/lua")
FILES = [f"{folder}/{path.name}" for folder in FOLDERS for path in sorted((BINDINGS / folder).glob("*.c"))]
FILES += [f"bridge/{path.name}" for path in sorted((BINDINGS / "bridge").glob("*.h")) if headers.has_functions(path)]
TARGETS = {"moonferry_bridge": "moonferry_bridge.so", "_lua": "_lua.abi3.so"}
BUSTED = 'require "busted.runner"({ standalone = false })'
GPU = ("gpu_python_spec.lua",)
ALSO = "interpreter_spec.lua", *GPU
START = {"python_environment_spec": ("start.c", "configure.c")}  # how a hosted Python is set up: long


class FileSpec(Spec):
    """A file of Lua's specs, in a process of its own, on a package that lies elsewhere."""

    memory = MEMORY

    def environment(self, where):
        # An engine that is linked with libmoonferry has the package's, so that there is one of them.
        folders = [str(where / "moonferry"), *filter(None, [self.env.get("LD_LIBRARY_PATH")])]
        return {**self.env, **environment(where), "LD_LIBRARY_PATH": os.pathsep.join(folders)}

    def may_notice(self, path):
        return path.name in START.get(self.name, [path.name])


class Marked:
    """The package with no mutants, whose functions have marks: one run of a spec tells what it reaches of all files."""

    def __init__(self, judge, paths):
        self.folder, self.names, objects = WORK / f"marked-{judge.objects}", [], {}
        self.folder.mkdir(exist_ok=True)
        texts = {path: self.marked(path, judge.kinds) for path in paths}
        headers.mirror(BINDINGS, self.folder / "bindings", texts)
        for path in paths:
            if path.suffix == ".c":
                objects[path] = judge.compile(path, texts[path], self.folder)
        self.where = judge.link_package(self.folder, objects)

    def marked(self, path, kinds):
        text, names = headers.marked(path, kinds, len(self.names))
        self.names += [f"{find.listed_as(path)} {name}" for name in names]
        return text

    def reached_by(self, marks):
        return [name for name, mark in zip(self.names, marks) if mark]


class Bridge(Judge):
    """The two modules and the specs that load one of them."""

    folders, files, objects = FOLDERS, FILES, "bridge"
    targets = TARGETS

    def __init__(self):
        sources = [path for folder in self.folders for path in (BINDINGS / folder).glob("*.[hc]")]
        sources += (ROOT / "runtime/src").rglob("*.h")
        super().__init__(find.declared([*sources, ROOT / "runtime/include/moonferry.h"]))
        self.package, self.python = None, []
        self.known = {}  # what each of Lua's specs reaches

    def paths(self, names):
        """Those without a folder are in the first."""
        return [BINDINGS / (name if "/" in name else f"{self.folders[0]}/{name}") for name in names or self.files]

    def python_specs(self):
        """Of each group of Python's specs, its name, its files, and what they need beside the package."""
        folder = ROOT / "specs" / "python"
        yield "host", [*sorted(folder.glob("test_lua_*.py")), folder / "test_memory.py"], {}

    def prepare(self, seconds=None):
        WORK.mkdir(parents=True, exist_ok=True)
        self.seconds = seconds or float("inf")
        self.commands = json.loads((DEV / "compile_commands.json").read_text())
        self.specs = {"dev": list(self.of_files())}

    def of_files(self):
        folder = ROOT / "specs" / "lua"
        for source in [*sorted(folder.glob("python*_spec.lua")), *map(folder.joinpath, ALSO)]:
            words = f"arg = {{[0] = 'busted', '--ignore-lua', '-o', 'TAP', 'specs/lua/{source.name}'}} {BUSTED}"
            yield FileSpec(source.stem, ["luajit", "-e", words], of_device("cuda") if source.name in GPU else {})
        yield FileSpec("alone", ["luajit", "specs/seams/alone.lua", "cpu"], {})
        words = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "specs/life"]
        yield FileSpec("life_level", [*words, "-k", "level or lua_close"], {"MOONFERRY_SPEC_LIVES": "1"})
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
        """By one group of Python's specs after the other."""
        with self.preparing:
            self.python = self.python or [PythonSpecs(*group, self.marked()) for group in self.python_specs()]
        first = [(remembered or "").removesuffix(HANGS), *self.killers.get(("python", find.listed_as(mutant.path)), [])]
        where = self.mutated["dev", find.listed_as(mutant.path)].where
        for specs in sorted(self.python, key=lambda specs: first[0] not in specs.usual):
            if why := specs.judge(mutant, where, first, self.seconds, self.only):
                self.caught("python", mutant.path, why.removesuffix(HANGS))
                return why
        return ""

    def marked(self):
        self.package = self.package or Marked(self, self.paths(()))
        return self.package

    def reach_of(self, kind, path, spec, seconds):
        """One run tells it of all files."""
        with self.preparing:
            package = self.marked()
        if spec.name not in self.known:
            marks = spec.measure(package.where, package.folder / f"reached-{threading.get_ident()}", seconds)
            if marks is None:
                return None
            self.known[spec.name] = package.reached_by(marks)
        return {name.split()[1] for name in self.known[spec.name] if name.split()[0] == find.listed_as(path)}

    def compilers(self, kind, path, source, folder):
        """Of a header, as the first file that includes it."""
        words = self.words(path if path.suffix == ".c" else self.includers(path)[0])
        what = ["-c", source, "-o", folder / "mutants.o"] if path.suffix == ".c" else ["-fsyntax-only", source]
        yield [*words, f"-I{path.parent}", "-fmax-errors=0", *what]

    def words(self, path):
        """The build's own, without link-time optimization."""
        entry = next(entry for entry in self.commands if entry["file"] == str(path))
        words = [w for w in shlex.split(entry["command"]) if w != "-Werror" and not w.startswith("-flto")]
        del words[words.index("-c") : words.index("-c") + 2], words[words.index("-o") : words.index("-o") + 2]
        return [*words, "-O1", "-w", "-D_GNU_SOURCE"]

    def compile(self, path, text, folder):
        """The file with another text, beside a mirror of the headers."""
        source = folder / "bindings" / path.relative_to(BINDINGS)
        headers.write(source, text)
        make(source.with_suffix(".o"), [*self.words(path), "-c", source])
        return source.with_suffix(".o")

    def includers(self, path):
        sources = [path for folder in self.folders for path in sorted((BINDINGS / folder).glob("*.c"))]
        return headers.includers(path, sources, BINDINGS)

    def link_mutants(self, kind, path, folder):
        if path.suffix == ".c":
            return self.link_package(folder, {path: folder / "mutants.o"})
        headers.mirror(BINDINGS, folder / "bindings", {path: (folder / "mutants.h").read_text()})
        return self.link_package(folder, {s: self.compile(s, s.read_text(), folder) for s in self.includers(path)})

    def object_of(self, path):
        """As the build links it."""
        return f"CMakeFiles/{self.objects}.dir/{path.relative_to(ROOT)}.o"

    def link_package(self, folder, objects):
        """A copy of the package, linked with these objects of some of its files."""
        package = folder / "python"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(DEV / "python", package, symlinks=True)
        for target, name in self.targets.items():
            text = build(["ninja", "-C", DEV, "-t", "commands", target]).splitlines()[-1]
            words = shlex.split(text.removeprefix(": && ").removesuffix(" && :").replace(r"\$", "$"))
            for path, output in objects.items():
                words[words.index(self.object_of(path))] = output
            words[words.index("-o") + 1] = package / "moonferry" / name
            build(words, DEV)
        return package
