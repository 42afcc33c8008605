"""What crosses between PyTorch and Moonferry, and what is then ordered: each value of `stream`, streams of the other
library's, graphs, pools, the second device, the CUDA array interface.

PyTorch as the producer orders the consumer's stream behind its current one; it has no name for the per-thread stream.
`torch.from_dlpack(capsule)` orders nothing: the stream was said when the capsule was made.
"""

import pytest
import torch
from test_exchange import N, produced, read, values

import moonferry

PER_THREAD = 2


def native(stream):
    """PyTorch's name for the stream that the number means."""
    if stream in (None, 1):
        return torch.cuda.default_stream()
    return torch.cuda.ExternalStream(stream)


def ours(value):
    """A tensor of Moonferry's that a stream of its own is about to fill."""
    with moonferry.Stream("cuda:0"):
        t = moonferry.empty(N, "int32", device="cuda:0")
        t.fill(value)
    return t


@pytest.mark.parametrize("stream", [None, 1, PER_THREAD, "handle"])
def test_a_capsule_for_each_stream(cases, stream):
    def case():
        other = torch.cuda.Stream()
        number = other.cuda_stream if stream == "handle" else stream
        t = ours(5)
        with torch.cuda.stream(native(number)):
            x = torch.from_dlpack(t.__dlpack__(stream=number))
            assert x.data_ptr() == t.data_ptr
            assert (read(x) == 5).all()
            x.copy_(values().pin_memory(), non_blocking=True)
        del x
        with moonferry.Stream("cuda:0"):
            assert t.tolist() == values().tolist()

    cases.right(case)


@pytest.mark.parametrize("stream", [None, 1, "handle"])
def test_pytorchs_capsule_for_each_stream(cases, stream):
    """The consumer is Moonferry, on that stream; `None` is the legacy default stream's."""

    def case():
        m = moonferry.Stream("cuda:0")
        number = m.handle if stream == "handle" else stream
        s = torch.cuda.Stream()
        x = produced(s)
        with torch.cuda.stream(s):
            capsule = x.__dlpack__(stream=number)
        with m if stream == "handle" else moonferry.Stream.default("cuda:0"):
            t = moonferry.from_dlpack(Capsule(capsule))
            assert t.tolist() == values().tolist()

    cases.right(case)


class Capsule:
    """Something whose `__dlpack__` gives a capsule that was made before."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 2, 0


def test_pytorch_has_no_per_thread_stream(cases):
    def case():
        x = torch.empty(N, dtype=torch.int32, device="cuda")
        for number in (0, PER_THREAD):
            try:
                x.__dlpack__(stream=number)
            except (BufferError, AssertionError):
                continue
            raise AssertionError(f"stream={number} is taken")

    cases.right(case)


def test_no_order_and_the_order_that_a_program_makes_itself(cases):
    def case():
        s = torch.cuda.Stream()
        t = ours(9)
        x = torch.from_dlpack(t.__dlpack__(stream=-1))
        t.acquire(moonferry.Stream.wrap(s))
        with torch.cuda.stream(s):
            assert (read(x) == 9).all()
            x.copy_(values().pin_memory(), non_blocking=True)
        t.record(moonferry.Stream.wrap(s), write=True)
        with moonferry.Stream("cuda:0"):
            assert t.tolist() == values().tolist()
        del x

    cases.right(case)


def test_pytorchs_capsule_that_nobody_ordered(cases):
    def case():
        s, m = torch.cuda.Stream(), moonferry.Stream("cuda:0")
        x = produced(s)
        capsule = x.__dlpack__(stream=-1)
        with m:
            moonferry.from_dlpack(Capsule(capsule)).to("cpu")

    cases.wrong(case, "race: race on", "cudaMemcpyAsync", "must wait for stream")


def test_a_stream_of_ours_is_one_of_pytorchs(cases):
    """Both queue on one stream, and neither waits."""

    def case():
        import ctypes

        m = moonferry.Stream("cuda:0")
        s = torch.cuda.ExternalStream(m.handle)
        sim = ctypes.CDLL("libcuda.so.1")
        with torch.cuda.stream(s), m:
            x = torch.empty(N, dtype=torch.int32, device="cuda")
            x.copy_(values().pin_memory(), non_blocking=True)
            before = sim.sim_calls(b"cuStreamWaitEvent")
            t = moonferry.from_dlpack(x)
            t[: N // 2].fill(1)
            y = torch.from_dlpack(t)
            assert sim.sim_calls(b"cuStreamWaitEvent") == before
            seen = read(y)
        assert (seen[: N // 2] == 1).all() and torch.equal(seen[N // 2 :], values()[N // 2 :])
        del x, y, t

    cases.right(case)


def test_a_stream_of_pytorchs_is_one_of_ours(cases):
    def case():
        s = torch.cuda.Stream()
        with moonferry.Stream.wrap(s) as wrapped:
            assert (wrapped.handle, wrapped.device) == (s.cuda_stream, "cuda:0")
            t = moonferry.full(N, 6, "int32", device="cuda:0")
        with torch.cuda.stream(s):
            assert (read(torch.from_dlpack(t)) == 6).all()

    cases.right(case)


def test_a_second_stream_of_pytorchs_must_be_done_before_the_one_that_has_the_tensor(cases):
    """Moonferry's memory is not of PyTorch's allocator, so `record_stream` of it says nothing: PyTorch's deleter comes
    at once, and Moonferry waits for the stream that it gave the tensor to."""

    def case(wait=True):
        s, other = torch.cuda.Stream(), torch.cuda.Stream()
        t = ours(4)
        with torch.cuda.stream(s):
            x = torch.from_dlpack(t)
        other.wait_stream(s)
        out = torch.empty(N, dtype=torch.int32, pin_memory=True)
        with torch.cuda.stream(other):
            out.copy_(x, non_blocking=True)
        x.record_stream(other)
        if wait:
            s.wait_stream(other)
        address = t.data_ptr
        del x, t
        s.synchronize()
        assert ours(8).data_ptr == address
        other.synchronize()
        assert not wait or (out == 4).all()

    cases.right(case)
    cases.wrong(lambda: case(wait=False), "race: race on", "must wait for stream")


def test_a_graph_of_pytorchs_has_our_work_in_it(cases):
    def case():
        t = moonferry.zeros((2, N), "int32", device="cuda:0")
        out = torch.empty(N, dtype=torch.int32, device="cuda")
        moonferry.synchronize("cuda:0")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            with moonferry.Stream.wrap(torch.cuda.current_stream()):
                t[0].fill(7)
                t[1].copy(t[0])
            x = torch.from_dlpack(t)
            out.copy_(x[1])
        del x
        for _ in range(2):
            with moonferry.Stream("cuda:0"):
                t.fill(0)
            moonferry.synchronize("cuda:0")
            graph.replay()
            assert (read(out) == 7).all()
        torch.cuda.synchronize()
        assert t.tolist() == [[7] * N] * 2

    cases.right(case)


def test_a_replay_that_nobody_waits_for_races(cases):
    def case():
        t = moonferry.zeros(N, "int32", device="cuda:0")
        moonferry.synchronize("cuda:0")
        source = values().cuda()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.from_dlpack(t).copy_(source)
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            graph.replay()
        with moonferry.Stream("cuda:0"):
            t.to("cpu")

    cases.wrong(case, "race: race on", "cudaGraphLaunch", "must wait for stream")


def test_memory_of_a_pool_of_its_own_crosses(cases):
    def case():
        pool, s = torch.cuda.MemPool(), torch.cuda.Stream()
        with torch.cuda.use_mem_pool(pool):
            x = produced(s)
        with torch.cuda.stream(s), moonferry.Stream("cuda:0"):
            t = moonferry.from_dlpack(x)
            assert t.data_ptr == x.data_ptr() and t.tolist() == values().tolist()
            t.fill(2)
            t.close()
        s.synchronize()
        del x
        with torch.cuda.use_mem_pool(pool):
            again = produced(s)
        with torch.cuda.stream(s):
            assert torch.equal(read(again), values())

    cases.right(case)


def test_tensors_of_both_devices_at_once(cases):
    def case():
        streams = [torch.cuda.Stream(device) for device in ("cuda:0", "cuda:1")]
        xs = []
        for stream in streams:
            with torch.cuda.stream(stream):
                x = torch.empty(N, dtype=torch.int32, device=stream.device)
                x.copy_(values(stream.device.index).pin_memory(), non_blocking=True)
                xs.append(x)
        with moonferry.Stream("cuda:0"), moonferry.Stream("cuda:1"):
            ts = []
            for stream, x in zip(streams, xs):
                with torch.cuda.stream(stream):
                    ts.append(moonferry.from_dlpack(x))
            assert [t.device for t in ts] == ["cuda:0", "cuda:1"]
            crossed = ts[0].to("cuda:1")
            ts[0].copy(ts[1])
            assert crossed.tolist() == values(0).tolist() and ts[0].tolist() == values(1).tolist()
        with torch.cuda.stream(streams[1]):
            assert torch.equal(read(torch.from_dlpack(crossed)), values(0))
        for t in ts:
            t.close()

    cases.right(case)


def test_the_array_interface_of_ours(cases):
    """`torch.as_tensor` does not look at the interface's stream, so that has to be the one that it works on."""

    def case(wait=True):
        s = torch.cuda.Stream()
        t = ours(3)
        with moonferry.Stream.wrap(s) if wait else moonferry.Stream.default("cuda:0"):
            x = torch.as_tensor(t, device="cuda")  # asks for the interface: the current stream is made to wait
        assert x.data_ptr() == t.data_ptr
        with torch.cuda.stream(s):
            seen = read(x)
        assert not wait or (seen == 3).all()
        t.record(moonferry.Stream.wrap(s))
        del x

    cases.right(case)
    cases.wrong(lambda: case(wait=False), "race: race on", "must wait for stream")


def test_the_array_interface_of_pytorch(cases):
    """It is of version 2, which has no stream: what is queued must be ordered by the program."""

    def case(wait=True):
        s, m = torch.cuda.Stream(), moonferry.Stream("cuda:0")
        x = produced(s)
        assert "stream" not in x.__cuda_array_interface__
        if wait:
            m.wait(s)
        with m:
            t = moonferry.from_cuda_array(x)
            assert t.data_ptr == x.data_ptr()
            seen = t.tolist()
        assert not wait or seen == values().tolist()

    cases.right(case)
    cases.wrong(lambda: case(wait=False), "race: race on", "cudaMemcpyAsync", "must wait for stream")
