"""The checks of the matrix notice what they are for: seeded.lua has the mistakes."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def test_each_seeded_mistake_is_noticed_and_no_other():
    lua = f"{HERE.parent.parent}/lua/?.lua;{HERE.parent.parent}/lua/?/init.lua;;"
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(HERE)])
    environment = {**os.environ, "LUA_PATH": lua, "PYTHONPATH": path, "MOONFERRY_PYTHON": sys.executable}
    command = ["luajit", str(HERE / "seeded.lua")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 19
    assert not [line for line in lines if not line.startswith("ok ")]
