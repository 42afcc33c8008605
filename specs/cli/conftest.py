"""What each spec of the `moonferry` program gets: `sim`, which runs it in a folder of its own."""

import signal
import tempfile
from pathlib import Path

import pytest
from programs import Sim

# A shell that starts the specs in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def sim():
    # Short names: pytest's own folders do not fit into what a report shows of a command.
    with tempfile.TemporaryDirectory(prefix="cli-") as folder:
        yield Sim(Path(folder))
