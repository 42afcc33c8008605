"""What somebody types who comes from another library, and what must be said: the thing, the value and the remedy."""

import importlib
import pydoc
import re
import rlcompleter
import warnings

import numpy as np
import pytest

import moonferry as mf

NUMPY2 = int(np.__version__.partition(".")[0]) >= 2


@pytest.mark.parametrize(
    "make", [mf.tensor, lambda x: x[0, 0], list, lambda x: 2.0, lambda x: 2j, lambda x: x.tolist()]
)
def test_a_comparison_that_would_say_nothing_of_contents_is_refused(make):
    t = mf.tensor([[1, 2], [3, 4]])
    other = make(t)
    for compare in (lambda: t == other, lambda: t != other, lambda: other == t, lambda: other in t):
        with pytest.raises(TypeError, match=r"(moonferry.equal.*np.asarray|does not compare)"):
            compare()


def test_a_tensor_is_itself_and_no_other_kind_of_thing():
    t, u = mf.zeros(2), mf.zeros(2)
    assert t == t and not t != t and t != None and not t == "x"  # noqa: E711
    assert {t: 1, u: 2}[u] == 2 and hash(t) != hash(u) and t in [t]
    assert (t == np.zeros(2)).all()


def test_equal_takes_any_array():
    t = mf.tensor([1.0, 2.0])
    assert mf.equal(t, np.array([1.0, 2.0])) and mf.equal([1.0, 2.0], t) and not mf.equal(t, np.array([1.0, 3.0]))
    counts = {(): "0 arguments", (t,): "1 argument", (t, t, t): "3 arguments",
              ((1,), (1,)): "2 arguments, of which none is a tensor"}  # fmt: skip
    for arguments, said in counts.items():
        with pytest.raises(TypeError, match=rf"equal\(\) takes two tensors, or a tensor and an array; got {said}$"):
            mf.equal(*arguments)
    with pytest.raises(TypeError, match="not from a 'object'"):
        mf.equal(t, object())


def test_elements_need_a_source_that_is_a_tensor(monkeypatch):
    monkeypatch.setattr("moonferry._convert.source_for", lambda value, dtype: value)
    t = mf.zeros(2)
    with pytest.raises(TypeError, match="source_for did not give a Tensor"):
        t[:] = [1, 2]
    assert t.tolist() == [0, 0]


@pytest.mark.parametrize("arguments", [lambda t: (t, [1.0]), lambda t: ([1.0], t)], ids=["second", "first"])
def test_equal_needs_an_asarray_that_gives_a_tensor(monkeypatch, arguments):
    monkeypatch.setattr("moonferry._convert.asarray", lambda x: x)
    with pytest.raises(TypeError, match="asarray did not give a Tensor"):
        mf.equal(*arguments(mf.tensor([1.0])))


def test_an_import_needs_a_from_cuda_array_that_gives_a_tensor(monkeypatch):
    class Array:
        __cuda_array_interface__ = {}

    monkeypatch.setattr("moonferry._cuda.from_cuda_array", lambda x: x)
    with pytest.raises(TypeError, match="from_cuda_array did not give a Tensor"):
        mf.from_dlpack(Array())


def test_into_takes_a_class_with_from_dlpack_beside_it():
    t = mf.tensor([[1.0, 2.0], [3.0, 4.0]])
    made = mf.into(np.ndarray, t.T)
    assert type(made) is np.ndarray and made.ctypes.data == t.data_ptr and made.tolist() == [[1, 3], [2, 4]]
    with pytest.raises(TypeError, match="numpy.from_dlpack gave a numpy.ndarray, not a numpy.float64"):
        mf.into(np.float64, t)
    with pytest.raises(AttributeError, match="has no __dlpack_c_exchange_api__.*and builtins has no from_dlpack"):
        mf.into(dict, t)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "got 0 arguments"),
        ((np, mf.zeros), "cls must be an array class .*not <module 'numpy'"),
        (("numpy", mf.zeros), "cls must be an array class .*not 'numpy'"),
        ((np.ndarray, np.zeros(1)), "t must be a moonferry.Tensor, not 'numpy.ndarray'; moonferry.from_dlpack"),
    ],
)
def test_into_says_what_was_given(arguments, said):
    with pytest.raises(TypeError, match=said):
        mf.into(*[mf.zeros(1) if argument is mf.zeros else argument for argument in arguments])


class Opaque:
    """An array's element that no library exchanges."""


# A dtype that is typed, and what is said of it.
DTYPES = [
    ("int23", "'int32'", "DType('int23')"), ("float33", "'float32'", "DType('float33')"),
    ("uint61", "did you mean 'uint", "DType('uint61')"), ("flaot32", "'float32'", "there is no dtype"),
    ("Float32", "'float32'", "there is no dtype"), ("nothing", "such as", "there is no dtype"),
    (">f4", "other order", "'<f4'"),
]  # fmt: skip
# An operator as it is typed, its sign, and what NumPy calls it.
OPERATORS = [
    ("t + 1", "+", "add(a, b)"), ("2.0 - t", "-", "subtract(a, b)"), ("t * t", "*", "multiply(a, b)"),
    ("t @ t", "@", "matmul(a, b)"), ("t / True", "/", "true_divide(a, b)"), ("t // 2j", "//", "floor_divide(a, b)"),
    ("t % 2", "%", "remainder(a, b)"), ("2 ** t", "**", "power(a, b)"), ("t += 1", "+", "add(a, b)"),
    ("-t", "-", "negative(a)"), ("abs(t)", "abs()", "absolute(a)"), ("divmod(t, 2)", "divmod()", "divmod(a, b)"),
    ("t & t", "&", "bitwise_and(a, b)"), ("1 | t", "|", "bitwise_or(a, b)"), ("t ^ 1", "^", "bitwise_xor(a, b)"),
    ("1 << t", "<<", "left_shift(a, b)"), ("t >> t", ">>", "right_shift(a, b)"), ("~t", "~", "invert(a)"),
]  # fmt: skip
# What NumPy, PyTorch or Moonferry's Lua calls what the module has or leaves to others, and what is said of it.
ABSENT = [
    ("array", "moonferry.tensor"), ("asaray", "moonferry.asarray"), ("arange", "moonferry.tensor(range(n))"),
    ("load", "np.load"), ("stack", "np.stack"), ("sum", "np.sum"), ("cuda", "device='cuda'"),
    ("is_tensor", "isinstance(x, moonferry.Tensor)"), ("eye", "moonferry.asarray(np.eye(...))"),
    ("zeros_like", "moonferry.zeros(t.shape, t.dtype"), ("full_like", "moonferry.full(t.shape, value"),
    ("newaxis", "None"), ("dtype", "moonferry.DType"), ("int", "moonferry.int64"), ("double", "moonferry.float64"),
    ("half", "moonferry.float16"), ("from_torch", "moonferry.from_dlpack"), ("to_numpy", "t.numpy()"),
    ("to_dlpack", "t.__dlpack__()"), ("default_stream", "moonferry.Stream.default(device)"),
    ("wrap_stream", "moonferry.Stream.wrap"), ("with_stream", "with stream"), ("doctor", "`moonferry doctor`"),
    ("Rnig", "moonferry.Ring"), ("mpi_", "'mpi_'"),
]  # fmt: skip


def rationals():
    """An array whose dtype a package of its own has brought."""
    tests = importlib.import_module("numpy._core._rational_tests" if NUMPY2 else "numpy.core._rational_tests")
    return np.array([tests.rational(1, 2)])


SAID = [  # what is typed over t, float32 of 2 x 3; the exception; what it must say
    *((f"mf.zeros(2, {name!r})", TypeError, [repr(name), *said]) for name, *said in DTYPES),
    *((typed, TypeError, [f"{sign}: ", f"np.{call}", "out=t.numpy()"]) for typed, sign, call in OPERATORS),
    *((f"mf.{name}", AttributeError, [repr(name), said]) for name, said in ABSENT),
    ("mf.zeros(2, 3)", TypeError, ["dtype", "got 3", "zeros((2, 3))"]),
    ("mf.zeros(2, object())", TypeError, ["a dtype must be a name such as 'float32'", "<object object"]),
    ("t.astype('int23')", TypeError, ["'int23'"]),
    ("t.reinterpret('int33')", TypeError, ["'int33'"]),
    ("mf.asarray(np.zeros(2), 'int23')", TypeError, ["'int23'"]),
    ("mf.zeros(2**70)", OverflowError, ["extent of shape", str(2**70)]),
    ("mf.full(2, 2**70)", OverflowError, [str(2**70), "64 bits"]),
    ("mf.tensor([2**70])", OverflowError, [str(2**70), "64 bits"]),
    ("t[2**70]", IndexError, [str(2**70)]),
    ("t[[0, 1]]", IndexError, ["list", "np.asarray(t)[...]"]),
    ("t[np.array([0, 1])]", IndexError, ["numpy.ndarray", "np.asarray(t)[...]"]),
    ("t[mf.tensor([0, 1])]", IndexError, ["moonferry.Tensor", "np.asarray(t)[...]"]),
    ("t[np.array(True)]", IndexError, ["numpy.ndarray", "np.asarray(t)[...]"]),
    ("t[{0, 1}]", IndexError, ["'set'", "np.asarray(t)[...]"]),
    ("t[{}]", IndexError, ["'dict'", "np.asarray(t)[...]"]),
    ("t['a']", IndexError, ["not 'str'"]),
    ("mf.zeros(True)", TypeError, ["extent of shape must be an integer", "'bool'"]),
    ("t.expand_dims(False)", TypeError, ["axis must be an integer", "'bool'"]),
    ("mf.zeros(2, 'int9')", TypeError, ["'int9'"]),
    ("t.permute_dims(0)", ValueError, ["axes has 1 ", "2 expected"]),
    ("t.T.reshape(6)", ValueError, ["copy()"]),
    ("mf.from_dlpack([1, 2])", AttributeError, ["'list'", "moonferry.asarray"]),
    ("t.to('float64')", ValueError, ["'float64'", "astype"]),
    ("t.to(np.float32)", ValueError, ["float32", "astype"]),
    ("mf.asarray(np.array(['a']))", BufferError, ["numpy.ndarray", "<U1", "astype('float64')"]),
    ("mf.asarray(np.array([Opaque()]))", BufferError, ["dtype object", "astype('float64')"]),
    ("mf.asarray(np.array(['2026-01-01'], 'M8[D]'))", BufferError, ["datetime64[D]", "view('int64')"]),
    ("mf.asarray(rationals)", BufferError, ["numpy.ndarray of dtype rational", "view('uint8')"]),
    ("mf.tensor(rationals)", BufferError, ["numpy.ndarray of dtype rational", "view('uint8')"]),
    ("mf.asarray(np.zeros(2, 'i4,f4'))", BufferError, ["moonferry.fields", "view('uint8')"]),
    ("mf.asarray(np.zeros(2, '>f4'), copy=False)", BufferError, [">f4", "without copy=False"]),
    ("t < 3", TypeError, ["< does not compare", "'int'", "np.asarray(a) < b"]),
    ("3.0 >= t", TypeError, ["<= does not compare", "np.asarray(a) <= b"]),
    ("sorted(t)", TypeError, ["< does not compare"]),
    ("t[t > 1]", TypeError, ["> does not compare"]),
    ("t + [1]", TypeError, ["unsupported operand"]),
    ("t.transpose()", AttributeError, ["'moonferry.Tensor'", "'transpose'", "use t.permute_dims(1, 0) or t.T"]),
    ("t.view(6)", AttributeError, ["'view'", "use t.reshape(shape)"]),
    ("t.sum()", AttributeError, ["'sum'", "use t.numpy().sum, over the same memory"]),
    ("t.softmax(0)", AttributeError, ["'softmax'", "use moonferry.into(torch.Tensor, t).softmax"]),
    ("mf.Tensor.cuda", AttributeError, ["'cuda'", "use t.to('cuda')"]),
    ("mf.Tensor()", TypeError, ["moonferry.Tensor", "moonferry.tensor"]),
    ("t.shape = (6,)", AttributeError, ["shape of a tensor cannot be set", "reshape"]),
    ("t.strides = (1, 2)", AttributeError, ["strides of a tensor cannot be set", "permute_dims"]),
    ("t.dtype = 'int8'", AttributeError, ["dtype of a tensor cannot be set", "astype", "reinterpret"]),
    ("t.device = 'cuda'", AttributeError, ["device of a tensor cannot be set", "to()"]),
    ("t.readonly = True", AttributeError, ["readonly of a tensor cannot be set", "as_readonly"]),
    ("t.size = 3", AttributeError, ["size of a tensor cannot be set"]),
    ("del t.flags", AttributeError, ["flags of a tensor cannot be set"]),
    ("t[2, 0]", IndexError, ["index 2 ", "axis 0 of extent 2"]),
    ("t[0, 3]", IndexError, ["index 3 ", "axis 1 of extent 3"]),
    ("t[-3]", IndexError, ["index -3 ", "axis 0 of extent 2"]),
    ("t[2, 0] = 1", IndexError, ["index 2 ", "axis 0 of extent 2"]),
    ("t[0, -4] = 1", IndexError, ["index -4 ", "axis 1 of extent 3"]),
    ("t[0, 0, 0]", IndexError, ["3 indices", "at most 2", "each axis"]),
    ("t[1.0:]", TypeError, ["a slice takes integers or None", "'float'"]),
    ("t[::0]", ValueError, ["step is 0"]),
    ("t[..., ...]", ValueError, ["second ellipsis"]),
    ("del t[0]", TypeError, ["cannot be deleted"]),
    ("t[0] = [1, 2]", ValueError, ["shape (2,)", "shape (3,)", "broadcast"]),
    ("t[0, 0] = [1, 2]", ValueError, ["shape (2,)", "shape ()"]),
    ("t.copy(mf.zeros(7))", ValueError, ["shape (7,)", "shape (2, 3)"]),
    ("t[0] = 'x'", TypeError, ["a number", "'str'"]),
    ("t[0] = None", TypeError, ["a number", "'NoneType'"]),
    ("t[0, 0] = 1j", TypeError, ["complex", "does not convert"]),
    ("t.fill([1])", TypeError, ["must be a number", "'list'"]),
    ("t.as_readonly().fill(1)", ValueError, ["read-only", "a copy"]),
    ("t.as_readonly()[0] = 1", ValueError, ["read-only", "a copy"]),
    ("t.reshape(4)", ValueError, ["4 elements", "6 expected"]),
    ("t.reshape(-1, -1)", ValueError, ["shape[1] is -1", "-1 once"]),
    ("t.reshape(-1, 4)", ValueError, ["a multiple of 4", "6 expected"]),
    ("t.reshape(2.0, 3)", TypeError, ["extent of shape", "'float'"]),
    ("t.permute_dims(0, 0)", ValueError, ["axes[1] is 0", "named before"]),
    ("t.permute_dims(0, 2)", IndexError, ["axis is 2", "-2 to 1"]),
    ("t.squeeze(0)", ValueError, ["axis 0 has extent 2", "1 expected"]),
    ("t.expand_dims(5)", IndexError, ["axis is 5", "-3 to 2"]),
    ("t.broadcast_to(3, 3)", TypeError, ["takes one shape", "(4, 3)", "got 2 arguments"]),
    ("t.broadcast_to((3, 3))", ValueError, ["shape[0] is 3", "2 expected", "only an extent of 1"]),
    ("t.T.reinterpret('int8')", ValueError, ["compact last axis"]),
    ("t.reinterpret('complex128')", ValueError, ["96 bits", "128 bits"]),
    ("mf.zeros(2, 'complex64').astype('int8')", TypeError, ["complex", "does not convert"]),
    ("t.astype()", TypeError, ["astype()", "'dtype'"]),
    ("mf.from_dlpack()", TypeError, ["from_dlpack()", "'obj'"]),
    ("mf.into(np.ndarray)", TypeError, ["an array class and a moonferry.Tensor", "got 1 argument"]),
    ("mf.into(list, t)", AttributeError, ["'builtins.list'", "t.tolist()"]),
    ("mf.equal(t)", TypeError, ["equal() takes two tensors", "got 1 argument"]),
    ("mf.DType(3)", TypeError, ["a dtype must be a name", "got 3"]),
    ("mf.asarray(None)", TypeError, ["an array, a number or nested sequences", "'NoneType'"]),
    ("mf.asarray(object())", TypeError, ["an array, a number or nested sequences", "'object'"]),
    ("mf.asarray(t.__dlpack__())", TypeError, ["'PyCapsule'", "from_dlpack takes capsules"]),
    ("mf.asarray(np.ndarray)", TypeError, ["an array, a number or nested sequences", "'type'"]),
    ("mf.asarray(np.dtype('f4'))", TypeError, ["is no sequence of numbers", "dtype"]),
    ("mf.zeros(2, 3, 4)", TypeError, ["zeros() takes at most 2 positional", "by name: device, pages"]),
    ("t.astype('int8', copy=3)", TypeError, ["copy must be True, False or None", "'int'"]),
    ("mf.zeros(())[0]", IndexError, ["1 index; at most 0"]),
    ("mf.asarray({'a': 1})", TypeError, ["'dict'", "list() of it"]),
    ("mf.device_count('gpu')", ValueError, ['"gpu"', '"cuda:0"', '"rocm:0"']),
    ("mf.threads(-2)", ValueError, ["n is -2", "0 to 64"]),
    ("import moonferry.gl as gl; gl.opne()", AttributeError, ["'opne'", "moonferry.gl.open"]),
    ("import moonferry.gl as gl; gl.open(3)", ValueError, ["library is 3", '"sdl"']),
    ("import moonferry.mpi as mpi; mpi.mesage(t)", AttributeError, ["'mesage'", "moonferry.mpi.message"]),
    ("import moonferry.mpi as mpi; mpi.message(3)", BufferError, ["message: ", "a builtins.int", "asarray(x)"]),
    ("import moonferry.luajit as lj; lj.LuaErorr", AttributeError, ["'LuaErorr'", "moonferry.luajit.LuaError"]),
    ("t.astype(object)", TypeError, ["such as 'float32'", "<class 'object'>"]),
    ("t.to('gpu')", ValueError, ['"gpu"', '"cuda:0"']),
    ("t.to('cpu', stream=5)", ValueError, ["stream is 5", "None or -1"]),
    ("t.to('cpu', copy=2)", TypeError, ["copy must be True, False or None"]),
    ("t.copy(progress=3)", TypeError, ["progress must be a callable or None", "'int'"]),
    ("t.item()", ValueError, ["has 6", "tolist()"]),
    ("float(t)", TypeError, ["has 6", "tolist()"]),
    ("bool(t)", ValueError, ["has 6", "tolist()"]),
    ("[1][t]", TypeError, ["integer tensor without axes"]),
    ("len(t[0, :1].squeeze())", TypeError, ["without axes"]),
    ("mf.zeros()", TypeError, ["zeros()", "'shape'"]),
    ("mf.zeros((2, -3))", ValueError, ["shape[1] is -3", "at least 0"]),
    ("mf.zeros(2.5)", TypeError, ["shape", "'float'"]),
    ("mf.zeros((2, None))", TypeError, ["extent of shape", "'NoneType'"]),
    ("mf.zeros(2, dtyp='int8')", TypeError, ["zeros()", "'dtyp'"]),
    ("mf.zeros(2, device=3)", TypeError, ["device", "a name such as 'cuda:0'", "pair of numbers", "not 3"]),
    ("mf.zeros([1] * 65)", ValueError, ["65 axes", "64"]),
    ("mf.zeros((2**40, 2**40))", OverflowError, ["shape[0] is 1099511627776"]),
    ("mf.full(2)", TypeError, ["full()", "'fill_value'"]),
    ("mf.full(2, [1])", TypeError, ["must be a number", "'list'"]),
    ("mf.tensor([[1, 2], [3]])", ValueError, ["ragged", "depth 1"]),
    ("mf.tensor([1, None])", TypeError, ["must be a number", "'NoneType'"]),
    ("mf.tensor('abc')", TypeError, ["an array, a number", "'str'"]),
    ("mf.tensor({1, 2})", TypeError, ["'set'", "list() of it"]),
    ("mf.tensor(x for x in [1])", TypeError, ["'generator'", "list() of it"]),
    ("mf.asarray([1, 2], copy=False)", BufferError, ["copy=False", "must be copied"]),
    ("mf.asarray(np.zeros(2), 'int8', copy=False)", BufferError, ["float64 would become int8"]),
    ("mf.asarray(np.zeros(2), copy='yes')", TypeError, ["copy must be True, False or None", "'yes'"]),
    ("mf.from_dlpack(1)", AttributeError, ["'int'", "moonferry.asarray"]),
    ("mf.from_dlpack(t, stream=1)", TypeError, ["from_dlpack()", "'stream'"]),
    ("mf.from_arrow(1)", TypeError, ["int", "__arrow_c_array__"]),
    ("mf.frombuffer('x')", TypeError, ["bytes-like", "'str'"]),
    ("mf.frombuffer(b'abc', 'int32')", ValueError, ["3 bytes", "4 bytes"]),
    ("mf.frombuffer(b'abcd', 'int32', 2)", ValueError, ["count 2", "4 bytes"]),
    ("mf.frombuffer(b'abcd', 'int8', -2, 9)", ValueError, ["offset 9", "4 bytes"]),
    ("mf.wrap('abc', 2)", TypeError, ["wrap: pointer", "address or of ctypes", "str", "asarray"]),
    ("mf.wrap(0, 2)", ValueError, ["wrap: pointer is 0", "NULL", "address"]),
    ("mf.wrap(t.data_ptr, 2, strides=(1, 1))", ValueError, ["strides", "one entry for each axis"]),
    ("mf.equal(t, 'x')", TypeError, ["'str'"]),
    ("mf.Device('x')", ValueError, ['"x"', '"cuda:0"']),
    ("mf.Stream('cpu')", ValueError, ["no streams", '"cuda:0"']),
    ("mf.pool_limit('cpu', 5)", ValueError, ["cpu", "not pooled"]),
    ("mf.stream_none('x')", ValueError, ["'x'", "default, no_order, refuse"]),
    ("mf.fields(bytearray(8), [])", ValueError, ["layout is empty"]),
    ("mf.fields(bytearray(7), [('a', 'float32')])", ValueError, ["7 bytes", "multiple of 4"]),
    ("mf.fields(bytearray(8), [('a', 'float32', 0)])", ValueError, ["count of 0", "at least one element"]),
    ("mf.fields(bytearray(8), [('a', 'float32', 'x')])", TypeError, ["field 0: count", "an integer", "'x'"]),
    ("mf.fields(bytearray(8), [('a', 'float33')])", TypeError, ["'float33'", "'float32'"]),
    ("mf.fields(bytearray(8), [('a', 3)])", TypeError, ["a dtype must be a name", "got 3"]),
    ("mf.fields(3, [('a', 'float32')])", TypeError, ["base", "uint8 tensor", "'int'"]),
    ("mf.fields(t, [('a', 'float32')])", ValueError, ["base is float32 of shape (2, 3)", "uint8"]),
    ("mf.Ring(2, slots=0)", ValueError, ["slots is 0", "1 to 64"]),
    ("mf.Ring([t, 1])", TypeError, ["slot 1", "'int'"]),
    ("mf.Ring(2, slots='x')", TypeError, ["slots must be an integer", "'str'"]),
    ("mf.Ring(2).done()", ValueError, ["no slot is being written", "begin one first"]),
    ("mf.Ring(2).publish()", ValueError, ["no slot is being written", "begin one first"]),
    ("(lambda r: (r.begin(), r.begin()))(mf.Ring(2))", ValueError, ["a slot is being written", "give it back"]),
    ("mf.Ring(2).hold(None)", ValueError, ["the reader has no slot", "take the latest one first"]),
    ("(lambda r: (r.begin(), r.done(3)))(mf.Ring(2))", TypeError, ["fence must be None or a capsule", "3"]),
    ("mf.Ring(2).begin(timeout='x')", TypeError, ["timeout must be None or seconds", "'str'"]),
    ("mf.Ring(2).into(3)", TypeError, ["convert must be an array class", "'int'"]),
    ("(lambda r: (r.close(), r.begin()))(mf.Ring(2))", ValueError, ["the ring is closed", "with block"]),
    ("memoryview(mf.zeros(2, 'bfloat16'))", BufferError, ["bfloat16", "reinterpret()"]),
    ("t.__dlpack__(stream=3)", ValueError, ["None or -1", "not 3"]),
    ("t.__dlpack__(max_version=3)", TypeError, ["tuple of two ints", "not 3"]),
    ("t.__dlpack__(copy='x')", TypeError, ["copy must be True, False or None"]),
    ("t.as_readonly().__dlpack__()", BufferError, ["read-only", "versioned"]),
    ("t[0, 0:1].squeeze().__arrow_c_array__()", BufferError, ["has an axis", "reshape(1)"]),
    ("mf.asarray(np.ma.masked_array([1.0, 2.0], mask=[0, 1]))", BufferError, ["1 masked", "filled", ".data"]),
    ("mf.from_dlpack(np.ma.masked_array([1.0], mask=[1]))", BufferError, ["from_dlpack: 1 masked", "filled", ".data"]),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "kind", "said"), SAID)
def test_a_mistake_is_named_with_its_remedy(typed, kind, said):
    t, before = mf.tensor([[1, 2, 3], [4, 5, 6]], "float32"), mf.ledger()
    names = {"t": t, "mf": mf, "np": np, "Opaque": Opaque, "rationals": rationals()}
    with pytest.raises(kind) as refused:
        exec(typed, names)
    text = str(refused.value)
    assert all(part in text for part in said), text
    assert t.tolist() == [[1, 2, 3], [4, 5, 6]]
    del refused
    assert mf.ledger() == before
    names.clear()  # a function in it is immortal in a 3.13t in which a thread has run (gh-117783), and all that it has


def test_what_a_tensor_lacks_is_nowhere_but_in_the_error():
    """hasattr, dir, help and completion say that the names are not there, and methods are called as before."""
    t, lacks = mf.zeros(2), mf._hint.AbsentOfTensor
    names = [name for name in vars(lacks) if not name.startswith("_")]
    assert len(names) > 100
    for name in names:
        assert not hasattr(t, name) and not hasattr(mf.Tensor, name) and getattr(t, name, 3) == 3
        assert name not in dir(t) and name not in dir(mf.Tensor) and name not in vars(mf.Tensor)
    assert not re.search(r"^ \|  (transpose|sum|softmax)\b", pydoc.plain(pydoc.render_doc(mf.Tensor)), re.MULTILINE)
    assert rlcompleter.Completer({"t": t}).complete("t.transp", 0) is None
    assert mf.Tensor.__getattribute__ is object.__getattribute__
    assert "no attribute 'nothing_such'" in str(pytest.raises(AttributeError, getattr, t, "nothing_such").value)
    with pytest.raises(AttributeError):
        t.transpose = 1
    with pytest.raises(TypeError, match="a class expected, not 'int'"):
        mf._core._tensor_lacks(3)
    mf._core._tensor_lacks(lacks)  # as when the package is loaded anew
    assert mf.Tensor.__mro__ == (mf.Tensor, lacks, object) and t.tolist() == [0, 0]


def test_an_operator_is_left_to_who_computes():
    """The other operand's own methods, and lists that are repeated, work as they did before tensors answered."""
    t, n = mf.tensor([1.0, 2.0]), mf.tensor(2)
    a, one = np.array([3.0, 5.0]), np.float64(1)
    assert (t + a).tolist() == (a + t).tolist() == [4, 7]
    assert (a - t).tolist() == [2, 3] and (t - a).tolist() == [-2, -3]
    assert (t * one).tolist() == (one * t).tolist() == [1, 2] and (one - t).tolist() == [0, -1]
    assert t @ a == a @ t == 13 and (a**t).tolist() == [3, 25] and (t**a).tolist() == [1, 32]
    assert (t < a).all() and (a > t).all() and (t <= one).tolist() == [True, False]
    assert [0] * n == [0, 0] and n * "ab" == "abab"
    assert np.add(t, 1).tolist() == [2, 3]
    np.add(t, 1, out=t.numpy())
    assert t.tolist() == [2, 3]


def test_what_numpys_arrays_have_is_answered():
    lacks, t = vars(mf._hint.AbsentOfTensor), mf.zeros(2)
    public = {name for name in dir(np.ndarray) if not name.startswith("_") and not hasattr(t, name)}
    assert public - set(lacks) == set()
    assert {name for name in mf._hint._NUMPY if not hasattr(np.ndarray, name)} == set()


def test_what_pytorchs_tensors_have_is_answered():
    torch = pytest.importorskip("torch")
    assert {name for name in mf._hint._TORCH if not hasattr(torch.Tensor, name)} == set()


def test_reshape_says_copy_once():
    with pytest.raises(ValueError, match="copy") as refused:
        mf.zeros((2, 3)).T.reshape(6)
    assert str(refused.value).count("copy()") == 1


@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_too_long_to_be_printed_is_refused_too(sign):
    with pytest.raises(OverflowError, match="64 bits"):
        mf.full(2, sign * 10**10000)
    with pytest.raises(IndexError, match="64 bits"):
        mf.zeros(2)[sign * 10**10000]


@pytest.mark.parametrize("number", [10**79, -(10**78)])
def test_up_to_eighty_characters_of_a_number_that_does_not_fit_are_said(number):
    with pytest.raises(IndexError, match=f"^an index is {number}, which does not fit in 64 bits$"):
        mf.zeros(2)[number]
    with pytest.raises(IndexError, match="^an index does not fit in 64 bits$"):
        mf.zeros(2)[number * 10]


TOO_MANY = [
    ("mf.zeros(2, 'int8', 4)", "zeros() takes at most 2 positional arguments (3 given); by name: device, pages"),
    ("t.to('cpu', 1)", "to() takes at most 1 positional argument (2 given); by name: copy, stream"),
    ("t.squeeze(0, 1)", "squeeze() takes at most 1 positional argument (2 given)"),
    ("t.diagonal(0, 0, 1, 5)", "diagonal() takes at most 3 positional arguments (4 given)"),
]


@pytest.mark.parametrize(("typed", "said"), TOO_MANY)
def test_too_many_arguments_are_refused_with_the_names_of_those_that_have_some(typed, said):
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        eval(typed, {"mf": mf, "t": mf.zeros((2, 2))})


NUMPYS = [
    ("f4", "float32"), ("<f8", "float64"), ("=i2", "int16"), ("|u1", "uint8"), ("b1", "bool"), ("?", "bool"),
    ("c16", "complex128"), ("half", "float16"), ("single", "float32"), ("double", "float64"), ("float", "float64"),
    ("int", "int64"), ("complex", "complex128"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "meant"), NUMPYS)
def test_numpys_names_are_taken_as_numpy_means_them(name, meant):
    assert mf.zeros(2, name).dtype == mf.DType(name) == meant == np.dtype(name)


@pytest.mark.parametrize("name", ["int4", "uint3", "float32x4", "float4_e2m1fn", "float8_e5m2", "bfloat16"])
def test_names_of_what_some_library_has_are_taken(name):
    assert mf.zeros(2, name).dtype == name


def test_an_uncommon_width_is_said_by_the_dtypes_own_class():
    odd = mf.DType("int23")
    t = mf.zeros(2, odd)
    assert t.dtype == "int23" and mf.zeros(2, t.dtype).dtype is t.dtype


def test_a_dtype_is_equal_to_what_it_can_be_made_of():
    torch = pytest.importorskip("torch")
    t = mf.zeros(2)
    for same in ("float32", np.float32, np.dtype("f4"), torch.float32, mf.float32):
        assert t.dtype == same and same == t.dtype and not t.dtype != same
    for other in (np.float64, float, "float64", torch.float16, None, 3, object(), "no such", np.dtype("O"), "U1"):
        assert t.dtype != other and not t.dtype == other
    assert mf.zeros(2, "float64").dtype == float
    assert {t.dtype: 1}["float32"] == 1 and t.dtype in ("int8", "float32") and hash(t.dtype) == hash("float32")


def test_dir_lists_what_is_public():
    for name in dir(mf):
        assert name in mf.__all__ or name in mf._LUA or name.startswith("__"), name
    assert set(mf.__all__) <= set(dir(mf))


def test_into_warns_where_read_only_is_lost():
    torch = pytest.importorskip("torch")
    data = b"Moonferry"
    t = mf.frombuffer(data)
    with pytest.warns(UserWarning, match=r"read-only, which a .*Tensor' does not know.*t.copy\(\)"):
        mf.into(torch.Tensor, t)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = mf.ledger()
        with pytest.raises(UserWarning, match="read-only"):
            mf.into(torch.Tensor, t)
        assert mf.ledger() == before
        assert bytes(mf.into(torch.Tensor, t.copy()).tolist()) == data
        assert mf.into(mf.Tensor, t).readonly
        assert not mf.into(np.ndarray, t).flags.writeable
