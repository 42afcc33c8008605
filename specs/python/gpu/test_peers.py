"""Tensors given to other people's libraries and taken from them: cuda.core on CUDA, CuPy on ROCm.

Each runs unmodified. Kernels do not run on a simulated driver, so a memset or a copy that the library queues stands
in for one. Numba is in test_cuda_array.py.
"""

import gc
import os
import sys

import pytest

import moonferry as mf
from conftest import library


@pytest.fixture(scope="session")
def core(the_driver):
    if the_driver.kind != "cuda":
        pytest.skip("cuda.core knows CUDA only")
    found = library("cuda.core")
    found.Device(0).set_current()
    return found


@pytest.fixture(scope="session")
def cupy(the_driver):
    # CuPy for ROCm names functions of libraries that are empty where the runtime is simulated.
    before = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)
    try:
        found = library("cupy")
    finally:
        sys.setdlopenflags(before)
    if found.cuda.runtime.is_hip != (the_driver.kind == "rocm"):
        pytest.skip(f"this CuPy is not for {the_driver.kind}")
    return found


# cuda.core


def view_of(core, t, stream):
    return library("cuda.core.utils").StridedMemoryView.from_dlpack(t, stream_ptr=int(stream.handle))


def test_a_strided_memory_view_of_ours(cuda, core, seed):
    theirs = core.Device(0).create_stream()
    with mf.Stream("cuda:0") as ours:
        t = mf.full((4, 8), 5, "uint8", device="cuda:0")
    view = view_of(core, t.T, theirs)
    assert view.shape == (8, 4) and view.strides == (1, 8) and view.ptr == t.data_ptr and view.is_device_accessible
    assert cuda.read(view.ptr, 32, int(theirs.handle)) == b"\5" * 32
    cuda.memset(view.ptr, 6, 32, int(theirs.handle))
    del view
    gc.collect()
    with ours:
        assert t.tolist() == [[6] * 8] * 4
    del t
    mf.synchronize("cuda:0")
    theirs.close()


def test_a_view_by_the_cuda_array_interface(cuda, core, seed):
    theirs = core.Device(0).create_stream()
    with mf.Stream("cuda:0"):
        t = mf.full((32,), 5, "uint8", device="cuda:0")
        make = library("cuda.core.utils").StridedMemoryView.from_cuda_array_interface
        view = make(t, stream_ptr=int(theirs.handle))
    assert cuda.read(view.ptr, 32, int(theirs.handle)) == b"\5" * 32
    del view, t
    mf.synchronize("cuda:0")
    theirs.close()


def test_a_buffer_is_ours_on_its_stream(cuda, core, seed):
    """cuda.core's Buffer does not order itself: whoever imports it says on which stream it is ready."""
    theirs = core.Device(0).create_stream()
    buffer = core.Device(0).allocate(64, stream=theirs)
    buffer.fill(b"\x05", stream=theirs)
    with mf.Stream.wrap(theirs):
        t = mf.from_dlpack(buffer)
    assert t.data_ptr == int(buffer.handle) and t.nbytes == 64 and t.device == "cuda:0"
    with mf.Stream("cuda:0"):
        assert t.reinterpret("uint8").copy().tolist() == [5] * 64
    del t
    gc.collect()
    mf.synchronize("cuda:0")
    buffer.close(theirs)
    theirs.sync()
    theirs.close()


@pytest.mark.reports("race")
def test_a_buffer_that_is_taken_on_another_stream_is_a_race(cuda, core):
    theirs = core.Device(0).create_stream()
    buffer = core.Device(0).allocate(64, stream=theirs)
    buffer.fill(b"\x05", stream=theirs)
    with mf.Stream("cuda:0"):
        mf.from_dlpack(buffer).copy()
    mf.synchronize("cuda:0")
    buffer.close(theirs)
    theirs.sync()
    theirs.close()


def test_cuda_core_copies_from_our_memory(cuda, core, seed):
    theirs = core.Device(0).create_stream()
    with mf.Stream("cuda:0") as ours:
        t = mf.full((64,), 5, "uint8", device="cuda:0")
    into = core.Device(0).allocate(64, stream=theirs)
    t.acquire(theirs)
    into.copy_from(core.Buffer.from_handle(t.data_ptr, 64, owner=t), stream=theirs)
    with ours:
        t.fill(9)
    assert cuda.read(int(into.handle), 64, int(theirs.handle)) == b"\5" * 64
    into.close(theirs)
    theirs.sync()
    del t
    mf.synchronize("cuda:0")
    theirs.close()


def test_cuda_cores_streams_are_ours_and_ours_are_theirs(cuda, core, seed):
    theirs = core.Device(0).create_stream()
    s = mf.Stream.wrap(theirs)
    assert s.device == "cuda:0" and s.handle == int(theirs.handle)
    ours = mf.Stream("cuda:0")
    taken = core.Device(0).create_stream(ours)
    assert int(taken.handle) == ours.handle
    with s:
        t = mf.full((64,), 5, "uint8", device="cuda:0")
    ours.wait(theirs)
    assert cuda.read(t.data_ptr, 64, int(taken.handle)) == b"\5" * 64
    t.record(ours)
    del t, s
    mf.synchronize("cuda:0")
    theirs.close()


def test_pinned_memory_of_cuda_core(cuda, core, seed):
    theirs = core.Device(0).create_stream()
    pinned = core.LegacyPinnedMemoryResource().allocate(64)
    with mf.Stream.wrap(theirs):
        t = mf.from_dlpack(pinned)
        assert t.device == mf.Device("cuda_host")
        u = mf.full((64,), 7, "uint8", device="cuda:0")
        t.reinterpret("uint8").copy(u)
    assert t.reinterpret("uint8").tolist() == [7] * 64
    del t, u
    mf.synchronize("cuda:0")
    gc.collect()
    pinned.close()
    theirs.close()


# CuPy


def fill(cupy, array, value, stream):
    cupy.cuda.runtime.memsetAsync(array.data.ptr, value, array.nbytes, stream.ptr)


def settle(cupy, gpu):
    gc.collect()
    mf.synchronize(gpu.kind)
    cupy.get_default_memory_pool().free_all_blocks()


def test_cupy_takes_ours_on_its_stream(gpu, device, cupy, seed):
    theirs, ours = cupy.cuda.Stream(non_blocking=True), mf.Stream(device)
    with ours:
        t = mf.full((4, 8), 5, "uint8", device=device)
    with theirs:
        assert cupy.from_dlpack(t.T).strides == (1, 8)
        array = cupy.from_dlpack(t)
        assert array.shape == (4, 8) and array.data.ptr == t.data_ptr
        assert (array.get(stream=theirs) == 5).all()
        fill(cupy, array, 6, theirs)
    del array
    with ours:
        assert t.tolist() == [[6] * 8] * 4
    del t
    settle(cupy, gpu)


def test_we_take_cupys_on_ours(gpu, device, cupy, seed):
    theirs = cupy.cuda.Stream(non_blocking=True)
    with theirs:
        array = cupy.empty((4, 8), "uint8")
        fill(cupy, array, 5, theirs)
        with mf.Stream(device) as ours:
            t = mf.from_dlpack(array)
            assert t.device == device and t.data_ptr == array.data.ptr
            assert t.tolist() == [[5] * 8] * 4
            t.fill(6)
    theirs.synchronize()
    ours.synchronize()
    assert (array.get() == 6).all()
    del t, array
    settle(cupy, gpu)


def test_cupy_streams_are_streams(gpu, device, cupy, seed):
    theirs = cupy.cuda.Stream(non_blocking=True)
    s = mf.Stream.wrap(theirs, device)
    assert s.handle == theirs.ptr
    with s:
        t = mf.full((64,), 3, "uint8", device=device)
    assert gpu.read(t.data_ptr, 64, theirs.ptr) == b"\3" * 64
    ours = mf.Stream(device)
    external = cupy.cuda.Stream.from_external(ours)
    with external:
        array = cupy.from_dlpack(t)
        assert (array.get(stream=external) == 3).all()
    del array, t, s
    settle(cupy, gpu)


def test_there_and_back_on_many_streams(gpu, device, cupy, seed):
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    t = mf.zeros((64,), "uint8", device=device)
    for value, theirs in enumerate(streams * 2, 1):
        with theirs:
            array = cupy.from_dlpack(t)
            fill(cupy, array, value, theirs)
            del array
        with mf.Stream(device):
            assert t.tolist() == [value] * 64
            t = t.copy()
    del t
    settle(cupy, gpu)


def test_cupy_frees_memory_only_after_our_work_on_it(gpu, device, cupy, seed):
    theirs = cupy.cuda.Stream(non_blocking=True)
    kept = []
    with theirs:
        for value in range(4):
            array = cupy.empty((64,), "uint8")
            fill(cupy, array, value, theirs)
            with mf.Stream(device):
                kept.append(mf.from_dlpack(array).copy())
            del array
    assert [t.tolist()[0] for t in kept] == [0, 1, 2, 3]
    kept.clear()
    settle(cupy, gpu)


def test_to_the_host_by_cupys_own_copy(gpu, device, cupy):
    array = cupy.asarray([1, 2, 3], dtype="int32")
    assert mf.from_dlpack(array, device="cpu").tolist() == [1, 2, 3]
    assert mf.asarray(array, device="cpu").tolist() == [1, 2, 3]
    with pytest.raises(BufferError):
        mf.from_dlpack(array, device="cpu", copy=False)
    assert cupy.from_dlpack(mf.tensor([4, 5], "int32", device=device)).get().tolist() == [4, 5]
    del array
    settle(cupy, gpu)
