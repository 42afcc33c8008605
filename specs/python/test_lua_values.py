"""How values cross between Python and a moonferry.Lua, one by one."""

import gc
import math
import operator
import sys
import unittest.mock
import weakref

import pytest

import moonferry as mf
import moonferry.luajit as lj

BEGUN = "(function() local co = coroutine.create(coroutine.yield) coroutine.resume(co) return co end)()"


@pytest.fixture
def lua():
    return mf.Lua()


@pytest.fixture
def same(lua):
    return lua.eval("function(...) return ... end")


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, 1, -7, 2**53, -(2**53), 0.5, -0.0, math.inf, 1e300, "", "text", "æ€𝄞", "a\0b"],
    ids=repr,
)
def test_plain_values_come_back_as_they_were(same, value):
    back = same(value)
    assert back == value and type(back) is type(value)
    if isinstance(value, float):
        assert math.copysign(1, back) == math.copysign(1, value)


def test_bytes_are_strings_in_lua(lua, same):
    assert same(b"abc") == "abc"
    assert lua.eval("#(...)", b"\xff\xfe\0") == 3
    with pytest.raises(UnicodeDecodeError):
        same(b"\xff")


def test_nan_comes_back(same):
    assert math.isnan(same(math.nan))


def test_whole_numbers_are_ints(lua):
    assert type(lua.eval("3.0")) is int
    assert type(lua.eval("2^60")) is int and lua.eval("2^60") == 2**60
    assert type(lua.eval("2^70")) is float


@pytest.mark.parametrize("n", [2**53 + 1, -(2**53) - 1, 2**63, 10**30])
def test_ints_that_no_number_holds_are_refused(same, n):
    with pytest.raises(OverflowError, match="2\\^53"):
        same(n)
    with pytest.raises(OverflowError):
        same([1], {n: 1} and n)


def test_an_int_that_is_refused_does_not_say_itself_how_long_it_is(same):
    class Odd(int):
        def bit_length(self):
            raise KeyboardInterrupt

    for n in (2**80, Odd(2**80)):
        with pytest.raises(OverflowError, match="an int of 81 bits is beyond 2"):
            same(n)


def test_an_overflow_handler_decides_about_large_ints():
    lua = mf.Lua(overflow_handler=str)
    assert lua.eval("... .. '!'", 2**64) == f"{2**64}!"
    lua.set_overflow_handler(lambda n: [n])
    assert lua.eval("...", 2**64) == [2**64]
    lua.set_overflow_handler(lua.eval("function(o) return o end"))
    assert lua.eval("type(...)", 2**64) == "userdata"
    assert lua.eval("...", 2**64) == 2**64
    lua.set_overflow_handler(None)
    with pytest.raises(OverflowError):
        lua.eval("...", 2**64)
    with pytest.raises(ValueError):
        lua.set_overflow_handler(5)


def test_an_overflow_handler_may_give_such_an_int_but_not_for_ever():
    lua = mf.Lua(overflow_handler=lambda n: n >> 64)
    assert lua.eval("...", 5 << 64 * 20) == 5
    lua.set_overflow_handler(int)
    for _ in range(2):
        with pytest.raises(OverflowError, match=r"^the overflow handler gave an int beyond 2\^53 for one, 32 times"):
            lua.eval("...", 2**70)
    lua.set_overflow_handler(lambda n: n >> 64)
    assert lua.eval("...", 5 << 64 * 20) == 5


def test_an_overflow_handler_that_lua_sets_is_the_first_argument(lua):
    lua.execute("python.set_overflow_handler(nil, print)")
    with pytest.raises(OverflowError):
        lua.eval("...", 2**80)
    with pytest.raises(mf.LuaError, match="expected nil, a Lua function or a callable Python object"):
        lua.execute("python.set_overflow_handler(python.builtins.object())")


@pytest.mark.parametrize("raised", [KeyError, KeyboardInterrupt])
def test_what_an_overflow_handler_raises_is_not_lost(raised):
    def fail(n):
        raise raised("why")

    lua = mf.Lua(overflow_handler=fail)
    with pytest.raises(raised, match="why"):
        lua.eval("...", 2**64)
    with pytest.raises(raised, match="why"):
        lua.execute("(...)()", lambda: 2**64)
    assert lua.eval("(pcall(...))", lambda: 2**64) is False
    lua.set_overflow_handler(lua.eval("function() error({code = 7}) end"))
    with pytest.raises(mf.LuaError) as caught:
        lua.eval("...", 2**64)
    assert caught.value.value.code == 7


def test_integers_of_the_ffi_are_exact(lua):
    assert lua.eval("2^53 + 1LL") == 2**53 + 1
    assert lua.eval("-1LL") == -1
    assert lua.eval("0xffffffffffffffffULL") == 2**64 - 1
    assert lua.eval("4i") == 4j


def test_other_values_of_lua_are_objects_that_come_back(lua):
    made = lua.eval("require('ffi').new('int[3]', 1, 2, 3)")
    assert mf.lua_type(made) == "cdata" and made[1] == 2
    assert lua.eval("(...)[2]", made) == 3
    proxy = lua.eval("newproxy()")
    assert mf.lua_type(proxy) == "userdata"
    assert lua.eval("type(...)", proxy) == "userdata"


def test_python_objects_are_themselves_again(same):
    class Thing:
        pass

    for value in (Thing(), Thing, [1], {}, (1, 2), {3}, len, 1j, range(3)):
        assert same(value) is value


def test_one_object_is_one_userdata(lua):
    thing = object()
    assert lua.eval("rawequal(...)", thing, thing)
    assert lua.eval("(function(o) local t = {} t[o] = 1 return t end)(...)", thing)[thing] == 1
    assert not lua.eval("rawequal(...)", object(), object())


def test_subclasses_with_a_lua_value_go_by_it(same):
    class Text(str):
        pass

    class Number(float):
        pass

    class Whole(int):
        pass

    assert type(same(Text("x"))) is str
    assert type(same(Number(0.5))) is float
    assert type(same(Whole(5))) is int


def test_without_an_encoding_strings_are_bytes():
    lua = mf.Lua(encoding=None)
    assert lua.eval("'a\\255'") == b"a\xff"
    assert lua.eval("...", b"\xfe") == b"\xfe"
    assert lua.eval("type(...)", "text") == b"userdata"
    assert lua.eval("...", "text") == "text"
    assert lua.globals().string.upper(b"x") == b"X"
    assert lua.globals()[b"math"].floor(2.5) == 2
    assert lua.require("math")[b"pi"] == math.pi


def test_an_encoding_is_that_of_all_strings():
    lua = mf.Lua(encoding="ISO-8859-15")
    assert lua.eval("#'€uro'") == 4
    assert lua.eval("...", "€") == "€"
    with pytest.raises(UnicodeEncodeError):
        lua.eval("...", "𝄞")
    with pytest.raises(LookupError):
        mf.Lua(encoding="no-such-encoding")
    with pytest.raises(UnicodeEncodeError):
        mf.Lua(encoding="é")


def test_lua_objects_are_equal_if_their_values_are(lua):
    lua.execute("t = {} f = print co = coroutine.create(print)")
    g = lua.globals()
    assert g.t == g.t and g.f == g.f and hash(g.t) == hash(g.t) and g.t != g.f
    assert lua.eval("{}") != lua.eval("{}")
    assert g.t != mf.Lua().globals() and g.t != 5
    assert len({g.t, g.t, g.f}) == 2


def test_lua_objects_have_hashes_of_their_own(lua):
    tables = [lua.table() for _ in range(50)]
    assert len(set(map(hash, tables))) == 50


def test_lua_objects_have_no_order_and_others_may_say_that_they_are_equal(lua):
    table, function = lua.table(), lua.eval("print")
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        for other in (table, function, 5):
            with pytest.raises(TypeError, match="not supported between instances"):
                compare(table, other)
    assert table == unittest.mock.ANY and not table != unittest.mock.ANY


def test_objects_of_two_states_do_not_mix(lua):
    other = mf.Lua()
    with pytest.raises(mf.LuaError, match="different Lua runtimes"):
        lua.eval("...", other.eval("{}"))
    with pytest.raises(mf.LuaError, match="different Lua runtimes"):
        lua.globals().x = other.eval("print")


def test_lua_type_names_what_an_object_stands_for(lua):
    assert mf.lua_type(lua.eval("{}")) == "table"
    assert mf.lua_type(lua.eval("print")) == "function"
    assert mf.lua_type(lua.eval("function() end").coroutine()) == "thread"
    for other in (1, "x", None, [], lj):
        assert mf.lua_type(other) is None


def test_text_of_lua_objects(lua):
    assert repr(lua.eval("{}")).startswith("<Lua table at 0x")
    assert str(lua.eval("print")).startswith("<Lua function at 0x")
    assert str(lua.eval("setmetatable({}, {__tostring = function() return 'näme' end})")) == "näme"
    with pytest.raises(TypeError, match="non-string"):
        str(lua.eval("setmetatable({}, {__tostring = function() return {} end})"))
    with pytest.raises(mf.LuaError, match="no text"):
        str(lua.eval("setmetatable({}, {__tostring = function() error 'no text' end})"))


def test_lua_objects_can_be_referred_to_weakly(lua):
    gone = []
    for code in ("{}", "function() end", "coroutine.create(print)", "newproxy()"):
        value = lua.eval(code)
        reference = weakref.ref(value, gone.append)
        assert reference() is value
        del value
        assert gone.pop() is reference
    generator = lua.eval("function() coroutine.yield() end").coroutine()
    assert weakref.ref(generator)() is generator


def test_a_class_of_lua_objects_goes_with_those_it_has(classes_stay):
    class Own(lj.LuaObject):
        __slots__ = ()

    Own.value = mf.Lua().eval("newproxy()")
    Own.value.__class__ = Own
    gone = weakref.ref(Own)
    del Own
    gc.collect()
    assert gone() is None or classes_stay


def test_lua_functions_in_a_class_are_no_methods_as_in_lupa(lua):
    kind = type("Kind", (), {"count": lua.eval("function(...) return select('#', ...) end")})
    assert kind().count(1) == kind.count(1) == 1


def test_lua_objects_cannot_be_made_or_given_attributes_by_hand(lua):
    function = lua.eval("print")
    with pytest.raises(AttributeError):
        function.x = 1
    with pytest.raises(AttributeError):
        function.no_such_field  # noqa: B018
    with pytest.raises(TypeError):
        function[1]
    with pytest.raises(TypeError):
        iter(function)
    with pytest.raises(TypeError):
        len(function)
    assert bool(function)
    for kind in (lj.LuaTable, lj.LuaFunction, lj.LuaThread, lj.LuaObject):
        with pytest.raises(TypeError, match="Lua makes these objects"):
            kind()


@pytest.mark.parametrize("name", ["_", "__", "___", "__x", "x__", "_x__", "__x_", "__a_b"])
def test_a_name_that_is_none_of_pythons_own_is_a_field(lua, name):
    table = lua.table_from({name: 1})
    assert getattr(table, name) == 1
    setattr(table, name, 2)
    assert table[name] == 2


@pytest.mark.parametrize("name", ["____", "__x__"])
def test_a_name_of_the_form_of_pythons_own_is_no_field(lua, name):
    table = lua.table_from({name: 1})
    with pytest.raises(AttributeError):
        getattr(table, name)
    with pytest.raises(AttributeError):
        setattr(table, name, 2)
    assert table[name] == 1


@pytest.mark.parametrize("source", ["{}", "print", "newproxy()", "coroutine.create(print)"])
def test_an_attribute_has_a_name(lua, source):
    value = lua.eval(source)
    for name in (5, b"x", None):
        for ask in (value.__getattr__, value.__getattribute__):
            with pytest.raises(TypeError, match="attribute name must be string"):
                ask(name)


@pytest.mark.parametrize("source, kind", [("print", "function"), (BEGUN, "thread")])
def test_what_has_no_fields_is_named(lua, source, kind):
    value = lua.eval(source)
    with pytest.raises(TypeError, match=f"^a Lua {kind} has no items or fields$"):
        value[1]
    with pytest.raises(AttributeError, match=f"^a Lua {kind} has no items or fields$"):
        value.x  # noqa: B018
    with pytest.raises(TypeError, match=f"^a Lua {kind} has no length$"):
        len(value)


def test_userdata_has_the_fields_and_the_length_of_its_metatable(lua):
    plain = lua.eval("newproxy()")
    with pytest.raises(mf.LuaError, match="attempt to index a userdata value"):
        plain.x  # noqa: B018
    with pytest.raises(TypeError, match="^iteration is only supported for tables, not for a Lua userdata$"):
        iter(plain)
    with pytest.raises(TypeError, match="^a Lua userdata has no length$"):
        len(plain)
    made = lua.execute("""local made = newproxy(true)
      getmetatable(made).__index, getmetatable(made).__len = { x = 5 }, function() return 0 end
      return made""")
    assert (made.x, made["x"], len(made)) == (5, 5, 0)


def test_the_length_of_a_table_is_that_of_lua(lua):
    """Lua 5.1 asks no metatable of a table."""
    assert len(lua.table()) == 0
    assert len(lua.eval("setmetatable({ 1, 2 }, { __len = function() return 7 end })")) == 2


NO_TABLE = "a Lua table is expected, not a Lua"
NO_CALL = "attempt to call"

# What a Lua value is used for that has got the class of another one: value, class, use, exception and its text.
DISGUISED = [
    ("print", "LuaTable", lambda o: "x" in o, TypeError, NO_TABLE),
    ("print", "LuaTable", lambda o: o.__setitem__("x", 1), TypeError, NO_TABLE),
    ("print", "LuaTable", lambda o: setattr(o, "x", 1), TypeError, NO_TABLE),
    ("print", "LuaTable", lambda o: o.__delitem__("x"), TypeError, NO_TABLE),
    ("print", "LuaTable", lambda o: list(o.keys()), TypeError, NO_TABLE),
    ("print", "LuaTable", lambda o: list(o.items()), TypeError, NO_TABLE),
    ("print", "LuaTable", list, TypeError, NO_TABLE),
    ("print", "LuaTable", len, TypeError, "has no length"),
    ("print", "LuaTable", lambda o: o["x"], TypeError, "has no items"),
    ("print", "LuaTable", lambda o: o.x, AttributeError, "has no items or fields"),
    ("print", "LuaTable", lambda o: lj.unpacks_lua_table(dict)(o), TypeError, NO_TABLE),
    ("io.stdout", "LuaTable", lambda o: "x" in o, TypeError, NO_TABLE),
    ("io.stdout", "LuaTable", lambda o: setattr(o, "x", 1), TypeError, NO_TABLE),
    ("io.stdout", "LuaTable", lambda o: list(o.values()), TypeError, NO_TABLE),
    ("io.stdout", "LuaFunction", lambda o: o(1), mf.LuaError, NO_CALL),
    ("io.stdout", "LuaFunction", lambda o: o.coroutine(), TypeError, "not a function"),
    ("{x = 2}", "LuaFunction", lambda o: o(1), mf.LuaError, NO_CALL),
    ("{x = 2}", "LuaFunction", lambda o: o.coroutine(), TypeError, "not a function"),
    ("{x = 2}", "LuaCoroutineFunction", lambda o: o(1), TypeError, "not a function"),
    ("{x = 2}", "LuaObject", lambda o: o.__setitem__("x", 1), AttributeError, "__setitem__"),
]


@pytest.mark.parametrize("source, other, use, exception, text", DISGUISED)
def test_a_value_with_the_class_of_another_is_refused(lua, source, other, use, exception, text):
    value = lua.eval(source)
    value.__class__ = getattr(lj, other)
    with pytest.raises(exception, match=text):
        use(value)
    assert lua.eval("... == " + (source if source[0] != "{" else "(...)"), value) is True


def test_a_value_with_the_class_of_another_is_what_it_was(lua):
    function, table = lua.eval("function(a) return a end"), lua.eval("{5, x = 2}")
    function.__class__ = mf.LuaTable
    table.__class__ = mf.LuaFunction
    assert function(3) == 3
    assert (table["x"], table.x, len(table), str(table.__signature__)) == (2, 2, 1, "(*_more)")
    assert (mf.lua_type(function), mf.lua_type(table)) == ("function", "table")
    thread = lua.eval("function() coroutine.yield(1) end").coroutine()
    with pytest.raises(TypeError, match="layout"):
        thread.__class__ = mf.LuaTable
    with pytest.raises(TypeError, match="layout"):
        table.__class__ = mf.LuaThread


class Thing:
    """What has no value in Lua but itself."""


WAYS_BACK = {
    "an item": lambda lua, table: table[1],
    "an item by a name": lambda lua, table: table["name"],
    "an attribute": lambda lua, table: table.name,
    "the values": lambda lua, table: list(table.values()),
    "the items": lambda lua, table: dict(table.items()),
    "a result": lambda lua, table: lua.globals().first(table),
    "an argument that comes back": lambda lua, table: lua.globals().same(table[1]),
    "a script": lambda lua, table: lua.eval("it.name"),
}


@pytest.mark.parametrize("way", WAYS_BACK)
def test_an_object_comes_back_with_a_reference_of_its_own(way):
    lua, thing = mf.Lua(), Thing()
    lua.execute("function same(x) return x end function first(t) return t[1] end it = {}")
    table = lua.globals().it
    table[1], table["name"] = thing, thing
    WAYS_BACK[way](lua, table)
    before = sys.getrefcount(thing)
    for _ in range(5):
        WAYS_BACK[way](lua, table)
    assert sys.getrefcount(thing) == before


@pytest.mark.parametrize("give", ["an item", "an item by a name", "an item that is there", "a key", "an argument"])
def test_a_value_of_another_state_is_refused(give):
    lua, other = mf.Lua(), mf.Lua()
    table, theirs = lua.table(7), other.table(5)
    same = lua.eval("function(x) return x end")
    ways = {
        "an item": lambda: table.__setitem__(2, theirs),
        "an item by a name": lambda: table.__setitem__("name", theirs),
        "an item that is there": lambda: table.__setitem__(1, theirs),
        "a key": lambda: table[theirs],
        "an argument": lambda: same(theirs),
    }
    for _ in range(2):  # by a name that is known, the second time
        with pytest.raises(mf.LuaError, match="cannot mix objects from different Lua runtimes"):
            ways[give]()
    assert dict(table) == {1: 7}


@pytest.mark.parametrize("use", ["an item", "an item that is there", "an argument", "the function"])
def test_a_value_that_a_script_has_taken_from_the_registry_is_lost(lua, use):
    table, value, same = lua.table(7), lua.eval("print"), lua.eval("function(x) return x end")
    uses = {
        "an item": lambda: table.__setitem__(2, value),
        "an item that is there": lambda: table.__setitem__(1, value),
        "an argument": lambda: same(value),
        "the function": lambda: value(),
    }
    table[1] = value
    assert table[1] == value
    table[1] = 7
    lua.execute("""
      local registry = debug.getregistry()
      for ref = 1, 1000 do if registry[ref] == print then registry[ref] = nil end end
    """)
    with pytest.raises(mf.LuaError, match="the reference to this Lua value is lost"):
        uses[use]()
    assert dict(table) == {1: 7}


@pytest.mark.parametrize("encoding", ["UTF-8", "ascii"])
@pytest.mark.parametrize(
    "code", ["'\\255'", "1, '\\255'", "(...)('\\255')", "(...)(1, '\\255')", "t[1]", "python.args(t)"]
)
def test_text_that_the_codec_does_not_know_is_its_error_wherever_it_crosses(encoding, code):
    lua = mf.Lua(encoding=encoding)
    lua.execute("t = { '\\255' }")
    with pytest.raises(UnicodeDecodeError):
        lua.eval(code, lambda *which: which)
    with pytest.raises(UnicodeDecodeError):
        lua.globals().t[1]
    for values in (lua.globals().t.values, lua.globals().t.items):
        with pytest.raises(UnicodeDecodeError):
            list(values())


@pytest.mark.parametrize("encoding", ["UTF-8", "ascii"])
def test_text_that_no_codec_can_write_is_an_error_wherever_it_crosses(encoding):
    lua, text = mf.Lua(encoding=encoding), "\ud800"
    table = lua.table()
    uses = [
        lambda: lua.eval("...", text),
        lambda: lua.eval("{...}", 1, text),
        lambda: lua.eval("(...)()", lambda: text),
        lambda: lua.table(text),
        lambda: lua.table_from({"a": text}),
        lambda: table[text],
        lambda: table.__setitem__("a", text),
    ]
    for use in uses:
        with pytest.raises(UnicodeEncodeError):
            use()
    assert len(list(table)) == 0
