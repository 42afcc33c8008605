"""PyTorch's own DLPack tests, with Moonferry between producer and consumer: `own_tests`, which fetches them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

OWN_TESTS = Path(__file__).with_name("own_tests")


def test_pytorchs_own_tests_with_moonferry_in_between():
    done = subprocess.run([sys.executable, OWN_TESTS], capture_output=True, text=True, timeout=900)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (crossed,) = re.findall(r"(\d+) capsules came through Moonferry", done.stdout)
    assert int(crossed) > 300 and " failed" not in done.stdout, done.stdout[-2000:]
