"""Python code that waits for a thread which calls Lua, in everything that Lua can ask of an object.

For python_door_spec.lua, which gives `ping`, a Lua function, and looks at `count`.
"""

import functools
import threading
import warnings

ping = None
count = 0


def visit(*ignored):
    """Waits for a thread that calls a Lua function; where it cannot, the thread does not come back in time."""
    global count
    got = []
    thread = threading.Thread(target=lambda: got.append(ping()), daemon=True)
    thread.start()
    thread.join(20)
    assert got == [7], "the thread did not get in"
    count += 1


class Like:
    """A key that a dict compares with the text."""

    def __init__(self, text):
        self.text = text

    def __hash__(self):
        return hash(self.text)

    def __eq__(self, other):
        visit()
        return False


class Probe:
    def __getattr__(self, name):
        visit()
        return 9

    def __setattr__(self, name, value):
        visit()

    def __call__(self, *args, **kwargs):
        visit()
        return 5

    def __iter__(self):
        visit()
        return self.steps()

    def steps(self):
        visit()
        yield 1
        yield 2

    def __enter__(self):
        visit()
        return 3

    def __exit__(self, *error):
        visit()
        return self

    def __del__(self):
        visit()

    def keys(self):
        visit()
        return ["a"]

    def items(self):
        visit()
        return [("a", 1)]

    def __getitem__(self, key):
        visit()
        return 4

    def __setitem__(self, key, value):
        visit()

    def __delitem__(self, key):
        visit()


for name, value in {"str": "a probe", "len": 2, "bool": True, "float": 2.5, "int": 3, "neg": 1, "hash": 6}.items():
    setattr(Probe, f"__{name}__", lambda self, value=value: visit() or value)
for name in "add radd sub rsub mul rmul truediv rtruediv mod rmod pow rpow".split():
    setattr(Probe, f"__{name}__", lambda self, other, *more: visit() or 4)
for name in "eq lt le gt ge".split():
    setattr(Probe, f"__{name}__", lambda self, other: visit() or True)


class Tuple(tuple):
    def __iter__(self):
        visit()
        return super().__iter__()


class Kind(type):
    def __instancecheck__(cls, other):
        visit()
        return True

    def __getattribute__(cls, name):
        if name in ("__qualname__", "__name__", "__mro__"):
            visit()
        return super().__getattribute__(name)


class Wrong(Exception, metaclass=Kind):
    def __init__(self, *args):
        visit()
        super().__init__(*args)

    def __str__(self):
        visit()
        return "wrong"


class Weighed:
    @property
    def nbytes(self):
        visit()
        return 100


class Scope:
    @property
    def __dict__(self):
        visit()
        return {}


class Nameless(type):
    def __str__(cls):
        visit()
        return "nameless"


class Unnamed(metaclass=Nameless):
    pass


def chained():
    """An exception with a context that nobody else has."""
    made, context = ValueError(), ValueError()
    context.probe = Probe()
    made.__context__ = context
    return made


def thrown_again():
    """A function that throws an exception with another traceback than it had, which nobody else has."""

    def steps():
        yield

    def begin():
        probe = Probe()  # noqa: F841
        raise ValueError

    generator, made = steps(), None
    next(generator)
    try:
        begin()
    except ValueError as error:
        made = error
    try:
        raise KeyError
    except KeyError as error:
        other = error.__traceback__
    warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12 where more than the exception is given
    return functools.partial(generator.throw, ValueError, made, other)


def handling(call):
    try:
        fail()
    except Wrong:
        call()


def fail():
    raise Wrong("on purpose")


class Last(Probe):
    """Calls what shuts it."""

    def __init__(self, shut):
        self.__dict__["shut"] = shut

    def __call__(self):
        self.shut()


def noisy():
    """An array whose end waits."""
    import numpy

    class Noisy(numpy.ndarray):
        def __del__(self):
            visit()

    return Noisy(4)
