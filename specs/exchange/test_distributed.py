"""Each example of examples/distributed in two processes: the values, what was copied, and nothing left in any of them.

What an example prints as `STEP: not copied` or `STEP: copied` is what docs/distributed.md says in its table."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_mpi import ranks

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples" / "distributed"
PAGE = (ROOT / "docs" / "distributed.md").read_text()

# Each example: the module that it needs, how many processes say that nothing is left, and what else it prints.
WANTED = {
    "with_processes.py": ("multiprocessing", 2, r"\[\[2\.0, 4\.0, 6\.0\], \[8\.0, 10\.0, 12\.0\]\]"),
    "with_torch.py": ("torch.distributed", 2, ""),
    "with_mpi.py": ("mpi4py", 2, "heat on the left 200.2, on the right 81.6"),
    "with_mpi.lua": ("mpi4py", 2, "heat on the left 200.2, on the right 81.6"),
    "with_ray.py": ("ray", 3, r"(?s)read-only; process \d+, sum 1\.25e\+11.*read-only; process \d+, sum 3\.75e\+11"),
    "with_ray.lua": ("ray", 1, "the actor's sum\t500000\ttrue"),
    "with_dask.py": ("distributed", 3, r"(?s)40000\d\d for 4000000.*sum 1\.25e\+11.*sum 3\.75e\+11"),
}


def printed(name):
    """What an example prints."""
    interpreter = "luajit" if name.endswith(".lua") else sys.executable
    if name.startswith("with_mpi"):
        return ranks(interpreter, EXAMPLES / name)
    lua = f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;;"
    environment = {**os.environ, "LUA_PATH": lua, "MOONFERRY_PYTHON": sys.executable, "PYTHONUNBUFFERED": ""}
    command = [interpreter, EXAMPLES / name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copies(text):
    """What became of the bytes, step by step."""
    return re.findall(r"^(.+?): (not copied|copied twice|copied)\b", text, re.MULTILINE)


@pytest.mark.parametrize("name", WANTED)
def test_in_two_processes(name):
    module, processes, values = WANTED[name]
    if not importlib.util.find_spec(module):
        pytest.skip(f"{module} is not installed for this Python")
    text = printed(name)
    assert re.search(values, text), text
    left = re.findall(r"tensors=(\d+)|(\d+) tensors", text)
    assert [one or other for one, other in left] == ["0"] * processes, text
    said = re.findall(rf"^\| `{re.escape(name)}` \| (.+?) \| (.+?) \|", PAGE, re.MULTILINE)
    assert said == list(dict.fromkeys(copies(text))) != [], text


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == set(WANTED)
