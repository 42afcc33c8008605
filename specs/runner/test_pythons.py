"""specs/pythons: its table says of each CPython what its specs said, or why there is none, and where to get it."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

SPECS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SPECS))


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs it on a machine with CPython 3.11 and 3.13; the status, and the rows of its table by their versions."""
    loader = importlib.machinery.SourceFileLoader("specs_pythons", str(SPECS / "pythons"))
    pythons = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(pythons)
    here = {"3.11": "/here/python3.11", "3.13": "/here/python3.13"}

    def run(*words, found=here, failing=()):
        monkeypatch.setattr(pythons.interpreters, "found", lambda: found)
        monkeypatch.setattr(pythons, "try_python", lambda version, path: ("4000 passed", version not in failing))
        monkeypatch.setattr(sys, "argv", ["pythons", *words])
        status = pythons.main()
        table = capsys.readouterr().out.partition("CPython   result")[2].splitlines()[1:]
        return status, {line.split()[0]: line for line in table}

    return run


def test_it_says_which_it_could_not_get_and_where_they_are(run):
    status, rows = run()
    assert status == 0 and list(rows) == ["3.9", "3.10", *(f"3.{n}" for n in range(11, 16)), "3.13t", "3.14t", "3.15t"]
    assert "4000 passed" in rows["3.11"] and "/here/python3.13" in rows["3.13"]
    for version in set(rows) - {"3.11", "3.13"}:
        assert "this machine has none" in rows[version]
        assert "`make test-platforms` has 3.14 and later, `make test-nogil` those without the GIL" in rows[version]


def test_one_that_is_named_and_is_not_here_is_a_failure(run):
    status, rows = run("3.9", "3.11")
    assert status == 1 and list(rows) == ["3.9", "3.11"] and "this machine has none" in rows["3.9"]


def test_one_that_fails_fails_the_run(run):
    assert run(failing=["3.13"])[0] == 1


def test_a_machine_without_any_is_a_failure(run):
    assert run(found={})[0] == 1
