"""Whether a run of the matrix is what the entries of the libraries say.

Responsible for reading a cell's words, for comparing them with those that rule.py derives, and for saying what differs.
A cell that does better than its entries say fails as well, so that these stay true. Must not know how cells are run or
shown, nor why a word is expected. Times are not looked at: they differ from machine to machine.
"""

import re

import rule


def sharing_words(seen, unaligned, is_near):
    def word_of(part):
        return f"{part['kind']} by {part['by']}" if part.get("by") else part["kind"]

    yield "sharing", (word_of(seen), seen.get("why", ""))
    if is_near:
        other = seen.get("unaligned")
        yield "sharing, unaligned", (word_of(other), other.get("why", "")) if other else ("the same", "")
        yield "alignment", ("any" if "second" in unaligned else "64", "")
    if "written" in seen:
        yield "written", (seen["written"], "")


def dtype_word(words, a, b):
    """A dtype's word and reason, with who refused."""
    for end, beginning in ((a, f"{a} -> Moonferry: "), (b, f"Moonferry -> {b}: ")):
        if words.startswith(beginning):
            return f"refused by {end}", words.removeprefix(beginning)
    if words.startswith(f"{b}: "):
        return f"unreadable by {b}", words.removeprefix(f"{b}: ")
    return words, ""


def layout_word(words, a, b):
    """A layout's word and reason, with who refused, and whether Moonferry's copy was taken."""
    if words.startswith(f"{a}: "):
        return f"refused by {a}", words.removeprefix(f"{a}: ")
    refused = re.fullmatch("refused: (.*?)(; Moonferry's copy: (.*))?", words, re.DOTALL)
    if refused:
        return f"refused by {b}, copy {'taken' if refused[3] == 'taken' else 'refused'}", refused[1]
    return words, ""


def found(cell, a, b):
    """Each word of a cell, with the reason beside it, under the names of rule.expected."""
    checks, ends = cell["checks"], (cell["from"], cell["to"])
    is_near = rule.on_host(cell) and not rule.are_far(a, b)
    unaligned = cell["unaligned"].get("sharing", [])
    words = dict(sharing_words(checks["sharing"], unaligned, is_near))
    for name in {*rule.DTYPES, *checks["dtypes"]}:
        words[f"dtype {name}"] = dtype_word(checks["dtypes"].get(name, "not tried"), *ends)
    for name in {*rule.LAYOUTS, *checks["layouts"]}:
        words[f"layout {name}"] = layout_word(checks["layouts"].get(name, "not tried"), *ends)
    words["read-only"] = (checks["readonly"]["word"], checks["readonly"].get("why", ""))
    words["lifetime"] = (checks["lifetime"]["word"], "")
    return words


def differences(cell, a, b):
    """What a cell says that its entries do not, or the other way round: the check, both words, and the trait."""
    wanted, seen = rule.expected(a, b, cell["unaligned"]), found(cell, a, b)
    for name in sorted({*wanted, *seen}):
        word, why = seen.get(name, ("nothing", ""))
        want = wanted.get(name, rule.Word("nothing", "", "rule.py, which knows no such check"))
        if word != want.word:
            reason = f" ({why})" if why else ""
            yield f"{name}: found {word!r}{reason}, expected {want.word!r} by {want.because}"
        elif want.text not in why:
            yield f"{name}: found {word!r} with the reason {why!r}, expected {want.text!r} in it by {want.because}"


def reasons(cell):
    sharing = cell["checks"].get("sharing", {})
    said = [sharing.get("why"), *cell["faults"], *(f"{check}: {why}" for check, why in cell["died"].items())]
    return "; ".join(text for text in said if text)


def failures(cells, entries, strict):
    """Each cell that fails a run, with why: Moonferry at fault, a process ended, or other words than the entries have.
    In a strict run a library that cannot be had fails its cells, too, unless its environment is optional."""
    by_name = {(entry["table"], entry["name"]): entry for entry in entries}
    for cell in cells:
        if cell["kind"] == "missing":
            if strict and not cell.get("optional"):
                yield cell, f"missing: {cell['missing']}"
        elif cell["kind"] in ("fault", "crash"):
            yield cell, f"{cell['kind']}: {reasons(cell)}"
        else:
            a, b = (by_name[cell["table"], cell[end]] for end in ("from", "to"))
            if other := list(differences(cell, a, b)):
                yield cell, "; ".join(other)


def judge(cells, entries, broken, strict=False):
    """Prints what failed and what could not be tried, and returns the exit status. `broken` is what failed beside the
    cells: name -> why."""
    bad = list(failures(cells, entries, strict))
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
    failed, passed = len(bad) + len(broken), len(cells) - len(bad) - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0
