"""What each spec of the `moonferry` program gets: `sim` runs it in a folder of its own, and `prompt` on a terminal."""

import signal
import tempfile
from pathlib import Path

import pytest
from programs import MOONFERRY, Sim
from terminal import Terminal, plain_environment

# A shell that starts the specs in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def sim():
    # Short names: pytest's own folders do not fit into what a report shows of a command.
    with tempfile.TemporaryDirectory(prefix="cli-") as folder:
        yield Sim(Path(folder))


@pytest.fixture
def prompt(tmp_path):
    """Starts the program on a terminal and waits for the prompt; each is ended when the spec is. `shell`: a script that
    starts it, as $0."""
    terminals = []

    def start(*words, shell=None, **settings):
        command = [MOONFERRY, *words] if shell is None else ["sh", "-mc", shell, MOONFERRY]
        terminal = Terminal(command, plain_environment(tmp_path, **settings), tmp_path)
        terminals.append(terminal)
        terminal.expect("\n> ")
        return terminal

    yield start
    for terminal in terminals:
        terminal.close()
