"""Odd producers: old ones, forgetful ones, liars, and those that raise."""

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf


class Base:
    """Hands out a fresh hand-made struct at every call and remembers how it was called."""

    device = (1, 0)

    def __init__(self, **fields):
        self.made, self.calls, self.fields = [], [], fields

    def fresh(self, **kwargs):
        self.calls.append(kwargs)
        self.made.append(abi.Producer(**self.fields))
        return self.made[-1].capsule()

    def __dlpack_device__(self):
        return self.device

    @property
    def deletes(self):
        return [producer.deletes for producer in self.made]


class Modern(Base):
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.fresh(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


class Legacy(Base):
    def __dlpack__(self, stream=None):
        self.fields["versioned"] = False
        return self.fresh(stream=stream)


class VersionOnly(Base):
    def __dlpack__(self, *, stream=None, max_version=None):
        return self.fresh(stream=stream, max_version=max_version)


class Bare(Base):
    def __dlpack__(self):
        return self.fresh()


def jaxlike(**fields):
    return type("Array", (Modern,), {"__module__": "jaxlib._jax"})(**fields)


def test_what_comes_from_jaxlib_cannot_be_written_however_memory_ends():
    t = mf.from_dlpack(jaxlike())
    assert t.readonly and mf.from_dlpack(jaxlike(), copy=True).readonly is False
    before = mf.ledger()
    for nth in range(20):
        source = jaxlike()
        mf._core._fault_arm(nth, False)
        try:
            made = mf.from_dlpack(source)
        except MemoryError:
            assert source.deletes in ([], [1]) and mf.ledger() == before
            continue
        finally:
            mf._core._fault_arm(-1, False)
        assert made.readonly and nth > 0
        return
    raise AssertionError("the import never came to its end")


def test_a_modern_producer_is_asked_for_1_3():
    source = Modern()
    t = mf.from_dlpack(source)
    assert len(source.calls) == 1 and source.calls[0]["max_version"] == (1, 3)
    assert source.calls[0]["stream"] is None and source.deletes == [0]
    del t
    assert source.deletes == [1]


def test_keywords_that_say_nothing_are_left_out():
    class Watch(Base):
        def __dlpack__(self, **kwargs):
            return self.fresh(**kwargs)

    source = Watch()
    mf.from_dlpack(source)
    assert "dl_device" not in source.calls[0] and "copy" not in source.calls[0]


def test_device_and_copy_are_passed_on():
    source = Modern()
    mf.from_dlpack(source, device="cpu", copy=False)
    assert source.calls[0]["copy"] is False and source.calls[0]["dl_device"] in (None, (1, 0))


@pytest.mark.parametrize("kind", [Legacy, VersionOnly, Bare])
def test_producers_that_know_fewer_keywords_are_asked_again(kind):
    source = kind()
    t = mf.from_dlpack(source)
    assert t.shape == (2, 3) and len(source.calls) == 1
    del t
    assert source.deletes == [1]


@pytest.mark.parametrize("kind", [Legacy, VersionOnly, Bare])
def test_copy_true_is_kept_where_the_producer_does_not_know_the_word(kind):
    source = kind()
    t = mf.from_dlpack(source, copy=True)
    assert t.data_ptr != source.made[0].dl.data and source.deletes == [1]
    t[0, 0] = 1
    assert not any(source.made[0].memory)


@pytest.mark.parametrize("kind", [VersionOnly, Bare])
def test_copy_false_is_kept_where_the_struct_can_say_that_it_is_no_copy(kind):
    source = kind()
    t = mf.from_dlpack(source, copy=False)
    assert t.data_ptr == source.made[0].dl.data
    del t
    assert source.deletes == [1]


def test_copy_false_is_refused_where_nobody_can_say():
    source = Legacy()
    with pytest.raises(BufferError, match="copy=False.*Legacy"):
        mf.from_dlpack(source, copy=False)
    assert source.deletes == [1]


@pytest.mark.parametrize("kind", [Legacy, VersionOnly, Bare])
def test_the_own_device_needs_no_keyword(kind):
    assert mf.from_dlpack(kind(), device="cpu").device == "cpu"


def test_a_copy_that_the_producer_made_is_not_copied_again():
    class Copies(Base):
        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            self.fields["flags"] = abi.IS_COPIED if copy else 0
            return self.fresh(copy=copy)

    source = Copies()
    t = mf.from_dlpack(source, copy=True)
    assert source.calls[0]["copy"] is True and t.data_ptr == source.made[0].dl.data
    del t


def test_a_producer_that_ignores_copy_false_is_refused():
    source = Modern(flags=abi.IS_COPIED)
    with pytest.raises(BufferError):
        mf.from_dlpack(source, copy=False)
    assert source.deletes == [1]


def test_a_producer_that_says_nothing_of_a_copy_is_not_believed():
    source = Modern()
    t = mf.from_dlpack(source, copy=True)
    assert source.calls[0]["copy"] is True and not t.readonly
    assert t.data_ptr != source.made[0].dl.data and source.deletes == [1]


class Deleted(Modern):
    """As JAX's deleted arrays: the question for the device fails at what is there instead of the memory."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def __dlpack_device__(self):
        raise TypeError("None has no len()")

    def is_deleted(self):
        if isinstance(self.answer, type):
            raise self.answer
        return self.answer


def test_what_was_deleted_is_refused_as_such():
    with pytest.raises(mf.ExchangeError, match="^from_dlpack: the 'Deleted' was deleted") as refused:
        mf.from_dlpack(Deleted(True))
    assert isinstance(refused.value.__context__, TypeError)


@pytest.mark.parametrize("answer", [False, ValueError, AttributeError])
def test_the_error_of_what_was_not_deleted_stays(answer):
    with pytest.raises(TypeError, match="None has no len"):
        mf.from_dlpack(Deleted(answer))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_what_is_no_answer_to_whether_it_was_deleted_is_raised(kind):
    with pytest.raises(kind) as raised:
        mf.from_dlpack(Deleted(kind))
    assert isinstance(raised.value.__context__, TypeError)


class WithoutDlpack:
    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("kind", [WithoutDlpack, object])
def test_a_producer_needs_the_method(kind):
    with pytest.raises(AttributeError, match="cannot be imported.*no __dlpack__ method") as caught:
        mf.from_dlpack(kind())
    assert isinstance(caught.value.__context__, AttributeError)


def test_a_producer_without_a_device_is_taken_at_its_capsules_word():
    class WithoutDevice:
        def __init__(self):
            self.made = abi.Producer()

        def __dlpack__(self, **kwargs):
            return self.made.capsule()

    source = WithoutDevice()
    t = mf.from_dlpack(source)
    assert t.shape == (2, 3)
    del t
    assert source.made.deletes == 1


def test_a_device_that_is_nonsense_is_no_answer():
    """What reading it raises does not reach the question, which is asked once and in full."""
    source = Modern()
    source.device = ("cpu", None)
    t = mf.from_dlpack(source, copy=True)
    assert t.shape == (2, 3) and [call["copy"] for call in source.calls] == [True]


def test_what_the_device_raises_passes_through():
    class Raises(Modern):
        @property
        def __dlpack_device__(self):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        mf.from_dlpack(Raises(), copy=True)


@pytest.mark.parametrize(
    "error", [BufferError, ValueError, RuntimeError, KeyError, MemoryError, KeyboardInterrupt, NotImplementedError]
)
def test_a_producers_exception_passes_through(error):
    class Raises(Base):
        def __dlpack__(self, **kwargs):
            raise error("mine")

    with pytest.raises(error, match="mine"):
        mf.from_dlpack(Raises())


def test_a_producers_own_type_error_is_not_hidden():
    class Raises(Base):
        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        mf.from_dlpack(Raises())


@pytest.mark.parametrize(
    "result",
    [None, 3, "capsule", b"dltensor", object(), (), np.zeros(2), NotImplemented],
    ids=lambda r: type(r).__name__,
)
def test_a_result_that_is_no_capsule_is_refused(result):
    class Odd(Base):
        def __dlpack__(self, **kwargs):
            return result

    with pytest.raises(mf.ExchangeError, match="__dlpack__ of a 'Odd' gave a '.*', not a capsule"):
        mf.from_dlpack(Odd())


@pytest.mark.parametrize("device", [None, "cpu", (1,), (2, 0), (10, 1), (99, 0), (1, 7)], ids=repr)
def test_what_the_capsule_says_of_the_device_counts(device):
    """As with the pinned tensors that one library labels in one way and hands out in another."""
    source = Modern()
    source.device = device
    t = mf.from_dlpack(source)
    assert t.device == "cpu" and t.shape == (2, 3)
    del t
    assert source.deletes == [1]


@pytest.mark.parametrize("device", [(2, 0), (3, 0), (1, 1)])
def test_a_capsule_that_contradicts_the_device_is_refused(device):
    class Liar(Base):
        def __dlpack__(self, **kwargs):
            capsule = self.fresh()
            self.made[-1].dl.device = abi.DLDevice(*device)
            return capsule

    source = Liar()
    with pytest.raises(mf.ExchangeError, match="device.*Liar|Liar.*device"):
        mf.from_dlpack(source)
    assert source.deletes == [1]


@pytest.mark.parametrize("name", [b"used_dltensor_versioned", b"used_dltensor", b"other"])
def test_a_producer_whose_capsule_has_another_name_is_refused(name):
    class Names(Base):
        def __dlpack__(self, **kwargs):
            self.made.append(abi.Producer())
            return self.made[-1].capsule(name)

    source = Names()
    with pytest.raises(ValueError, match=name.decode()):
        mf.from_dlpack(source)
    assert source.deletes == [0]


def test_a_producer_that_hands_the_same_capsule_out_twice_is_refused_the_second_time():
    class Again(Base):
        capsule = None

        def __dlpack__(self, **kwargs):
            self.capsule = self.capsule or self.fresh()
            return self.capsule

    source = Again()
    t = mf.from_dlpack(source)
    with pytest.raises(ValueError, match="used_dltensor"):
        mf.from_dlpack(source)
    del t
    assert source.deletes == [1]


def test_a_producer_without_a_deleter_is_taken():
    class NoDeleter(Base):
        def __dlpack__(self, **kwargs):
            capsule = self.fresh()
            self.made[-1].struct.deleter = None
            return capsule

    source = NoDeleter()
    t = mf.from_dlpack(source)
    assert t.tolist() == [[0.0] * 3] * 2
    del t
    assert source.deletes == [0]


def test_methods_that_are_no_methods_are_refused():
    class Attribute:
        __dlpack__ = 3
        __dlpack_device__ = (1, 0)

    with pytest.raises(TypeError, match="not callable"):
        mf.from_dlpack(Attribute())


def test_a_legacy_struct_counts_as_writable():
    source = Legacy()
    t = mf.from_dlpack(source)
    assert not t.readonly
    t[0, 0] = 1.0
    assert any(source.made[0].memory)
    del t


def test_a_producer_that_deletes_itself_while_it_is_asked():
    class Vanishes(Base):
        def __dlpack__(self, **kwargs):
            holder.clear()
            return self.fresh()

    holder = [Vanishes()]
    t = mf.from_dlpack(holder[0])
    assert t.shape == (2, 3)
    del t


class Fails(Base):
    """Raises the errors that it was given, one after another."""

    def __init__(self, *errors):
        super().__init__()
        self.errors = list(errors)

    def __dlpack__(self, **keywords):
        raise self.errors.pop(0)


def test_the_error_of_the_first_question_is_the_context_of_the_last():
    first = TypeError("first")
    with pytest.raises(ValueError, match="mine") as caught:
        mf.from_dlpack(Fails(first, ValueError("mine")))
    assert caught.value.__context__ is first and first.__traceback__ is not None


def test_an_error_that_is_raised_twice_is_not_its_own_context():
    error = TypeError("mine")
    with pytest.raises(TypeError, match="mine"):
        mf.from_dlpack(Fails(error, error))
    assert error.__context__ is None


def test_an_error_of_the_second_question_is_no_reason_for_a_third():
    """The keywords are not known; without them it fails for another reason."""
    asked = []

    class Fails:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, *, max_version=None, **keywords):
            asked.append(sorted(keywords))
            raise TypeError("keywords") if keywords else ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        mf.from_dlpack(Fails(), copy=True)
    assert asked == [["copy"], []]
