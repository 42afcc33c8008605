"""What the Python specs of exchange share: the hand-made structs of specs/python, and the ledger at zero."""

import gc
import os
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))

import moonferry as mf  # noqa: E402
from garbage import leave_out_what_is_loaded  # noqa: E402


@pytest.fixture(autouse=True)
def ledger_is_unchanged():
    """Whatever a spec made is gone at its end."""
    leave_out_what_is_loaded()
    gc.collect()
    before = mf.ledger()
    yield
    gc.collect()
    patience = time.monotonic() + 10
    while mf.ledger()[:3] != before[:3] and time.monotonic() < patience:
        time.sleep(0.1)  # JAX lets go of memory on threads of its own
        gc.collect()
    assert mf.ledger()[:3] == before[:3]
