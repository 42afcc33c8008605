"""libmoonferry is loaded late, behind whatever else a process has: glibc keeps about 1.6 KB of static thread-local
storage for all libraries that come so, and what takes much of it fails in somebody's process, or makes another library
fail."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import dlpack_abi as abi
import moonferry as mf

LIBRARY = pathlib.Path(mf._core.__file__).with_name("libmoonferry.so.0")

# Loads copies of a library with 64 bytes of such storage until there is none left, behind the libraries that are given.
COUNT = """
import ctypes, pathlib, sys
for path in sys.argv[2:]:
    ctypes.CDLL(path)
loaded = 0
for copy in sorted(pathlib.Path(sys.argv[1]).glob("*.so")):
    try:
        ctypes.CDLL(str(copy))
    except OSError as error:
        assert "static TLS" in str(error), error
        break
    loaded += 1
print(loaded)
"""


def how_many(folder, *first):
    command = [sys.executable, "-c", COUNT, str(folder), *map(str, first)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def eater(tmp_path, nbytes):
    source = tmp_path / f"eater{nbytes}.c"
    source.write_text(
        f'_Thread_local char taken[{nbytes}] __attribute__((tls_model("initial-exec")));\n'
        "char *touch(void) { return taken; }\n"
    )
    return abi.compile_shared(str(source), "eater.so")


def test_it_takes_little_static_thread_local_storage(tmp_path):
    first = eater(tmp_path, 64)
    copies = tmp_path / "copies"
    copies.mkdir()
    for i in range(200):
        shutil.copy(first, copies / f"{i:03}.so")
    alone = how_many(copies)
    assert 5 < alone < 200
    assert alone - how_many(copies, LIBRARY) <= 3  # of 64 bytes; the library has some 150, aligned


def test_it_is_loaded_behind_large_libraries(tmp_path):
    large = eater(tmp_path, 1280)
    code = "import ctypes, sys; [ctypes.CDLL(path) for path in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, large, str(LIBRARY)], check=True)


# A driver's library that takes its time: nothing is in the pipe until another thread writes there.
SLOW_DRIVER = """
import os, sys, threading
import moonferry as mf

def write():
    os.close(os.open(sys.argv[1], os.O_WRONLY))

threading.Thread(target=write).start()
print(eval(sys.argv[2]))
"""
FIRST_USES = ["mf.device_count('cuda')", "mf.zeros(2, device='cuda')", "mf.synchronize('cuda')"]


@pytest.mark.parametrize("use", FIRST_USES)
def test_other_threads_run_while_a_driver_is_loaded(tmp_path, use):
    pipe = tmp_path / "driver"
    os.mkfifo(pipe)
    environment = {**os.environ, "MOONFERRY_CUDA_LIBRARY": str(pipe)}
    command = [sys.executable, "-c", SLOW_DRIVER, pipe, use]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n" if "count" in use else "driver" in done.stderr
