"""OpenGL memory as tensors: rings of slots in buffers that stay mapped, pictures up to textures and back without a
stall, and buffers that a GPU library works on. The names are those of Lua's moonferry.gl.

    context = moonferry.gl.open()
    vertices = context.ring((20000, 4), "float32", target="vertex")
    arrays = vertices.into(numpy.from_dlpack)
    _, i = vertices.begin()              # waits until this slot has been drawn
    arrays[i][:] = positions
    buffer, offset = vertices.submit()   # for glBindBuffer and glVertexAttribPointer
    draw(buffer, offset)
    vertices.done()                      # a fence behind the draw

Invariant: what is bound, and the pixel store, are as they were when a function returns; all of this is for the thread
on which the context is current. A mapped buffer is unmapped only when no tensor refers to it. It must not know what is
drawn.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import operator
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import moonferry
from moonferry import _core, _hint
from moonferry._gl_calls import (
    C,
    Error,
    Registration,
    check_route,
    create_gl,
    describe,
    find_library,
    load_functions,
    releases_run,
    shared_device,
    stream_number,
    sweep,
    unwrap,
)
from moonferry._gl_picture import FORMATS as formats
from moonferry._gl_picture import Reader, upload
from moonferry._gl_texture import SharedTexture

if TYPE_CHECKING:
    from moonferry._core import _DTypeLike

__all__ = ["Context", "Reader", "Ring", "Shared", "SharedTexture", "formats", "open"]

# Numbers of OpenGL 4.6, and of GL_AMD_pinned_memory: the target, and the name of its binding.
_TARGETS = {
    "vertex": (0x8892, 0x8894),
    "index": (0x8893, 0x8895),
    "unpack": (0x88EC, 0x88EF),
    "pack": (0x88EB, 0x88ED),
    "storage": (0x90D2, 0x90D3),
    "uniform": (0x8A11, 0x8A28),
}
_MAP_READ, _MAP_WRITE, _PERSISTENT, _COHERENT = 0x1, 0x2, 0x40, 0x80
_PINNED, _COPY_READ = 0x9160, 0x8F36
_STREAM_DRAW, _STREAM_READ = 0x88E0, 0x88E1
_MAJOR, _MINOR, _NUM_EXTENSIONS, _EXTENSIONS = 0x821B, 0x821C, 0x821D, 0x1F03
_PAGE, _RING_MAX = 4096, 64


def open(library: str | tuple[Any, Any] | None = None) -> Context:
    """The context that is current on this thread: of SDL, GLFW or EGL ("sdl", "glfw", "egl"; the first that has one),
    or of a pair of ctypes functions: one that finds OpenGL's functions by name, as bytes, and one without arguments
    that returns the current context.

    Raises RuntimeError where no context is current, ValueError for another library.
    """
    getproc, current = library if isinstance(library, tuple) else find_library(library)
    return Context(getproc, current)


class Context:
    """A context of OpenGL's. buffer_storage, pinned_memory: why buffers cannot stay mapped, and why memory of the
    program's cannot be a buffer; None where they can."""

    def __init__(self, getproc: Any, current: Any) -> None:
        self.call = load_functions(getproc)
        self._gl, self._keep = ctypes.c_void_p(), (getproc, current)
        self._dropped: list[tuple[str, ctypes.c_void_p]] = []
        self._release = weakref.finalize(self, C.mf_gl_release, self._gl)
        self._release.atexit = False
        create_gl(getproc, current, self._gl)
        self._ask_routes()

    def _integer(self, name: int) -> int:
        out = ctypes.c_int32()
        self.call["GetIntegerv"](name, ctypes.byref(out))
        return out.value

    def _extensions(self) -> set[str]:
        if "GetStringi" not in self.call:
            return set()
        return {self.call["GetStringi"](_EXTENSIONS, i).decode() for i in range(self._integer(_NUM_EXTENSIONS))}

    def _ask_routes(self) -> None:
        version, known = (self._integer(_MAJOR), self._integer(_MINOR)), self._extensions()
        self.buffer_storage: str | None = None
        if "BufferStorage" not in self.call or not (version >= (4, 4) or "GL_ARB_buffer_storage" in known):
            self.buffer_storage = f"OpenGL {version[0]}.{version[1]} has no GL_ARB_buffer_storage"
        has_pinned = "GL_AMD_pinned_memory" in known
        self.pinned_memory: str | None = None if has_pinned else "there is no GL_AMD_pinned_memory"

    @contextlib.contextmanager
    def _bound(self, target: int, binding: int, buffer: int) -> Iterator[None]:
        before = self._integer(binding)
        try:
            self.call["BindBuffer"](target, buffer)
            yield
        finally:
            self.call["BindBuffer"](target, before)

    def fence_tensor(self, t: moonferry.Tensor, write: bool = False) -> None:
        """The memory of t is in use by what was drawn until now, which reads it, or writes it: uses that must wait for
        that do. Pointers that were taken before are not held up. Raises ValueError for a GPU's memory."""
        _core._tensor_fence(t, self._fence(), write)

    def ring(
        self,
        shape: Any,
        dtype: _DTypeLike = "float32",
        *,
        slots: int = 3,
        target: str = "vertex",
        route: str | None = None,
    ) -> Ring:
        """A ring whose slots lie in one buffer that stays mapped, so that what is written is in it already; where
        buffers cannot stay mapped, host memory that submit copies. target: "vertex", "index", "storage", "uniform",
        "unpack" or "pack". route: "mapped" or "copied"; the best that there is. Raises RuntimeError where "mapped" is
        asked for and is not there."""
        return Ring(self, shape, dtype, slots, target, route)

    def upload(self, texture: int, t: moonferry.Tensor, format: str, x: int = 0, y: int = 0) -> None:
        """The elements of t, height x width x channels, to the image of a 2D texture that has storage, from pixel x, y
        on. Rows may lie any number of elements apart, in either direction: row 0 is OpenGL's lowest. Returns when
        OpenGL has taken them. format: a name of gl.formats. Raises ValueError for another dtype or shape, pixels that
        are not compact, and a GPU's memory."""
        upload(self, texture, t, format, x, y)

    def reader(
        self, width: int, height: int, format: str = "rgba8", *, slots: int = 3, route: str | None = None
    ) -> Reader:
        """Reads pictures back without a stall: read queues, latest gives the newest picture that has come."""
        return Reader(self, width, height, format, slots, route)

    @contextlib.contextmanager
    def pinned(self, t: moonferry.Tensor) -> Iterator[int]:
        """The name of a buffer over the memory of t itself (GL_AMD_pinned_memory), for the length of a with block: what
        is written to t is in the buffer. After a draw from it, fence_tensor(t) makes those who write wait. Raises
        RuntimeError where there is no such extension, ValueError for a tensor that is not compact and on the cpu."""
        if self.pinned_memory:
            raise RuntimeError(self.pinned_memory)
        if not t.is_contiguous or str(t.device) != "cpu":
            raise ValueError(f"t has strides {t.strides} on {t.device}; a compact tensor on the cpu expected")
        name, t = ctypes.c_uint32(), t[...]  # which nobody else can close
        delete, at = self.call["DeleteBuffers"], ctypes.byref(name)
        try:
            self.call["GenBuffers"](1, at)
            self._pin(name, t)
            yield name.value
        finally:
            try:
                self.call["Finish"]()
            finally:
                delete(1, at)

    def _pin(self, name: ctypes.c_uint32, t: moonferry.Tensor) -> None:
        while self.call["GetError"]():
            pass
        try:
            self.call["BindBuffer"](_PINNED, name.value)
            self.call["BufferData"](_PINNED, t.nbytes, t.data_ptr, _STREAM_DRAW)
        finally:
            self.call["BindBuffer"](_PINNED, 0)
        failure = self.call["GetError"]()
        if failure:
            raise RuntimeError(f"glBufferData answered {failure:#x}")

    def share(self, buffer: int, device: str, *, use: str | None = None, route: str | None = None) -> Shared:
        """Shares a buffer with a GPU ("cuda:0", "rocm:0"). use: "read", or "discard" where it writes all of the buffer;
        else both. Where the driver cannot register it, bytes are copied through the host, and `reason` says why. Close
        it before the buffer is deleted. Raises ValueError, and RuntimeError for no such device."""
        return Shared(self, buffer, device, use, route)

    def share_texture(
        self, texture: int, device: str, *, use: str | None = None, route: str | None = None
    ) -> SharedTexture:
        """Shares a 2D texture with a GPU, whose tensors are then copied to it and from it on a stream. Its storage has
        one, two or four channels of 8, 16 or 32 bits ("r8" to "rgba32f" of gl.formats, and OpenGL's integer formats).
        use: "read" where the GPU only reads it, or "discard" where each upload writes all of it. Where the driver
        cannot register it, pixels are copied through the host, and `reason` says why. Close it before the texture is
        deleted. Raises ValueError, and RuntimeError for no such device."""
        return SharedTexture(self, texture, device, use, route)

    def finish(self) -> None:
        """Before the context is destroyed: waits for what was drawn; then no fence of it keeps anybody waiting. Closes
        what was shared and dropped."""
        sweep(self._dropped)
        if self._release.alive:
            self.call["Finish"]()
            C.mf_gl_end(self._gl)
            releases_run()
            self._release()

    def _fence(self) -> Any:
        """A fence behind what was drawn until now, in a capsule that drops it unless somebody takes it."""
        if not self._release.alive:
            raise ValueError("the context has ended (finish)")
        return _core._gl_fence(self._gl.value or 0)


class Ring:
    """Slots in one buffer of OpenGL's. slots: their tensors; buffer: OpenGL's name of it; route: "mapped" or "copied";
    reason: why a better route was not taken, or None; handle: for a worker's moonferry.Ring.from_handle."""

    def __init__(
        self, context: Context, shape: Any, dtype: _DTypeLike, slots: int, target: str, route: str | None
    ) -> None:
        if target not in _TARGETS:
            raise ValueError(f"target is {target!r}; one of {', '.join(map(repr, _TARGETS))} expected")
        check_route(route)
        if not hasattr(slots, "__index__"):
            raise TypeError(f"slots must be an integer, not {slots!r}")
        count = operator.index(slots)
        if not 1 <= count <= _RING_MAX:
            raise ValueError(f"slots is {slots!r}; 1 to {_RING_MAX} expected")
        like = moonferry.empty(shape, dtype)
        self._context, self._target, self._nbytes = context, _TARGETS[target], like.nbytes
        self._slot_nbytes = max(math.ceil(like.nbytes / _PAGE), 1) * _PAGE
        self._at: int | None = None
        self._seen: int | None = None
        self._left: list[moonferry.Tensor] | None = None
        self._name = ctypes.c_uint32()
        self.route = "mapped"
        self.reason: str | None = None if route == "copied" else context.buffer_storage
        try:
            self._make(route, like, count, target == "pack")
        except BaseException:
            self._delete()
            raise

    def _make(self, route: str | None, *args: Any) -> None:
        """By the best route that there is, or by the one that is asked for."""
        if route != "copied" and self.reason is None and self._made_of(self._mapped, *args):
            return
        if route == "mapped":
            raise RuntimeError(self.reason)
        self.route = "copied"
        self._made_of(self._copied, *args)

    def _made_of(self, slots: Callable[..., list[moonferry.Tensor]], *args: Any) -> bool:
        """The ring of those slots, over a buffer of its own that goes again where there are none."""
        self._context.call["GenBuffers"](1, ctypes.byref(self._name))
        if made := slots(*args):
            self.ring = moonferry.Ring(made)
            return True
        self._delete()
        return False

    def _delete(self) -> None:
        """Deletes the buffer, if there is one, once."""
        delete, gone = self._context.call["DeleteBuffers"], ctypes.c_uint32(self._name.value)
        if gone.value:
            self._name.value = 0  # no exception comes between this and the call
            delete(1, gone)

    @property
    def buffer(self) -> int:
        return self._name.value

    def _mapped(self, like: moonferry.Tensor, slots: int, reads: bool) -> list[moonferry.Tensor]:
        """None, and there is a reason, where the buffer cannot be mapped."""
        call, flags = self._context.call, (_MAP_READ if reads else 0) | _MAP_WRITE | _PERSISTENT | _COHERENT
        total = self._slot_nbytes * slots
        with self._context._bound(*self._target, self.buffer):
            call["BufferStorage"](self._target[0], total, None, flags)
            pointer = call["MapBufferRange"](self._target[0], 0, total, flags)
        if not pointer:
            self.reason = f"glMapBufferRange failed (error {call['GetError']():#x})"
            return []
        ctypes.memset(pointer, 0, total)
        at = range(pointer, pointer + total, self._slot_nbytes)
        return [_core._wrap_pointer(p, like.shape, None, like.dtype, False, None) for p in at]

    def _copied(self, like: moonferry.Tensor, slots: int, reads: bool) -> list[moonferry.Tensor]:
        with self._context._bound(*self._target, self.buffer):
            use = _STREAM_READ if reads else _STREAM_DRAW
            self._context.call["BufferData"](self._target[0], self._slot_nbytes * slots, None, use)
        return [moonferry.zeros(like.shape, like.dtype) for _ in range(slots)]

    @property
    def slots(self) -> tuple[moonferry.Tensor, ...]:
        return self.ring.slots

    @property
    def handle(self) -> int:
        return self.ring.handle

    def begin(self, timeout: float | None = None) -> tuple[moonferry.Tensor, int]:
        """The slot to write next, and its number; see moonferry.Ring."""
        t, self._at = self.ring.begin(timeout)
        return t, self._at

    def latest(self) -> tuple[moonferry.Tensor, int, bool] | None:
        """The slot that a worker has published last, its number, and whether it is fresh; see moonferry.Ring."""
        found = self.ring.latest()
        self._seen = None if found is None else found[1]
        return found

    def publish(self) -> None:
        """The slot that was begun is the latest from now on; see moonferry.Ring."""
        self.ring.publish()
        self._at = None

    def submit(self, number: int | None = None) -> tuple[int, int]:
        """What was written is OpenGL's to draw: the buffer's name, and the byte at which the slot begins there: of the
        one that was begun, or of the number that latest gave. Raises ValueError for another one."""
        slot = self._at if number is None else number
        if slot is None or (number is not None and number != self._seen):
            raise ValueError(f"slot is {number}; one that was begun, or that latest gave ({self._seen}), expected")
        offset = slot * self._slot_nbytes
        if self.route == "copied":
            with self._context._bound(*self._target, self.buffer):
                data = self.slots[slot].data_ptr
                self._context.call["BufferSubData"](self._target[0], offset, self._nbytes, data)
        return self.buffer, offset

    def _fence(self, take: Callable[..., None], write: bool) -> None:
        if self.route == "copied":
            take(None)
        else:
            take(self._context._fence(), write)

    def done(self, write: bool = False) -> None:
        """After the draw: the slot comes again when OpenGL has drawn it."""
        self._fence(self.ring.done, write)
        self._at = None

    def hold(self, write: bool = False) -> None:
        """After a draw of the slot that latest gave: no worker writes it before OpenGL has drawn it."""
        if self._seen is None:
            raise ValueError("latest gave no slot yet")
        if self.route == "mapped":
            self._fence(self.ring.hold, write)

    def into(self, convert: Any) -> tuple[Any, ...]:
        """What convert makes of each slot, made once; see moonferry.Ring."""
        return self.ring.into(convert)

    def _hold_slots(self) -> list[moonferry.Tensor]:
        """Tensors of ours, whoever has closed the ring's."""
        count = len(self.ring.slots)
        return [_core._tensor_at(C.mf_ring_slot(self.ring.handle, i)) for i in range(count)]

    def _any_in_use(self) -> bool:
        """Whether anybody else has a slot. Each refuses to be used from now on."""
        used = ctypes.c_int32()
        found = False
        for t in self._left or ():
            C.mf_tensor_invalidate(unwrap(t), ctypes.byref(used), None)
            found = found or used.value != 0
        return found

    def close(self) -> bool:
        """Ends the ring and its buffer. False while views of its tensors are alive: their memory refuses to be used
        from then on, but the mapping stays for them; call it again when they are gone. True once the buffer is gone."""
        if not self.buffer:
            return True
        self._context.call["Finish"]()
        if self._left is None:
            self._left = self._hold_slots()
        self.ring.close()
        mapped = self.route == "mapped"
        if mapped and self._any_in_use():
            gc.collect()
            if self._any_in_use():
                return False
        self._left = []
        if mapped:
            with self._context._bound(*self._target, self.buffer):
                self._context.call["UnmapBuffer"](self._target[0])
        self._delete()
        return True


class Shared:
    """A buffer of OpenGL's that a GPU works on. route: "mapped": the GPU has the buffer itself, or "copied": its bytes
    go through the host; reason: why; in_use: whether something had a tensor of the last map when that was over, which
    must not be used."""

    def __init__(self, context: Context, buffer: int, device: str, use: str | None, route: str | None) -> None:
        self._which = shared_device(buffer, "buffer", device, use, route)
        self._context, self._buffer, self._use, self._device = context, buffer, use, device
        self._registered, self._mapping = Registration("buffer", context._dropped), False
        self.in_use, self.reason = False, None
        if route != "copied":
            sweep(context._dropped)
            self.reason = self._registered.open(self._which, buffer, use)
            if self.reason is not None and route == "mapped":
                raise RuntimeError(self.reason)
        self.route = "mapped" if self._registered else "copied"

    @contextlib.contextmanager
    def map(
        self, stream: moonferry.Stream | None, shape: Any, dtype: _DTypeLike = "float32"
    ) -> Iterator[moonferry.Tensor]:
        """The buffer as a tensor of the GPU in a with block, ready on that stream (None: the current one), compact and
        from the buffer's first byte on. OpenGL must not use the buffer meanwhile; afterwards it is OpenGL's, behind all
        that used the tensor, which is invalid then, and says so. The host waits for nothing where the route is
        "mapped". Raises ValueError while it is mapped, for a tensor that does not fit, and once it is closed."""
        if self._mapping or self.route == "closed":
            raise ValueError("the buffer is mapped already" if self._mapping else "the shared buffer is closed")
        sweep(self._context._dropped)
        self._mapping = True
        try:
            way = self._by_driver if self.route == "mapped" else self._by_host
            with way(stream, shape, dtype) as t:
                yield t
        finally:
            self._mapping = False

    @contextlib.contextmanager
    def _by_driver(self, stream: Any, shape: Any, dtype: _DTypeLike) -> Iterator[moonferry.Tensor]:
        like, keep = describe(shape, dtype)
        out, error, in_use = ctypes.c_void_p(), Error(), ctypes.c_int32()
        where, handle = (ctypes.byref(out), ctypes.byref(error)), self._registered.handle
        number, ending = stream_number(stream, self._which), (handle, ctypes.byref(in_use), where[1])
        try:
            error.check(C.mf_gl_buffer_map(handle, number, ctypes.byref(like), *where))
            del keep
            yield _core._tensor_at(out.value or 0)
        finally:
            status = C.mf_gl_buffer_unmap(*ending) if out else 0
            self.in_use = in_use.value != 0
            error.check(status)

    def _bytes(self, call: str, t: moonferry.Tensor) -> None:
        functions = self._context.call
        while functions["GetError"]():
            pass
        with self._context._bound(_COPY_READ, _COPY_READ, self._buffer):
            functions[call](_COPY_READ, 0, t.nbytes, t.data_ptr)
        failure = functions["GetError"]()
        if failure:
            raise ValueError(f"gl{call} answered {failure:#x} for {t.nbytes} bytes")

    @contextlib.contextmanager
    def _by_host(self, stream: Any, shape: Any, dtype: _DTypeLike) -> Iterator[moonferry.Tensor]:
        host = moonferry.zeros(shape, dtype)
        if self._use != "discard":
            self._bytes("GetBufferSubData", host)
        t = host.to(moonferry.Device(self._device), stream=stream)
        yield t
        if self._use != "read":
            self._bytes("BufferSubData", t.to("cpu"))

    def close(self) -> None:
        """Gives the buffer back to OpenGL alone. Raises ValueError while it is mapped. RuntimeError says that a capture
        which began in map goes on; call it again when that is over."""
        if self._mapping:
            raise ValueError("the buffer is mapped")
        try:
            self._registered.close()
        finally:
            self.route = "mapped" if self._registered else "closed"


__getattr__ = _hint.lacks(__name__, __all__)
