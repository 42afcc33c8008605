"""Python's specs of the bindings, one by one, in children of a process that has imported all that they need (forks.py).

Responsible for: what each of them reaches and how long it takes, and which are asked about a mutant, in what order.
Must not know: which package has the mutants, or how it is made.
"""

import collections
import hashlib
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe

from . import find, schemata
from .judge import HANGS, ROOT, end_group, start
from .runtime import DEV, DRIVERS

PYTHON = str(ROOT / ".venv" / "bin" / "python")
PYTEST = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:faulthandler", "-p", "mutation.forks"]
MEMORY = 12 << 30  # coroutines that nest to the end of a large C stack
START_SECONDS = 120  # of pytest
LOOKING = 2  # files of specs at a time
# One of Python's specs that runs so many times as long as without the mutation, and so long beyond that, hangs.
PATIENCE, PATIENCE_SECONDS = 5, 5
# Of the cases of one spec that take longer than this, so many are asked.
LONG_SECONDS, LONG_CASES = 0.3, 3
TOGETHER = "specs/python/test_memory.py::test_a_call_leaves_nothing["  # one process measures all its cases


def environment(where):
    """What makes a process use the package that is there."""
    lua = f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;{ROOT}/specs/lua/?.lua;;"
    return {"LUA_PATH": lua, "MOONFERRY_BUILD": str(DEV), "MOONFERRY_PYTHON": PYTHON, "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(where), "MOONFERRY_LIBRARY": str(where / "moonferry/libmoonferry.so.0"),
            "MOONFERRY_PROGRAM": str(where / "moonferry/bin/moonferry")}  # fmt: skip


def of_device(device):
    """What makes a process have a simulated driver."""
    return {"LD_LIBRARY_PATH": str(DEV / "python/moonferry/sim" / DRIVERS[device][0]), "SIM_EXIT": "3",
            "SIM_LEDGER_OF": "libmoonferry", "MOONFERRY_SPEC_DEVICE": device}  # fmt: skip


class Forks:
    """A process that has collected Python's specs, and forks for each question. ${number}: the mutant that it has."""

    def __init__(self, files, where, more, number=0):
        self.end, there = Pipe()
        marks = where / f"reached-{threading.get_ident()}"
        marks.write_bytes(bytes(schemata.MARKS_NBYTES))
        env = {**environment(where), **more, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
               "MUTANT": str(number), "MUTANT_REACHED": str(marks), "MUTANT_JUDGE": str(there.fileno())}  # fmt: skip
        env["PYTHONPATH"] += f"{os.pathsep}{ROOT / 'specs'}"
        self.process = start([*PYTEST, *files], env, MEMORY, [there.fileno()])
        there.close()
        try:
            self.names, self.marks = self.end.recv() if self.end.poll(START_SECONDS) else ([], b"")
        except EOFError:
            self.names, self.marks = [], b""

    def ask(self, number, names, usual, reached=None):
        """What notices the mutant; "" if nothing does. ${usual}: how long each spec takes; ${reached}: gets how long it
        took, and its marks."""
        self.end.send((number, names))
        child, at, hangs, patience = None, names[0], "", START_SECONDS
        while True:
            if not self.end.poll(patience):
                hangs, patience = HANGS, None
                end_group(child)
            what, *said = self.end.recv()
            if what == "child":
                child = said[0]
            elif what == "begins":
                at, patience = said[0], PATIENCE_SECONDS + PATIENCE * usual.get(said[0], START_SECONDS)
            elif what == "reached" and reached is not None:
                reached[at] = said[1:]
            elif what == "ended":
                end_group(child)
                return at + hangs if hangs or said[0] else ""

    def close(self):
        self.end.close()
        end_group(self.process.pid)
        self.process.wait()


class PythonSpecs:
    """A group of specs, what each reaches, and how long it takes. That is remembered for as long as neither the
    bindings nor the spec's own file change. ${files}: the specs'; ${env}: what they need beside the package;
    ${marked}: the package whose functions have marks."""

    def __init__(self, name, files, env, marked):
        self.files, self.env, self.marked, self.own = files, env, marked, threading.local()
        self.memory = marked.folder / f"{name}.json"
        known = json.loads(self.memory.read_text()) if self.memory.exists() else {}
        digests = self.digests()
        found = {file: of for file, of in known.items() if of["digest"] == digests.get(file)}
        self.look([file for file in digests if file not in found], digests, found)
        self.at_start = {name for of in found.values() for name in of["at_start"]}
        self.usual = {name: seconds for of in found.values() for name, (seconds, _) in of["specs"].items()}
        self.reach = {name: reached for of in found.values() for name, (_, reached) in of["specs"].items()}
        together = [name for name in self.reach if name.startswith(TOGETHER)]
        reached = sorted({function for name in together for function in self.reach[name]})
        self.reach.update(dict.fromkeys(together, reached))
        self.usual.update(dict.fromkeys(together, sum(self.usual[name] for name in together)))

    def digests(self):
        """Of each file, all that says what it reaches."""
        sources = [path for kind in ("c", "h", "py") for path in sorted((ROOT / "bindings").rglob(f"*.{kind}"))]
        common = b"".join([*(path.read_bytes() for path in sources), *(name.encode() for name in self.marked.names)])
        texts = {str(path.relative_to(ROOT)): path.read_bytes() for path in self.files}
        return {name: hashlib.sha256(common + text).hexdigest() for name, text in texts.items()}

    def look(self, files, digests, found):
        """Runs the specs of the files without a mutation. What those of one reach is remembered at once."""
        left, lock = iter(files), threading.Lock()

        def work():
            forks = Forks(self.files, self.marked.where, self.env)
            try:
                while file := take():
                    of = {"digest": digests[file], **self.look_at(file, forks)}
                    with lock:
                        found[file] = of
                        self.memory.write_text(json.dumps(found, indent=0))
            finally:
                forks.close()

        def take():
            with lock:
                return next(left, None)

        with ThreadPoolExecutor(LOOKING) as pool:
            for done in [pool.submit(work) for _ in files[:LOOKING]]:
                done.result()

    def look_at(self, file, forks):
        reached = {}
        names = [name for name in forks.names if name.partition("::")[0] == file]
        why = "" if forks.names else "collecting the specs"
        if names:
            why = forks.ask(0, names, {}, reached)
        if why:
            sys.exit(f"{why} fails without any mutation")
        specs = {name: (seconds, self.marked.reached_by(marks)) for name, (seconds, marks) in reached.items()}
        return {"at_start": self.marked.reached_by(forks.marks), "specs": specs}

    def forks(self, where):
        """Each thread has those of one package."""
        where_before, forks = getattr(self.own, "forks", (None, None))
        if where != where_before:
            if forks:
                forks.close()
            forks = Forks(self.files, where, self.env)
            self.own.forks = where, forks
        return forks

    def in_order(self, function, first, seconds, only):
        """The names of the specs that reach the function, all if it is called when the module is imported: those that
        come ${first}, then the quick ones. ${only}: what the names must match, if anything."""
        cases, chosen = collections.Counter(), []
        names = [name for name in self.reach if not only or only.search(name)]
        for name in sorted(names, key=self.usual.get):
            reaches = function in self.reach[name] or function in self.at_start
            if reaches and (name in first or self.usual[name] <= seconds):
                spec = name.partition("[")[0]
                cases[spec] += self.usual[name] > LONG_SECONDS and not name.startswith(TOGETHER)
                if name in first or cases[spec] <= LONG_CASES:
                    chosen.append(name)
        return sorted(chosen, key=lambda name: first.index(name) if name in first else len(first))

    def judge(self, mutant, where, first, seconds, only=None):
        """What catches the mutant, which is in the package there; "" if nothing does. One of a function that is called
        when the module is imported gets a process of its own, which imports the module with it."""
        function = f"{find.listed_as(mutant.path)} {mutant.function}"
        names = self.in_order(function, first, seconds, only)
        if function not in self.at_start:
            return self.forks(where).ask(mutant.index, names, self.usual) if names else ""
        forks = Forks(self.files, where, self.env, mutant.index)
        try:
            return forks.ask(mutant.index, names, self.usual) if forks.names else "collecting the specs"
        finally:
            forks.close()
