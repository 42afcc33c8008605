"""What must run, said by the sources and by a committed list, not by what happened to be built or installed.

Responsible for three questions of specs/run: whether CTest knows each source of a spec, which files gave no test, and
which skips are allowed (specs/skips.txt). Must not know how a program is run.
"""

import re
import subprocess
import xml.etree.ElementTree as ET
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPS = ROOT / "specs" / "skips.txt"


# The rooms of the simulators' specs, and what the names of their tests begin with: a test of each line, and of its
# beginnings one. A spec of HIP's may be for the simulated runtime, for the one that forwards to CUDA, or for both.
SIM_ROOMS = [
    ("engine", "sim_"),
    ("cuda", "sim_"),
    ("cudart", "sim_cudart12_"),
    ("cudart", "sim_cudart13_"),
    ("hip", "sim_hip_", "sim_forward_"),
    ("forward", "sim_forward_"),
]


def sim_sources():
    """Each source of the simulators' specs, with the names that its test may have."""
    for room, *beginnings in SIM_ROOMS:
        for source in sorted((ROOT / "specs" / "sim" / room).glob("*_spec.c")):
            yield source, [f"{beginning}{source.stem}" for beginning in beginnings]


def sim_missing(tests, preset="dev"):
    """The sources of the simulators' specs of which CMake has no test, and, without a sanitizer, other people's
    libraries."""
    wanted = [names for _, names in sim_sources()]
    if preset == "dev":
        wanted += [[f"sim_{name}"] for name in ("libraries", "kernels", "stubs", "hip_cupy", "forward_cupy")]
    return [" or ".join(names) for names in wanted if not set(names) & set(tests)]


def has_threads(test):
    """Whether the source of one of the simulators' tests starts a thread; a test may be a spec once more, in another
    way."""
    return any(
        test.startswith(name) and "pthread_create" in source.read_text()
        for source, names in sim_sources()
        for name in names
    )


# Where CTest must know each file that the pattern finds, under a name that ends so.
SOURCES = {
    "c/*_spec.c": "c.{}",
    "gpu/*_spec.c": "gpu.*.{}",  # some are of one driver
    "lua/*_spec.lua": "lua.{}",
    "lua/gpu_*_spec.lua": "lua.rocm.{}",
    "python/test_*.py": "python.{}",
    "python/gpu/test_*.py": "python.cuda.{}",
    "cli/test_*.py": "cli.{}",
    "life/test_*.py": "life.{}",
    "exchange/test_*.py": "exchange.{}",
    "runner/test_*.py": "runner.{}",
    "seams/test_*.py": "seams.host.{}",
}


def unregistered(names):
    """The sources of specs of which CTest has no test."""
    for pattern, name in SOURCES.items():
        for source in sorted((ROOT / "specs").glob(pattern)):
            of_a_driver = pattern == "lua/*_spec.lua" and source.name.startswith("gpu_")
            wanted = name.format(source.stem.removesuffix("_spec"))
            if not of_a_driver and not any(fnmatchcase(each, wanted) for each in names):
                yield str(source.relative_to(ROOT))


def without_tests(places, report):
    """The test_*.py of these folders and files for which pytest's report has no test."""
    seen = {
        word
        for case in ET.parse(report).getroot().iter("testcase")
        for word in (case.get("classname") or "").split(".")
    }
    files = []
    for place in places:
        files += sorted((ROOT / place).glob("test_*.py")) if (ROOT / place).is_dir() else [ROOT / place]
    return [file.name for file in files if file.stem not in seen]


class Skips:
    """The allowed skips: lines "suite: reason", where `*` in either stands for any text. One that begins with "? " need
    not occur."""

    def __init__(self, *paths):
        texts = [path.read_text() for path in paths or [SKIPS]]
        lines = [line for text in texts for line in text.splitlines() if line and not line.startswith("#")]
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
    files = [
        path
        for folder in ("specs", "docs")
        for path in (ROOT / folder).rglob("*")
        if not path.suffix and path.is_file()
    ]
    return sorted(str(p.relative_to(ROOT)) for p in files if p.read_bytes().startswith(b"#!/usr/bin/env python3"))
