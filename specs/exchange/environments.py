"""The environments of the matrix, under build/matrix/: one for each set of libraries that cannot live with another.

Responsible for making them from environments/*.txt, for a build of Moonferry for each one's Python, and for saying why
a library is not there. Invariant: what is up to date is left alone. Must not know what is done with them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "matrix"
VENV = ROOT / ".venv"
BUILT = Path(os.environ.get("MOONFERRY_BUILD", ROOT / "build" / "dev"))

# Which CPythons an environment can have (none named: that of .venv), and whether it sees what .venv has. MXNet's wheel
# wants a NumPy of before 1.24, of which CPython 3.11 is the newest that has one.
WANTS = {
    "host": ((), True),
    "distributed": ((), True),
    "more": ((), True),
    "tensorflow": ((), False),
    "mxnet": (("3.11", "3.10", "3.9"), False),
}


def say(text):
    print(f"matrix: {text}", flush=True)


def run(command, log, **more):
    """Whether it worked. All that it prints goes to the log."""
    with log.open("a") as out:
        out.write("$ " + " ".join(map(str, command)) + "\n")
        out.flush()
        done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, **more)
    return done.returncode == 0


def base_python(versions):
    """.venv's CPython if it is one of those versions, else another of this machine's. None if there is none."""
    own = VENV / "bin" / "python"
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    if not versions or subprocess.run([own, "-c", ask], capture_output=True, text=True).stdout.strip() in versions:
        return own
    return next(filter(None, map(python_of, versions)), None)


def python_of(version):
    """The path of a CPython with headers: pyenv's own before the PATH's. None if there is none."""
    ask = "import sys, sysconfig, os; print('%d.%d' % sys.version_info[:2]); "
    ask += "sys.exit(not os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"
    places = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"))
    places += [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p and "shims" not in p]
    for place in places:
        path = place / f"python{version}"
        if path.exists():
            asked = subprocess.run([path, "-c", ask], capture_output=True, text=True)
            if asked.returncode == 0 and asked.stdout.strip() == version:
                return path
    return None


class Environment:
    """A virtual environment and the Moonferry for its Python. `missing` has the reasons, by requirement."""

    def __init__(self, name):
        self.name = name
        self.here = BUILD / name
        self.log = BUILD / f"{name}.log"
        self.python = self.here / "bin" / "python"
        self.package = BUILT / "python"
        self.reason = None
        self.missing = {}

    def variables(self):
        """What a program needs to run in it."""
        lua = f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;;"
        paths = [self.package, HERE, BUILD / "native" / self.name]
        return {
            "LUA_PATH": lua,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "MOONFERRY_LIBRARY": str(self.package / "moonferry" / "libmoonferry.so.0"),
            "MOONFERRY_PYTHON": str(self.python),
            "PYTHONDONTWRITEBYTECODE": "",  # pip compiles no module; the first cell that imports it does
            "NUMBA_CACHE_DIR": str(BUILD / "numba"),
            "WARP_CACHE_PATH": str(BUILD / "warp"),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "MPI4PY_LIBMPI": str(VENV / "lib" / "libmpi.so.12"),  # mpi4py of .venv looks into the environment's own lib
            "PATH": f"{self.here / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }

    def make(self):
        """Makes it, unless it is as its requirements say. Sets `reason` where it cannot be had at all."""
        versions, over = WANTS[self.name]
        requirements = HERE / "environments" / f"{self.name}.txt"
        base = base_python(versions)
        if base is None:
            self.reason = f"no CPython {' or '.join(versions)} with headers on this machine"
            return
        stamp = hashlib.sha256(f"{requirements.read_text()}{base}{ROOT}".encode()).hexdigest()
        stamp_file = self.here / ".stamp"
        if not (stamp_file.exists() and stamp_file.read_text() == stamp and self.python.exists()):
            say(f"making build/matrix/{self.name} (some minutes; the log is build/matrix/{self.name}.log)")
            begun = time.monotonic()
            self.install(base, requirements, over)
            say(f"build/matrix/{self.name} took {time.monotonic() - begun:.0f} s")
            if not self.missing:
                stamp_file.write_text(stamp)
        if base.parent.parent != VENV:
            self.build()

    def install(self, base, requirements, over):
        shutil.rmtree(self.here, ignore_errors=True)
        if not run([base, "-m", "venv", self.here], self.log):
            self.reason = f"its environment could not be made: build/matrix/{self.name}.log"
            return
        if over:
            purelib = next(self.here.glob("lib/python*/site-packages"))
            beside = next(VENV.glob("lib/python*/site-packages"))
            (purelib / "beside.pth").write_text(f"import site; site.addsitedir({str(beside)!r})\n")
        pip = [self.python, "-m", "pip", "install", "--no-compile", "--disable-pip-version-check", "--no-input"]
        if run([*pip, "-r", requirements], self.log):
            return
        # One by one, so that what is missing is only what cannot be had.
        for line in requirements.read_text().splitlines():
            if line and not line.startswith("#") and not run([*pip, line], self.log):
                self.missing[line.split("==")[0]] = self.last_error()

    def last_error(self):
        errors = [line for line in self.log.read_text().splitlines() if line.startswith("ERROR:")]
        return errors[-1].removeprefix("ERROR: ") if errors else "pip failed"

    def build(self):
        """Moonferry for a Python that is not the one of build/dev."""
        build = BUILD / f"moonferry-{self.name}"
        self.package = build / "python"
        header = next(VENV.glob("lib/python*/site-packages/tvm_ffi/include"))
        say(f"building Moonferry for build/matrix/{self.name}")
        settings = [f"-DPython_EXECUTABLE={self.python}", f"-DMOONFERRY_DLPACK_INCLUDE={header}"]
        settings += [f"-DMOONFERRY_LTO={'OFF' if BUILT.name == 'dev' else 'ON'}"]  # as the other libraries' Moonferry
        settings += ["-DMOONFERRY_LUA=ON", "-DMOONFERRY_SIM=OFF", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
        made = run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *settings], self.log)
        if not (made and run(["cmake", "--build", build, "-j", "2"], self.log)):
            self.reason = f"Moonferry does not build for its Python: build/matrix/{self.name}.log"

    def extensions(self):
        """The nanobind and pybind11 extensions of native/."""
        build = BUILD / "native" / self.name
        settings = [f"-DPython_EXECUTABLE={self.python}"]
        made = run(["cmake", "-S", HERE / "native", "-B", build, "-G", "Ninja", *settings], self.log)
        return made and run(["cmake", "--build", build, "-j", "2"], self.log)


def make_all(names):
    """The environments of those names, made, two at a time."""
    BUILD.mkdir(parents=True, exist_ok=True)
    made = {name: Environment(name) for name in names}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Environment.make, made.values()))
    for name in names:
        if made[name].reason:
            say(f"{name}: {made[name].reason}")
        for package, why in made[name].missing.items():
            say(f"{name}: {package} is not there: {why}")
    if "host" in made and not made["host"].reason and not made["host"].extensions():
        say("the extensions of specs/exchange/native do not build: build/matrix/host.log")
    return made


if __name__ == "__main__":
    make_all(sys.argv[1:] or list(WANTS))
