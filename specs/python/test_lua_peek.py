"""Fields of tables, elements and tensors that cross by a short way where that is possible: the answers are the same.

A field is read and written a few times each, because names are remembered from the second time on.
"""

import codecs
import gc
import sys
import threading

import pytest

import moonferry as mf

VALUES = [None, True, False, 0, -1, 2**53, 0.5, float("inf"), "", "text", "Fähre", "x" * 1000]


@pytest.fixture
def lua():
    state = mf.Lua()
    yield state
    state.globals().held = None
    for _ in range(3):
        state.gccollect()


def three_times(function):
    return [function() for _ in range(3)]


def collecting_error_of(act, finalizer, *arguments):
    """What ${act} raises where Python collects as soon as it makes an object, and finds one with that finalizer. (A
    function's first call makes a frame, up to 3.10.)"""
    before = gc.get_threshold()
    gc.collect()
    gc.disable()
    gc.set_threshold(1)
    garbage = type("Garbage", (), {"__del__": finalizer})()
    garbage.itself = garbage
    del garbage
    try:
        raise KeyError  # what is raised while another is handled is an object at once
    except KeyError:
        gc.enable()
        try:
            act(*arguments)
        except ValueError as error:
            return error
    finally:
        gc.set_threshold(*before)
        gc.enable()


@pytest.mark.parametrize("key", ["name", "a name that is longer than most names are", 1, 2, 2.5, True, -7])
def test_fields_keep_what_was_written(lua, key):
    t = lua.eval("{10, 20}")
    for value in VALUES:
        for _ in range(3):
            t[key] = value
            assert three_times(lambda: t[key]) == [value] * 3
            assert type(t[key]) is type(value)
    assert len(t) == 2 if key not in (1, 2) else t[3 - key] == 30 - 10 * key


def test_a_field_may_come_go_and_change_its_type(lua):
    t = lua.table()
    kinds = {"number": 1, "table": lua.table(1), "string": "text", "nil": None, "userdata": len, "boolean": True}
    for kind, value in kinds.items():
        t.field = value
        assert three_times(lambda: t.field) == [value] * 3
        assert lua.eval("type((...).field)", t) == kind
        assert ("field" in t) == (value is not None)


def test_a_metatable_is_asked_from_when_it_is_there(lua):
    t = lua.table(field=1)
    assert three_times(lambda: t.field) == [1] * 3
    lua.execute("setmetatable(..., {__index = function(_, k) return k .. '!' end, __newindex = error})", t)
    t.field = 2
    assert (t.field, t.other, t[5]) == (2, "other!", "5!")
    with pytest.raises(mf.LuaError):
        t.other = 1
    lua.execute("setmetatable(..., nil)", t)
    assert (t.field, t.other) == (2, None)


def test_names_belong_to_their_state():
    states = [mf.Lua() for _ in range(3)]
    tables = [state.table(name=i) for i, state in enumerate(states)]
    for _ in range(3):
        assert [t.name for t in tables] == [0, 1, 2]
    del states[1], tables[1]
    assert [t.name for t in tables] == [0, 2]
    narrow = mf.Lua(encoding="latin-1")
    t = narrow.eval("{['\\228'] = 1}")
    assert three_times(lambda: t["ä"]) == [1] * 3
    bare = mf.Lua(encoding=None)
    t = bare.eval("{name = 'x'}")
    assert three_times(lambda: t[b"name"]) == [b"x"] * 3 == three_times(lambda: t.name)
    assert three_times(lambda: t["name"]) == [None] * 3


def test_more_names_than_are_remembered(lua):
    t = lua.table()
    names = [f"name{i}" for i in range(2000)]
    for _ in range(4):
        for i, name in enumerate(names):
            t[name] = i
        assert [t[name] for name in names] == list(range(2000))


def test_names_take_one_anothers_places_and_are_given_back():
    lua, names = mf.Lua(), [f"name {i}" for i in range(500)]
    before = [sys.getrefcount(name) for name in names]
    t = lua.table()
    for _ in range(2):
        for name in names:
            t[name] = name
            assert [t[name] for _ in range(4)] == [name] * 4
    t = lua = name = None
    gc.collect()
    assert [sys.getrefcount(name) for name in names] == before


class Echo:
    def __getattr__(self, name):
        return name


def test_a_name_in_the_memory_of_another_one_is_itself(lua):
    assert (
        lua.eval(
            """(function(o)
          local wrong = 0
          for i = 1, 100 do
            local name = i % 2 == 0 and ("name %d"):format(i) or ("name %d %d"):format(i + 1, i)
            if o[name] ~= name then wrong = wrong + 1 end
            name = nil
            collectgarbage()
          end
          return wrong
        end)(...)""",
            mf.luajit.as_attrgetter(Echo()),
        )
        == 0
    )


def test_a_name_that_is_no_text_is_an_error_of_the_codec(lua):
    with pytest.raises(UnicodeDecodeError):
        lua.eval("(...)['\\255']", mf.luajit.as_attrgetter(Echo()))


def test_a_key_that_a_handler_makes_a_name_of_is_asked_for_each_time(lua):
    names = iter(["a", "b", "c", "d"])
    lua.set_overflow_handler(lambda number: next(names))
    t, key = lua.table(a=1, b=2, c=3, d=4), 2**70
    assert [t[key] for _ in range(4)] == [1, 2, 3, 4]


def test_text_that_is_none_is_an_error_each_time(lua):
    t = lua.eval("{'ok', '\\255', 'ok', key = '\\255'}")
    for _ in range(3):
        with pytest.raises(UnicodeDecodeError):
            t.key  # noqa: B018
    steps = t.values()
    assert next(steps) == "ok"
    with pytest.raises(UnicodeDecodeError):
        next(steps)
    assert list(t.keys()) == [1, 2, 3, "key"]


READS = {"an item": lambda t, steps: t[1], "a step": lambda t, steps: next(steps)}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("before, after", [(0, 0), (0, 7), (7, 0), (5, 20), (20, 5), (8, 0), (40, 7)])
def test_a_handler_for_errors_of_codecs_may_close_the_state(read, before, after):
    """Wherever in a text that is none the byte is which no character begins with."""
    lua = mf.Lua()
    t = lua.eval("{...}", b"x" * before + b"\x80" + b"x" * after)
    strict, said = codecs.lookup_error("strict"), []

    def handle(error):
        with pytest.raises(RuntimeError) as info:
            lua.close()
        said.append(str(info.value))
        raise error

    codecs.register_error("strict", handle)
    try:
        with pytest.raises(UnicodeDecodeError):
            READS[read](t, t.values())
    finally:
        codecs.register_error("strict", strict)
    assert "called from inside of a call into this Lua state" in said[0]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a collection runs no more where an object is made")
@pytest.mark.parametrize("use", [*READS, "a tensor is closed"])
def test_no_collection_closes_the_state_where_a_value_is_refused(use):
    lua = mf.Lua()
    t, tensor, said = lua.eval("{'\\128', 2}"), mf.zeros(2), []
    t[2] = tensor
    tensor.close()
    usual = lua.eval("{'a', 2}")

    def close(garbage):
        try:
            lua.close()
        except RuntimeError as error:
            said.append(str(error))

    def act(t, steps, value):
        if use in READS:
            READS[use](t, steps)
        else:
            t[2] = value

    act(usual, usual.values(), 5)
    error = collecting_error_of(act, close, t, t.values(), tensor)
    assert type(error) is (UnicodeDecodeError if use in READS else ValueError)
    assert said == []  # it came before the call or behind it: in its midst nothing is collected


def test_elements_of_all_kinds_in_their_order(lua):
    t = lua.eval("{1, 'a', {2}, true, function() end, 0.5, '', coroutine.create(print), x = 1}")
    kinds = ["number", "string", "table", "boolean", "function", "number", "string", "thread", "number"]
    assert [lua.eval("type(...)", value) for value in t.values()][:7] == kinds[:7]
    assert [key for key, _ in t.items()] == [1, 2, 3, 4, 5, 6, 7, 8, "x"]
    assert [value for _, value in t.items()][2][1] == 2


def test_an_iteration_sees_what_is_written_on_the_way(lua):
    t = lua.eval("{1, 2, 3, 4}")
    seen = []
    for key, value in t.items():
        seen.append(value)
        if key < 4:
            t[key + 1] = value * 10
    assert seen == [1, 10, 100, 1000]
    steps = t.values()
    assert next(steps) == 1
    for key in (2, 3, 4):
        t[key] = None
    assert list(steps) == []


def test_from_callbacks_at_any_depth_and_in_coroutines(lua):
    t = lua.eval("{1, 2, 3, name = 'n'}")

    resume = lua.eval("function(f, n) return coroutine.wrap(function() return f(n) end)() end")

    def look(depth):
        assert list(t.values())[:3] == [1, 2, 3] and t.name == "n" and t[2] == 2
        t[2] = 2
        return resume(look, depth - 1) if depth else 0

    assert look(12) == 0
    assert lua.eval("(function(f, ...) return f(0), ... end)(...)", look, *range(15)) == (0, *range(15))


def test_eight_threads_on_one_table(lua):
    t = lua.eval("{0, 0, 0, 0, 0, 0, 0, 0, x = 0}")
    spin = lua.eval("function(n, f) local s = 0 for i = 1, n do s = s + i end f() return s end")
    wrong = []

    def work(mine):
        for i in range(300):
            t[mine] = i
            if t[mine] != i or len(list(t.values())) != 9 or (i % 10 == 0 and spin(100, lambda: None) != 5050):
                wrong.append((mine, i))
            t.x = i

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and list(t.values())[:8] == [299] * 8


def test_a_tensor_may_cross_any_number_of_times(lua):
    t = mf.zeros((2,))
    hold = lua.eval("function(x) if x then held = x end return held end")
    hold(t)
    assert {hold().data_ptr for _ in range(5)} == {t.data_ptr}
    assert [x.data_ptr for x in lua.eval("{held, held}").values()] == [t.data_ptr] * 2
    lua.execute("assert(held == (...)) held:close()", t)
    with pytest.raises(mf.LuaError, match="closed|none"):
        hold()
    hold(t)
    assert hold().data_ptr == t.data_ptr
    for wrong in ("nil", "5", "'x'", "{}", "require('ffi').new('int64_t[2]')"):
        lua.execute(f"rawset(held, '_handle', {wrong})")
        with pytest.raises(mf.LuaError):
            hold()


def test_a_tensor_of_lua_that_crosses_twice_comes_back_as_another_value(lua):
    make = lua.eval("function() mine = mine or require('moonferry').zeros({2}) return mine end")
    first, second = make(), make()
    assert first.data_ptr == second.data_ptr
    assert lua.eval("rawequal(mine, ...)", first) is False
    lua.execute("mine:close(); (...):put(0, 7)", second)
    assert first[0] == 7


def test_a_step_of_something_that_is_no_iterator_is_an_error(lua):
    for wrong in ("python.builtins.len", "python.builtins.list()", "{}", "5"):
        with pytest.raises(mf.LuaError, match="expected"):
            lua.execute(f"local step = python.iter(python.builtins.list()) local x = step({wrong}) return x")


def test_items_of_every_kind_come_out_of_an_iterator(lua):
    items = [1, None, "text", (1, 2), len, 2.5, None, mf.zeros((1,)), [3], True]
    kinds = lua.execute("local t = {} for x in python.iter(...) do t[#t + 1] = type(x) end return t", items)
    plain = ["number", "userdata", "string", "userdata", "userdata", "number", "userdata", "table"]
    assert list(kinds.values()) == [*plain, "userdata", "boolean"]
    for way in ("iter", "iterex", "enumerate"):
        failing = (1 // (3 - i) for i in range(9))
        with pytest.raises(ZeroDivisionError):
            lua.execute(f"for x in python.{way}(...) do end", failing)


def test_attributes_of_every_kind_again_and_again(lua):
    class Thing:
        number, text, nothing, function, flag = 1, "text", None, len, True

        @property
        def fails(self):
            raise KeyError("fails")

        @property
        def big(self):
            return 2**60

    thing, look = Thing(), lua.eval("function(o, name) return type(o[name]) end")
    kinds = {"number": "number", "text": "string", "nothing": "nil", "function": "userdata", "flag": "boolean"}
    for _ in range(3):
        assert {name: look(thing, name) for name in kinds} == kinds
        for name, error in {"fails": KeyError, "missing": AttributeError, "big": OverflowError}.items():
            with pytest.raises(error):
                look(thing, name)


def test_an_attribute_may_wait_for_a_thread_that_uses_the_state(lua):
    class Waits:
        @property
        def value(self):
            found = []
            thread = threading.Thread(target=lambda: found.append(lua.eval("6 * 7")))
            thread.start()
            thread.join(20)
            return found[0]

        def __getitem__(self, key):
            return self.value

    look = lua.eval("function(o) return o.value, python.as_itemgetter(o)[1] end")
    assert [look(python) for python in [lua.eval("python.as_attrgetter(...)", Waits())] * 3] == [(42, 42)] * 3


def test_another_thread_can_use_the_state_after_a_field_was_read(lua):
    table, found = lua.table(name=7), []
    assert three_times(lambda: table.name) == [7] * 3
    thread = threading.Thread(target=lambda: found.append(lua.eval("6 * 7")), daemon=True)
    thread.start()
    thread.join(20)
    assert found == [42]


def test_a_field_is_read_however_full_luas_stack_is(lua):
    """It is read on the stack of the function that has called Python, wherever that ends."""
    table = lua.table(name=7)
    read = lambda *arguments: three_times(lambda: table.name) + [len(arguments)]  # noqa: E731
    call = lua.eval("function(f, n) local t = {} for i = 1, n do t[i] = i end return f(unpack(t)) end")
    for count in range(220):
        assert call(read, count) == [7, 7, 7, count]


@pytest.mark.parametrize(
    "make", [lambda: int("10" * 8), lambda: float("2.5"), lambda: tuple("a"), lambda: "".join("ab")]
)
def test_a_key_that_becomes_no_string_of_lua_is_held_no_longer_than_its_table(make):
    key, lua = make(), mf.Lua(encoding=None)
    before, table = sys.getrefcount(key), lua.table()
    for _ in range(3):
        table[key] = 1
        assert table[key] == 1
    del table
    for _ in range(3):
        lua.gccollect()
        gc.collect()
    assert sys.getrefcount(key) == before


def test_a_name_is_held_once_however_often_it_is_read(lua):
    key, table = "".join(["a", "name"]), lua.table(aname=7)
    before = sys.getrefcount(key)
    assert [table[key] for _ in range(5)] == [7] * 5
    assert sys.getrefcount(key) == before + 1
