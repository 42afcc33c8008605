"""The functions that headers have: their mutants come into every file that includes the header.

Responsible for: a folder of headers in which some have another text, and which files include one. In a folder no two
headers have the same name. Must not know: how a mutant is found, or which compiler's options a file has.
"""

import re

from . import find, schemata


def has_functions(path):
    return any(True for _ in find.functions(find.finder_of(path, {}).tokens))


def write(path, text):
    """Leaves the file as it is where it has that text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def mirror(root, folder, changed):
    """The folder's headers at the same places in another one. ${changed}: the text of some."""
    for path in root.rglob("*.h"):
        write(folder / path.relative_to(root), changed.get(path) or path.read_text())


def marked(path, kinds, mark):
    """Its text with marks, and its functions in their order."""
    text, names, _ = schemata.write(find.finder_of(path, kinds), [], mark=mark)
    return text, names


def includers(header, sources, root):
    """Those of the sources that include the header, or a header that does."""

    def inside(path):
        return set(re.findall(r'^#include "(?:.*/)?(.*)"', path.read_text(), re.MULTILINE))

    headers, found = {path.name: inside(path) for path in root.rglob("*.h")}, {header.name}
    while more := {name for name, names in headers.items() if names & found} - found:
        found |= more
    return [path for path in sources if inside(path) & found]
