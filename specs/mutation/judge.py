"""Judges mutants: the specs that reach a mutant's function run on the library that has it, the quick ones first.

A file's mutants are all in one library (schemata.py), which also tells which specs reach which of its functions: only
those are asked. Must not know: how mutants are made, which library it is, or which mutants may survive.
"""

import bisect
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import idle

from . import find, schemata

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = Path(os.environ.get("MOONFERRY_BUILD_MUTANTS", ROOT / "build" / "mutants"))
USUAL = WORK / "usual.json"  # how long each spec took
# A spec that runs so many times as long as without the mutation, and so long beyond that, hangs; so does one that does
# nothing at all for so long beyond its usual time.
PATIENCE, PATIENCE_SECONDS, IDLE_SECONDS = 4, 10, 3
LONGEST_SECONDS = 600
HANGS = " (it hangs)"
MEMORY = 6 << 30
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1  # a spec ends with the judge


def start(command, env, memory=MEMORY, keep=()):
    """The program in a session of its own, with so much memory at most; ${keep}: file descriptors that it inherits."""

    def limit():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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


def status_of(program, seconds, idle_seconds):
    """None if it takes longer, or does nothing for so long."""
    end, watch = time.monotonic() + seconds, idle.Watch(program.pid, idle_seconds)
    while time.monotonic() < end and not watch.is_idle():
        try:
            return program.wait(1)
        except subprocess.TimeoutExpired:
            pass
    return None


def run(command, env, seconds, idle_seconds, memory=MEMORY):
    """The exit status; None if it hangs. What the program started is ended with it."""
    done = start(command, env, memory)
    try:
        return status_of(done, seconds, idle_seconds)
    finally:
        end_group(done.pid)
        done.wait()


def is_newer(output, sources):
    """Whether the file was made after the last change of each of the others."""
    return output.exists() and output.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def make(output, command):
    """The file that the command writes, which is there whole or not at all."""
    part = output.with_name(f"{output.name}.part")
    build([*command, "-o", part])
    part.replace(output)


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

    def measure(self, where, marks, seconds):
        """The marks of the functions that it comes to without any mutation; None if it is stopped at ${seconds}."""
        marks.write_bytes(bytes(schemata.MARKS_NBYTES))
        env = {**self.environment(where), "MUTANT": "0", "MUTANT_REACHED": str(marks)}
        began = time.monotonic()
        code = run(self.command, env, min(LONGEST_SECONDS, seconds), LONGEST_SECONDS, self.memory)
        self.usual = time.monotonic() - began
        if code is None and seconds < LONGEST_SECONDS:
            return None
        if code not in (0, 77):
            sys.exit(f"{self.name} {'hangs' if code is None else 'fails'} without any mutation")
        return marks.read_bytes()

    def ask(self, where, number):
        """Why the mutant of that number fails it; "" if it does not."""
        code = run(self.command, {**self.environment(where), "MUTANT": str(number)},
                   PATIENCE_SECONDS + PATIENCE * self.usual, IDLE_SECONDS + self.usual, self.memory)  # fmt: skip
        return "" if code in (0, 77) else f"{self.name}{HANGS}" if code is None else self.name

    def judge(self, where, number):
        """As ask. A machine that has more to do now than when the spec was measured makes no mutant hang."""
        why = self.ask(where, number)
        if not why.endswith(HANGS):
            return why
        began, usual = time.monotonic(), self.usual
        if self.ask(where, 0):
            self.usual = PATIENCE_SECONDS + PATIENCE * usual
        else:
            self.usual = max(usual, time.monotonic() - began)
        return self.ask(where, number) if self.usual > 2 * usual else why


def is_named_like(spec, path):
    """storage_spec for storage.c, gpu_order_gone_spec for order.c."""
    return re.match(rf"(gpu_)?{re.escape(path.stem)}_", spec.name) is not None


class Mutated:
    """The library with all mutants of a file; of a header, in every file that includes it."""

    def __init__(self, judge, path, kind):
        self.folder = WORK / f"{kind}-{find.as_file(path)}"
        self.folder.mkdir(exist_ok=True)
        self.no_code = set()
        source = self.folder / f"mutants{path.suffix}"
        finder = judge.finder_of(path, judge.kinds)
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

    def reached_by(self, spec, seconds):
        """The functions that the spec comes to; None if it is stopped."""
        marks = spec.measure(self.where, self.folder / f"reached-{threading.get_ident()}", seconds)
        return marks and {name for name, mark in zip(self.names, marks) if mark}


class Judge:
    """What is the same for all mutants."""

    finder_of = staticmethod(find.finder_of)

    def __init__(self, kinds):
        self.kinds = kinds  # what each function returns
        self.specs = {}  # of each build
        self.killers = {}  # of each file, its specs that caught something, the last first
        self.mutated, self.reach = {}, {}
        self.lock, self.preparing = threading.Lock(), threading.Lock()
        self.asking = {}  # each spec's lock, while it is asked which functions it reaches
        self.seconds, self.stopped = float("inf"), set()
        self.only = None  # what the names of the specs must match that are asked, if somebody has chosen them
        self.usual = json.loads(USUAL.read_text()) if USUAL.exists() else {}

    def mutants_of(self, path):
        return self.finder_of(path, self.kinds).mutants()

    def builds_for(self, mutant):
        return ["dev"]

    def mutated_of(self, kind, path):
        """The library with the mutants of the file."""
        with self.preparing:
            if (kind, find.listed_as(path)) not in self.mutated:
                self.mutated[kind, find.listed_as(path)] = Mutated(self, path, kind)
            return self.mutated[kind, find.listed_as(path)]

    def has_reached(self, mutant, spec):
        """Whether the spec came to the mutant's function in an earlier run, as far as that is known."""
        return False

    def reach_of(self, kind, path, spec, seconds):
        """The functions of the file that the spec comes to; None if it is stopped. No two threads ask of one spec."""
        return self.mutated[kind, find.listed_as(path)].reached_by(spec, seconds)

    def reaches(self, kind, mutant, spec):
        """Whether the spec comes to the mutant's function. One run of it tells that of all functions of the file. One
        that is stopped while it is asked is not asked about any other mutant either."""
        path = mutant.path
        key, seconds = (spec, find.listed_as(path)), float("inf") if is_named_like(spec, path) else self.seconds
        with self.lock:
            asking = self.asking.setdefault(spec, threading.Lock())
        with asking:
            if key not in self.reach:
                self.reach[key] = self.reach_of(kind, path, spec, seconds)
                with self.lock:
                    self.usual[spec.name] = spec.usual
        if self.reach[key] is None:
            self.stopped.add(spec.name)
        return self.reach[key] is not None and mutant.function in self.reach[key]

    def remember(self):
        """For the next run: how long each spec takes."""
        with self.lock:
            USUAL.write_text(json.dumps(self.usual, indent=0, sort_keys=True))

    def in_order(self, kind, mutant, remembered):
        """The spec that caught it before, those that caught the file's mutants last, those that are named like the
        file, which are asked however long they take, those that came to the function before, then the quick ones."""
        path = mutant.path
        with self.lock:
            known = list(self.killers.get((kind, find.listed_as(path)), []))

        def rank(spec):
            last = known.index(spec) if spec in known else len(known)
            return (spec.name != remembered, last, not is_named_like(spec, path), not self.has_reached(mutant, spec),
                    self.usual.get(spec.name, 1))  # fmt: skip

        if self.only:
            return sorted((s for s in self.specs[kind] if self.only.search(s.name)), key=rank)
        worth = [s for s in self.specs[kind] if s.may_notice(path)]
        quick = [s for s in worth if self.usual.get(s.name, 0) <= self.seconds or is_named_like(s, path)]
        self.stopped.update(s.name for s in worth if s not in quick)
        return sorted(quick, key=rank)

    def has_specs(self, kind):
        """Whether any spec of that build may be asked."""
        return not self.only or any(self.only.search(spec.name) for spec in self.specs[kind])

    def caught(self, kind, path, spec):
        with self.lock:
            known = self.killers.setdefault((kind, find.listed_as(path)), [])
            if spec in known:
                known.remove(spec)
            known.insert(0, spec)
            del known[6:]

    def judge(self, mutant, remembered):
        """What catches it; "" if nothing does; None if it is no code."""
        for kind in filter(self.has_specs, self.builds_for(mutant)):
            mutated = self.mutated_of(kind, mutant.path)
            if mutant.index in mutated.no_code:
                return None
            for spec in self.in_order(kind, mutant, remembered):
                if self.reaches(kind, mutant, spec) and (why := spec.judge(mutated.where, mutant.index)):
                    self.caught(kind, mutant.path, spec)
                    return why
        return ""
