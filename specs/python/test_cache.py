"""What Moonferry remembers of the types that tensors came from: never more than is still true."""

import gc
import sys
import types
import weakref

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf
from test_table import METHODS, foreign, lazy, offer


class Slotted:
    """No instance dictionary: the kind of type whose method may be remembered."""

    __slots__ = ()

    def hand_out(self, extent):
        return abi.Producer((extent,), (1,)).capsule()

    def __dlpack__(self, **kwargs):
        return self.hand_out(2)

    def __dlpack_device__(self):
        return (1, 0)


def fresh_type():
    return type("Fresh", (Slotted,), {"__slots__": ()})


def test_a_method_that_was_replaced_is_not_called_again():
    kind = fresh_type()
    x = kind()
    assert mf.from_dlpack(x).shape == (2,)
    for extent in (3, 4, 5):
        kind.__dlpack__ = lambda self, extent=extent, **kwargs: self.hand_out(extent)
        assert mf.from_dlpack(x).shape == (extent,)
    del kind.__dlpack__
    assert mf.from_dlpack(x).shape == (2,)


def test_a_method_that_was_replaced_in_a_base_is_not_called_again():
    base = fresh_type()
    kind = type("Sub", (base,), {"__slots__": ()})
    assert mf.from_dlpack(kind()).shape == (2,)
    base.__dlpack__ = lambda self, **kwargs: self.hand_out(6)
    x = kind()
    assert mf.from_dlpack(x).shape == (6,)


def test_an_instance_method_comes_before_the_types():
    class Loose:
        def __dlpack__(self, **kwargs):
            raise AssertionError("the type was asked")

    x, made = Loose(), abi.Producer((5,), (1,))
    x.__dlpack__ = lambda **kwargs: made.capsule()
    assert mf.from_dlpack(x).shape == (5,)


def test_an_attribute_hook_comes_before_the_types():
    class Hooked:
        __slots__ = ()

        def __getattribute__(self, name):
            return lambda **kwargs: abi.Producer((5,), (1,)).capsule()

        def __dlpack__(self, **kwargs):
            raise AssertionError("the type was asked")

    for _ in range(3):
        assert mf.from_dlpack(Hooked()).shape == (5,)


class Callable:
    """No function, so that it is not given the instance."""

    def __call__(self, **kwargs):
        return abi.Producer((5,), (1,)).capsule()


@pytest.mark.parametrize("kind", [Callable, lambda: staticmethod(Callable()), lambda: classmethod(by_class)])
def test_a_method_that_is_no_function_of_the_instance(kind):
    fresh = type("Fresh", (), {"__slots__": (), "__dlpack__": kind(), "__dlpack_device__": lambda self: (1, 0)})
    for _ in range(3):
        assert mf.from_dlpack(fresh()).shape == (5,)


def by_class(cls, **kwargs):
    assert isinstance(cls, type)
    return abi.Producer((5,), (1,)).capsule()


def test_what_is_looked_up_is_let_go():
    method = Callable()
    kinds = [type("Fresh", (), {"__slots__": (), "__dlpack__": method}) for _ in range(50)]
    seen = [method, np, np.ndarray]
    before = [sys.getrefcount(x) for x in seen]
    for kind in kinds:
        mf.from_dlpack(kind())
    # The cache may forget one of NumPy's types for them, which it had kept.
    assert max(sys.getrefcount(x) - n for x, n in zip(seen, before)) < len(kinds) / 2


def test_a_table_that_appears_is_seen_and_one_that_goes_is_forgotten():
    kind = type("Late", (), {**METHODS, "__slots__": ()})
    with_table = foreign()
    assert mf.from_dlpack(kind()).shape == (7,)
    producer = offer()
    kind.__dlpack_c_exchange_api__ = with_table.__dlpack_c_exchange_api__
    t = mf.from_dlpack(kind())
    assert t.shape == (2, 3)
    del t
    assert producer.deletes == 1
    del kind.__dlpack_c_exchange_api__
    assert mf.from_dlpack(kind()).shape == (7,)


def test_more_types_than_are_remembered():
    kinds = [type(f"Kind{i}", (Slotted,), {"__slots__": (), "n": i + 1}) for i in range(200)]
    for kind in kinds:
        kind.__dlpack__ = lambda self, **kwargs: self.hand_out(type(self).n)
    for _ in range(3):
        for kind in kinds:
            x = kind()
            assert mf.from_dlpack(x).shape == (kind.n,)


def test_types_that_are_gone_are_let_go():
    alive = weakref.WeakSet()
    for _ in range(500):
        kind = fresh_type()
        alive.add(kind)
        x = kind()
        assert mf.from_dlpack(x).shape == (2,)
    del kind, x
    gc.collect()
    assert len(alive) <= 64


def test_a_type_that_changes_while_it_is_asked():
    kind = fresh_type()

    def changes(self, **kwargs):
        kind.__dlpack__ = lambda self, **kwargs: self.hand_out(9)
        return self.hand_out(8)

    kind.__dlpack__ = changes
    x = kind()
    assert mf.from_dlpack(x).shape == (8,)
    assert mf.from_dlpack(x).shape == (9,)


@pytest.mark.parametrize("error", [RuntimeError, KeyError])
def test_a_metaclass_that_raises_passes_its_exception_on(error):
    class Meta(type):
        @property
        def __dlpack_c_exchange_api__(cls):
            raise error("mine")

    class Odd(metaclass=Meta):
        __dlpack__ = METHODS["__dlpack__"]

    with pytest.raises(error, match="mine"):
        mf.from_dlpack(Odd())


@pytest.mark.parametrize("name", ["requires_grad", "is_neg", "is_conj"])
def test_what_looking_for_a_guard_raises_passes_through(name):
    def fails(cls):
        raise KeyError("mine")

    kind = type("Meta", (type,), {name: property(fails)})("Odd", (lazy(),), {"__slots__": ()})
    with pytest.raises(KeyError, match="mine"):
        mf.from_dlpack(kind())


def test_a_metaclass_that_imports_while_it_is_asked():
    class Meta(type):
        @property
        def __dlpack_c_exchange_api__(cls):
            for _ in range(70):
                kind = fresh_type()
                x = kind()
                mf.from_dlpack(x)
            raise AttributeError("none")

    class Nested(metaclass=Meta):
        __dlpack__ = METHODS["__dlpack__"]

    assert mf.from_dlpack(Nested()).shape == (7,)


def test_static_types_and_instances_of_no_type_of_ours():
    for x in (3, "x", b"x", [], (), {}, None, type, mf, lambda: 0, 1.5, ..., NotImplemented):
        with pytest.raises(AttributeError, match=f"a '{type(x).__name__}' cannot be imported"):
            mf.from_dlpack(x)
    with pytest.raises(TypeError, match="__dlpack_device__"):
        mf.from_dlpack(mf.Tensor)


class Gone(BaseException):
    """What ends an import before it looks at a type that is no more."""


def test_a_type_that_code_takes_from_its_last_object_stays_while_it_is_looked_at(monkeypatch):
    """Python calls that code where NumPy's module is one that is loaded when it is used."""
    kind = fresh_type()
    x, of_kind = kind(), weakref.ref(kind)

    class Lazily(types.ModuleType):
        @property
        def ndarray(self):
            nonlocal kind
            if kind is not None:
                x.__class__, kind = fresh_type(), None
                gc.collect()
            if of_kind() is None:
                raise Gone
            return np.ndarray

    monkeypatch.setitem(sys.modules, "numpy", Lazily("numpy"))
    assert mf.from_dlpack(x).shape == (2,) and kind is None
