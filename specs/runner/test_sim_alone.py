"""sim/ without the rest of the project: it builds, installs, and a program runs on what is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SIM = Path(__file__).resolve().parents[2] / "sim"

# By the names that have no number, which the installed libraries find beside themselves.
PROGRAMS = {
    "cuda": """
import ctypes
drv, n = ctypes.CDLL("libcuda.so"), ctypes.c_int()
assert drv.cuInit(0) == 0 and drv.cuDeviceGetCount(ctypes.byref(n)) == 0
print(n.value)
""",
    "hip": """
import ctypes
drv, n = ctypes.CDLL("libamdhip64.so"), ctypes.c_int()
assert drv.hipGetDeviceCount(ctypes.byref(n)) == 0
print(n.value)
""",
}


def run(*command, env=None):
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    shutil.copytree(SIM, folder / "sim")
    run("cmake", "-S", folder / "sim", "-B", folder / "build", "-DMOONFERRY_WERROR=ON", "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", folder / "build")
    run("cmake", "--install", folder / "build", "--prefix", folder / "prefix")
    shutil.rmtree(folder / "build")
    return folder / "prefix" / "lib" / "moonferry"


@pytest.mark.parametrize("driver", PROGRAMS)
def test_a_program_runs_on_it(installed, driver):
    env = {**os.environ, "LD_LIBRARY_PATH": str(installed / "sim" / driver), "SIM_DEVICES": "3"}
    assert run(sys.executable, "-c", PROGRAMS[driver], env=env) == "3\n"


def test_it_has_the_header_and_the_library_of_threads(installed):
    assert (installed / "include" / "sim.h").is_file()
    assert (installed / "sim" / "threads" / "libsim_threads.so").is_file()
