"""Makes the table and the picture of what the matrix found: matrix.md and matrix.png, in build/matrix/ with the whole
run as matrix.json, or, when they are published, in docs/ without it.

Responsible for words and colours. Must not know how a cell is run.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"

TITLES = {
    "host": "On the host",
    "cuda": "On CUDA (simulated driver)",
    "rocm": "On ROCm (simulated driver)",
}
# What a cell is called, its colour, and what that means.
KINDS = {
    "zero-copy": ("#2a9d6f", "one memory: the same address, and each side sees what is written there"),
    "copied": ("#f2d16b", "the receiver owns its memory, or one end lies on another device"),
    "second process": ("#8ab6d6", "the two cannot live in one process: one copy, into memory that two processes share"),
    "copied on request": ("#c8553d", "refused zero-copy; accepted after copy=True"),
    "refused": ("#d1495b", "refused by one end, and so is Moonferry's copy"),
    "crash": ("#7b2d8b", "a library ended its process"),
    "fault": ("#b00000", "Moonferry was at fault"),
    "missing": ("#d9d9d9", "not installable here, or its environment was not made"),
}
UNALIGNED = "where memory is not aligned to 64 bytes"


def short_time(ns):
    if ns is None:
        return ""
    if ns < 1000:
        return f"{ns} ns"
    return f"{ns / 1000:.1f} µs" if ns < 99950 else f"{ns / 1000:.0f} µs"


def time_of(cell):
    times = cell["checks"].get("time") or {}
    return times.get("python") or times.get("lua")


def versions(cells):
    """The version of each library: the one in its own environment, where it is at both ends."""
    found: dict[str, str] = {}
    for cell in sorted(cells, key=lambda c: c["from"] != c["to"]):
        for name, version in cell["versions"].items():
            found.setdefault(name, version)
    return found


def quoted(text):
    """Names such as __dlpack__ would be bold on a page."""
    return re.sub(r"__\w+__", r"`\g<0>`", text)


def shorten(text, width=110):
    """One line of at most that width, before names are quoted."""
    text = " ".join(str(text).split())
    return quoted(text if len(text) <= width else text[: width - 1] + "…")


# The picture. Places and sizes are in inches, from the top left, so that a cell is of one size in every table.

CELL = (0.42, 0.34)
LEFT, TOP, LABELS, GAP = 1.5, 0.75, 1.0, 0.45
LEGEND = (5.0, 0.5)  # how wide it is, and how high a line of it
GREY = "#606060"


def names_of(result, table):
    return [entry["name"] for entry in result["libraries"] if entry["table"] == table]


def places(result):
    """Where each table begins, where the legend does, and how large the picture is: the host's table, below it the
    devices', and the legend beside them if there is room."""
    found, x, y, wide, bottom = {}, LEFT, TOP + LABELS, LEFT + LEGEND[0], 0.0
    for table in TITLES:
        size = len(names_of(result, table))
        if size:
            found[table] = (x, y)
            right, bottom = x + size * CELL[0], max(bottom, y + size * CELL[1])
            wide = max(wide, right)
            x, y = (right + LEFT + 0.2, y) if table != "host" else (LEFT, bottom + GAP + LABELS)
    beside = x - LEFT - 0.2 + GAP
    lines = len({cell["kind"] for cell in result["cells"]}) + 1
    legend = (beside, y) if x != LEFT and beside + LEGEND[0] <= wide else (LEFT, bottom + GAP)
    bottom = max(bottom + GAP, legend[1] + lines * LEGEND[1] + 0.2)
    return found, legend, (wide + 0.5, bottom)


def draw(result, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["font.family"] = "DejaVu Sans"
    found, legend, (width, height) = places(result)
    figure = plt.figure(figsize=(width, height), dpi=110)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.axis("off")
    ax.text(LEFT, 0.36, "From one array library to another, through Moonferry", fontsize=17, va="center")
    ax.text(LEFT, 0.66, "from the row to the column", fontsize=11, color=GREY, va="center")
    for table, corner in found.items():
        draw_table(ax, result, table, corner)
    draw_legend(ax, result, legend)
    figure.savefig(path)
    plt.close(figure)


def square(ax, x, y, width, height, colour):
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="white", linewidth=1.4))


def corner_mark(ax, x, y):
    """For cells that are less where memory is not aligned to 64 bytes: x and y are the right upper corner."""
    from matplotlib.patches import Polygon

    ax.add_patch(
        Polygon(
            [(x - 0.12, y + 0.012), (x - 0.012, y + 0.012), (x - 0.012, y + 0.12)],
            facecolor=KINDS["copied on request"][0],
        )
    )


def draw_table(ax, result, table, corner):
    x, y = corner
    names = names_of(result, table)
    cells = {(c["from"], c["to"]): c for c in result["cells"] if c["table"] == table}
    for i, name in enumerate(names):
        ax.text(x - 0.09, y + (i + 0.5) * CELL[1], name, fontsize=11, ha="right", va="center")
        at = (x + (i + 0.42) * CELL[0], y - 0.06)
        ax.text(*at, name, fontsize=11, rotation=40, rotation_mode="anchor", ha="left", va="baseline")
    for row, a in enumerate(names):
        for column, b in enumerate(names):
            if (a, b) in cells:
                draw_cell(ax, cells[a, b], x + column * CELL[0], y + row * CELL[1])
    below = y + len(names) * CELL[1] + 0.18
    ax.text(x, below, TITLES[table], fontsize=11, color=GREY, va="center")


def draw_cell(ax, cell, x, y):
    square(ax, x, y, *CELL, KINDS[cell["kind"]][0])
    if cell["checks"].get("sharing", {}).get("unaligned"):
        corner_mark(ax, x + CELL[0], y)


def draw_legend(ax, result, corner):
    x, y = corner
    count = Counter(cell["kind"] for cell in result["cells"])
    for kind, (colour, meaning) in KINDS.items():
        if count[kind]:
            square(ax, x, y, 0.34, 0.3, colour)
            cells = f"{count[kind]} cell" + "s" * (count[kind] != 1)
            ax.text(x + 0.46, y + 0.075, f"{kind}: {cells}", fontsize=11, weight="bold", va="center")
            ax.text(x + 0.46, y + 0.265, meaning, fontsize=10, color=GREY, va="center")
            y += LEGEND[1]
    if any(cell["checks"].get("sharing", {}).get("unaligned") for cell in result["cells"]):
        square(ax, x, y, 0.34, 0.3, KINDS["zero-copy"][0])
        corner_mark(ax, x + 0.34, y)
        meaning = f"{UNALIGNED}: copied, or copied on request"
        ax.text(x + 0.46, y + 0.155, meaning, fontsize=10, color=GREY, va="center")


# The table.


def row_of(cell):
    """The words of one cell, with what differs from a plain zero-copy exchange."""
    words = [cell["kind"]]
    sharing = cell["checks"].get("sharing", {})
    if sharing.get("by"):
        words.append(f"by {sharing['by']}")
    if sharing.get("why"):
        words.append(shorten(sharing["why"]))
    if sharing.get("copy"):
        words.append(f"Moonferry's copy: {shorten(sharing['copy'])}")
    if other := sharing.get("unaligned"):
        why = f" ({shorten(other['why'])})" if other.get("why") else ""
        words.append(f"{other['kind']} {UNALIGNED}{why}")
    words += [shorten(w, 200) for w in [cell.get("missing"), *cell["faults"], *cell["died"].values()] if w]
    return ": ".join(filter(None, [words[0], "; ".join(words[1:])]))


def summary_of(name, result, table):
    """What a library does as the sink of Moonferry's own tensors, and as their source."""
    cells = {(c["from"], c["to"]): c for c in result["cells"] if c["table"] == table}
    return cells.get((name, "Moonferry")), cells.get(("Moonferry", name))


def layouts_in_words(cell):
    seen = (cell or {}).get("checks", {}).get("layouts", {})
    groups: dict[str, list[str]] = {}
    for layout, word in seen.items():
        groups.setdefault(shorten(word, 90), []).append(layout)
    return "; ".join(f"{', '.join(sorted(layouts))}: {word}" for word, layouts in sorted(groups.items()))


def dtypes_in_words(cell):
    seen = (cell or {}).get("checks", {}).get("dtypes", {})
    good = sorted(d for d, word in seen.items() if word == "same bits")
    bad: dict[str, list[str]] = {}
    for dtype, word in seen.items():
        if word != "same bits":
            bad.setdefault(shorten(word.split(": ", 1)[-1], 80), []).append(dtype)
    text = f"{len(good)} bit for bit"
    return "; ".join([text, *(f"not {', '.join(sorted(names))}: {why}" for why, names in bad.items())])


def of_library(entry, result):
    given, taken = summary_of(entry["name"], result, entry["table"])
    lines = [f"### {entry['name']} {versions(result['cells']).get(entry['name'], '')}".rstrip(), ""]
    if entry["note"]:
        lines += [quoted(entry["note"][0].upper() + entry["note"][1:]) + ".", ""]
    for word, cell in (("Given to Moonferry", given), ("Taken from Moonferry", taken)):
        if cell is None or not cell["checks"]:
            lines.append(f"* {word}: {row_of(cell) if cell else 'not run'}.")
            continue
        readonly = cell["checks"].get("readonly", {})
        lines.append(f"* {word}: {row_of(cell)}. Dtypes: {dtypes_in_words(cell)}. Layouts: {layouts_in_words(cell)}.")
        why = f" ({shorten(readonly['why'], 90)})" if readonly.get("why") and readonly["word"] == "refused" else ""
        lines[-1] += f" Read-only: {readonly.get('word', 'not run')}{why}."
    return [*lines, ""]


def counts(cells):
    """How many cells there are of each kind, in words."""
    count = Counter(cell["kind"] for cell in cells)
    return f"{len(cells)} cells: " + ", ".join(f"{count[kind]} {kind}" for kind in KINDS if count[kind])


INTRODUCTION = """# The exchange matrix

What happens to an array of the library on the left when it is passed to Moonferry and from there to the library at
the top.

![The matrix as a picture](matrix.png)

{counts}.

{kinds}

`make matrix` runs every cell in about a quarter of an hour, and writes this page and the picture to
`build/matrix/whole/`. It fails if a cell differs, for worse or for better, from what the entries of its two
libraries imply. These variables choose what it runs:

* `PUBLISH=1` puts the page and the picture here. What is published was measured with `build/timed`; its whole
  result is in `build/matrix/whole-timed/`.
* `SHARE=0.15` runs Moonferry's row and column and that part of the other cells, which each commit draws anew.
  `ONLY="NumPy JAX"` runs the cells between these libraries. Both write to `build/matrix/part/`, and into the last
  whole result, if there is one, so that a part can be published, too.
* `TABLE=cuda` runs the table of one device. With `PUBLISH=1` the other tables on this page stay as they are. Cells
  of devices have no times, so the machine may be busy.

A run that was stopped continues where it stopped, unless something has changed since. `make test` runs the part
that needs no environment of its own, and the simulated devices. `make test-sim-torch` and `make test-sim-jax` make
the environments of PyTorch's and JAX's CUDA builds (1.4 and 0.8 GB). If one is missing, its cells say so, which is
not a failure.

Each cell is a process of its own, which LuaJIT runs (`specs/exchange/pair.lua`). It checks

* memory: addresses, and values that are written on one side, in Moonferry and on the other side, and read
  everywhere; if none of the three may write, the check writes past their protection;
* every dtype that both libraries have, bit for bit, with signalling and negative NaN, infinities and subnormal
  numbers;
* layouts: compact, transposed, sliced, with negative and zero strides, without elements, without axes, with 12
  axes;
* the read-only flag: whether it is kept, refused, or lost, and by which library;
* lifetime: the source is released first, the sink is released first, and {rounds} exchanges, after which nothing is
  left alive and, on the host, the process has not grown;
* time, on the host: both steps together for a float32 array of 4 x 6, each called from Python (from Lua if a second
  process takes part). It is the shortest of many.

On devices each library works on a stream of its own and Moonferry on a third, under 21 orders of the queued work. A
race that the simulated driver reports is a fault.

## Adding a library

A library is one entry in the list of `specs/exchange/host.lua` (`cuda.lua` and `rocm.lua` for devices). It says, in
Python expressions, how the library is imported, makes an array, imports a tensor and reads its elements; and in
what it differs: which dtypes it lacks, which layouts it copies or refuses, whether it respects the read-only flag.
Whatever an entry does not mention is kept and not copied. The comment at the top of that file lists the fields, and
`specs/exchange/rule.py` derives each cell from them. This is the whole entry of ONNX Runtime:

```lua
{onnx}```

If `.venv` does not contain the library, add a line to `specs/exchange/environments/host.txt`. If it conflicts with
what is there, give it a file of its own in that folder and a line in `WANTS` of `specs/exchange/environments.py`;
its cells with libraries of other environments then use a second process. After that `make matrix ONLY="'ONNX
Runtime' Moonferry NumPy"` shows what the library does, and where its entry is wrong.
"""


def with_counts(readme, cells):
    """The README's text, with how many cells there are of each kind."""
    begin, end = "<!-- matrix: begin -->\n", "\n<!-- matrix: end -->"
    before, rest = readme.split(begin)
    return f"{before}{begin}{counts(cells)}.{end}{rest.split(end)[1]}"


def entry_text(name):
    """An entry of host.lua as it stands there."""
    text = (ROOT / "specs" / "exchange" / "host.lua").read_text()
    begin = text.index(f'  {{ name = "{name}"')
    return text[begin : text.index(" },\n\n", begin) + 4]


def kinds_in_words(cells):
    found = {cell["kind"] for cell in cells}
    return "\n".join(f"* {kind}: {meaning}" for kind, (_, meaning) in KINDS.items() if kind in found)


def table_in_words(result, table):
    names = names_of(result, table)
    cells = {(c["from"], c["to"]): c for c in result["cells"] if c["table"] == table}
    lines = [f"## {TITLES[table]}", "", "| from \\ to | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for a in names:
        row = [cells.get((a, b)) for b in names]
        # A simulated driver's time says nothing of a GPU.
        times = [short_time(time_of(c)) if c and table == "host" else "" for c in row]
        words = [f"{c['kind']} {time}".strip() if c else "" for c, time in zip(row, times)]
        lines.append(f"| {a} | " + " | ".join(words) + " |")
    lines += ["", "What each does with Moonferry alone, as source and as sink:", ""]
    for entry in result["libraries"]:
        if entry["table"] == table and entry["name"] != "Moonferry":
            lines += of_library(entry, result)
    plain = ("zero-copy", "copied", "second process")
    other = [c for c in cells.values() if c["kind"] not in plain or c["checks"].get("sharing", {}).get("unaligned")]
    if other:
        lines += ["Cells with a reason:", ""]
        lines += [f"* {c['from']} -> {c['to']}: {row_of(c)}" for c in other] + [""]
    return lines


def markdown(result):
    """The page. `sections` of a result, if there are any, are of tables that it did not run, as they are already."""
    cells = result["cells"]
    sections = result.get("sections", {})
    rounds = max((c["checks"].get("lifetime", {}).get("rounds", 0) for c in cells), default=0)
    words = {"counts": counts(cells), "kinds": kinds_in_words(cells), "rounds": rounds}
    lines = [INTRODUCTION.format(onnx=entry_text("ONNX Runtime"), **words)]
    for table in TITLES:
        if names_of(result, table):
            lines += sections.get(table) or table_in_words(result, table)
    if result.get("ranks"):
        lines += ["## mpi4py, two ranks", "", "`specs/exchange/mpi_ranks.py` under `mpiexec -n 2`. What held:", ""]
        lines += [f"* {name}" for name in result["ranks"]] + [""]
    return "\n".join(lines)


def write(result, folder):
    """The page, the picture and what they are made of. Published in docs/ are the first two, and the README says how
    many cells there are of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "matrix.md").write_text(markdown(result))
    draw(result, folder / "matrix.png")
    if folder == DOCS:
        README.write_text(with_counts(README.read_text(), result["cells"]))
    else:
        (folder / "matrix.json").write_text(json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]).resolve())
