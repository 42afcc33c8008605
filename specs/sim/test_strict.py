"""The page's list of what the simulated driver is strict in: that each spec which it names is there.

What the list must have is written down here, so that nothing drops out of it.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVERS, OURS = ["specs/sim/cuda"], ["specs/gpu", "specs/python/gpu"]
WHAT = [
    *("handles", "legacy", "loads and stores", "pool", "capture", "errors"),
    *("threads", "managed", "pitches", "entry points", "reset", "history"),
]


def rows():
    lines = (ROOT / "sim" / "README.md").read_text().splitlines()
    begin = lines.index("| what is strict | the simulated driver's | Moonferry's |") + 2
    end = lines.index("", begin)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[begin:end]]


def named(cell):
    for part in cell.split("; "):
        file, names = re.fullmatch(r"`(\w+)`: (.*)", part).groups()
        for name in re.sub(r" \(.*", "", names).split(", "):
            yield file, name


def text_of(file, folders):
    [path] = [p for folder in folders for ending in ("c", "py") for p in (ROOT / folder).glob(f"{file}.{ending}")]
    return path.read_text()


def test_the_list_is_whole():
    assert len(rows()) == len(WHAT)
    for row, word in zip(rows(), WHAT):
        assert word in row[0], row


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_spec_is_there(row):
    for cell, folders in zip(row[1:], (DRIVERS, OURS)):
        for file, name in named(cell) if cell != "no part of it" else []:
            text = text_of(file, folders)
            found = re.search(rf"^(static void|def) {name}\(", text, re.MULTILINE)
            assert found and (file.startswith("test_") or text.count(name) > 1), f"{file}: {name}"
