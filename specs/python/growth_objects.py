"""Objects that the calls of growth.py meet, and texts of Lua's. Must not know: how Python calls moonferry."""

import concurrent.futures
import threading

import dlpack_abi
import moonferry as mf

READ = """local _, e = pcall(...)
local all = { e.type, e.message, e.traceback, e.where, e.class, e.value, e.args, tostring(e) }
return e:is("ValueError"), e:is("nothing"), e:is(e.class), pcall(function() return e.nothing end)"""
LEFT_OPEN = """local py = require "moonferry.python"
coroutine.wrap(function()
  py.scope(function()
    kept = { py.eval "[1]", py.eval "[2]" }
    coroutine.yield()
  end)
end)()"""


def refused(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception:
        return
    raise AssertionError("it was not refused")


class Taker:
    """Not a taker at all."""


# Both delete what they were given; the first says then that it has failed.
Deletes = dlpack_abi.taker("probe_take_refuses_and_deletes")
Gives = dlpack_abi.taker("probe_take_gives_and_deletes")


def given_to_takers(t):
    refused(mf.into, Taker, t)
    refused(mf.into, Deletes, t)
    mf.into(Gives, t)


class Odd:
    """An object of every kind of trouble: its fields, items and numbers are made anew, or fail."""

    def __getattr__(self, name):
        if name in ("fresh", "ratio"):
            return object() if name == "fresh" else id(self) / 3
        raise AttributeError(name)

    def __getitem__(self, key):
        return [key]

    def __len__(self):
        return 3

    def __int__(self):
        return 5

    def __index__(self):
        return 2**70

    def __add__(self, other):
        return [other]

    def __str__(self):
        return f"odd {id(self)}"


class Sizeless:
    @property
    def nbytes(self):
        raise ValueError("unknown")


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("never")


def fresh(base=ValueError):
    """A class that nothing else knows: a reference to it that stays is seen."""
    return type("Fresh", (base,), {})


def raising(error):
    def fails(*_):
        raise error

    return fails


class Manager:
    def __enter__(self):
        return [self]

    def __exit__(self, *error):
        return [] if error[0] is None else [1]


class Always:
    """A producer that fails in words of its own, whatever it is asked with."""

    def __dlpack__(self, **keywords):
        raise TypeError(keywords)


class Named:
    def __str__(self):
        return "".join(["c", "pu"])


class Half:
    def __float__(self):
        return id(self) / 2


class Whole:
    def __index__(self):
        return 2**40 + id(self) % 7


def cycle(make):
    """What is in what it was made of goes by Python's collector alone."""
    items = []
    items.append(make(items))


def closed_tensor():
    with mf.zeros(2) as made:
        return made


THREAD = concurrent.futures.ThreadPoolExecutor(1)


def entered_twice(lua):
    """Another thread is in the state meanwhile, on a stack of its own."""
    lua.eval("function(f) f() end")(lambda: THREAD.submit(lua.eval, "1").result())


def on_a_new_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()
