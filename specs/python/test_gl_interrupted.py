"""Ctrl-C at any place inside of moonferry.gl: no fence is dropped twice or never, no buffer is lost or deleted twice,
what was bound is bound again, and everything can be used afterwards. The fences are the spec's own."""

import gc

import pytest

import moonferry as mf
from interrupted import at_each_place
from test_gl_order import ARRAY_BINDING, PACK_BINDING, P, Queue, opengl

gl = pytest.importorskip("moonferry.gl")

UNPACK_BINDING, TEXTURE, TEXTURE_BINDING, ALIGNMENTS = 0x88EF, 0x0DE1, 0x8069, (0x0CF5, 0x0D05)
PINNED, RGBA8, RGBA, BYTE = 0x9160, 0x8058, 0x1908, 0x1401


class World:
    """An OpenGL whose buffers and fences are counted; and what is in use in it, to be given back."""

    def __init__(self):
        self.queue, self.alive = Queue(), set()
        self.kept = opengl._egl.eglGetCurrentContext
        opengl._egl.eglGetProcAddress.restype, self.kept.restype = P, P
        self.context = self.open()
        call = self.context.call
        self.make, self.delete, self.data = call["GenBuffers"], call["DeleteBuffers"], call["BufferData"]
        call["GenBuffers"], call["DeleteBuffers"], call["BufferData"] = self.gen, self.end, self.fill
        call["ReadPixels"] = lambda *args: None  # there is nothing to read from
        call["Finish"] = self.finish
        self.context.pinned_memory = None
        self.t, self.pixels = mf.zeros(4), mf.zeros((4, 4, 4), "uint8")
        self.texture = opengl.texture_of(RGBA8, 4, 4, RGBA, BYTE, bytes(64))
        call["BindTexture"](TEXTURE, 0)
        self.rings = []
        self.reader = self.context.reader(4, 4, slots=2)

    def open(self):
        return gl.open((self.queue.find, self.kept))

    def gen(self, count, name):
        self.make(count, name)
        self.alive.add(name._obj.value)

    def end(self, count, name):
        name = getattr(name, "_obj", name)
        if name.value:
            self.alive.remove(name.value)
            self.delete(count, name)

    def fill(self, target, *args):
        if target != PINNED:
            self.data(target, *args)

    def finish(self):
        self.queue.reached = self.queue.made

    def ring(self, route):
        self.rings.append(gl.Ring(self.context, (4,), "float32", 2, "vertex", route))
        return self.rings[-1]

    def bound(self):
        names = (ARRAY_BINDING, PACK_BINDING, UNPACK_BINDING, TEXTURE_BINDING, *ALIGNMENTS)
        return [self.context._integer(name) for name in names]

    def give_back(self):
        """Uses what a call has left, and ends what it has made."""
        self.finish()
        while self.rings:
            assert self.rings.pop().close()
        self.reader.read()
        self.finish()
        assert self.reader.latest() is not None
        self.context.fence_tensor(self.t)
        self.finish()
        self.t.fill(1)  # drops what is reached
        gc.collect()


@pytest.fixture
def world():
    opengl.open_context()
    before = mf.ledger()
    world = World()
    yield world
    assert world.reader.close()
    world.context.finish()
    assert not world.alive
    assert world.queue.made == world.queue.deleted
    world.__dict__.clear()
    gc.collect()
    assert mf.ledger() == before


def draw(world, route):
    ring = world.ring(route)
    ring.begin(0)
    ring.submit()
    ring.done(write=True)
    assert ring.close()


def publish(world, route):
    ring = world.ring(route)
    ring.begin(0)
    ring.publish()
    ring.submit(ring.latest()[1])
    ring.hold()
    assert ring.close()


def read(world, route):
    world.reader.read()
    world.finish()
    world.reader.latest()


def pin(world, route):
    with world.context.pinned(world.t):
        pass


CALLS = {
    "draw": draw,
    "publish": publish,
    "read": read,
    "pin": pin,
    "fence": lambda world, route: world.context.fence_tensor(world.t, True),
    "upload": lambda world, route: world.context.upload(world.texture, world.pixels, "rgba8"),
    "open": lambda world, route: world.open(),
}


@pytest.mark.parametrize("route", ["mapped", "copied"])
@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_anywhere(world, name, route):
    world.give_back()
    before, alive, bound = mf.ledger(), set(world.alive), world.bound()
    count = 0
    for place in at_each_place(lambda: CALLS[name](world, route)):
        world.give_back()
        assert (mf.ledger(), world.alive, world.bound()) == (before, alive, bound), place
        count += 1
    world.give_back()
    assert count > 3
