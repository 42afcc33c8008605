"""How a process ends that has used a device: the driver has everything back, whatever the program still held."""

import os
import subprocess
import sys

import pytest

LIVING = """
import moonferry as mf
kept = mf.zeros((64,), "uint8", device="{kind}")
with mf.Stream("{kind}"):
    more = mf.ones((1 << 20,), "uint8", device="{kind}")
    pinned = kept.to("{kind}_host")
view = more[3:]
"""
CASTING = """
import moonferry as mf
mf.zeros((2, 3), "int32", device="{kind}").astype("float64")
{last}
"""
UNTOUCHED = """
import moonferry as mf
mf.trim()
"""


def run(gpu, program, tmp_path, **settings):
    log = tmp_path / "calls"
    env = {**os.environ, "SIM_EXIT": "9", "SIM_LOG": str(log), **settings}
    env.pop("SIM_LEDGER_OF", None)
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return log.read_text() if log.exists() else ""


@pytest.fixture
def simulated(gpu):
    if not gpu.simulated:
        pytest.skip("only a simulator says what is left")
    return gpu


@pytest.mark.parametrize("seed", ["0", "1", "7"])
def test_living_tensors_leave_nothing(simulated, tmp_path, seed):
    run(simulated, LIVING.format(kind=simulated.kind), tmp_path, SIM_SEED=seed)


@pytest.mark.parametrize("last", ["", "mf.trim()", "mf.trim(); mf.trim()"])
def test_a_kernel_is_unloaded_when_it_has_run(simulated, tmp_path, last):
    """The last cast may be queued yet when the process ends, or when all memory goes back to the driver."""
    run(simulated, CASTING.format(kind=simulated.kind, last=last), tmp_path)


def test_a_trim_of_everything_opens_no_driver(simulated, tmp_path):
    assert run(simulated, UNTOUCHED, tmp_path) == ""
