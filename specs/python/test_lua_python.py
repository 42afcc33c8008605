"""The table `python` in Lua, and how Lua sees Python objects: lupa's verbs."""

import collections
import enum
import sys

import pytest

import moonferry as mf


@pytest.fixture
def lua():
    return mf.Lua()


class Point:
    def __init__(self, x):
        self.x = x

    def move(self, by):
        return self.x + by

    @classmethod
    def make(cls, x):
        return cls(x)


def test_objects_with_items_are_indexed_and_others_have_attributes(lua):
    index = lua.eval("function(o, k) return o[k] end")
    assert index({"x": 1}, "x") == 1 and index([5, 6], 1) == 6 and index((7,), -1) == 7
    assert index(Point(3), "x") == 3 and index(collections.deque([5, 6]), 1) == 6
    with pytest.raises(KeyError):
        index({}, "x")
    with pytest.raises(AttributeError):
        index(Point(3), "y")
    store = lua.eval("function(o, k, v) o[k] = v end")
    d, p = {}, Point(0)
    store(d, "a", 1)
    store(p, "x", 9)
    assert d == {"a": 1} and p.x == 9


def test_classes_have_attributes_even_where_they_have_type_parameters(lua):
    items = []
    lua.execute("python.builtins.list.append(...)", items, 5)
    assert items == [5]


def test_classes_that_have_items_are_indexed(lua):
    class Colour(enum.Enum):
        RED = 1

    assert lua.eval("(...).RED", Colour) is Colour.RED


def test_a_name_of_an_attribute_that_is_a_number_is_none(lua):
    read = lua.eval("function(o, name) return o[name] end")
    for name in (1, 1.5, True):
        with pytest.raises(TypeError, match=f"attribute name must be string, not '{type(name).__name__}'"):
            read(Point(1), name)


# What each takes at most.
TAKES = {"as_attrgetter": 1, "as_itemgetter": 1, "as_function": 1, "iter": 1, "iterex": 1, "enumerate": 2}


@pytest.mark.parametrize("verb", TAKES)
def test_a_verb_takes_no_more_than_it_needs(lua, verb):
    call = lua.eval(f"function(...) return (select('#', python.{verb}(...))) end")
    count = TAKES[verb]
    assert call([1], *[1] * (count - 1)) in (1, 3)
    with pytest.raises(mf.LuaError, match=rf"bad argument #{count + 1} \((one Python object is|an object and a start)"):
        call([1], *[1] * count)


@pytest.mark.parametrize("verb", TAKES)
def test_a_verb_takes_the_object_in_a_function_too(lua, verb):
    class Both:
        def __iter__(self):
            return iter("x")

        def __call__(self):
            return self

    o = Both()
    got = lua.eval(f"(function(o) return python.{verb}(python.as_function(o)) end)(...)", o)
    assert got is o if verb.startswith("as_") else list(got[1]) == ["x"]


@pytest.mark.parametrize("verb", TAKES)
@pytest.mark.parametrize("other", ["", "nil", "5", "{}", "print"])
def test_a_verb_says_what_it_was_given_in_the_place_of_an_object(lua, verb, other):
    kind = lua.eval(f"type({other})") if other else "no value"
    with pytest.raises(mf.LuaError, match=f"not a python object.*: a Python object is expected, got {kind}"):
        lua.execute(f"python.{verb}({other})")


def test_as_attrgetter_and_as_itemgetter_on_both_sides(lua):
    d = {"get": "item"}
    get = lua.eval("function(o) return o.get end")
    assert get(d) == "item" == get(mf.as_itemgetter(d))
    assert get(mf.as_attrgetter(d)) == d.get
    assert lua.eval("python.as_attrgetter(...).get", d) == d.get
    assert lua.eval("python.as_itemgetter(python.as_attrgetter(...)).get", d) == "item"
    with pytest.raises(mf.LuaError, match="not a python object"):
        lua.eval("python.as_attrgetter(5)")


def test_a_getter_of_a_getter_is_one_of_the_object(lua):
    d = {"get": "item"}
    get, view = lua.eval("function(o) return o.get, o end"), d
    for _ in range(200000):  # so many that nest end the C stack
        view = mf.as_itemgetter(mf.as_attrgetter(view))
    assert get(view) == ("item", d) and get(mf.as_attrgetter(view)) == (d.get, d)


def test_methods_can_be_called_with_dot_and_colon(lua):
    p = Point(1)
    for call in ("p:move(2)", "p.move(2)", "P.move(p, 2)", "P:make(1).x + 2", "P.make(1).x + 2"):
        assert lua.eval(f"(function(p, P) return {call} end)(...)", p, Point) == 3
    assert lua.eval("python.as_attrgetter(...):items()", {"a": 1}) == {"a": 1}.items()


def test_keyword_arguments(lua):
    def f(*args, **kwargs):
        return args, kwargs

    assert lua.eval("(...)(1, python.args{2, 3, x = 4}, 5)", f) == ((1, 2, 3, 5), {"x": 4})
    assert lua.eval("(...)(python.args{})", f) == ((), {})
    with pytest.raises(TypeError, match="multiple values"):
        lua.eval("(...)(python.args{x = 1}, python.args{x = 2})", f)
    for key in (3, 0, -1):
        with pytest.raises(IndexError, match="table index out of range"):
            lua.eval(f"(...)(python.args{{[{key}] = 1}})", f)
    for key in ("true", "1.5"):
        with pytest.raises(TypeError, match="neither an integer nor a string"):
            lua.eval(f"(...)(python.args{{2, [{key}] = 1}})", f)
    with pytest.raises(mf.LuaError, match="bad argument #1 to 'args' .table expected, got number"):
        lua.eval("python.args(5)")


def test_many_arguments(lua):
    fill = "local t = {} for i = 1, 300 do t[i] = i t['k' .. i] = i end return (...)(python.args(t), unpack(t))"
    positional, keywords = lua.execute(fill, lambda *args, **kwargs: (args, kwargs))
    assert positional == (*range(1, 301), *range(1, 301))
    assert keywords == {f"k{i}": i for i in range(1, 301)}


def test_arguments_of_a_method_that_are_packed(lua):
    assert lua.eval("python.as_attrgetter(...).copy(python.args{})", {"a": 1}) == {"a": 1}
    assert lua.eval("(function(p) return p.move(python.args{p, 2}) end)(...)", Point(1)) == 3
    assert lua.eval("(function(d) d = python.as_attrgetter(d) return d.copy(python.args{d}) end)(...)", {1: 2}) == {
        1: 2
    }


def test_arguments_may_be_what_the_tensors_module_is_asked_about(lua):
    """A table with a metatable may be a tensor, as soon as a script has loaded the module."""
    make = lua.eval("function(f, ...) return f(python.args { setmetatable({}, {}), print, 7, ..., x = f, y = {} }) end")
    for _ in range(2):
        args, kwargs = make(mf.as_attrgetter(lambda *args, **kwargs: (args, kwargs)), 8)
        assert [mf.lua_type(a) for a in args] == ["table", "function", None, None] and args[2:] == (7, 8)
        assert kwargs.keys() == {"x", "y"}
        lua.execute("require 'moonferry'")


def test_names_of_arguments_have_the_encoding_of_sources():
    lua = mf.Lua(source_encoding="latin-1")
    assert lua.eval("(...)(python.args{['\\228'] = 1})", dict) == {"ä": 1}


def test_unpacks_lua_table(lua):
    @mf.unpacks_lua_table
    def f(x, y=2):
        return x, y

    class C:
        @mf.unpacks_lua_table_method
        def m(self, x, y=2):
            return x, y

    for call in ("f{x = 1}", "f{1}", "f(1)", "f{1, y = 2}", "f(1, 2)"):
        assert lua.eval(f"(function(f) return {call} end)(...)", f) == (1, 2)
        assert lua.eval(f"(function(o) return {call.replace('f', 'o:m', 1)} end)(...)", C()) == (1, 2)
    assert f(1) == (1, 2) and f.__name__ == "f"


def test_none(lua):
    assert lua.eval("python.none") is None
    assert lua.eval("... == nil", None) is True
    assert lua.eval("python.none ~= nil")
    assert lua.eval("tostring(python.none)") == "None"
    with pytest.raises(TypeError):
        lua.eval("python.none()")


def test_iteration(lua):
    collect = lua.eval("function(iter, o) local t = {} for a, b in iter(o) do t[#t + 1] = b or a end return t end")
    python = lua.globals().python
    assert list(collect(python.iter, [1, 2]).values()) == [1, 2]
    assert list(collect(python.iterex, {"a": 1, "b": 2}.items()).values()) == [1, 2]
    assert list(collect(python.enumerate, ["x", "y"]).values()) == ["x", "y"]
    assert list(collect(python.iter, [None, 1]).values()) == [None, 1]
    assert lua.eval("(function(o) for i, v in python.enumerate(o, 5) do return i, v end end)(...)", ["a"]) == (5, "a")
    with pytest.raises(TypeError):
        collect(python.iter, object())
    with pytest.raises(ZeroDivisionError):
        collect(python.iter, (1 // 0 for _ in "x"))
    with pytest.raises(mf.LuaError, match="number expected, got string"):
        python.enumerate([1], "abc")


def test_a_step_takes_iterators_alone(lua):
    for other in (len, [1], {}):
        with pytest.raises(mf.LuaError, match="a Python iterator is expected: python.iter makes one"):
            lua.eval("(python.iter({}))(...)".replace("{}", "python.builtins.range(3)"), other)


@pytest.mark.parametrize("other", ["{}", "nil", "5", "print"])
def test_a_step_takes_no_value_of_lua_s(lua, other):
    step = lua.eval("(python.iter(python.builtins.range(3)))")
    kind = lua.eval(f"type({other})")
    with pytest.raises(mf.LuaError, match=f"a Python object is expected, not a {kind}"):
        lua.execute(f"(...)({other})", step)


def test_a_loop_takes_apart_what_it_is_asked_to(lua):
    pairs, code = (
        [(1, 2), None, 3],
        "local t = {} for a, b in python.%s(...) do t[#t + 1] = tostring(a) .. tostring(b) end ",
    )
    says = {
        "iter": ["(1, 2)nil", "Nonenil", "3nil"],
        "iterex": ["12", "Nonenil", "3nil"],
        "enumerate": ["0(1, 2)", "1nil", "23"],
    }
    for verb, said in says.items():
        assert list(lua.execute(code % verb + "return t", pairs).values()) == said
    with pytest.raises(mf.LuaError, match="a tuple of more than 7000 values cannot be unpacked: 7001"):
        lua.execute("for a in python.iterex(...) do end", [(1,) * 7001])
    assert lua.execute("for a, b in python.iterex(...) do return b end", [(1,) * 7000]) == 1
    with pytest.raises(mf.LuaError, match="an empty tuple gives the loop no value, which would end it"):
        lua.execute("for a in python.iterex(...) do end", [(1, 2), (), (3, 4)])


def test_a_number_comes_before_none_in_a_tuple():
    lua = mf.Lua(unpack_returned_tuples=True)
    code = "for i, a, b in python.enumerate(...) do return i, type(a), b end"
    assert lua.execute(code, [(None, 1)]) == (0, "nil", 1)
    assert lua.execute("for a, b in python.iter(...) do return type(a), b end", [(None, 1)]) == ("userdata", 1)
    assert lua.execute("local n = 0 for i, a in python.enumerate(...) do n = n + i end return n", [(), (2,), ()]) == 3


def test_as_function_is_a_function(lua):
    assert lua.eval("type(python.as_function(...))", len) == "function"
    f = lua.eval("python.as_function(...)", len)
    assert f is len
    assert list(
        lua.eval(
            "(function(t, f) table.sort(t, python.as_function(f)) return t end)({3, 1, 2}, ...)", lambda a, b: a > b
        ).values()
    ) == [3, 2, 1]
    assert lua.eval("coroutine.wrap(python.as_function(...))('abc')", len) == 3


def test_eval_and_builtins_can_be_left_out():
    assert mf.Lua().eval("python.eval('1 + 1'), python.builtins.len('abc')") == (2, 3)
    assert mf.Lua(register_eval=False).eval("python.eval == nil")
    assert mf.Lua(register_builtins=False).eval("python.builtins == nil")


def test_tuples_are_unpacked_if_that_is_asked():
    def pair():
        return 1, None, 3

    assert mf.Lua().eval("select('#', (...)())", pair) == 1
    lua = mf.Lua(unpack_returned_tuples=True)
    assert lua.eval("select('#', (...)())", pair) == 3
    assert lua.eval("(...)()", pair) == (1, None, 3)
    assert lua.eval("(function(o) for a, b in python.iter(o) do return a, b end end)(...)", [(1, 2)]) == (1, 2)


def test_attribute_filter_and_handlers():
    def only_x(obj, name, setting):
        if name != "x" or setting:
            raise AttributeError(name)
        return name

    lua = mf.Lua(attribute_filter=only_x)
    assert lua.eval("(...).x", Point(4)) == 4
    for code in ("(...).move", "(function(o) o.x = 1 end)(...)", "(...).__class__"):
        with pytest.raises(AttributeError):
            lua.eval(code, Point(4))
    seen = []
    lua = mf.Lua(attribute_handlers=(lambda o, n: n + "!", lambda o, n, v: seen.append((n, v))))
    assert lua.eval("(...).abc", Point(1)) == "abc!" == lua.eval("(...).abc", {})
    lua.execute("local o = ... o.y = 5", Point(1))
    assert seen == [("y", 5)]
    for wrong in ({"attribute_filter": 5}, {"attribute_handlers": (1, 2)}, {"attribute_handlers": (len,)}):
        with pytest.raises(ValueError):
            mf.Lua(**wrong)


def test_operators_on_objects(lua):
    assert lua.eval("(...) + 1", 1j) == 1 + 1j
    assert lua.eval("#(...)", [1, 2, 3]) == 3
    assert lua.eval("(function(a, b) return a == b, a < b end)(...)", (1,), (2,)) == (False, True)


def test_a_length_that_is_no_number_of_lua_s_is_an_error_as_any_other(lua):
    assert lua.eval("#(...)", range(2**53)) == 2**53
    with pytest.raises(OverflowError):
        lua.eval("#(...)", range(2**53 + 1))


class Fails:
    """Nothing can be done with it."""

    def fail(self, *arguments):
        raise KeyError("fails")

    __len__ = __str__ = __add__ = __neg__ = __eq__ = __lt__ = __le__ = fail
    __hash__ = None


@pytest.mark.parametrize("code", ["#a", "a .. 'x'", "'x' .. a", "a .. b", "a + 1", "-a", "a == b", "a < b", "a <= b"])
def test_what_an_operator_of_python_raises_is_the_error_in_lua(lua, code):
    with pytest.raises(KeyError, match="fails"):
        lua.eval(f"(function(a, b) return {code} end)(...)", Fails(), Fails())


@pytest.mark.parametrize("code, kind", [("a .. {}", "table"), ("{} .. a", "table"), ("a .. print", "function")])
def test_what_has_no_text_is_not_joined_to_that_of_an_object(lua, code, kind):
    with pytest.raises(mf.LuaError, match=f"a {kind} cannot be concatenated"):
        lua.eval(f"(function(a) return {code} end)(...)", 1j)


def test_a_collected_object_is_reported(lua):
    resurrect = lua.eval("""
        function(o)
          local p = newproxy(true)
          local kept
          local mt = getmetatable(p)
          mt.o = o
          mt.__gc = function(q) kept = getmetatable(q).o end
          p, mt, o = nil
          collectgarbage() collectgarbage()
          return pcall(function() return kept.x end)
        end""")
    lua.execute("collectgarbage('stop')")
    ok, error = resurrect(Point(1))
    assert ok or "deleted python object" in str(error)


FAKE = ["fake.x", "fake()", "tostring(fake)", "fake .. 'x'", "python.iter(fake)", "python.as_attrgetter(fake)"]


@pytest.mark.parametrize("code", FAKE)
def test_a_table_with_the_metatable_of_objects_is_none(lua, code):
    lua.execute("fake = {} debug.setmetatable(fake, debug.getmetatable(python.builtins))")
    with pytest.raises(mf.LuaError, match="a Python object is expected, (not a|got) table"):
        lua.eval(code)
    with pytest.raises(mf.LuaError, match="a Python object is expected, not a table"):
        lua.execute("fake.x = 1")


class Store:
    """It has items, and refuses them."""

    def __getitem__(self, key):
        raise KeyError(key)

    def __setitem__(self, key, value):
        raise KeyError(key)


class Array(Store):
    """It looks like an array."""

    __dlpack__ = None

    def __init__(self, error):
        self.error = error

    def __getitem__(self, key):
        raise self.error


def test_an_item_that_is_refused_is_an_error(lua):
    with pytest.raises(KeyError, match="a"):
        lua.execute("local o = ... o.a = 1", Store())
    with pytest.raises(TypeError, match="must be integers"):
        lua.execute("local o = ... return o.a", [1])
    with pytest.raises(TypeError, match="must be integers"):
        lua.execute("local o = ... o.a = 1", [1])


@pytest.mark.parametrize("error", [IndexError, TypeError])
def test_an_array_that_is_asked_for_a_name_says_what_it_is(lua, error):
    with pytest.raises(
        error, match="^an array of Python's, <class '.*Array'>, has no item 'rows', which is what o.name asks for"
    ):
        lua.execute("local o = ... return o.rows", Array(error("no")))


def test_another_error_of_an_array_is_its_own(lua):
    with pytest.raises(ValueError, match="^its own\n"):
        lua.execute("local o = ... return o.rows", Array(ValueError("its own")))


def test_handlers_of_attributes_are_asked_for_items_too():
    log = []
    lua = mf.Lua(attribute_handlers=(lambda o, name: (log.append(name), 5)[1], lambda o, n, v: log.append((n, v))))
    read = lua.eval("function(o) local a = o.a o.b = 1 return a end")
    for o in ({"a": 1}, Point(3), mf.as_attrgetter({})):
        for _ in range(3):
            assert read(o) == 5
        assert log == ["a", ("b", 1)] * 3
        log.clear()


@pytest.mark.parametrize("handlers", [None, (getattr, setattr)], ids=["", "handlers"])
def test_an_attribute_that_cannot_be_set_is_an_error_where_it_is_set(handlers):
    lua = mf.Lua(attribute_handlers=handlers)
    code = "local o, log = ... local ok, e = pcall(function() o.x = 1 log(1) end) return ok, e"
    ok, error = lua.execute(code, object(), pytest.fail)
    assert ok is False and isinstance(error, AttributeError)


def test_text_may_have_a_zero_in_it(lua):
    class Text:
        def __str__(self):
            return "a\0b"

    assert lua.eval("tostring(...)", Text()) == "a\0b"
    assert lua.eval("#tostring(...)", Text()) == 3


def test_text_of_an_object_has_the_encoding_of_strings():
    class Text:
        def __str__(self):
            return "\xe4"

    for encoding, nbytes in (("latin-1", 1), ("UTF-8", 2), (None, 2), ("utf-16-le", 2)):
        length = mf.Lua(encoding=encoding, source_encoding="ascii").eval(b"#tostring(...)", Text())
        assert length == nbytes


def test_a_script_may_require_what_is_there(lua):
    assert lua.eval("require 'python' == python and package.loaded.python == python")


def test_a_hosted_python_leaves_its_arguments_and_its_paths_alone(lua):
    def is_set_up():
        return list(sys.argv), list(sys.path), list(sys.meta_path)

    before = is_set_up()
    lua.execute("arg = { [-1] = 'luajit', [0] = 'script.lua', 'a' }")
    assert lua.execute("return require('moonferry.python').op.add(1, 2)") == 3
    assert is_set_up() == before


def test_a_table_with_a_metatable_loads_no_moonferry(lua):
    assert mf.lua_type(lua.eval("setmetatable({}, {})")) == "table"
    assert lua.eval("package.loaded.moonferry") is None


def test_a_tensor_is_one_after_lua_has_forgotten_the_module():
    lua = mf.Lua()
    t = lua.eval("require('moonferry').zeros(3)")
    assert isinstance(lua.execute("package.loaded.moonferry = nil return ...", t), mf.Tensor)


@pytest.mark.parametrize("code", ["error('text', 0)", "error()", "error(python.none)"])
@pytest.mark.parametrize("encoding", ["UTF-8", None])
def test_what_python_lets_through_of_lua_stays_an_exception_where_it_was_text_or_nothing(encoding, code):
    lua = mf.Lua(encoding=encoding)
    fails = lua.eval(f"function() {code} end".encode())
    kind = lua.eval(b"function(f) return type(select(2, pcall(f))) end")(lambda: fails())
    assert kind in ("userdata", b"userdata")


@pytest.mark.parametrize(("status", "code"), [("", 0), ("true", 0), ("false", 1), ("-2 ^ 31", -(2**31))])
def test_os_exit_is_an_exit_of_python_s(lua, status, code):
    with pytest.raises(SystemExit) as raised:
        lua.execute(f"os.exit({status})")
    assert raised.value.code == code


@pytest.mark.parametrize("status", ["1e300", "-1 / 0", "0 / 0", "2 ^ 31", "-2 ^ 31 - 1"])
def test_os_exit_needs_a_status(lua, status):
    with pytest.raises(mf.LuaError, match="is no status; -2147483648 to 2147483647 expected"):
        lua.execute(f"os.exit({status})")
