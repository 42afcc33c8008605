"""The environments of the device tables: other people's GPU libraries on a simulated driver, below build/sim.

Responsible for what a cell there runs with. One that is too large to be made by the way is used where it lies, and is
optional: that it is not there is said of each of its cells, and fails no run. Must not know any library.
"""

import os
from itertools import combinations

from environments import BUILD, BUILT, ROOT, Environment, run

# The folders of the simulators, the environment, and what makes it.
MADE = {
    "cuda": (["cuda"], "venv", "specs/sim/setup.sh"),
    "rocm": (["hip"], "hip-venv", "specs/sim/hip/setup.sh"),
}
# As `moonferry sim` preloads them: of CUDA 12 and of 13.
RUNTIMES = "libcudart.so.12:libcudart.so.13"
# The table, the folders of the simulators, the environment, the command that makes it, and what is preloaded. It sees
# what the table's own environment has, too.
LARGE = {
    "jax": ("cuda", ["cuda", "cudart"], "jax-venv", "make test-sim-jax", RUNTIMES),
    "torch": ("cuda", ["cuda", "cudart"], "torch-venv", "make test-sim-torch", RUNTIMES),
}


def together(names):
    """What the environment that has all of these is called; "" stands for none."""
    return "+".join(sorted(filter(None, names)))


def large(names):
    """The environments of those names, and each of them together with each other of the same table."""
    pairs = [pair for pair in combinations(sorted(names), 2) if len({LARGE[name][0] for name in pair}) == 1]
    return [Large(*each) for each in [*((name,) for name in sorted(names)), *pairs]]


class Simulated(Environment):
    """The environment of a table, made by its script."""

    optional = False

    def __init__(self, table):
        super().__init__(table)
        self.table = table
        self.folders, venv, self.script = MADE[table]
        self.maker = self.script
        self.place(venv)

    def place(self, venv):
        self.here = ROOT / "build" / "sim" / venv
        self.python = self.here / "bin" / "python"

    def make(self):
        if not run(["sh", ROOT / self.script], self.log, env={**os.environ, "PYTHON": str(ROOT / ".venv/bin/python")}):
            self.reason = f"{self.script} failed: {self.last_error()}"

    def variables(self):
        made = super().variables()
        made["PYTHONPATH"] += os.pathsep + str(ROOT / "specs/python/gpu")
        simulators = BUILT / "python/moonferry/sim"
        made["LD_LIBRARY_PATH"] = os.pathsep.join(str(simulators / folder) for folder in self.folders)
        return made | {"MATRIX_TABLE": self.table, "MATRIX_DEVICE": f"{self.table}:0", "SIM_LEDGER": "off"}


class Large(Simulated):
    """One of its own, beside its table's, which is used if somebody has made it. `more` are others of these, of which
    it has all as well."""

    optional = True

    def __init__(self, name, *more):
        table, folders, venv, maker, self.preloaded = LARGE[name]
        super().__init__(table)
        self.name, self.folders, self.maker = together([name, *more]), folders, maker
        self.beside = [*(Large(other) for other in more), Simulated(table)]
        self.start = BUILD / self.name
        self.place(venv)

    def make(self):
        """The other environments' packages are added as its own: Numba-CUDA takes Numba's place by a .pth file."""
        absent = next((each for each in [self, *self.beside] if not each.python.exists()), None)
        if absent:
            self.reason = f"build/sim/{absent.here.name} is not there: {absent.maker} makes it"
            return
        packages = [str(next(each.here.glob("lib/python*/site-packages"))) for each in self.beside]
        self.start.mkdir(parents=True, exist_ok=True)
        added = "".join(f"site.addsitedir({folder!r})\n" for folder in packages)
        (self.start / "sitecustomize.py").write_text(f"import site\n\n{added}")

    def variables(self):
        made = super().variables()
        made["PYTHONPATH"] += f"{os.pathsep}{self.start}"
        return made | {"LD_PRELOAD": self.preloaded}
