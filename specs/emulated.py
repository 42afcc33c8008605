"""The Python specs, and those of Lua that host Python, on aarch64: in an arm64 Debian whose programs QEMU runs.

Responsible for: that system (chroot.py), what is built for its CPython in build/aarch64, and running what CTest knows
of that build there, at the paths that it has here. Each file of specs has a process of its own, so that two can run at
a time, a crash is one file's, and what hangs ends by itself. specs/skips-platforms.txt and specs/skips-qemu.txt say
what may be skipped. Must not know: what a spec specifies, nor how the runtime is built (specs/cross).
"""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import chroot
import expected
import programs

ROOT = Path(__file__).resolve().parent.parent
SYSTEM = Path("/var/tmp/moonferry-arm64")
SUITE = "sid"
PACKAGES = """
    ca-certificates python3 python3-dev python3-venv libpython3-dev python3-numpy python3-pytest python3-hypothesis
    luajit libluajit-5.1-2 lua-busted libedit2 libegl1 libstdc++6 libgomp1 gcc libc6-dev binutils bash
""".split()
LIBRARIES = "usr/lib/aarch64-linux-gnu"
# Where an unpacked system lacks what Debian's alternatives would link.
LINKS = {"libblas.so.3": "blas/libblas.so.3", "liblapack.so.3": "lapack/liblapack.so.3"}
SECONDS = 2 * 3600  # for a file
HANGS = 1800  # seconds after which a test of Python's is taken to hang: all its threads are shown, and its file ends


def make_system():
    chroot.unpack(SYSTEM, SUITE, "arm64", PACKAGES)
    for name, target in LINKS.items():
        if not (SYSTEM / LIBRARIES / name).exists():
            (SYSTEM / LIBRARIES / name).symlink_to(target)


def headers(prefix):
    """The headers of that system's CPython, in one folder; Debian has two, for each processor one of the second."""
    [folder] = (SYSTEM / "usr/include").glob("python3.*")
    copy = prefix / "include" / folder.name
    if not copy.exists():
        shutil.copytree(folder, copy)
        shutil.copy(SYSTEM / "usr/include/aarch64-linux-gnu" / folder.name / "pyconfig.h", copy)
    return copy


def settings(prefix):
    """What CMake is told, beside the preset."""
    parts = [f"-DMOONFERRY_{part}=ON" for part in ("PYTHON", "LUA", "SIM", "CLI")]
    return [*parts, f"-DPython_INCLUDE_DIR={headers(prefix)}", "-DPython_EXECUTABLE=/usr/bin/python3"]


def versions():
    """CPython's and NumPy's, for the table."""
    ask = "import numpy, platform as p; print('CPython', p.python_version() + ', NumPy', numpy.__version__)"
    done = chroot.inside(SYSTEM, f'python3 -c "{ask}"', capture_output=True, text=True, check=True)
    return done.stdout.strip()


def jobs(name, environment):
    """Each a name, and a function that gives a programs.Result."""
    more = {**environment, "PYTEST_ADDOPTS": f"-o faulthandler_timeout={HANGS} -o faulthandler_exit_on_timeout=true"}
    for test in programs.tests_of(name, "python.test_"):
        title = f"python {name} {test.name}"
        yield test.name, partial(programs.pytest_tests, title, [test], more, seconds=SECONDS)
    for test in programs.tests_of(name, "lua.python"):
        patient = replace(test, seconds=SECONDS)
        yield test.name, partial(programs.busted, f"lua {name}", patient, more)


def run(job, function):
    """Runs one there, and shows what failed; how many passed, and whether all is well."""
    enter = [*chroot.words(SYSTEM, writable=[ROOT]), "/usr/bin/env", f"--chdir={ROOT}", "TMPDIR=/tmp"]
    programs.BEFORE[:] = [*enter, *chroot.ENVIRONMENT.split()]
    result = function()
    bad = [f"{test}: {text[-3000:]}" for test, text in result.failures]
    skips = expected.Skips(ROOT / "specs/skips-platforms.txt", ROOT / "specs/skips-qemu.txt")
    suite = job.partition(".")[0] + " emulated"
    bad += [f"{test}: skipped: {why}" for test, why in result.skips if not skips.allows(suite, why)]
    print(f"  {job}: {result.passed} passed, {len(result.skips)} skipped" + (", FAILED:" if bad else ""), flush=True)
    for text in bad:
        print("    " + text.replace("\n", "\n    "), flush=True)
    return result.passed, not bad  # a file may have skips alone; one without any test has failed (programs.py)
