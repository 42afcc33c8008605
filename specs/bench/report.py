"""What the benchmark says: its result as text, as Markdown, and as a picture. Knows nothing of how it was measured."""

import os
import platform
import re

LIBRARIES = ["moonferry", "numpy", "torch", "tvm-ffi", "nanobind", "jax"]
# What no library can be faster than; the others of a row are peers.
FLOORS = ("gcc -O2", "memcpy", "lua_pcall", "PyObject_Vectorcall")
# What the README shows of it.
SHOWN = ["from_dlpack(PyTorch tensor)", "Python calls a Lua function of two numbers",
         "Lua calls a Python function of two numbers"]  # fmt: skip


def machine():
    import importlib.metadata as metadata

    cpu = platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as info:
            names = re.findall(r"model name\s*: (.*)", info.read())
        cpu = names[0] if names else cpu
    names = ["numpy", "torch", "apache-tvm-ffi", "nanobind", "jax", "lupa"]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    return f"{cpu}, {os.cpu_count()} cores, CPython {platform.python_version()}, {versions}"


def number(value):
    """A time in nanoseconds, to the digits that a measurement carries; a unit stands where it is another one."""
    if value >= 999_500:
        return f"{value / 1e6:.3g} ms"
    if value >= 9_995:
        return f"{value / 1e3:.3g} µs"
    if abs(value) < 1:
        return f"{value:.2g}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def time(ns):
    text = number(ns)
    return text if text.endswith("s") else f"{text} ns"


def peers_of(ns):
    return {name: value for name, value in ns.items() if name not in ("moonferry", *FLOORS)}


def rank(ns):
    """The place among all peers of a row, by the figures as measured; empty where there is none."""
    peers, ours = peers_of(ns), ns.get("moonferry")
    if not peers or ours is None:
        return ""
    return f"{1 + sum(value < ours for value in peers.values())} of {1 + len(peers)}"


def cells(row):
    """The row's columns: operation, each library, any other peer, the rank, goal, value, met or missed."""
    ns = row["ns"]
    out = [row["operation"]] + [number(ns[name]) if name in ns else "" for name in LIBRARIES]
    others = [f"{name} {number(value)}" for name, value in ns.items() if name not in LIBRARIES]
    out += [", ".join(others), rank(ns)]
    out.append("; ".join(g["goal"] for g in row["goals"]))
    out.append("; ".join(f"{g['value']:.3g}" for g in row["goals"]))
    out.append("; ".join("met" if g["value"] <= g["limit"] else "missed" for g in row["goals"]))
    return out


def grid(result):
    head = ["operation (ns)", *LIBRARIES, "other", "rank", "goal", "measured", "verdict"]
    return [head] + [cells(row) for row in result["rows"]]


def text(result):
    rows = grid(result)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([result["machine"], "", lines[0], "-" * len(lines[0]), *lines[1:]])


def markdown(result):
    """Two tables, as one would be too wide to be read: the times, and what they are held against."""
    head, *rows = [[row[0].replace("__", r"\_\_"), *row[1:]] for row in grid(result)]
    times, goals = len(LIBRARIES) + 3, slice(len(LIBRARIES) + 3, None)
    lines = ["| " + " | ".join(head[:times]) + " |", "|" + " --- |" + " ---: |" * len(LIBRARIES) + " --- |" * 2]
    lines += ["| " + " | ".join(row[:times]) + " |" for row in rows if any(row[1:times])]
    lines += ["", "| operation | " + " | ".join(head[goals]) + " |", "| --- | --- | --- | --- |"]
    lines += [f"| {row[0]} | " + " | ".join(row[goals]) + " |" for row in rows]
    return "\n".join(lines) + f"\n\nMeasured on: {result['machine']}.\n"


def picture(result, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    head, *rows = grid(result)
    data = [[wrapped(cell) for cell in row] for row in rows]
    height = 0.3 + sum(0.22 + 0.16 * max(cell.count("\n") for cell in row) for row in data)
    figure, axes = plt.subplots(figsize=(15, height + 0.6))
    axes.axis("off")
    axes.set_title(result["machine"], fontsize=8, loc="left")
    table = axes.table(cellText=data, colLabels=head, loc="upper left", cellLoc="left")
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    table.auto_set_column_width(range(len(head)))
    for (line, column), cell in table.get_celld().items():
        cell.set_edgecolor("#d0d0d0")
        lines = max(c.count("\n") for c in data[line - 1]) if line else 0
        cell.set_height((0.22 + 0.16 * lines) / height)
        if line == 0:
            cell.set_facecolor("#e8edf2")
        elif column == len(head) - 1:
            missed = "missed" in data[line - 1][column]
            cell.set_facecolor("#f6d5d0" if missed else "#d8efd8")
        elif column == 1:
            cell.set_facecolor("#f3f7fb")
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)


def wrapped(cell):
    return cell.replace("; ", "\n").replace(" where ", "\nwhere ").replace(" less ", "\nless ")


def summary(result):
    """The rows of SHOWN, each beside the fastest of its peers."""
    rows = {row["operation"]: row for row in result["rows"]}
    lines = ["| operation | Moonferry | the fastest peer |", "| --- | ---: | ---: |"]
    for operation in SHOWN:
        ns = rows[operation]["ns"]
        peers = peers_of(ns)
        best = min(peers, key=peers.get)
        lines.append(f"| {operation} | {time(ns['moonferry'])} | {time(peers[best])}, {best} |")
    return "\n".join(lines) + "\n"


def put(path, name, text):
    """Puts a text between the two marks of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = path.read_text().partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n{text}{end}{after}")


def publish(result, root):
    """The table goes to its page, some rows of it to the README."""
    put(root / "docs" / "bench.md", "bench", markdown(result))
    put(root / "README.md", "speed", summary(result))
