"""Other people's classes for OpenGL's buffers, unmodified, on the simulated CUDA driver over a real OpenGL."""

import importlib.util
import os

import pytest
from programs import Programs
from test_libraries import COMMON

GRAPHICS = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import opengl
opengl.open_context()
"""
programs = Programs(COMMON + GRAPHICS, seeds=[0, 1])
with_warp = pytest.mark.skipif(
    importlib.util.find_spec("warp") is None, reason="warp-lang is not installed: run specs/sim/setup.sh"
)
warp = Programs(COMMON + GRAPHICS + "import warp as wp\nwp.config.quiet = True\n", seeds=[0, 1])

CUDA_CORE = """
    from cuda.core import GraphicsResource
    device, s, t = started(2)
    name = opengl.buffer_of(bytes(range(256)) * 256)
    with GraphicsResource.from_gl_buffer(name) as resource:
        with resource.map(stream=s) as buffer:
            assert buffer.size == 65536
            WORK
        assert not resource.is_mapped
    s.sync()
    t.sync()
    """


def test_cuda_core_maps_a_buffer(tmp_path):
    work = """view = StridedMemoryView.from_dlpack(buffer, stream_ptr=int(s.handle))
            host = np.zeros(65536, np.uint8)
            ok(drv.cuMemcpyDtoHAsync(host.ctypes.data, view.ptr, 65536, s.handle))
            s.sync()
            assert bytes(host) == bytes(range(256)) * 256
            buffer.fill(b"\\x05", stream=s)"""
    programs.right(
        tmp_path, CUDA_CORE.replace("WORK", work) + "assert opengl.read(name, 65536) == bytes([5]) * 65536\n"
    )


def test_cuda_core_on_another_stream_is_a_race(tmp_path):
    work = 'buffer.fill(b"\\x05", stream=t)'
    programs.wrong(tmp_path, CUDA_CORE.replace("WORK", work), "race on 65536 bytes", "cuGraphics")


def test_drawing_while_cuda_core_has_it_mapped(tmp_path):
    work = "assert opengl.read(name, 65536) == bytes([0xCB]) * 65536"
    programs.wrong(tmp_path, CUDA_CORE.replace("WORK", work), "while it was mapped for a device")


WARP = """
    device, s = started(1)
    wp.init()
    name = opengl.buffer_of(bytes(range(256)) * 256)
    shared = wp.RegisteredGLBuffer(name, "cuda:0", fallback_to_copy=False)
    array = shared.map(dtype=wp.uint8, shape=(65536,))
    assert array.shape == (65536,) and array.device.alias == "cuda:0"
    assert bytes(bytes_of(array.ptr, 65536)) == bytes(range(256)) * 256
    WORK
    """


@with_warp
def test_warp_maps_a_buffer(tmp_path):
    work = """view = StridedMemoryView.from_dlpack(array, stream_ptr=-1)
    ok(drv.cuMemsetD8Async(view.ptr, 6, 65536, wp.get_stream("cuda:0").cuda_stream))
    shared.unmap()
    ok(drv.cuCtxSynchronize())
    assert opengl.read(name, 65536) == bytes([6]) * 65536"""
    warp.right(tmp_path, WARP.replace("WORK", work))


@with_warp
def test_warps_pointer_dies_with_the_mapping(tmp_path):
    work = """shared.unmap()
    assert int(drv.cuMemsetD8(array.ptr, 6, 65536)[0]) == 1"""
    warp.wrong(tmp_path, WARP.replace("WORK", work), "use of freed memory", "cuGraphicsUnmapResources")
