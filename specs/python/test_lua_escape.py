"""Ways out of a sandbox through the Python objects that a script is given: each must end where the page says.

Each attempt runs twice. In a sandbox it is refused, by the name of the attribute that leads out. Without one the same
code gets what it wants, which shows that the attempt is one.
"""

import ctypes
import dataclasses
import functools
import json
import math
import operator
import string
from collections import UserString

import numpy as np
import pytest

import moonferry as mf
from escape_objects import (
    SECRET,
    Color,
    Compiled,
    Holder,
    Label,
    Pair,
    Point,
    Thing,
    async_generator,
    cached,
    closure,
    dispatched,
    fails,
    frame,
    fresh_class,
    fresh_module,
    generator,
    has_limit_9,
    helper,
    outer_generator,
    started,
    traceback,
    unawaited,
    wrapped,
)
from moonferry.luajit import as_attrgetter, sandbox_filter


def is_secret(got):
    return got == SECRET or (isinstance(got, (list, tuple)) and SECRET in got)


def is_there(got):
    return got is not None


# What is handed in, the code, the attribute that is refused, and whether the code got out where nobody refused it.
ATTEMPTS = {
    # Functions and methods.
    "globals of a function": (lambda: helper, "return (...).__globals__.SECRET", "__globals__", is_secret),
    "globals of a compiled function": (Compiled, "return (...).func_globals.SECRET", "func_globals", is_secret),
    "defaults of a compiled function": (Compiled, "return (...).func_defaults[0]", "func_defaults", is_secret),
    "globals of the class of such": (lambda: Compiled, "return (...).func_globals.SECRET", "func_globals", is_secret),
    "globals, through a lambda": (lambda: lambda: 0, "return (...).__globals__.SECRET", "__globals__", is_secret),
    "builtins of a function": (lambda: helper, "return (...).__globals__.__builtins__", "__globals__", is_there),
    "code of a function": (lambda: helper, "return (...).__code__.co_filename", "__code__", is_there),
    "constants of code": (generator, "return (...).gi_code.co_consts", "gi_code", is_there),
    "closure": (closure, "return (...).__closure__[0].cell_contents", "__closure__", is_secret),
    "cell": (lambda: closure().__closure__[0], "return (...).cell_contents", "cell_contents", is_secret),
    "defaults": (lambda: helper, "return (...).__defaults__[0]", "__defaults__", is_secret),
    "keyword defaults": (lambda: helper, "return (...).__kwdefaults__.keyword", "__kwdefaults__", is_secret),
    "what a decorator wrapped": (wrapped, "return (...).__wrapped__", "__wrapped__", is_there),
    "fields of a function": (wrapped, "return (...).__dict__", "__dict__", is_there),
    "module of a builtin": (lambda: len, "return (...).__self__.open", "__self__", is_there),
    "function of a method": (lambda: Thing().method, "return (...).__func__.__globals__.SECRET", "__func__", is_secret),
    "object of a method": (lambda: Thing().method, "return (...).__self__._private", "__self__", is_secret),
    "code of a method": (Thing, "return (...).method.__code__", "__code__", is_there),
    "slot of a class": (lambda: Thing, "return (...)._slot", "_slot", is_there),
    "descriptor": (lambda: Thing, "return (...).shown.__get__", "__get__", is_there),
    "getter of a property": (lambda: Thing, "return (...).shown.fget", "fget", is_there),
    "function of a cached property": (lambda: Thing, "return (...).cached.func", "func", is_there),
    "static method": (lambda: Thing, "return (...).static.__globals__.SECRET", "__globals__", is_secret),
    "what partial calls": (lambda: functools.partial(helper, 1), "return (...).func", "func", is_there),
    "what partial passes": (lambda: functools.partial(print, SECRET), "return (...).args[0]", "args", is_secret),
    "keywords of partial": (
        lambda: functools.partial(print, x=SECRET),
        "return (...).keywords.x",
        "keywords",
        is_secret,
    ),
    "keywords of partial, to change them": (
        lambda: functools.partial(dict, root="/srv"),
        "(...).keywords.root = '/' return (...)().root",
        "keywords",
        lambda got: got == "/",
    ),
    "a cache's function": (lambda: cached, "return (...).cache_clear", "cache_clear", is_there),
    "functions of a dispatch": (lambda: dispatched, "return (...).registry", "registry", is_there),
    "a function's name in Python": (lambda: helper, "return (...).__module__", "__module__", is_there),
    "a C function's arguments": (
        lambda: ctypes.CFUNCTYPE(ctypes.c_int)(),
        "(...).argtypes = nil return true",
        "argtypes",
        is_there,
    ),
    # Objects and classes.
    "private field": (Thing, "return (...)._private", "_private", is_secret),
    "private field, by item": (Thing, "return (...)['_private']", "_private", is_secret),
    "fields": (Holder, "return (...).__dict__._db.password", "__dict__", is_secret),
    "order of bases": (lambda: Thing, "return (...).mro()[1].__subclasses__()", "mro", is_there),
    "order of bases, as a field": (lambda: Thing, "return (...).__mro__[1]", "__mro__", is_there),
    "base": (lambda: Thing, "return (...).__base__.__subclasses__()", "__base__", is_there),
    "subclasses": (lambda: object, "return (...).__subclasses__()", "__subclasses__", is_there),
    "fields of a class": (lambda: Thing, "return (...).__dict__._private", "__dict__", is_secret),
    "initialiser": (Thing, "return (...).__init__.__globals__.SECRET", "__init__", is_secret),
    "getattribute": (Thing, "return (...).__getattribute__('_private')", "__getattribute__", is_secret),
    "reduce": (Thing, "return (...).__reduce_ex__(4)", "__reduce_ex__", is_there),
    "annotations": (lambda: Point, "return (...).__dataclass_fields__.x", "__dataclass_fields__", is_there),
    "documentation": (Thing, "return (...).__doc__", "__doc__", is_there),
    # Generators, coroutines, frames.
    "frame of a generator": (
        lambda: started(generator()),
        "return (...).gi_frame.f_locals.secret",
        "gi_frame",
        is_secret,
    ),
    "inner generator": (
        lambda: started(outer_generator()),
        "return (...).gi_yieldfrom.gi_frame",
        "gi_yieldfrom",
        is_there,
    ),
    "globals of a frame": (frame, "return (...).f_globals.SECRET", "f_globals", is_secret),
    "locals of a frame": (frame, "return (...).f_locals.secret", "f_locals", is_secret),
    "caller of a frame": (frame, "return (...).f_back.f_globals", "f_back", is_there),
    "clear of a frame": (frame, "return (...).clear", "clear", is_there),
    "code of a coroutine": (unawaited, "return (...).cr_code.co_filename", "cr_code", is_there),
    "code of an async generator": (async_generator, "return (...).ag_code.co_filename", "ag_code", is_there),
    "file of code": (lambda: helper.__code__, "return (...).co_filename", "co_filename", is_there),
    "frame of a traceback": (traceback, "return (...).tb_frame.f_globals.SECRET", "tb_frame", is_secret),
    "next of a traceback": (traceback, "return (...).tb_next.tb_frame", "tb_next", is_there),
    # Format strings.
    "formatting, by str": (
        lambda: str,
        "return (...).format('{0.__globals__[SECRET]}', select(2, ...))",
        "format",
        is_secret,
    ),
    "formatting, by a subclass of str": (
        lambda: Label,
        "return (...).format('{0.__globals__[SECRET]}', select(2, ...))",
        "format",
        is_secret,
    ),
    "formatting, by an enumeration": (
        lambda: as_attrgetter(Color),
        "return (...).format('{0.__globals__[SECRET]}', select(2, ...))",
        "format",
        is_secret,
    ),
    "formatting, by a text": (
        lambda: as_attrgetter("{0.__globals__[SECRET]}"),
        "return (...).format(select(2, ...))",
        "format",
        is_secret,
    ),
    "formatting, by a UserString": (
        lambda: as_attrgetter(UserString("{0.__globals__[SECRET]}")),
        "return (...).format(select(2, ...))",
        "format",
        is_secret,
    ),
    "formatting of a mapping": (
        lambda: Label,
        "return (...).format_map('{x.__globals__[SECRET]}', {x = select(2, ...)})",
        "format_map",
        is_secret,
    ),
    "formatting, by the class UserString": (
        lambda: UserString,
        "return (...).format((...)('{0.__globals__[SECRET]}'), select(2, ...))",
        "format",
        is_secret,
    ),
    "Formatter": (
        string.Formatter,
        "return (...).format('{0.__globals__[SECRET]}', select(2, ...))",
        "format",
        is_secret,
    ),
    "field of Formatter": (
        string.Formatter,
        "return (...).get_field('0.__globals__', {[0] = select(2, ...)}, {})",
        "get_field",
        is_there,
    ),
    "the class Formatter": (lambda: string.Formatter, "return (...).vformat", "vformat", is_there),
    # Modules and Moonferry itself.
    "module of a module": (lambda: json, "return (...).codecs.builtins.open", "codecs", is_there),
    "what a module imported": (lambda: dataclasses, "return (...).sys.modules", "sys", is_there),
    "what a module does not export": (fresh_module, "return (...).helper", "helper", is_there),
    "loader of a module": (lambda: math, "return (...).__loader__", "__loader__", is_there),
    "specification of a module": (lambda: math, "return (...).__spec__.loader", "__spec__", is_there),
    "moonferry": (lambda: mf, "return (...).luajit.os.getenv", "luajit", is_there),
    "moonferry's core": (lambda: mf, "return (...)._core._wrap_pointer", "_core", is_there),
    "a Lua state without a sandbox": (mf.Lua, "return (...).eval('tostring(os.getenv)')", "eval", is_there),
    "the class of Lua states": (lambda: mf.Lua, "return (...)().get_memory_used", "get_memory_used", is_there),
    "a stream of any address": (lambda: mf.Stream, "return (...).wrap", "wrap", is_there),
    # Exceptions.
    "object of an AttributeError": (
        lambda: fails,
        "local ok, e = pcall((...)) return e.obj.password",
        "obj",
        is_secret,
    ),
    "the same, of the exception itself": (
        lambda: fails,
        "local ok, e = pcall((...)) return e.value.obj.password",
        "obj",
        is_secret,
    ),
    "class of an exception": (lambda: fails, "local ok, e = pcall((...)) return e.class", "class", is_there),
    "class of the exception itself": (
        lambda: fails,
        "local ok, e = pcall((...)) return e.value.__class__",
        "__class__",
        is_there,
    ),
    "traceback of an exception": (
        lambda: fails,
        "local ok, e = pcall((...)) return e.__traceback__.tb_frame",
        "__traceback__",
        is_there,
    ),
    "context of an exception": (
        lambda: fails,
        "local ok, e = pcall((...)) return true, e.__context__",
        "__context__",
        is_there,
    ),
    "cause of an exception": (
        lambda: fails,
        "local ok, e = pcall((...)) return true, e.__cause__",
        "__cause__",
        is_there,
    ),
    # The same by another door.
    "raw __index": (Thing, "return getmetatable((...)).__index((...), '_private')", "_private", is_secret),
    "raw __index of an exception": (
        lambda: fails,
        "local ok, e = pcall((...)) return getmetatable(e).__index(e, 'obj')",
        "obj",
        is_there,
    ),
    "a table's __index": (Thing, "return setmetatable({}, {__index = (...)})._private", "_private", is_secret),
    "a coroutine": (Thing, "return coroutine.wrap(function(o) return o._private end)(...)", "_private", is_secret),
    "a sort": (
        Thing,
        "local o, x = (...) table.sort({1, 2}, function() x = o._private end) return x",
        "_private",
        is_secret,
    ),
    "a pattern": (
        Thing,
        "local o, x = (...) ; ('x'):gsub('x', function() x = o._private end) return x",
        "_private",
        is_secret,
    ),
    "code that is loaded": (Thing, "return load('return (...)._private')(...)", "_private", is_secret),
    "the environment of loaded code": (
        Thing,
        "return load('return _private', 'n', 't', setmetatable({}, {__index = (...)}))()",
        "_private",
        is_secret,
    ),
}


def hand_in(name):
    make, code, refused, control = ATTEMPTS[name]
    return [make(), helper], code, refused, control


@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_attempt_is_refused(name):
    arguments, code, refused, _ = hand_in(name)
    box = mf.Lua(sandbox=True)
    with pytest.raises(AttributeError) as caught:
        box.execute(code, *arguments)
    assert str(caught.value) == f"a sandboxed script may not use the attribute {refused!r}"


@pytest.mark.parametrize("function", [np.random.default_rng, np.random.Generator.random, np.zeros, len], ids=repr)
def test_a_function_shows_nothing_whoever_compiled_it(function):
    box = mf.Lua(sandbox=True)
    for name in [*dir(function), "anything"]:
        with pytest.raises(AttributeError, match="a sandboxed script may not use the attribute"):
            box.execute("return (...)[select(2, ...)]", function, name)
        with pytest.raises(AttributeError, match="a sandboxed script may not use the attribute"):
            box.execute("(...)[select(2, ...)] = 1", function, name)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_same_attempt_succeeds_without_a_sandbox(name):
    arguments, code, _, control = hand_in(name)
    assert control(mf.Lua().execute(code, *arguments))


# What is handed in, the code that sets something, the attribute that is refused, and how Python sees that it was set.
WRITES = {
    "private field": (lambda: fresh_class()(), "(...)._limit = 9", "_limit", lambda o: o._limit == 9),
    "class": (
        lambda: fresh_class()(),
        "(...).__class__ = select(2, ...)",
        "__class__",
        lambda o: type(o).__name__ == "Other",
    ),
    "method of a class": (fresh_class, "(...).draw = function() return 9 end", "draw", lambda o: o().draw() == 9),
    "field of a class": (fresh_class, "(...).limit = 9", "limit", lambda o: o.limit == 9),
    "field of a module": (fresh_module, "(...).limit = 9", "limit", lambda o: o.limit == 9),
    "field of a function": (lambda: lambda: 1, "(...).limit = 9", "limit", has_limit_9),
    "code of a function": (
        lambda: lambda: 1,
        "(...).__code__ = select(2, ...).draw.__code__",
        "draw.__code__",
        lambda o: o.__code__.co_argcount,
    ),
    "field of a compiled function": (Compiled, "(...).limit = 9", "limit", has_limit_9),
    "field of partial": (lambda: functools.partial(len), "(...).limit = 9", "limit", has_limit_9),
    "raw __newindex": (
        lambda: fresh_class()(),
        "getmetatable((...)).__newindex((...), '_limit', 9)",
        "_limit",
        lambda o: o._limit == 9,
    ),
    "a table's __newindex": (
        lambda: fresh_class()(),
        "setmetatable({}, {__newindex = (...)})._limit = 9",
        "_limit",
        lambda o: o._limit == 9,
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_set_is_refused_likewise(name):
    make, code, refused, was_set = WRITES[name]
    made = make()
    with pytest.raises(AttributeError) as caught:
        mf.Lua(sandbox=True).execute(code, made, fresh_class("Other"))
    assert str(caught.value) == f"a sandboxed script may not use the attribute {refused.split('.')[-1]!r}"
    free = make()
    mf.Lua().execute(code, free, fresh_class("Other"))
    assert was_set(free) and not was_set(made)


# An attribute_filter or a handler takes the half that it is for; behind the other half the sandbox's own filter stands.


def getter(obj, name):
    return f"got {name}"


def setter(obj, name, value):
    obj.found = name, value


HALVES = {
    "nothing": ({}, "refused", "refused"),
    "a getter": ({"attribute_handlers": (getter, None)}, "got _limit", "refused"),
    "a setter": ({"attribute_handlers": (None, setter)}, "refused", ("_limit", 9)),
    "both": ({"attribute_handlers": (getter, setter)}, "got _limit", ("_limit", 9)),
    "a filter": ({"attribute_filter": lambda obj, name, setting: "limit"}, 1, "set"),
    "a filter that asks the sandbox's": ({"attribute_filter": sandbox_filter}, "refused", "refused"),
}


@pytest.mark.parametrize("name", HALVES)
def test_each_half_is_somebodys(name):
    options, reads, writes = HALVES[name]
    box = mf.Lua(sandbox=True, **options)
    account = fresh_class()()
    read = box.eval("function(o) return o._limit end")
    write = box.eval("function(o) o._limit = 9 end")
    if reads == "refused":
        with pytest.raises(AttributeError, match="a sandboxed script may not use the attribute '_limit'"):
            read(account)
    else:
        assert read(account) == reads
    if writes == "refused":
        with pytest.raises(AttributeError, match="a sandboxed script may not use the attribute '_limit'"):
            write(account)
        assert vars(account) == {}
    else:
        write(account)
        assert vars(account) == ({"limit": 9} if writes == "set" else {"found": writes})
    assert box.eval("io == nil and os == nil and ffi == nil and python == nil")


# Bytes without an underscore, which is there once they are decoded; the filter and the look-up must read the same.
@pytest.mark.parametrize("name", [b"+AF8-private", b"+AF8AcAByAGkAdgBhAHQAZQ-"])
def test_a_name_is_judged_as_it_is_looked_up(name):
    code = "local o, name = ... return o[name]"
    options = {"encoding": None, "source_encoding": "UTF-7"}
    assert mf.Lua(**options).execute(code, Thing(), name) == SECRET
    with pytest.raises(AttributeError, match="may not use the attribute '_private'"):
        mf.Lua(sandbox=True, **options).execute(code, Thing(), name)


def test_a_name_that_is_no_text_is_refused():
    box = mf.Lua(sandbox=True, encoding=None)
    read = box.eval(b"function(o, name) return o[name] end")
    for name in (b"\xff", 5, 1.5, True):
        with pytest.raises(AttributeError, match="a sandboxed script may not use the attribute"):
            read(Thing(), name)


class Sly(str):
    """A str that says of itself what it is not; its attribute is looked up by what it is."""

    def startswith(self, *arguments):
        return False

    def __str__(self):
        return "public"


def test_a_name_is_not_asked_what_it_is():
    code = b"local o, name = ... return o[name]"
    assert mf.Lua(encoding=None).execute(code, Thing(), Sly("_private")) == SECRET
    with pytest.raises(AttributeError, match="may not use the attribute '_private'"):
        mf.Lua(sandbox=True, encoding=None).execute(code, Thing(), Sly("_private"))


# Exceptions.


@pytest.mark.parametrize("what", ["e.traceback", "tostring(e)", "e.message .. e.type .. e.where"])
def test_an_exception_shows_nothing_of_the_host(what):
    code = f"local function call(f) f() end local ok, e = pcall(call, ...) return {what}"
    told = mf.Lua(sandbox=True).execute(code, fails, name="=script")
    assert "AttributeError" in told and "absent" in told and "script:1:" in told
    assert "escape_objects" not in told and "fail_below" not in told
    free = mf.Lua().execute(code, fails, name="=script")
    assert ("escape_objects" in free and "fail_below" in free) == (what != "e.message .. e.type .. e.where")


def test_what_an_exception_carries():
    box = mf.Lua(sandbox=True)

    def fail():
        raise KeyError("a", 7)

    code = """
        local ok, e = pcall(...)
        return e.type, e.message, e.args, e:is("LookupError"), e:is("ValueError"), e.value, e.where"""
    kind, message, args, is_lookup, is_value, value, where = box.execute(code, fail, name="=script")
    assert (kind, message, args, is_lookup, is_value) == ("KeyError", "('a', 7)", ("a", 7), True, False)
    assert isinstance(value, KeyError) and value.args == ("a", 7)
    assert where == ""
    with pytest.raises(KeyError):
        box.execute("local ok, e = pcall(...) error(e)", fail)


# What is handed in can be used: the page promises nothing of these.
HANDED = {
    "a compiled function": (Compiled(), "return (...)()"),
    "getattr": (getattr, "return (...)(select(2, ...), '_private')"),
    "attrgetter": (operator.attrgetter("_private"), "return (...)(select(2, ...))"),
    "partial": (functools.partial(getattr, Thing(), "_private"), "return (...)()"),
    "a bound method": (Thing().method, "return (...)()"),
    "a mapping": ({"_private": SECRET}, "return (...)._private"),
    "a template that is called": ("{0._private}".format, "return (...)(select(2, ...))"),
    "a class": (Thing, "return (...)():method()"),
}


@pytest.mark.parametrize("name", HANDED)
def test_what_is_handed_in_can_be_used(name):
    given, code = HANDED[name]
    assert mf.Lua(sandbox=True).execute(code, given, Thing()) == SECRET


def test_ordinary_objects_stay_of_use():
    box = mf.Lua(sandbox=True)
    point = Point(3)
    assert box.execute("local p = ... p.x = p.x + 1 return p.x", point) == 4 and point.x == 4
    assert box.eval("(...).floor(2.5)", math) == 2
    assert box.eval("(...).loads('[1]')[0]", json) == 1
    assert box.eval("(...).public", Thing) == 1
    assert box.eval("(...).RED == (...).RED", Color) is True
    assert box.eval("(...)[0]", Pair(1, 2)) == 1
