"""PyTorch's CUDA build, unmodified, on the simulated driver: its memory, streams, events, graphs and copies.

A stream of PyTorch's is a non-blocking one: work on the default stream is not ordered with it unless the program says
so, and `x.cpu()` is work on the current stream.
"""

import torch

N = 1 << 12


def values(seed=0):
    return (torch.arange(N, dtype=torch.int32) + seed) * 7


def test_there_are_devices_with_properties(cases):
    def case():
        assert torch.cuda.is_available() and torch.cuda.device_count() == 2
        assert torch.cuda.get_device_capability(0) == (9, 0)
        about = torch.cuda.get_device_properties(1)
        assert about.total_memory == 4 << 30 and about.multi_processor_count == 8
        assert torch.cuda.can_device_access_peer(0, 1)

    cases.right(case)


def test_copies_come_back_as_they_went(cases):
    def case():
        a = values()
        x = a.cuda()
        y = torch.empty_like(x)
        y.copy_(x)
        assert torch.equal(y.cpu(), a)
        assert torch.equal(x.to("cuda:1").cpu(), a)
        assert torch.equal(x[100:200].clone().cpu(), a[100:200])

    cases.right(case)


def test_the_caching_allocator_gives_memory_again(cases):
    def case():
        x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        address, reserved = x.data_ptr(), torch.cuda.memory_reserved()
        assert torch.cuda.memory_allocated() == 1 << 20
        del x
        y = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        assert y.data_ptr() == address and torch.cuda.memory_reserved() == reserved
        del y
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == 0

    cases.right(case)


def test_memory_runs_out_as_the_allocator_says(cases):
    def case():
        held = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            assert "CUDA out of memory" in str(error)
        else:
            raise AssertionError("6 of 4 GiB")
        del held
        torch.empty(3 << 30, dtype=torch.uint8, device="cuda")

    cases.right(case)


def test_an_event_orders_two_streams(cases):
    def case():
        a = values().pin_memory()
        s, t = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(s):
            x = torch.empty(N, dtype=torch.int32, device="cuda")
            x.copy_(a, non_blocking=True)
            ready = s.record_event()
        out = torch.empty(N, dtype=torch.int32, pin_memory=True)
        with torch.cuda.stream(t):
            t.wait_event(ready)
            x.record_stream(t)
            out.copy_(x, non_blocking=True)
        t.synchronize()
        assert torch.equal(out, values())

    cases.right(case)


def test_a_missing_wait_is_reported_with_both_lines(cases):
    def case():
        a = values().pin_memory()
        s, t = torch.cuda.Stream(), torch.cuda.Stream()
        x = torch.empty(N, dtype=torch.int32, device="cuda")
        out = torch.empty(N, dtype=torch.int32, pin_memory=True)
        with torch.cuda.stream(s):
            x.copy_(a, non_blocking=True)
        with torch.cuda.stream(t):
            out.copy_(x, non_blocking=True)
        torch.cuda.synchronize()

    both = ("race: race on", "cudaMemcpyAsync", "test_torch.py", "libtorch_cuda.so", "must wait for stream")
    cases.wrong(case, "  first  written by", "  then   read by", *both)


def test_an_event_that_is_recorded_too_early_orders_nothing(cases):
    def case():
        a = values().pin_memory()
        s, t = torch.cuda.Stream(), torch.cuda.Stream()
        x = torch.empty(N, dtype=torch.int32, device="cuda")
        out = torch.empty(N, dtype=torch.int32, pin_memory=True)
        with torch.cuda.stream(s):
            early = s.record_event()
            x.copy_(a, non_blocking=True)
        with torch.cuda.stream(t):
            t.wait_event(early)
            out.copy_(x, non_blocking=True)
        torch.cuda.synchronize()

    cases.wrong(case, "race: race on")


def hand_over(record):
    """A tensor that another stream reads is freed on its own, and its bytes are given out again there."""
    main, other = torch.cuda.current_stream(), torch.cuda.Stream()
    a, b = values().pin_memory(), values(5).pin_memory()
    out = torch.empty(N, dtype=torch.int32, pin_memory=True)
    x = torch.empty(N, dtype=torch.int32, device="cuda")
    x.copy_(a, non_blocking=True)
    other.wait_stream(main)
    with torch.cuda.stream(other):
        out.copy_(x, non_blocking=True)
    if record:
        x.record_stream(other)
    del x
    y = torch.empty(N, dtype=torch.int32, device="cuda")
    y.copy_(b, non_blocking=True)
    other.synchronize()
    assert not record or torch.equal(out, a)


def test_memory_that_another_stream_uses_is_recorded_for_it(cases):
    cases.right(lambda: hand_over(True))


def test_without_record_stream_the_memory_is_overwritten(cases):
    cases.wrong(lambda: hand_over(False), "race: race on", "  first  read by", "  then   written by")


def test_the_host_reads_pinned_memory_too_early(cases):
    def case():
        x = values().cuda()
        out = torch.empty(N, dtype=torch.int32, pin_memory=True)
        s = torch.cuda.Stream()
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            out.copy_(x, non_blocking=True)
        out[3].item()
        s.synchronize()

    cases.wrong(case, "race: race on", "  then   read by host: call", " in case from libtorch_cpu.so")


def test_a_graph_of_copies_is_captured_and_replayed(cases):
    def case():
        source = values().cuda()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            inside = source.clone()
        for seed in range(3):
            source.copy_(values(seed))
            graph.replay()
            assert torch.equal(inside.cpu(), values(seed))

    cases.right(case)


def test_a_pool_of_its_own(cases):
    def case():
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = values().cuda()
        assert torch.equal(x.cpu(), values())

    cases.right(case)


def test_time_passes_between_events(cases):
    def case():
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        values().cuda()
        end.record()
        end.synchronize()
        assert begin.elapsed_time(end) >= 0

    cases.right(case)


def test_registered_memory(cases):
    def case():
        a = values()
        runtime = torch.cuda.cudart()
        torch.cuda.init()
        assert int(runtime.cudaHostRegister(a.data_ptr(), a.nbytes, 0)) == 0
        assert a.is_pinned()
        x = torch.empty(N, dtype=torch.int32, device="cuda")
        x.copy_(a, non_blocking=True)
        torch.cuda.synchronize()
        assert int(runtime.cudaHostUnregister(a.data_ptr())) == 0
        assert torch.equal(x.cpu(), a)

    cases.right(case)


def test_a_kernel_is_refused_by_name(cases):
    def case():
        x = torch.empty(N, dtype=torch.float32, device="cuda")
        try:
            x + 1
        except RuntimeError as error:
            assert "operation not supported" in str(error)
        else:
            raise AssertionError("a compiled kernel ran")

    cases.wrong(case, "is compiled code, which cannot run here", "vectorized_elementwise_kernel", "test_torch.py")
