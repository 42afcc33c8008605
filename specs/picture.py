"""Draws the rooms of the runtime and the calls between them, as an SVG of plain text.

Responsible for where things lie in the picture. Must not know how calls are found (specs/arrows).
"""

from html import escape

WIDTH, CHIP, GAP, LINE, PAD, TITLE = 980, 22, 6, 28, 12, 26
CHARACTER = 6.6  # of the small font
# The rooms from above; driver/ stands beside device/.
COLUMNS = {"exchange": (0, 640), "device": (0, 640), "core": (0, 640), "driver": (700, 280)}


def levels(files, arrows):
    """The files of a room in rows: each calls only files of the rows below it."""
    height = {}

    def level(file):
        if file not in height:
            height[file] = max((level(to) + 1 for to in arrows[file] if to in files), default=0)
        return height[file]

    rows = {}
    for file in sorted(files):
        rows.setdefault(level(file), []).append(file)
    return [rows[k] for k in sorted(rows, reverse=True)]


def wrapped(row, width):
    """A row of chips as one or more lines: (x, file)."""
    lines, x = [[]], PAD
    for file in row:
        need = len(name(file)) * CHARACTER + 14
        if x + need > width - PAD:
            lines.append([])
            x = PAD
        lines[-1].append((x, need, file))
        x += need + GAP
    return lines


def name(file):
    return file.split("/")[1].removesuffix(".c")


def box(room, files, arrows, top):
    """The SVG of a room and its height."""
    left, width = COLUMNS[room]
    parts, y = [], top + TITLE
    for row in levels(files, arrows):
        for line in wrapped(row, width):
            for x, need, file in line:
                parts.append(
                    f'<rect class="chip" x="{left + x:.0f}" y="{y}" width="{need:.0f}" height="{CHIP}" rx="4"/>'
                    f'<text x="{left + x + need / 2:.0f}" y="{y + 15}" text-anchor="middle">{escape(name(file))}</text>'
                )
            y += LINE
    height = y - top + PAD - GAP
    frame = f'<rect class="room" x="{left}" y="{top}" width="{width}" height="{height}" rx="8"/>'
    title = f'<text class="title" x="{left + PAD}" y="{top + 18}">{room}/</text>'
    return "\n".join([frame, title, *parts]), height


def arrow(x1, y1, x2, y2, words, dashed=False):
    style = ' stroke-dasharray="5 4"' if dashed else ""
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    if x1 == x2:
        label = f'<text x="{x + 8:.0f}" y="{y + 4:.0f}">{escape(words)}</text>'
    else:
        label = f'<text x="{x:.0f}" y="{y - 6:.0f}" text-anchor="middle">{escape(words)}</text>'
    return f'<path class="arrow" d="M{x1} {y1}L{x2} {y2}"{style} marker-end="url(#tip)"/>{label}'


HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="-8 -8 {width} {height}"
 font-family="DejaVu Sans Mono, monospace" font-size="11">
<style>.room{{fill:#f3f6fa;stroke:#5b6b7f}}.chip{{fill:#fff;stroke:#b4bfcc}}.title{{font-weight:bold;font-size:14px}}
.arrow{{stroke:#24527a;stroke-width:1.6;fill:none}}text{{fill:#1d2733}}</style>
<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#24527a"/></marker></defs>
<rect x="-8" y="-8" width="{width}" height="{height}" fill="#fff"/>
"""


def draw(arrows):
    """The SVG. arrows: {file: {file that it calls: names}}."""
    rooms = {room: {f for f in arrows if f.startswith(room + "/")} for room in COLUMNS}
    count = {
        (a, b): sum(1 for f in rooms[a] for to in arrows[f] if to in rooms[b]) for a in rooms for b in rooms if a != b
    }
    space, parts, top, at = 56, [], 0, {}
    for room in ("exchange", "device", "core"):
        text, height = box(room, rooms[room], arrows, top)
        at[room] = (top, height)
        parts.append(text)
        top += height + space
    text, height = box("driver", rooms["driver"], arrows, at["device"][0])
    parts.append(text)
    at["driver"] = (at["device"][0], height)
    device, core, driver = at["device"], at["core"], at["driver"]

    def told(a, b):
        return f"{count[a, b]} calls between files"

    parts.append(arrow(320, at["exchange"][1], 320, device[0] - 2, told("exchange", "device")))
    parts.append(arrow(40, at["exchange"][1], 40, device[0] - 2, f"and {count['exchange', 'core']} to core/"))
    parts.append(arrow(320, device[0] + device[1], 320, core[0] - 2, told("device", "core")))
    parts.append(arrow(40, core[0], 40, device[0] + device[1] + 2, "mf__record_ops", dashed=True))
    middle = driver[0] + driver[1] // 2
    parts.append(arrow(700, middle, 643, middle, f"{count['driver', 'device']}"))
    parts.append(arrow(640, middle + 44, 697, middle + 44, "backend", dashed=True))
    below = driver[0] + driver[1]
    parts.append(f'<path class="arrow" d="M840 {below}V{core[0] + 40}H643" marker-end="url(#tip)"/>')
    parts.append(f'<text x="848" y="{core[0] + 20}">{count["driver", "core"]} calls</text>')
    note = "Solid: calls. Dashed: a table of functions. A file calls only what lies in the rows below it."
    parts.append(f'<text x="0" y="{top - space + 24}">{note}</text>')
    return HEAD.format(width=WIDTH + 24, height=top - space + 44) + "\n".join(parts) + "\n</svg>\n"
