"""Other people's GPU libraries, unmodified, on the simulated CUDA driver."""

import importlib.util
import signal

import pytest
from programs import Programs

COMMON = '''
import ctypes
import numpy as np
import cuda.bindings.driver as drv
from cuda.core import Device
from cuda.core.utils import StridedMemoryView

def ok(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]

def started(streams):
    """Device 0, made current, and so many streams of it."""
    device = Device(0)
    device.set_current()
    return device, *(device.create_stream() for _ in range(streams))

def bytes_of(pointer, n):
    host = np.zeros(n, np.uint8)
    ok(drv.cuMemcpyDtoH(host.ctypes.data, pointer, n))
    return host
'''


programs = Programs(COMMON, seeds=[0, 1, 2, 3])
run, right, wrong = programs.run, programs.right, programs.wrong


def test_cuda_core_buffers_and_streams(tmp_path):
    right(
        tmp_path,
        """
        device, s, t = started(2)
        assert device.name == "Simulated GPU 0"
        a, b = device.allocate(64, stream=s), device.allocate(64, stream=t)
        a.fill(b"\\x05", stream=s)
        t.wait(s)
        b.copy_from(a, stream=t)
        t.sync()
        assert (bytes_of(int(b.handle), 64) == 5).all()
        a.close(t)
        b.close(t)
        t.sync()
        s.close()
        t.close()
        """,
        SIM_LEDGER="on",
    )


def test_cuda_core_exchanges_in_order(tmp_path):
    right(
        tmp_path,
        """
        device, s, t = started(2)

        class Producer:
            def __init__(self, buffer, stream):
                self.buffer, self.stream = buffer, stream

            def __dlpack_device__(self):
                return self.buffer.__dlpack_device__()

            def __dlpack__(self, *, stream=None, **rest):
                ok(drv.cuEventRecord(event := ok(drv.cuEventCreate(2)), self.stream.handle))
                ok(drv.cuStreamWaitEvent(stream, event, 0))
                ok(drv.cuEventDestroy(event))
                return self.buffer.__dlpack__(stream=-1, **rest)

        a = device.allocate(64, stream=s)
        a.fill(b"\\x05", stream=s)
        view = StridedMemoryView.from_dlpack(Producer(a, s), stream_ptr=int(t.handle))
        assert view.shape == (64,) and view.is_device_accessible and view.device_id == 0
        ok(drv.cuMemsetD8Async(view.ptr, 6, 64, t.handle))
        t.sync()
        assert (bytes_of(int(a.handle), 64) == 6).all()
        a.close(t)
        t.sync()
        """,
    )


def test_cuda_core_exchange_without_a_wait_is_a_race(tmp_path):
    wrong(
        tmp_path,
        """
        device, s, t = started(2)
        a = device.allocate(64, stream=s)
        a.fill(b"\\x05", stream=s)
        view = StridedMemoryView.from_dlpack(a, stream_ptr=-1)
        ok(drv.cuMemsetD8Async(view.ptr, 6, 64, t.handle))
        ok(drv.cuCtxSynchronize())
        a.close(t)
        """,
        "race on 64 bytes",
        "first  written by stream",
        "must wait for stream",
    )


def test_cuda_core_captures_a_graph(tmp_path):
    right(
        tmp_path,
        """
        device, s = started(1)
        a = device.allocate(64, stream=s)
        a.fill(b"\\x01", stream=s)
        builder = s.create_graph_builder()
        builder.begin_building()
        a.fill(b"\\x07", stream=builder)
        graph = builder.end_building().complete()
        s.sync()
        assert (bytes_of(int(a.handle), 64) == 1).all()
        graph.launch(s)
        s.sync()
        assert (bytes_of(int(a.handle), 64) == 7).all()
        a.close(s)
        s.sync()
        del graph, builder
        """,
    )


KERNEL = """
from cuda.core import LaunchConfig, ObjectCode, launch

SCALE = ObjectCode.from_ptx(b'''
.version 7.0
.target sm_50
.address_size 64
.visible .entry scale(.param .u64 p, .param .u32 n, .param .u32 by)
{
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .b64 %d;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  ld.param.u32 %r1, [n];
  setp.ge.u32 %p, %r0, %r1;
  @%p ret;
  ld.param.u64 %d, [p];
  mad.wide.u32 %d, %r0, 4, %d;
  ld.param.u32 %r2, [by];
  ld.global.u32 %r3, [%d];
  mul.lo.u32 %r3, %r3, %r2;
  st.global.u32 [%d], %r3;
  ret;
}
''')

def scale(buffer, by, stream):
    config = LaunchConfig(grid=4, block=8)
    launch(stream, config, SCALE.get_kernel("scale"), int(buffer.handle), np.uint32(25), np.uint32(by))
"""


def test_cuda_core_runs_a_kernel(tmp_path):
    right(
        tmp_path,
        KERNEL
        + """
device, s, t = started(2)
buffer = device.allocate(100, stream=s)
ok(drv.cuMemsetD32Async(int(buffer.handle), 7, 25, s.handle))
scale(buffer, 3, s)
t.wait(s)
scale(buffer, 2, t)
t.sync()
assert (bytes_of(int(buffer.handle), 100).view(np.uint32) == 42).all()
buffer.close(t)
t.sync()
""",
    )


def test_cuda_core_kernels_without_a_wait_race(tmp_path):
    wrong(
        tmp_path,
        KERNEL
        + """
device, s, t = started(2)
buffer = device.allocate(100, stream=s)
ok(drv.cuMemsetD32Async(int(buffer.handle), 7, 25, s.handle))
scale(buffer, 3, s)
scale(buffer, 2, t)
s.sync()
t.sync()
buffer.close(t)
""",
        "race on 100 bytes",
        "must wait for stream",
    )


def test_cuda_core_pinned_memory_is_numpys(tmp_path):
    right(
        tmp_path,
        """
        from cuda.core import LegacyPinnedMemoryResource
        device, s = started(1)
        pinned = LegacyPinnedMemoryResource().allocate(64)
        host = np.from_dlpack(pinned)
        assert (host.view(np.uint8) == 0xCB).all()
        a = device.allocate(64, stream=s)
        a.fill(b"\\x05", stream=s)
        pinned.copy_from(a, stream=s)
        s.sync()
        assert (host.view(np.uint8) == 5).all()
        a.close(s)
        s.sync()
        del host
        pinned.close()
        """,
    )


def test_numba_arrays(tmp_path):
    right(
        tmp_path,
        """
        from numba import cuda
        host = np.arange(1000, dtype=np.float32)
        a = cuda.to_device(host)
        assert a.__cuda_array_interface__["version"] == 3
        assert (a.copy_to_host() == host).all()
        b = cuda.device_array(1000, np.float32)
        b.copy_to_device(a)
        assert (b[10:20].copy_to_host() == host[10:20]).all()
        s = cuda.stream()
        c = cuda.to_device(host, stream=s)
        pinned = cuda.pinned_array(1000, np.float32)
        c.copy_to_host(pinned, stream=s)
        s.synchronize()
        assert (pinned == host).all()
        managed = cuda.managed_array(10)
        managed[:] = 3
        assert managed.sum() == 30
        cuda.synchronize()
        """,
    )


def test_numba_takes_from_cuda_core(tmp_path):
    program = """
        from numba import cuda
        cuda.current_context()
        device, s = started(1)
        a = device.allocate(64, stream=s)
        a.fill(b"\\x05", stream=s)

        class Exporter:
            __cuda_array_interface__ = {
                "shape": (64,), "typestr": "|u1", "data": (int(a.handle), False), "version": 3, "stream": STREAM,
            }

        b = cuda.as_cuda_array(Exporter())
        t = cuda.stream()
        host = b.copy_to_host(stream=t)
        t.synchronize()
        if STREAM is not None:
            assert (host == 5).all()
        ok(drv.cuCtxSynchronize())
        a.close(s)
        s.sync()
        """
    right(tmp_path, program.replace("STREAM", "int(s.handle)"))
    wrong(tmp_path, program.replace("STREAM", "None"), "race on 64 bytes", "read by stream")


def test_numba_unpins_too_early(tmp_path):
    program = """
        from numba import cuda
        host = np.arange(1000, dtype=np.float32)
        s = cuda.stream()
        with cuda.pinned(host):
            a = cuda.to_device(host, stream=s)
            SYNC
        s.synchronize()
        """
    right(tmp_path, program.replace("SYNC", "s.synchronize()"))
    wrong(tmp_path, program.replace("SYNC", "pass"), "freed by host", "cuMemHostUnregister")


with_warp = pytest.mark.skipif(
    importlib.util.find_spec("warp") is None, reason="warp-lang is not installed: run specs/sim/setup.sh"
)
# Warp cannot queue work of its own here, so the driver's own calls stand in for it. It starts slowly: few seeds.
WARP = """
import warp as wp
wp.config.quiet = True
device, s, t = started(2)
wp.init()
producer, consumer = (wp.Stream("cuda:0", cuda_stream=int(stream.handle)) for stream in (s, t))
a = device.allocate(64, stream=s)
"""
warp = Programs(COMMON + WARP, seeds=[0, 1])


@with_warp
def test_warp_takes_from_cuda_core(tmp_path):
    program = """
        class Producer:
            def __dlpack_device__(self):
                return a.__dlpack_device__()

            def __dlpack__(self, *, stream=None, **rest):
                assert stream == int(t.handle)
                a.fill(b"\\x05", stream=s)
                ORDER
                return a.__dlpack__(stream=-1, **rest)

        with wp.ScopedStream(consumer, sync_enter=False):
            array = wp.from_dlpack(Producer())
        assert array.ptr == int(a.handle) and array.shape == (64,) and array.device.alias == "cuda:0"
        assert array.__cuda_array_interface__["version"] == 2
        ok(drv.cuMemsetD8Async(array.ptr, 6, 64, t.handle))
        t.sync()
        if ORDERED:
            assert (bytes_of(array.ptr, 64) == 6).all()
        ok(drv.cuCtxSynchronize())
        """
    ordered = program.replace("ORDERED", "True").replace("ORDER", "consumer.wait_stream(producer)")
    warp.right(tmp_path, ordered)
    warp.wrong(tmp_path, program.replace("ORDERED", "False").replace("ORDER", "pass"), "race on 64 bytes")


@with_warp
def test_warp_gives_to_cuda_core(tmp_path):
    program = """
        s.sync()
        array = wp.array(ptr=int(a.handle), dtype=wp.uint8, shape=(64,), device="cuda:0")
        with wp.ScopedStream(producer, sync_enter=False):
            ok(drv.cuMemsetD8Async(array.ptr, 5, 64, s.handle))
            view = StridedMemoryView.from_dlpack(array, stream_ptr=STREAM)
        assert view.ptr == array.ptr and view.shape == (64,)
        ok(drv.cuMemsetD8Async(view.ptr, 6, 64, t.handle))
        ok(drv.cuCtxSynchronize())
        """
    warp.right(tmp_path, program.replace("STREAM", "int(t.handle)"))
    warp.wrong(tmp_path, program.replace("STREAM", "-1"), "race on 64 bytes")


@pytest.mark.parametrize(
    "allocate, what",
    [
        ("int(device.allocate(64, stream=s).handle)", "freed memory"),  # nobody keeps the buffer
        ("int(ok(drv.cuMemAlloc(64)))", "a device's memory, which no host can touch, at 0x"),
    ],
)
def test_a_host_that_reads_device_memory_dies(tmp_path, allocate, what):
    status, said = run(
        tmp_path,
        f"""
        device, s = started(1)
        ctypes.string_at({allocate}, 1)
        """,
    )
    assert status == -signal.SIGSEGV
    assert f"sim: the host reads {what}" in said


def test_a_leak_is_reported(tmp_path):
    wrong(
        tmp_path,
        """
        ok(drv.cuInit(0))
        ok(drv.cuCtxPushCurrent(ok(drv.cuDevicePrimaryCtxRetain(0))))
        ok(drv.cuMemAlloc(64))
        """,
        "leak: 64 bytes",
        "leak: contexts pushed less contexts popped: 1",
        SIM_LEDGER="on",
    )


def test_a_machine_without_devices(tmp_path):
    right(tmp_path, "assert drv.cuInit(0)[0] == drv.CUresult.CUDA_ERROR_NO_DEVICE", SIM_DEVICES="0")


def test_four_devices(tmp_path):
    right(
        tmp_path,
        """
        ok(drv.cuInit(0))
        assert ok(drv.cuDeviceGetCount()) == 4
        assert [Device(i).device_id for i in range(4)] == [0, 1, 2, 3]
        """,
        SIM_DEVICES="4",
    )


def test_an_old_driver(tmp_path):
    right(
        tmp_path,
        """
        ok(drv.cuInit(0))
        assert ok(drv.cuDriverGetVersion()) == 12020
        ok(drv.cuCtxPushCurrent(ok(drv.cuDevicePrimaryCtxRetain(0))))
        try:
            drv.cuStreamGetDevice(0)
        except RuntimeError as e:
            assert "cuStreamGetDevice" in str(e)
        else:
            raise AssertionError("an old driver has no cuStreamGetDevice")
        ok(drv.cuCtxPopCurrent())
        ok(drv.cuDevicePrimaryCtxRelease(0))
        """,
        SIM_DRIVER_VERSION="12020",
    )


def test_a_driver_too_old_for_the_library(tmp_path):
    right(
        tmp_path,
        """
        try:
            drv.cuInit(0)
        except RuntimeError as e:
            assert "cuGetProcAddress_v2" in str(e)
        else:
            raise AssertionError("a driver of CUDA 11.1 has no cuGetProcAddress")
        """,
        SIM_DRIVER_VERSION="11010",
    )


def test_a_failing_call_reaches_the_program(tmp_path):
    right(
        tmp_path,
        """
        device, s = started(1)
        try:
            device.allocate(64, stream=s)
        except Exception as e:
            assert "OUT_OF_MEMORY" in str(e)
        else:
            raise AssertionError("the allocation should have failed")
        s.close()
        """,
        SIM_FAIL="cuMemAllocFromPoolAsync:2",
    )
