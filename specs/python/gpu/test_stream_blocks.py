"""Blocks of streams that a collection ends while another one begins or ends: those of generators that nobody has."""

import contextlib
import gc

import pytest

import moonferry as mf
from test_stream import entered


@contextlib.contextmanager
def collecting(stream, after):
    """Inside, a collection comes with the allocation of that number; it ends the block of a generator. Up to CPython
    3.11 it comes in the midst of a call."""
    before = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        block = entered(stream)
        next(block)
        cycle = [block]
        cycle.append(cycle)
        del block, cycle
        kept = [(i, i) for i in range(5000)]  # so that no dead pair is there to be used again
        gc.set_threshold(after)
        gc.enable()
        yield kept
    finally:
        gc.disable()
        gc.set_threshold(*before)
        gc.collect()
        gc.enable()


@pytest.mark.parametrize("after", range(1, 5))
def test_a_block_that_a_collection_ends_while_another_begins(gpu, device, after):
    before, (a, b) = mf.current_stream(device), (mf.Stream(device), mf.Stream(device))
    enter = mf.Stream.__enter__
    with collecting(a, after):
        enter(b)
    assert mf.current_stream(device) is b
    b.__exit__()
    assert mf.current_stream(device) == before


@pytest.mark.parametrize("after", range(1, 5))
def test_a_block_that_a_collection_ends_while_another_ends(gpu, device, after):
    before, (a, b) = mf.current_stream(device), (mf.Stream(device), mf.Stream(device))
    leave = mf.Stream.__exit__
    a.__enter__()
    with collecting(a, after):
        b.__enter__()
        leave(a)
    assert mf.current_stream(device) is b
    b.__exit__()
    assert mf.current_stream(device) == before
