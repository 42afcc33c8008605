"""What Lua shares with OpenGL and with other APIs is given back where Lua has no memory: no buffer or texture stays
registered or mapped, and a file descriptor is the library's or the caller's, never both's.

The state's limit is at the first byte, then a little further each time, until the function succeeds.
"""

import os
import struct
import sys
from pathlib import Path

import pytest

import moonferry as mf
from drawn import FEWER, one_in
from limit import collect, struck, within

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sim"))
opengl = pytest.importorskip("opengl", reason="needs EGL (libegl1)")

N = PAGE = 4096
RGBA8, RGBA, UNSIGNED_BYTE = 0x8058, 0x1908, 0x1401

PROGRAM = """
local device, buffer, texture = ...
jit.off()
local ffi, mf, gl = require "ffi", require "moonferry", require "moonferry.gl"
local external, share = require "moonferry.external", require "moonferry.gl_share"
local context = assert(gl.open "egl")
local options = { device = device, route = "%s" }
local reading, writing = { device = device, use = "read" }, { device = device, use = "discard" }
local shared, shared_texture = assert(context:share(buffer, options)), assert(context:share_texture(texture, options))
local stream, t = mf.stream(device), mf.zeros({ 8, 8, 4 }, "uint8", { device = device })
local shape, pair, open = { 4096 }, { 2048 }, { shared = false, semaphore = false, tensor = false }
local import, memory = { device = device }, { device = device, nbytes = 4096 }
local fd, has_got
local host = mf.zeros({ 8, 8, 4 }, "uint8")
local routes = { route = options.route }
local reader = assert(context:reader(8, 8, 'rgba8', routes))
local function nothing() end
local function view(t) return t:view(1) end
local function fill(t) t:fill(3) end
local function make() %s end
local function give_back()
  for name, made in pairs(open) do
    if made then
      made:close()
      open[name] = false
    end
  end
  share.sweep(context)
end
local function finish()
  give_back()
  reader:close()
  shared:close()
  shared_texture:close()
  context:finish()
  stream:close()
  t:close()
end
local function give(given) fd, has_got = given, false end
local function at_depth(n)
  if n == 0 then make() else at_depth(n - 1) end
  return nil
end
return at_depth, give_back, finish, give, function() return has_got end
"""

GL = {
  "a buffer that is shared": "open.shared = context:share(buffer, reading)",
  "a buffer that is shared and closed": "open.shared = context:share(buffer, writing) open.shared:close()",
  "a buffer that is shared and dropped": "context:share(buffer, reading)",
  "a texture that is shared and dropped": "context:share_texture(texture, writing)",
  "a texture that is shared": "open.shared = context:share_texture(texture, reading)",
  "a texture that is shared and closed": "open.shared = context:share_texture(texture, writing) open.shared:close()",
  "a mapped buffer": "shared:map(nil, shape, 'uint8', nothing)",
  "a mapped buffer on a stream": "shared:map(stream, shape, 'uint8', fill)",
  "a mapped buffer with a view": "shared:map(nil, pair, 'uint16', view)",
  "a mapped buffer in a scope": "mf.scope(function() shared:map(nil, shape, 'uint8', fill) end)",
  "an upload": "shared_texture:upload(t)",
  "an upload on a stream": "shared_texture:upload(t, stream)",
  "a download": "shared_texture:download(t)",
  "a picture": "context:upload(texture, host, 'rgba8')",
  "a picture upside down": "context:upload(texture, host:view({ nil, nil, -1 }), 'rgba8')",
  "a ring": "open.shared = context:ring(pair, 'uint8', routes)",
  "a reader": "open.shared = context:reader(8, 8, 'rgba8', routes)",
  "a picture that is read": "reader:read()",
}  # fmt: skip
# Each says when it has got what it asked for.
FDS = {
    "a semaphore": "open.semaphore = external.semaphore(fd, import) has_got = true",
    "a semaphore that is closed": "local s = external.semaphore(fd, import) has_got = true s:close()",
    "a semaphore that is used": "local s = external.semaphore(fd, import) has_got = true s:signal(stream, 1)",
    "memory": "open.tensor = external.tensor(fd, shape, 'uint8', memory) has_got = true",
    "memory that is closed": "local t = external.tensor(fd, shape, 'uint8', memory) has_got = true t:close()",
    "memory in a scope": "mf.scope(function() external.tensor(fd, shape, 'uint8', memory) has_got = true end)",
}


class Counts:
    """How much of each kind OpenGL's and other APIs' partner, the driver, has now."""

    def __init__(self, gpu):
        self.gpu = gpu
        self.begin = "cu" if gpu.kind == "cuda" else "hip"

    def __call__(self):
        def calls(*names):
            return self.gpu.calls(*(self.begin + name for name in names))

        return {
            "registered": calls("GraphicsGLRegisterBuffer", "GraphicsGLRegisterImage")
            - calls("GraphicsUnregisterResource"),
            "mapped": calls("GraphicsMapResources") - calls("GraphicsUnmapResources"),
            "semaphores": calls("ImportExternalSemaphore") - calls("DestroyExternalSemaphore"),
            "memory": calls("ImportExternalMemory") - calls("DestroyExternalMemory"),
        }


@pytest.fixture(scope="module", autouse=True)
def egl():
    opengl.open_context()


@pytest.fixture
def counts(gpu):
    if not gpu.simulated:
        pytest.skip("only a simulator counts the calls of its driver")
    yield Counts(gpu)
    opengl.set_state()


def texture_of_nothing():
    return opengl.texture_of(RGBA8, 8, 8, RGBA, UNSIGNED_BYTE, bytes(256))


def opened(device, maker, route="mapped"):
    buffer = opengl.buffer_of(bytes(N))
    texture = texture_of_nothing()
    lua = mf.Lua(max_memory=0)
    made = lua.execute(PROGRAM % (route, maker), str(device), buffer, texture)
    for _ in range(3):
        lua.gccollect()
    return lua, *made


def tried(lua, more, make, depth):
    """As `within`, and there is memory again."""
    done = within(lua, more, make, depth)
    collect(lua)
    lua.set_max_memory(0)
    return done


def collected(lua, give_back):
    give_back()
    for _ in range(2):
        lua.gccollect()
    give_back()  # what is dropped is closed by a later call


DEPTHS = pytest.mark.parametrize("depth", [0, *one_in(20, range(1, 40))])


@DEPTHS
@pytest.mark.parametrize("route", ["mapped", "copied"])
@pytest.mark.parametrize("name", GL)
def test_a_limit_at_every_place_leaves_opengl_what_is_its_own(counts, device, name, route, depth):
    lua, make, give_back, finish, _, _ = opened(device, GL[name], route)
    make(0)
    collected(lua, give_back)
    opengl.set_state(opengl.buffer_of(bytes(N)), texture_of_nothing())
    before, ledger, state, more, done = counts(), mf.ledger(), opengl.state(), 0, False
    while not done:
        done = tried(lua, more, make, depth)
        collected(lua, give_back)
        assert (counts(), mf.ledger(), opengl.state()) == (before, ledger, state), more
        more += 8 * FEWER
    assert more > 24
    finish()


@pytest.mark.parametrize("name", [name for name in GL if "closed" in name])
def test_an_error_of_a_debug_hook_leaves_nothing_registered(counts, device, name):
    lua, make, give_back, finish, _, _ = opened(device, GL[name])
    make(0)
    collected(lua, give_back)
    before = counts()
    for at in struck(lua, make, last=200):  # those of close among them
        collected(lua, give_back)
        assert counts() == before, at
    finish()


@DEPTHS
@pytest.mark.parametrize("name", FDS)
def test_a_limit_at_every_place_leaves_a_descriptor_to_one(counts, device, name, depth):
    lua, make, give_back, finish, give, has_got = opened(device, FDS[name])
    mf.synchronize(device)
    before, ledger, more, done = counts(), mf.ledger(), 0, False
    while not done:
        fd = descriptor(counts.gpu, name)
        give(fd)
        done = tried(lua, more, make, depth)
        is_open = os.path.exists(f"/proc/self/fd/{fd}")
        assert is_open != has_got(), more  # whose it is
        if is_open:
            os.close(fd)
        collected(lua, give_back)
        mf.synchronize(device)
        assert (counts(), mf.ledger()) == (before, ledger), more
        more += 8 * FEWER
    assert more > 24
    finish()


def descriptor(gpu, name):
    if "semaphore" in name:
        return gpu.lib.sim_semaphore_create(0, 0)
    fd = os.memfd_create("memory")
    os.write(fd, struct.pack("QQ", N, PAGE))  # as Mesa's drivers for the CPU begin such a file
    os.truncate(fd, PAGE + N)
    return fd
