"""Whether a run of the matrix is worse than the one that is committed.

Responsible for what counts as worse, cell by cell, and for saying it. Must not know how cells are run or shown. Times
are not looked at: they differ from machine to machine.
"""

import json
import subprocess

from environments import ROOT

# From the best to the worst. "missing" is what this machine could not try, and says nothing of Moonferry.
KINDS = ["zero-copy", "copied", "second process", "copied on request", "refused", "crash", "fault"]
# How the reason begins of a cell for which the time was not enough.
NO_TURN = "it was not its turn"
LAYOUTS = ["zero-copy", "taken", "copied", "refused"]


def committed():
    """The cells of docs/matrix.json at HEAD by table and ends; of the file itself where there is no git."""
    asked = subprocess.run(["git", "show", "HEAD:docs/matrix.json"], cwd=ROOT, capture_output=True, text=True)
    text = asked.stdout if asked.returncode == 0 else (ROOT / "docs" / "matrix.json").read_text()
    return {(c["table"], c["from"], c["to"]): c for c in json.loads(text)["cells"]}


def rank(words, order):
    """The place of the word that the text begins with; of no known word the last but one, a refusal's reason."""
    return next((i for i, word in enumerate(order) if words.startswith(word)), len(order) - 1)


def fallen(before, now):
    """What is worse in one cell now than before, in words."""
    if "missing" in (before["kind"], now["kind"]):
        return
    if KINDS.index(now["kind"]) > KINDS.index(before["kind"]):
        yield f"was {before['kind']}, is {now['kind']}"
        return
    old, new = before["checks"], now["checks"]
    for dtype, words in old.get("dtypes", {}).items():
        if words == "same bits" and new.get("dtypes", {}).get(dtype) != words:
            yield f"{dtype}: was {words}, is {new.get('dtypes', {}).get(dtype, 'not tried')}"
    for layout, words in old.get("layouts", {}).items():
        seen = new.get("layouts", {}).get(layout, "refused: not tried")
        if rank(seen, LAYOUTS) > rank(words, LAYOUTS):
            yield f"{layout}: was {words}, is {seen}"
    if old.get("readonly", {}).get("word") == "kept" and new.get("readonly", {}).get("word", "").startswith("lost"):
        yield f"read-only: was kept, is {new['readonly']['word']}"


def reasons(cell):
    sharing = cell["checks"].get("sharing", {})
    said = [sharing.get("why"), *cell["faults"], *(f"{check}: {why}" for check, why in cell["died"].items())]
    return "; ".join(text for text in said if text)


def failures(cells, strict):
    """Each cell that fails a run, with why: Moonferry at fault, a process ended, or less than what is committed. In a
    strict run a library that cannot be had fails its cells, too."""
    before = committed()
    for cell in cells:
        if strict and cell["kind"] == "missing" and not cell["missing"].startswith(NO_TURN):
            yield cell, f"missing: {cell['missing']}"
            continue
        where = (cell["table"], cell["from"], cell["to"])
        if cell["kind"] in ("fault", "crash"):
            yield cell, f"{cell['kind']}: {reasons(cell)}"
        elif where in before:
            worse = list(fallen(before[where], cell))
            if worse:
                yield cell, "; ".join(filter(None, [*worse, reasons(cell)]))


def judge(cells, broken, strict=False):
    """Prints what failed and what could not be tried, and returns the exit status. `broken` is what failed beside the
    cells: name -> why."""
    bad = list(failures(cells, strict))
    for cell, why in bad:
        print(f"not ok {cell['table']}: {cell['from']} -> {cell['to']}: {why[:900]}")
    for name, why in broken.items():
        print(f"not ok {name}: {why}")
    missing: dict[str, list[str]] = {}
    for cell in cells:
        if cell["kind"] == "missing" and not any(cell is failed for failed, _ in bad):
            missing.setdefault(cell["missing"], []).append(f"{cell['from']} -> {cell['to']}")
    for why, names in missing.items():
        print(f"skip {len(names)} cells ({names[0]}{', ...' if len(names) > 1 else ''}): {why}")
    skipped = sum(len(names) for names in missing.values())
    failed = len(bad) + len(broken)
    print(f"{len(cells) - len(bad) - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
