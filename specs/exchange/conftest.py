"""What the Python specs of exchange share: the hand-made structs of specs/python, and the ledger at zero."""

import gc
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

import moonferry as mf  # noqa: E402


@pytest.fixture(autouse=True)
def ledger_is_unchanged():
    """Whatever a spec made is gone at its end."""
    gc.collect()
    before = mf.ledger()
    yield
    gc.collect()
    assert mf.ledger()[:3] == before[:3]
