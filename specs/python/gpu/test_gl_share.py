"""moonferry.gl in Python: OpenGL's buffers as tensors of a GPU, the same bytes by both routes, valid inside of the
block alone. A GPU's own OpenGL is not what EGL gives without a window, so that this runs on a simulated driver."""

import contextlib
import gc
import sys
from pathlib import Path

import pytest

import moonferry as mf
from interrupted import at_each_place

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sim"))
opengl = pytest.importorskip("opengl", reason="needs EGL (libegl1)")
gl = pytest.importorskip("moonferry.gl")
sweep = pytest.importorskip("moonferry._gl_calls").sweep

N = 1024


class Extent:
    """An integer of another library's."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


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


def floats(buffer):
    return memoryview(opengl.read(buffer, 4 * N)).cast("f")


@pytest.mark.parametrize("route", ["mapped", "copied"])
def test_both_ways(context, device, seed, route):
    buffer = opengl.buffer_of(bytes(4 * N))
    shared = context.share(buffer, str(device), route=route)
    assert shared.route == route
    stream = mf.Stream(device)
    for value in range(1, 4):
        with shared.map(stream if value > 1 else None, (32, N // 32)) as t:
            assert str(t.device) == str(device) and t.shape == (32, N // 32)
            assert t.to("cpu").tolist()[1][1] == value - 1
            t.fill(value)
            with pytest.raises(ValueError, match="mapped already"), shared.map(None, N):
                pass
            with pytest.raises(ValueError, match="is mapped"):
                shared.close()
        assert set(floats(buffer)) == {value}
        if route == "mapped":
            with pytest.raises(ValueError, match="taken back"):
                t.fill(0)
        del t
    shared.close()
    shared.close()
    with pytest.raises(ValueError, match="closed"), shared.map(None, N):
        pass


@pytest.mark.parametrize("route", ["mapped", "copied"])
def test_a_shape_is_taken_whole_or_not_at_all(context, device, route):
    buffer = opengl.buffer_of(bytes(4 * N))
    shared = context.share(buffer, str(device), route=route)
    for shape in (Extent(N), (Extent(2), 5)):
        with shared.map(None, shape) as t:
            assert t.shape == ((N,) if isinstance(shape, Extent) else (2, 5))
    for shape, kind in (((2.5,), TypeError), ("3", TypeError), ((2**64 + 5,), (OverflowError, ValueError))):
        with pytest.raises(kind), shared.map(None, shape):
            pass
    shared.close()


def test_an_error_inside_unmaps(context, device):
    buffer = opengl.buffer_of(bytes(4 * N))
    shared = context.share(buffer, str(device), use="discard")
    with pytest.raises(KeyError), shared.map(None, N) as t:
        t.fill(2)
        raise KeyError
    del t
    gc.collect()
    assert set(floats(buffer)) == {2}
    with pytest.raises(ValueError, match="do not fit"), shared.map(None, N + 1):
        pass
    shared.close()


def test_reads_alone(context, device):
    buffer = opengl.buffer_of(bytes(4 * N))
    shared = context.share(buffer, str(device), use="read")
    with shared.map(None, N) as t:
        assert t.readonly
        kept = t
    assert shared.in_use
    del t, kept
    shared.close()


def test_one_that_is_dropped_is_given_back_by_the_contexts_next_call(context, device, gpu):
    """Only the context's thread may ask that of the driver."""
    buffer = opengl.buffer_of(bytes(4 * N))
    before = gpu.registered("Buffer")
    shared = context.share(buffer, str(device))
    for more in (2, 1):
        for _ in range(more):
            with pytest.warns(ResourceWarning, match="a buffer of OpenGL's that was shared with a GPU was not closed"):
                context.share(buffer, str(device))
                gc.collect()
        assert gpu.registered("Buffer") - before == 2
        with shared.map(None, N):
            pass
        assert gpu.registered("Buffer") - before == 1
    shared.close()
    context.share(buffer, str(device), route="copied")
    with pytest.warns(ResourceWarning):
        context.share(buffer, str(device))
        gc.collect()
    assert gpu.registered("Buffer") - before == 1
    context.finish()
    assert gpu.registered("Buffer") == before


def test_a_capture_that_goes_on_keeps_the_buffer_mapped(context, device, gpu):
    buffer = opengl.buffer_of(bytes(4 * N))
    before, stream = gpu.registered("Buffer"), mf.Stream(device)
    shared = context.share(buffer, str(device))
    with contextlib.ExitStack() as captures:
        with pytest.raises(RuntimeError, match="being captured"), shared.map(stream, N) as t:
            t.fill(8)
            captures.enter_context(gpu.capture(stream.handle))
        del t
        with pytest.raises(RuntimeError, match="being captured"):
            shared.close()
        assert shared.route == "mapped"
    shared.close()
    assert gpu.registered("Buffer") == before and set(floats(buffer)) == {8}


def interrupted_closes(close):
    """The places at which a close was interrupted, which a capture makes fail everywhere else."""

    def call():
        with pytest.raises(RuntimeError, match="being captured"):
            close()

    return at_each_place(call)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_ctrl_c_behind_a_close_that_is_refused_keeps_the_buffer_registered(context, device, gpu):
    buffer, other = opengl.buffer_of(bytes(4 * N)), opengl.buffer_of(bytes(4 * N))
    before, stream = gpu.registered("Buffer"), mf.Stream(device)
    shared, dropped = context.share(buffer, str(device)), context.share(other, str(device))
    with contextlib.ExitStack() as captures:
        with pytest.raises(RuntimeError, match="being captured"), shared.map(stream, N), dropped.map(stream, N):
            captures.enter_context(gpu.capture(stream.handle))
        del dropped
        gc.collect()
        for place in interrupted_closes(shared.close):
            assert shared.route == "mapped", place
        for place in at_each_place(lambda: sweep(context._dropped)):
            assert len(context._dropped) == 1, place
    shared.close()
    sweep(context._dropped)
    assert gpu.registered("Buffer") == before


def test_reasons(context, device, gpu):
    buffer = opengl.buffer_of(bytes(4 * N))
    with pytest.raises(ValueError, match="use is 'write'"):
        context.share(buffer, str(device), use="write")
    with pytest.raises(RuntimeError):
        context.share(99999, str(device), route="mapped")
    shared = context.share(99999, str(device))
    assert shared.route == "copied" and "GLRegisterBuffer" in shared.reason
    shared.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("route", ["mapped", "copied"])
def test_ctrl_c_anywhere(context, device, route):
    buffer, other = opengl.buffer_of(bytes(4 * N)), opengl.buffer_of(bytes(4 * N))
    shared = context.share(buffer, str(device), route=route)

    def use():
        gc.collect()
        with shared.map(None, N) as t:  # closes what was dropped, too
            t.fill(3)
        assert set(floats(buffer)) == {3}

    def call():
        with shared.map(None, (32, N // 32)) as t:
            t.to("cpu")
        with contextlib.closing(context.share(other, str(device), route=route)) as mine, mine.map(None, N) as t:
            t.fill(2)

    use()
    before, count = mf.ledger(), 0
    for place in at_each_place(call):
        use()
        assert mf.ledger() == before, place
        count += 1
    assert count > 20
    shared.close()


def test_a_stream_that_is_another_devices_or_none_is_refused(context, device, gpu):
    """Its handle means something else there."""
    buffer = opengl.buffer_of(bytes(4 * N))
    shared, other = context.share(buffer, str(device)), mf.Stream(gpu.second)
    said = f"stream is one of {gpu.second}; one of {device} expected"
    with pytest.raises(ValueError, match=said), shared.map(other, N):
        pass
    with pytest.raises(TypeError, match="stream is 5; a moonferry.Stream or None expected"), shared.map(5, N):
        pass
    with shared.map(mf.Stream.default(device), N) as t:
        assert t.device == device
    del t
    shared.close()
