"""Mistakes that are easily made with PyTorch's streams, graphs and pinned memory, each beside the right program.

A right one must have nothing to report, under any seed; each seed reports the wrong one, whatever the bytes are. Must
not know Moonferry.
"""

import pytest
import torch

N = 1 << 12
Stream = torch.cuda.Stream
right_and_wrong = pytest.mark.parametrize("right", [True, False])


def pinned(value=7):
    return torch.full((N,), value, dtype=torch.int32).pin_memory()


def on_device():
    return torch.empty(N, dtype=torch.int32, device="cuda")


def judge(cases, case, right, *words):
    if right:
        cases.right(case)
    else:
        cases.wrong(case, *(words or ("race: race on", "must wait for")))


def filled(stream, source):
    """A tensor that the stream fills."""
    with torch.cuda.stream(stream):
        x = on_device()
        x.copy_(source, non_blocking=True)
    return x


@right_and_wrong
def test_slots_of_pinned_memory_are_filled_again_when_they_were_read(cases, right):
    def case():
        s, slots, read, xs = Stream(), [pinned(), pinned()], [None, None], []
        for i in range(6):
            slot = slots[i % 2]
            if right and read[i % 2] is not None:
                read[i % 2].synchronize()
            slot.fill_(i)
            xs.append(filled(s, slot))
            read[i % 2] = s.record_event()
        with torch.cuda.stream(s):
            seen = [x.cpu()[0].item() for x in xs]
        assert not right or seen == list(range(6))

    if right:
        cases.right(case)
    else:
        for seed in range(4):
            error, findings = cases.run(case, seed)
            assert error is None and findings, f"seed {seed}: {error}"
            assert all("race on" in text and "written by host" in text for text in findings)


@right_and_wrong
def test_a_copy_to_the_host_is_waited_for(cases, right):
    """`non_blocking` to the host makes pinned memory, which is filled later."""

    def case():
        s = Stream()
        x = filled(s, pinned())
        with torch.cuda.stream(s):
            y = x.to("cpu", non_blocking=True)
            if right:
                s.synchronize()
            y.sum().item()
        s.synchronize()

    judge(cases, case, right)


@right_and_wrong
def test_an_event_that_is_recorded_again_means_its_last_record(cases, right):
    def case():
        s, t, done, out, source = Stream(), Stream(), torch.cuda.Event(), pinned(0), pinned()
        x = filled(s, source)
        done.record(s)
        if not right:
            done.record(t)
        t.wait_event(done)
        with torch.cuda.stream(t):
            out.copy_(x, non_blocking=True)
        torch.cuda.synchronize()

    judge(cases, case, right)


@right_and_wrong
def test_what_a_graph_reads_is_not_changed_while_it_runs(cases, right):
    def case():
        source, target, new = pinned().cuda(), on_device(), pinned(3)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            target.copy_(source)
        s, t = Stream(), Stream()
        with torch.cuda.stream(s):
            graph.replay()
        if right:
            t.wait_stream(s)
        with torch.cuda.stream(t):
            source.copy_(new, non_blocking=True)
        torch.cuda.synchronize()
        assert not right or (target.cpu() == 7).all()

    judge(cases, case, right, "cudaGraphLaunch", "must wait for stream")


@right_and_wrong
def test_two_graphs_of_one_pool_do_not_run_at_once(cases, right):
    """The second one's memory is the first one's, which is told by no tensor."""

    def case():
        source = pinned().cuda()
        torch.cuda.synchronize()
        first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(first):
            source.clone()
        with torch.cuda.graph(second, pool=first.pool()):
            inside = source.clone()
        s, t = Stream(), Stream()
        with torch.cuda.stream(s):
            first.replay()
        if right:
            t.wait_stream(s)
        with torch.cuda.stream(t):
            second.replay()
        torch.cuda.synchronize()
        assert not right or (inside.cpu() == 7).all()

    judge(cases, case, right, "cudaGraphLaunch", "must wait for stream")


@right_and_wrong
def test_a_graph_outlives_none_of_the_memory_that_it_names(cases, right):
    def case():
        target = torch.empty(1 << 22, dtype=torch.uint8, device="cuda")
        source = torch.empty(1 << 22, dtype=torch.uint8, pin_memory=True)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            target.copy_(source, non_blocking=True)
        if not right:
            del target
        torch.cuda.empty_cache()
        try:
            graph.replay()
        except RuntimeError:
            assert not right
        torch.cuda.synchronize()

    judge(cases, case, right, "use of freed memory", "cudaGraphLaunch", "cudaFree")


@right_and_wrong
def test_branches_of_a_graph_are_ordered_as_streams_are(cases, right):
    def case():
        source, middle, target = pinned().cuda(), on_device(), on_device()
        side, graph = Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                middle.copy_(source)
            if right:
                torch.cuda.current_stream().wait_stream(side)
            target.copy_(middle)
            if not right:
                torch.cuda.current_stream().wait_stream(side)
        graph.replay()
        torch.cuda.synchronize()

    judge(cases, case, right, "race: race on")


@right_and_wrong
def test_a_copy_to_another_device_is_of_the_current_stream(cases, right):
    def case():
        s, source = Stream("cuda:0"), pinned()
        x = filled(s, source)
        with torch.cuda.stream(s if right else torch.cuda.default_stream()):
            x.to("cuda:1")
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)

    judge(cases, case, right)


@right_and_wrong
def test_registered_memory_is_given_back_when_it_was_read(cases, right):
    def case():
        runtime, source = torch.cuda.cudart(), torch.full((N,), 7, dtype=torch.int32)
        torch.cuda.init()
        assert int(runtime.cudaHostRegister(source.data_ptr(), source.nbytes, 0)) == 0
        s = Stream()
        x = filled(s, source)
        if right:
            s.synchronize()
        assert int(runtime.cudaHostUnregister(source.data_ptr())) == 0
        with torch.cuda.stream(s):
            assert not right or (x.cpu() == 7).all()

    judge(cases, case, right, "race: race on", "cudaMemcpyAsync", "cudaHostUnregister")


def test_the_cache_can_be_emptied_while_work_is_queued(cases):
    """Its `cudaFree` waits, as PyTorch's allocator expects where memory runs out, too."""

    def case():
        s, source = Stream(), torch.empty(1 << 24, dtype=torch.uint8).pin_memory()
        with torch.cuda.stream(s):
            torch.empty(1 << 24, dtype=torch.uint8, device="cuda").copy_(source, non_blocking=True)
        torch.cuda.empty_cache()
        assert s.query()

    cases.right(case)
