"""What waits for OpenGL waits for as long as it takes, and nothing else does: moonferry.gl on a real OpenGL whose
fences are reached when the spec says so. specs/lua/gl_order_spec.lua is the same for Lua."""

import ctypes
import gc
import threading
from pathlib import Path

import allocated
import pytest

import moonferry as mf

# As in test_gl.py.
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).parent.parent / "sim")
    opengl = pytest.importorskip("opengl", reason="needs EGL (libegl1)")
gl = pytest.importorskip("moonferry.gl")
from moonferry._gl_calls import C, _core, unwrap  # noqa: E402

P, U, S = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int
EXPIRED, SIGNALED = 0x911B, 0x911A
ARRAY, ARRAY_BINDING, PACK, PACK_BINDING = 0x8892, 0x8894, 0x88EB, 0x88ED


class Queue:
    """Fences are numbered; those up to `reached` are."""

    def __init__(self):
        self.made = self.deleted = self.reached = 0
        self.keep = {
            b"glFenceSync": ctypes.CFUNCTYPE(P, U, U)(self.make),
            b"glClientWaitSync": ctypes.CFUNCTYPE(U, P, U, ctypes.c_uint64)(self.ask),
            b"glDeleteSync": ctypes.CFUNCTYPE(None, P)(self.delete),
        }

    def make(self, _condition, _flags):
        self.made += 1
        return self.made

    def ask(self, fence, _flags, _ns):
        return SIGNALED if fence <= self.reached else EXPIRED

    def delete(self, _fence):
        self.deleted += 1

    def find(self, name):
        own = self.keep.get(name)
        return opengl._egl.eglGetProcAddress(name) if own is None else ctypes.cast(own, P).value


@pytest.fixture
def queue():
    return Queue()


@pytest.fixture
def calls():
    return []


@pytest.fixture
def context(queue, calls):
    opengl.open_context()
    opengl._egl.eglGetProcAddress.restype, opengl._egl.eglGetCurrentContext.restype = P, P
    before = mf.ledger()
    context = gl.open((queue.find, opengl._egl.eglGetCurrentContext))

    def noting(name, real):
        def call(*args):
            calls.append(name)
            if name == "Finish":
                queue.reached = queue.made
            return real(*args)

        return call

    for name in ("Finish", "GenBuffers", "DeleteBuffers", "UnmapBuffer"):
        context.call[name] = noting(name, context.call[name])
    context.call["ReadPixels"] = lambda *args: None  # there is nothing to read from
    yield context
    context.finish()
    gc.collect()
    assert mf.ledger() == before
    assert queue.made == queue.deleted
    assert calls.count("GenBuffers") == calls.count("DeleteBuffers")
    assert opengl._gl("glGetError", result=U)() == 0


def waits(t, write=False):
    """Whether somebody who reads t, or writes it, would have to wait now."""
    done = ctypes.c_int32()
    assert C.mf_tensor_fence_wait(unwrap(t), 2 if write else 1, 0, ctypes.byref(done), None) == 0
    return not done.value


def test_a_slot_that_is_drawn_is_not_given(context, queue):
    ring = context.ring((4,), slots=2)
    for _ in range(2):
        ring.begin(0)
        ring.submit()
        ring.done()
        with pytest.raises(ValueError, match="slot is None"):
            ring.submit()
    with pytest.raises(TimeoutError):
        ring.begin(0)
    queue.reached = 1
    assert ring.begin(0)[1] == 0
    assert ring.close()


def test_a_copied_slot_is_given_again_at_once(context):
    ring = context.ring((4,), slots=1, route="copied")
    for _ in range(3):
        ring.begin(0)
        ring.submit()
        ring.done()
    assert ring.close()


def test_readers_wait_for_what_opengl_writes_and_writers_for_both(context, queue):
    ring, t = context.ring((4,), slots=2), mf.zeros(4)
    read, _ = ring.begin(0)
    ring.done()
    written, _ = ring.begin(0)
    ring.done(write=True)
    assert (waits(read), waits(read, write=True)) == (False, True)
    assert (waits(written), waits(written, write=True)) == (True, True)
    context.fence_tensor(t)
    assert (waits(t), waits(t, write=True)) == (False, True)
    context.fence_tensor(t, write=True)
    assert (waits(t), waits(t, write=True)) == (True, True)
    queue.reached = queue.made
    assert not waits(t, write=True)
    assert not waits(written, write=True)
    del read, written
    assert ring.close()


def test_a_worker_does_not_get_what_the_renderer_held(context, queue):
    ring = context.ring((4,), slots=3)
    with mf.Ring.from_handle(ring.handle) as worker:
        _, first = worker.begin(0)
        worker.publish()
        ring.latest()
        ring.hold()
        for _ in range(6):
            assert worker.begin(0)[1] != first
            worker.publish()
            ring.latest()
        queue.reached = queue.made
    assert ring.close()


def test_a_picture_is_there_when_it_has_come_and_until_it_is_read_anew(context, queue):
    reader = context.reader(4, 4, slots=2)
    reader.read()
    assert reader.latest() is None
    queue.reached = 1
    picture = reader.latest()
    assert picture is not None
    reader.read()
    assert reader.latest() is picture
    queue.reached = 2
    assert reader.latest() is not picture
    reader.read()
    assert reader.latest() is not picture
    queue.reached = 3
    assert reader.latest() is picture
    for _ in range(2):
        reader.read()  # the second one into what latest gave
    assert reader.latest() is None
    del picture
    assert reader.close()


def test_a_rings_buffer_goes_when_it_has_been_drawn(context, calls):
    ring = context.ring((4,))
    ring.begin(0)
    ring.done()
    views = [ring.slots[i].numpy() for i in (1, 2)]
    assert not ring.close()
    assert calls == ["GenBuffers", "Finish"]
    views.clear()
    assert ring.close()
    assert calls[2:] == ["Finish", "UnmapBuffer", "DeleteBuffers"]


def test_with_the_context_memory_is_let_go_of(context, calls, queue):
    released = []

    class Owner:
        def __del__(self):
            released.append(True)

    memory, owner = (ctypes.c_float * 4)(), Owner()
    t = mf.wrap(ctypes.addressof(memory), (4,), "float32", owner=owner)
    kept = mf.zeros(4)
    context.fence_tensor(t)
    context.fence_tensor(kept)
    t.close()
    del owner, t
    gc.collect()
    assert not released
    context.finish()
    assert released
    assert calls == ["Finish"]
    queue.reached = 0
    assert not waits(kept, write=True)
    queue.deleted = queue.made  # they go with their context


def test_who_refuses_a_fence_leaves_none(context):
    ring = context.ring((4,))
    with pytest.raises(ValueError, match="no slot"):
        ring.done()
    assert ring.close()
    closed = mf.zeros(4)
    closed.close()
    with pytest.raises(ValueError, match="the tensor is closed"):
        context.fence_tensor(closed)
    with pytest.raises(TypeError, match="expected a moonferry.Tensor, not 'list'"):
        context.fence_tensor([1])
    t = mf.zeros(4)
    _core._fault_arm(0, True)
    with pytest.raises(MemoryError):
        context.fence_tensor(t)
    _core._fault_arm(-1)


def test_a_tensor_that_got_a_fence_can_be_closed(context, queue):
    t = mf.zeros(4)
    context.fence_tensor(t)
    queue.reached = 1
    t.close()
    with pytest.raises(ValueError, match="closed"):
        t.tolist()


def test_a_fence_leaves_no_memory(context, queue):
    """Neither one that a tensor has had, nor one that nobody took."""
    t, queue.reached = mf.zeros(4), 1 << 20
    assert allocated.blocks_left_by(lambda: (context.fence_tensor(t), context._fence())) < 50


def test_a_ring_one_of_whose_slots_is_closed_can_be_closed(context):
    ring = context.ring((4,))
    ring.slots[1].close()
    assert ring.close()


def test_a_fence_that_ends_on_another_thread_leaves_its_sync_object_to_the_context(context, queue, free_threaded):
    capsules = [context._fence()]
    thread = threading.Thread(target=capsules.clear)
    thread.start()
    thread.join()
    # Without the GIL, what another thread lets go of ends on the one that made it.
    assert (queue.made, queue.deleted) == (1, int(free_threaded))
    queue.deleted = 1  # with the context


def test_a_ring_that_cannot_be_made_leaves_no_buffer(context):
    real, context.call["MapBufferRange"] = context.call["MapBufferRange"], lambda *args: None
    with pytest.raises(RuntimeError, match="glMapBufferRange failed"):
        context.ring((4,), route="mapped")
    ring = context.ring((4,))
    assert ring.route == "copied"
    assert "glMapBufferRange failed" in ring.reason
    assert ring.close()

    def refuse(*args):
        raise OSError("the program's debug callback")

    context.call["MapBufferRange"] = refuse
    with pytest.raises(OSError, match="debug callback"):
        context.ring((4,))
    context.call["MapBufferRange"] = real
    for slots in (0, -1, 65, 2**70):
        with pytest.raises(ValueError, match="1 to 64 expected"):
            context.ring((4,), slots=slots)
    with pytest.raises(TypeError):
        context.ring((4,), slots=1.5)


@pytest.mark.parametrize("route", ["mapped", "copied"])
def test_what_was_bound_stays(context, route):
    name, bound = U(), S()
    opengl._gl("glGenBuffers", S, P)(1, ctypes.byref(name))
    bind = opengl._gl("glBindBuffer", U, U)
    bind(ARRAY, name)
    bind(PACK, name)
    ring, reader = context.ring((4,), route=route), context.reader(4, 4, route=route)
    ring.begin(0)
    ring.submit()
    ring.done()
    reader.read()
    assert ring.close()
    assert reader.close()
    for which in (ARRAY_BINDING, PACK_BINDING):
        opengl._gl("glGetIntegerv", U, P)(which, ctypes.byref(bound))
        assert bound.value == name.value
    bind(ARRAY, 0)
    bind(PACK, 0)
    opengl._gl("glDeleteBuffers", S, P)(1, ctypes.byref(name))
