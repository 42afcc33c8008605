"""The environments of the device tables: other people's GPU libraries on a simulated driver, below build/sim.

Responsible for what a cell there runs with. One that is too large to be made by the way is used where it lies, and is
optional: that it is not there is said of each of its cells, and fails no run. Must not know any library.
"""

import os

from environments import BUILD, BUILT, ROOT, Environment, run

# The folders of the simulators, the environment, and what makes it.
MADE = {
    "cuda": (["cuda"], "venv", "specs/sim/setup.sh"),
    "rocm": (["hip"], "hip-venv", "specs/sim/hip/setup.sh"),
}
# The table, the folders of the simulators, the environment, the command that makes it, and what is preloaded. It sees
# what the table's own environment has, too.
LARGE = {
    "torch": ("cuda", ["cuda", "cudart"], "torch-venv", "make test-sim-torch", "libcudart.so.13"),
}


class Simulated(Environment):
    """The environment of a table, made by its script."""

    optional = False

    def __init__(self, table):
        super().__init__(table)
        self.table = table
        self.folders, venv, self.script = MADE[table]
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
    """One of its own, beside its table's, which is used if somebody has made it."""

    optional = True

    def __init__(self, name):
        table, folders, venv, self.maker, self.preloaded = LARGE[name]
        super().__init__(table)
        self.name, self.folders, self.beside = name, folders, self.here
        self.start = BUILD / name
        self.place(venv)

    def make(self):
        """The other environment's packages are added as its own: Numba-CUDA takes Numba's place by a .pth file."""
        packages = next(self.beside.glob("lib/python*/site-packages"), None)
        if packages and self.python.exists():
            self.start.mkdir(parents=True, exist_ok=True)
            (self.start / "sitecustomize.py").write_text(f"import site\n\nsite.addsitedir({str(packages)!r})\n")
        else:
            self.reason = f"build/sim/{self.here.name} is not there: {self.maker} makes it"

    def variables(self):
        made = super().variables()
        made["PYTHONPATH"] += f"{os.pathsep}{self.start}"
        return made | {"LD_PRELOAD": self.preloaded}
