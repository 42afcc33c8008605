"""What the lines of either_language.py call, in Python; either_helpers.lua has the same names.

Responsible for Python's ways to call, to step through, to fail and to hold a function, and for what a program notes.
What has no counterpart there is called from both languages. Must not know how a program is drawn.
"""

import contextlib
import functools
import gc
import re
import threading
import types
from itertools import islice

import numpy as np

import moonferry as mf

FUEL = 150  # calls of functions
RUNS = 3


class Fault(Exception):
    pass


ERRORS = [ValueError, KeyError, RuntimeError, Fault, ArithmeticError, OSError]


def number(x):
    """What a value counts, whichever language it comes from: 0 if it is none."""
    return x % 997 if isinstance(x, (int, float)) and not isinstance(x, bool) else 0


def shown(a):
    if isinstance(a, (int, float)) and not isinstance(a, bool):
        return "n"
    return a if isinstance(a, str) and len(a) < 12 else "o"


def is_lua(value):
    return type(value).__name__.startswith("Lua")


def iterator(it):
    """A coroutine of Lua's that has not begun is a function that begins it."""
    return it if hasattr(it, "send") else it()


class Mapped:
    """Its items and its order are those of a function."""

    def __init__(self, f):
        self.f = f

    def __getitem__(self, x):
        return number(self.f(x))

    def __setitem__(self, key, x):
        self.f(x)

    def __lt__(self, other):
        return number(self.f(1)) % 2 == 0


class Mourned:
    def __init__(self, died):
        self.died = died

    def __del__(self):
        self.died()


class Helpers:
    """One run's: what it notes, and how many calls are left to it. Each public method is a line's to call."""

    def __init__(self, host):
        self.notes, self.host, self.fuel = [], host, FUEL

    def names(self):
        """As the lines have them."""
        methods = {name: getattr(self, name) for name in dir(type(self)) if not name.startswith("_")}
        return {**methods, "nothing": None, "yes": True, "no": False}

    def note(self, *what):
        self.notes.append(tuple(int(x) if isinstance(x, float) else x for x in what))

    def may_go_on(self):
        self.fuel -= 1
        return self.fuel > 0

    def add(self, a, b):
        return (number(a) + number(b)) % 997

    def number(self, x):
        return number(x)

    def text(self, a, b):
        return shown(a) + shown(b)

    def pair(self, a, b):
        """A list of Python's in both: one of Lua's is another kind of container."""
        return [number(a), number(b)]

    def item(self, values, at):
        return values[at + is_lua(values)]

    def put(self, values, at, x):
        values[at + is_lua(values)] = number(x)

    def fail(self, a, k, n):
        if number(a) % 5 == k:
            raise ERRORS[n % len(ERRORS)](f"T{n}!")

    def collect(self, k):
        gc.collect(k)

    def read(self, t, at):
        return t[at]

    def write(self, t, at, x):
        t[at] = number(x)

    def seen(self, t, k):
        """Another tensor of the same memory, which may come back from another library."""
        return t[::-1] if k == 0 else t.reshape((2, 2)).reshape((4,)) if k == 1 else mf.asarray(np.asarray(t))

    def called(self, f, x):
        return f(x)

    def mourned(self, k):
        Mourned(self.died)
        return k

    def died(self):
        """A finalizer's call, wherever it comes; it calls Lua itself."""
        self.host.eval("1 + 1")

    def namespace(self):
        return types.SimpleNamespace()

    def attribute(self, x):
        """One that is there, and one that is not."""
        table = self.host.eval("setmetatable({}, {})")
        table.x = number(x)
        return table.x if getattr(table, "missing", None) is None else None

    def tag(self, e):
        """An error's mark, whichever language it comes from."""
        found = re.search(r"T\d+!", e if isinstance(e, str) else self.host.tostring(e) if is_lua(e) else str(e))
        if not found:
            raise SystemError(f"no line of the program raises this: {type(e)} {e!r}")
        return found[0]

    def is_end(self, e):
        return isinstance(e, GeneratorExit)

    def guarded(self, f, *rest):
        try:
            return f(*rest)
        except Exception as e:
            return self.tag(e)

    def bound(self, f, _, *rest):
        return lambda x: f(x, *rest)

    def each(self, f, n, _, *rest):
        for i in range(1, n + 1):
            yield number(f(i, *rest))

    def each_guarded(self, f, n, _, *rest):
        for i in range(1, n + 1):
            try:
                yield number(f(i, *rest))
            except Exception as e:
                self.note("caught", self.tag(e))

    def each_sent(self, f, n, _, *rest):
        x = 0
        for _ in range(n):
            x = yield number(f(x, *rest))
            self.note("sent", number(x))

    def stepped(self, it, most):
        """The sum of what it yields, of so many at most."""
        total = 0
        for x in islice(iterator(it), most):
            total = (total * 3 + number(x)) % 997
        return total

    def _resumed(self, it, resume, most):
        """The sum of what it yields where it is resumed so, and what comes out; then it is closed."""
        total = 0
        try:
            total = number(next(it))
            for i in range(most):
                total = (total * 3 + number(resume(i))) % 997
        except StopIteration:
            self.note("stop")
        except Exception as e:
            self.note("out", self.tag(e))
        it.close()
        return total

    def thrown_into(self, it, most):
        it = iterator(it)
        return self._resumed(it, lambda _: it.throw(ValueError("T8!")), most)

    def sent_into(self, it, most):
        it = iterator(it)
        return self._resumed(it, it.send, most)

    def in_a_thread(self, f, *rest):
        results = []
        thread = threading.Thread(target=lambda: results.append(self.guarded(f, *rest)))
        thread.start()
        thread.join()
        return results[0]

    def in_a_coroutine(self, f, *rest):
        return next(f(*each) for each in [rest])

    def sorted_by(self, f, *rest):
        g = self.bound(f, *rest)
        sorted([3, 2, 1], key=lambda x: number(g(x)))
        return 1

    def replaced_by(self, f, *rest):
        g = self.bound(f, *rest)
        return re.sub("x", lambda _: str(int(number(g(1)))), "axbx")

    def indexed(self, f, *rest):
        return Mapped(self.bound(f, *rest))[2]

    def assigned(self, f, *rest):
        Mapped(self.bound(f, *rest))["x"] = 3
        return 3

    def compared(self, f, *rest):
        one = Mapped(self.bound(f, *rest))
        return one < Mapped(one)

    def entered(self, f, *rest):
        """Its way out is a call, too."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.guarded, f, *rest)
            return f(*rest)

    def deep(self, n):
        """A chain of calls from language to language."""
        return 0 if n == 0 else 1 + self.lua["deep"](n - 1)

    def through_python(self, f):
        return f()

    def keeps_its_error(self, k):
        """Whether the error that comes out of many calls is the one that was raised."""
        mark, through_lua = Fault("T9!"), self.lua["through_lua"]

        def bad():
            raise mark

        way = bad if k == 0 else functools.partial(self.through_python, lambda: through_lua(bad))
        try:
            through_lua(way)
        except Fault as e:
            return e is mark


def begin(helpers, first):
    """Calls the first function a few times, with what the program works on, which is noted at the end. Does not come to
    its end where a call has kept the lock of the Lua state."""
    d, t = [5, 6], mf.zeros((4,), dtype="float64")
    for a in range(RUNS):
        helpers.fuel = FUEL
        result = helpers.guarded(first, a, 7, lambda x: x, d, t)
        helpers.note("end", shown(result), number(result))
        other = threading.Thread(target=helpers.host.eval, args=("1 + 1",))
        other.start()
        other.join()
    helpers.note("list", *d)
    helpers.note("tensor", *t.tolist())
