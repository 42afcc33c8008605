"""Judges a mutant of runtime/src: runs the C specs on a library that has it, the quick ones first.

The library's functions are visible here, so that the specs that look inside the runtime run on the mutant as those do
that use it. A file's mutants are all in one library (schemata.py), which also tells which specs reach a function: no
other is asked about its mutants. What has to do with threads and no spec of build/dev notices is judged again by those
of build/tsan that have several. Must not know: how mutants are made, or which of them may survive.
"""

import bisect
import json
import mmap
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from . import find, schemata

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "runtime" / "src"
DEV, TSAN = (Path(os.environ.get(f"MOONFERRY_BUILD_{n}", ROOT / "build" / n.lower())) for n in ("DEV", "TSAN"))
WORK = ROOT / "build" / "mutants"
USUAL = WORK / "usual.json"  # how long each spec took
FILES = (
    "order.c queue.c retire.c block.c exchange.c transfer.c storage.c owned.c dlpack.c pool.c trim.c stream.c stage.c"
    " image.c alloc.c backend.c backend_cuda.c backend_hip.c cuda_work.c hip_work.c driver.c copy.c"
).split()
DRIVERS = {"cuda": ("cuda", "CUDA"), "rocm": ("hip", "HIP")}
# Those that look inside, those with a device, those without one that reach one of FILES.
HOST = "dlpack import storage tensor copy device alloc threads view".split()
THREADED = "storm pairs pool_trim pool_forget order retire transfer crew".split()
# What a simulated driver fails at, in turn, takes seconds: one driver's is asked, where a file is not the other's own.
LONG = {"scenario": "cuda"}
# Shapes, not order: asked about these files alone.
SHAPES = {name: "copy.c image.c transfer.c stage.c cuda_work.c hip_work.c".split() for name in ("copy", "scatter")}
UNASKED = ("gpu_types_spec", "gpu_large_spec", "gpu_seams_spec")
# A spec that runs so many times as long as without the mutation, and so long at least, hangs.
PATIENCE, PATIENCE_SECONDS = 20, 15
MEMORY = 6 << 30
OF_THREADS = re.compile(r"lock|atomic|cond|once|thread|alone|polling")

FLAGS = ["-std=c11", "-O1", "-g0", "-w", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT}/runtime/include", f"-I{SOURCES}"]
FLAGS += [f"-I{DEV}/include", f"-I{ROOT}/specs/sim/include", '-DMF_BUILD_ID="mutant"']
KINDS = {"dev": [], "tsan": ["-fsanitize=thread"]}


def run(command, env, seconds):
    """The exit status; None if it hangs. What the program started is ended with it."""

    def limit():
        if "TSAN_OPTIONS" not in env:  # whose shadow would count
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    done = subprocess.Popen(
        list(map(str, command)), env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=limit,
    )  # fmt: skip
    try:
        return done.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(done.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        done.wait()


def build(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr[-3000:]}\n{' '.join(map(str, command))}")


class Spec:
    """A program, the environment it runs in, and how long it took on the library as it is."""

    def __init__(self, name, program, env):
        self.name, self.program, self.env = name, program, env
        self.usual = None

    def judge(self, library, number=0, reached=None):
        """Why the mutant of that number fails it; "" if it does not."""
        patience = 600 if self.usual is None else max(PATIENCE_SECONDS, PATIENCE * self.usual)
        env = {**self.env, "LD_PRELOAD": str(library), "MUTANT": str(number)}
        began = time.monotonic()
        code = run([self.program], env if reached is None else {**env, "MUTANT_REACHED": str(reached)}, patience)
        if self.usual is None:
            self.usual = time.monotonic() - began
        return "" if code in (0, 77) else f"{self.name} (it hangs)" if code is None else self.name

    def may_notice(self, path):
        """Whether it is worth its time for a mutant of that file."""
        which = re.sub(r"^gpu_|_spec.*", "", self.program.name)
        device = self.env.get("MOONFERRY_SPEC_DEVICE")
        other = "rocm" if device == "cuda" else "cuda"
        if "cuda" in path.name or "hip" in path.name:
            return device in (None, "rocm" if "hip" in path.name else "cuda")
        return LONG.get(which) != other and path.name in SHAPES.get(which, [path.name])


class Mutated:
    """The library with all mutants of a file."""

    def __init__(self, runtime, path, kind):
        self.runtime, self.path, self.kind = runtime, path, kind
        self.folder = WORK / f"{kind}-{path.stem}"
        self.folder.mkdir(exist_ok=True)
        self.library = self.folder / "libmoonferry.so.0"
        self.no_code = set()
        self.names = self.compile()
        objects = runtime.objects[kind]
        runtime.link(kind, [self.folder / "mutants.o", *(o for n, o in objects.items() if n != path.name)], self.library)

    def compile(self):
        """The functions, in the order of their marks. Mutants that are no code are left out."""
        finder = find.finder_of(self.path, self.runtime.kinds)
        mutants = finder.mutants()
        source = self.folder / "mutants.c"
        command = ["cc", *FLAGS, *KINDS[self.kind], "-fmax-errors=0", "-c", source, "-o", self.folder / "mutants.o"]
        while True:
            text, names, lines = schemata.write(finder, mutants, self.no_code)
            source.write_text(text)
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode == 0:
                return names
            firsts = [first for first, _ in lines]
            errors = re.findall(rf"^{re.escape(str(source))}:(\d+):\d+: error:", done.stderr, re.MULTILINE)
            bad = {lines[bisect.bisect_right(firsts, int(line) - 1) - 1][1] for line in errors}
            if not bad or 0 in bad:
                sys.exit(done.stderr[-3000:])
            self.no_code |= bad

    def reached_by(self, spec):
        """The functions that the spec comes to; None if it fails without any mutation."""
        marks = self.folder / f"reached-{threading.get_ident()}"
        marks.write_bytes(bytes(mmap.PAGESIZE))
        if why := spec.judge(self.library, 0, marks):
            sys.exit(f"{why} fails without any mutation")
        return {name for name, mark in zip(self.names, marks.read_bytes()) if mark}


class Runtime:
    """What is the same for all mutants of the runtime."""

    def __init__(self):
        self.kinds = find.declared([*SOURCES.glob("*.h"), *SOURCES.glob("*.c"), ROOT / "runtime/include/moonferry.h"])
        self.lock = threading.Lock()
        self.killers = {}  # of each file, its specs that caught something, the last first
        self.preparing = threading.Lock()
        self.seconds = 0
        self.mutated = {}

    def prepare(self, paths, seconds=None):
        """The libraries without mutations, the specs, and the files' mutants for all but those of threads."""
        WORK.mkdir(parents=True, exist_ok=True)
        self.seconds = seconds or float("inf")
        self.objects = {kind: self.compile_all(kind) for kind in KINDS}
        self.specs = {"dev": self.dev_specs(), "tsan": self.tsan_specs()}
        self.reach = {}
        self.usual = json.loads(USUAL.read_text()) if USUAL.exists() else {}
        for path in paths:
            self.mutated_of("dev", path)

    def mutated_of(self, kind, path):
        """The library with the mutants of the file. Which functions of it each spec reaches is known from here on."""
        with self.preparing:
            if (kind, path.name) not in self.mutated:
                mutated = self.mutated[kind, path.name] = Mutated(self, path, kind)
                for spec in self.specs[kind]:
                    if spec.may_notice(path) and self.usual.get(spec.name, 0) <= self.seconds:
                        self.reach[spec, path.name] = mutated.reached_by(spec)
                self.specs[kind].sort(key=lambda s: s.usual or 0)
                self.usual.update((s.name, s.usual) for s in self.specs[kind] if s.usual)
                USUAL.write_text(json.dumps(self.usual, indent=0, sort_keys=True))
            return self.mutated[kind, path.name]

    def paths(self, names):
        return [SOURCES / name for name in names or FILES]

    def mutants_of(self, path):
        return find.mutants_of(path, self.kinds)

    def compile_all(self, kind):
        folder = WORK / kind
        folder.mkdir(exist_ok=True)
        objects = {}
        for source in sorted(SOURCES.glob("*.c")):
            objects[source.name] = folder / (source.name + ".o")
            build(["cc", *FLAGS, *KINDS[kind], "-c", source, "-o", objects[source.name]])
        return objects

    def link(self, kind, objects, output):
        build(["cc", "-shared", *KINDS[kind], "-Wl,-soname,libmoonferry.so.0", "-o", output, *objects, "-lpthread",
               "-lm", "-ldl"])  # fmt: skip

    def inside(self):
        """The programs that look inside, linked with the library instead of its sources."""
        library = WORK / "dev" / "libmoonferry.so.0"
        self.link("dev", self.objects["dev"].values(), library)
        for source in sorted((ROOT / "specs" / "gpu").glob("*_spec.c")):
            if '#include "spec.h"' not in source.read_text():
                continue
            for device, (_, name) in DRIVERS.items():
                program = WORK / f"{source.stem}_{device}"
                flags = ["-DSPEC_HIP"] if name == "HIP" else []
                build(["cc", *FLAGS, *flags, source, library, "-lcmocka", "-ldl", "-lpthread", "-lm", "-o", program])
                yield device, program

    def dev_specs(self):
        specs = [Spec(f"{n}_spec", DEV / "specs" / f"{n}_spec", {}) for n in HOST]
        programs = [(d, p) for d in DRIVERS for p in sorted((DEV / "specs").glob("gpu_*_spec"))]
        for device, program in [*self.inside(), *programs]:
            if program.stem not in UNASKED:
                specs.append(self.on_device(device, program, f"{program.name} on {device}"))
        return specs

    def tsan_specs(self):
        env = {"TSAN_OPTIONS": f"halt_on_error=1:suppressions={ROOT}/specs/tsan.supp"}
        programs = [TSAN / "specs" / f"gpu_{name}_spec" for name in THREADED]
        specs = [self.on_device(d, p, f"{p.name} on {d} under tsan", env) for d in DRIVERS for p in programs]
        return [*specs, Spec("threads_spec under tsan", TSAN / "specs" / "threads_spec", env)]

    def on_device(self, device, program, name, more=None):
        folder = DEV / "python" / "moonferry" / "sim" / DRIVERS[device][0]
        env = {"LD_LIBRARY_PATH": f"{folder}:{WORK / 'dev'}", "MOONFERRY_SPEC_DEVICE": device, "SIM_EXIT": "3"}
        return Spec(name, program, {**env, "MOONFERRY_SPEC_SEEDS": "3", **(more or {})})

    def in_order(self, kind, mutant, remembered):
        """Of those that reach the function the one that caught it before, those that caught the file's mutants last,
        then the quick ones."""
        name = mutant.path.name
        with self.lock:
            first = list(self.killers.get((kind, name), []))
        specs = [*first, *(s for s in self.specs[kind] if s not in first)]
        reaching = [s for s in specs if mutant.function in self.reach.get((s, name), ()) and s.usual <= self.seconds]
        return sorted(reaching, key=lambda s: s.name != remembered)

    def caught(self, kind, path, spec):
        with self.lock:
            known = self.killers.setdefault((kind, path.name), [])
            if spec in known:
                known.remove(spec)
            known.insert(0, spec)
            del known[6:]

    def judge(self, mutant, number, remembered):
        """What catches it; "" if nothing does; None if it is no code."""
        for kind in KINDS if OF_THREADS.search(mutant.old + mutant.what) else ["dev"]:
            mutated = self.mutated_of(kind, mutant.path)
            if number in mutated.no_code:
                return None
            for spec in self.in_order(kind, mutant, remembered):
                if why := spec.judge(mutated.library, number):
                    self.caught(kind, mutant.path, spec)
                    return why
        return ""
