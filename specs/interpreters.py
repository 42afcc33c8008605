"""Which CPythons this machine has, with their headers; 3.13t is one without the GIL. Must not know what they are wanted
for."""

import os
import subprocess
from pathlib import Path

# Where specs/nogil puts those that it makes.
MADE = Path(__file__).resolve().parent.parent / "build" / "cpython"
FREE_THREADED = ["3.13t", "3.14t", "3.15t"]
VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15", *FREE_THREADED]
ASK = "import sys, sysconfig, os; t = 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''; "
ASK += "print('%d.%d' % sys.version_info[:2] + t, sys.implementation.name, sys.executable); "
ASK += "sys.exit(not os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"


def found():
    """version -> path of the first CPython of that version with headers; pyenv's own before the PATH's."""
    places = sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    places += [MADE / version / "bin" for version in FREE_THREADED]
    places += [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p and "shims" not in p]
    paths = {}
    for place in places:
        for name in ["python3", *(f"python{v}" for v in VERSIONS)]:
            if not (place / name).exists():
                continue
            asked = subprocess.run([place / name, "-c", ASK], capture_output=True, text=True)
            if asked.returncode == 0:
                version, kind, path = asked.stdout.split()
                if version in VERSIONS and kind == "cpython":
                    paths.setdefault(version, path)
    return {version: paths[version] for version in VERSIONS if version in paths}
