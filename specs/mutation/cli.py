"""Judges a mutant of the `moonferry` program by its specs, which are Python's and run it in processes of its own.

The mutated program lies where the package's has its place, in a copy of that; the specs know it by MOONFERRY_PROGRAM.
Those that install or build something are not asked.
"""

from .bridge import BINDINGS, ROOT, Bridge

FILES = sorted(path.name for path in (BINDINGS / "cli").glob("*.c") if path.name != "nolua.c")
UNASKED = ("test_install.py", "test_docs.py", "test_program_page.py")


class Cli(Bridge):
    """The program and its specs."""

    folders, files, objects = ("cli",), FILES, "moonferry_cli"
    targets = {"moonferry_cli": "bin/moonferry"}

    def object_of(self, path):
        return f"bindings/cli/CMakeFiles/{self.objects}.dir/{path.name}.o"

    def python_specs(self):
        folder = ROOT / "specs" / "cli"
        yield "cli", [path for path in sorted(folder.glob("test_*.py")) if path.name not in UNASKED], {}

    def of_files(self):
        return []
