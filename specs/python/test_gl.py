"""moonferry.gl in Python, on the OpenGL that EGL gives without a window (Mesa's llvmpipe will do): rings in mapped
buffers, between threads too, and pictures up and back, each pixel checked."""

import ctypes
import functools
import gc
import threading
from pathlib import Path

import allocated
import numpy as np
import pytest

import moonferry as mf
from moonferry import _gl_calls

# Not for longer: a folder `torch` lies there, which other specs would take for PyTorch where that is not installed.
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).parent.parent / "sim")
    opengl = pytest.importorskip("opengl", reason="needs EGL (libegl1)")
gl = pytest.importorskip("moonferry.gl")

P, U, S = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int
TEXTURE, FRAMEBUFFER, COLOR = 0x0DE1, 0x8D40, 0x8CE0
COPY_READ = 0x8F36


def call(name, *types):
    return opengl._gl("gl" + name, *types)


@pytest.fixture(scope="module", autouse=True)
def egl():
    opengl.open_context()


@pytest.fixture
def context():
    before = mf.ledger()
    context = gl.open("egl")
    yield context
    context.finish()
    context.finish()
    with pytest.raises(ValueError, match="context has ended"):
        context.fence_tensor(mf.zeros((1,)))
    gc.collect()
    assert mf.ledger() == before


def texture(width, height, internal=0x8058):
    """A texture with a frame buffer that is bound over it."""
    names = (U * 2)()
    call("GenTextures", S, P)(1, names)
    call("BindTexture", U, U)(TEXTURE, names[0])
    call("TexStorage2D", U, S, U, S, S)(TEXTURE, 1, internal, width, height)
    call("GenFramebuffers", S, P)(1, ctypes.byref(names, 4))
    call("BindFramebuffer", U, U)(FRAMEBUFFER, names[1])
    call("FramebufferTexture2D", U, U, U, U, S)(FRAMEBUFFER, COLOR, TEXTURE, names[0], 0)
    return names[0]


def held(buffer, offset, count):
    """The floats that OpenGL has in a buffer."""
    out = (ctypes.c_float * count)()
    call("BindBuffer", U, U)(COPY_READ, buffer)
    call("GetBufferSubData", U, ctypes.c_ssize_t, ctypes.c_ssize_t, P)(COPY_READ, offset, 4 * count, out)
    return list(out)


@pytest.mark.parametrize("route", ["mapped", "copied"])
def test_a_ring(context, route):
    ring = context.ring((100, 4), "float32", slots=3, target="storage", route=route)
    assert (ring.route, ring.reason) == (route, None)
    views = ring.into(mf.Tensor.numpy)
    assert views is ring.into(mf.Tensor.numpy)
    for frame in range(20):
        t, i = ring.begin(5)
        assert t is ring.slots[i]
        views[i][:] = frame + np.arange(400).reshape(100, 4)
        buffer, offset = ring.submit()
        assert held(buffer, offset, 400) == [frame + n for n in range(400)]
        ring.done()
    with pytest.raises(ValueError, match="slot is None"):
        ring.submit()
    del views, t
    assert ring.close() is True
    assert ring.close() is True


@pytest.mark.parametrize("route", ["mapped", "copied"])
def test_a_worker_publishes_for_the_renderer(context, route):
    ring = context.ring((8,), "float32", slots=4, route=route)
    with pytest.raises(ValueError, match="latest gave no slot"):
        ring.hold()
    assert ring.latest() is None
    frames, seen = 50, []

    def work():
        with mf.Ring.from_handle(ring.handle) as mine:
            for number in range(1, frames + 1):
                t, _ = mine.begin(20)
                t.fill(number)
                mine.publish()

    thread = threading.Thread(target=work)
    thread.start()
    while not seen or seen[-1] < frames:
        found = ring.latest()
        if found is None:
            continue
        t, i, fresh = found
        buffer, offset = ring.submit(i)
        values = held(buffer, offset, 8)
        assert len(set(values)) == 1, "a slot is torn"
        ring.hold()
        if fresh:
            assert not seen or values[0] > seen[-1]
            seen.append(values[0])
    thread.join()
    with pytest.raises(ValueError, match="that latest gave"):
        ring.submit((i + 1) % 4)
    del t, found
    assert ring.close()


def test_the_mapping_stays_for_a_view(context):
    ring = context.ring((4,))
    view = ring.slots[1].numpy()
    assert ring.close() is False
    view[:] = 3  # the memory is there
    del view
    assert ring.close() is True


def test_routes_have_reasons(context):
    context.buffer_storage = "OpenGL 3.3 has no GL_ARB_buffer_storage"
    ring = context.ring((4,))
    assert (ring.route, ring.reason) == ("copied", context.buffer_storage)
    with pytest.raises(RuntimeError, match="GL_ARB_buffer_storage"):
        context.ring((4,), route="mapped")
    assert ring.close()


def test_uses_wait_for_what_is_drawn(context):
    t = mf.zeros((4,))
    context.fence_tensor(t)
    t.fill(1)
    context.fence_tensor(t, write=True)
    assert t.tolist() == [1, 1, 1, 1]
    with pytest.raises(TypeError):
        context.fence_tensor("t")


@pytest.mark.parametrize("route", ["mapped", "copied"])
@pytest.mark.parametrize("format", ["rgba8", "bgra8", "r32f"])
def test_pictures_go_up_and_back(context, route, format):
    dtype, channels = gl.formats[format][2:]
    name = texture(13, 7, {"r32f": 0x822E}.get(format, 0x8058))
    everything = np.arange(9 * 20 * channels).reshape(9, 20, channels).astype(dtype)
    reader = context.reader(13, 7, format, route=route)
    assert reader.latest() is None
    for picture in (everything[:7, :13].copy(), everything[1:8, 3:16], everything[:7, :13][::-1]):
        context.upload(name, mf.from_dlpack(picture), format)
        reader.read()
        context.call["Finish"]()
        assert np.array_equal(np.from_dlpack(reader.latest()), picture)
    with pytest.raises(ValueError, match="shape is"):
        context.upload(name, mf.zeros((7, 13, 5), dtype), format)
    with pytest.raises(ValueError, match="strides are"):
        context.upload(name, mf.zeros((13, 7, channels), dtype).permute_dims((1, 0, 2)), format)
    with pytest.raises(ValueError, match="format is 'rgba9'"):
        context.upload(name, mf.zeros((7, 13, 4), "uint8"), "rgba9")
    assert reader.close()
    assert call("GetError")() in (None, 0)


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        ({"x": 2**32}, ValueError, "x is 4294967296; -2147483648 to 2147483647 expected"),
        ({"y": -(2**63)}, ValueError, "y is -9223372036854775808; -2147483648 to 2147483647 expected"),
        ({"texture": 2**32}, ValueError, "texture is 4294967296; 0 to 4294967295 expected"),
        ({"texture": -1}, ValueError, "texture is -1; 0 to 4294967295 expected"),
        ({"x": "1"}, TypeError, "x is '1'; an integer expected"), ({"y": True}, TypeError, "y is True; an integer"),
        ({"texture": 1.5}, TypeError, "texture is 1.5; an integer expected"),
    ],
)  # fmt: skip
def test_a_number_is_given_to_opengl_whole_or_not_at_all(context, words, kind, said):
    """Of one that was too large for it, OpenGL got the low bits: pixel 0, or another texture."""
    with pytest.raises(kind, match=said):
        context.upload(**{"texture": texture(13, 7), "t": mf.zeros((7, 13, 4), "uint8"), "format": "rgba8", **words})
    if "texture" not in words:
        reader = context.reader(13, 7)
        with pytest.raises(kind, match=said):
            reader.read(**words)
        assert reader.close()
    elif kind is ValueError:
        for share, what in ((context.share, "buffer"), (context.share_texture, "texture")):
            with pytest.raises(ValueError, match=f"{what} is {words['texture']}; OpenGL's number of a {what} expected"):
                share(words["texture"], "cuda")


@pytest.mark.parametrize(
    ("size", "kind", "said"),
    [((0, 7), ValueError, "width is 0; 1 to"), ((13, 0), ValueError, "height is 0; 1 to"),
     ((1.5, 7), TypeError, "width is 1.5; an integer expected"), ((13, "7"), TypeError, "height is '7'")],
)  # fmt: skip
def test_a_reader_has_pixels(context, size, kind, said):
    with pytest.raises(kind, match=said):
        context.reader(*size)


def test_a_picture_that_is_closed_while_opengl_reads_it_stays(context, monkeypatch):
    name, t = texture(13, 7), mf.zeros((7, 13, 4), "uint8")
    take, held = context.call["TexSubImage2D"], []

    def close_and_take(*arguments):
        t.close()
        held.append(mf.ledger().storages)
        take(*arguments)

    monkeypatch.setitem(context.call, "TexSubImage2D", close_and_take)
    before = mf.ledger().storages
    context.upload(name, t, "rgba8")
    assert held == [before] and mf.ledger().storages == before - 1


def test_memory_that_is_pinned_stays_to_the_end_of_the_block(context, monkeypatch):
    t = mf.zeros((1024,), "float32", pages=True)
    monkeypatch.setattr(context, "pinned_memory", None)
    monkeypatch.setattr(context, "_pin", lambda name, t: None)
    finish, finished, before = context.call["Finish"], [], mf.ledger().storages
    monkeypatch.setitem(context.call, "Finish", lambda: (finished.append(mf.ledger().storages), finish()))
    with context.pinned(t):
        t.close()
        assert mf.ledger().storages == before and not finished
    assert finished == [before] and mf.ledger().storages == before - 1


def test_a_buffer_over_a_tensors_own_memory(context):
    t = mf.zeros((1024,), "float32", pages=True)
    if context.pinned_memory:
        with pytest.raises(RuntimeError, match="GL_AMD_pinned_memory"), context.pinned(t):
            pass
        return
    with context.pinned(t) as buffer:
        t.fill(5)
        assert held(buffer, 0, 1024) == [5] * 1024
    with pytest.raises(ValueError, match="compact tensor on the cpu"), context.pinned(t.reshape((32, 32)).T):
        pass


def test_misuse_of_a_share(context):
    for share, what in ((context.share, "buffer"), (context.share_texture, "texture")):
        with pytest.raises(ValueError, match="device is 'cpu'; a GPU, such as 'cuda:0', expected"):
            share(1, "cpu", route="copied")
        with pytest.raises(TypeError, match="device must be a name such as 'cuda:0', not 3"):
            share(1, 3)
        with pytest.raises(ValueError, match=f"{what} is 'x'; OpenGL's number of a {what} expected"):
            share("x", "cuda")
        with pytest.raises(ValueError, match="route is 'short'; 'mapped', 'copied' or None expected"):
            share(1, "cuda", route="short")
    with pytest.raises(ValueError, match="target is 'picture'; one of 'vertex', 'index'"):
        context.ring((4,), target="picture")
    with pytest.raises(TypeError, match="slots must be an integer, not 'x'"):
        context.ring((4,), slots="x")


def test_no_context_and_no_such_library():
    with pytest.raises(ValueError, match="library is 'sdl3'"):
        gl.open("sdl3")
    told = []

    def elsewhere():
        with pytest.raises(RuntimeError, match="no context of OpenGL is current in egl"):
            gl.open("egl")
        told.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert told


def test_a_refused_fence_is_dropped(context):
    ring = context.ring((4,))
    with pytest.raises(ValueError):
        ring.done()
    assert ring.close()


def test_a_fence_for_which_there_is_no_memory_is_none(context):
    """Each failure many times, and nothing is left."""
    testing, address = pytest.importorskip("_testcapi"), context._gl.value

    def attempt(nth):
        try:
            testing.set_nomemory(nth, nth + 1)
            return mf._core._gl_fence(address)
        except MemoryError:
            return None
        finally:
            testing.remove_mem_hooks()

    nth, ledger = 0, mf.ledger()
    while attempt(nth) is None:
        assert allocated.blocks_left_by(functools.partial(attempt, nth)) < 50 and mf.ledger() == ledger
        nth += 1
    assert nth > 1


def test_a_drivers_error_has_its_call_and_its_number():
    error = _gl_calls.Error(-11, 719, b"cuGraphicsMapResources", b"cuGraphicsMapResources answered 719")
    with pytest.raises(mf.DriverError, match="^cuGraphicsMapResources answered 719$") as raised:
        error.check(-11)
    assert (raised.value.call, raised.value.code) == ("cuGraphicsMapResources", 719)


def test_what_was_broken_off_while_it_was_made_has_nothing_to_close(monkeypatch):
    """As Ctrl-C does, at the first line of the constructor."""
    told = []
    monkeypatch.setattr("sys.unraisablehook", told.append)
    _gl_calls.Registration.__new__(_gl_calls.Registration)
    gc.collect()
    assert told == []
