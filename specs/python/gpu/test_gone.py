"""A device that is lost: by an error that stays, or because another library has reset it. Each call says so, the other
device goes on, and nothing is left of Moonferry's own.

Each case is a process of its own, since the device is lost for the rest of it.
"""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, gc, json, sys
import moonferry as mf

kind, lose = sys.argv[1:]
first, second = f"{kind}:0", f"{kind}:1"
lib = ctypes.CDLL("libcuda.so.1" if kind == "cuda" else "libamdhip64.so.7")
t, u = (mf.full((64,), value, "uint8", device=device) for value, device in ((3, first), (4, second)))
stream = mf.Stream(first)
mf.synchronize(first)
mf.synchronize(second)
if lose == "reset":
    assert (lib.cuDevicePrimaryCtxReset_v2(0) if kind == "cuda" else lib.hipSetDevice(0) or lib.hipDeviceReset()) == 0
else:
    lib.sim_fail(b"cuMemcpyAsync:700:sticky" if kind == "cuda" else b"hipMemcpyAsync:700:sticky")

uses = {
    "read": lambda: t.tolist(),
    "make": lambda: mf.zeros((64,), "uint8", device=first),
    "stream": lambda: mf.Stream(first),
    "wait": lambda: mf.synchronize(first),
    "wait for a stream": lambda: stream.synchronize(),
    "copy away": lambda: t.to(second),
    "trim": lambda: mf.trim(),
}
said = {}
for name, use in uses.items():
    try:
        use()
        said[name] = "nothing"
    except (mf.DriverError, ValueError) as error:  # a stream that is gone is a wrong value
        said[name] = str(error)
assert u.tolist() == [4] * 64
with mf.Stream(second):
    assert mf.full((64,), 5, "uint8", device=second).to("cpu").tolist() == [5] * 64
u.fill(6)
assert u.tolist() == [6] * 64
del t, u, stream
gc.collect()
mf.synchronize(second)
tensors, storages, nbytes, _ = mf.ledger()
print(json.dumps({"said": said, "left": [tensors, storages, nbytes]}))
"""


def run(gpu, lose):
    if not gpu.simulated:
        pytest.skip("only a simulated device is lost on purpose")
    assert gpu.second
    env = {**os.environ, "SIM_LEDGER": "off"}
    env.pop("SIM_EXIT", None)  # what is done to a lost device is reported
    command = [sys.executable, "-c", PROGRAM, gpu.kind, lose]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_an_error_that_stays_is_of_its_device_alone(gpu, seed, monkeypatch):
    monkeypatch.setenv("SIM_SEED", seed)
    seen = run(gpu, "error")
    assert all("700: an illegal memory access was encountered" in text for text in seen["said"].values()), seen
    assert seen["left"] == [0, 0, 0]


@pytest.mark.parametrize("seed", ["0", "1"])
def test_a_device_that_another_library_resets_is_lost(cuda, seed, monkeypatch):
    monkeypatch.setenv("SIM_SEED", seed)
    seen = run(cuda, "reset")
    words = "cuCtxPushCurrent answered 709: another library has reset the device, which is lost to this process"
    assert all(words in text for text in seen["said"].values()), seen
    assert seen["left"] == [0, 0, 0]


@pytest.mark.parametrize("seed", ["0", "2"])
def test_a_reset_that_rocm_does_not_report_leaves_the_other_device_and_the_process_whole(gpu, seed, monkeypatch):
    """What lay on the device is stale: each use of it says what HIP answered, and none returns bytes."""
    if gpu.kind != "rocm":
        pytest.skip("this is ROCm's alone")
    monkeypatch.setenv("SIM_SEED", seed)
    seen = run(gpu, "reset")
    assert {name for name, text in seen["said"].items() if text == "nothing"} <= {"stream", "wait", "trim"}, seen
    assert all(text == "nothing" or "hip" in text and " answered " in text for text in seen["said"].values()), seen
    assert seen["left"] == [0, 0, 0]
