"""What an object answers when it is asked. Ctrl-C, want of memory and an exit are no answers: whichever of its
attributes or methods is looked for when they come, they come out of the call."""

import contextlib

import numpy as np
import pytest

import moonferry as mf

ARRAY = np.arange(6, dtype="float32").reshape(2, 3)
GONE = [KeyboardInterrupt, MemoryError, SystemExit]


class Asked:
    """Counts what is looked for, and raises ${error} where it is the ${at}th."""

    def __init__(self, at=-1, error=None):
        self.at, self.error, self.names, self.raised = at, error, [], False

    def look(self, name):
        self.names.append(name)
        if len(self.names) - 1 == self.at:
            self.raised = True
            raise self.error


def kind_of(asked, members):
    """A class whose attributes, and those of its objects, are looked for under these eyes."""

    class Meta(type):
        def __getattribute__(cls, name):
            asked.look(name)
            return super().__getattribute__(name)

    def getattribute(self, name):
        asked.look(name)
        return object.__getattribute__(self, name)

    def watched(name, function):
        def method(self, *arguments, **keywords):
            asked.look(f"{name}()")
            return function(*arguments, **keywords)

        return method

    made = {name: watched(name, function) for name, function in members.items()}
    return Meta("Kind", (), {"__getattribute__": getattribute, **made})


LENDS = {"__dlpack__": ARRAY.__dlpack__, "__dlpack_device__": lambda: (1, 0)}
LISTS = {"__len__": lambda: 2, "__getitem__": lambda at: [1, 2][at]}
OPAQUE = {}
CALLS = {
    "from_dlpack": (LENDS, mf.from_dlpack),
    "from_dlpack of what lends nothing": (OPAQUE, lambda x: refused(mf.from_dlpack, x)),
    "_from_any": (LENDS, mf._core._from_any),
    "_from_any of a list": (LISTS, mf._core._from_any),
    "_from_any of what is nothing": (OPAQUE, lambda x: refused(mf._core._from_any, x)),
    "asarray": (LENDS, mf.asarray),
    "asarray of a list": (LISTS, mf.asarray),
    "asarray of what is nothing": (OPAQUE, lambda x: refused(mf.asarray, x)),
    "tensor": (LISTS, mf.tensor),
    "tensor of what is nothing": (OPAQUE, lambda x: refused(mf.tensor, x)),
    "zeros": (LISTS, mf.zeros),
    "zeros of what is nothing": (OPAQUE, lambda x: refused(mf.zeros, x)),
    "an index": (LISTS, lambda x: refused(lambda: mf.zeros((2, 3))[x])),
    "an index that is one": ({"__index__": lambda: 1}, lambda x: mf.zeros((2, 3))[x]),
    "an index that has a length": ({**LISTS, "__index__": lambda: 1}, lambda x: refused(lambda: mf.zeros((2, 3))[x])),
    "an element": ({"__float__": lambda: 1.5}, lambda x: mf.zeros((2, 3)).fill(x)),
    "an element with a dtype": ({"__float__": lambda: 1.5}, lambda x: mf.full((2,), x)),
    "a shape with a length": ({**LISTS, "__index__": lambda: 1}, mf.zeros),
    "a dtype": (OPAQUE, lambda x: refused(mf.DType, x)),
    "a device": (OPAQUE, lambda x: refused(lambda: mf.zeros(2, device=x))),
    "a stream": ({"__cuda_stream__": lambda: (0, 0)}, lambda x: refused(lambda: mf.zeros(2).record(x))),
    "copy from": (LENDS, lambda x: mf.zeros((2, 3)).copy(x)),
    "into its class": (OPAQUE, lambda x: refused(mf.into, type(x), mf.zeros(2))),
    "equal to an array": (LENDS, lambda x: mf.equal(mf.zeros((2, 3)), x)),
    "equal to what is nothing": (OPAQUE, lambda x: refused(mf.equal, mf.zeros(2), x)),
    "set from an array": (LENDS, lambda x: mf.zeros((2, 3)).__setitem__(..., x)),
    "set from a list": (LISTS, lambda x: mf.zeros(2).__setitem__(..., x)),
    "set from what is nothing": (OPAQUE, lambda x: refused(mf.zeros(2).__setitem__, ..., x)),
    "a slice": ({"__index__": lambda: 1}, lambda x: mf.zeros(3)[x:]),
    "reshape": ({"__index__": lambda: 6}, lambda x: mf.zeros((2, 3)).reshape(x)),
    "astype": (OPAQUE, lambda x: refused(mf.zeros(2).astype, x)),
    "fields": (OPAQUE, lambda x: refused(mf.fields, x, [("a", "int8")])),
    "frombuffer": (OPAQUE, lambda x: refused(mf.frombuffer, x)),
    "copy=": ({"__bool__": lambda: True}, lambda x: refused(lambda: mf.from_dlpack(ARRAY, copy=x))),
    "Ring": (LISTS, lambda x: mf.Ring(x, slots=2)),
    "wrap": (OPAQUE, lambda x: refused(mf.wrap, x, 2, "int8")),
    "from_arrow": (OPAQUE, lambda x: refused(mf.from_arrow, x)),
    "equal": (OPAQUE, lambda x: mf.zeros(2) == x),
}  # fmt: skip


def refused(call, *arguments):
    with pytest.raises((TypeError, ValueError, AttributeError, IndexError, BufferError, NotImplementedError)):
        call(*arguments)


IN_LUA = {
    "an item": (LISTS, "return (...)[1]"),
    "a name": ({"name": lambda: 1}, "return (...).name"),
    "a name that is an item": (LISTS, "return select(2, raises(function(x) return x.name end, ...))"),
    "a name that is an array's item": ({**LENDS, **LISTS}, "return raises(function(x) return x.name end, ...)"),
    "a method": ({"name": lambda: 1}, "return (...):name()"),
    "a call": ({"__call__": lambda: 1}, "return (...)()"),
    "a length": (LISTS, "return #(...)"),
    "text": (OPAQUE, "return tostring(...)"),
    "equality": (OPAQUE, "return (...) == python.none"),
    "a sum": ({"__add__": lambda other: 1}, "return (...) + 1"),
    "a tensor": (LENDS, "return python.tensor(...)"),
    "a tensor of a list": (LISTS, "return python.tensor(...)"),
    "a tensor of what is nothing": (OPAQUE, "return raises(python.tensor, ...)"),
    "iteration": (LISTS, "local n = 0 for x in python.iter(...) do n = n + 1 end return n"),
    "what is given on": (OPAQUE, "return ..."),
    "attributes": ({"name": lambda: 1}, "return python.as_attrgetter(...).name"),
    "py's items": (LISTS, "return py.list { ... }"),
    "py's tensor": (LENDS, "return py.tensor(...)"),
    "py's with": ({"__enter__": lambda: 1, "__exit__": lambda *error: None}, "return py.with(..., function() end)"),
    "py's with what is none": (OPAQUE, "return raises(py.with, ..., function() end)"),
}  # fmt: skip
RAISES = """
local py = require "moonferry.python"
local function raises(f, ...)
  local ok, why = pcall(f, ...)
  assert(not ok)
  if tostring(why):find "KeyboardInterrupt" or tostring(why):find "MemoryError" or tostring(why):find "SystemExit" then
    error(why, 0)
  end
end
"""


def lost_by(call, members, error):
    """Each question at which the error was taken for an answer."""
    asked = Asked()
    call(kind_of(asked, members)())
    for at in range(len(asked.names)):
        struck = Asked(at, error)
        with contextlib.suppress(error):
            call(kind_of(struck, members)())
            if struck.raised:
                yield at, struck.names[at]


@pytest.mark.parametrize("error", GONE)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_answer_comes_out(name, error):
    members, call = CALLS[name]
    assert list(lost_by(call, members, error)) == []


@pytest.mark.parametrize("error", GONE)
@pytest.mark.parametrize("name", IN_LUA)
def test_what_is_no_answer_comes_out_of_lua(lua, name, error):
    members, script = IN_LUA[name]
    assert list(lost_by(lua.compile(RAISES + script), members, error)) == []


class Older(np.ndarray):
    """An array of NumPy 1, by what __dlpack__ takes."""

    def __dlpack__(self, *, stream=None):
        return super().__dlpack__(stream=stream)


def test_an_array_of_an_older_numpy_is_asked_again_with_what_it_takes():
    assert mf.from_dlpack(np.arange(5).view(Older)).tolist() == [0, 1, 2, 3, 4]


class Fails(np.ndarray):
    calls = 0

    def __dlpack__(self, **keywords):
        Fails.calls += 1
        raise ZeroDivisionError


def test_another_error_of_such_an_array_is_the_answer():
    with pytest.raises(ZeroDivisionError):
        mf.from_dlpack(np.arange(5).view(Fails))
    assert Fails.calls == 1
