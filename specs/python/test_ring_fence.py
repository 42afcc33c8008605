"""What may be done with a slot's memory while work is behind a fence; and rings at their limits."""

import contextlib
import gc
import sys
import threading
import weakref

import pytest

import moonferry as mf
from dlpack_abi import Lender
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


def test_a_slot_is_not_closed_while_a_buffer_of_it_waits_for_a_fence():
    """Else the buffer would be of memory that is no more."""
    ring, point, given = mf.Ring(2, "float32", 2), Point(), []
    slot, _ = ring.begin(0)
    slot.fill(3)
    ring.done(point.capsule, write=True)
    ring.close()
    reader = threading.Thread(target=lambda: given.append(memoryview(slot)), daemon=True)
    reader.start()
    assert point.asked.wait(60)
    with pytest.raises(BufferError, match="1 buffer of the tensor is out"):
        slot.close()
    point.reached.set()
    reader.join(60)
    with given.pop() as memory:
        assert memory.tolist() == [3, 3]
    slot.close()


@pytest.mark.parametrize("at", ["wait", "drop"])
@pytest.mark.parametrize("use", ["begin", "latest", "hold"])
def test_a_ring_may_be_closed_by_a_fence_that_it_asks(use, at):
    """The call that is under way goes on with what it has; the next one finds the ring closed."""
    ring, point, closing = mf.Ring(2, "float32", 3), Point(), []
    others = [Point() for _ in range(40)]

    def wait(ctx, value, ns):
        if point.reached.is_set() and at == "wait":
            closing.append(ring.close())
        return 0 if point.reached.is_set() else 1

    def drop(ctx, value):
        if at == "drop":
            closing.append(ring.close())

    point.fence.wait, point.fence.drop = type(point.fence.wait)(wait), type(point.fence.drop)(drop)
    ring.begin(0)
    ring.publish()
    ring.latest()
    ring.hold(point.capsule, write=True)
    if use != "hold":
        ring.begin(0)
        ring.publish()
    if use == "begin":  # the slot is given back, and cools
        ring.latest()
    point.reached.set()
    with contextlib.suppress(ValueError):
        if use in ("begin", "latest"):
            assert getattr(ring, use)(*[0] * (use == "begin"))[0].shape == (2,)
        else:
            for other in others:  # the first is asked when there is no more room
                ring.hold(other.capsule, write=True)
    assert closing
    with pytest.raises(ValueError, match="the ring is closed"):
        ring.latest()
    for other in others:
        other.reached.set()
    mf.trim()  # looks at what is done


def test_a_buffer_that_could_not_wait_for_a_fence_is_none():
    ring, point = mf.Ring(2, "float32", 2), Point()
    slot, _ = ring.begin(0)
    point.fence.wait = type(point.fence.wait)(lambda ctx, value, ns: point.reached.is_set() - 1)
    ring.done(point.capsule, write=True)
    with pytest.raises(BufferError, match="cannot be waited for"):
        memoryview(slot)
    point.reached.set()
    ring.close()
    slot.close()
    assert point.dropped == 1


def test_the_most_slots_that_a_ring_can_have():
    assert len(mf.Ring(1, slots=64).slots) == 64
    made = tuple(mf.zeros(1) for _ in range(64))
    assert mf.Ring(made).slots == made


def test_the_longest_timeout():
    ring = mf.Ring(1)
    assert ring.begin(9e9)[1] == 0
    with pytest.raises(ValueError, match="timeout is 9000000001.0; None or seconds from 0 to 9e9 expected"):
        ring.begin(9e9 + 1)


def test_a_ring_of_a_handle_leaves_no_tensor():
    ring, counts = mf.Ring(2, slots=3), []
    for _ in range(40):
        assert len(mf.Ring.from_handle(ring.handle).slots) == 3
        counts.append(sys.getrefcount(mf.Tensor))
    assert counts[-1] == counts[20]  # some dead tensors are kept for the next ones


def test_a_reference_that_is_weak_ends_with_the_ring():
    gone, ring = [], mf.Ring(1)
    one = weakref.ref(ring, gone.append)
    assert one() is ring
    del ring
    assert one() is None and gone == [one]


def test_what_a_conversion_raises_is_not_kept():
    ring, calls = mf.Ring(1, slots=2), []

    def convert(t):
        calls.append(t)
        return 1 // (len(calls) - 1)

    for error in (ZeroDivisionError, None):
        with pytest.raises(error) if error else contextlib.nullcontext():
            assert ring.into(convert) == (1, 0)


def test_a_ring_of_a_handle_for_which_memory_ends():
    """Each allocation of CPython's fails in turn; no tensor that died before is there to be used again."""
    testcapi = pytest.importorskip("_testcapi")
    ring, before, living = mf.Ring(2, slots=3), mf.ledger(), [mf.zeros(1) for _ in range(100)]
    for nth in range(100):
        call = map(mf.Ring.from_handle, [ring.handle])  # which asks whether there is a result or an error
        testcapi.set_nomemory(nth, nth + 1)
        try:
            made = next(call)
        except MemoryError:
            continue
        finally:
            testcapi.remove_mem_hooks()
        break
    assert nth > 2 and len(made.slots) == 3
    del made, living
    gc.collect()
    assert mf.ledger() == before


def test_a_finalizer_closes_the_ring_whose_handle_is_taken():
    """Before CPython 3.12 the collector runs where anything is allocated; of short tuples that died some are kept."""
    slots = 64
    ring, make, threshold = mf.Ring(2, slots=slots), mf.Ring.from_handle, gc.get_threshold()
    handle, closed = ring.handle, []

    class Closes:
        def __del__(self):
            ring.close()
            closed.append(True)

    gc.collect()
    closes = Closes()
    closes.itself = closes
    del closes
    gc.set_threshold(1)
    try:
        made = make(handle)
    finally:
        gc.set_threshold(*threshold)
    assert [t.shape for t in made.slots] == [(2,)] * slots
    gc.collect()
    assert closed == [True]


class Awaited:
    """Memory behind a fence, which Python code waits for and deletes when any tensor goes from now on."""

    def __init__(self):
        self.lender, self.point = Lender(), Point()
        t = mf.from_dlpack(self.lender)
        mf._core._tensor_fence(t, self.point.capsule, True)
        del t
        self.point.reached.set()


class Raises:
    """As a number, or when called."""

    def __call__(self, *ignored):
        self.awaited = Awaited()
        raise KeyError("mine")

    __index__ = __float__ = __call__


class Extent:
    def __index__(self):
        self.awaited = Awaited()
        return 9


EXCEPTIONS = {
    "a copy that is watched": (Raises, KeyError, lambda x: mf.zeros(3).copy(progress=x)),
    "a copy of an array": (Raises, KeyError, lambda x: mf.zeros((2, 3)).copy(mf.zeros(3), progress=x)),
    "an element of a part": (Raises, KeyError, lambda x: mf.zeros(3).__setitem__(slice(1, 3), [1, x])),
    "an element": (Raises, KeyError, lambda x: mf.tensor([1, x], "int32")),
    "bytes": (Extent, ValueError, lambda x: mf._core._from_raw(mf.zeros(3, "uint8"), (x,), "uint8", False)),
    "a copy for a consumer": (Awaited, mf.ExchangeError, lambda x: mf.zeros(3, "uint1").__dlpack__(copy=True)),
}


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_exception_is_not_lost_where_a_tensor_goes_and_another_ones_deleter_runs(name):
    kind, error, call = EXCEPTIONS[name]
    made = kind()
    with pytest.raises(error):
        call(made)
    awaited = getattr(made, "awaited", made)
    assert (awaited.lender.deletes, awaited.point.dropped) == (1, 1)


def test_a_fence_is_taken_once_where_waiting_for_others_takes_it_too():
    """A memory has room for four fences; where a fifth comes, those are asked whether they are done."""
    fifth, refused, t, other = Point(), [], mf.zeros(1), mf.zeros(1)

    class Takes(Point):
        def wait(self, ctx, value, ns):
            if not self.reached.is_set():
                with pytest.raises(TypeError, match="nobody has used"):
                    mf._core._tensor_fence(other, fifth.capsule, True)
                refused.append(True)
            return super().wait(ctx, value, ns)

    points = [Takes() for _ in range(4)]
    for point in points:
        mf._core._tensor_fence(t, point.capsule, True)
    function = type(fifth.fence.wait)
    fifth.fence.wait = function()
    with pytest.raises(ValueError, match="wait is NULL"):
        mf._core._tensor_fence(t, fifth.capsule, True)  # which leaves it in the capsule
    fifth.fence.wait = function(fifth.wait)
    mf._core._tensor_fence(t, fifth.capsule, True)
    for point in [*points, fifth]:
        point.reached.set()
    assert t.tolist() == other.tolist() == [0]
    assert len(refused) == 4 and [point.dropped for point in [*points, fifth]] == [1] * 5


def test_a_fence_closes_the_tensor_that_gets_another_one():
    t, fifth = mf.zeros(1), Point()

    class Closes(Point):
        def wait(self, ctx, value, ns):
            t.close()
            return 0

    points = [Closes() for _ in range(4)]
    for point in points:
        mf._core._tensor_fence(t, point.capsule, True)
    mf._core._tensor_fence(t, fifth.capsule, True)
    assert t.closed
    fifth.reached.set()
    mf.zeros(1).close()  # what goes looks after what waits
    assert [point.dropped for point in [*points, fifth]] == [1] * 5
