"""Judges a mutant of the Lua module by the specs of both languages, by files: Lua's on the host and on both simulated
drivers, those of Python's that host it, and the endings.

The mutated file's place is taken by a loader, which loads the text with the mutant that MUTANT numbers. It lies in a
copy of the package, and in front of Lua's path; and it is preloaded where an interpreter of Lua's specs starts, because
busted puts this project's folder in front of all others. Another such folder has all files with a mark at the beginning
of each function: one run of a spec of Lua's tells which functions of which files it reaches.
"""

import json
import re
import shutil
import subprocess
import threading

from .by_python import MEMORY, environment, of_device
from .by_python import PYTHON as INTERPRETER
from .find_lua import MAIN, Finder
from .judge import ROOT, WORK, Judge, Spec, build
from .runtime import DEV
from .schemata import MARKS_NBYTES

LUA = ROOT / "lua" / "moonferry"
# All but cdef.lua, and those that look for a library or an interpreter on the disk.
FILES = [f"{name}.lua" for name in (
    "array borrowed bridge bulk checked create crossing device dtype element errors exchange external fields "
    "finalizer foreign format gl gl_calls gl_fence gl_picture gl_ring gl_share gl_texture guard hint init life npy "
    "numbers owner place pressure python ring scope stream tensor transfer view views"
).split()]  # fmt: skip
# Specs of pages, of a large environment, and those that count memory or what LuaJIT has compiled.
UNASKED = "engines_docs|python_docs|python_environment|python_reload|compile"
PYTHON_FILES = "test_lua_*.py", "test_memory.py"
PYTHON_UNASKED = "test_lua_docs.py", "test_lua_escape_native.py"
LOADER = """
local file = assert(io.open("FOLDER/" .. (os.getenv "MUTANT" or "0") .. ".lua"))
local text = file:read "*a"
file:close()
return assert(loadstring(text, "@SOURCE"))(...)
"""
PRELOAD = 'package.preload["MODULE"] = assert(loadfile "FILE")\n'
MARKS = f"""
local has_ffi, ffi = pcall(require, "ffi") -- a spec has Lua without it
local path = os.getenv "MUTANT_REACHED"
if not path or not has_ffi then return {{}} end
ffi.cdef "int open(const char *, int, ...); void *mmap(void *, size_t, int, int, int, long); int close(int);"
local file = ffi.C.open(path, 2)
local map = ffi.C.mmap(nil, {MARKS_NBYTES}, 3, 1, file, 0)
ffi.C.close(file)
return ffi.cast("uint8_t *", map)
"""
CHECK = "for i = 1, #arg do if not loadfile(arg[i]) then print(arg[i]) end end"


class LuaSpec(Spec):
    """A test of build/dev, on a Lua path that begins elsewhere."""

    def environment(self, where):
        path = f"{where}/?.lua;{where}/?/init.lua;{self.env['LUA_PATH']}"
        return {**self.env, "LUA_PATH": path, "LUA_INIT": f"@{where}/preload.lua"}


class PythonSpec(Spec):
    """A file of Python's specs, or the endings, on a package that lies elsewhere. It is asked about all functions: a
    mark in Lua wants room on the stack, and specs of its limits leave none."""

    memory = MEMORY

    def __init__(self, path, where="", **env):
        words = [INTERPRETER, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path]
        if not path.stem.startswith("test_lua_lost"):  # whose every limit counts
            env["MOONFERRY_SPEC_EMULATED"] = "1"  # fewer cases of long lists
        super().__init__(path.stem + where, words, env)

    def environment(self, where):
        lua = where / "package" / "lua"
        path = f"{lua}/?.lua;{lua}/?/init.lua;{ROOT}/specs/lua/?.lua;;"
        return {**environment(where / "package"), "LUA_PATH": path, **self.env}

    def measure(self, where, marks, seconds):
        return super().measure(where, marks, seconds) and b"\1" * MARKS_NBYTES


class Folder:
    """A copy of the package, and what stands in front of Lua's path: some files, each in forms that have numbers."""

    def __init__(self, name):
        self.where = WORK / f"lua-{name}"
        (self.where / "moonferry").mkdir(parents=True, exist_ok=True)
        (self.where / "preload.lua").write_text("")
        self.package = self.where / "package"
        shutil.rmtree(self.package, ignore_errors=True)
        shutil.copytree(DEV / "python", self.package, symlinks=True)
        shutil.copytree(ROOT / "lua", self.package / "lua")
        inner = self.package / "moonferry" / "lua"
        inner.unlink()
        inner.symlink_to(self.package / "lua")

    def write(self, path, forms):
        """${forms}: the text of each number."""
        folder = self.where / "forms" / path.stem
        folder.mkdir(parents=True, exist_ok=True)
        for number, text in forms.items():
            (folder / f"{number}.lua").write_text(text)
        loader = self.where / "moonferry" / path.name
        loader.write_text(LOADER.replace("FOLDER", str(folder)).replace("SOURCE", str(path.relative_to(ROOT))))
        module = "moonferry" if path.stem == "init" else f"moonferry.{path.stem}"
        with (self.where / "preload.lua").open("a") as preload:
            preload.write(PRELOAD.replace("MODULE", module).replace("FILE", str(loader)))
        return folder


class MutatedFile(Folder):
    """A file with its mutants."""

    def __init__(self, path):
        super().__init__(path.stem)
        finder = Finder(path)
        text, mutants = finder.text, finder.mutants()
        forms = {m.index: text[: m.start] + m.to + text[m.end :] for m in mutants}
        folder = self.write(path, {0: text, **forms})
        shutil.copy(self.where / "moonferry" / path.name, self.package / "lua" / "moonferry")
        check = self.where / "check.lua"
        check.write_text(CHECK)
        bad = build(["luajit", check, *(folder / f"{m.index}.lua" for m in mutants)])
        self.no_code = {int(re.search(r"(\d+)\.lua$", line)[1]) for line in bad.splitlines()}


class Marked(Folder):
    """All files, with a mark at the beginning of each function, and every line where it was."""

    def __init__(self, paths):
        super().__init__("marked")
        self.names = []  # (file, function) of each mark
        (self.where / "marks.lua").write_text(MARKS)
        for path in paths:
            self.write(path, {0: self.marked(Finder(path))})

    def marked(self, finder):
        text = finder.text
        for name, at in sorted(finder.functions, key=lambda function: -function[1]):
            text = f"{text[:at]} mutant__mark[{len(self.names)}] = 1; {text[at:]}"
            self.names.append((finder.path.name, name))
        return f'local mutant__mark = dofile "{self.where}/marks.lua" {text}'

    def reached_by(self, spec, seconds):
        """The functions of all files that the spec comes to; None if it is stopped."""
        marks = spec.measure(self.where, self.where / f"reached-{threading.get_ident()}", seconds)
        return marks and {name for name, mark in zip(self.names, marks) if mark}


class Lua(Judge):
    """The module and its specs."""

    def __init__(self):
        super().__init__({})
        self.marked, self.reached = None, {}  # all files with marks, and what each spec comes to there

    def paths(self, names):
        return [LUA / name for name in names or FILES]

    def mutants_of(self, path):
        return Finder(path).mutants()

    def mutated_of(self, kind, path):
        with self.preparing:
            if (kind, path.name) not in self.mutated:
                self.mutated[kind, path.name] = MutatedFile(path)
            return self.mutated[kind, path.name]

    def reach_of(self, kind, path, spec, seconds):
        """One run tells it of all files. A spec of Python's that fails in the file's package, whose loader needs memory
        of its own, without any mutation, can say nothing of the file: it counts as stopped."""
        if spec not in self.reached:
            self.reached[spec] = self.marked.reached_by(spec, seconds)
        reached = self.reached[spec]
        if reached and isinstance(spec, PythonSpec) and spec.ask(self.mutated[kind, path.name].where, 0):
            return None
        return reached and {name for file, name in reached if file == path.name} | {MAIN}

    def prepare(self, seconds=None):
        WORK.mkdir(parents=True, exist_ok=True)
        self.seconds = seconds or float("inf")
        command = ["ctest", "--test-dir", str(DEV), "--show-only=json-v1"]
        tests = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["tests"]
        self.specs = {"dev": [*(self.spec(test) for test in tests if self.is_asked(test)), *self.of_python()]}
        self.marked = Marked(self.paths(None))

    def is_asked(self, test):
        name = test["name"].rpartition(".")[2]
        return "specs/lua/" in " ".join(test.get("command", [])) and not re.fullmatch(UNASKED, name)

    def of_python(self):
        folder = ROOT / "specs" / "python"
        paths = sorted(path for pattern in PYTHON_FILES for path in folder.glob(pattern))
        yield from (PythonSpec(path) for path in paths if path.name not in PYTHON_UNASKED)
        yield PythonSpec(ROOT / "specs" / "life", MOONFERRY_SPEC_LIVES="1")
        for path in sorted((folder / "gpu").glob("test_lua_lost*.py")):
            yield PythonSpec(path, " on cuda", **of_device("cuda"))

    def spec(self, test):
        values = next(p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT")
        return LuaSpec(test["name"], test["command"], dict(value.split("=", 1) for value in values))
