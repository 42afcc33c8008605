"""docs/platforms.md: each platform has one row, which says what ran there and when."""

import datetime
import importlib.machinery
import importlib.util
import re
import sys
from pathlib import Path

import pytest

SPECS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SPECS))
import platforms_table  # noqa: E402

TODAY = str(datetime.date.today())


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page with two rows and words around them; gives its lines."""
    path = tmp_path / "platforms.md"
    rows = [f"| {name} | its versions | 1 | 2026-01-02 |" for name in ("musl", "CPython 3.9")]
    path.write_text(
        "\n".join(["# Platforms", "", platforms_table.HEAD, "| --- | --- | --- | --- |", *rows, "", "Words."])
    )
    monkeypatch.setattr(platforms_table, "PAGE", path)
    return lambda: path.read_text().splitlines()


def test_a_row_takes_the_place_of_the_one_before(page):
    before = page()
    platforms_table.publish("musl", "musl 2", "C: 3")
    assert page() == [*before[:4], f"| musl | musl 2 | C: 3 | {TODAY} |", *before[5:]]


def test_a_new_platform_comes_last(page):
    before = page()
    platforms_table.publish("CPython 3.10", "CPython 3.10.1", "Python: 5")
    assert page() == [*before[:6], f"| CPython 3.10 | CPython 3.10.1 | Python: 5 | {TODAY} |", *before[6:]]


def test_a_cpythons_row_has_what_its_specs_said(page, tmp_path, monkeypatch):
    loader = importlib.machinery.SourceFileLoader("specs_pythons", str(SPECS / "pythons"))
    pythons = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(pythons)
    monkeypatch.setattr(pythons, "ROOT", tmp_path)
    (tmp_path / "build/pythons/3.9/venv/bin").mkdir(parents=True)
    python = tmp_path / "build/pythons/3.9/venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')  # a link would be another environment's interpreter
    python.chmod(0o755)
    pythons.publish("3.9", "4000 passed, 12 skipped in 60.1s; Lua hosts it: 333 passed; ends: 53 passed, 5 skipped")
    said = r"\| CPython 3\.9 \| CPython [\d.]+, NumPy [\d.]+, x86-64 \| "
    said += r"Python: 4000, Lua that hosts it: 333, endings: 53 \| "
    assert re.match(said, page()[5])
    before = page()
    pythons.publish("3.13t", "1 passed; Lua hosts it: 1 passed; ends: 1 passed")
    assert page() == before
