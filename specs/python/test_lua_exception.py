"""What a script reads of Python's exceptions: names, messages, and what odd classes and objects tell of themselves."""

import codecs
import ctypes
import functools
import gc
import sys
import weakref

import pytest

import moonferry as mf


@pytest.fixture
def lua():
    return mf.Lua()


def raising(error):
    def fail():
        raise error

    return fail


def caught(lua, error, code):
    """What a script reads of the error `e` that Python raises in it, or what a function raises."""
    fail = raising(error) if isinstance(error, BaseException) else error
    return lua.eval(f"function(fail) local _, e = pcall(fail) {code} end")(fail)


@pytest.mark.parametrize("encoding", ["UTF-8", "latin-1", None])
def test_a_script_names_the_class_that_it_expects(encoding):
    lua = mf.Lua(encoding=encoding)
    is_one = "return e:is 'ValueError', e:is('Exception', 'KeyError'), e:is 'KeyError', e:is 'own.Error', e.args"
    error = type("Error", (ValueError,), {"__module__": "own"})
    assert caught(lua, error(5), is_one) == (True, True, False, True, (5,))
    if encoding is None:
        with pytest.raises(UnicodeDecodeError):
            caught(lua, error(5), "return e:is '\\255'")


@pytest.mark.parametrize("message", ["", "text", "\n", "text\n\n"], ids=repr)
def test_a_message_is_the_text_of_its_exception(lua, message):
    assert caught(lua, ValueError(message), "return e.message") == message


@pytest.mark.parametrize(
    "module, name", [("own", "own.Error"), ("builtins", "Error"), ("__main__", "Error"), (None, "Error"), (5, "Error")]
)
def test_the_type_of_an_error_has_the_module_where_its_class_tells_one(lua, module, name):
    error = type("Error", (Exception,), {"__module__": module})("why")
    assert caught(lua, error, "return e.type, tostring(e):match '(%S+: why)', e:is 'Error'") == (
        name,
        f"{name}: why",
        True,
    )


class Odd(type):
    """What its classes tell of themselves is what `told` says, or fails."""

    told = {}

    def __getattribute__(cls, name):
        if name not in Odd.told:
            return type.__getattribute__(cls, name)
        if Odd.told[name] is None:
            raise LookupError(name)
        if isinstance(Odd.told[name], BaseException):
            raise Odd.told[name]
        return Odd.told[name]


@pytest.mark.parametrize(
    "told, kind, headline, is_called",
    [
        ({"__module__": None}, "Odd.Error", "Odd.Error: why", True),
        ({"__module__": "own", "__qualname__": 5}, "own.5", "own.5: why", True),
        ({"__module__": None, "__qualname__": 5}, "5", "5: why", True),
        ({"__qualname__": None}, "?", "a Python exception that cannot be printed", LookupError),
        ({"__name__": None}, "own.Odd.Error", "own.Odd.Error: why", LookupError),
        ({"__name__": 5}, "own.Odd.Error", "own.Odd.Error: why", False),
        ({"__mro__": ()}, "own.Odd.Error", "own.Odd.Error: why", False),
        ({"__mro__": None}, "own.Odd.Error", "own.Odd.Error: why", LookupError),
    ],
    ids=repr,
)
def test_an_error_whose_class_tells_odd_things_of_itself(lua, monkeypatch, told, kind, headline, is_called):
    error = Odd("Error", (Exception,), {"__module__": "own", "__qualname__": "Odd.Error"})("why")
    monkeypatch.setattr(Odd, "told", told)
    assert caught(lua, error, "return e.type, e.message, e.args") == (kind, "why", ("why",))
    assert f"{headline}\n" in caught(lua, error, "return tostring(e)")
    if is_called is LookupError:
        with pytest.raises(LookupError):
            caught(lua, error, "return e:is 'Error'")
    else:
        assert caught(lua, error, "return e:is 'Error'") is is_called
    assert caught(lua, error, "return e:is(e.class)") is True


def test_an_error_without_a_text_has_the_name_of_its_class_alone(lua):
    class Error(Exception):
        __module__, __qualname__ = "own", "Error"

        def __str__(self):
            raise LookupError

    for error in (Error(), ValueError()):
        text = caught(lua, error, "return tostring(e)")
        assert text.startswith(("[string", "own.Error\n", "ValueError\n")) and "cannot be printed" not in text


def test_a_class_that_scripts_read_keeps_its_references(lua):
    error = type("Error", (Exception,), {})
    before = sys.getrefcount(error)
    for _ in range(20):
        assert caught(lua, error(), "return e.class") is error
    lua.gccollect()
    lua.eval("1")
    gc.collect()
    assert sys.getrefcount(error) == before


NO_ANSWERS = [KeyboardInterrupt, SystemExit, MemoryError]


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_a_text_that_ctrl_c_interrupts_is_none(lua, monkeypatch, kind):
    class Error(Exception):
        def __str__(self):
            raise kind("came")

    for code in ("return e.message", "return tostring(e)"):
        with pytest.raises(kind, match="^came"):
            caught(lua, Error(), code)
    error = Odd("Error", (Exception,), {})("why")
    for name in ("__module__", "__qualname__"):
        monkeypatch.setattr(Odd, "told", {name: kind("came")})
        for code in ("return e.type", "return tostring(e)"):
            with pytest.raises(kind, match="^came"):
                caught(lua, error, code)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_takes_the_place_of_the_error_whose_text_is_asked_for(lua, kind):
    came = kind("came")
    code = "local f = ... error(setmetatable({}, {__tostring = function() return f() end}))"
    with pytest.raises(kind) as raised:
        lua.execute(code, raising(came))
    assert raised.value is came
    assert lua.eval("1") == 1
    with pytest.raises(mf.LuaError, match="^the error object is a Lua table"):
        lua.execute(code, raising(KeyError("k")))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("asked", ["its notes", "how to set them"])
def test_ctrl_c_takes_the_place_of_the_exception_that_gets_a_note(lua, kind, asked):
    came = [kind("came")]

    class Error(Exception):
        @property
        def __notes__(self):
            raise came.pop() if came and asked == "its notes" else AttributeError

        @__notes__.setter
        def __notes__(self, notes):
            raise came.pop()

    with pytest.raises(kind):
        lua.execute("local r = (...)() return r", raising(Error()))
    assert came == [] and lua.eval("1") == 1


@pytest.fixture
def codec():
    """The name of an encoding, and a list of what its decoder raises next."""
    raises = []

    def decode(data, errors="strict"):
        if raises:
            raise raises.pop()
        return codecs.latin_1_decode(data)

    found = codecs.CodecInfo(codecs.latin_1_encode, decode, name="x-raises")
    search = {"x_raises": found, "x-raises": found}.get  # 3.15: as it is
    codecs.register(search)
    yield "x-raises", raises
    if hasattr(codecs, "unregister"):
        codecs.unregister(search)


def test_ctrl_c_takes_the_place_of_an_error_that_is_decoded(codec):
    encoding, raises = codec
    lua = mf.Lua(encoding=encoding)
    for kind, expected in (ValueError, mf.LuaError), (MemoryError, MemoryError), (KeyboardInterrupt, KeyboardInterrupt):
        raises.append(kind("came"))
        with pytest.raises(expected) as raised:
            lua.execute("error('text', 0)")
        assert raises == [] and (kind is not ValueError or raised.value.message == "text")


@pytest.mark.parametrize("encoding", ["UTF-8", "latin-1", "cp1252", "ascii"])
def test_a_script_reads_an_error_as_its_strings_are_encoded(encoding):
    lua = mf.Lua(encoding=encoding, source_encoding="UTF-8")
    error = type("Größe", (Exception,), {"__module__": "own"})("é")
    text = "é" if encoding != "ascii" else "\\xe9"
    name = "Größe" if encoding != "ascii" else "Gr\\xf6\\xdfe"
    assert caught(lua, error, "return e.message, e.type") == (text, f"own.{name}")
    assert f"own.{name}: {text}\n" in caught(lua, error, "return tostring(e)")
    assert caught(lua, error, "return e:is 'own.Error'") is False


@pytest.mark.parametrize("source", ["UTF-8", "latin-1"])
def test_a_script_of_bytes_reads_an_error_as_its_code_is_encoded(source):
    lua = mf.Lua(encoding=None, source_encoding=source)
    assert caught(lua, ValueError("é"), "return e.message, e.message == 'é'") == ("é".encode(source), True)


def test_a_name_that_goes_on_behind_a_nul_is_no_field_of_an_error(lua):
    error = ValueError("why")
    setattr(error, "type\0x", 5)
    assert caught(lua, error, "return e['type\\0x'], e.type") == (5, "ValueError")


class Told(type):
    """What is asked for its name lets go of all that refers to the class but who asks."""

    def __getattribute__(cls, name):
        if name != "__qualname__":
            return type.__getattribute__(cls, name)
        holder, gone = type.__getattribute__(cls, "shared")
        del cls
        holder.pop().__class__ = Plain
        gc.collect()
        if gone() is None:
            raise LookupError("nobody holds the class")
        return "Told"


class Plain(Exception):
    pass


def test_a_class_that_loses_its_last_instance_is_asked_on(lua):
    holder = []

    def fail():
        shared = [holder]
        holder.append(Told("Error", (Exception,), {"__module__": "own", "shared": shared})("why"))
        shared.append(weakref.ref(type(holder[0])))
        raise holder[0]

    for code, text in ("e.type", "own.Told"), ("tostring(e):match 'own.Told: why'", "own.Told: why"):
        assert caught(lua, fail, f"return {code}") == text


@pytest.mark.parametrize("kind", [SystemError, TypeError])
def test_what_a_function_says_of_frames_is_its_own(lua, kind):
    """It sounds like CPython where no Python function calls."""
    with pytest.raises(kind, match="^frame does not exist"):
        lua.execute("(...)()", raising(kind("frame does not exist")))
    assert caught(lua, kind("frame does not exist"), "return e.message") == "frame does not exist"


class Slot(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("function", ctypes.c_void_p)]


class Spec(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("sizes", ctypes.c_int * 2), ("flags", ctypes.c_uint)]
    _fields_ += [("slots", ctypes.POINTER(Slot))]


GONE = [
    "local _, e = pcall(...) py.close(e) error(e)",
    "local f, _, e = ... py.scope(function() _, e = pcall(f) end) error(e)",
    "local find = gone(...) error(find())",
]


@pytest.mark.parametrize("code", GONE)
def test_an_error_whose_exception_is_gone_is_one_of_luas(lua, code):
    """It was closed, by name or with its scope, or a finalizer has found it after its own."""
    lua.execute("""py = require 'moonferry.python'
      function gone(fail)
        local proxy, found = newproxy(true)
        local events = getmetatable(proxy)
        events.error = select(2, pcall(fail))
        events.__gc = function() found = events.error end
        return function() collectgarbage() collectgarbage() return found end
      end""")
    with pytest.raises(mf.LuaError, match="^the error object is a Lua userdata") as raised:
        lua.execute(code, raising(KeyError("k")))
    assert type(raised.value) is mf.LuaError and raised.value.value is None


def test_objects_and_errors_cross_by_either_bridge_of_a_state(lua):
    """That of moonferry.Lua, and that of moonferry.python in it."""
    lua.execute("py = require 'moonferry.python'")
    assert lua.eval("py.list { 1 }") == [1]
    assert isinstance(lua.eval("(select(2, pcall(py.eval, '1/0')))"), ZeroDivisionError)
    assert lua.eval("py.builtins.len(...)", [1, 2]) == 2
    assert lua.eval("py.builtins.type((select(2, pcall(...))))", raising(KeyError("k"))) is KeyError


@functools.cache
def silent():
    """An object whose attributes fail without an exception, as that of a type which is written in C may; and what its
    type needs for ever."""
    getattro, default = 58, 1 << 18  # Py_tp_getattro, Py_TPFLAGS_DEFAULT
    fail = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(lambda object, name: None)
    slots = (Slot * 2)(Slot(getattro, ctypes.cast(fail, ctypes.c_void_p)), Slot())
    spec = Spec(b"spec.Silent", (0, 0), default, slots)
    make = ctypes.pythonapi["PyType_FromSpec"]
    make.restype = ctypes.py_object
    return make(ctypes.byref(spec))(), fail, slots, spec


def test_an_object_that_fails_without_an_exception(lua):
    for _ in range(2):
        with pytest.raises(mf.LuaError, match="Python reported a failure without an exception"):
            lua.eval("python.as_attrgetter(...).field", silent()[0])
