"""Order of work that the caller queues itself: acquire and record."""

import pytest

import moonferry as mf


def test_acquire_for_the_host_waits(gpu, seed):
    t = mf.zeros((64,), "uint8", device=f"{gpu.kind}_host")
    s = mf.Stream(gpu.kind)
    t.acquire(s, write=True)
    gpu.memset(t.data_ptr, 3, 64, s.handle)
    t.acquire("host")
    assert s.query()
    for wrong in ("device", "Host", ""):
        with pytest.raises(TypeError, match="host"):
            t.acquire(wrong)


def test_acquire_and_record_order_work_of_the_caller(gpu, device, seed):
    t = mf.full((64,), 1, "uint8", device=device)
    s, u = mf.Stream(device), mf.Stream(device)
    t.acquire(s, write=True)
    gpu.memset(t.data_ptr, 5, 64, s.handle)
    t.acquire(u)
    assert gpu.read(t.data_ptr, 64, u.handle) == b"\5" * 64
    t.record(s, write=True)
    with mf.Stream(device):
        assert t.copy().tolist() == [5] * 64
    with pytest.raises(ValueError):
        t.as_readonly().acquire(s, write=True)


@pytest.mark.reports("race")
def test_work_that_was_not_announced_is_a_race(gpu, device):
    t = mf.full((64,), 1, "uint8", device=device)
    s = mf.Stream(device)
    gpu.memset(t.data_ptr, 5, 64, s.handle)
    s.synchronize()
