"""The objects that operations work on, and what a case must leave behind: nothing.

Responsible for tensors, arrays, a Lua state and a stream under short names, for foreign objects that say when they are
asked something, and for the ledgers. Must not know events and operations.
"""

import ctypes
import gc
import os
import threading
import weakref
from pathlib import Path

import numpy as np
from strike import point, tell

import moonferry as mf
from moonferry import _arrow

HERE = Path(__file__).resolve().parent
MODES = ("compiled", "interpreted", "interruptible")
# Up to LuaJIT 2.1.0-beta3 a state with a limit of memory is not compiled.
COMPILES_WITH_LIMIT = "-beta" not in mf.Lua(c_modules=True).eval("jit.version")


# It overwrites Lua's memory that is free, to the end of a state.
SUPPORT = str(Path(os.environ.get("MOONFERRY_BUILD", HERE.parent.parent / "build" / "dev")) / "specs/lua_support.so")
ctypes.CDLL(SUPPORT, os.RTLD_LAZY | os.RTLD_NODELETE)


class Index:
    """A number that is asked for."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        point()
        return int(self.value)

    def __float__(self):
        point()
        return float(self.value)

    def __complex__(self):
        point()
        return complex(self.value)

    def __bool__(self):
        point()
        return bool(self.value)

    def __str__(self):
        point()
        return str(self.value)

    def __eq__(self, other):
        point()
        return isinstance(other, Index) and self.value == other.value

    def __hash__(self):
        point()
        return hash(self.value)

    def __lt__(self, other):
        point()
        return self.value < getattr(other, "value", other)

    def __add__(self, other):
        point()
        return self.value + getattr(other, "value", other)

    __radd__ = __mul__ = __rmul__ = __add__


class Items:
    """A sequence, an iterable, a mapping and a manager whose every step is foreign code."""

    def __init__(self, *items):
        self.items_ = list(items)

    def __len__(self):
        point()
        return len(self.items_)

    def __getitem__(self, index):
        point()
        return self.items_[index]

    def __setitem__(self, index, value):
        point()
        self.items_[index] = value

    def __delitem__(self, index):
        point()

    def __contains__(self, item):
        point()
        return item in self.items_

    def __iter__(self):
        point()
        for item in self.items_:
            point()
            yield item

    def __enter__(self):
        point()
        return self.items_[0]

    def __exit__(self, *exc):
        point()
        return False

    def __call__(self, *args, **kwargs):
        point()
        return args[0] if args else None

    @property
    def field(self):
        point()
        return self.items_[0]

    @field.setter
    def field(self, value):
        point()


class Pairs(Items):
    """Of a mapping's sort."""

    def keys(self):
        point()
        return [f"k{i}" for i in range(len(self.items_))]

    def __getitem__(self, key):
        point()
        return self.items_[int(key[1:])]

    def items(self):
        point()
        return [(key, self[key]) for key in self.keys()]


class Noisy(np.ndarray):
    """Memory whose end is seen."""

    def __del__(self):
        point()


def noisy(shape=(2, 3)):
    made = Noisy(shape, "float32")
    made[...] = np.arange(made.size, dtype="float32").reshape(shape)
    return made


class Producer:
    """Speaks DLPack, and is asked."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        point()
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        point()
        return self.array.__dlpack__()


class Interface:
    """Has memory, and says so when it is asked."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        point()
        return self.array.__array_interface__


class Loan:
    """A struct whose deleter calls Python, as that of a library which keeps its objects there does."""

    living = {}

    def __init__(self):
        import dlpack_abi as abi

        self.producer = abi.Producer(values=(ctypes.c_float * 6)(*range(6)))
        self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.delete)
        self.producer.struct.deleter = ctypes.cast(self.deleter, ctypes.c_void_p).value

    def delete(self, struct):
        Loan.living.pop(id(self), None)
        point()

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        capsule = self.producer.capsule()
        Loan.living[id(self)] = self
        return capsule


class Column:
    """An array of Arrow whose release callbacks are Python code."""

    made = []  # their structs may be released after all else is gone

    def __init__(self):
        self.values = noisy((6,))
        self.buffers = (ctypes.c_void_p * 2)(None, self.values.ctypes.data)
        callback = _arrow._RELEASE(self.release)
        self.schema = _arrow._Schema(format=b"f", release=callback)
        self.array = _arrow._Array(length=6, n_buffers=2, release=callback)
        self.array.buffers = ctypes.cast(self.buffers, ctypes.POINTER(ctypes.c_void_p))
        self.released = 0
        Column.made.append(self)

    def release(self, struct):
        self.released += 1
        if self.released == self.given():
            self.values = None
        point()

    def given(self):
        """How many structs were moved out."""
        return (not self.schema.release) + (not self.array.release)

    def __arrow_c_array__(self, requested_schema=None):
        point()
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        structs = ((self.schema, b"arrow_schema"), (self.array, b"arrow_array"))
        return tuple(new(ctypes.addressof(struct), name, None) for struct, name in structs)


class Bench:
    """What an operation may use. `device` is "cpu" or a GPU; `lua` is a state, and `helpers` are functions in it, or
    in the state that hosts Python."""

    states = []  # references without callbacks, which an event could strike

    def __init__(self, mode, device, hosted=None):
        self.mode, self.device = mode, device
        self.host = hosted
        self.lua = self.helpers = self.ops = None
        self.is_limited = mode != "compiled" or COMPILES_WITH_LIMIT
        self.open_state()

    def open_state(self):
        self.is_closed = False
        self.lua = mf.Lua(max_memory=0 if self.is_limited else None, interruptible=self.mode == "interruptible")
        Bench.states.append(weakref.ref(self.lua))
        if self.host is not None:
            self.helpers, self.ops = self.host
            return
        made = self.lua.execute((HERE / "operations.lua").read_text(), point, tell, name="=operations.lua")
        for more in ("python_operations.lua", "engine_operations.lua"):
            self.lua.execute((HERE / more).read_text(), made.shared, name=f"={more}")
        self.helpers, self.ops = made.helpers, made.operations
        self.lua.execute("assert(package.loadlib(..., 'support_overwrites'))(true)", SUPPORT)

    @classmethod
    def only(cls, b):
        """The states of other benches, which were there before the fork, do not count."""
        cls.states.clear()
        if b.lua is not None:
            cls.states.append(weakref.ref(b.lua))

    def open(self):
        """What is made in the process of the case, because a driver does not survive a fork."""
        self.helpers["set"](self.mode, self.device)
        self.a = np.arange(6, dtype="float32").reshape(2, 3)
        self.h = mf.tensor(self.a)
        self.t = self.h.to(self.device, copy=True)
        self.u = mf.zeros((2, 3), "float32", device=self.device)
        self.w = mf.zeros((2, 3), "float32")
        self.one = mf.tensor(2.0, "float32")
        self.s = None if self.device == "cpu" else mf.Stream(self.device)
        if self.device != "cpu":
            mf.synchronize(self.device)
        self.call = self.helpers["same"]
        self.table = self.helpers["table"]()
        self.helpers["open"](self.t, self.u)
        self.kept, self.lists = [], []

    def list(self, *items):
        """A list that an event may empty while it is being read."""
        self.lists.append([*items])
        return self.lists[-1]

    def mend(self):
        """Makes anew what an event took away."""
        if self.lua is None or self.is_closed:
            self.open_state()
        self.open()

    def close(self):
        """Everything goes; what is left is told."""
        if self.helpers is not None:
            self.helpers["close"]()
        host, device, lua = self.host, self.device, self.lua
        self.__dict__.clear()
        if lua is not None:
            lua.gccollect()
            del lua
        if host is not None:
            host[0]["settle"]()
        return left(device)


def left(device):
    """What is alive that should not be, as text."""
    # That of a time limit. One whose start was broken off may never have begun, or wait for ever for the lock by which
    # it says that it has: neither is alive to `threading`, and neither can be joined.
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and thread.is_alive():
            thread.join()
    for _ in range(3):
        gc.collect()
        if device != "cpu":
            mf.synchronize(device)
    found = []
    if any(mf.ledger()):
        found.append(f"left: {mf.ledger()}")
    if alive := sum(state() is not None for state in Bench.states):
        found.append(f"left: {alive} states")
    if Loan.living:
        found.append(f"left: {len(Loan.living)} structs that nobody deleted")
    if any(column.released != column.given() for column in Column.made):
        found.append("left: a struct of Arrow that nobody released, or that was released twice")
    return "; ".join(found)
