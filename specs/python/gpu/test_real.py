"""Exchanges with the libraries that people use, both ways, on streams of their own: meant for a real GPU.

The same specs run on a simulated driver with those that run there (Numba on CUDA, CuPy on ROCm), where a missing wait
is found for certain. On a GPU it is not, so there each write comes behind work that takes a while (`busy`): a consumer
that does not wait then reads what was there before.
"""

import gc

import pytest
from peers import PEERS, PyTorch

import moonferry as mf

SMALL = 4096


@pytest.fixture(params=PEERS, ids=lambda peer: peer.name)
def peer(gpu, request):
    made = request.param(gpu)
    yield made
    gc.collect()
    mf.synchronize(made.device)
    made.settle()


@pytest.fixture
def with_streams(peer):
    if not peer.streams:
        pytest.skip(f"{peer.name} has no streams that a user can choose")
    return peer


@pytest.fixture
def busy(gpu):
    yield gpu.busy
    mf.synchronize(gpu.kind)


def many(gpu):
    """How many bytes a large copy has: enough for the staging ring; less where bytes cost the simulator time."""
    return 256 << 10 if gpu.simulated else 192 << 20


def noise(count):
    import numpy as np

    return np.random.default_rng(4).integers(0, 256, count, dtype="uint8")


def ours(peer, busy, value, count=SMALL):
    """A tensor and the stream that is still busy before it writes it."""
    s = mf.Stream(peer.device)
    with s:
        t = mf.zeros((count,), "uint8", device=peer.device)
        busy(s.handle)
        t.fill(value)
    return t, s


def theirs(peer, busy, value, stream, count=SMALL):
    array = peer.full(count, 0, stream)
    if stream is not None:
        busy(peer.handle(stream))
        peer.fill(array, value, stream)
    else:
        array = peer.full(count, value, stream)
    return array


def test_they_see_what_our_stream_wrote(peer, busy, seed):
    t, s = ours(peer, busy, 5)
    stream = peer.stream()
    array = peer.take(t, stream)
    assert peer.read(array, stream) == b"\5" * SMALL


def test_our_stream_sees_what_they_write_before_they_give_it_back(with_streams, busy, seed):
    peer = with_streams
    t, s = ours(peer, busy, 5)
    stream = peer.stream()
    array = peer.take(t, stream)
    busy(peer.handle(stream))
    peer.fill(array, 6, stream)
    del array
    gc.collect()
    if peer.name == "numba":  # the array interface has no end of use
        t.record(peer.wrap(stream), write=True)
    with s:
        assert t.tolist() == [6] * SMALL


def test_we_see_what_their_stream_wrote(peer, busy, seed):
    stream = peer.stream()
    array = theirs(peer, busy, 7, stream)
    with mf.Stream(peer.device):
        t = peer.give(array, stream)
        assert t.device == peer.device and bytes(t.tolist()) == b"\7" * SMALL
    del t


def test_they_see_what_we_wrote_into_theirs(with_streams, busy, seed):
    peer = with_streams
    stream = peer.stream()
    array = theirs(peer, busy, 7, stream)
    t = peer.give(array, stream)
    with mf.Stream(peer.device) as s:
        busy(s.handle)
        t.fill(8)
    t.acquire(peer.wrap(stream))
    assert peer.read(array, stream) == b"\10" * SMALL
    del t, array


def test_one_memory_and_no_copy(peer):
    stream = peer.stream()
    t = mf.zeros((SMALL,), "uint8", device=peer.device)
    back = peer.give(peer.take(t, stream), stream)
    assert back.data_ptr == t.data_ptr and back.shape == t.shape and back.dtype == t.dtype


def test_many_exchanges_over_many_streams(with_streams, busy, seed):
    peer = with_streams
    streams = [peer.stream() for _ in range(3)]
    t = mf.zeros((SMALL,), "uint8", device=peer.device)
    for value in range(1, 25):
        stream = streams[value % 3]
        array = peer.take(t, stream)
        peer.fill(array, value, stream)
        copied = peer.copy(array, stream)
        u = peer.give(copied, stream)
        if peer.name == "numba":
            t.record(peer.wrap(stream), write=True)
        with mf.Stream(peer.device):
            t = u.copy()
        del array, copied, u
    assert t.tolist() == [24] * SMALL


def test_large_copies_are_the_same_bit_for_bit(gpu, peer):
    bytes_before = noise(many(gpu))
    stream = peer.stream()
    with mf.Stream(peer.device):
        t = mf.asarray(bytes_before).to(peer.device)
        array = peer.copy(peer.take(t, stream), stream)
        back = peer.give(array, stream).to("cpu")
        assert memoryview(back) == memoryview(bytes_before)
        turned = t.reshape(1024, -1).T.copy()
        again = turned.T.copy().reshape(-1).to("cpu")
    assert memoryview(again) == memoryview(bytes_before)
    assert (memoryview(turned.to("cpu")) == memoryview(bytes_before.reshape(1024, -1).T.copy())) is True
    del array


@pytest.mark.parametrize("mode", ["default", "no_order", "refuse"])
def test_what_none_means_does_not_matter_to_them(peer, busy, mode):
    """Because each of them names its stream."""
    before = mf.stream_none()
    mf.stream_none(mode)
    try:
        t, s = ours(peer, busy, 5)
        stream = peer.stream()
        assert peer.read(peer.take(t, stream), stream) == b"\5" * SMALL
    finally:
        mf.stream_none(before)


def test_their_allocator_gives_no_memory_away_that_we_still_read(with_streams, busy, seed):
    peer = with_streams
    stream, kept = peer.stream(), []
    for value in range(1, 9):
        array = peer.full(SMALL, value, stream)
        t = peer.give(array, stream)
        with mf.Stream(peer.device) as s:
            busy(s.handle)
            kept.append(t.copy())
        del array, t
        mf.synchronize(peer.device) if peer.name == "numba" else gc.collect()
    assert [t.tolist() for t in kept] == [[value] * SMALL for value in range(1, 9)]


def test_our_pool_gives_no_memory_away_that_they_still_read(with_streams, busy, seed):
    peer = with_streams
    stream, kept = peer.stream(), []
    for value in range(1, 9):
        with mf.Stream(peer.device):
            t = mf.full((SMALL,), value, "uint8", device=peer.device)
        array = peer.take(t, stream)
        busy(peer.handle(stream))
        kept.append(peer.copy(array, stream))
        if peer.name == "numba":
            t.record(peer.wrap(stream))
        del t, array
        with mf.Stream(peer.device):
            mf.full((SMALL,), 99, "uint8", device=peer.device)
    assert [peer.read(array, stream) for array in kept] == [bytes([value]) * SMALL for value in range(1, 9)]
    kept.clear()


def test_a_capture_takes_an_exchange_in(gpu, with_streams):
    """What is captured is launched again, and does the same to the same memory."""
    peer = with_streams
    stream = peer.stream()
    handle = peer.handle(stream)
    t = mf.zeros((SMALL,), "uint8", device=peer.device)
    array = peer.take(t, stream)
    mf.synchronize(peer.device)
    with gpu.capture(handle):
        gpu.memset(t.data_ptr, 4, SMALL, handle)
        with peer.wrap(stream):
            u = t if peer.name == "numba" else peer.give(array, stream)
            u[: SMALL // 2].fill(5)
    mf.synchronize(peer.device)
    assert peer.read(array, stream) == b"\5" * (SMALL // 2) + b"\4" * (SMALL // 2)
    del array, u


@pytest.fixture
def pytorch(gpu):
    return PyTorch(gpu)


@pytest.fixture
def torch(pytorch):
    return pytorch.lib


def test_a_graph_of_pytorch_takes_an_exchange_in(gpu, torch):
    t = mf.zeros((2, SMALL), "uint8", device="cuda:0")
    mf.synchronize("cuda:0")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = torch.from_dlpack(t)
        x[0].copy_(x[1])
    for value in range(1, 4):
        t[1].fill(value)
        mf.synchronize("cuda:0")
        graph.replay()
        torch.cuda.synchronize()
        assert t.tolist() == [[value] * SMALL] * 2
    del x, graph


def test_the_exchange_table_of_pytorch_names_its_current_stream(gpu, pytorch, busy):
    torch, stream = pytorch.lib, pytorch.stream()
    x = pytorch.full(SMALL, 0, stream)
    busy(stream.cuda_stream)
    pytorch.fill(x, 3, stream)
    with torch.cuda.stream(stream):
        with mf.Stream("cuda:0"):
            assert mf.from_dlpack(x).tolist() == [3] * SMALL
            y = mf.into(torch.Tensor, mf.full((SMALL,), 4, "uint8", device="cuda:0"))
        assert bytes(y.cpu().numpy()) == b"\4" * SMALL
    del x, y
    mf.synchronize("cuda:0")


def test_pinned_memory_of_pytorch(gpu, torch):
    x = torch.zeros(SMALL, dtype=torch.uint8).pin_memory()
    t = mf.from_dlpack(x)
    t.fill(6)
    assert bytes(x.numpy()) == b"\6" * SMALL
    u = t.to("cuda:0")
    mf.synchronize("cuda:0")
    assert u.tolist() == [6] * SMALL
