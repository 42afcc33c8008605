#!/usr/bin/env python3
"""Makes a stand-in for each library that a program's libraries are linked with and that is not there.

    stubs.py OUT FOLDER ...

looks through the shared libraries in each FOLDER and everything below, and compiles into the folder OUT one library for
each that they need and nothing provides, with the symbols and versions that they ask of it. A function of a stand-in
says on standard error that it was called, and returns 1, a failure in the libraries of CUDA. Responsible for: what is
asked for, as the files say. Must not know: any library's name but those that the simulator has itself.
"""

import mmap
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

DYNAMIC, DYNSYM, VERNEED, VERSYM = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF
NEEDED = 1
# What the simulator brings.
SIMULATED = re.compile(r"^(libcuda|libcudart)\.so\.\d+$")
SYSTEM = [Path("/lib"), Path("/lib64"), Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")]

FUNCTION = 'long {name}(void);\nlong {name}(void) {{\n  return refuse("{name}");\n}}\n'
MARK = b"is a stand-in for the real one"
SOURCE = """#include <stdio.h>
__attribute__((unused)) static long refuse(const char *name) {{
  fprintf(stderr, "{library} {mark}: %s does nothing and fails\\n", name);
  return 1;
}}
__attribute__((used)) static const char what[] = "{library} {mark}";
"""


class Library:
    """What a 64-bit ELF file says that it needs: libraries, and symbols with their versions."""

    def __init__(self, data):
        self.data = data
        table, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
        self.needed = [self.text(link, value) for link, (tag, value) in self.entries(DYNAMIC, "<QQ") if tag == NEEDED]
        self.versions = self.read_versions()

    def text(self, section, offset):
        begin = self.sections[section][4] + offset
        return self.data[begin : self.data.find(b"\0", begin)].decode()

    def entries(self, kind, layout):
        """The records of a table, each with the number of the section that holds its names."""
        for section in self.sections:
            if section[1] == kind:
                part = self.data[section[4] : section[4] + section[5]]
                yield from ((section[6], record) for record in struct.iter_unpack(layout, part))

    def read_versions(self):
        """By the number that stands beside a symbol: the version, and the library that it is asked of."""
        found = {}
        for section in self.sections:
            if section[1] != VERNEED:
                continue
            at, more = section[4], 1
            while more:
                _, count, file, first, more = struct.unpack_from("<HHIII", self.data, at)
                library, part = self.text(section[6], file), at + first
                for _ in range(count):
                    _, _, number, name, step = struct.unpack_from("<IHHII", self.data, part)
                    found[number & 0x7FFF] = (self.text(section[6], name), library)
                    part += step
                at += more
        return found

    def symbols(self):
        """The undefined ones: name, version and library, the last two None if it is asked of nobody in particular; and
        the names of those that it defines."""
        numbers = [record[0] & 0x7FFF for _, record in self.entries(VERSYM, "<H")]
        wanted, defined = [], set()
        for i, (link, record) in enumerate(self.entries(DYNSYM, "<IBBHQQ")):
            name = self.text(link, record[0])
            if record[3] != 0:
                defined.add(name)
            elif name:
                wanted.append((name, *self.versions.get(numbers[i] if numbers else 1, (None, None))))
        return wanted, defined


def stands_in(path):
    """Whether it was made here before, and may be made again."""
    return path.is_file() and path.stat().st_size < 1 << 20 and MARK in path.read_bytes()


def libraries(folders):
    for folder in folders:
        for path in sorted(Path(folder).rglob("*.so*")):
            if path.is_file() and not path.is_symlink() and not stands_in(path):
                with open(path, "rb") as file:
                    if file.read(5) == b"\x7fELF\x02":
                        yield path


def is_there(name, folders):
    if SIMULATED.match(name):
        return True
    places = [*SYSTEM, *(Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p)]
    if any((place / name).exists() or any(place.glob(f"*-linux-gnu/{name}")) for place in places):
        return True
    return any(not stands_in(path) for folder in folders for path in Path(folder).rglob(name))


def by_name(name, missing):
    """The missing library whose name the symbol begins with: ncclSend is of libnccl.so.2."""
    stems = {re.sub(r"^lib|(_host)?\.so.*$", "", library).lower(): library for library in missing}
    fitting = [stem for stem in stems if name.lower().startswith(stem)]
    return stems[max(fitting, key=len)] if fitting else None


def ask(folders):
    """For each missing library: its symbols, each with a version or None."""
    needed, wanted, defined = set(), set(), set()
    for path in libraries(folders):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                library = Library(data)
                symbols, own = library.symbols()
            except (struct.error, IndexError, UnicodeDecodeError):
                sys.exit(f"{path}: its tables are damaged, or it is not whole")
            needed.update(library.needed)
            wanted.update(symbols)
            defined |= own
    missing: dict[str, dict[str, str | None]] = {name: {} for name in sorted(needed) if not is_there(name, folders)}
    for name, version, asked in sorted(wanted, key=str):
        of = asked or (None if name in defined else by_name(name, missing))
        if of in missing:
            missing[of][name] = version or missing[of].get(name)
    return missing


def version_script(symbols):
    """None if no symbol has a version; one without goes to the first that there is, where it is found all the same."""
    nodes = defaultdict(list)
    known = sorted({version for version in symbols.values() if version})
    for name, version in symbols.items():
        nodes[version or (known[0] if known else None)].append(name)
    if not known:
        return None
    return "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in sorted(nodes.items()))


def compile_standin(out, library, symbols):
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "standin.c"), Path(folder, "versions.map")
        functions = "".join(FUNCTION.format(name=name) for name in symbols)
        source.write_text(SOURCE.format(library=library, mark=MARK.decode()) + functions)
        versions = version_script(symbols)
        script.write_text(versions or "")
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-fno-builtin", f"-Wl,-soname,{library}"]
        command += [f"-Wl,--version-script={script}"] if versions else []
        subprocess.run([*command, "-o", str(Path(out, library)), str(source)], check=True)


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: stubs.py OUT FOLDER ...")
    out, folders = Path(sys.argv[1]), sys.argv[2:]
    missing = ask(folders)
    out.mkdir(parents=True, exist_ok=True)
    for library, symbols in missing.items():
        compile_standin(out, library, symbols)
        print(f"{library}: {len(symbols)} functions")


if __name__ == "__main__":
    main()
