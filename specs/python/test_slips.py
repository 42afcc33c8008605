"""Slips that once went on in silence, or were told in the words of C: what must be said of each of them."""

import builtins
import copy
import ctypes
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import moonferry as mf

FLOATS, HALVES = ctypes.c_float * 4, ctypes.c_uint16 * 4
OTHER = "__ctype_be__" if sys.byteorder == "little" else "__ctype_le__"
SWAPPED, BYTES = getattr(ctypes.c_int16, OTHER) * 2, getattr(ctypes.c_uint8, OTHER, ctypes.c_uint8) * 2


class MATRIX(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_float * 4 * 4)]


class OneElement:
    """An array of one element with axes that is an index as well, as PyTorch's are."""

    def __index__(self):
        return 0

    def __len__(self):
        return 1


class Zero(int):
    """An integer that calculates as 0."""

    def __mul__(self, other):
        return 0

    __rmul__ = __mul__


SAID = [  # what is typed over t, float32 of 2 x 3; the exception; what it must say
    ("mf.synchronize()", TypeError, ["moonferry.synchronize()", "one argument"]),
    ("mf.current_stream(1, 2)", TypeError, ["moonferry.current_stream()", "2 given"]),
    ("t.expand_dims()", TypeError, ["expand_dims()", "'axis'"]),
    ("t.reinterpret()", TypeError, ["reinterpret()", "'dtype'"]),
    ("t.block_until_ready()", AttributeError, ["moonferry.synchronize(t.device)"]),
    ("t[OneElement()]", IndexError, ["'OneElement'", "np.asarray(t)[...]"]),
    ("t[0, 0] = 1j", TypeError, ["complex", "1j", "float32", ".real"]),
    ("t.fill(2 + 1j)", TypeError, ["(2+1j)", "float32"]),
    ("t.flags['WRITEABLE'] = True", AttributeError, ["flags.writeable", "as_readonly()"]),
    ("t.flags.writable", AttributeError, ["'writable'", "writeable"]),
    ("t.__array__(copy=3)", TypeError, ["copy must be True, False or None", "3"]),
    ("t.to(0)", TypeError, ["device", "'cuda:0'", "not 0"]),
    ("t.to(('cuda', 0))", TypeError, ["'cuda:0'", "pair of numbers", "('cuda', 0)"]),
    ("mf.Device('cuda', 0)", TypeError, ["one name, such as 'cuda:0'", "'cuda', 0"]),
    ("mf.from_dlpack(t, device='gpu')", BufferError, ["'gpu'", "'cuda:0'", "'rocm:0'"]),
    ("mf.frombuffer(t.T)", BufferError, ["not contiguous", "copy()"]),
    ("mf.tensor(np.datetime64('2026-01-01'))", BufferError, ["numpy.datetime64", "view('int64')"]),
    ("mf.asarray(np.timedelta64(3, 's'))", BufferError, ["numpy.timedelta64", "view('int64')"]),
    ("mf.asarray(np.zeros(2, np.longdouble))", BufferError, ["longdouble", "astype('float64')"]),
    ("mf.float32 < mf.float64", TypeError, ["no order", "'float32'", "can_cast"]),
    ("sorted([mf.int8, mf.float32])", TypeError, ["no order"]),
    ("max(mf.int8, 'float32')", TypeError, ["no order"]),
    ("mf.wrap(5, 2)", ValueError, ["pointer is 5", "no address"]),
    ("mf.wrap(-5, 2)", ValueError, ["pointer is -5", "no address"]),
    ("mf.wrap(2**64, 2)", ValueError, [f"pointer is {2**64}", "no address"]),
    ("mf.wrap(t.data_ptr, 2.5)", TypeError, ["shape", "2.5"]),
    ("mf.wrap(t.data_ptr, 2, strides=3)", TypeError, ["strides", "3"]),
    ("mf.wrap(FLOATS(), 5)", ValueError, ["bytes 0 to 20", "of 16 bytes"]),
    ("mf.wrap(FLOATS(), 2, strides=(4,))", ValueError, ["bytes 0 to 20"]),
    ("mf.wrap(FLOATS(), 2, strides=(-1,))", ValueError, ["bytes -4 to 4"]),
    ("mf.wrap(SWAPPED(), 2, 'int16')", TypeError, ["holds int16", "in the other order", "asarray"]),
    ("mf.wrap(SWAPPED(), 2, 'uint16')", TypeError, ["holds int16", "in the other order", "asarray"]),
    ("mf.wrap(FLOATS(), (np.int64(5),))", ValueError, ["bytes 0 to 20", "of 16 bytes"]),
    ("mf.wrap(FLOATS(), np.int64(5))", ValueError, ["bytes 0 to 20", "of 16 bytes"]),
    ("mf.wrap(FLOATS(), np.array([3, 2]))", ValueError, ["bytes 0 to 24", "of 16 bytes"]),
    ("mf.wrap(FLOATS(), (Zero(9),))", ValueError, ["bytes 0 to 36", "of 16 bytes"]),
    ("mf.wrap(FLOATS(), 2, strides=(np.int64(2**62),))", ValueError, ["of 16 bytes"]),
    ("mf.wrap(FLOATS(), 2, strides=('a',))", TypeError, ["integer", "'str'"]),
    ("mf.wrap(FLOATS(), (2, 'a'))", TypeError, ["integer", "'str'"]),
    ("mf.wrap(FLOATS(), -1)", ValueError, ["shape[0] is -1"]),
    ("mf.wrap((ctypes.c_uint8 * 4)(), 2, 'uint8x4', strides=(-1,))", ValueError, ["bytes -4 to 4"]),
    ("mf.wrap((ctypes.c_uint8 * 4)(), 9, 'int4')", ValueError, ["bytes 0 to 5", "of 4 bytes"]),
    ("mf.wrap(FLOATS(), 2, 'float64')", TypeError, ["holds float32", "float64", "ctypes.cast"]),
    ("mf.wrap(HALVES(), 2, 'int32')", TypeError, ["holds uint16", "int32"]),
    ("mf.Ring.from_handle('x')", TypeError, ["handle", "'str'"]),
    ("mf.Ring.from_handle(-8)", ValueError, ["handle is -8", "mf_ring"]),
    ("mf.Ring.from_handle(123456789)", ValueError, ["handle is 123456789", "mf_ring"]),
    ("int(t)", TypeError, ["has 6", "tolist()"]),
    ("complex(t)", TypeError, ["has 6", "tolist()"]),
    ("mf.LuaRuntime()", AttributeError, ["moonferry.Lua"]),
]


COPIES = (0, 1, 1.0, np.False_, np.True_, "no", np.array([1, 2]))


@pytest.mark.parametrize("copy", COPIES, ids=repr)
@pytest.mark.parametrize("call", [mf.asarray, mf.from_arrow, mf.from_dlpack, mf.Tensor.__array__, mf.Tensor.__dlpack__])
def test_what_is_only_equal_to_true_or_false_does_not_say_whether_to_copy(call, copy):
    with pytest.raises(TypeError, match="copy must be True, False or None, not "):
        call(mf.zeros(3), copy=copy)


@pytest.mark.parametrize("copy", COPIES, ids=repr)
@pytest.mark.parametrize("obj", [[1, 2], bytearray(2), np.zeros(2)], ids=lambda obj: type(obj).__name__)
def test_nor_of_what_is_no_tensor(obj, copy):
    with pytest.raises(TypeError, match="copy must be True, False or None, not "):
        mf.asarray(obj, copy=copy)


@pytest.mark.parametrize(("typed", "kind", "said"), SAID)
def test_a_slip_is_told(typed, kind, said):
    t = mf.tensor([[1, 2, 3], [4, 5, 6]], "float32")
    names = {**globals(), "t": t}
    with pytest.raises(kind) as refused:
        exec(typed, names)
    text = str(refused.value)
    assert all(part in text for part in said), text
    assert t.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_the_array_apis_names_are_taken_as_keywords():
    t = mf.zeros((2, 3))
    assert t.expand_dims(axis=1).shape == (2, 1, 3)
    assert t.astype(dtype="int8").dtype == t.reinterpret(dtype="int8").dtype == "int8"


def test_flags_have_numpys_short_names():
    t = mf.zeros((2, 3)).T
    assert [t.flags[name] for name in ("C", "F", "W", "A", "O", "FORTRAN")] == [False, True, True, True, False, True]
    seen = t.numpy().flags
    assert all(t.flags[name] == seen[name] for name in "CFWA")


def test_full_has_the_dtype_of_a_numpy_scalar():
    for number in (np.float32(3), np.int8(3), np.float64(3), np.bool_(True), np.complex64(1j), mf.tensor(3, "uint16")):
        assert mf.full(2, number).dtype == number.dtype
    assert [mf.full(2, number).dtype for number in (True, 3, 3.0, 3j)] == ["bool", "int64", "float64", "complex128"]


def test_an_array_without_axes_is_an_extent_and_an_index():
    assert mf.zeros(np.array(2)).shape == mf.zeros(mf.tensor(2)).shape == mf.zeros(np.int64(2)).shape == (2,)
    t = mf.tensor([[1, 2], [3, 4]])
    for index in (np.array(1), mf.tensor(1), np.uint8(1)):
        assert t[index].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("array", "shape", "dtype"),
    [
        (FLOATS(), (2, 2), "float32"), (FLOATS(), np.int64(4), "float32"), (FLOATS(), np.array(4), "float32"),
        (FLOATS(), (np.uint8(2), 2), "float32"), (BYTES(), 2, "uint8"), (FLOATS(), 4, "float32"),
        ((ctypes.c_float * 2 * 3)(), (3, 2), "float32"),
        (HALVES(), 4, "bfloat16"), (HALVES(), 4, "int16"), (HALVES(), 4, "float16"), (HALVES(), (0, 99), "uint16"),
        ((ctypes.c_uint8 * 16)(), 4, "float32"), ((ctypes.c_char * 2)(), 4, "int4"),
        ((ctypes.c_long * 2)(), 2, "uint64"),
        ((ctypes.c_void_p * 2)(), 2, "uint64"), ((ctypes.c_bool * 4)(), 4, "bool"),
        ((MATRIX * 3)(), (3, 4, 4), "float32"),
    ],
)  # fmt: skip
def test_an_array_of_ctypes_is_taken_where_its_elements_are_there(array, shape, dtype):
    t = mf.wrap(array, shape, dtype)
    assert t.data_ptr == ctypes.addressof(array) and t.dtype == dtype
    assert mf.wrap(ctypes.cast(array, ctypes.c_void_p), 1, "uint8").data_ptr == t.data_ptr


def test_functions_are_the_packages():
    for name in ("zeros", "from_dlpack", "synchronize", "into", "current_stream"):
        function = getattr(mf, name)
        assert function.__module__ == "moonferry" and pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(mf.float32) is mf.float32


@pytest.mark.parametrize("asked", ["x", "0", "65", "-1", "1.5"])
def test_a_wrong_number_of_threads_in_the_environment_is_an_error(asked):
    done = subprocess.run(
        [sys.executable, "-c", "import moonferry"], env={**os.environ, "MOONFERRY_THREADS": asked},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1 and f"MOONFERRY_THREADS is '{asked}'; a number from 1 to 64" in done.stderr


LUA_SAID = [  # what is typed over a Lua state; the exception; what it must say
    ("lua.eval('python.foo')", "LuaError", ['python has no "foo"', "python.builtins", 'require "moonferry.python"']),
    ("lua.eval('python.None')", "LuaError", ['python has no "None"', "python.none"]),
    ("lua.eval('python[1]')", "LuaError", ['python has no "number"']),
    ("lua.eval('python.as_attrgetter(3)')", "LuaError", ["not a python object", "got number"]),
    ("lua.eval('python.iter()')", "LuaError", ["not a python object", "got no value"]),
    ("lua.eval('1', name=3)", "TypeError", ["name must be a string", "int"]),
    ("lua.x = 3", "AttributeError", ["'x'", "lua.globals().x = value"]),
    ("lua.x", "AttributeError", ["'x'", "lua.globals().x"]),
    ("lua.table(1, 2, 3)[1:2]", "TypeError", ["no slices", "list(table.values())"]),
    ("mf.Lua(max_memory=-1)", "ValueError", ["max_memory is -1", "bytes"]),
]


@pytest.mark.parametrize(("typed", "kind", "said"), LUA_SAID)
def test_a_slip_with_lua_is_told(typed, kind, said):
    with mf.Lua() as lua:
        with pytest.raises(getattr(mf, kind, None) or getattr(builtins, kind)) as refused:
            exec(typed, {"lua": lua, "mf": mf})
        text = str(refused.value)
        assert all(part in text for part in said), text
        del refused


def test_a_state_that_is_lacking_eval_says_nil_of_it():
    with mf.Lua(register_eval=False, register_builtins=False) as lua:
        assert lua.eval("python.eval == nil and python.builtins == nil and python.none ~= nil")


def test_a_class_of_ones_own_has_attributes():
    class State(mf.Lua):
        pass

    with State() as lua:
        lua.name = "level 1"
        assert lua.name == "level 1"
        with pytest.raises(AttributeError, match="'nam'"):
            _ = lua.nam
