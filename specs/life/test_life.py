"""Every ending of cases.py and the other files of cases ends as it should, each as often as MOONFERRY_SPEC_LIVES says
(3).

A program that dies, hangs, prints more or prints less fails. docs/life.md lists the same cases. With
MOONFERRY_SPEC_VALGRIND set each runs under Valgrind, with LuaJIT's compiler off because Valgrind cannot follow it, and
fails as well if Valgrind has anything to say.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cases
import closing_cases
import engine_cases
import level_cases
import pytest

CASES = cases.CASES + engine_cases.CASES + closing_cases.CASES + level_cases.CASES
ROOT = Path(__file__).resolve().parents[2]
LIVES = int(os.environ.get("MOONFERRY_SPEC_LIVES", "3"))
VALGRIND = bool(os.environ.get("MOONFERRY_SPEC_VALGRIND"))
# Only a program that hangs takes so long. The first to import NumPy or PyTorch reads it from the disk: that has taken
# half a minute beside other work.
SECONDS = 1200 if VALGRIND else 600
ENGINES = Path(os.environ["MOONFERRY_BUILD"]) / "specs"
HOSTS = {
    "lua": (["luajit"], cases.LUA, ".lua"),
    "python": ([sys.executable], cases.PYTHON, ".py"),
    "engine": ([ENGINES / "life_engine"], "", ".lua"),
    "linked engine": ([ENGINES / "life_engine_linked"], "", ".lua"),
    "love": (["love"], "", ".lua"),
}

COMPILER_OFF = {
    "lua": "jit.off()\n",
    "engine": "jit.off()\n",
    "linked engine": "jit.off()\n",
    "love": "jit.off()\n",
    "python": """
class Interpreted(mf.Lua):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.execute("jit.off()")
mf.Lua = Interpreted
""",
}


def under_valgrind(folder):
    """The words before a command. Python's pools would hide from Valgrind what is in them."""
    words = ["valgrind", "--quiet", "--fair-sched=yes", "--num-callers=30", f"--log-file={folder}/valgrind.%p"]
    words += ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]
    return ["env", "PYTHONMALLOC=malloc", *words, f"--suppressions={ROOT}/specs/valgrind.supp"]


def leaves_lua_open(case):
    """What a state holds that is not closed hangs on Lua's own memory, where LeakSanitizer does not look."""
    return case.host == "lua" and re.search(r"os\.exit\((\d+)?\)", case.program)


def end_of(case, folder):
    """(status, everything printed) of one process; what Valgrind says comes last."""
    command, prologue, suffix = HOSTS[case.host]
    if VALGRIND:
        command = [*under_valgrind(folder), *command]
        prologue += COMPILER_OFF[case.host]
    program = folder / f"{'main' if case.host == 'love' else 'program'}{suffix}"
    program.write_text(prologue + case.program)
    if case.host == "love":
        (folder / "conf.lua").write_text(engine_cases.LOVE_CONF)
        program = folder
    environment = {**os.environ, "MOONFERRY_PYTHON": sys.executable, "PYTHONFAULTHANDLER": "1"}
    if leaves_lua_open(case) and "ASAN_OPTIONS" in environment:
        environment["ASAN_OPTIONS"] += ":detect_leaks=0"
    if case.host not in ("lua", "python") and "ASAN_OPTIONS" in environment:
        # Python's faulthandler puts its stack for signals in place of ASan's, which that unmaps where a thread ends.
        environment["ASAN_OPTIONS"] += ":use_sigaltstack=0"
    if case.preload:
        libraries = filter(None, (os.environ.get("LD_PRELOAD"), str(ENGINES / case.preload)))
        environment["LD_PRELOAD"] = " ".join(libraries)
    done = subprocess.run(
        [*command, program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        env=environment,
    )
    complaints = [log.read_text() for log in sorted(folder.glob("valgrind.*"))]
    return done.returncode, done.stdout + "".join(complaints)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.host}: {case.name}")
def test_it_ends_well(case, tmp_path):
    if VALGRIND and not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed")
    if "torch" in case.program and not importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is not installed")
    for life in range(LIVES):
        status, said = end_of(case, tmp_path)
        assert (said, status) == (case.says, case.status), f"life {life + 1} of {LIVES}"


def test_the_page_lists_every_case():
    page = (ROOT / "docs" / "life.md").read_text()
    assert [case.name for case in CASES if f"| {case.name} |" not in page] == []
