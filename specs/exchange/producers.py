"""Producers of other times and other tastes, by name: what Moonferry is given, and what must come of it.

Python (test_old_producers.py) and Lua (specs/lua/python_producer_spec.lua) take the same ones. Each hands out the
float32 array 0 to 5 of shape (2, 3) by a struct made by hand, whose deleter counts.
"""

import ctypes
from collections.abc import Callable
from typing import NamedTuple, Optional

import numpy as np

import dlpack_abi as abi


class Kind(NamedTuple):
    """`make` gives the producer and its struct; `error` is what the refusal says, None where it is taken."""

    make: Callable
    error: Optional[str] = None
    deletes: int = 1


def struct(versioned=True, **more):
    return abi.Producer(versioned=versioned, values=(ctypes.c_float * 8)(*range(6)), **more)


def producer(versioned=True, device=(1, 0), method=None, **more):
    """A producer whose __dlpack__ is `method`, a function of the struct and the keywords."""

    def make():
        made = struct(versioned, **more)

        class Odd:
            def __dlpack__(self, **keywords):
                return made.capsule() if method is None else method(made, **keywords)

            def __dlpack_device__(self):
                if isinstance(device, type):
                    raise device("no device today")
                return device

        return Odd(), made

    return make


def without_a_device():
    made = struct()

    class Odd:
        def __dlpack__(self, **keywords):
            return made.capsule()

    return Odd(), made


def with_signature(method, versioned):
    def make():
        made = struct(versioned)
        members = {"made": made, "__dlpack__": method, "__dlpack_device__": lambda self: (1, 0)}
        return type("Odd", (), members)(), made

    return make


def stream_only(self, stream=None):
    return self.made.capsule()


def max_version_only(self, *, stream=None, max_version=None):
    return self.made.capsule()


def no_keywords(self):
    return self.made.capsule()


def draft(self, stream=None, version=None):
    assert version is None, version
    return self.made.capsule()


def with_draft_info():
    source, made = with_signature(draft, False)()
    type(source).__dlpack_info__ = lambda self: {"max_version": 60, "version": 60}
    return source, made


def no_deleter(versioned):
    def make():
        made = struct(versioned)
        made.struct.deleter = None
        return producer(method=lambda *_, **__: made.capsule())()[0], made

    return make


def null_strides():
    made = struct(False, strides=None)
    return producer(method=lambda *_, **__: made.capsule())()[0], made


def byte_offset():
    made = struct()
    made.dl.data, made.dl.byte_offset = made.dl.data - 4096, 4096
    return producer(method=lambda *_, **__: made.capsule())()[0], made


def another_major():
    made = struct()
    made.struct.version.major = 2
    return producer(method=lambda *_, **__: made.capsule())()[0], made


def capsule_of(versioned):
    def make():
        made = struct(versioned)
        return made.capsule(), made

    return make


def raising(error):
    def method(made, **_):
        raise error("not today")

    return Kind(producer(method=method), "not today", 0)


def giving(value, error="capsule"):
    return Kind(producer(method=lambda *_, **__: value), error, 0)


def consumed(made, **_):
    capsule = made.capsule()
    abi.consume(capsule)
    return capsule


class Subclass(np.ndarray):
    def __dlpack__(self, **more):
        self.asked = True
        return super().__dlpack__(**more)


def subclass():
    return np.arange(6, dtype="float32").reshape(2, 3).view(Subclass), None


class Own(BaseException):
    pass


KINDS = {
    "a capsule, legacy": Kind(capsule_of(False)),
    "a capsule, versioned": Kind(capsule_of(True)),
    "no __dlpack_device__": Kind(without_a_device),
    "legacy struct": Kind(producer(False)),
    "legacy struct, stream alone": Kind(with_signature(stream_only, False)),
    "no copy, no dl_device": Kind(with_signature(max_version_only, True)),
    "no keywords, legacy": Kind(with_signature(no_keywords, False)),
    "no keywords, versioned": Kind(with_signature(no_keywords, True)),
    "the draft's version and __dlpack_info__": Kind(with_draft_info),
    "no deleter, legacy": Kind(no_deleter(False), deletes=0),
    "no deleter, versioned": Kind(no_deleter(True), deletes=0),
    "NULL strides": Kind(null_strides),
    "a byte offset": Kind(byte_offset),
    "another major version": Kind(another_major, "version"),
    "a subclass": Kind(subclass),
    "says CUDA": Kind(producer(device=(2, 0))),
    "says ROCm": Kind(producer(device=(10, 1))),
    "says pinned": Kind(producer(device=(3, 0))),
    "says Metal": Kind(producer(device=(8, 0))),
    "says a device of no standard": Kind(producer(device=(99, 7))),
    "says another CPU": Kind(producer(device=(1, 3))),
    "a device that is None": Kind(producer(device=None)),
    "a device that is text": Kind(producer(device="cpu")),
    "a device of three": Kind(producer(device=(1, 2, 3))),
    "a device too large": Kind(producer(device=(2**40, 2**70))),
    "a device that raises": Kind(producer(device=RuntimeError), "no device today", 0),
    "raises BufferError": raising(BufferError),
    "raises TypeError": raising(TypeError),
    "raises RuntimeError": raising(RuntimeError),
    "raises StopIteration": raising(StopIteration),
    "raises MemoryError": raising(MemoryError),
    "raises KeyboardInterrupt": raising(KeyboardInterrupt),
    "raises an exception of its own": raising(Own),
    "gives None": giving(None),
    "gives a number": giving(3),
    "gives text": giving("dltensor"),
    "gives a class": giving(abi.Producer),
    "gives a tuple": giving((1, 0)),
    "gives an array": giving(np.zeros(3)),
    "gives a capsule of another name": Kind(producer(method=lambda made, **_: made.capsule(b"dl")), "dl", 0),
    "gives a used capsule": Kind(producer(method=consumed), "used_dltensor", 0),
    "__dlpack__ is a number": Kind(lambda: (type("Odd", (), {"__dlpack__": 3})(), struct()), "callable", 0),
    "__dlpack__ is None": Kind(lambda: (type("Odd", (), {"__dlpack__": None})(), struct()), "callable", 0),
    "nothing at all": Kind(lambda: (object(), struct()), "__dlpack__", 0),
}
