"""What each spec of the `moonferry` program gets: `sim`, which runs it in a folder of its own."""

import tempfile
from pathlib import Path

import pytest
from programs import Sim


@pytest.fixture
def sim():
    # Short names: pytest's own folders do not fit into what a report shows of a command.
    with tempfile.TemporaryDirectory(prefix="cli-") as folder:
        yield Sim(Path(folder))
