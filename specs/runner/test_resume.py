"""specs/resume.py: a long check that goes on runs again what can have another result now, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

SPECS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SPECS))
import resume  # noqa: E402


@pytest.fixture
def passed(tmp_path, monkeypatch):
    """Gives what passed before, read anew, in a small project of which two jobs passed; and its folder."""
    for name in ("runtime/src/ring.c", "specs/c/ring_spec.c", "specs/c/view_spec.c", "specs/c/spec.h", "docs/page.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(resume, "ROOT", tmp_path)
    state = tmp_path.parent / "passed.json"
    state.unlink(missing_ok=True)
    before = resume.Passed(state)
    before.add("c.ring", 7)
    before.add("c.view", 5)
    return lambda: resume.Passed(state)


@pytest.mark.parametrize(
    ("changed", "ring", "view"),
    [
        ("docs/page.md", 7, 5),
        ("specs/c/ring_spec.c", None, 5),
        ("specs/c/spec.h", None, None),
        ("runtime/src/ring.c", None, None),
        ("runtime/src/new.c", None, None),
    ],
)
def test_what_changed_decides_what_is_run_again(passed, changed, ring, view):
    assert (passed().count("c.ring"), passed().count("c.view")) == (7, 5)
    (resume.ROOT / changed).write_text("else")
    assert (passed().count("c.ring"), passed().count("c.view")) == (ring, view)


def test_what_never_passed_is_run(passed):
    assert passed().count("c.storage") is None


def test_the_jobs_of_specs_are_known_by_their_files():
    names = {resume.job_of(name) for name in resume.files()}
    assert {"c.ring", "lua.view", "lua.python_environment", "python.test_view", None} <= names
