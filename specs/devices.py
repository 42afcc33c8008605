"""The suites of devices: on a simulated driver, on a mute one, on this machine's own.

Responsible for: which registered tests those are, and under which settings they run on another driver than they were
registered for. Must not know: which suites `make test` runs (specs/run), nor how a program is run and read.
"""

import os
from dataclasses import replace

import checks
import shares
from programs import BUILD, PYTHON, Result, busted, cmocka_test, need_build, pytest_tests, tests_of

# The interpreter that has a real GPU's libraries, of the same version as .venv's and with pytest; .venv's if left out.
GPU_PYTHON = os.environ.get("MOONFERRY_SPEC_PYTHON", PYTHON)
# A real GPU, and HIP on one of NVIDIA's by the library that makes each HIP call one of the CUDA driver's: the tests of
# which simulated driver, in C and in the other languages, and what of their settings is the simulator's.
REAL = {"real": ("cuda", "cuda"), "real hip": ("forward", "rocm"), "mute": ("cuda", "cuda")}
OF_SIMULATORS = ("LD_LIBRARY_PATH", "SIM_EXIT", "SIM_LEDGER", "MOONFERRY_PTXAS")


def gpu_tests(preset, driver, prefix="gpu"):
    """The registered tests of a driver, as they run on it."""
    need_build("dev")
    simulated = REAL.get(driver, (driver, driver))[prefix != "gpu"]
    if driver == "cuda":
        checks.install_peers()
    tests = [t for t in tests_of(preset, f"{prefix}.{simulated}.") if ".separate." not in t.name]
    if driver not in REAL:
        return tests
    tests = [t for t in tests if ".without_kernels." not in t.name and ".small_pitch." not in t.name]
    real = {}
    if driver == "mute":
        real = {"LD_LIBRARY_PATH": str(BUILD / preset / "specs/mute"), "SIM_DEVICES": "1", "MOONFERRY_SPEC_MUTE": "1"}
    if driver == "real hip":
        real["MOONFERRY_HIPRTC_LIBRARY"] = "none, as it compiles for AMD's GPUs"
        inherited = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
        real["LD_LIBRARY_PATH"] = ":".join([str(BUILD / preset / "specs" / "forward"), *inherited])
        real["MOONFERRY_CUDA_LIBRARY"] = "none, so that each GPU is there once"
    return [replace(t, env={**{k: v for k, v in t.env.items() if k not in OF_SIMULATORS}, **real}) for t in tests]


def gpu_specs(preset, driver):
    """The C specs of specs/gpu on one driver."""
    result = Result()
    for test in shares.with_threads_under_tsan(preset, shares.half_under_asan(preset, gpu_tests(preset, driver))):
        result.add(cmocka_test(f"{driver} {preset}", test))
    return result


def gpu_separate_specs(driver):
    """Those that have threads, each thread's calls taken as unordered with the others'."""
    result = Result()
    for test in tests_of("dev", f"gpu.{driver}.separate."):
        result.add(cmocka_test("dev", test))
    return result


def gpu_mute():
    """C and Lua of `make test-gpu`, on a simulated driver that nobody can ask, with one GPU: as on a real one."""
    result = gpu_specs("dev", "mute")
    result.add(gpu_lua_specs("mute"))
    return result


def gpu_lua_specs(driver):
    result = Result()
    for test in gpu_tests("dev", driver, "lua"):
        if driver in REAL:
            test.env["MOONFERRY_PYTHON"] = GPU_PYTHON
        else:
            checks.install_peers()
        result.add(busted(driver, test))
    return result


def gpu_python_specs(driver):
    if driver not in REAL:
        checks.install_peers()
    tests = gpu_tests("dev", driver, "python")
    return pytest_tests(f"gpu {driver} python", tests, python=GPU_PYTHON if driver in REAL else None)
