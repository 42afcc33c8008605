"""moonferry.Ring and moonferry.fields: slots in turn and in a mailbox, fences, views made once, records as C and NumPy
lay them out; a frame allocates nothing."""

import ctypes as c
import gc
import signal
import sys
import threading
import weakref

import allocated
import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf


class Fence(c.Structure):
    _fields_ = (
        ("ctx", c.c_void_p),
        ("value", c.c_uint64),
        ("wait", c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_uint64, c.c_int64)),
        ("drop", c.CFUNCTYPE(None, c.c_void_p, c.c_uint64)),
    )


class Point:
    """A fence that the spec moves by hand, and its capsule. `wait` sleeps in an event, as a driver does in its own."""

    def __init__(self):
        self.reached, self.asked, self.dropped = threading.Event(), threading.Event(), 0
        kinds = dict(Fence._fields_)
        self.fence = Fence(None, 0, kinds["wait"](self.wait), kinds["drop"](self.drop))
        c.pythonapi.PyCapsule_New.restype = c.py_object
        c.pythonapi.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
        self.capsule = c.pythonapi.PyCapsule_New(c.addressof(self.fence), b"mf_fence", None)

    def wait(self, ctx, value, ns):
        if ns:
            self.asked.set()
        return 0 if self.reached.wait(min(ns / 1e9, 1)) else 1

    def drop(self, ctx, value):
        self.dropped += 1


def test_slots_come_in_turn():
    with mf.Ring((4, 2), "float32", 3) as ring:
        seen = []
        for frame in range(7):
            t, i = ring.begin()
            assert t is ring.slots[i]
            t.fill(frame)
            seen.append(i)
            ring.done()
        assert seen == [0, 1, 2, 0, 1, 2, 0]
        assert ring.slots[0].tolist() == [[6.0, 6.0]] * 4
        assert ring.slots[1].dtype == mf.float32
    with pytest.raises(ValueError, match="the ring is closed"):
        ring.begin()
    for use in (ring.publish, ring.latest, ring.done, lambda: ring.hold(None), lambda: ring.into(np.ndarray)):
        with pytest.raises(ValueError, match="the ring is closed"):
            use()
    assert repr(ring) == "<moonferry.Ring, closed>"
    ring.close()


def test_a_ring_of_ones_own_tensors_keeps_them():
    made = [mf.zeros(3) for _ in range(2)]
    ring = mf.Ring(made)
    assert ring.slots == tuple(made)
    assert repr(ring) == "<moonferry.Ring of 2 slots>"
    del made
    ring.begin()[0].fill(2)
    ring.done()
    assert ring.slots[0].tolist() == [2.0] * 3


def test_it_is_a_mailbox():
    ring = mf.Ring(1, "int32")
    assert ring.latest() is None
    for n in range(5):
        ring.begin(0)[0][0] = n
        ring.publish()
    t, i, fresh = ring.latest()
    assert (t[0], fresh) == (4, True)
    assert ring.latest() == (t, i, False)


def test_a_frame_waits_for_its_slots_fence_without_the_gil():
    ring, points = mf.Ring(2, "float32", 2), [Point(), Point()]
    for point in points:
        ring.begin(0)
        ring.done(point.capsule)
        with pytest.raises(TypeError, match="that nobody has used"):
            ring.done(point.capsule)
    with pytest.raises(TimeoutError, match=r"timeout is 0 s: none of the 2 slots was free"):
        ring.begin(0)

    def reach():
        points[0].asked.wait()
        points[0].reached.set()

    other = threading.Thread(target=reach)
    other.start()
    t, i = ring.begin()
    other.join()
    assert (i, points[0].dropped, points[1].dropped) == (0, 1, 0)
    t.fill(1)
    ring.done()
    points[1].reached.set()
    ring.slots[1].fill(3)
    assert points[1].dropped == 1


def test_ctrl_c_ends_a_wait():
    ring, ended, waiting = mf.Ring(2, "float32", 1), threading.Event(), []
    ring.begin()
    ring.publish()
    ring.latest()

    def interrupt():
        while not ended.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            ended.wait(0.01)

    def handler(number, frame):
        if waiting and not ended.is_set():
            ended.set()
            raise KeyboardInterrupt

    other, before = threading.Thread(target=interrupt), signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            other.start()
            waiting.append(True)
            ring.begin()
        other.join()
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(TimeoutError, match="the reader has not given one back"):
        ring.begin(0.001)


@pytest.mark.parametrize("timeout", [None, 3600])
def test_a_wait_goes_on_in_parts(timeout):
    """So that Ctrl-C comes through; each asks the fence anew."""

    class Late(Point):
        def wait(self, ctx, value, ns):
            self.times = getattr(self, "times", 0) + (ns > 0)
            self.reached.wait(ns / 1e9)
            return 0 if self.times == 3 else 1

    ring, point = mf.Ring(2, "float32", 1), Late()
    ring.begin(0)
    ring.done(point.capsule)
    assert ring.begin(timeout)[1] == 0 and point.times == 3


def test_closing_while_another_thread_waits():
    ring, point, got = mf.Ring(2, "float32", 1), Point(), []
    ring.begin(0)
    ring.done(point.capsule)
    other = threading.Thread(target=lambda: got.append(ring.begin()))
    other.start()
    point.asked.wait()
    ring.close()
    point.reached.set()
    other.join()
    assert got[0][1] == 0
    assert got[0][0].tolist() == [0.0, 0.0]


def test_a_ring_of_no_axes_is_one_of_numbers():
    ring = mf.Ring(())
    assert [slot.shape for slot in ring.slots] == [()] * 3


def test_whoever_asks_for_the_slots_has_them_too():
    ring = mf.Ring(2)
    slots = ring.slots
    before = sys.getrefcount(slots)
    for _ in range(5):
        assert ring.slots is slots
    assert sys.getrefcount(slots) == before
    with ring as entered:
        assert entered is ring
        held = sys.getrefcount(ring)
        ring.__enter__()
        assert sys.getrefcount(ring) == held


def deleted_in_python(ran):
    """A tensor whose producer's deleter is Python code, which is to meet no exception."""
    producer = abi.Producer()
    deleter = c.CFUNCTYPE(None, c.c_void_p)(lambda _: ran.append(sum([1, 2])))
    producer.struct.deleter, producer.keeps = abi.address_of(deleter), deleter
    return mf.from_dlpack(producer.capsule())


def test_what_a_ring_lets_go_leaves_an_exception_alone():
    ran = []
    with pytest.raises(TypeError, match="int"):
        int(mf.Ring([deleted_in_python(ran)]))  # the call has failed when the ring goes
    assert ran == [3]


def test_what_a_ring_lets_go_that_was_closed_in_a_wait_leaves_an_exception_alone():
    ran = []
    rings = [mf.Ring([deleted_in_python(ran)])]
    rings[0].begin(0)
    rings[0].publish()
    rings[0].latest()
    rings[0].slots[0].close()  # so that the ring alone has the memory

    def handler(number, frame):
        rings.pop().close()
        raise KeyError("from the handler")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyError, match="from the handler"):
            rings[0].begin()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ran == [3]


def test_the_reader_holds_its_slot():
    ring, point = mf.Ring(1, "float32", 2), Point()
    with pytest.raises(ValueError, match="the reader has no slot"):
        ring.hold(point.capsule)
    ring.begin(0)
    ring.publish()
    held = ring.latest()[1]
    with pytest.raises(ValueError, match="fence is NULL"):
        ring.hold(None)
    ring.hold(point.capsule, write=True)
    ring.begin(0)
    ring.publish()
    assert ring.latest()[1] != held
    with pytest.raises(TimeoutError):
        ring.begin(0)
    point.reached.set()
    assert ring.begin(0)[1] == held


def test_views_are_made_once():
    ring, calls = mf.Ring((2, 3)), []

    def convert(t):
        calls.append(t)
        return t.numpy()

    views = ring.into(convert)
    assert ring.into(convert) is views
    assert calls == list(ring.slots)
    assert ring.into(np.ndarray) is ring.into(np.ndarray)
    t, i = ring.begin()
    views[i][...] = 5
    assert t.tolist() == ring.into(np.ndarray)[i].tolist() == [[5.0] * 3] * 2
    with pytest.raises(ZeroDivisionError):
        ring.into(lambda t: 1 / 0)
    with pytest.raises(ValueError, match="the ring is closed"):
        ring.into(lambda t: ring.close() or ring.slots)
    assert len(calls) == 3


def test_a_conversion_that_closes_the_ring():
    ring = mf.Ring(2)
    assert ring.into(lambda t: ring.close()) == (None,) * 3


class Closes:
    """A conversion, and a timeout; each time that it is asked for something it closes a ring."""

    def __init__(self, ring):
        self.close = ring.close

    def __float__(self):
        self.close()
        return 1.0

    def __hash__(self):
        self.close()
        return 5

    def __eq__(self, other):
        self.close()
        return False

    def __call__(self, t):
        return t.shape


def test_a_timeout_that_closes_the_ring():
    ring = mf.Ring(2)
    with pytest.raises(ValueError, match="the ring is closed"):
        ring.begin(Closes(ring))


def test_a_hash_that_closes_the_ring():
    ring = mf.Ring(2)
    assert ring.into(Closes(ring)) == ((2,),) * 3


def test_a_comparison_that_closes_the_ring():
    class Same(Closes):
        def __hash__(self):
            return 5

    ring = mf.Ring(2)
    ring.into(Same(ring))
    assert ring.into(Same(ring)) == ((2,),) * 3


def test_torch_views(torch):
    ring = mf.Ring(4)
    for view, slot in zip(ring.into(torch.Tensor), ring.slots):
        assert view.data_ptr() == slot.data_ptr


def test_a_frame_allocates_nothing():
    ring, reader = mf.Ring((16, 4)), mf.Ring(4)
    views = ring.into(mf.Tensor.numpy)  # NumPy 2.0's from_dlpack gives what may not be written

    def frame():
        t, i = ring.begin()
        views[i].fill(1)
        ring.done()
        reader.begin(0)
        reader.publish()
        reader.latest()

    gc.disable()
    try:
        before = mf.ledger().blocks
        assert allocated.blocks_left_by(frame, lambda: None, 1000) < 10
        assert mf.ledger().blocks == before
    finally:
        gc.enable()


def test_a_ring_that_its_views_know_is_collected():
    def make():
        ring = mf.Ring(4)
        ring.into(lambda t: ring)
        return weakref.ref(ring)

    told = make()
    gc.collect()
    assert told() is None


def test_a_ring_that_ends_leaves_neither_weak_references_nor_those_to_its_class():
    mf.Ring(2)
    before = sys.getrefcount(mf.Ring)
    for _ in range(50):
        ring = mf.Ring(2)
        told = weakref.ref(ring)
        del ring
        assert told() is None
    assert sys.getrefcount(mf.Ring) < before + 10


def test_a_collection_inside_of_a_ring_s_end():
    """What the memory of a slot is given back to may collect, when the ring is no object any more."""

    class Owner:
        def __del__(self):
            gc.collect()
            ended.append(1)

    ended, memory = [], (c.c_float * 4)()
    for _ in range(10):
        ring = mf.Ring([mf.wrap(c.addressof(memory), (4,), owner=Owner())])
        del ring
    assert len(ended) == 10


def test_lua_and_python_share_a_ring():
    lua = mf.Lua()
    ring = mf.Ring(2, "int32", 2)
    fill = lua.execute("""
        local ffi, mf = require "ffi", require "moonferry"
        return function(address)
          local ring = mf.ring_from_handle(ffi.cast("mf_ring *", ffi.cast("intptr_t", address)))
          ring:begin(0):fill(7)
          ring:publish()
          ring:close()
        end""")
    fill(ring.handle)
    assert ring.latest()[0].tolist() == [7, 7]
    other = mf.Ring.from_handle(ring.handle)
    ring.close()
    assert other.latest()[0].tolist() == [7, 7]


def test_what_is_no_ring():
    ring = mf.Ring(2)
    for wrong, error, text in [
        (lambda: mf.Ring(2, slots=0), ValueError, "slots is 0; 1 to 64 expected"),
        (lambda: mf.Ring(2, slots=65), ValueError, "slots is 65"),
        (lambda: mf.Ring(2, slots="three"), TypeError, "str"),
        (lambda: mf.Ring([mf.zeros(1)], slots=2), TypeError, "neither dtype nor slots"),
        (lambda: mf.Ring([mf.zeros(1), 3]), TypeError, "slot 1 must be a moonferry.Tensor, not 'int'"),
        (lambda: mf.Ring([ring.slots[0]] * 2), ValueError, "views of one memory"),
        (lambda: mf.Ring([mf.zeros(1) for _ in range(65)]), ValueError, "n is 65"),
        (lambda: mf.Ring([ring.slots[0]] * 100_000), ValueError, "n is 100000"),
        (lambda: mf.Ring.from_handle(0), ValueError, "handle is 0"),
        (lambda: ring.begin(-1), ValueError, "timeout is -1"),
        (lambda: ring.begin(float("nan")), ValueError, "timeout is nan"),
        (lambda: ring.begin("soon"), TypeError, "str"),
        (lambda: ring.done(), ValueError, "no slot is being written"),
        (lambda: ring.done(3), TypeError, "a capsule named"),
        (lambda: ring.publish(), ValueError, "no slot is being written"),
        (lambda: ring.into([]), TypeError, "unhashable"),
    ]:
        with pytest.raises(error, match=text):
            wrong()
    ring.begin()
    with pytest.raises(ValueError, match="a slot is being written"):
        ring.begin()


VERTEX = [("position", "float32", 2), ("color", "uint8", 4), ("size", "float32")]


def test_fields_are_where_numpys_are():
    record = np.dtype([("position", "f4", 2), ("color", "u1", 4), ("size", "f4")])
    array = np.zeros(5, record)
    for layout in (VERTEX, record):
        v = mf.fields(array, layout)
        assert {name: t.shape for name, t in v.items()} == {"position": (5, 2), "color": (5, 4), "size": (5,)}
        v["position"][3, 1] = 2.5
        v["color"].fill(9)
        v["size"][4] = 7
        assert array["position"][3, 1] == 2.5
        assert array["color"].tolist() == [[9] * 4] * 5
        assert array["size"].tolist() == [0, 0, 0, 0, 7]
        array[...] = 0
    del v


def test_fields_are_placed_as_a_c_compiler_places_them():
    class Record(c.Structure):
        _fields_ = (("a", c.c_uint8), ("b", c.c_double), ("c", c.c_uint16), ("d", c.c_uint8))

    records = (Record * 3)()
    v = mf.fields(records, [("a", "uint8"), ("b", "float64"), ("c", "uint16"), ("d", "uint8")])
    for i in range(3):
        v["a"][i], v["b"][i], v["c"][i], v["d"][i] = i + 1, i + 0.5, 1000 + i, 20 + i
    assert [(r.a, r.b, r.c, r.d) for r in records] == [(i + 1, i + 0.5, 1000 + i, 20 + i) for i in range(3)]


def test_fields_of_a_slot_and_of_a_matrix():
    ring = mf.Ring((10, 16), "uint8", 2)
    views = ring.into(lambda t: mf.fields(t, VERTEX))
    t, i = ring.begin()
    views[i]["size"].fill(3)
    assert t[9, 15] == 0x40
    record = np.dtype([("at", "f4", (2, 3)), ("id", "i4")])
    array = np.zeros(2, record)
    mf.fields(array, record)["at"][1, 1, 2] = 4
    assert array["at"][1, 1, 2] == 4
    assert mf.fields(bytes(40), [("x", "int16")], stride=8)["x"].strides == (4,)


def test_what_is_no_layout():
    t = mf.zeros((4, 16), "uint8")
    for wrong, error, text in [
        (lambda: mf.fields(t, []), ValueError, "layout is empty"),
        (lambda: mf.fields(t, "xy"), TypeError, "layout is 'xy'"),
        (lambda: mf.fields(t, [("a",)]), TypeError, r"field 0 is \('a',\)"),
        (lambda: mf.fields(t, [("a", "uint8"), ("a", "uint8")]), ValueError, "the name 'a' is field 0's"),
        (lambda: mf.fields(t, [("a", "int4")]), ValueError, "int4 is narrower than a byte"),
        (lambda: mf.fields(t, [("a", "uint8", -1)]), ValueError, "field 0: count is -1"),
        (lambda: mf.fields(t, [("a", "float32", 5)]), ValueError, "rows of 20 bytes expected"),
        (lambda: mf.fields(t, [("a", "float32", 5)], stride=16), ValueError, "stride is 16; at least 20"),
        (lambda: mf.fields(t, [("a", "float32")], stride=6), ValueError, "multiples of 4 expected"),
        (lambda: mf.fields(bytes(9), [("a", "float32")]), ValueError, "base has 9 bytes; a multiple of 4"),
        (lambda: mf.fields(mf.zeros((4, 4)), VERTEX), ValueError, "uint8 with rows of 16 bytes"),
        (lambda: mf.fields(mf.zeros(4), VERTEX), ValueError, "uint8 of rank 1 or 2"),
        (lambda: mf.fields(3, VERTEX), TypeError, "int"),
        (lambda: mf.fields(t, np.dtype([("a", "u1"), ("b", "f8")])), ValueError, "float64 at byte 1"),
    ]:
        with pytest.raises(error, match=text):
            wrong()
