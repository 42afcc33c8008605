"""What may be done with a slot's memory while work is behind a fence."""

import threading

import pytest

import moonferry as mf
from test_ring import Point


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("read", ["tolist", "tobytes"])
@pytest.mark.parametrize("give", ["done", "hold"])
def test_only_what_writes_behind_a_fence_keeps_the_memory_from_being_read(give, read, write):
    ring, point = mf.Ring(1, "float32", 2), Point()
    slot, _ = ring.begin(0)
    if give == "hold":
        ring.publish()
        slot = ring.latest()[0]
    getattr(ring, give)(point.capsule, write=write)
    reader = threading.Thread(target=getattr(slot, read))
    reader.start()
    if write:
        assert point.asked.wait(60)
        point.reached.set()
    reader.join(60)
    assert not reader.is_alive() and point.asked.is_set() == write
    point.reached.set()
