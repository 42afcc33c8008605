"""The program where an output cannot be written, or the working folder is gone."""

import json
import os
import subprocess
import sys

import pytest
from programs import MOONFERRY


@pytest.mark.parametrize(
    ("words", "status"), [("doctor --json missing", 2), ("doctor --help", 2), ("sim --help", 125), ("--help", 1)]
)
def test_what_cannot_be_printed_is_no_success(words, status):
    for stream, why in ((">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")):
        done = subprocess.run(["sh", "-c", f"{MOONFERRY} {words} {stream}"], capture_output=True, text=True)
        said = f"moonferry: cannot write to the standard output: {why}\n"
        assert (done.returncode, done.stderr) == (status, said)


def test_a_working_folder_that_was_deleted(tmp_path):
    gone = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" "$@"'
    env = {**os.environ, "MOONFERRY_PYTHON": sys.executable}

    def run(*words):
        command = ["sh", "-c", gone, MOONFERRY, *words]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    done = run("check", "numpy", "--rule", "copy-true")
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["numpy: 1 holds"]), done.stderr
    found = json.loads(run("doctor", "--json", "numpy").stdout)
    assert found["python"]["lua"]["available"] and found["libraries"]["numpy"]["importable"]
