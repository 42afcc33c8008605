"""The references that Python objects have after Lua code has used them: as many as before, in every way."""

import codecs
import gc
import inspect
import sys
import traceback
import weakref

import pytest

import moonferry as mf

TIMES = 20
BEGUN = "(function() local co = coroutine.create(coroutine.yield) coroutine.resume(co) return co end)()"


class Thing:
    """What the ways below need: it is called, it has a field, a method, and items."""

    def __call__(self, *args, **kwargs):
        return self

    def method(self, *args):
        return self

    def __getitem__(self, key):
        if key == 4:
            raise IndexError
        return self

    def __setitem__(self, key, value):
        pass

    def __len__(self):
        return 3


class NoItem(IndexError):
    pass


class Array(Thing):
    """It looks like an array, and is asked for a name."""

    __dlpack__ = None

    def __getitem__(self, key):
        raise NoItem(self)


# Lua code that uses the Thing `o`; `l` is a list of it, `p` a list of pairs of it, `d` a dict.
WAYS = {
    "python.args": "return python.args { o, name = o }",
    "python.args with holes": "return python.args { nil, o, nil, o }",
    "arguments": "return o(python.args { o, name = o })",
    "arguments before and after others": "return o(o, python.args { o }, o, python.args { a = o })",
    "arguments that are there twice": "return pcall(o, python.args { a = o }, python.args { a = o })",
    "arguments that are functions of Python's": "local f = python.as_function(o) return o(python.args { f, f, n = f })",
    "a result": "return o(1)",
    "a method": "local a = python.as_attrgetter(o) return a:method(o), a.method(o), o.method",
    "a method that is called with its own object": "local a = python.as_attrgetter(o) "
    "return a.method(python.args { o, o }), a.method(python.args { o }, o), a.method(o, o)",
    "views": "return python.as_attrgetter(o), python.as_itemgetter(o)",
    "a function": "return python.as_function(o)(o)",
    "items": "o[1] = o return o[1]",
    "items of a list": "l[0] = o return l[0]",
    "fields": "local a = python.as_attrgetter(o) a.field = o return a.field",
    "a field that is read again": "local a = python.as_attrgetter(o) return a.field, a.field, a.field",
    "a field that is missing": "return pcall(function() return python.as_attrgetter(o).missing end)",
    "an array that is asked for a name": "return pcall(function() return array.name end)",
    "a loop": "for x in python.iter(l) do assert(x == o) end",
    "a numbered loop": "for i, x in python.enumerate(l) do assert(x == o) end",
    "a loop over pairs": "for a, b in python.iterex(p) do assert(a == o and b == o) end",
    "a loop over keys": "for k in python.iter(d) do assert(k == o) end",
    "text": "return tostring(o)",
    "an overflow handler": "python.set_overflow_handler(o) big() python.set_overflow_handler(nil)",
    "a tensor of what is none": "return pcall(python.tensor, o)",
}

FIELDS = ["type", "message", "traceback", "where", "class", "value"]


def references(*objects):
    gc.collect()
    return [sys.getrefcount(x) for x in objects]


@pytest.fixture
def lua():
    return mf.Lua()


@pytest.mark.parametrize("unpack", [False, True], ids=["", "tuples"])
@pytest.mark.parametrize("way", WAYS)
def test_a_way_leaves_the_references_that_were_there(way, unpack):
    lua, o, array = mf.Lua(unpack_returned_tuples=unpack), Thing(), Array()
    o.field = o
    objects = {"o": o, "array": array, "l": [o] * 3, "p": [(o, o)] * 3, "d": {o: 1}, "big": lambda: 2**300}
    for name, value in objects.items():
        lua.globals()[name] = value
    run = lua.eval(f"function() {WAYS[way]} end")
    for _ in range(2):
        run()
    counted, name = (o, array, NoItem), sys.intern("__dlpack__")
    lua.gccollect()
    before, of_name = references(*counted), sys.getrefcount(name)
    for _ in range(TIMES):
        run()
    lua.gccollect()
    assert references(*counted) == before
    assert sys.getrefcount(name) < of_name + TIMES // 2  # others use it, too


def test_from_python_on_the_references_are_those_that_were_there(lua):
    o = Thing()
    pair = lua.eval("function(a, b) return a, b, { a, n = b } end")

    def use():
        pair(o, o)
        lua.table(o, o, n=o)
        lua.table_from({"a": o, "b": [o]}, recursive=True)
        lua.table_from([o])["n"] = o
        pair(mf.as_attrgetter(o), mf.as_itemgetter(o))
        mf.luajit.lua_type(o)
        lua.set_overflow_handler(o)
        lua.set_overflow_handler(None)

    use()
    lua.gccollect()
    before = references(o)
    for _ in range(TIMES):
        use()
    lua.gccollect()
    assert references(o) == before


def test_a_tensor_leaves_the_modules_the_references_that_were_there():
    """The import of a tensor looks its functions up each time."""

    def use():
        lua = mf.Lua()
        lua.eval("python.tensor(...)", mf.zeros(3))
        lua.eval("...", mf.zeros(3))
        lua.execute("return require 'moonferry'.zeros(3)")
        lua.close()

    use()
    shared = (mf, mf._core, mf._core._from_any)
    before = references(*shared)
    for _ in range(TIMES):
        use()
    assert references(*shared) == before


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None has no references that count")
def test_none_keeps_its_references(lua):
    run = lua.eval("function(f) f(python.args { nil, nil, nil, 1 }) for x in python.iter(f.l) do end return f.l[0] end")
    f = mf.as_attrgetter(type("F", (), {"__call__": lambda self, *args: None, "l": [None] * 3})())
    run(f)
    before = sys.getrefcount(None)
    for _ in range(1000):
        run(f)
        lua.table()
        with lua.nogc():
            pass
    assert abs(sys.getrefcount(None) - before) < 500


@pytest.mark.parametrize("make", ["python.args { ... }", "python.args { x = ... }"])
def test_arguments_go_with_their_type_and_while_the_collector_runs(lua, make):
    class Collects:
        def __del__(self):
            gc.collect()
            ended.append(self)

    ended = []
    one = lua.eval("python.as_attrgetter(python.args {}).__class__")
    run = lua.eval(f"function(...) local made = {make} end")
    run(Thing())
    lua.gccollect()
    before = references(one)
    for _ in range(TIMES):
        run(Collects())
    lua.gccollect()
    assert len(ended) == TIMES
    del ended[:]
    lua.gccollect()
    assert references(one) == before


@pytest.mark.parametrize("make", ["python.args { ... }", "python.args { x = ... }"])
def test_arguments_that_hold_their_own_state_are_collected_with_it(make):
    gone = weakref.ref(owner := mf.Lua())
    owner.execute(f"kept = {make}", [owner])
    del owner
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("view", [mf.as_attrgetter, mf.as_itemgetter])
def test_a_view_goes_with_its_type_and_while_the_collector_runs(view):
    class Collects:
        def __del__(self):
            gc.collect()
            ended.append(self)

    ended = []
    one = type(view(1))
    before = references(one)
    for _ in range(TIMES):
        view(Collects())
    assert len(ended) == TIMES
    del ended[:]
    assert references(one) == before
    thing = Thing()
    thing.view = view(thing)
    thing = weakref.ref(thing)
    gc.collect()
    assert thing() is None


def test_the_name_of_a_field_keeps_its_references(lua):
    class Named:
        def __getattr__(self, name):
            names.append(name)
            return 1

    names = []
    run = lua.eval("function(o) return o.a_long_name end")
    named = mf.as_attrgetter(Named())
    for _ in range(3):
        run(named)
    name = names[-1]
    names.clear()
    before = references(name)
    for _ in range(TIMES):
        run(named)
    names.clear()
    assert references(name) == before


class Name(str):
    __slots__ = ()


def test_names_of_a_codec_of_ones_own():
    def search(encoding):
        if encoding != "moonferry_spec":
            return None
        return codecs.CodecInfo(
            lambda text, errors="strict": (text.encode("ascii"), len(text)),
            lambda data, errors="strict": (Name(bytes(data).decode("ascii")), len(data)),
            name=encoding,
        )

    codecs.register(search)
    lua = mf.Lua(source_encoding="moonferry_spec")
    with pytest.raises(TypeError, match="the codec of names gave a keyword that is no plain str"):
        lua.eval("python.args { name = 1 }")


def test_handlers_keep_their_references_where_no_cycle_is_collected():
    def handler(*values):
        return None

    before = sys.getrefcount(handler)
    for _ in range(TIMES):
        mf.Lua(attribute_filter=handler)
        mf.Lua(attribute_handlers=(handler, handler), overflow_handler=handler)
    assert sys.getrefcount(handler) == before


def test_a_class_of_states_keeps_its_references_and_goes_with_the_one_it_has(classes_stay):
    class Own(mf.Lua):
        pass

    before = references(Own)
    for _ in range(TIMES):
        Own().close()
    assert references(Own) == before
    Own.one, gone = Own(), weakref.ref(Own)
    del Own
    gc.collect()
    assert gone() is None or classes_stay


def test_the_state_alone_leads_out_of_a_cycle():
    """zip keeps what it gave last, and nothing empties it, its method or that tuple. A weak reference says nothing of
    what the collector has met and could not free."""

    def count():
        gc.collect()
        return sum(type(o) is mf.Lua for o in gc.get_objects())

    box, before = [], count()
    keeps = zip(iter(box.pop, None))
    lua = mf.Lua(attribute_filter=keeps.__next__)
    box.append(lua)
    next(keeps)
    del lua, keeps
    assert count() == before


def test_the_end_of_a_scope_gives_back_a_method_and_what_it_was_read_from(lua, monkeypatch):
    o = Thing()
    monkeypatch.setitem(sys.modules, "a_source", o)
    lua.execute("py = require 'moonferry.python'")
    run = lua.eval("function() return py.scope(function() return py.import('a_source').method ~= nil end) end")
    assert run()
    before = references(o)
    for _ in range(TIMES):
        assert run()
    assert references(o) == before


def test_a_scope_closes_what_functions_of_the_state_itself_gave_in_it(lua):
    o = Thing()
    o.field = [1]
    lua.execute("py = require 'moonferry.python'")
    run = lua.eval("""function(o)
      local fields, kept = python.as_attrgetter(o)
      py.scope(function()
        kept = fields.field
        assert(kept[0] == 1)
      end)
      return pcall(function() return kept[0] end)
    end""")
    ok, error = run(o)
    assert not ok and "closed" in str(error)


@pytest.mark.parametrize("source", ["{}", "print", "newproxy()", BEGUN])
def test_a_lua_object_that_goes_is_in_nobodys_sight(lua, source):
    """Code that runs meanwhile and asks the collector for all that there is."""
    seen, value = [], lua.eval(source)
    kind = type(value)

    def count(*event):
        seen.append(sum(type(o) is kind for o in gc.get_objects()))

    reference = weakref.ref(value, count)
    count()
    del value
    assert seen[1] == seen[0] - 1 and reference() is None


@pytest.mark.parametrize("module", ["__main__", "elsewhere"])
@pytest.mark.parametrize("code", [*(f"e.{name}" for name in FIELDS), "tostring(e)", "e:is 'other'"])
def test_what_lua_reads_of_an_exception_keeps_its_references(lua, code, module):
    class Fails(Exception):
        pass

    Fails.__module__, Fails.__qualname__, Fails.__name__ = (f"{module}{'':.0}", f"Own{module}", f"Bare{module}")
    error = Fails("why")
    read = lua.eval(f"function(f) local _, e = pcall(f) return {code} end")

    def fails():
        error.__traceback__ = None
        raise error

    read(fails)
    counted = (Fails, error, Fails.__mro__, Fails.__module__, Fails.__qualname__, Fails.__name__, traceback)
    lua.gccollect()
    before, of_nothing = references(*counted), sys.getrefcount("")
    for _ in range(TIMES):
        read(fails)
    lua.gccollect()
    assert references(*counted) == before
    assert sys.getrefcount("") < of_nothing + TIMES // 2  # others use it, too


def test_a_signature_keeps_its_references(lua):
    function = lua.eval("function(a) end")
    inspect.signature(function)
    of_module, of_type = references(inspect, inspect.Parameter)
    for _ in range(TIMES):
        inspect.signature(function)
    after = references(inspect, inspect.Parameter)
    assert after[0] == of_module and after[1] < of_type + TIMES // 2  # what it makes may have one more


def test_names_of_fields_are_kept_but_not_all_of_them(lua):
    names = [sys.intern(f"one of many names {i}") for i in range(2000)]
    read = lua.eval("function(o, names) for i, name in ipairs(names) do assert(o[name] == name) end end")
    # Not __getattr__, which looks for each name in the class first: CPython would keep thousands of them itself.
    echo = type("Echo", (), {"__getattribute__": lambda self, name: name})()
    read(echo, lua.table_from(names))
    lua.gccollect()
    before = sum(references(*names))
    read(echo, lua.table_from(names))
    lua.gccollect()
    assert sum(references(*names)) < before + len(names) // 2


def test_iterators_and_names_that_are_set_keep_their_references(lua):
    table, name = lua.table(1, 2), sys.intern("a name that is set")
    kind = type(iter(table))

    def use():
        setattr(table, name, 1)
        assert len(list(table.items())) == 3 and iter(table) is not None

    for _ in range(3):
        use()
    before = references(kind, name)
    for _ in range(TIMES):
        use()
    assert references(kind, name) == before


class Collects:
    """Has the collector run while what held it last goes."""

    def __del__(self):
        gc.collect()


def steps_of_a_state(thing):
    """The last that has a state, which has the thing."""
    lua = mf.Lua()
    return lua.eval("function(o) held = o return {1, 2} end")(thing).items()


HOLDS = {
    "a view": mf.as_attrgetter,
    "arguments": lambda thing: mf.Lua().eval("python.args({...})", thing),
    "a coroutine that has not begun": lambda thing: mf.Lua().eval("function() end").coroutine(thing),
    "steps through a table": steps_of_a_state,
}


@pytest.mark.parametrize("hold", HOLDS)
def test_a_collection_may_come_while_what_holds_an_object_goes(hold):
    thing = Collects()
    gone, held = weakref.ref(thing), HOLDS[hold](thing)
    del thing
    assert gone() is not None
    gc.collect()  # what comes now is not young
    del held
    assert gone() is None
