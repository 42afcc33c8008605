"""Producers of other times and other tastes, beside those of specs/python/test_producer.py: free functions, drafts of
the standard, subclasses, NumPy 1, and those that lie about their device."""

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf


class OldNumpy(np.ndarray):
    """NumPy before 2: no keywords, and a TypeError for what is read-only."""

    def __dlpack__(self, stream=None):
        if not self.flags.writeable:
            raise TypeError("NumPy currently only supports dlpack for writeable arrays")
        return super().__dlpack__(stream=stream)


def test_a_read_only_array_of_numpy_1_comes_by_its_buffer():
    a = np.arange(6.0).reshape(2, 3).view(OldNumpy)
    assert mf.from_dlpack(a).data_ptr == mf.asarray(a).data_ptr == a.ctypes.data
    a.flags.writeable = False
    t = mf.asarray(a)
    assert t.readonly and t.data_ptr == a.ctypes.data and t.tolist() == a.tolist()
    with pytest.raises(TypeError, match="only supports dlpack for writeable"):
        mf.from_dlpack(a)


def test_a_type_error_is_not_hidden_where_there_is_no_other_way():
    class Refuses:
        def __dlpack__(self, **_):
            raise TypeError("not today")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(TypeError, match="not today"):
        mf.asarray(Refuses())


class FreeFunctions:
    """A library as they were first: `to_dlpack(x)` gives a capsule, and the array has no method."""

    def __init__(self, versioned):
        self.producer = abi.Producer(versioned=versioned)

    def to_dlpack(self):
        return self.producer.capsule()


@pytest.mark.parametrize("versioned", [False, True])
def test_a_bare_capsule_is_taken_once(versioned):
    library = FreeFunctions(versioned)
    capsule = library.to_dlpack()
    t = mf.from_dlpack(capsule)
    with pytest.raises((BufferError, ValueError)):
        mf.from_dlpack(capsule)
    assert library.producer.deletes == 0
    del t
    assert library.producer.deletes == 1


class Draft:
    """The draft of the protocol that had `__dlpack_info__` and a keyword `version`."""

    def __init__(self):
        self.producer = abi.Producer(versioned=False)
        self.asked = []

    def __dlpack_info__(self):
        return {"max_version": 60}

    def __dlpack__(self, stream=None, version=None):
        self.asked.append(version)
        return self.producer.capsule()

    def __dlpack_device__(self):
        return (1, 0)


def test_the_drafts_keyword_is_not_used():
    source = Draft()
    t = mf.from_dlpack(source)
    assert source.asked == [None]
    del t
    assert source.producer.deletes == 1


class Subclass(np.ndarray):
    """A subclass that gives something else than its base would."""

    def __dlpack__(self, **more):
        return np.asarray(self)[:1].__dlpack__(**more)


def test_a_subclass_that_overrides_the_method_is_asked_and_not_its_base():
    a = np.arange(3.0).view(Subclass)
    assert mf.from_dlpack(a).tolist() == [0.0]
    assert mf.asarray(a).tolist() == [0.0]


@pytest.mark.parametrize("device", [(2, 0), (10, 0), (8, 0), (99, 7), (1, 3), (-1, 0)])
def test_a_producer_that_lies_about_its_device_gives_no_wrong_memory(device):
    class Liar:
        def __init__(self):
            self.producer = abi.Producer()

        def __dlpack__(self, **_):
            return self.producer.capsule()

        def __dlpack_device__(self):
            return device

    liar = Liar()
    try:
        t = mf.from_dlpack(liar)
    except (BufferError, RuntimeError, ValueError):
        assert liar.producer.deletes <= 1
    else:
        assert t.device == "cpu"
        del t
        assert liar.producer.deletes == 1


@pytest.mark.parametrize("device", [None, 1, "cpu", (1,), (1, 2, 3), ("cpu", 0), (2**40, 0), (1.0, 0)])
def test_a_device_that_is_no_pair_of_numbers_is_refused_or_the_capsules_word_counts(device):
    class Nonsense:
        def __dlpack__(self, **_):
            return abi.Producer().capsule()

        def __dlpack_device__(self):
            return device

    try:
        assert mf.from_dlpack(Nonsense()).device == "cpu"
    except (BufferError, TypeError, ValueError, OverflowError):
        pass


def test_a_producer_that_changes_its_mind_while_it_is_asked():
    class Fickle:
        count = 0

        def __dlpack_device__(self):
            Fickle.count += 1
            return (1, 0) if Fickle.count % 2 else (2, 0)

        def __dlpack__(self, **_):
            return abi.Producer().capsule()

    for _ in range(4):
        try:
            assert mf.from_dlpack(Fickle()).device == "cpu"
        except (BufferError, RuntimeError, ValueError):
            pass
