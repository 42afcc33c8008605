"""JAX's CUDA build on the simulated driver: what goes without compiled code, under each of some seeds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MOONFERRY = ROOT / "build" / "dev" / "bin" / "moonferry"
PROGRAM = Path(__file__).with_name("program.py")
SEEDS = int(os.environ.get("MOONFERRY_SPEC_SEEDS", "20"))


def run(case, seeds=SEEDS):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "build" / "dev" / "python")}
    command = [MOONFERRY, "sim", "--no-ledger", "--seeds", str(seeds), "--", sys.executable, PROGRAM, case]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)


@pytest.mark.parametrize("case", ["arrays", "from_jax", "to_jax", "there_and_back", "layouts"])
def test_it_is_right_and_nothing_is_found(case):
    done = run(case)
    assert (done.returncode, done.stdout) == (0, "done\n" * SEEDS), done.stderr
    assert f"moonferry sim: 0 findings; {SEEDS} runs" in done.stderr


def test_a_missing_wait_is_reported_under_every_seed():
    done = run("nobody_waits", seeds=4)
    assert done.returncode == 1, done.stderr
    assert "cuMemsetD32Async" in done.stderr and "xla_cuda_plugin.so" in done.stderr
    assert "must wait for stream" in done.stderr and "seen   under all seeds 0 to 3" in done.stderr


def test_what_must_be_compiled_is_out_of_reach():
    """It ends where the page says."""
    done = run("computed", seeds=1)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
