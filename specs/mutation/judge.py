"""Judges mutants: the specs that reach a mutant's function run on the library that has it, the quick ones first.

A file's mutants are all in one library (schemata.py), which also tells which specs reach which of its functions: only
those are asked. Must not know: how mutants are made, which library it is, or which mutants may survive.
"""

import bisect
import json
import mmap
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from . import find, schemata

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build" / "mutants"
USUAL = WORK / "usual.json"  # how long each spec took
# A spec that runs so many times as long as without the mutation, and so long beyond that, hangs.
PATIENCE, PATIENCE_SECONDS = 4, 10
MEMORY = 6 << 30


def start(command, env, memory=MEMORY, keep=()):
    """The program in a session of its own, with so much memory at most; ${keep}: file descriptors that it inherits."""

    def limit():
        if "TSAN_OPTIONS" not in env:  # whose shadow would count
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return subprocess.Popen(
        list(map(str, command)), env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=limit, pass_fds=keep,
    )  # fmt: skip


def end_group(leader):
    """Ends a program and what it has started."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command, env, seconds, memory=MEMORY):
    """The exit status; None if it hangs. What the program started is ended with it."""
    done = start(command, env, memory)
    try:
        return done.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_group(done.pid)
        done.wait()


def build(command, folder=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder)
    if done.returncode:
        sys.exit(f"{done.stderr[-3000:]}\n{' '.join(map(str, command))}")
    return done.stdout


class Spec:
    """A command, the environment it runs in, and how long it took on the library as it is."""

    memory = MEMORY

    def __init__(self, name, command, env):
        self.name, self.command, self.env = name, command, env
        self.usual = None

    def environment(self, where):
        """What makes it use the library that is there."""
        return {**self.env, "LD_PRELOAD": str(where)}

    def may_notice(self, path):
        """Whether it is worth its time for a mutant of that file."""
        return True

    def judge(self, where, number=0, reached=None):
        """Why the mutant of that number fails it; "" if it does not."""
        patience = 600 if self.usual is None else PATIENCE_SECONDS + PATIENCE * self.usual
        env = {**self.environment(where), "MUTANT": str(number)}
        began = time.monotonic()
        if reached is not None:
            env["MUTANT_REACHED"] = str(reached)
        code = run(self.command, env, patience, self.memory)
        if self.usual is None:
            self.usual = time.monotonic() - began
        return "" if code in (0, 77) else f"{self.name} (it hangs)" if code is None else self.name


class Mutated:
    """The library with all mutants of a file."""

    def __init__(self, judge, path, kind):
        self.folder = WORK / f"{kind}-{path.stem}"
        self.folder.mkdir(exist_ok=True)
        self.no_code = set()
        source = self.folder / "mutants.c"
        finder = find.finder_of(path, judge.kinds)
        for command in judge.compilers(kind, path, source, self.folder):
            self.names = self.compile(finder, source, command)
        self.where = judge.link_mutants(kind, path, self.folder)

    def compile(self, finder, source, command):
        """The functions, in the order of their marks. Mutants that are no code are left out."""
        mutants = finder.mutants()
        while True:
            text, names, lines = schemata.write(finder, mutants, self.no_code)
            source.write_text(text)
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode == 0:
                return names
            firsts = [first for first, _ in lines]
            errors = re.findall(rf"^{re.escape(str(source))}:(\d+):\d+: error:", done.stderr, re.MULTILINE)
            bad = {lines[bisect.bisect_right(firsts, int(line) - 1) - 1][1] for line in errors}
            if not bad or 0 in bad:
                sys.exit(done.stderr[-3000:])
            self.no_code |= bad

    def reached_by(self, spec):
        """The functions that the spec comes to; None if it fails without any mutation."""
        marks = self.folder / f"reached-{threading.get_ident()}"
        marks.write_bytes(bytes(mmap.PAGESIZE))
        if why := spec.judge(self.where, 0, marks):
            sys.exit(f"{why} fails without any mutation")
        return {name for name, mark in zip(self.names, marks.read_bytes()) if mark}


class Judge:
    """What is the same for all mutants."""

    def __init__(self, kinds):
        self.kinds = kinds  # what each function returns
        self.specs = {}  # of each build
        self.killers = {}  # of each file, its specs that caught something, the last first
        self.mutated, self.reach = {}, {}
        self.lock, self.preparing = threading.Lock(), threading.Lock()
        self.asking = {}  # the lock of each question which functions of a file a spec reaches
        self.seconds = float("inf")
        self.usual = json.loads(USUAL.read_text()) if USUAL.exists() else {}

    def mutants_of(self, path):
        return find.mutants_of(path, self.kinds)

    def builds_for(self, mutant):
        return ["dev"]

    def mutated_of(self, kind, path):
        """The library with the mutants of the file."""
        with self.preparing:
            if (kind, path.name) not in self.mutated:
                self.mutated[kind, path.name] = Mutated(self, path, kind)
            return self.mutated[kind, path.name]

    def reaches(self, kind, mutant, spec):
        """Whether the spec comes to the mutant's function. One run of it tells that of all functions of the file."""
        key = (spec, mutant.path.name)
        with self.lock:
            asking = self.asking.setdefault(key, threading.Lock())
        with asking:
            if key not in self.reach:
                self.reach[key] = self.mutated[kind, mutant.path.name].reached_by(spec)
                with self.lock:
                    self.usual[spec.name] = spec.usual
        return mutant.function in self.reach[key]

    def remember(self):
        """For the next run: how long each spec takes."""
        with self.lock:
            USUAL.write_text(json.dumps(self.usual, indent=0, sort_keys=True))

    def in_order(self, kind, mutant, remembered):
        """The spec that caught it before, those that caught the file's mutants last, those that are named like the
        file, then the quick ones."""
        path = mutant.path
        with self.lock:
            known = list(self.killers.get((kind, path.name), []))

        def rank(spec):
            last = known.index(spec) if spec in known else len(known)
            return spec.name != remembered, last, path.stem not in spec.name, self.usual.get(spec.name, 1)

        worth = [s for s in self.specs[kind] if s.may_notice(path) and self.usual.get(s.name, 0) <= self.seconds]
        return sorted(worth, key=rank)

    def caught(self, kind, path, spec):
        with self.lock:
            known = self.killers.setdefault((kind, path.name), [])
            if spec in known:
                known.remove(spec)
            known.insert(0, spec)
            del known[6:]

    def judge(self, mutant, remembered):
        """What catches it; "" if nothing does; None if it is no code."""
        for kind in self.builds_for(mutant):
            mutated = self.mutated_of(kind, mutant.path)
            if mutant.index in mutated.no_code:
                return None
            for spec in self.in_order(kind, mutant, remembered):
                if self.reaches(kind, mutant, spec) and (why := spec.judge(mutated.where, mutant.index)):
                    self.caught(kind, mutant.path, spec)
                    return why
        return ""
