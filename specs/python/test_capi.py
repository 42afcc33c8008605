"""The C-API capsule: from a small extension compiled here, and member by member from ctypes."""

import ctypes as c
import importlib.util
import os
import sys
import sysconfig

import pytest

import dlpack_abi as abi
import moonferry as mf

HERE = os.path.dirname(os.path.abspath(__file__))


class Api(c.Structure):
    _fields_ = [
        ("version", c.c_uint32),
        ("size", c.c_uint32),
        ("build_id", c.c_char_p),
        ("wrap", c.PYFUNCTYPE(c.py_object, c.c_void_p)),
        ("unwrap", c.PYFUNCTYPE(c.c_void_p, c.py_object)),
        ("check", c.PYFUNCTYPE(c.c_int, c.py_object)),
        ("retain", c.PYFUNCTYPE(c.c_void_p, c.py_object)),
    ]


@pytest.fixture(scope="module")
def user():
    if abi.compiler() is None:
        pytest.skip("no C compiler")
    headers = [mf.get_include(), sysconfig.get_path("include")]
    package = os.path.dirname(mf._core.__file__)
    link = [f"-Wl,-rpath,{package}", os.path.join(package, "libmoonferry.so.0")]
    name = "capi_user" + sysconfig.get_config_var("EXT_SUFFIX")
    path = abi.compile_shared(os.path.join(HERE, "capi_user.c"), name, [f"-isystem{h}" for h in headers], link)
    spec = importlib.util.spec_from_file_location("capi_user", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["capi_user"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def api():
    assert abi.capsule_name(mf._C_API) == b"moonferry._C_API"
    return Api.from_address(abi.capsule_pointer(mf._C_API))


def test_another_extension_makes_tensors(user):
    t = user.make(5)
    assert type(t) is mf.Tensor and t.dtype == "int64" and t.tolist() == [0, 1, 4, 9, 16]
    with pytest.raises(ValueError):
        user.make(-2)


def test_another_extension_reads_tensors(user):
    t = user.make(5)
    assert user.total(t) == 30 and user.total(t[::-2]) == 20
    for thing in (None, 3, [1, 2], object()):
        with pytest.raises(TypeError):
            user.total(thing)


def test_another_extension_asks_what_a_tensor_is(user):
    assert user.is_tensor(mf.zeros((1,))) is True
    assert [user.is_tensor(x) for x in (None, 3, "x", mf.Tensor, object())] == [False] * 5


def test_a_tensor_that_another_extension_made_outlives_it(user):
    t = user.make(3)
    capsule = t.__dlpack__()
    del t
    assert mf.from_dlpack(capsule).tolist() == [0, 1, 4]


def test_the_table_says_its_version_and_size(api):
    assert api.version == 1 and api.size >= c.sizeof(Api) and len(api.build_id) == 33


def test_unwrap_borrows(api):
    t = mf.zeros((2,))
    before = mf.ledger()
    assert api.unwrap(t) == api.unwrap(t) != 0 and mf.ledger() == before
    assert api.unwrap(t[0:1]) != api.unwrap(t)


@pytest.fixture
def library():
    library = c.CDLL(os.path.join(os.path.dirname(mf._core.__file__), "libmoonferry.so.0"))
    library.mf_tensor_retain.restype = c.c_void_p
    return library


def test_wrap_and_unwrap_are_inverse(api, library):
    t = mf.tensor([1, 2, 3])
    again = api.wrap(library.mf_tensor_retain(c.c_void_p(api.unwrap(t))))
    assert again is not t and again.data_ptr == t.data_ptr and api.unwrap(again) == api.unwrap(t)
    del t
    assert again.tolist() == [1, 2, 3]


def test_retain_gives_a_reference_of_its_own(api):
    t = mf.tensor([1, 2, 3])
    again = api.wrap(api.retain(t))
    t.close()
    assert again.tolist() == [1, 2, 3]
    with pytest.raises(TypeError):
        api.retain(3)


def test_wrap_takes_nothing_where_there_is_no_memory_for_an_object(user):
    _testcapi = pytest.importorskip("_testcapi")
    before, made, failures = mf.ledger(), None, 0
    spares = [mf.zeros(1) for _ in range(200)]
    while made is None:
        _testcapi.set_nomemory(failures, failures + 1)
        try:
            made = user.make(3)
        except MemoryError:
            failures += 1
        finally:
            _testcapi.remove_mem_hooks()
    assert made.tolist() == [0, 1, 4]
    del made, spares
    assert failures > 0 and mf.ledger() == before
