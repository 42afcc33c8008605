"""CuPy for ROCm, unmodified, on the simulated HIP runtime.

Kernels cannot run, so a memset or a copy that CuPy queues stands in for one. With SIM_HIP=forward the same programs
run on the runtime that forwards to CUDA, over the simulated CUDA driver: then it is CUDA's calls that are reported.
"""

import os
import signal

import pytest
from programs import Programs

FORWARDED = os.environ.get("SIM_HIP") == "forward"
CUDA_NAMES = {
    "hipFree": "cuMemFree",
    "hipMalloc": "cuMemAlloc",
    "hipMemcpyAsync": "cuMemcpyAsync",
    "hipMemsetAsync": "cuMemsetD8Async",
}


def call(name):
    """The call that the simulator sees when the program makes this one."""
    return CUDA_NAMES[name] if FORWARDED else name


# CuPy's extensions name functions of the libraries that are empty here; lazy binding leaves them alone.
COMMON = """
import ctypes
import gc
import os
import sys
sys.setdlopenflags(os.RTLD_LAZY)
import numpy as np
import cupy
runtime = cupy.cuda.runtime

def nothing_left():
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    sim = ctypes.CDLL("SIMULATOR")
    sim.sim_left.restype = ctypes.c_int64
    left = {what: sim.sim_left(what.encode()) for what in ("memory", "streams", "events", "captures")}
    assert not any(left.values()), left
""".replace("SIMULATOR", "libcuda.so.1" if FORWARDED else "libamdhip64.so.7")


programs = Programs(COMMON, seeds=[0] if FORWARDED else [0, 1, 2])
run, right, wrong = programs.run, programs.right, programs.wrong


def test_there_and_back(tmp_path):
    program = """
    host = np.arange(1000, dtype=np.float32)
    array = cupy.asarray(host)
    assert array.device.id == 0 and array.dtype == np.float32
    assert (array.get() == host).all()
    assert (cupy.asnumpy(array[10:20]) == host[10:20]).all()
    """
    right(tmp_path, program)


def test_properties(tmp_path):
    program = """
    properties = runtime.getDeviceProperties(1)
    assert properties["name"] == b"Simulated GPU 1" and properties["gcnArchName"] == b"gfx900"
    assert properties["warpSize"] == WARP and properties["totalGlobalMem"] > 0
    assert runtime.getDeviceCount() == 2 and runtime.runtimeGetVersion() // 10_000_000 == 7
    """
    right(tmp_path, program.replace("WARP", "32" if FORWARDED else "64"))


def test_streams_and_events(tmp_path):
    program = """
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    source, target = cupy.empty(256, np.uint8), cupy.empty(256, np.uint8)
    with first:
        source.data.memset_async(7, 256)
        event = first.record()
    with second:
        second.wait_event(event)
        target.data.copy_from_device_async(source.data, 256)
        assert (target.get() == 7).all()
    second.synchronize()
    assert event.done and first.done
    """
    right(tmp_path, program)


def test_missing_wait_is_reported(tmp_path):
    program = """
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    source, target = cupy.empty(256, np.uint8), cupy.empty(256, np.uint8)
    source.data.memset_async(7, 256, first)
    target.data.copy_from_device_async(source.data, 256, second)
    first.synchronize()
    second.synchronize()
    """
    wrong(tmp_path, program, "race: ", call("hipMemsetAsync"), call("hipMemcpyAsync"), "missing: ")


def test_premature_free_is_reported(tmp_path):
    program = """
    stream = cupy.cuda.Stream(non_blocking=True)
    pointer = runtime.malloc(256)
    runtime.memsetAsync(pointer, 1, 256, stream.ptr)
    runtime.free(pointer)
    stream.synchronize()
    """
    wrong(tmp_path, program, call("hipFree"), call("hipMemsetAsync"))


def test_from_dlpack(tmp_path):
    program = """
    array = cupy.asarray(np.arange(6, dtype=np.int32).reshape(2, 3))
    assert array.__dlpack_device__() == (10, 0)
    other = cupy.from_dlpack(array)
    assert other.data.ptr == array.data.ptr and other.shape == (2, 3)
    assert (other.get() == np.arange(6).reshape(2, 3)).all()
    """
    right(tmp_path, program)


PRODUCE = """
producer, consumer = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
array, target = cupy.empty(256, np.uint8), cupy.empty(256, np.uint8)
with producer:
    array.data.memset_async(5, 256)
    capsule = array.__dlpack__(stream={stream})
with {reader}:
    target.data.copy_from_device_async(array.data, 256)
{reader}.synchronize()
producer.synchronize()
"""


@pytest.mark.parametrize(
    ("stream", "reader"),
    [("consumer.ptr", "consumer"), ("None", "cupy.cuda.Stream.null"), ("0", "cupy.cuda.Stream.null")],
)
def test_export_orders_the_consumers_stream(tmp_path, stream, reader):
    right(tmp_path, PRODUCE.format(stream=stream, reader=reader))


@pytest.mark.parametrize(("stream", "reader"), [("-1", "consumer"), ("None", "consumer")])
def test_export_to_another_stream_is_a_race(tmp_path, stream, reader):
    wrong(tmp_path, PRODUCE.format(stream=stream, reader=reader), "race: ")


def test_from_dlpack_orders_the_current_stream(tmp_path):
    program = """
    producer, consumer = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    array, target = cupy.empty(256, np.uint8), cupy.empty(256, np.uint8)

    class Other:
        def __dlpack_device__(self):
            return array.__dlpack_device__()

        def __dlpack__(self, **arguments):
            with producer:
                array.data.memset_async(5, 256)
                return array.__dlpack__(**arguments)

    with consumer:
        target.data.copy_from_device_async(cupy.from_dlpack(Other()).data, 256)
        assert (target.get() == 5).all()
    producer.synchronize()
    """
    right(tmp_path, program)


@pytest.mark.parametrize("stream", [1, 2, -2])
def test_export_refuses_streams_that_rocm_has_not(tmp_path, stream):
    program = f"""
    array = cupy.empty(4, np.uint8)
    try:
        array.__dlpack__(stream={stream})
    except ValueError:
        pass
    else:
        raise AssertionError
    """
    right(tmp_path, program)


def test_pool_gives_back(tmp_path):
    program = """
    pool = cupy.get_default_memory_pool()
    array = cupy.asarray(np.arange(1000))
    assert pool.used_bytes() >= 8000
    array.get()
    pointer = array.data.ptr
    del array
    again = cupy.empty(1000, np.int64)
    assert again.data.ptr == pointer
    del again
    nothing_left()
    """
    right(tmp_path, program)


def test_leak_is_reported(tmp_path):
    program = """
    runtime.malloc(12345)
    """
    wrong(tmp_path, program, "leak: 12345 bytes", call("hipMalloc"), SIM_LEDGER="on")


def test_host_access_faults(tmp_path):
    program = """
    array = cupy.asarray(np.arange(10, dtype=np.int32))
    ctypes.c_int.from_address(array.data.ptr).value
    """
    status, said = run(tmp_path, program)
    assert status == -signal.SIGSEGV
    assert "sim: the host reads a device's memory, which no host can touch, at 0x" in said


def test_pinned_and_managed_memory(tmp_path):
    program = """
    pinned = cupy.cuda.alloc_pinned_memory(1024)
    host = np.frombuffer(pinned, np.uint8, 1024)
    host[...] = 3
    array = cupy.empty(1024, np.uint8)
    array.set(host)
    assert (array.get() == 3).all()
    cupy.cuda.set_allocator(cupy.cuda.malloc_managed)
    managed = cupy.asarray(np.arange(4))
    assert (managed.get() == np.arange(4)).all()
    assert runtime.pointerGetAttributes(managed.data.ptr).type == 3
    """
    right(tmp_path, program)


def test_other_device(tmp_path):
    program = """
    with cupy.cuda.Device(1):
        array = cupy.asarray(np.arange(10))
        assert array.device.id == 1 and array.__dlpack_device__() == (10, 1)
        assert (array.get() == np.arange(10)).all()
    assert runtime.getDevice() == 0
    """
    right(tmp_path, program)


def test_graph_capture(tmp_path):
    program = """
    stream = cupy.cuda.Stream(non_blocking=True)
    array = cupy.asarray(np.zeros(16, np.uint8))
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        array.data.memset_async(4, 16)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        assert (array.get(stream=stream) == 4).all()
    """
    right(tmp_path, program)


def test_kernels_are_refused(tmp_path):
    program = """
    try:
        cupy.cuda.driver.moduleLoadData(b"code")
    except cupy.cuda.driver.CUDADriverError as error:
        assert "801" in repr(error) or "NotSupported" in str(error), str(error)
    else:
        raise AssertionError
    """
    right(tmp_path, program)


def test_no_device(tmp_path):
    program = """
    assert not cupy.cuda.is_available()
    try:
        runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        assert "hipErrorNoDevice" in str(error), str(error)
    else:
        raise AssertionError
    """
    right(tmp_path, program, SIM_DEVICES="0")


def test_out_of_memory(tmp_path):
    program = """
    try:
        cupy.empty(100)
    except cupy.cuda.memory.OutOfMemoryError:
        pass
    else:
        raise AssertionError
    """
    right(tmp_path, program, SIM_FAIL=call("hipMalloc") + ":2:on")


def test_missing_functions(tmp_path):
    program = """
    library = ctypes.CDLL("libamdhip64.so.7")
    assert not hasattr(library, "hipMallocAsync") and not hasattr(library, "hipStreamGetDevice")
    assert hasattr(library, "hipMalloc") and hasattr(library, "hipMallocFromPoolAsync")
    """
    right(tmp_path, program, SIM_MISSING="hipMallocAsync,hipStreamGetDevice")
