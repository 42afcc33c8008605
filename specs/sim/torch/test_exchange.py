"""PyTorch's CUDA tensors to Moonferry and back, on two streams, under the race checker.

`x.__dlpack__(stream=s)` orders s behind PyTorch's current stream, and Moonferry orders what it hands out behind the
streams that have used the memory.
"""

import torch

import moonferry

N = 1 << 12


def values(seed=0):
    return (torch.arange(N, dtype=torch.int32) + seed) * 7


def produced(stream):
    """A tensor that the stream is about to write."""
    with torch.cuda.stream(stream):
        x = torch.empty(N, dtype=torch.int32, device="cuda")
        x.copy_(values().pin_memory(), non_blocking=True)
    return x


def read(x):
    """On the current stream, which is waited for."""
    out = torch.empty(N, dtype=torch.int32, pin_memory=True)
    out.copy_(x, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return out


def test_torch_to_moonferry_on_another_stream(cases):
    def case():
        s, m = torch.cuda.Stream(), moonferry.Stream("cuda:0")
        x = produced(s)
        with torch.cuda.stream(s), m:
            t = moonferry.from_dlpack(x)
            assert t.data_ptr == x.data_ptr()
            assert t.to("cpu").tolist() == values().tolist()

    cases.right(case)


def test_moonferry_to_torch_on_another_stream(cases):
    def case():
        s, m = torch.cuda.Stream(), moonferry.Stream("cuda:0")
        with m:
            t = moonferry.zeros(N, "int32", device="cuda:0")
            t.fill(9)
        with torch.cuda.stream(s):
            x = torch.from_dlpack(t)
            assert x.data_ptr() == t.data_ptr
            assert (read(x) == 9).all()

    cases.right(case)


def test_there_and_back_over_three_streams(cases):
    def case():
        s, u, m = torch.cuda.Stream(), torch.cuda.Stream(), moonferry.Stream("cuda:0")
        x = produced(s)
        with torch.cuda.stream(s), m:
            t = moonferry.from_dlpack(x)
            t[: N // 2].fill(1)
        with torch.cuda.stream(u):
            y = torch.from_dlpack(t)
            assert y.data_ptr() == x.data_ptr()
            half = read(y)
        assert (half[: N // 2] == 1).all()
        assert torch.equal(half[N // 2 :], values()[N // 2 :])

    cases.right(case)


def test_the_exchange_table_both_ways(cases):
    def case():
        s, m = torch.cuda.Stream(), moonferry.Stream("cuda:0")
        with m:
            t = moonferry.zeros(N, "int32", device="cuda:0")
            t.fill(4)
        with torch.cuda.stream(s):
            x = moonferry.into(torch.Tensor, t)
            assert x.is_cuda and x.data_ptr() == t.data_ptr
            assert (read(x) == 4).all()

    cases.right(case)


def test_the_second_device(cases):
    def case():
        s, m = torch.cuda.Stream("cuda:1"), moonferry.Stream("cuda:1")
        with m:
            t = moonferry.zeros(N, "int32", device="cuda:1")
            t.fill(3)
        with torch.cuda.stream(s):
            x = torch.from_dlpack(t)
            assert x.device == torch.device("cuda:1")
            assert (read(x) == 3).all()
        assert torch.cuda.current_device() == 0

    cases.right(case)


def test_memory_that_moonferry_still_reads_is_not_reused(cases):
    """The tensor goes while a copy out of it is queued; PyTorch hears of that stream by the deleter's time."""

    def case():
        s, m = torch.cuda.Stream(), moonferry.Stream("cuda:0")
        x = produced(s)
        with torch.cuda.stream(s):
            with m:
                t = moonferry.from_dlpack(x)
                out = t.to("cpu")
            del t, x
            torch.empty(N, dtype=torch.int32, device="cuda").copy_(values(3).pin_memory(), non_blocking=True)
        assert out.tolist() == values().tolist()

    cases.right(case)


def test_a_capsule_that_nobody_ordered(cases):
    """stream=-1 says that the consumer sees to the order, which this one does not."""

    def case():
        s, m = torch.cuda.Stream(), moonferry.Stream("cuda:0")
        with m:
            t = moonferry.zeros(N, "int32", device="cuda:0")
            t.fill(9)
        x = torch.from_dlpack(t.__dlpack__(stream=-1))
        with torch.cuda.stream(s):
            read(x)

    cases.wrong(case, "race: race on", "cuMemset", "cudaMemcpyAsync", "must wait for stream")


def test_exported_under_another_stream_than_the_writers(cases):
    def case():
        s, m = torch.cuda.Stream(), moonferry.Stream("cuda:0")
        x = produced(s)
        with m:
            t = moonferry.from_dlpack(x)
            t.to("cpu")

    cases.wrong(case, "race: race on", "cudaMemcpyAsync", "must wait for stream")
