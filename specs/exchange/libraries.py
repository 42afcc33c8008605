"""Makes docs/libraries.md: the libraries that are tried with Moonferry alone, and those that are no row of a matrix.

Responsible for the page's words. Must not know how a cell is run.
"""

import report

INTRODUCTION = """# More libraries

[The exchange matrix](matrix.md) tries each of its libraries with every other. The libraries on this page were tried
only with Moonferry, by the same checks. Their entries are in `specs/exchange/more.lua`, in the format that that page
explains. `make libraries` runs them in some minutes, in an environment of its own; `make libraries PUBLISH=1` writes
this page.

{counts}.

| library | given to Moonferry | taken from Moonferry | |
|---|---|---|---|
{rows}
"""
OTHERS = """## Without a row in a table

These libraries keep arrays in files or on a GPU of their own, or exchange only NumPy arrays. A program in
`specs/exchange/others.py`, which `make libraries` runs, too, checks each line, except those "by hand" or "not run".

| library | what it does |
|---|---|
{rows}
"""


def word(cell):
    return f"{cell['kind']} {report.short_time(report.time_of(cell))}".strip() if cell else "not run"


def row(entry, result):
    given, taken = report.summary_of(entry["name"], result, entry["table"])
    note = entry["note"][:1].upper() + entry["note"][1:]
    return f"| {entry['name']} | {word(given)} | {word(taken)} | {note} |"


def page(result, others):
    entries = [entry for entry in result["libraries"] if entry["name"] != "Moonferry"]
    rows = "\n".join(row(entry, result) for entry in entries)
    lines = [INTRODUCTION.format(counts=report.counts(result["cells"]), rows=rows)]
    for entry in entries:
        lines += report.of_library(entry, result)
    lines.append(OTHERS.format(rows="\n".join(f"| {other.name} | {other.words} |" for other in others)))
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"
