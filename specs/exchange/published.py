"""The page as it was published last, read back: what a run of some tables leaves of the others.

Responsible for each table's section, word for word, and of its cells for what the picture and the counts need: their
kind, and whether they are less where memory is not aligned. Must not know how a cell is run, nor how a page is drawn.
"""

from kept import keys
from report import KINDS, TITLES, UNALIGNED

LONGEST_FIRST = sorted(KINDS, key=len, reverse=True)


def section(page, heading):
    """The lines from a heading to the next; none if the page has no such heading."""
    _, found, rest = page.partition(f"\n## {heading}\n")
    return [f"## {heading}", *rest.split("\n## ")[0].splitlines(), ""] if found else []


def kind_of(words):
    return next(kind for kind in LONGEST_FIRST if words.startswith(kind))


def cells_of(lines, table):
    """The cells of a section, in the order of its table."""
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    columns = rows[0][1:] if rows else []
    less = {line[2:].split(": ")[0] for line in lines if line.startswith("* ") and UNALIGNED in line}
    for name, *words in rows[1:]:
        for to, word in zip(columns, words):
            sharing = {"unaligned": True} if f"{name} -> {to}" in less else {}
            cell = {"table": table, "from": name, "to": to, "kind": kind_of(word)}
            yield {**cell, "checks": {"sharing": sharing}, "versions": {}}


def completed(result, entries, page):
    """The result with those tables of which it has no cell, as the page has them, and the pairs that are in neither."""
    cells = {(cell["table"], cell["from"], cell["to"]): cell for cell in result["cells"]}
    sections = {}
    for table in TITLES.keys() - {cell["table"] for cell in result["cells"]}:
        sections[table] = section(page, TITLES[table])
        cells |= {(table, cell["from"], cell["to"]): cell for cell in cells_of(sections[table], table)}
    wanted = keys((a, b) for table in TITLES for a in entries for b in entries if a["table"] == b["table"] == table)
    found = {**result, "libraries": entries, "cells": [cells[pair] for pair in wanted if pair in cells]}
    found["ranks"] = result["ranks"] or [line[2:] for line in section(page, "mpi4py, two ranks") if line[:2] == "* "]
    return {**found, "sections": sections}, [pair for pair in wanted if pair not in cells]
