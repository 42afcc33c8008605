"""Lua tables in Python, and tables made of Python's containers."""

import codecs
import collections
import gc
import itertools
import sys

import pytest

import moonferry as mf


@pytest.fixture
def lua():
    return mf.Lua()


def test_items_and_fields(lua):
    t = lua.eval("{10, 20, name = 'x', [2.5] = 'half', [true] = 'yes'}")
    assert (t[1], t[2], t["name"], t.name, t[2.5], t[True]) == (10, 20, "x", "x", "half", "yes")
    assert t[3] is None and t.missing is None and len(t) == 2
    t[3] = 30
    t.name = "y"
    del t[1], t.missing
    assert (t[3], t.name, t[1]) == (30, "y", None)
    assert "name" in t and "missing" not in t and 2 in t and 7 not in t and None not in t


def test_a_field_may_have_the_name_of_a_method(lua):
    t = lua.eval("{keys = 1, coroutine = 2}")
    assert callable(t.keys) and t["keys"] == 1
    assert t.coroutine == 2
    t.values = 5
    assert t["values"] == 5
    with pytest.raises(AttributeError):
        t.__no_such__  # noqa: B018


def test_none_as_a_key_is_python_none(lua):
    t = lua.table()
    t[None] = 1
    assert t[None] == 1 and None in t
    assert lua.eval("(...)[python.none]", t) == 1
    del t[None]
    assert None not in t


def test_keys_that_lua_refuses(lua):
    t = lua.table()
    with pytest.raises(mf.LuaError, match="NaN"):
        t[float("nan")] = 1
    with pytest.raises(OverflowError):
        t[2**60 + 1] = 1


def test_a_table_has_no_slices(lua):
    with pytest.raises(TypeError, match="no slices"):
        lua.table(1, 2, 3)[1:2]


def test_iteration_gives_elements_first_and_each_key_once(lua):
    t = lua.eval("{1, 2, 3, x = 4, [10] = 5, [-1] = 6}")
    assert list(t)[:3] == [1, 2, 3] and sorted(map(str, t)) == ["-1", "1", "10", "2", "3", "x"]
    assert list(t.values())[:3] == [1, 2, 3]
    assert dict(t.items()) == {1: 1, 2: 2, 3: 3, "x": 4, 10: 5, -1: 6} == dict(t)
    assert [list(lua.eval("{}").values()), list(lua.eval("{x = 1}").items())] == [[], [("x", 1)]]


@pytest.mark.parametrize("n", range(0, 40, 3))
def test_iteration_over_tables_that_grew_backwards(lua, n):
    t = lua.eval("(function(n) local t = {} for i = n, 1, -1 do t[i] = i end return t end)(...)", n)
    assert sorted(t) == list(range(1, n + 1)) == sorted(t.values())


def test_a_table_may_lose_what_is_visited(lua):
    t = lua.eval("{1, 2, 3, 4, a = 1, b = 2}")
    for key in t:
        del t[key]
    assert list(t) == []


def test_an_iterator_stays_at_its_end(lua):
    i = iter(lua.eval("{1, 2, 3}"))
    list(i)
    with pytest.raises(StopIteration):
        next(i)


@pytest.mark.parametrize("names", [0, 20])
@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_elements_come_first_and_in_order_wherever_lua_has_them(lua, n, names):
    make = "function(n, names) local t = {} for i = n, 1, -1 do t[i] = i end for i = 1, names do t['k' .. i] = i end "
    keys = list(lua.eval(make + "return t end")(n, names))
    assert keys[:n] == list(range(1, n + 1)) and sorted(keys[n:]) == sorted(f"k{i}" for i in range(1, names + 1))


def test_a_key_that_is_0_is_one_of_the_others(lua):
    assert list(lua.eval("{ [0] = 'z' }").items()) == [(0, "z")]
    assert list(lua.eval("{ [0] = 'z', 'a' }").items()) == [(1, "a"), (0, "z")]


def test_a_table_may_lose_its_elements_and_get_fields_meanwhile(lua):
    t = lua.eval("{ 10 }")
    items = iter(t.items())
    assert next(items) == (1, 10)
    lua.execute("local t = ... t[1] = nil for i = 1, 100 do t['k' .. i] = i end", t)
    assert sorted(value for _, value in items) == list(range(1, 101))


def test_a_table_may_be_laid_out_anew_without_the_elements_that_are_next(lua):
    """What comes after an element that is gone, and has no place any more, is no question that Lua answers."""
    t = lua.eval("{10, 20, 30, 40, 50, 60, 70, 80}")
    values = iter(t.values())
    assert [next(values) for _ in range(6)] == [10, 20, 30, 40, 50, 60]
    lua.execute("local t = ... for i = 2, 8 do t[i] = nil end for i = 1, 20 do t['k' .. i] = 'field' end", t)
    assert set(values) == {"field"}


@pytest.mark.parametrize("fields", range(7))
def test_a_name_that_reads_as_a_number_is_no_element(lua, fields):
    """Wherever Lua has it: in front of the element, which has its place beside the names, or behind."""
    make = "local t, n = {}, ... for i = 1, n do t['b' .. i] = 0 end t['1'] = 'name' t[1] = 'element' return t"
    t = lua.execute(make, fields)
    assert list(t.values())[0] == "element" and sorted(map(str, t))[0] == "1"


@pytest.mark.parametrize("code", ["{}", "{ 1, 2 }", "{ a = 1 }", "{ 1, a = 1 }"])
def test_an_iterator_lets_go_of_its_table_at_its_end(lua, code):
    t = lua.eval(code)
    before, items = sys.getrefcount(t), t.items()
    assert sys.getrefcount(t) == before + 1
    for _ in items:
        pass
    assert sys.getrefcount(t) == before and next(items, None) is None


def test_values_of_every_kind_come_out_of_iterators(lua):
    t = lua.eval("{{1}, print, 'x', true, 1.5, python.none}")
    kinds = [mf.lua_type(v) or type(v).__name__ for v in t.values()]
    assert kinds == ["table", "function", "str", "bool", "float", "NoneType"]
    assert [k for k, _ in t.items()] == [1, 2, 3, 4, 5, 6]


def test_metamethods_are_honoured(lua):
    t = lua.eval("setmetatable({}, {__index = function(t, k) return k .. '?' end})")
    assert t.x == "x?" and t["y"] == "y?"
    log = lua.eval("setmetatable({}, {__newindex = function(t, k, v) rawset(t, k, v * 2) end})")
    log.x = 4
    assert log.x == 8
    bad = lua.eval("setmetatable({}, {__index = function() error('no index') end, __newindex = error})")
    with pytest.raises(mf.LuaError, match="no index"):
        bad.x  # noqa: B018
    with pytest.raises(mf.LuaError):
        bad.x = 1
    assert lua.eval("setmetatable({}, {__call = function(self, a) return a + 1 end})")(4) == 5


def test_a_field_is_set_in_a_table_that_has_its_metatable_as_a_key(lua):
    t = lua.execute("local meta = {} local t = setmetatable({}, meta) t[meta] = 1 return t")
    t[5] = 2
    assert t[5] == 2 and sorted(t.values()) == [1, 2]


def test_table_and_table_from(lua):
    t = lua.table(1, "two", None, x=3)
    assert (t[1], t[2], t[3], t.x) == (1, "two", None, 3)
    pairs = collections.OrderedDict(a=1, b=2)
    t = lua.table_from([10, 20], {"x": 1}, (30,), pairs, lua.eval("{y = 7, [1] = 11}"), range(2))
    assert list(t.values())[:5] == [11, 20, 30, 0, 1] and (t.x, t.a, t.b, t.y) == (1, 1, 2, 7)
    assert list(lua.table_from(x * x for x in range(4)).values()) == [0, 1, 4, 9]
    with pytest.raises(TypeError):
        lua.table_from(5)


def test_table_from_a_generator_that_calls_lua(lua):
    double = lua.eval("function(x) return 2 * x end")
    assert list(lua.table_from(double(i) for i in range(5)).values()) == [0, 2, 4, 6, 8]


def test_nested_containers_stay_python_unless_asked(lua):
    inner = [1, 2]
    t = lua.table_from({"inner": inner})
    assert t.inner is inner
    t = lua.table_from({"inner": inner, "more": {"x": (1, {"y": "z"})}}, recursive=True)
    assert list(t.inner.values()) == [1, 2] and t.more.x[2].y == "z"
    t = lua.table_from([inner, 3], {"inner": inner}, ([5],), recursive=True)
    assert [list(v.values()) if v != 3 else v for v in t.values()] == [[1, 2], 3, [5], [1, 2]]
    assert t[1] == t.inner and t[1] != t[3] and len(lua.table_from(recursive=True)) == 0


@pytest.mark.parametrize("more", [(), ({},)])
def test_recursive_tables_have_tables_as_keys_as_well(lua, more):
    (key,) = lua.table_from({(1, 2): 3}, *more, recursive=True)
    assert mf.lua_type(key) == "table" and list(key.values()) == [1, 2]


def test_recursive_tables_keep_loops_and_sharing(lua):
    shared = [1]
    loop = {"shared": shared, "again": shared}
    loop["self"] = loop
    t = lua.table_from(loop, recursive=True)
    assert t == t["self"] and t.shared == t.again
    assert lua.eval("type((...).self.self.shared)", t) == "table"


WHEN_DECODING = []


def decode_and_tell(data, errors="strict"):
    text = bytes(data).decode()
    while WHEN_DECODING:
        WHEN_DECODING.pop()(text)
    return text, len(data)


@pytest.fixture(scope="module")
def told():
    """The encoding x-told. Before 3.10 an encoding stays for good."""
    found = codecs.CodecInfo(codecs.getencoder("utf-8"), decode_and_tell, name="x-told")
    search = {"x_told": found, "x-told": found}.get  # 3.15: as it is
    codecs.register(search)
    yield
    if hasattr(codecs, "unregister"):
        codecs.unregister(search)


@pytest.fixture
def on_decode(told):
    """What calls whoever is on the list as soon as a string of its encoding, x-told, comes from Lua."""
    yield WHEN_DECODING
    WHEN_DECODING.clear()


@pytest.mark.parametrize("code", ["{'a', 'b', 'c'}", "{x = 'a', y = 'b', z = 'c'}", "{'a', 'b', x = 'c'}"])
def test_a_step_inside_of_a_step_gives_the_next_pair_to_one_alone(on_decode, code):
    table = mf.Lua(encoding="x-told").eval(code)
    pairs, items, inner = dict(table.items()), table.items(), []
    on_decode.append(lambda text: inner.append(next(items)))
    outer = list(items)
    assert (len(inner), len(outer)) == (1, 2) and dict(inner + outer) == pairs


def test_an_iteration_that_ends_inside_of_its_own_step(on_decode):
    """Somebody takes all that is left, to the end, while a step makes an object of its key."""
    lua = mf.Lua(encoding="x-told")
    fields = lua.eval("{ a = {}, b = {}, c = {}, d = {}, e = {} }")
    references = lua.eval("""function()
      local count = 0
      for _ in pairs(debug.getregistry()) do count = count + 1 end
      return count
    end""")

    counts = []
    for _ in range(40):
        items, rest = iter(fields.items()), []
        on_decode.append(lambda text, items=items, rest=rest: rest.extend(items))
        key, _value = next(items)
        assert sorted([key, *(name for name, _ in rest)]) == ["a", "b", "c", "d", "e"]
        assert next(items, None) is None
        del items, rest, _value
        gc.collect()
        counts.append(references())
    assert counts[20] == counts[-1], counts


@pytest.mark.parametrize("code", ["{'a', 'b', 'c'}", "{a = 'a', b = 'b', c = 'c'}"])
def test_an_iteration_goes_on_after_a_value_that_is_no_text(code):
    values = mf.Lua(encoding="ascii").eval(code.replace("'b'", "'\\xff'")).values()
    seen = []
    for _ in range(4):
        try:
            seen.append(next(values, None))
        except UnicodeDecodeError:
            seen.append("?")
    assert sorted(seen[:3]) == ["?", "a", "c"] and seen[3] is None


def test_a_field_has_the_encoding_of_strings_where_the_code_has_another():
    table = mf.Lua(encoding="latin-1", source_encoding="UTF-8").table_from({"é": 1})
    assert table.é == table["é"] == 1
    table.é = 2
    assert dict(table) == {"é": 2}


def test_the_text_of_an_iterator_says_of_which_table_it_is(lua):
    items = lua.table(1).items()
    assert repr(items).startswith("LuaIter(<Lua table at ")
    assert list(items) == [(1, 1)] and repr(items) == "LuaIter(None)"


def in_hash(lua, n, names):
    """A table that got its elements from the last to the first, each of them a table."""
    make = "function(n, names) local t = {} for i = 1, names do t['k' .. i] = i end "
    return lua.eval(make + "for i = n, 1, -1 do t[i] = {i} end return t end")(n, names)


@pytest.mark.parametrize("names", [0, 20])
@pytest.mark.parametrize("n", [2, 3, 7, 20])
def test_elements_that_are_tables_come_in_order_wherever_lua_has_them(lua, n, names):
    got = list(itertools.islice(in_hash(lua, n, names).items(), n))
    assert [(key, value[1]) for key, value in got] == [(i, i) for i in range(1, n + 1)]


def test_a_step_leaves_alone_what_a_call_of_lua_s_has_beside_it(on_decode):
    """The table is gone through while the first argument of three comes from Lua."""
    lua = mf.Lua(encoding="x-told")
    table, seen = lua.eval("{1, 2}"), []
    call = lua.eval("function(f) return f('a', 'b', 'c') end")
    on_decode.append(lambda text: seen.extend(table.values()))
    got = call(lambda *arguments: list(arguments))
    assert (seen, got) == ([1, 2], ["a", "b", "c"])


def test_a_signals_exception_in_the_hash_of_a_name_is_not_taken_for_a_missing_attribute():
    class Name(str):
        def __hash__(self):
            raise KeyboardInterrupt

    table = mf.Lua().table(x=1)
    for name in ("x", "keys", "nothing"):
        with pytest.raises(KeyboardInterrupt):
            getattr(table, Name(name))
