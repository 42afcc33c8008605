"""What is asked of a type that has an exchange table, and what is not."""

import ctypes as c
import weakref

import pytest

import dlpack_abi as abi
import moonferry as mf
from test_table import METHODS, foreign, offer


@pytest.mark.parametrize(
    "shape, strides, dtype",
    [((3,), (2,), (0, 32, 1)), ((3,), None, (2, 32, 1)), ((2, 3), (3, 1), (2, 32, 1)), ((2,), (1,), (4, 16, 1))],
)
def test_a_negative_bit_is_not_looked_for_where_there_can_be_none(shape, strides, dtype):
    """Nor a conjugate among real numbers: asking costs as much as all the rest."""
    producer = abi.Producer(shape, strides, dtype)
    abi.probe().probe_offer(c.addressof(producer.struct))
    assert mf.from_dlpack(foreign(requires_grad=False, is_conj=lambda self: True, is_neg=lambda self: True)()).shape
    assert producer.deletes == 1


def test_what_a_type_answers_is_let_go():
    class No:
        def __bool__(self):
            return False

    answers = []

    def no(self):
        answers.append(weakref.ref(made := No()))
        return made

    producer = abi.Producer((2,), (1,), (5, 64, 1))
    abi.probe().probe_offer(c.addressof(producer.struct))
    t = mf.from_dlpack(foreign(requires_grad=property(no), is_conj=no, is_neg=no)())
    assert [answer() for answer in answers] == [None] * 3
    del t


@pytest.mark.parametrize("newer, calls", [(63, 1), (64, 0)])
def test_so_many_tables_are_looked_at(newer, calls):
    offer()
    kind = foreign()
    for _ in range(newer):
        kind = foreign("probe_slot_raises", major=2, previous=kind, **METHODS)
    assert mf.from_dlpack(kind()).shape == ((2, 3) if calls else (7,))
    assert abi.probe().probe_calls() == calls


def test_the_tables_own_error_is_the_context_of_the_methods():
    def refuse(self, **keywords):
        raise BufferError("the method refuses")

    offer()
    with pytest.raises(BufferError, match="the method refuses") as error:
        mf.from_dlpack(foreign("probe_slot_raises", __dlpack__=refuse, __dlpack_device__=lambda self: (1, 0))())
    assert "the slot refuses" in str(error.value.__context__)
