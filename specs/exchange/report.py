"""Makes the table and the picture of what the matrix found: docs/matrix.json, docs/matrix.md, docs/matrix.png.

Responsible for words and colours. Must not know how a cell is run.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"

TITLES = {
    "host": "On the host",
    "cuda": "On CUDA (simulated driver)",
    "rocm": "On ROCm (simulated driver)",
}
# What a cell is called, its colour, and what that means.
KINDS = {
    "zero-copy": ("#2a9d6f", "one memory: the same address, and each side sees what the other writes"),
    "copied": ("#e9c46a", "a copy, because one end owns its memory"),
    "second process": ("#8ab6d6", "one copy into shared memory, which a second process has too"),
    "copied on request": ("#f4a261", "refused as it is; the copy that Moonferry makes when asked is taken"),
    "refused": ("#e76f51", "refused by one end, and so is Moonferry's copy"),
    "crash": ("#b23a48", "a library ended its process"),
    "fault": ("#d00000", "Moonferry was at fault"),
    "missing": ("#d9d9d9", "not installable here"),
}


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


def shorten(text, width=110):
    text = " ".join(str(text).split())
    return text if len(text) <= width else text[: width - 1] + "…"


# The picture.


def draw(result, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    tables = [t for t in TITLES if any(e["table"] == t for e in result["libraries"])]
    sizes = [sum(e["table"] == t for e in result["libraries"]) for t in tables]
    wide, rest = sizes[0], sizes[1:]
    plt.rcParams["font.family"] = "DejaVu Sans"
    figure = plt.figure(figsize=(0.66 * wide + 2.6, 0.44 * wide + (0.44 * max(rest) + 3.6 if rest else 2.6)), dpi=130)
    if rest:
        grid = figure.add_gridspec(2, 1, height_ratios=[wide, max(rest) + 1], hspace=0.27)
        axes = [figure.add_subplot(grid[0])]
        below = grid[1].subgridspec(1, len(rest) + 1, width_ratios=[*rest, 6], wspace=0.55)
        axes += [figure.add_subplot(below[i]) for i in range(len(rest))]
    else:
        axes = [figure.add_subplot()]
    for table, ax in zip(tables, axes):
        panel(ax, result, table)
    seen = {cell["kind"] for cell in result["cells"]}
    handles = [Patch(facecolor=KINDS[k][0], label=f"{k}: {KINDS[k][1]}") for k in KINDS if k in seen]
    figure.legend(handles=handles, loc="lower right", bbox_to_anchor=(0.985, 0.035), frameon=False, fontsize=9)
    figure.suptitle("From one array library to another, through Moonferry", fontsize=15, x=0.5, y=0.985)
    figure.subplots_adjust(left=0.12, right=0.985, top=0.87, bottom=0.04)
    figure.savefig(path)


def panel(ax, result, table):
    names = [entry["name"] for entry in result["libraries"] if entry["table"] == table]
    cells = {(c["from"], c["to"]): c for c in result["cells"] if c["table"] == table}
    for row, a in enumerate(names):
        for column, b in enumerate(names):
            cell = cells.get((a, b))
            if cell is None:
                continue
            colour = KINDS[cell["kind"]][0]
            ax.add_patch(plt_rectangle(column, row, colour))
            dark = cell["kind"] in ("crash", "fault", "zero-copy")
            ax.text(
                column + 0.5,
                row + 0.5,
                short_time(time_of(cell)),
                ha="center",
                va="center",
                fontsize=7.2,
                color="white" if dark else "#202020",
            )
    ax.set_xlim(0, len(names))
    ax.set_ylim(len(names), 0)
    ax.set_xticks(
        [i + 0.5 for i in range(len(names))], names, rotation=38, ha="left", rotation_mode="anchor", fontsize=9
    )
    ax.set_yticks([i + 0.5 for i in range(len(names))], names, fontsize=9)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_ylabel("from", fontsize=9, color="#606060")
    ax.set_xlabel(f"{TITLES[table]}; to the column", fontsize=9, color="#606060")


def plt_rectangle(column, row, colour):
    from matplotlib.patches import Rectangle

    return Rectangle((column, row), 1, 1, facecolor=colour, edgecolor="white", linewidth=1.4)


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
        lines += [entry["note"][0].upper() + entry["note"][1:] + ".", ""]
    for word, cell in (("Given to Moonferry", given), ("Taken from Moonferry", taken)):
        if cell is None or not cell["checks"]:
            lines.append(f"* {word}: {row_of(cell) if cell else 'not run'}.")
            continue
        readonly = cell["checks"].get("readonly", {})
        lines.append(f"* {word}: {row_of(cell)}. Dtypes: {dtypes_in_words(cell)}. Layouts: {layouts_in_words(cell)}.")
        why = f" ({shorten(readonly['why'], 90)})" if readonly.get("why") and readonly["word"] == "refused" else ""
        lines[-1] += f" Read-only: {readonly.get('word', 'not run')}{why}."
    return [*lines, ""]


def markdown(result):
    lines = [
        "# The exchange matrix",
        "",
        "What becomes of an array of the library on the left, given to Moonferry and from there to the library at the",
        "top. `make matrix` makes this page, `matrix.json` and the picture; `specs/exchange/` has the Lua that is run.",
        "",
        "![The matrix as a picture](matrix.png)",
        "",
        "The time is that of both steps together for a float32 array of 4 x 6, each called from Python (where a second",
        "process takes part: from Lua, with question and answer). On a simulated driver it says nothing of a GPU.",
        "",
    ]
    for table, title in TITLES.items():
        names = [e["name"] for e in result["libraries"] if e["table"] == table]
        if not names:
            continue
        cells = {(c["from"], c["to"]): c for c in result["cells"] if c["table"] == table}
        lines += [f"## {title}", "", "| from \\ to | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for a in names:
            row = [cells.get((a, b)) for b in names]
            lines.append(
                f"| {a} | "
                + " | ".join(f"{c['kind']} {short_time(time_of(c))}".strip() if c else "" for c in row)
                + " |"
            )
        lines += ["", "What each does with Moonferry alone, as source and as sink:", ""]
        for entry in result["libraries"]:
            if entry["table"] == table and entry["name"] != "Moonferry":
                lines += of_library(entry, result)
        other = [c for c in cells.values() if c["kind"] not in ("zero-copy", "copied", "second process")]
        if other:
            lines += ["Cells that are neither shared nor copied:", ""]
            lines += [f"* {c['from']} -> {c['to']}: {row_of(c)}" for c in other] + [""]
    if result.get("ranks"):
        lines += ["## mpi4py, two ranks", "", "`specs/exchange/mpi_ranks.py` under `mpiexec -n 2`. What held:", ""]
        lines += [f"* {name}" for name in result["ranks"]] + [""]
    return "\n".join(lines)


def write(result, folder=DOCS):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "matrix.json").write_text(json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    (folder / "matrix.md").write_text(markdown(result))
    draw(result, folder / "matrix.png")


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]) if sys.argv[2:] else DOCS)
