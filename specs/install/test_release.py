"""What `make dist` makes of the tree: a whole source archive, links that lead somewhere, notes, one version."""

import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STATES_IT = ("pyproject.toml", "CMakeLists.txt", "runtime/include/moonferry.h", "CHANGELOG.md")


@pytest.fixture(scope="module")
def dist():
    loader = importlib.machinery.SourceFileLoader("release_dist", str(ROOT / "specs/release/dist"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def stage(tmp_path):
    """The files that a release is made of, as far as these functions look."""
    for name in (*STATES_IT, "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_source_archive_has_every_file(dist, tmp_path):
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if not member.isdir()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    wanted = {name for name in listed if name and (ROOT / name).exists()}
    assert wanted - names == dist.LEFT_OUT


@pytest.mark.parametrize("name", STATES_IT)
def test_one_version_everywhere(dist, stage, name, capsys):
    assert dist.version_of(stage) == "0.1.0"
    text = (stage / name).read_text()
    (stage / name).write_text(re.sub(r"\b0\.1\.0\b", "0.1.1", text, count=1))
    with pytest.raises(SystemExit, match=r"state different versions.*0\.1\.1"):
        dist.version_of(stage)


def test_the_readme_of_a_release_has_no_path_in_the_tree(dist, stage):
    dist.name_addresses(stage, "0.1.0", "https://forge.example/it")
    text = (stage / "README.md").read_text()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert "https://forge.example/it/raw/v0.1.0/docs/ferry.png" in links
    assert "https://forge.example/it/blob/v0.1.0/docs/streams.md" in links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert (
        'Source = "https://forge.example/it"\n' in (stage / "pyproject.toml").read_text().partition("[project.urls]")[2]
    )


def test_the_notes_are_the_changelogs_part(dist, stage, monkeypatch, tmp_path):
    monkeypatch.setattr(dist, "DIST", tmp_path)
    (stage / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0\n\nNew.\n\n## 0.1.0, 2026-12-01\n\nOld.\n")
    dist.make_notes(stage, "0.2.0")
    dist.make_notes(stage, "0.1.0")
    assert (tmp_path / "moonferry-0.2.0.md").read_text() == "# Moonferry 0.2.0\n\nNew.\n"
    assert (tmp_path / "moonferry-0.1.0.md").read_text() == "# Moonferry 0.1.0\n\nOld.\n"
    with pytest.raises(SystemExit, match="nothing on 0.3.0"):
        dist.make_notes(stage, "0.3.0")
