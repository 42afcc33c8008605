"""What a run of the matrix leaves for later ones: its finished cells, should it be ended, and the last whole result.

Responsible for build/matrix/begun/, a file for each run under way with a line for each cell as it is finished, and for
build/matrix/whole/matrix.json, into which a part is merged; for each build of Moonferry another, since times are in it.
Invariant: a cell is taken over only by a run of the same cells with the same code, and only if it is neither a fault
nor a crash, which may be the kill's own. Must not know how a cell is run or judged.
"""

import hashlib
import json
import os

from entries import TABLES
from environments import BUILD, BUILT, HERE, ROOT, say


def folder_of(built):
    """Where the last whole result of a build is."""
    return BUILD / ("whole" if built.name == "dev" else f"whole-{built.name}")


WHOLE = folder_of(BUILT)
UNFIT = ("fault", "crash", "missing")


def key(cell):
    return cell["table"], cell["from"], cell["to"]


def keys(pairs):
    return [(a["table"], a["name"], b["name"]) for a, b in pairs]


def code():
    """The digest of all that decides what a cell finds: Moonferry as it is built, and the matrix's own files."""
    found = hashlib.sha256(os.environ.get("MATRIX_ROUNDS", "").encode())
    for folder in (BUILT / "python", ROOT / "lua", HERE):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


class Begun:
    """The cells of a run that are finished already, in a file that is gone when the run has come to its end."""

    def __init__(self, pairs, folder=BUILD / "begun"):
        now, wanted = code(), keys(pairs)
        self.path = folder / f"{now}-{hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:16]}.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        for other in folder.glob("*.jsonl"):
            if not other.name.startswith(now):
                other.unlink()
        self.cells = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                cell = json.loads(line)
            except json.JSONDecodeError:  # the kill came while it was written
                continue
            self.cells[key(cell)] = cell
        if self.cells:
            say(f"{len(self.cells)} of {len(pairs)} cells are those of the run that was ended")
            self.path.write_text("".join(json.dumps(cell) + "\n" for cell in self.cells.values()))

    def add(self, cell):
        if cell["kind"] not in UNFIT:
            with self.path.open("a") as file:
                file.write(json.dumps(cell) + "\n")

    def end(self):
        self.path.unlink(missing_ok=True)


def merged(result, entries, path=WHOLE / "matrix.json"):
    """The last whole result with the cells of this one in it, and the pairs of these entries that are in neither."""
    last = json.loads(path.read_text()) if path.exists() else {"cells": []}
    cells = {key(cell): cell for cell in [*last["cells"], *result["cells"]]}
    wanted = keys((a, b) for table in TABLES for a in entries for b in entries if a["table"] == b["table"] == table)
    lacking = [pair for pair in wanted if pair not in cells]
    found = {**last, **result, "libraries": entries, "cells": [cells[pair] for pair in wanted if pair in cells]}
    return {**found, "ranks": result["ranks"] or last.get("ranks", [])}, lacking
