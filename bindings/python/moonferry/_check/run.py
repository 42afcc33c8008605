"""`moonferry check`: its words, the processes that it starts, its table.

Invariant: this process imports no library. A rule whose fork died or hung is run once more in a process that was
started for it alone, and that result counts, because some libraries do not bear to be forked. Exit status: 0 all rules
hold, 1 some are broken, 2 it could not be checked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import subprocess
import sys
import textwrap
from typing import Callable

from . import consume as _consume  # noqa: F401  (the modules of rules fill the list)
from . import interfaces as _interfaces  # noqa: F401
from . import produce as _produce  # noqa: F401
from . import table as _table  # noqa: F401
from .rules import RULES, Rule
from .server import Answer, serve

BAD = ("broken", "crashed", "hung")
LONGEST = 1_000_000


class Unable(Exception):
    """Nothing can be checked, and why."""


class Server:
    """A process that has imported the library."""

    def __init__(self, options: argparse.Namespace):
        words = [sys.executable, *options.start, "--serve", "--seconds", str(options.seconds), options.module]
        if options.make is not None:
            words[-1:-1] = ["--make", options.make]
        env = {"JAX_ENABLE_X64": "1", **os.environ}  # else JAX makes no 64-bit arrays
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
                                      stderr=subprocess.DEVNULL)  # fmt: skip
        self.about = self.greeting(options.import_seconds)

    def greeting(self, seconds: float) -> Answer:
        """What it says of the library once that is imported."""
        assert self.child.stdout is not None
        if not select.select([self.child.stdout], [], [], seconds)[0]:
            self.child.kill()
            return {"ready": False, "why": f"importing it did not end within {seconds:g} s"}
        return self.read() or {"ready": False, "why": f"importing it ended the process ({self.child.wait()})"}

    def read(self) -> Answer | None:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, name: str) -> Answer:
        assert self.child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, which the answer says
            self.child.stdin.write(name + "\n")
            self.child.stdin.flush()
        return self.read() or {"result": "crashed", "seen": "the process that runs the rules has died"}

    def close(self) -> None:
        assert self.child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        self.child.wait()


def alone(options: argparse.Namespace, name: str) -> Answer:
    """A rule in a process that was started for it."""
    server = Server(options)
    try:
        return server.ask(name) if server.about["ready"] else {"result": "crashed", "seen": server.about["why"]}
    finally:
        server.close()


Found = list[tuple[Rule, Answer]]


def check(options: argparse.Namespace, chosen: list[Rule], show: Callable[[Rule, Answer], None]) -> Found:
    """Raises Unable where nothing can be checked."""
    server = Server(options)
    found: Found = []
    try:
        if not server.about["ready"]:
            raise Unable(server.about["why"])
        if not options.json:
            print(heading(options, server.about), flush=True)
        for rule in chosen:
            answer = server.ask(rule.name)
            if answer["result"] in ("crashed", "hung"):
                answer = alone(options, rule.name)
            found.append((rule, answer))
            show(rule, answer)
    finally:
        server.close()
    options.about = server.about
    return found


def count(found: Found) -> dict[str, int]:
    counts = dict.fromkeys(("holds", *BAD, "not offered"), 0)
    for _, answer in found:
        counts[answer["result"]] += 1
    return counts


def heading(options: argparse.Namespace, about: Answer) -> str:
    name = f"{options.module} {about['version']}".strip()
    return f"{name}, CPython {about['python']}, arrays are {about['array']}\n"


def row(options: argparse.Namespace, width: int, rule: Rule, answer: Answer) -> str:
    bad = answer["result"] in BAD
    mark = answer["result"].upper() if bad and rule.level != "may" else answer["result"]
    lines = [f"{rule.name:<{width}}{rule.level:<7}{mark:<12}{rule.standard}"]
    for text in (rule.text, answer["seen"]) if bad else (answer["seen"],) if options.verbose else ():
        lines += textwrap.wrap(text, 110, initial_indent=" " * width, subsequent_indent=" " * width)
    return "\n".join(lines)


def summary(options: argparse.Namespace, found: Found) -> str:
    counts = {"hold" if name == "holds" and n != 1 else name: n for name, n in count(found).items() if n}
    text = f"{options.module}: " + ", ".join(f"{n} {name}" for name, n in counts.items())
    return text if options.all or not counts.keys() - {"hold", "holds"} else f"{text} (--all shows each rule)"


def as_json(options: argparse.Namespace, found: Found) -> str:
    rules = [
        {"rule": r.name, "level": r.level, "standard": r.standard, "text": r.text, **answer} for r, answer in found
    ]
    return json.dumps({"module": options.module, **options.about, "counts": count(found), "rules": rules}, indent=1)


def duration(text: str) -> float:
    """Seconds, of which there must be some, and no more than an operating system waits for."""
    seconds = float(text)
    if not 0 < seconds <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text} s; more than 0 and at most {LONGEST} expected")
    return seconds


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="moonferry check",
        description="Checks the exchange protocols of a Python library's arrays, each rule in a process of its own.",
        epilog="Exit status: 0 all rules hold; 1 some are broken; 2 it could not be checked.",
    )
    parser.add_argument("module", nargs="?", help="an importable library, such as numpy, torch or jax.numpy")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.add_argument("--make", metavar="EXPRESSION", help="makes an array from xp, shape and dtype, such as"
                        " 'xp.empty(shape, dtype)', where no asarray, array or tensor of the library does")  # fmt: skip
    parser.add_argument("--rule", action="append", metavar="NAME", help="only this rule; may be given several times")
    parser.add_argument("--seconds", type=duration, default=30, help="after which a rule hangs (30)")
    parser.add_argument("--import-seconds", type=duration, default=120, metavar="SECONDS",
                        help="after which importing the library hangs (120)")  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="a broken 'should' counts too")
    parser.add_argument("--all", action="store_true", help="a line for each rule, not only for those that do not hold")
    parser.add_argument("--verbose", action="store_true", help="as --all, with what was seen where a rule holds, too")
    parser.add_argument("--list", action="store_true", help="the rules, and nothing is checked")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    options.all = options.all or options.verbose or bool(options.rule)
    if options.module is None and not options.list:
        parser.error("which MODULE?")
    unknown = [name for name in options.rule or () if name not in RULES]
    if unknown:
        parser.error(f"there is no rule {unknown[0]!r}; --list shows them")
    return options


def list_rules(chosen: list[Rule]) -> int:
    print("\n".join(f"{r.name:<22}{r.level:<8}{r.standard}: {r.text}" for r in chosen), flush=True)
    return 0


def main(words: list[str], start: list[str]) -> int:
    """`start`: what comes between the interpreter and `words` to get here again. A reader may leave before the end, as
    head does: then nobody is left to check for."""
    options = parse(words)
    try:
        return run(options, start)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python says so once more when it ends
        return 0 if options.list else 2


def run(options: argparse.Namespace, start: list[str]) -> int:
    options.start = start
    if options.serve:
        serve(options.module, options.make, options.seconds)
        return 0
    chosen = [rule for rule in RULES.values() if not options.rule or rule.name in options.rule]
    if options.list:
        return list_rules(chosen)
    width = max(len(rule.name) for rule in chosen) + 2

    def show(rule: Rule, answer: Answer) -> None:
        if not options.json and (options.all or answer["result"] in BAD):
            print(row(options, width, rule, answer), flush=True)

    try:
        found = check(options, chosen, show)
    except Unable as why:
        print(f"moonferry check: {options.module} cannot be checked: {why}", file=sys.stderr)
        return 2
    bad = [answer for _, answer in found if answer["result"] in BAD]
    told = as_json(options, found) if options.json else "\n" * bool(bad or options.all) + summary(options, found)
    print(told, flush=True)
    counted = ("must", "should") if options.strict else ("must",)
    return int(any(a["result"] in BAD and (r.level in counted or a["result"] != "broken") for r, a in found))
