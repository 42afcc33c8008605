"""Judges a mutant of runtime/src by the C specs, those of the devices on the simulated drivers.

The library's functions are visible here, so that the specs that look inside the runtime run on the mutant as those do
that use it. What has to do with threads and no spec of build/dev notices is judged again by those of build/tsan that
have several.
"""

import functools
import json
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import find, headers, owning, schemata
from .judge import ROOT, WORK, Judge, Spec, is_newer, make

SOURCES = ROOT / "runtime" / "src"
DEV, TSAN = (Path(os.environ.get(f"MOONFERRY_BUILD_{n}", ROOT / "build" / n.lower())) for n in ("DEV", "TSAN"))
# Files whose functions make numbers of numbers. All others of SOURCES are judged, each new one by itself.
NUMBERS = {
    "codec.c": "an element's bits to a value and back",
    "convert.c": "a row of numbers to a row of other numbers",
    "cuda_number.c": "the text of kernels that convert",
    "cuda_text.c": "the text of kernels that copy",
    "dtype.c": "a table of names",
    "error.c": "words of an error, in the caller's struct",
    "hip_copy.h": "the text of kernels for HIP",
    "hip_number.h": "the text of kernels for HIP",
    "hip_text.c": "the text of kernels for HIP",
    "hip_thread.h": "the text of kernels for HIP",
    "hip_walk.h": "the text of kernels for HIP",
    "kernels_avx2.c": "rows of numbers, for processors that not every machine has",
    "kernels_avx512.c": "rows of numbers, for processors that not every machine has",
    "kernels_base.c": "rows of numbers",
    "kernels.h": "rows of numbers",
    "kernels_bf16.h": "rows of numbers",
    "kernels_convert.h": "rows of numbers",
    "kernels_half.h": "rows of numbers",
    "kernels_long.h": "rows of numbers",
    "kernels_narrow.h": "rows of numbers",
    "kernels_packed.h": "rows of numbers",
    "kernels_saturate.h": "rows of numbers",
    "kernels_wide.h": "rows of numbers",
    "lanes.h": "rows of numbers",
    "layout.c": "shapes and strides",
    "number.c": "bits of small floats",
    "packed.c": "elements of less than a byte as bytes",
    "planes.c": "layouts as planes",
    "reshape.c": "shapes and strides",
    "tile.c": "elements of one tile to another place",
    "version.c": "two texts",
    "walk.c": "layouts as rows",
}
# Files that make numbers and have steps as well: of these, what has to do with a step is judged (owning.py). All else
# is how elements are copied, which the specs of bytes see, or how fast.
MIXED = {
    "blocks.c": "rows of blocks",
    "cast.c": "which loop converts",
    "kernel.c": "a layout as a kernel's arguments",
    "part.c": "where a part begins and ends",
    "plan.c": "a layout as calls of a driver",
    "simd.c": "which instructions a processor has",
    "tiles.c": "a layout as tiles",
}
DRIVERS = {"cuda": ("cuda", "CUDA"), "rocm": ("hip", "HIP")}
# Those that look inside of one driver's kernels.
OF_ONE = {"kernel_spec": "cuda", "hiprtc_spec": "rocm"}
# Of the specs without a device, those of NUMBERS, of a library's symbols, and a campaign.
NOT_ASKED_ON_HOST = {f"{name}_spec" for name in "abi dtype layout seams".split()}
# Of large copies and casts, which take seconds: asked about these files alone.
OF_LOOPS = "blocks.c cast.c copy.c shared_walk.c simd.c tiles.c workers.c".split()
LOOPS = dict.fromkeys(("kernel_spec", "stream_spec"), OF_LOOPS)
THREADED = "storm pairs pool_trim pool_forget order retire return gl_return transfer crew".split()
THREADED_ON_HOST = "fence fence_threads gl handover ring ring_fence threads workers".split()
# What a simulated driver fails at, in turn, takes seconds: one driver's is asked, where a file is not the other's own.
LONG = {"scenario": "cuda"}
# Shapes, not order: asked about these files alone.
OF_SHAPES = "copy.c image.c plan.c transfer.c move.c stage.c cuda_work.c hip_work.c".split()
SHAPES = dict.fromkeys(("copy", "scatter"), OF_SHAPES)
# As specs/CMakeLists.txt has them.
WITHOUT_KERNELS = [f"gpu_{name}_spec" for name in "copy transfer transfer_fail numbers_fail".split()]
MISSING = {"cuda": "cuLaunchKernel", "rocm": "hipModuleLaunchKernel"}
UNASKED = ("gpu_types_spec", "gpu_large_spec", "gpu_seams_spec")
OF_THREADS = re.compile(r"lock|atomic|cond|once|thread|alone|polling")

FLAGS = ["-std=c11", "-O1", "-g0", "-w", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT}/runtime/include", f"-I{SOURCES}"]
FLAGS += [f"-I{DEV}/include", f"-I{ROOT}/sim/include", '-DMF_BUILD_ID="mutant"']
# An error inside of a macro is told where the macro is used, which tells the mutant.
PLACES = ["-ftrack-macro-expansion=0"]
KINDS = {"dev": [], "tsan": ["-fsanitize=thread"]}
BUILDS = {"dev": DEV, "tsan": TSAN}
REACHED = WORK / "reached.json"  # which functions each spec comes to, and how long it took
FUNCTIONS = 128  # of a file at most


def with_functions(sources):
    return sorted(p for p in sources.rglob("*.[ch]") if p.suffix == ".c" or headers.has_functions(p))


def judged(sources):
    """The files of a folder that are judged, and what is wrong with NUMBERS."""
    paths = with_functions(sources)
    texts = {path: find.blank(path.read_text()) for path in paths if path.name in NUMBERS}
    wrong = [f"NUMBERS has {path.name}, in which {found[0]} is" for path, text in texts.items()
             if (found := owning.WORDS.search(text))]  # fmt: skip
    gone = NUMBERS.keys() - {path.name for path in texts}
    wrong += [f"NUMBERS has {name}, and there is no such file" for name in gone]
    return [path for path in paths if path.name not in NUMBERS], wrong


class DeviceSpec(Spec):
    """A program that may have a device."""

    def may_notice(self, path):
        """Whether it is worth its time for a mutant of that file."""
        which = re.sub(r"^gpu_|_spec.*", "", self.command[0].name)
        device = self.env.get("MOONFERRY_SPEC_DEVICE")
        other = "rocm" if device == "cuda" else "cuda"
        if "cuda" in path.name or "hip" in path.name:
            return device in (None, "rocm" if "hip" in path.name else "cuda")
        if path.name not in LOOPS.get(self.command[0].name, [path.name]):
            return False
        return LONG.get(which) != other and path.name in SHAPES.get(which, [path.name])


def of_instruction_set(source):
    """The options that CMake gives this file alone, for the instructions that it may use."""
    commands = json.loads((BUILDS["dev"] / "compile_commands.json").read_text())
    words = next((c["command"].split() for c in commands if Path(c["file"]) == source), [])
    return [word for word in words if word.startswith("-m")]


class Runtime(Judge):
    """The library, whole, and its C specs."""

    finder_of = staticmethod(functools.partial(find.finder_of, has_orders=True))

    def __init__(self):
        sources = [*SOURCES.rglob("*.h"), *SOURCES.rglob("*.c"), ROOT / "runtime/include/moonferry.h"]
        super().__init__(find.declared(sources))
        folders = [SOURCES, ROOT / "runtime" / "include", ROOT / "sim" / "include", DEV / "include"]
        self.shared = [p for folder in folders for p in folder.rglob("*.h")]
        self.headers = [p for p in with_functions(SOURCES) if p.suffix == ".h" and p.name not in NUMBERS]
        self.owners = owning.Owners(owning.sources(sorted(SOURCES.rglob("*.c")), [SOURCES / "core" / "simd.h"]))
        self.objects, self.functions = {}, {}
        self.known = {}

    def prepare(self, seconds=None):
        """The specs, some of which are linked with the library without mutations."""
        WORK.mkdir(parents=True, exist_ok=True)
        self.seconds = seconds or float("inf")
        self.known = json.loads(REACHED.read_text()) if REACHED.exists() else {}
        self.specs = {"dev": self.dev_specs(), "tsan": self.tsan_specs()}

    def paths(self, names):
        if names:
            return [next(SOURCES.rglob(name)) for name in names]
        paths, wrong = judged(SOURCES)
        if wrong:
            sys.exit("\n".join(wrong))
        return paths

    def mutants_of(self, path):
        found = super().mutants_of(path)
        if path.name not in MIXED or self.finder_of is not Runtime.finder_of:
            return found
        spans = self.owners.spans(path.name)
        return [m for m in found if any(m.function == f and begin <= m.start < end for f, begin, end in spans)]

    def builds_for(self, mutant):
        """The processors that we judge on keep most memory orders by themselves: TSan alone sees one."""
        if mutant.what in find.ORDERS:
            return ["tsan"]
        return KINDS if OF_THREADS.search(mutant.old + mutant.what) else ["dev"]

    def compilers(self, kind, path, source, folder):
        what = ["-fsyntax-only", source] if path.suffix == ".h" else ["-c", source, "-o", folder / "mutants.o"]
        return [["cc", *FLAGS, *KINDS[kind], "-fmax-errors=0", *PLACES, *what]]

    def link_mutants(self, kind, path, folder):
        library = folder / "libmoonferry.so.0"
        mine = {path.name: folder / "mutants.o"} if path.suffix == ".c" else self.includers(kind, path, folder)
        self.link(kind, {**self.objects_of(kind), **mine}.values(), library)
        return library

    def includers(self, kind, path, folder):
        """The files that include the header, compiled with its mutants."""
        headers.mirror(SOURCES, folder / "src", {path: (folder / "mutants.h").read_text()})
        sources = [s for s in sorted(SOURCES.rglob("*.c")) if s.name not in NUMBERS]
        made = {s.name: (s, folder / f"{s.name}.o") for s in headers.includers(path, sources, SOURCES)}

        def compile(source, output):
            make(output, ["cc", f"-I{folder / 'src'}", *FLAGS, *KINDS[kind], "-c", source])

        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda entry: compile(*entry), made.values()))
        return {name: output for name, (_, output) in made.items()}

    def objects_of(self, kind):
        """Of the files without mutations, whose functions note that they are called."""
        if kind not in self.objects:
            if not (BUILDS[kind] / "specs").exists():
                sys.exit(f"{BUILDS[kind]} has no specs; specs/build {kind} makes them")
            folder = WORK / kind
            folder.mkdir(exist_ok=True)
            sources = sorted(SOURCES.rglob("*.c"))
            self.mark_headers(folder, len(sources))
            self.objects[kind] = {s.name: self.object_of(kind, s, i, folder) for i, s in enumerate(sources)}
        return self.objects[kind]

    def mark_headers(self, folder, index):
        """They have their marks behind those of the files."""
        texts = {}
        for i, path in enumerate(self.headers, index):
            texts[path], names = headers.marked(path, self.kinds, FUNCTIONS * i)
            self.note_marks(path, i, names)
        headers.mirror(SOURCES, folder / "src", texts)

    def note_marks(self, path, index, names):
        self.functions[path.name] = FUNCTIONS * index, names
        if len(names) > FUNCTIONS or FUNCTIONS * (index + 1) > schemata.MARKS_NBYTES:
            sys.exit(f"{path.name}, file {index} with {len(names)} functions, has too few marks")

    def object_of(self, kind, source, index, folder):
        """Each file has FUNCTIONS marks; those of NUMBERS use none."""
        output, text = folder / f"{source.name}.o", folder / source.name
        include = f"-I{folder / 'src'}"
        command = ["cc", include, *FLAGS, *KINDS[kind], *of_instruction_set(source), "-c", text]
        written, names = f'#include "{source}"\n', []
        if source.name not in NUMBERS:
            written, names, _ = schemata.write(find.finder_of(source, self.kinds), [], mark=FUNCTIONS * index)
        self.note_marks(source, index, names)
        headers.write(text, f"/* {' '.join(map(str, command))} */\n{written}")
        if not is_newer(output, [text, source, *self.shared]):
            make(output, command)
        return output

    def link(self, kind, objects, output):
        """Its functions call each other, as they do where nothing but the public ones is visible."""
        make(output, ["cc", "-shared", *KINDS[kind], "-Wl,-Bsymbolic-functions,-soname,libmoonferry.so.0", *objects,
                      "-lpthread", "-lm", "-ldl"])  # fmt: skip

    def library(self, kind):
        """Without mutations."""
        output, objects = WORK / kind / "libmoonferry.so.0", self.objects_of(kind).values()
        if not is_newer(output, objects):
            self.link(kind, objects, output)
        return output

    def has_reached(self, mutant, spec):
        return mutant.function in self.known.get(spec.name, {"reached": {}})["reached"].get(mutant.path.name, [])

    def reach_of(self, kind, path, spec, seconds):
        """One run tells it of all files. It is remembered as long as neither the file nor the spec's program changes:
        what comes to the file only since another one has changed is not asked, and a mutant may survive for it."""
        with self.preparing:
            library = self.library(kind)
        program = Path(spec.command[0]).stat().st_mtime
        marked = {path.name: WORK / kind / "src" / path.relative_to(SOURCES) for path in self.headers}
        made = {**self.objects[kind], **marked}
        objects = {name: output.stat().st_mtime for name, output in made.items()}
        known = self.known.get(spec.name)
        if known is None or known["program"] != program or known["objects"].get(path.name) != objects[path.name]:
            marks = spec.measure(library, WORK / f"reached-{threading.get_ident()}", seconds)
            if marks is None:
                return None
            reached = {name: [f for f, mark in zip(functions, marks[first:]) if mark]
                       for name, (first, functions) in self.functions.items()}  # fmt: skip
            known = {"program": program, "objects": objects, "seconds": spec.usual, "reached": reached}
            self.known[spec.name] = known
        spec.usual = known["seconds"]
        return set(known["reached"][path.name])

    def remember(self):
        super().remember()
        REACHED.write_text(json.dumps(dict(self.known)))

    def inside(self, kind, names="*"):
        """The programs that look inside, linked with the library instead of its sources."""
        library, headers = self.library(kind), (ROOT / "specs" / "gpu").glob("*.h")
        shared = [*self.shared, *headers]
        for source in sorted((ROOT / "specs" / "gpu").glob(f"{names}_spec.c")):
            if '#include "spec.h"' not in source.read_text():
                continue
            for device, (_, name) in DRIVERS.items():
                if OF_ONE.get(source.stem, device) != device:
                    continue
                program = WORK / kind / f"{source.stem}_{device}"
                flags = KINDS[kind] + (["-DSPEC_HIP"] if name == "HIP" else [])
                if not is_newer(program, [source, *shared]):
                    make(program, ["cc", *FLAGS, *flags, source, library, "-lcmocka", "-ldl", "-lpthread", "-lm"])
                yield device, program

    def dev_specs(self):
        host = [p for p in sorted((DEV / "specs").glob("*_spec")) if not p.name.startswith(("gpu_", "sim_"))]
        specs = [DeviceSpec(p.name, [p], {}) for p in host if p.name not in NOT_ASKED_ON_HOST]
        programs = [(d, p) for d in DRIVERS for p in sorted((DEV / "specs").glob("gpu_*_spec"))]
        for device, program in [*self.inside("dev"), *programs]:
            if program.stem not in UNASKED:
                specs.append(self.on_device(device, program, f"{program.name} on {device}"))
            if program.stem in WITHOUT_KERNELS:
                missing = {"SIM_MISSING": MISSING[device], "MOONFERRY_SPEC_NO_KERNELS": "1"}
                specs.append(self.on_device(device, program, f"{program.name} on {device} without kernels", missing))
            if program.stem == "gpu_copy_spec":
                pitch = {"SIM_MISSING": MISSING[device], "SIM_MAX_PITCH": "600"}
                specs.append(self.on_device(device, program, f"{program.name} on {device} with small pitches", pitch))
        return specs

    def tsan_specs(self):
        env = {"TSAN_OPTIONS": f"halt_on_error=1:allocator_may_return_null=1:suppressions={ROOT}/specs/tsan.supp"}
        programs = [(d, TSAN / "specs" / f"gpu_{name}_spec") for d in DRIVERS for name in THREADED]
        programs += self.inside("tsan", "handover")
        specs = [self.on_device(d, p, f"{p.name} on {d} under tsan", env) for d, p in programs]
        host = [f"{name}_spec" for name in THREADED_ON_HOST]
        return [*specs, *(DeviceSpec(f"{name} under tsan", [TSAN / "specs" / name], env) for name in host)]

    def on_device(self, device, program, name, more=None):
        folder = DEV / "python" / "moonferry" / "sim" / DRIVERS[device][0]
        env = {"LD_LIBRARY_PATH": f"{folder}:{WORK / 'dev'}", "MOONFERRY_SPEC_DEVICE": device, "SIM_EXIT": "3"}
        few_seeds = {"MOONFERRY_SPEC_SEEDS": "3", "MOONFERRY_SPEC_EVERY": "1"}  # and each boundary
        return DeviceSpec(name, [program], {**env, **few_seeds, **(more or {})})
