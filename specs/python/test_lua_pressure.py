"""What Lua asks a Python object of its size, so that its collector runs in time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import moonferry as mf

KEPT = []


class Asked(type):
    """A class that notes when it is asked for nbytes, and raises ${error} then, if it has one."""

    error = None

    def __getattribute__(cls, name):
        if name == "nbytes":
            type.__getattribute__(cls, "asked").append(cls.__name__)
            if error := type.__getattribute__(cls, "error"):
                raise error
        return type.__getattribute__(cls, name)


def unknown(same, made):
    """The class, of which nothing is known: another one takes the place that it has in the table of what is known, in
    which one that was at the same address may have left something."""
    KEPT.append(made)
    while True:
        other = type("Other", (), {})
        KEPT.append(other)
        if id(other) >> 6 & 255 == id(made) >> 6 & 255:
            same(other())
            return made


def has_none(same):
    class Plain(metaclass=Asked):
        asked = []

        def __getattr__(self, name):
            self.asked.append(name)
            raise AttributeError(name)

    return unknown(same, Plain)


def has_some(same):
    class Sized(metaclass=Asked):
        asked = []

        @property
        def nbytes(self):
            self.asked.append("an object")
            return 8

    return unknown(same, Sized)


@pytest.fixture
def same(lua):
    return lua.eval("function(x) return x end")


def test_a_type_is_asked_once_and_its_objects_only_if_it_has_some(same):
    plain, sized = has_none(same), has_some(same)
    for _ in range(3):
        same(plain())
        same(sized())
    assert plain.asked == ["Plain"]
    assert sized.asked == ["Sized", *["an object"] * 3]


def test_what_is_no_answer_comes_out_and_the_type_is_asked_again(same):
    sized = has_some(same)
    sized.error = KeyboardInterrupt
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            same(sized())
    sized.error = None
    same(sized())
    assert sized.asked == [*["Sized"] * 3, "an object"]


def test_another_error_is_an_answer(same):
    plain = has_none(same)
    plain.error = ZeroDivisionError
    for _ in range(2):
        assert same(plain())
    assert plain.asked == ["Plain"]


def test_the_question_leaves_no_reference(same, lua):
    sized = has_some(same)
    found = vars(sized)["nbytes"]
    before = sys.getrefcount(found)
    same(sized())
    assert sys.getrefcount(found) == before
    nbytes = float("4096.5")
    before = sys.getrefcount(nbytes)
    same(Odd(nbytes))
    lua.gccollect()
    assert sys.getrefcount(nbytes) == before


class Breaks:
    def __init__(self, error):
        self.error = error

    def __float__(self):
        raise self.error


class Odd:
    def __init__(self, nbytes):
        self.said = nbytes

    @property
    def nbytes(self):
        return self.said


@pytest.mark.parametrize("nbytes", ["many", None, -1, float("nan"), float("inf"), Breaks(ZeroDivisionError)], ids=repr)
def test_an_object_may_say_anything(same, nbytes):
    odd = Odd(nbytes)
    assert same(odd) is odd


def test_what_is_no_answer_of_its_size_comes_out(same):
    with pytest.raises(KeyboardInterrupt):
        same(Odd(Breaks(KeyboardInterrupt)))


# A process of its own, because what may come until the next collection grows with what has been seen.
COUNTS = """
import moonferry as mf
class Weight:
    nbytes = 0
    def __init__(self, nbytes):
        self.nbytes = nbytes << 20
lua = mf.Lua()
lua.execute('''
collectgarbage "stop" -- nothing but weights collects
collections = 0
local function note()
  getmetatable(newproxy(true)).__gc = function() collections = collections + 1 note() end
end
function weigh(x) end
note()
''')
weigh, kept = lua.globals().weigh, lua.eval("function(x) list = list or {} list[#list + 1] = x end")
def collections(count, nbytes, function=weigh):
    before = lua.globals().collections
    for _ in range(count):
        function(Weight(nbytes))
    return lua.globals().collections - before
"""


@pytest.mark.parametrize(
    "calls, said",
    [
        ("collections(40, 64)", "8"),  # whenever there are more than 256 MB
        ("collections(4, 64), collections(1, 64), collections(1, 1), collections(3, 64)", "(0, 1, 0, 0)"),
        ("collections(40, 64, lambda other, same=Weight(64): weigh(same))", "0"),  # Lua has it still
        # Where more than four fifths of the bytes outlive a collection, the next one comes later.
        ("collections(7, 26, kept), collections(3, 26), collections(10, 26)", "(0, 1, 1)"),
        ("collections(8, 26, kept), collections(2, 26), collections(10, 26)", "(0, 1, 0)"),
    ],
)
def test_all_is_collected_when_many_bytes_have_come(calls, said):
    done = subprocess.run([sys.executable, "-c", f"{COUNTS}print(({calls}))"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{said}\n", "")


def test_a_block_that_lua_frees_is_the_systems_again():
    """Each has pages of its own, which leave the process with it."""
    lua = mf.Lua(max_memory=0)
    run = lua.eval("function() for _ = 1, 100 do local s = ('x'):rep(2e6) s = nil collectgarbage() end end")

    def pages():
        return int(Path("/proc/self/statm").read_text().split()[1])

    run()
    before = pages()
    run()
    assert (pages() - before) * os.sysconf("SC_PAGE_SIZE") < 50e6


def test_an_object_that_crosses_while_it_is_asked_for_its_bytes_is_one_userdata():
    lua, asked = mf.Lua(), []
    lua.execute("seen = {}")
    keep, look = lua.eval("function(o) seen[o] = 1 end"), lua.eval("function(o) return seen[o] end")

    class Crosses:
        @property
        def nbytes(self):
            if not asked:
                asked.append(self)
                keep(self)
            return 4096

    one = Crosses()
    assert look(one) == 1 and look(one) == 1
    assert asked.pop() is one


def test_an_object_that_is_closed_while_it_is_asked_for_its_bytes_is_closed():
    lua, asked = mf.Lua(), []
    close, look = lua.eval("require('moonferry.python').close"), lua.eval("function(o) return o.name end")

    class Closes:
        name = "a name"

        @property
        def nbytes(self):
            if not asked:
                asked.append(self)
                close(self)
            return 4096

    one = Closes()
    with pytest.raises(mf.LuaError, match="this Python object was closed"):
        look(one)
    assert look(one) == "a name" and asked.pop() is one
