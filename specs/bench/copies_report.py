"""What the benchmark of copies says: lines, docs/copy.md, and a picture. Knows nothing of how it was measured."""

from report import machine, number, time

__all__ = ["line", "machine", "publish"]
COLUMNS = ("moonferry", "threads", "numpy", "torch", "memmove", "plain walk")

# The share of memmove's speed that a family's rows are to have, and those of transposes of bytes.
GOALS = {"transpose": 0.6, "picture": 0.5, "permute": 0.4, "cast": 0.8}
BYTES_GOAL = 0.4
THREADS_GOAL = 1.7  # of one thread's speed, for two, where one does not fill the bus
FILLED = 0.8  # of what as many threads of memmove reach: the bus is full
BEHIND = 1.05  # of the best peer's time, from which on a row is behind it
# Why a row is behind the best peer, or below its share: what was measured of it.
IN_CACHE = "stays in a cache, where `memmove` is several times as fast as from memory"
REASONS = {
    "every third row and column, float64": "a third of each line is wanted, and lines are what memory gives: counted "
    "in lines, it goes at nine tenths of `memmove`'s speed, as everybody here does.",
    "3001 x 1999 uint8": f"{IN_CACHE}, and its rows are no whole lines: 3008 x 1984, whose are, had 43 %, and "
    "12001 x 7999, which comes from memory, 53 %.",
    "4096 x 4096 float16": "rows that lie 8 KiB apart share few places of the caches: 4160 x 4032 had 81 %.",
    "4096 x 4096 float32": "rows that lie 16 KiB apart share few places of the caches: 3008 x 2000 had 96 %.",
    "4096 x 4096 uint8": "rows that lie 4 KiB apart share few places of the caches; 41 to 43 % in other runs.",
    "32 x 128 x 16 x 64 float32, heads": "rows of 256 bytes, which everybody here copies: 1.01 to 1.07 of PyTorch's "
    "time from one run to the next.",
    "256 x 256 float32": f"{IN_CACHE}. NumPy's arrays begin 16 bytes behind a line; before tiles began with a line, it "
    "took 16.9 instead of 10.8 us.",
    "CHW to HWC, 2 x 1000 x 1001 uint8": f"{IN_CACHE}.",
    "RGBA to RGB planes, 1080 x 1920": f"{IN_CACHE}, and the fourth byte of each pixel is read as well.",
    "64^4 float32, reversed": "each plane has 256 bytes at each of 64 places that lie 1 MiB apart, on both sides, and "
    "waits for them: two threads took 5.9 instead of 12.9 ms.",
    "eight axes, int16": f"{IN_CACHE}; its planes have few elements: two threads took three fifths of the time.",
    "float64 to float16": "at `memmove`'s speed. With AVX2 it is two loops, one to a float rounded to odd, so that it "
    "is rounded once.",
    "float16 to float8_e5m2": "arithmetic, not memory: two threads take half the time.",
    "float32 to float8_e4m3fn": "arithmetic, not memory: two threads take three fifths of the time.",
    "uint8 to float16": "two loops, by way of floats: two threads take three quarters of the time.",
    "float32 to float16, 4096 x 4096, transposed": "columns that lie 16 KiB apart share few places of the caches: "
    "4160 x 4032 had 69 %.",
    "CHW float32 to HWC uint8, 3 x 2160 x 3840": "gathers pixels, then converts them: two threads take two thirds of "
    "the time.",
}
# What two programs that do a row at once reach together, each by itself: so much the two cores give.
TOGETHER = {
    "4096 x 4096 uint8": 1.45,
    "4096 x 4096 float16": 1.50,
    "3001 x 1999 uint8": 1.72,
    "RGBA to RGB planes, 1080 x 1920": 1.92,
    "64^4 float32, reversed": 1.63,
    "eight axes, int16": 1.87,
    "every second column, 4096 x 4096 float32": 0.92,
    "float32 to float16, 4096 x 4096, transposed": 1.53,
    "4096 x 4096 float32, one transposed": 1.64,
}
README_ROWS = ("4096 x 4096 float32", "HWC to CHW, 2160 x 3840 x 3 uint8", "float32 to float16")


def line(row):
    cells = "  ".join(f"{name} {number(ns)}" for name, ns in row["ns"].items())
    head = f"{row['family']:<10} {row['name']:<44} {row['of_peer']:5.2f} of the best peer"
    return f"{head}, {row['share']:6.1%} of memmove | {cells}"


def misses(row):
    """What the row has instead of its goal; "" if it has reached that."""
    goal = BYTES_GOAL if row["family"] == "transpose" and row["name"].endswith("uint8") else GOALS.get(row["family"], 0)
    if row["of_peer"] > BEHIND:
        return f"{row['of_peer']:.2f} of the best peer"
    return f"{row['share']:.0%} instead of {goal:.0%}" if row["share"] < goal else ""


def below_goal(result):
    """A line for each row that is below its goal."""
    for row in result["rows"]:
        if missed := misses(row):
            yield f"* {row['family']}: {row['name']} ({missed}): {REASONS.get(row['name'], 'why is not measured yet.')}"


def gain(row):
    """How many times as fast as one thread several are; None for a row that is too small for them."""
    return row["ns"]["moonferry"] / row["ns"]["threads"] if "threads" in row["ns"] else None


def threads_below_goal(result):
    """A line about the rows that several threads make less than THREADS_GOAL as fast, but do not fill the bus."""
    rows = [row for row in result["rows"] if gain(row)]
    slow = [row for row in rows if gain(row) < THREADS_GOAL and row["share"] * gain(row) < FILLED * result["bus"]]
    least = min(rows, key=gain)
    yield (
        f"With {result['threads']} threads `memmove` is {result['bus']:.2f} times as fast as with one. Rows that reach "
        f"{FILLED:.0%} of that\nfill the bus; the least gain of a row is {gain(least):.2f} ({least['name']}). Rows "
        f"that gain less than {THREADS_GOAL} and\ndo not fill it:"
    )
    yield ""
    for row in slow:
        filled = row["share"] * gain(row) / result["bus"]
        known = (
            f"; two programs at once, each by itself, had {TOGETHER[row['name']]}" if row["name"] in TOGETHER else ""
        )
        yield f"* {row['family']}: {row['name']}: gains {gain(row):.2f}, fills {filled:.0%}{known}"


def markdown(result):
    goals = [f"{share:.0%} for a {family}" for family, share in GOALS.items()] + [f"{BYTES_GOAL:.0%} if it moves bytes"]
    goals.insert(1, goals.pop())
    lines = [
        "# Copies and casts, measured",
        "",
        "`make bench-copy` writes this page: the time of each operation, the least of the rounds of one run in",
        "which all took turns, one thread each. `memmove` copies as many bytes as the operation reads and writes, from",
        "one compact memory to another; the share is its time by Moonferry's. The plain walk is Moonferry without",
        f"kernels; `threads` is Moonferry with {result['threads']}, where the row is large enough for them.",
        "",
        "| operation | " + " | ".join(COLUMNS) + " | of the best peer | share |",
        "| --- |" + " ---: |" * (len(COLUMNS) + 2),
    ]
    for row in result["rows"]:
        cells = [time(row["ns"][name]) if name in row["ns"] else "" for name in COLUMNS]
        cells += [f"{row['of_peer']:.2f}", f"{row['share']:.0%}"]
        lines.append(f"| {row['family']}: {row['name']} | " + " | ".join(cells) + " |")
    lines += [
        "",
        f"What lies below its goal ({BEHIND:.2f} of the best peer's time; a share of {', '.join(goals)}):",
        "",
    ]
    lines += [*below_goal(result), "", *threads_below_goal(result)]
    lines += ["", "![Share of a contiguous copy's speed](copy.png)", ""]
    lines += [f"Measured on: {result['machine']}; kernels of {result['simd']}. {result['load']}", ""]
    return "\n".join(lines)


def picture(result, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = result["rows"][::-1]
    figure, axes = plt.subplots(figsize=(9, 0.24 * len(rows) + 1))
    for shift, name, color in ((0.25, "moonferry", "#2b6cb0"), (0, "numpy", "#b7b7b7"), (-0.25, "torch", "#e0a458")):
        shares = [row["ns"]["memmove"] / row["ns"][name] if name in row["ns"] else 0 for row in rows]
        axes.barh([i + shift for i in range(len(rows))], shares, height=0.25, label=name, color=color)
    axes.set_yticks(range(len(rows)), [f"{row['family']}: {row['name']}" for row in rows], fontsize=7)
    axes.set_xlim(0, 1.6)
    axes.set_xlabel("share of a contiguous copy's speed")
    axes.axvline(1, color="#444444", linewidth=0.8)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)


def readme_table(result):
    """README_ROWS, the first of each name, beside the faster of the peers and memmove."""
    lines = ["| copy | Moonferry | the fastest peer | `memmove` |", "| --- | ---: | ---: | ---: |"]
    for name in README_ROWS:
        row = next(row for row in result["rows"] if row["name"] == name)
        peer = min(("numpy", "torch"), key=lambda who, ns=row["ns"]: ns.get(who, float("inf")))
        ours, theirs, floor = (time(row["ns"][who]) for who in ("moonferry", peer, "memmove"))
        who = {"numpy": "NumPy", "torch": "PyTorch"}[peer]
        lines.append(f"| {row['family']}: {name} | {ours} | {theirs}, {who} | {floor} |")
    return "\n".join(lines)


def publish(result, root):
    (root / "docs" / "copy.md").write_text(markdown(result))
    readme = root / "README.md"
    head, rest = readme.read_text().split("<!-- copy: begin -->\n")
    _, tail = rest.split("<!-- copy: end -->\n")
    marked = f"<!-- copy: begin -->\n{readme_table(result)}\n<!-- copy: end -->\n"
    readme.write_text(head + marked + tail)
    picture(result, root / "docs" / "copy.png")
