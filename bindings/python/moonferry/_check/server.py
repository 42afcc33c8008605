"""The process that imports the library once and runs each rule in a fork of its own.

It reads names of rules, one a line, and answers each with one line of JSON. A fork that ends by itself says what it
found through a pipe; one that dies or hangs is seen by its status. Must not know: what a rule means, how it is shown.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import sys
import tempfile
import time
from typing import Any, Callable

from . import consume as _consume  # noqa: F401  (the modules of rules fill the list)
from . import interfaces as _interfaces  # noqa: F401
from . import produce as _produce  # noqa: F401
from . import table as _table  # noqa: F401
from .library import MAKE, Broken, Library, NotOffered, said
from .rules import RULES

Answer = dict[str, Any]


def run_here(library: Library, name: str) -> Answer:
    """The rule in this process."""
    try:
        note = RULES[name].run(library)
    except Broken as error:
        return {"result": "broken", "seen": str(error)}
    except NotOffered as error:
        return {"result": "not offered", "seen": str(error)}
    except BaseException as error:
        return {"result": "broken", "seen": f"raised {said(error)}"}
    return {"result": "holds", "seen": note or ""}


def last_words(path: str) -> str:
    """What says most in what a dead process printed."""
    with open(path, errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    for line in lines:
        if "what():" in line or "Assertion" in line or "Check failed" in line:
            return line[:200]
    return lines[0][:200] if lines else ""


def _in_child(action: Callable[[], Answer], pipe: int, log: int) -> None:
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()
    answer = action()
    sys.stdout.flush()
    os.write(pipe, json.dumps(answer).encode())
    os._exit(0)


def _wait(pid: int, pipe: int, seconds: float) -> tuple[bytes, int | None]:
    """What the child wrote and its status; no status if it had to be killed."""
    text, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            break
        part = os.read(pipe, 65536)
        if not part:
            return text, os.waitpid(pid, 0)[1]
        text += part
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return text, None


def run_forked(action: Callable[[], Answer], seconds: float) -> Answer:
    with tempfile.NamedTemporaryFile(prefix="moonferry-check-") as log:
        reading, writing = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _in_child(action, writing, log.fileno())
        os.close(writing)
        text, status = _wait(pid, reading, seconds)
        os.close(reading)
        if text and status == 0:
            return json.loads(text)
        if status is None:
            return {"result": "hung", "seen": f"it did not end within {seconds:g} s"}
        number = status & 0x7F
        died = f"signal {signal.Signals(number).name}" if number else f"exit status {status >> 8}"
        return {"result": "crashed", "seen": f"{died}; {last_words(log.name)}".rstrip("; ")}


def describe(library: Library) -> Answer:
    """What is checked, as far as an array tells. In a process of its own: some libraries start threads with it."""
    try:
        kind = type(library.array())
    except NotOffered as error:
        return {"ready": False, "why": str(error) if MAKE in str(error) else f"{error}; {MAKE}"}
    except BaseException as error:
        return {"ready": False, "why": f"no array can be made: {said(error)}; {MAKE}"}
    if kind.__module__ == "builtins" and library.imports():
        return {"ready": False, "why": f"what was made is of the class {kind.__qualname__}, which is no array; {MAKE}"}
    package = sys.modules[library.name.partition(".")[0]]
    version = getattr(library.xp, "__version__", getattr(package, "__version__", ""))
    array = f"{kind.__module__}.{kind.__qualname__}"
    if not hasattr(kind, "__dlpack__") and not library.imports():
        why = f"its {array} has no __dlpack__, and {library.name} has no from_dlpack; {MAKE}"
        return {"ready": False, "why": why}
    return {"ready": True, "version": str(version), "python": sys.version.split()[0], "array": array}


def serve(name: str, make: str | None, seconds: float) -> None:
    """Answers rules until the input ends. The first line out says what was imported, or why it was not."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not come between the answers
    try:
        library = Library(name, make)
    except BaseException as error:
        print(json.dumps({"ready": False, "why": said(error)}), file=out)
        return
    about = run_forked(lambda: describe(library), seconds)
    if "ready" not in about:
        about = {"ready": False, "why": f"making an array {about['result']}: {about['seen']}"}
    print(json.dumps(about), file=out)
    for line in sys.stdin:
        rule = line.strip()
        print(json.dumps(run_forked(lambda: run_here(library, rule), seconds)), file=out)  # noqa: B023
