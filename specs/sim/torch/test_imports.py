"""What PyTorch's libraries are linked with of the CUDA runtime: a function that the simulated one lacks ends `import
torch`, so each release is looked at before a user has it. The newest that pip may install here is downloaded if it is
not the installed one."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "sim" / "cudart"))
import stubs  # noqa: E402 its folder is not a package

RUNTIMES = ROOT / "build" / "dev" / "python" / "moonferry" / "sim" / "cudart"
DOWNLOADED = ROOT / "build" / "sim" / "torch-wheel"
PIP = [sys.executable, "-m", "pip"]


def newest():
    words = ["install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-", "torch"]
    done = subprocess.run([*PIP, *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["install"][0]["metadata"]["version"]


def installed():
    return importlib.metadata.distribution("torch").locate_file("torch/lib")


def unpacked(version):
    """The folder with the libraries of that version's wheel."""
    folder = DOWNLOADED / version
    if not folder.exists():
        parts = folder.with_suffix(".parts")
        subprocess.run([*PIP, "download", "--quiet", "--no-deps", "-d", parts, f"torch==={version}"], check=True)
        (wheel,) = parts.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(parts, [n for n in archive.namelist() if re.match(r"torch/lib/[^/]*\.so[.\d]*$", n)])
        wheel.unlink()
        os.rename(parts, folder)
    return folder / "torch" / "lib"


def imported(folder):
    """By runtime, the names that the libraries of a folder ask of it."""
    asked = {}
    for path in stubs.libraries([folder]):
        for name, _, library in stubs.Library(path.read_bytes()).symbols()[0]:
            if re.match(r"libcudart\.so\.\d+$", library or ""):
                asked.setdefault(library, set()).add(name)
    return asked


def lacking(asked):
    """What the simulated runtimes do not have of that."""
    absent = {}
    for library, names in asked.items():
        path = RUNTIMES / library
        own = stubs.Library(path.read_bytes()).symbols()[1] if path.exists() else set()
        absent[library] = sorted(names - own)
    return absent


@pytest.mark.parametrize("which", ["installed", "newest"])
def test_the_simulated_runtime_has_what_pytorch_is_linked_with(which):
    version = newest() if which == "newest" else importlib.metadata.version("torch")
    own = version.split("+")[0] == importlib.metadata.version("torch").split("+")[0]
    asked = imported(installed() if own else unpacked(version))
    assert sum(map(len, asked.values())) > 80, f"PyTorch {version}: {asked}"
    assert not any(lacking(asked).values()), f"PyTorch {version} cannot be imported: {lacking(asked)}"


def test_a_function_that_is_not_there_is_named():
    asked = {"libcudart.so.13": {"cudaMalloc", "cudaNothing"}, "libcudart.so.99": {"cudaFree"}}
    assert lacking(asked) == {"libcudart.so.13": ["cudaNothing"], "libcudart.so.99": ["cudaFree"]}
