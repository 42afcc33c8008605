"""Tensors given to Warp and taken from it, by DLPack and by its version 2 of the CUDA array interface.

On a simulated driver Warp can neither allocate nor copy, because it carries a CUDA runtime inside; it takes part with
memory that others made. A memset on its stream stands in for its kernels.
"""

import gc

import pytest

import moonferry as mf
from conftest import library

NBYTES = 64


@pytest.fixture(scope="session")
def warp(the_driver):
    if the_driver.kind != "cuda":
        pytest.skip("Warp knows CUDA only")
    found = library("warp")
    found.config.quiet = True
    found.init()
    return found


@pytest.fixture
def theirs(cuda, warp):
    """One of the driver's streams, and Warp's name for it."""
    handle = cuda.stream()
    yield warp.Stream("cuda:0", cuda_stream=handle)
    gc.collect()
    mf.synchronize("cuda:0")
    cuda.destroy(handle)


@pytest.fixture
def array(cuda, warp):
    """Warp's, in memory of the driver's."""
    address = cuda.alloc(NBYTES)
    yield warp.array(ptr=address, dtype=warp.uint8, shape=(NBYTES,), device="cuda:0")
    gc.collect()
    mf.synchronize("cuda:0")
    cuda.free(address)


def on(warp, stream):
    """The stream becomes Warp's current one, which waits for nobody."""
    return warp.ScopedStream(stream, sync_enter=False)


def test_warp_takes_ours_on_its_stream(cuda, warp, theirs, seed):
    with mf.Stream("cuda:0") as ours:
        t = mf.full((4, 16), 5, "uint8", device="cuda:0")
    with on(warp, theirs):
        view = warp.from_dlpack(t.T)
    assert view.ptr == t.data_ptr and view.shape == (16, 4) and view.strides == (1, 16)
    assert cuda.read(view.ptr, NBYTES, theirs.cuda_stream) == b"\5" * NBYTES
    cuda.memset(view.ptr, 6, NBYTES, theirs.cuda_stream)
    del view
    gc.collect()
    with ours:
        assert t.tolist() == [[6] * 16] * 4


def test_what_warp_still_uses_is_waited_for(cuda, warp, theirs, seed):
    with mf.Stream("cuda:0") as ours:
        t = mf.full((NBYTES,), 5, "uint8", device="cuda:0")
        with on(warp, theirs):
            view = warp.from_dlpack(t)
        cuda.memset(view.ptr, 6, NBYTES, theirs.cuda_stream)
        assert t.copy().tolist() == [6] * NBYTES
        cuda.memset(view.ptr, 7, NBYTES, theirs.cuda_stream)
        del t, view  # the memory is free, and not given out before theirs is done
        gc.collect()
        other = mf.full((NBYTES,), 9, "uint8", device="cuda:0")
    with ours:
        assert other.tolist() == [9] * NBYTES


def test_we_take_warps_on_ours(cuda, warp, theirs, array, seed):
    ours = mf.Stream("cuda:0")
    with on(warp, theirs):
        cuda.memset(array.ptr, 5, NBYTES, theirs.cuda_stream)
        with ours:
            t = mf.from_dlpack(array)
            assert t.data_ptr == array.ptr and t.device == "cuda:0" and t.dtype == "uint8"
            assert t.copy().tolist() == [5] * NBYTES
            t.fill(6)
    t.acquire(mf.Stream.wrap(theirs.cuda_stream, "cuda:0"))
    assert cuda.read(array.ptr, NBYTES, theirs.cuda_stream) == b"\6" * NBYTES


def test_version_2_of_the_interface_names_no_stream(cuda, warp, theirs, array, seed):
    assert array.__cuda_array_interface__["version"] == 2
    cuda.memset(array.ptr, 5, NBYTES, theirs.cuda_stream)
    ours = mf.Stream("cuda:0")
    ours.wait(mf.Stream.wrap(theirs.cuda_stream, "cuda:0"))
    with ours:
        t = mf.from_cuda_array(array)
        assert t.data_ptr == array.ptr and t.copy().tolist() == [5] * NBYTES


@pytest.mark.reports("race")
def test_version_2_without_a_wait_is_a_race(cuda, warp, theirs, array):
    cuda.memset(array.ptr, 5, NBYTES, theirs.cuda_stream)
    with mf.Stream("cuda:0"):
        mf.from_cuda_array(array).copy()


@pytest.mark.reports("race")
def test_warp_that_goes_on_after_its_array_is_gone_is_a_race(cuda, warp, theirs):
    with mf.Stream("cuda:0"):
        t = mf.full((NBYTES,), 5, "uint8", device="cuda:0")
        with on(warp, theirs):
            view = warp.from_dlpack(t)
        address = view.ptr
        del view
        gc.collect()
        cuda.memset(address, 6, NBYTES, theirs.cuda_stream)
        t.fill(7)
