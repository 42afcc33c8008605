"""Operations of the protocols by which tensors meet other libraries, of rings, and of Lua's state where Python code
decides: each a function of the bench that gives the same each time.

Responsible for foreign objects that speak these protocols and say when they are asked. Must not know which event
strikes, nor where; operations.py has the table that these are parts of.
"""

import codecs
import copy
import ctypes
import weakref

import numpy as np
from bench import Column, Index, Items, Producer, noisy
from strike import point

import moonferry as mf

FLOATS = "float32"


def ring_of(b, *steps):
    """What the last of some steps of a new ring gives."""
    ring = mf.Ring(b.list(2, Index(3)), FLOATS, Index(3))
    return [step(ring) for step in steps][-1]


def begin(ring):
    return ring.begin(0.5)[1]


class Convert:
    """Of a ring's slots, equal to others of its kind; each question is foreign code."""

    def __hash__(self):
        point()
        return 7

    def __eq__(self, other):
        point()
        return isinstance(other, Convert)

    def __call__(self, t):
        point()
        return t.shape


def in_a_block(b):
    with mf.Ring(2, FLOATS, 2) as ring:
        return ring.into(Convert()) is ring.into(Convert()), ring.begin(Index(1))[1]


RING = {
    "Ring": lambda b: len(mf.Ring([mf.zeros(Index(2)), mf.zeros(2)]).slots),
    "Ring.begin": lambda b: ring_of(b, begin),
    "Ring.done": lambda b: ring_of(b, begin, mf.Ring.done, begin),
    "Ring.publish": lambda b: ring_of(b, begin, mf.Ring.publish),
    "Ring.latest": lambda b: ring_of(b, begin, mf.Ring.publish, lambda r: r.latest()[1:]),
    "Ring.into": lambda b: ring_of(b, lambda r: len(r.into(np.ndarray)), lambda r: len(r.into(lambda t: noisy()))),
    "Ring.into-in_a_block": in_a_block,
    "Ring.close": lambda b: ring_of(b, begin, mf.Ring.close),
    "Ring.close-converted": lambda b: ring_of(b, lambda r: len(r.into(lambda t: noisy())), mf.Ring.close),
    "Ring.from_handle": lambda b: ring_of(b, lambda r: len(mf.Ring.from_handle(r.handle).slots)),
    "fields": lambda b: mf.fields(noisy(), [("a", FLOATS, Index(2)), ("b", "int16")])["b"].shape,
}


class Asking(type):
    """A kind of types that are asked for what they lack."""

    def __getattr__(cls, name):
        point()
        raise AttributeError(name)


def of_a_new_type(base, *args):
    return Asking("Of", (base,), {})(*args)


class OnlyArray:
    """NumPy's oldest protocol, and a count of nulls."""

    null_count = property(lambda self: Index(0))

    def __array__(self, dtype=None, copy=None):
        point()
        return noisy()


class HasItem:
    """A number of another library's."""

    def item(self):
        point()
        return 3.0


class Lazy:
    """What may be lazy, and has an exchange table."""

    @property
    def requires_grad(self):
        point()
        return False

    def is_neg(self):
        point()
        return Index(0)

    is_conj = is_neg


def lazy():
    import dlpack_abi as abi

    producer, table = abi.Producer(values=(ctypes.c_float * 6)(*range(6))), abi.DLPackExchangeAPI()
    abi.probe().probe_offer(ctypes.addressof(producer.struct))
    table.header.version = abi.DLPackVersion(1, 3)
    table.managed_tensor_from_py_object_no_sync = abi.address_of(abi.probe().probe_slot_gives)
    capsule = abi.capsule_new(ctypes.addressof(table), b"dlpack_exchange_api")
    return type("Lazy", (Lazy,), {"table": (table, producer), "__dlpack_c_exchange_api__": capsule})()


class Described:
    """GPU memory that is described by a dict, and says so when it is asked."""

    def __init__(self, t):
        self.t = t

    @property
    def __cuda_array_interface__(self):
        point()
        return self.t.__cuda_array_interface__


def described(b):
    """On the host and with another driver there is no such memory."""
    if not b.device.startswith("cuda"):
        return [[2, 3], [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]
    return mf.from_cuda_array(Described(b.t)).to("cpu").tolist()


def viewed(b):
    """The memory while a buffer is out."""
    with memoryview(b.h) as memory:
        point()
        return memory.tolist(), bytes(memory.cast("B")[:4]), int(Index(1))


def watched_by_weakref(b):
    """What a callback raises is told, and the next one is called all the same."""
    seen, made = [], b.h.copy()
    refs = [weakref.ref(made, lambda ref: seen.append(1)), weakref.ref(made, lambda ref: point())]
    del made
    return [ref() for ref in refs], seen


PROTOCOLS = {
    "from_arrow-foreign": lambda b: mf.from_arrow(Column()),
    "from_arrow-copy": lambda b: mf.from_arrow(Column(), copy=True),
    "asarray-of_arrow": lambda b: mf.asarray(Column()),
    "asarray-array": lambda b: mf.asarray(OnlyArray()),
    "tensor-of_an_item": lambda b: mf.tensor([HasItem(), Index(2)], FLOATS),
    "from_dlpack-new_type": lambda b: mf.from_dlpack(of_a_new_type(Producer, noisy())),
    "from_dlpack-table": lambda b: mf.from_dlpack(lazy()).shape,
    "from_cuda_array": described,
    "Tensor.__arrow_c_array__": lambda b: [type(c).__name__ for c in b.h.T.__arrow_c_array__()],
    "Tensor.__arrow_c_device_array__": lambda b: len(b.t.__arrow_c_device_array__()),
    "Tensor.__arrow_c_schema__": lambda b: type(b.t.__arrow_c_schema__()).__name__,
    "Tensor.__eq__": lambda b: (b.t == b.t, b.t != Items(), b.t in {b.t: 1}, [Index(1), b.t].index(b.t)),
    "Tensor.__deepcopy__": lambda b: copy.deepcopy([b.t, b.h])[0],
    "Tensor.buffer-out": viewed,
    "Tensor.weakref": watched_by_weakref,
}


def find_codec(name):
    """UTF-8 whose every use is foreign code."""

    def encode(text, errors="strict"):
        point()
        return text.encode("utf-8", errors), len(text)

    def decode(data, errors="strict"):
        point()
        return bytes(data).decode("utf-8", errors), len(data)

    return codecs.CodecInfo(encode, decode, name=name) if name == "seams" else None


codecs.register(find_codec)


class Strange(Exception):
    """An exception that answers nothing by itself."""

    def __init__(self, *args):
        point()
        super().__init__(*args)

    def __str__(self):
        point()
        return "strange"

    @property
    def code(self):
        point()
        return 5


def raise_strange():
    raise Strange("told")


def counting():
    """A generator whose end is foreign code."""
    try:
        for i in range(1, 4):
            point()
            yield i
    finally:
        point()


def handled(b):
    lua = mf.Lua(attribute_handlers=(lambda o, name: (point(), name)[1], lambda o, name, value: point()))
    return lua.execute("local o = ... o.x = 1 return o.y", Items(1))


def encoded(b):
    lua = mf.Lua(encoding="seams")
    return lua.eval("(function(t, ...) t.x = ... return t.x .. 'y', #t end)(...)", lua.table("a"), "text")


def copied_error(b):
    try:
        b.lua.execute("error({...})", Items(1))
    except mf.LuaError as error:
        again, made = (copy.copy(error), copy.deepcopy(error)), error.__reduce__()
        return [type(e.value).__name__ for e in again], error.value[1].items_, len(made)


def delegated(b):
    def outer():
        given = yield from b.lua.eval(
            "function(o) local x = coroutine.yield(o(1)) coroutine.yield(o(x)) end"
        ).coroutine(Items())
        yield given

    steps = outer()
    return next(steps), steps.send(4), int(Index(1)), steps.close()


def changed_while_it_is_read(b):
    seen = []
    for key in b.table:
        seen.append(str(key))
        b.table[key] = Index(1)
    return sorted(seen), b.table == b.table, hash(b.table) == hash(b.table), b.table[1].value


class Subclass(mf.Lua):
    """Its attributes are foreign code."""

    __slots__ = ("told",)

    def __init__(self, **options):
        point()
        self.told = Index(3)

    def _encode(self, code, what="Lua code"):
        point()
        return super()._encode(code, what)


LUA_PROTOCOLS = {
    "Lua-encoding": encoded,
    "Lua.attribute_handlers": handled,
    "Lua-subclass": lambda b: Subclass(interruptible=True).eval("1 + ...", Index(2)),
    "Lua.execute-strange_error": lambda b: b.lua.execute(
        "local ok, e = pcall(...) return ok, python.builtins.getattr(e, 'code', 5), #tostring(e)", raise_strange)[:2],
    "Lua-generator": lambda b: b.lua.execute(
        "for i in python.iter(...) do if i == 2 then return i end end", counting()),
    "Lua-generator_collected": lambda b: b.lua.execute(
        "local f, s, c = python.iter(...) local i = f(s, c) f, s, c = nil collectgarbage() return i", counting()),
    "LuaError": copied_error,
    "LuaThread-delegated": delegated,
    "LuaTable-changed": changed_while_it_is_read,
    "LuaFunction-key": lambda b: sorted([3, 1, 2], key=b.lua.eval("function(x) return -x end")),
    "LuaFunction-of_objects": lambda b: [o.items_ for o in map(b.call, (Items(1), Items(2)))],
    "LuaTable-unpacked": lambda b: (lambda **kw: len(kw))(**dict(b.lua.table(a=Items(1), b=2))),
    "Lua.weakref": lambda b: (weakref.finalize(mf.Lua(), point), 1)[1],
}  # fmt: skip
