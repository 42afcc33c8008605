"""What a host might hand to a script that it does not trust, with a secret inside: for test_lua_escape.py."""

import dataclasses
import enum
import functools
import sys
import types
from collections import namedtuple

SECRET = "hunter2"


def helper(default=SECRET, *, keyword=SECRET):
    """A function like any that a host hands to its scripts."""
    return default, keyword


class Thing:
    """One of a host's objects."""

    public = 1
    _private = SECRET
    __slots__ = ("__dict__", "__weakref__", "_slot")

    def __init__(self):
        self._slot = SECRET

    def method(self):
        return self._private

    def fail_below(self):
        return Holder().lookup()

    @property
    def shown(self):
        return self._private

    @functools.cached_property
    def cached(self):
        return self._private

    @staticmethod
    def static():
        return SECRET


class Holder:
    def __init__(self):
        self._db = types.SimpleNamespace(password=SECRET)

    def lookup(self):
        return self._db.absent


class Label(str):
    """A subclass of str, as markup and paths are."""


class Color(str, enum.Enum):
    RED = "red"

    def shade(self):
        return self.value


@dataclasses.dataclass
class Point:
    x: int = 0


Pair = namedtuple("Pair", "left right")


@functools.lru_cache
def cached(x):
    return x


@functools.singledispatch
def dispatched(x):
    return x


def wrapped():
    @functools.wraps(helper)
    def inner():
        return helper()

    return inner


def closure():
    secret = SECRET
    return lambda: secret


def generator():
    secret = SECRET
    yield secret
    yield from iter([sys._getframe()])


def outer_generator():
    yield from generator()


def started(made):
    next(made)
    return made


async def coroutine():
    return SECRET


async def async_generator():
    yield SECRET


def unawaited():
    made = coroutine()
    made.close()
    return made


def traceback():
    try:
        Thing().fail_below()
    except AttributeError as error:
        return error.__traceback__
    return None


def frame():
    secret = SECRET
    return sys._getframe() if secret else None


def fails():
    """An AttributeError from deep inside, with the object that CPython 3.10 and later put into it."""
    try:
        return Thing().fail_below()
    except AttributeError as error:
        error.obj = Holder()._db
        raise


def has_limit_9(made):
    return getattr(made, "limit", 1) == 9


def fresh_class(name="Account"):
    return type(name, (), {"limit": 1, "_limit": 1, "draw": lambda self: self.limit})


def fresh_module():
    module = types.ModuleType("settings")
    module.limit, module.helper, module.__all__ = 1, helper, ["limit"]
    return module


class Compiled:
    """Like a function of Cython's, which has a type of its own."""

    __code__ = helper.__code__
    func_globals = {"SECRET": SECRET}
    func_defaults = (SECRET,)

    def __call__(self):
        return SECRET
