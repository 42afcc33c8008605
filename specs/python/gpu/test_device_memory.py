"""Memory over many calls with streams and devices: they leave nothing behind, to the byte."""

import json
import os
import subprocess
import sys
from pathlib import Path

GROWTH = Path(__file__).with_name("device_growth.py")
sys.path.insert(0, str(GROWTH.parents[2]))
import allocated  # noqa: E402

ROUNDS = 200  # of left_by; the smallest block is larger than a byte


def test_calls_leave_nothing(the_driver):
    def growth(*names):
        done = subprocess.run([sys.executable, str(GROWTH), the_driver.kind, *names], capture_output=True, text=True,
                              env={**os.environ, **allocated.EXACT})  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    left = growth(*growth())
    assert len(left) > 20
    assert {name: nbytes for name, nbytes in left.items() if nbytes >= ROUNDS} == {}
