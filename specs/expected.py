"""What must run, said by the sources and by a committed list, not by what happened to be built or installed.

Responsible for three questions of specs/run: which programs the sources of the specs stand for and whether the build
makes each of them, which files of a folder gave no test, and which skips are allowed (specs/skips.txt). Must not know
how a program is run.
"""

import re
import subprocess
import xml.etree.ElementTree as ET
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPS = ROOT / "specs" / "skips.txt"


def c_programs():
    return [source.stem for source in sorted((ROOT / "specs" / "c").glob("*_spec.c"))]


def is_random(name):
    """Whether a C spec draws numbers, so that another seed is another run of it."""
    return "random" in (ROOT / "specs" / "c" / f"{name}.c").read_text()


def gpu_programs(half):
    """The programs of specs/gpu for one driver: what looks inside the runtime is built for "cuda" and for "hip"."""
    programs = []
    for source in sorted((ROOT / "specs" / "gpu").glob("*_spec.c")):
        inside = '#include "spec.h"' in source.read_text()
        programs.append(f"gpu_inside_{source.stem}_{half}" if inside else f"gpu_{source.stem}")
    return programs


def gpu_programs_with_threads(half):
    """Those of the programs whose source starts a thread."""

    def source(name):
        return ROOT / "specs" / "gpu" / (re.sub(r"^gpu_(inside_)?|_(cuda|hip)$", "", name) + ".c")

    return [name for name in gpu_programs(half) if "pthread_create(" in source(name).read_text()]


# The rooms of the simulators' specs, and what the names of their tests begin with. A spec of HIP's may be for the
# simulated runtime, for the one that forwards to CUDA, or for both.
SIM_ROOMS = {
    "engine": ("sim_",),
    "cuda": ("sim_",),
    "hip": ("sim_hip_", "sim_forward_"),
    "forward": ("sim_forward_",),
}


def sim_sources():
    """Each source of the simulators' specs, with the names that its test may have."""
    for room, beginnings in SIM_ROOMS.items():
        for source in sorted((ROOT / "specs" / "sim" / room).glob("*_spec.c")):
            yield source, [f"{beginning}{source.stem}" for beginning in beginnings]


def sim_missing(tests, preset="dev"):
    """The sources of the simulators' specs of which CMake has no test, and, without a sanitizer, other people's
    libraries."""
    wanted = [names for _, names in sim_sources()]
    if preset == "dev":
        wanted += [[f"sim_{name}"] for name in ("libraries", "hip_cupy", "forward_cupy")]
    return [" or ".join(names) for names in wanted if not set(names) & set(tests)]


def has_threads(test):
    """Whether the source of one of the simulators' tests starts a thread; a test may be a spec once more, in another
    way."""
    return any(
        test.startswith(name) and "pthread_create" in source.read_text()
        for source, names in sim_sources()
        for name in names
    )


def not_built(build, programs):
    """Those of the programs that a build does not make, although a file of an earlier build may be there."""
    told = subprocess.run(["cmake", "--build", build, "--target", "help"], check=True, capture_output=True, text=True)
    targets = set(re.findall(r"^(?:\.\.\. )?([\w.+-]+)(?=: | \(|$)", told.stdout, re.MULTILINE))
    return [name for name in programs if name not in targets]


def without_tests(place, report):
    """The test_*.py of a folder, or the one named, for which pytest's report has no test."""
    seen = {
        word
        for case in ET.parse(report).getroot().iter("testcase")
        for word in (case.get("classname") or "").split(".")
    }
    files = sorted((ROOT / place).glob("test_*.py")) if (ROOT / place).is_dir() else [ROOT / place]
    return [file.name for file in files if file.stem not in seen]


class Skips:
    """The allowed skips: lines "suite: reason", where `*` in either stands for any text. One that begins with "? " need
    not occur."""

    def __init__(self, path=SKIPS):
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        self.allowed = [tuple(line.removeprefix("? ").split(": ", 1)) for line in lines]
        self.met = {tuple(line[2:].split(": ", 1)) for line in lines if line.startswith("? ")}

    def allows(self, suite, reason):
        entry = next((e for e in self.allowed if matches(suite, e[0]) and matches(reason, e[1])), None)
        if entry is not None:
            self.met.add(entry)
        return entry is not None

    def vanished(self, suites):
        """The lines for suites that ran, none of which gave that reason."""
        ran = [e for e in self.allowed if any(matches(suite, e[0]) for suite in suites)]
        return [": ".join(entry) for entry in ran if entry not in self.met]


def matches(text, pattern):
    """No character but `*` is special; a reason in several lines is compared as one."""
    return fnmatchcase(" ".join(text.split()), re.sub(r"([\[?])", r"[\1]", pattern))


def seed():
    """A number that each commit has another of; 0 where there is no git to ask. It is even: it is added to the numbers
    of specs, and under odd ones the simulators give handles and addresses again, which should stay half of them."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return str(int(asked.stdout[:8], 16) // 2 * 2) if asked.returncode == 0 else "0"


def python_programs():
    """The programs in Python whose names do not say so."""
    files = [path for path in (ROOT / "specs").rglob("*") if not path.suffix and path.is_file()]
    return sorted(str(p.relative_to(ROOT)) for p in files if p.read_bytes().startswith(b"#!/usr/bin/env python3"))
