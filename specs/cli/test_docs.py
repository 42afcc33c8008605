"""docs/sim.md: every command that it shows is run, and answers as the page says."""

import os
import re
import shlex
import shutil

import pytest
from programs import CUDA, LIBRARIES, MOONFERRY, ROOT

PAGE = (ROOT / "docs" / "sim.md").read_text()
PEERS = LIBRARIES / "venv" / "bin"
NEEDS_PEERS = pytest.mark.skipif(
    not (PEERS / "python").exists(), reason="cuda.core and Numba are not installed (specs/sim/setup.sh)"
)
TEST = """
def test_an_exchange():
    race(order=True)
    end()
"""


def sessions():
    """The blocks that show a command and what it printed: the words, and the lines."""
    for text in re.findall(r"```\n\$ moonferry sim (.*?)```", PAGE, re.DOTALL):
        command, *lines = text.splitlines()
        yield shlex.split(command), lines


def commands():
    """The commands without their output, in the text and in the CI file."""
    shown = re.findall(r"^(?:      - run: )?moonferry sim (.*)$", PAGE, re.MULTILINE)
    return [shlex.split(words) for words in shown]


def settled(line):
    """A line without what differs from run to run and from machine to machine."""
    line = re.sub(r"0x[0-9a-f]+", "0x", line)
    line = re.sub(r"#\d+", "#", line)
    line = re.sub(r"\S*/race\.py", "race.py", line)
    return re.sub(r"\.cpython-\S*\.so", ".so", line)


def on_path(sim):
    """A folder in which the page's `python` and `pytest` are those with the libraries."""
    (sim.folder / "tests" / "gpu").mkdir(parents=True)
    (sim.folder / "tests" / "gpu" / "test_exchange.py").write_text(CUDA + TEST)
    shutil.copy(ROOT / "examples" / "race" / "race.py", sim.folder)
    return {"PATH": os.pathsep.join([str(PEERS), os.path.dirname(MOONFERRY), os.environ["PATH"]])}


@NEEDS_PEERS
@pytest.mark.parametrize("words, lines", list(sessions()), ids=lambda part: " ".join(part)[:40])
def test_a_session_of_the_page(sim, words, lines):
    done = sim(*words, env=on_path(sim))
    assert done.returncode == ("--wait" not in words)
    report = lines[next(i for i, line in enumerate(lines) if line.startswith(("[", "moonferry"))) :]
    assert [settled(line) for line in done.stderr.splitlines()] == [settled(line) for line in report]
    printed = done.stdout.splitlines()
    assert len(printed) == 20
    for line in lines[: len(lines) - len(report)]:
        if more := re.match(r"   \((\d+) lines more: .* right (\d+) times in 20\)", line):
            assert printed.count("all bytes are 7") == int(more[2])
        elif not line.startswith("   ("):
            assert line in printed


@NEEDS_PEERS
@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_of_the_page(sim, words):
    done = sim(*words, env=on_path(sim))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "moonferry sim: 0 findings" in done.stderr
    assert ("--report" not in words) or (sim.folder / "races.txt").exists()


def test_a_program_can_ask_the_simulator(sim):
    (text,) = [t for t in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "sim_calls" in t]
    exchange = """
def exchange():
    event, stream = made("cuEventCreate", ctypes.c_void_p, 0), made("cuStreamCreate", ctypes.c_void_p, 1)
    ok("cuEventRecord", event, stream)
    ok("cuEventDestroy_v2", event)
    ok("cuStreamDestroy_v2", stream)
"""
    done = sim.python(exchange + text + "end()\n")
    assert done.returncode == 0, done.stderr


def test_what_the_page_shows_is_found_here():
    assert len(list(sessions())) == 2 and len(commands()) == 2
