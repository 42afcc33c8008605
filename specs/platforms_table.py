"""The table of docs/platforms.md, of which each long check of a platform writes its row.

Responsible for: one row for each platform, in the order in which they came. Must not know: how anything is tried.
"""

import datetime
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "platforms.md"
HEAD = "| platform | with | specs that passed | on |"


def publish(title, versions, passed):
    """Puts the row of a platform into the page, instead of the one that it has there."""
    lines = PAGE.read_text().splitlines()
    first = lines.index(HEAD) + 2
    end = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    row = f"| {title} | {versions} | {passed} | {datetime.date.today()} |"
    rows = lines[first:end]
    at = next((i for i, old in enumerate(rows) if old.startswith(f"| {title} |")), len(rows))
    rows[at : at + 1] = [row]
    PAGE.write_text("\n".join([*lines[:first], *rows, *lines[end:]]) + "\n")


def of_both_languages(said):
    """What the last line of specs/pythons says of a CPython, in the words of a row."""
    return "Python: {}, Lua that hosts it: {}, endings: {}".format(*re.findall(r"(\d+) passed", said))
