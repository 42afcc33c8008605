"""Runs one program of the specs and reads what it says of itself: cmocka, busted, pytest.

Responsible for: what CTest knows of a build's tests, and for a program that dies half way, or of which no test was
counted, being a failure. What a program prints goes to build/logs/. Must not know which suites there are (specs/run).
"""

import functools
import json
import os
import re
import subprocess
import threading
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import expected

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LOGS = BUILD / "logs"
PYTHON = str(ROOT / ".venv" / "bin" / "python")
# Under many seeds (make test-sim-long) a program takes minutes, and more on a busy machine.
PATIENCE = 1 if int(os.environ.get("MOONFERRY_SPEC_SEEDS") or 0) < 100 else 4
PER_PROGRAM_SECONDS = 900
SPENT = []  # (seconds, name) of what was run
# The first import of a module writes what it has compiled (setup.sh has pip compile none), whatever the caller prefers.
NOT_PASSED_ON = ("LD_PRELOAD", "PYTHONPATH", "MOONFERRY_LIBRARY", "PYTHONDONTWRITEBYTECODE")
BEFORE = []  # words before each command: what enters the system in which it runs (emulated.py)
_guard = threading.Lock()


class Result:
    """The tests that one suite ran: names of the failed with what they said, of the skipped with why."""

    def __init__(self):
        self.passed = 0
        self.failures = []
        self.skips = []
        self.seconds = 0.0

    def ok(self, count=1):
        self.passed += count

    def fail(self, name, text):
        self.failures.append((name, text))

    def skip(self, name, reason):
        self.skips.append((name, reason))

    def add(self, other):
        self.passed += other.passed
        self.failures += other.failures
        self.skips += other.skips


class Listener(threading.Thread):
    """What a program prints, and when it printed last."""

    def __init__(self, program):
        super().__init__(daemon=True)
        self.program, self.parts, self.heard = program, [], time.monotonic()
        self.start()

    def run(self):
        with self.program.stdout as out:
            for part in iter(lambda: out.read1(65536), b""):
                self.parts.append(part)
                self.heard = time.monotonic()

    def ends(self, seconds):
        """Waits for its end; False where it has been silent for so long."""
        while self.is_alive():
            rest = self.heard + seconds - time.monotonic()
            if rest <= 0:
                return False
            self.join(rest)
        return True

    def text(self):
        return b"".join(self.parts).decode(errors="replace")


def run_program(command, env, seconds=PER_PROGRAM_SECONDS, cwd=ROOT):
    """Runs a command without input; returns its exit code (None if it printed nothing for so many seconds) and what it
    printed. A suite of thousands of tests takes as long as it takes on a busy machine, and tells of each test."""
    full = {k: v for k, v in os.environ.items() if k not in NOT_PASSED_ON}
    full.update(env)
    program = subprocess.Popen(
        [str(c) for c in (*BEFORE, *command)],
        cwd=cwd,
        env=full,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    listener = Listener(program)
    if listener.ends(seconds):
        return program.wait(), listener.text()
    program.kill()
    program.wait()
    return None, listener.text() + f"\n[stopped: it had printed nothing for {seconds} s]"


def log_path(name):
    return LOGS / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".log")


def log(name, text):
    LOGS.mkdir(parents=True, exist_ok=True)
    log_path(name).write_text(text)


def read_log(name):
    return log_path(name).read_text()


def measured(name, command, env, seconds):
    """run_program, with its output in a log of that name and its time in SPENT."""
    began = time.monotonic()
    code, text = run_program(command, env, seconds)
    SPENT.append((time.monotonic() - began, name))
    log(name, text)
    return code, text


def how_it_ended(code):
    if code is None:
        return "it printed nothing for too long"
    return f"it died of signal {-code}" if code < 0 else f"it ended with {code}"


def check_end(result, name, code, text):
    """A program that says all is well and yet ends badly (a crash at exit, a leak) has failed."""
    if code != 0 and not result.failures:
        result.fail(name, f"{how_it_ended(code)}\n{text[-6000:]}")


@functools.cache
def _lock_of(name):
    return threading.Lock()


_done = {}


def once(name, function):
    """What several suites need and only one of them should do."""
    with _guard:
        lock = _lock_of(name)
    with lock:
        if name not in _done:
            _done[name] = function()
        return _done[name]


def need_build(preset):
    """Each preset is built once, whoever needs it first."""
    code, text = once(f"build {preset}", lambda: run_program([str(ROOT / "specs" / "build"), preset], {}, 1800))
    if code:
        raise RuntimeError(f"build/{preset} does not build\n{text}")


@dataclass
class Test:
    """What CTest knows of one program or file."""

    name: str
    command: list
    env: dict
    labels: set
    seconds: int

    @property
    def interpreter(self):
        """Of a file of Python, which `env` starts."""
        return self.command[1]


@functools.cache
def registered(preset):
    """{name: Test} of a build, each with the settings that are its own; MOONFERRY_SPEC_SEEDS is the caller's."""
    command = ["ctest", "--test-dir", str(BUILD / preset), "--show-only=json-v1"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for test in json.loads(told)["tests"]:
        of = {p["name"]: p["value"] for p in test.get("properties", [])}
        env = dict(v.split("=", 1) for v in of.get("ENVIRONMENT", []))
        env.update({k: v for k, v in os.environ.items() if k == "MOONFERRY_SPEC_SEEDS"})
        seconds = int(float(of.get("TIMEOUT", PER_PROGRAM_SECONDS))) * PATIENCE
        command = test.get("command", [str(BUILD / preset / "no such program")])
        found[test["name"]] = Test(test["name"], command, env, set(of.get("LABELS", [])), seconds)
    return found


def tests_of(preset, prefix, label=None):
    """Those whose names begin so, and that have the label."""
    found = [test for test in registered(preset).values() if test.name.startswith(prefix)]
    found = [test for test in found if label is None or label in test.labels]
    if not found:
        raise RuntimeError(f"CTest has no test in build/{preset} whose name begins with {prefix}")
    return found


def environment(preset):
    """What a program needs to use one build, as the C specs have it."""
    return dict(tests_of(preset, "c.")[0].env)


def junit(path, result):
    for case in ET.parse(path).getroot().iter("testcase"):
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            result.fail(name, (bad.text or bad.get("message") or "").strip())
        elif case.find("skipped") is not None:
            skipped = case.find("skipped")
            result.skip(name, (skipped.get("message") or skipped.text or "it gives no reason").strip())
        else:
            result.ok()


def cmocka_test(suite, test, more=None, suffix=""):
    """A registered program of C."""
    return cmocka(
        f"{suite} {test.name}{suffix}", test.command[0], {**test.env, **(more or {})}, test.command[1:], test.seconds
    )


def cmocka(name, program, env, words=(), seconds=PER_PROGRAM_SECONDS):
    """One cmocka program, called with these words. 77 means that there is no driver to run it on: a failure, as every
    suite names its driver."""
    report = LOGS / (re.sub(r"[^a-z0-9]+", "-", name.lower()) + ".xml")
    report.unlink(missing_ok=True)
    report.parent.mkdir(parents=True, exist_ok=True)
    if not Path(program).exists():
        one = Result()
        one.fail(name, f"there is no {program}, though it is registered with CTest")
        return one
    more = {"CMOCKA_MESSAGE_OUTPUT": "XML", "CMOCKA_XML_FILE": str(report)}
    code, text = measured(name, [program, *words], {**env, **more}, seconds)
    one = Result()
    if report.exists() and report.stat().st_size:
        junit(report, one)
        # cmocka has no place for the reason of a skip; a spec prints it before, with its name or without.
        reasons = dict(re.findall(r"^skip (\w+): (.*)$", text, re.MULTILINE))
        alone = "; ".join(dict.fromkeys(re.findall(r"^skipped: (.+)$", text, re.MULTILINE)))[:240]
        one.skips = [(n, reasons.get(n.split("::")[-1], alone or r)) for n, r in one.skips]
    if not (one.passed or one.failures or one.skips):
        one.fail(name, f"no test of it was counted; {how_it_ended(code)}\n{text[-6000:]}")
    check_end(one, name, code, text)
    return one


def tap(text, result):
    name, lines = None, []
    for line in text.splitlines():
        if match := re.match(r"(not )?ok \d+ - (.*)$", line):
            if name:
                result.fail(name, "\n".join(lines))
            name, lines = None, []
            if match[1]:
                name = match[2]
            elif match[2].startswith("# SKIP "):
                result.skip("pending", match[2][len("# SKIP ") :])
            else:
                result.ok()
        elif name and line.startswith("#"):
            lines.append(line[2:])
    if name:
        result.fail(name, "\n".join(lines))


def busted(suite, test, more=None):
    """One file under luajit, in a process of its own, so that a crash is one file's."""
    noun = test.name.split(".")[-1]
    code, text = measured(f"{suite} {test.name}", test.command, {**test.env, **(more or {})}, test.seconds)
    one = Result()
    tap(text, one)
    one.skips = [(noun, reason) for _, reason in one.skips]
    one.failures = [(f"{noun}: {name}", said) for name, said in one.failures]
    if not re.search(r"^1\.\.\d+$", text, re.MULTILINE):
        one.fail(noun, f"it did not come to its end; {how_it_ended(code)}\n{text[-6000:]}")
    elif not (one.passed or one.failures or one.skips):
        one.fail(noun, "there is no test in it")
    check_end(one, noun, code, text)
    return one


def pytest_tests(name, tests, more=None, python=None, seconds=900):
    """Registered files of Python, which share their settings, in one process."""
    first, files = tests[0], [test.command[-1] for test in tests]
    at = first.command.index("pytest")
    words = [word for word in first.command[at + 1 : -1] if word not in ("-q", "-p", "no:cacheprovider")]
    return pytest(
        name, python or first.interpreter, [*files, *words], {**first.env, **(more or {})}, seconds * PATIENCE
    )


def spent_in_files(name, report):
    """What each file took, into SPENT."""
    spent = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        file = next((word for word in (case.get("classname") or "").split(".") if word.startswith("test_")), "?")
        spent[file] = spent.get(file, 0) + float(case.get("time") or 0)
    SPENT.extend((seconds, f"{name} {file}") for file, seconds in spent.items())


def pytest(name, python, arguments, env, seconds=900):
    """Files and folders of test_*.py, and more words for pytest."""
    result = Result()
    report = LOGS / (re.sub(r"[^a-z0-9]+", "-", name.lower()) + ".xml")
    report.unlink(missing_ok=True)
    report.parent.mkdir(parents=True, exist_ok=True)
    command = [python, "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    code, text = run_program([*command, "--junit-xml", report], env, seconds)
    log(name, text)
    if report.exists():
        junit(report, result)
        spent_in_files(name, report)
        for file in expected.without_tests([word for word in arguments if (ROOT / word).exists()], report):
            result.fail(file, "no test of it was counted")
    if deselected := re.search(r"\d+ deselected", text):
        result.fail(name, f"{deselected[0]}, and nobody says which or why")
    if not (result.passed or result.failures or result.skips):
        result.fail(name, f"no test of it was counted; {how_it_ended(code)}\n{text[-6000:]}")
    check_end(result, name, code, text)
    return result
