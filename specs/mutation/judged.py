"""Which functions need no run: those of whose mutants each is caught by some spec, or listed.

A run of all takes many hours, and a new machine knows none of the verdicts. So the list `judged` has these functions,
with a stamp that holds as long as neither the lines of their mutants change nor the rules by which those are found.
That specs go on noticing them is what the draw of `make test` is for. Must not know: who noticed what.
"""

import hashlib
from pathlib import Path

from .find import listed_as

FILE = Path(__file__).with_name("judged")
HEAD = "# Functions whose mutants are all caught or listed, with stamps (judged.py). Written by specs/mutants alone.\n"


def functions_of(mutants):
    """(file, function) -> its mutants."""
    functions = {}
    for mutant in mutants:
        functions.setdefault((listed_as(mutant.path), mutant.function), []).append(mutant)
    return functions


def stamp(mutants):
    text = "".join(f"{m.place}: {m.old} -> {m.new}\n" for m in mutants)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read():
    """(file, function) -> stamp."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    entries = (line.split() for line in lines if not line.startswith("#"))
    return {(file, function): mark for file, function, mark in entries}


def write(entries):
    lines = (" ".join((*key, mark)) + "\n" for key, mark in sorted(entries.items()))
    FILE.write_text(HEAD + "".join(lines))


def update(every, is_fine):
    """Stamps the functions of which each mutant is fine, and drops what has changed since."""
    entries = read()
    for key, mutants in functions_of(every).items():
        if all(map(is_fine, mutants)):
            entries[key] = stamp(mutants)
        elif entries.get(key) != stamp(mutants):
            entries.pop(key, None)
    write(entries)


def left(mutants, every):
    """Of the mutants those of functions without a stamp that holds."""
    entries, functions = read(), functions_of(every)
    judged = {key for key, of in functions.items() if entries.get(key) == stamp(of)}
    return [m for m in mutants if (listed_as(m.path), m.function) not in judged]
