"""What a capture refuses, it refuses before anything is queued: the graph stays empty and the capture valid.

The error says what to do. What a capture takes is one node, or more. Must not know: why a capture forbids a call.
"""

import pytest

import moonferry as mf

N = 1 << 8
REFUSED = {
    "from pageable memory": lambda m: m.a[0].copy(m.host),
    "to pageable memory": lambda m: m.host.copy(m.a[0]),
    "rows of pageable memory": lambda m: m.a[0][::2].copy(m.host[::2]),
    "a cast from the host": lambda m: m.real[0].copy(m.host),
    "a cast to the host": lambda m: m.host.copy(m.real[0]),
    "rows of the other device": lambda m: m.a[:, ::2].copy(m.other[:, ::2]),
    "elements": lambda m: m.a.tolist(),
    "an element": lambda m: m.a[0, 0].item(),
    "an element is set": lambda m: m.a.__setitem__((0, 0), 5),
    "bytes": lambda m: m.a.tobytes(),
    "a copy on the host": lambda m: m.a.to("cpu"),
    "a copy in new memory": lambda m: m.a.to(m.a.device, copy=True),
    "a cast in new memory": lambda m: m.a.astype("float64"),
    "a compact copy": lambda m: m.a.T.reshape(4, N, copy=True),
    "comparison": lambda m: mf.equal(m.a, m.b),
    "new memory": lambda m: mf.zeros(N, "int32", device=m.a.device),
}
TAKEN = {
    "a fill": lambda m: m.a.fill(3),
    "a fill of columns": lambda m: m.a[:, ::3].fill(3),
    "from pinned memory": lambda m: m.a[0].copy(m.pinned),
    "to pinned memory": lambda m: m.pinned.copy(m.a[0]),
    "across": lambda m: m.a.copy(m.b),
    "a cast": lambda m: m.real.copy(m.b),
    "from the other device": lambda m: m.a.copy(m.other),
}


class Memory:
    """Tensors of every sort, whose first work is done."""

    def __init__(self, driver):
        device, other = f"{driver.kind}:0", driver.second
        self.a, self.b, self.real = (
            mf.full((4, N), 1, dtype, device=device) for dtype in ("int32", "int32", "float32")
        )
        self.other = mf.full((4, N), 2, "int32", device=other)
        self.pinned = mf.full(N, 3, "int32", device=f"{driver.kind}_host")
        self.host = mf.full(N, 4, "int32")
        for name in (device, other):
            mf.synchronize(name)
        mf.trim()  # a capture may use blocks that other specs left in the pools


@pytest.fixture
def captured(gpu):
    """How many nodes the capture of an operation makes, on a stream of somebody else's."""
    memory, stream = Memory(gpu), gpu.stream()

    def nodes(operation):
        with mf.Stream.wrap(stream, f"{gpu.kind}:0"):
            return gpu.captured(stream, lambda: operation(memory))

    yield nodes
    vars(memory).clear()  # the stream outlives what was used on it
    for ordinal in range(2):
        mf.synchronize(f"{gpu.kind}:{ordinal}")
    gpu.destroy(stream)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_leaves_the_graph_empty(captured, name):
    def operation(memory):
        with pytest.raises(RuntimeError, match="is being captured"):
            REFUSED[name](memory)

    assert captured(operation) == 0


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_is_in_the_graph(captured, name):
    assert captured(TAKEN[name]) >= 1


def test_what_was_refused_does_not_stand_in_the_way_of_the_rest(captured):
    def operation(memory):
        for name in REFUSED:
            with pytest.raises(RuntimeError, match="is being captured"):
                REFUSED[name](memory)
        memory.a.fill(1)

    assert captured(operation) == 1
