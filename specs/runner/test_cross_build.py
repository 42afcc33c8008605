"""CMakeLists.txt where it builds for another processor than this machine's."""

import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OTHER = "aarch64" if platform.machine() == "x86_64" else "x86_64"


@pytest.fixture(scope="module")
def ninja(tmp_path_factory):
    """What is built, and how, when this machine's compiler is taken for one of the other processor's."""
    folder = tmp_path_factory.mktemp("cross")
    settings = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": OTHER,
        "Python_INCLUDE_DIR": sysconfig.get_path("include"),
        "Python_EXECUTABLE": sys.executable,
        "MOONFERRY_LUA": "OFF",
        "MOONFERRY_SIM": "OFF",
        "MOONFERRY_CLI": "OFF",
    }
    words = [f"-D{name}={value}" for name, value in settings.items()]
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "build.ninja").read_text()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("i686-linux-gnu", "Moonferry needs a processor of 64 bits"),
        ("s390x-linux-gnu", "Moonferry needs a little-endian processor"),
    ],
)
def test_a_processor_for_which_it_is_not_made_is_refused_in_a_sentence(tmp_path, target, said):
    settings = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_C_COMPILER": "clang-14",  # it compiles for any
        "CMAKE_C_COMPILER_TARGET": target,
        "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",  # and nothing is linked
        "MOONFERRY_PYTHON": "OFF",
    }
    words = [f"-D{name}={value}" for name, value in settings.items()]
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, *words], capture_output=True, text=True)
    assert done.returncode != 0 and said in " ".join(done.stderr.split()), done.stderr


def test_core_has_the_name_of_the_processor_that_it_is_built_for(ninja):
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    assert f"_core.cpython-{version}-{OTHER}-linux-gnu.so" in ninja
    assert f"{platform.machine()}-linux-gnu.so" not in ninja
