"""The simulated CUDA runtimes beside the real ones, which are installed here: names and versions of their symbols."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CUDA = Path(os.environ["SIM_LIBRARY_PATH"].split(":")[0])
PACKAGES = Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages", "nvidia")
REAL = {12: PACKAGES / "cuda_runtime" / "lib", 13: PACKAGES / "cu13" / "lib"}


def exported(path):
    """The functions of a library, each with its version."""
    done = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
    return set(re.findall(r" T (\w+@@?[\w.]+)", done.stdout))


@pytest.mark.parametrize("major", REAL)
def test_each_symbol_is_one_of_the_real_runtimes(major):
    simulated = exported(CUDA.parent / "cudart" / f"libcudart.so.{major}")
    assert len(simulated) > 180
    assert simulated <= exported(REAL[major] / f"libcudart.so.{major}")


@pytest.mark.parametrize("major", REAL)
def test_the_name_in_the_file_is_the_real_ones(major):
    name = f"libcudart.so.{major}"
    for folder in (CUDA.parent / "cudart", REAL[major]):
        done = subprocess.run(["readelf", "-d", folder / name], capture_output=True, text=True, check=True)
        assert f"soname: [{name}]" in done.stdout


def test_a_process_may_have_both():
    versions = []
    for major in REAL:
        value = ctypes.c_int()
        library = ctypes.CDLL(str(CUDA.parent / "cudart" / f"libcudart.so.{major}"))
        assert library.cudaRuntimeGetVersion(ctypes.byref(value)) == 0
        versions.append(value.value // 1000)
    assert versions == list(REAL)
