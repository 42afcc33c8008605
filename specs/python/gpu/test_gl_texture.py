"""moonferry.gl in Python: OpenGL's textures and tensors of a GPU, the same pixels by both routes. A GPU's own OpenGL is
not what EGL gives without a window, so that this runs on a simulated driver."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

import moonferry as mf

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sim"))
opengl = pytest.importorskip("opengl", reason="needs EGL (libegl1)")
gl = pytest.importorskip("moonferry.gl")

W, H = 31, 9
ROUTES = pytest.mark.parametrize("route", ["mapped", "copied"])
# OpenGL's sized format, format and type; our dtype and channels.
FORMATS = [
    (0x8229, 0x1903, 0x1401, "uint8", 1),
    (0x822B, 0x8227, 0x1401, "uint8", 2),
    (0x8058, 0x1908, 0x1401, "uint8", 4),
    (0x822D, 0x1903, 0x140B, "float16", 1),
    (0x881A, 0x1908, 0x140B, "float16", 4),
    (0x822E, 0x1903, 0x1406, "float32", 1),
    (0x8814, 0x1908, 0x1406, "float32", 4),
]
RGBA8 = FORMATS[2]


@pytest.fixture(scope="module", autouse=True)
def egl():
    opengl.open_context()


@pytest.fixture
def context(gpu):
    if not gpu.simulated:
        pytest.skip("needs a simulated driver")
    context = gl.open("egl")
    yield context
    context.finish()


def zeros(format):
    nbytes = W * H * mf.empty(format[4], format[3]).nbytes
    return opengl.texture_of(format[0], W, H, format[1], format[2], bytes(nbytes)), nbytes


@ROUTES
@pytest.mark.parametrize("format", FORMATS)
def test_up_and_down(context, device, seed, route, format):
    texture, nbytes = zeros(format)
    shared = context.share_texture(texture, str(device), route=route)
    assert shared.route == route
    sent = bytes(i % 113 for i in range(nbytes))
    shape = (H, W) if format[4] == 1 else (H, W, format[4])
    host = mf.from_dlpack(np.frombuffer(bytearray(sent), format[3]).reshape(shape))
    t, stream = host.to(str(device)), mf.Stream(device)
    shared.upload(t, stream)
    assert opengl.read_texture(texture, format[1], format[2], nbytes) == sent
    t.fill(0)
    shared.download(t, stream)
    assert t.to("cpu").tobytes() == sent
    host.fill(0)
    shared.download(host)
    assert host.tobytes() == sent
    shared.close()
    shared.close()
    with pytest.raises(ValueError, match="is closed"):
        shared.upload(t)
    opengl.delete_texture(texture)


def test_one_that_is_dropped_is_given_back_by_the_contexts_next_call(context, device, gpu):
    texture, _ = zeros(RGBA8)
    shared, before = context.share_texture(texture, str(device)), gpu.registered("Image")
    with pytest.warns(ResourceWarning, match="a texture of OpenGL's that was shared with a GPU was not closed"):
        context.share_texture(texture, str(device))
        gc.collect()
    assert gpu.registered("Image") == before + 1
    shared.upload(mf.zeros((H, W, 4), "uint8", device=device))
    assert gpu.registered("Image") == before
    shared.close()
    assert gpu.registered("Image") == before - 1
    opengl.delete_texture(texture)


@ROUTES
def test_a_part_upside_down(context, device, route):
    texture, nbytes = zeros(RGBA8)
    shared = context.share_texture(texture, str(device), route=route)
    t = mf.tensor([[[1] * 4], [[2] * 4]], "uint8").to(str(device))
    shared.upload(t[::-1], x=W - 1, y=H - 2)
    seen = opengl.read_texture(texture, *RGBA8[1:3], nbytes)
    assert seen[((H - 2) * W + W - 1) * 4] == 2 and seen[-1] == 1 and seen[(H - 1) * W * 4 - 8] == 0
    t.fill(9)
    shared.download(t, x=W - 1, y=H - 2)
    assert t.to("cpu").tolist() == [[[2] * 4], [[1] * 4]]
    for x, y in ((2**64, 0), (0, -(2**32))):
        with pytest.raises(ValueError, match="-2147483648 to 2147483647 expected"):
            shared.upload(t, x=x, y=y)
        with pytest.raises(ValueError, match="-2147483648 to 2147483647 expected"):
            shared.download(t, x=x, y=y)
    for x, y in ((W, 0), (0, H - 1), (-1, 0)):
        with pytest.raises(ValueError, match="do not fit"):
            shared.upload(t, x=x, y=y)
        with pytest.raises(ValueError, match="do not fit"):
            shared.download(t, x=x, y=y)
    shared.close()
    opengl.delete_texture(texture)


@ROUTES
def test_used_as_was_said(context, device, route):
    texture, _ = zeros(RGBA8)
    reads = context.share_texture(texture, str(device), route=route, use="read")
    writes = context.share_texture(texture, str(device), route=route, use="discard")
    t = mf.zeros((H, W, 4), "uint8")
    with pytest.raises(ValueError, match="shared for reading"):
        reads.upload(t)
    with pytest.raises(ValueError, match="shared for discarding"):
        writes.download(t)
    reads.download(t)
    writes.upload(t)
    reads.close()
    writes.close()
    opengl.delete_texture(texture)


def test_misuse(context, device):
    texture, _ = zeros(RGBA8)
    srgb = opengl.texture_of(0x8C43, W, H, 0x1908, 0x1401, bytes(W * H * 4))
    for words, said in (
        ({"use": "both"}, "use is 'both'; 'read', 'discard' or None"),
        ({"route": "short"}, "route is 'short'"),
    ):
        with pytest.raises(ValueError, match=said):
            context.share_texture(texture, str(device), **words)
    with pytest.raises(RuntimeError, match="GraphicsGLRegisterImage"):
        context.share_texture(srgb, str(device), route="mapped")
    odd = context.share_texture(srgb, str(device))
    assert odd.route == "copied" and "GraphicsGLRegisterImage" in odd.reason
    with pytest.raises(ValueError, match="OpenGL's format 0x8c43"):
        odd.upload(mf.zeros((H, W, 4), "uint8"))
    shared = context.share_texture(texture, str(device))
    with pytest.raises(TypeError, match="dtype is float16; the texture's uint8 expected"):
        shared.upload(mf.zeros((H, W, 4), "float16"))
    odd.close()
    shared.close()
    opengl.delete_texture(texture)
    opengl.delete_texture(srgb)


def test_a_picture_in_a_gpus_memory_is_refused(context, device):
    """The host's OpenGL would read it."""
    texture, _ = zeros(RGBA8)
    with pytest.raises(ValueError, match=f"t is on {device}; memory that the host can read expected"):
        context.upload(texture, mf.zeros((H, W, 4), "uint8", device=device), "rgba8")
