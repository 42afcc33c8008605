"""Whatever Lua asks of Python code, that may wait for a thread which uses the same Lua state: the lock is given up.

Each operation below reaches a probe, whose methods do so; where the lock is kept, the thread does not come back.
"""

import codecs
import subprocess
import sys
import threading

import pytest

import moonferry as mf

TOO_LONG = 20


class Visits:
    """Calls of a state from other threads, made by code that Lua has called."""

    def __init__(self):
        self.lua = None
        self.count = 0

    def __call__(self, *ignored):
        thread = threading.Thread(target=lambda: self.lua.eval("1 + 1"), daemon=True)
        thread.start()
        thread.join(TOO_LONG)
        assert not thread.is_alive(), "the thread did not get in"
        self.count += 1


@pytest.fixture
def visit():
    global waits
    waits = Visits()
    yield waits
    waits = None


waits = None


def visit_now(*ignored):
    """What the probes do: nothing until a spec says so."""
    if waits is not None:
        waits()


class Meta(type):
    def __getattr__(cls, name):
        visit_now()
        raise AttributeError(name)


class Probe(metaclass=Meta):
    """All of its special methods wait."""

    plain = 7

    @property
    def attribute(self):
        visit_now()
        return 8

    @attribute.setter
    def attribute(self, value):
        visit_now()

    def __getattr__(self, name):
        visit_now()
        return 9

    def __iter__(self):
        visit_now()
        return self.steps()

    def steps(self):
        visit_now()
        yield 1
        visit_now()
        yield (2, 3)

    def __call__(self, *args, **kwargs):
        visit_now()
        return self

    def __del__(self):
        visit_now()

    def method(self, *args):
        visit_now()
        return args

    def error(self):
        raise Wrong("on purpose")

    def unprintable(self):
        raise Unprintable

    def said(self):
        raise Said

    def weighed(self):
        return Weighed()


ANSWERS = {
    "str": "a probe",
    "repr": "a probe",
    "len": 5,
    "bool": True,
    "float": 2.5,
    "int": 3,
    "neg": -1,
    "hash": 6,
    "index": 3,
}
for kind, answer in ANSWERS.items():
    setattr(Probe, f"__{kind}__", lambda self, answer=answer: visit_now() or answer)
for kind in "add radd sub rsub mul rmul truediv rtruediv mod rmod pow rpow".split():
    setattr(Probe, f"__{kind}__", lambda self, other, *more: visit_now() or 4)
for kind in "eq lt le gt ge".split():
    setattr(Probe, f"__{kind}__", lambda self, other: visit_now() or True)


class Items(Probe):
    def __getitem__(self, key):
        visit_now()
        return key

    def __setitem__(self, key, value):
        visit_now()

    def __delitem__(self, key):
        visit_now()

    def keys(self):
        visit_now()
        return ["a"]


class Kind(type):
    def __instancecheck__(cls, other):
        visit_now()
        return True


class Wrong(Exception, metaclass=Kind):
    def __init__(self, *args):
        visit_now()
        super().__init__(*args)

    def __str__(self):
        visit_now()
        return "wrong"

    def __setattr__(self, name, value):
        visit_now()
        super().__setattr__(name, value)


class Noisy:
    def __del__(self):
        visit_now()


class Unprintable(Exception):
    def __str__(self):
        kept = Noisy()
        raise KeyError(f"no text, and {kept} goes with this exception")


class Text(str):
    def __del__(self):
        visit_now()


class Said(Exception):
    def __str__(self):
        return Text("said")


class Weighed:
    @property
    def nbytes(self):
        visit_now()
        return 100


Probe.wrong = Wrong


# Lua code of `o`, a probe without items, `i`, one with them, and `new`, which makes a probe.
CODE = {
    "an attribute": "return o.attribute",
    "an attribute that __getattr__ gives": "return o.other",
    "an attribute by a short way": "local v for k = 1, 4 do v = o.attribute end return v",
    "an attribute set": "o.attribute = 1",
    "an item": "return i.key",
    "an item set": "i.key = 1",
    "a call": "return o(1)",
    "a call with python.args": "return o(python.args{1, a = 2})",
    "a method": "return o:method(1)",
    "as_function": "return python.as_function(o)(1)",
    "tostring": "return tostring(o)",
    "length": "return #o",
    "an operator": "return o + 1, 1 - o, o * o, o / 2, o % 2, o ^ 2, -o",
    "a comparison": "return o == new(), o < i, o <= i",
    "concatenation": "return o .. 'x'",
    "iter": "for x in python.iter(o) do end",
    "iterex": "for a, b in python.iterex(o) do end",
    "enumerate": "for n, x in python.enumerate(o) do end",
    "an exception's text": "local ok, e = pcall(o.error) return tostring(e)",
    "an exception's message": "local ok, e = pcall(o.error) return e.message .. e.traceback .. e.type",
    "an exception whose text fails": "local ok, e = pcall(python.as_attrgetter(o).unprintable) return e.message",
    "an exception whose text goes": "local ok, e = pcall(python.as_attrgetter(o).said) return e.message",
    "an exception's kind": "local ok, e = pcall(o.error) return e:is(o.wrong)",
    "an exception through Lua": "o.error()",
    "an object that weighs something": "return o:weighed()",
    "an object that goes": "new() collectgarbage() collectgarbage() return o.plain",
    "an object that goes when it has been called": "new()(1) collectgarbage() collectgarbage() return o.plain",
    "eval of Python": "python.eval('visit()')",
    "an import": "python.builtins.__import__('json')",
}


@pytest.mark.parametrize("code", CODE.values(), ids=CODE)
def test_python_code_may_wait_for_a_thread_that_uses_the_state(visit, code):
    visit.lua = mf.Lua()
    lua = visit.lua
    lua.globals().o, lua.globals().i, lua.globals().new = Probe(), Items(), Probe
    lua.globals().python.builtins.visit = visit
    before = visit.count
    try:
        lua.execute(code)
    except Exception as error:  # its own exceptions come as they are
        assert type(error).__name__ in ("Wrong", "AttributeError"), error
    del lua.globals().python.builtins.visit
    lua.execute("o, i, new = nil")
    assert visit.count > before or "import" in code
    visit.lua = mf.Lua()
    lua.gccollect()


@pytest.mark.parametrize("what", ["filter", "getter", "setter"])
def test_what_is_asked_about_attributes_may_wait(visit, what):
    if what == "filter":
        options = {"attribute_filter": lambda o, name, setting: visit() or name}
    else:
        handlers = (lambda o, name: visit() or getattr(o, name), lambda o, name, value: visit())
        options = {"attribute_handlers": handlers}
    visit.lua = mf.Lua(**options)
    if what == "setter":
        visit.lua.execute("local o = ... o.real = 1", 1j)
    else:
        assert visit.lua.eval("(...).imag", 1j) == 1
    assert visit.count == 1
    visit.lua = None


def test_a_codec_may_wait(visit):
    latin = codecs.lookup("latin-1")
    inside = threading.local()

    def calmly(name):
        def call(text, errors="strict"):
            if getattr(inside, "counts", False):
                inside.counts = False
                visit()
                inside.counts = True
            return getattr(latin, name)(text, errors)

        return call

    found = codecs.CodecInfo(calmly("encode"), calmly("decode"), name="x-waits")
    codecs.register(lambda name: found if name.replace("-", "_") == "x_waits" else None)  # 3.15: as it is
    visit.lua = mf.Lua(encoding="x-waits")
    echo = visit.lua.eval("function(x) return x .. '!' end")
    fails = visit.lua.eval("function(x) error(x) end")
    inside.counts = True
    assert echo("text") == "text!"
    assert visit.count >= 2
    with pytest.raises(mf.LuaError, match="text"):
        fails("text")
    assert visit.lua.eval("{text = 'value'}")["text"] == "value"
    inside.counts = False
    visit.lua = None


def test_the_reason_of_a_stop_that_ends_nothing_may_wait(visit):
    latin = codecs.lookup("latin-1")
    first = []

    def encode(text, errors="strict"):
        if first:
            first.pop()()
        return latin.encode(text, errors)

    found = codecs.CodecInfo(encode, latin.decode, name="x-stops")
    codecs.register(lambda name: found if name.replace("-", "_") == "x_stops" else None)  # 3.15: as it is

    class Reason(Exception):
        def __del__(self):
            visit()

    visit.lua = mf.Lua(encoding="x-stops", interruptible=True)
    table = visit.lua.table()
    first.append(lambda: visit.lua.interrupt(Reason()))
    table["key"] = 1  # runs no script
    assert visit.count == 1 and not first
    assert visit.lua.eval("...", 1) == 1 == table["key"]
    visit.lua = None


def test_a_codec_that_fails_on_a_message_may_wait(visit):
    latin = codecs.lookup("latin-1")
    fails = []

    def decode(data, errors="strict"):
        if fails:
            kept = Noisy()
            raise UnicodeDecodeError("x-fails", bytes(data), 0, 1, f"on purpose, {kept} goes with it")
        return latin.decode(data, errors)

    found = codecs.CodecInfo(latin.encode, decode, name="x-fails")
    codecs.register(lambda name: found if name.replace("-", "_") == "x_fails" else None)  # 3.15: as it is
    visit.lua = mf.Lua(encoding="x-fails")
    function = visit.lua.eval("function() error('mine', 0) end")
    fails.append(1)
    with pytest.raises(mf.LuaError, match="mine"):
        function()
    fails.clear()
    assert visit.count == 2  # the message, and the stack
    visit.lua = None


def test_an_overflow_handler_and_a_message_may_wait(visit):
    visit.lua = mf.Lua(overflow_handler=lambda n: visit() or 5)
    assert visit.lua.eval("...", 2**70) == 5
    error = "error(setmetatable({}, {__tostring = function() f() return 'mine' end}))"
    with pytest.raises(mf.LuaError, match="mine"):
        visit.lua.execute("local f = ... " + error, visit)
    assert visit.count == 2
    visit.lua = None


def test_a_finalizer_of_memory_may_wait(visit):
    numpy = pytest.importorskip("numpy")

    class Noisy(numpy.ndarray):
        def __del__(self):
            visit()

    visit.lua = mf.Lua()
    for code in (
        "local t = ... t:close()",
        "local mf = require 'moonferry' local t = ... mf.scope(function() mf.from_dlpack(t:to_dlpack()) t:close() end)",
        "local t = ... t = nil collectgarbage() collectgarbage() require('moonferry').ledger()",
    ):
        before = visit.count
        visit.lua.execute(code, mf.from_dlpack(Noisy(4, dtype="float32")))
        visit.lua.gccollect()
        assert visit.count == before + 1
    visit.lua = None


# What Lua asks for without a protected call ends with an error after another thread has run Lua on a stack of its own.
# LuaJIT goes on in compiled code, which must be this stack's.
COMPILED = """
import threading
import types
import moonferry as mf

lua = mf.Lua()
other = lua.eval("function() local s = 0 for i = 1, 20 do s = s + i end return s end")

def visit():
    other()
    lua.interrupt(ValueError("stopped"))

class Visited:
    @property
    def field(self):
        thread = threading.Thread(target=visit)
        thread.start()
        thread.join()
        return 1

def steps():
    while True:
        yield Visited().field

try:
    lua.execute('''
        require("jit.opt").start("hotloop=1", "hotexit=1")
        local visited, steps, plain = ...
        local known = plain.field
        local step, list = python.iter(steps)
        local ways = {field = function() return visited.field end, step = function() return step(list) end}
        local function sum(n) local s = 0 for i = 1, n do s = s + i end return s end
        for i = 1, 20 do sum(i) end
        local caught = not pcall(ways.WAY)
        local total = sum(10)
        result = {caught, total, sum(5), sum(6)}''', Visited(), steps(), types.SimpleNamespace(field=0))
except ValueError as error:
    print(error, list(lua.globals().result.values()))
"""


@pytest.mark.parametrize("way", ["field", "step"])
def test_compiled_code_goes_on_behind_an_error_after_another_threads_visit(way):
    done = subprocess.run([sys.executable, "-c", COMPILED.replace("WAY", way)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped [True, 55, 15, 21]\n", "")
