"""Every ending of cases.py, as often as MOONFERRY_SPEC_LIVES says (3 unless told): it ends as it should each time.

A program that dies, hangs, prints more or prints less fails. docs/life.md lists the same cases.
"""

import os
import subprocess
import sys
from pathlib import Path

import cases
import pytest

ROOT = Path(__file__).resolve().parents[2]
LIVES = int(os.environ.get("MOONFERRY_SPEC_LIVES", "3"))
HOSTS = {"lua": (["luajit"], cases.LUA, ".lua"), "python": ([sys.executable], cases.PYTHON, ".py")}


def end_of(case, folder):
    """(status, everything printed) of one process."""
    command, prologue, suffix = HOSTS[case.host]
    program = folder / f"program{suffix}"
    program.write_text(prologue + case.program)
    environment = {**os.environ, "MOONFERRY_PYTHON": sys.executable, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(
        [*command, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, env=environment
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: f"{case.host}: {case.name}")
def test_it_ends_well(case, tmp_path):
    for life in range(LIVES):
        status, said = end_of(case, tmp_path)
        assert (said, status) == (case.says, case.status), f"life {life + 1} of {LIVES}"


def test_the_page_lists_every_case():
    page = (ROOT / "docs" / "life.md").read_text()
    assert [case.name for case in cases.CASES if f"| {case.name} |" not in page] == []
