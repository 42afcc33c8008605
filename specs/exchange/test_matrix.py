"""The matrix's tools: what is worse than the committed run, and that the pages say what was run."""

import copy
import json
import re

import pytest
import report
import verdict
from environments import HERE, ROOT

CELL = {
    "table": "host",
    "from": "A",
    "to": "B",
    "kind": "zero-copy",
    "faults": [],
    "died": {},
    "checks": {
        "sharing": {"kind": "zero-copy"},
        "dtypes": {"bool": "same bits", "int8": "refused"},
        "layouts": {"c": "zero-copy", "empty": "taken", "sliced": "copied by B"},
        "readonly": {"word": "kept"},
    },
}


def changed(**changes):
    cell = copy.deepcopy(CELL)
    for path, value in changes.items():
        *folders, name = path.split("__")
        place = cell
        for folder in folders:
            place = place[folder]
        place[name] = value
    return cell


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"kind": "copied"}, "was zero-copy, is copied"),
        ({"kind": "refused"}, "was zero-copy, is refused"),
        ({"kind": "fault"}, "was zero-copy, is fault"),
        ({"checks__dtypes": {}}, "bool: was same bits, is not tried"),
        ({"checks__dtypes__bool": "other bits"}, "bool: was same bits, is other bits"),
        ({"checks__layouts__c": "copied by B"}, "c: was zero-copy, is copied by B"),
        ({"checks__layouts__sliced": "refused: no"}, "sliced: was copied by B, is refused: no"),
        ({"checks__readonly": {"word": "lost by B"}}, "read-only: was kept, is lost by B"),
    ],
)
def test_what_is_worse(changes, said):
    assert list(verdict.fallen(CELL, changed(**changes))) == [said]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kind": "missing"},
        {"checks__dtypes__int8": "same bits"},
        {"checks__layouts__sliced": "zero-copy"},
        {"checks__time": {"python": 10**9}},
    ],
)
def test_what_is_not_worse(changes):
    assert list(verdict.fallen(CELL, changed(**changes))) == []


def test_a_cell_that_is_worse_is_named(monkeypatch, capsys):
    monkeypatch.setattr(verdict, "committed", lambda: {("host", "A", "B"): CELL})
    assert verdict.judge([changed(kind="copied", checks__sharing={"why": "it is Sunday"})], {}) == 1
    said = capsys.readouterr().out
    assert "not ok host: A -> B: was zero-copy, is copied; it is Sunday" in said
    assert "0 passed, 1 failed, 0 skipped" in said


def test_a_cell_that_is_missing_is_a_skip_with_its_reason(capsys):
    assert verdict.judge([changed(kind="missing", missing="no network")], {}) == 0
    assert "skip 1 cells (A -> B): no network" in capsys.readouterr().out


def test_a_cell_that_is_missing_is_a_failure_of_a_strict_run_but_for_its_time(capsys):
    assert verdict.judge([changed(kind="missing", missing=f"{verdict.NO_TURN} within 3 s")], {}, strict=True) == 0
    assert verdict.judge([changed(kind="missing", missing="no network")], {}, strict=True) == 1
    said = capsys.readouterr().out
    assert "not ok host: A -> B: missing: no network" in said and "0 passed, 1 failed, 0 skipped" in said


def test_two_ranks_that_fail_are_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(verdict, "committed", dict)
    assert verdict.judge([CELL], {"mpi4py, two ranks": "it ended with 1"}) == 1
    said = capsys.readouterr().out
    assert "not ok mpi4py, two ranks: it ended with 1\n1 passed, 1 failed, 0 skipped\n" in said


def test_the_pages_say_what_was_run():
    result = json.loads((ROOT / "docs" / "matrix.json").read_text())
    readme = report.README.read_text()
    assert (ROOT / "docs" / "matrix.md").read_text() == report.markdown(result)
    assert report.with_counts(readme, result["cells"]) == readme
    assert report.entry_text("ONNX Runtime") in readme


def test_the_committed_run_has_no_fault():
    assert [c for c in verdict.committed().values() if c["kind"] in ("fault", "crash", "missing")] == []


@pytest.mark.parametrize("path", sorted(HERE.glob("environments/*.txt")), ids=lambda path: path.stem)
def test_every_requirement_is_pinned(path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert lines and all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
