"""Judges a mutant of runtime/src: builds the library with it and runs the C specs on that, the quick ones first.

The library's functions are visible here, so that the specs that look inside the runtime run on the mutant as those do
that use it. What has to do with threads and no spec of build/dev notices is judged again by those of build/tsan that
have several. Must not know: how mutants are made, or which of them may survive.
"""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from . import find

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "runtime" / "src"
DEV, TSAN = (Path(os.environ.get(f"MOONFERRY_BUILD_{n}", ROOT / "build" / n.lower())) for n in ("DEV", "TSAN"))
WORK = ROOT / "build" / "mutants"
FILES = (
    "order.c retire.c exchange.c dlpack.c storage.c queue.c block.c pool.c stage.c transfer.c stream.c trim.c backend.c"
    " backend_cuda.c backend_hip.c driver.c cuda_work.c copy.c"
).split()
DRIVERS = {"cuda": ("cuda", "CUDA"), "rocm": ("hip", "HIP")}
# Those that look inside, those with a device, those without one that reach one of FILES.
HOST = "dlpack import storage tensor copy device alloc threads view".split()
THREADED = "storm pairs pool_trim pool_forget order retire transfer crew".split()
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

    def judge(self, library):
        """Why the library fails it; "" if it does not."""
        patience = 600 if self.usual is None else max(PATIENCE_SECONDS, PATIENCE * self.usual)
        began = time.monotonic()
        code = run([self.program], {**self.env, "LD_PRELOAD": str(library)}, patience)
        if self.usual is None:
            self.usual = time.monotonic() - began
        return "" if code in (0, 77) else f"{self.name} (it hangs)" if code is None else self.name


class Runtime:
    """What is the same for all mutants of the runtime."""

    def __init__(self):
        WORK.mkdir(parents=True, exist_ok=True)
        self.objects = {kind: self.compile_all(kind) for kind in KINDS}
        self.kinds = find.declared([*SOURCES.glob("*.h"), *SOURCES.glob("*.c"), ROOT / "runtime/include/moonferry.h"])
        self.lock = threading.Lock()
        self.killers = {}  # of each file, its specs that caught something, the last first
        self.specs = {"dev": self.dev_specs(), "tsan": self.tsan_specs()}
        for kind in KINDS:
            self.check(kind)

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
            if program.stem not in ("gpu_types_spec", "gpu_large_spec"):
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

    def check(self, kind):
        """The library as it is passes; how long each spec takes is known from here on."""
        library = WORK / kind / "libmoonferry.so.0"
        self.link(kind, self.objects[kind].values(), library)
        for spec in self.specs[kind]:
            if why := spec.judge(library):
                sys.exit(f"{why} fails without any mutation")
        self.specs[kind].sort(key=lambda s: s.usual)

    def in_order(self, kind, path):
        """Those that caught the file's mutants last, then the quick ones."""
        with self.lock:
            first = list(self.killers.get((kind, path.name), []))
        return [*first, *(s for s in self.specs[kind] if s not in first)]

    def caught(self, kind, path, spec):
        with self.lock:
            known = self.killers.setdefault((kind, path.name), [])
            if spec in known:
                known.remove(spec)
            known.insert(0, spec)
            del known[6:]

    def judge(self, mutant, folder, remembered):
        """What catches it; "" if nothing does; None if it is no code."""
        source = folder / mutant.path.name
        source.write_text(mutant.text)
        for kind in KINDS if OF_THREADS.search(mutant.old + mutant.what) else ["dev"]:
            output, library = folder / f"{kind}.o", folder / "libmoonferry.so.0"
            command = ["cc", *FLAGS, *KINDS[kind], "-c", str(source), "-o", str(output)]
            if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
                return None
            self.link(kind, [output, *(o for n, o in self.objects[kind].items() if n != mutant.path.name)], library)
            specs = self.in_order(kind, mutant.path)
            for spec in sorted(specs, key=lambda s: s.name != remembered):
                if why := spec.judge(library):
                    self.caught(kind, mutant.path, spec)
                    return why
        return ""
