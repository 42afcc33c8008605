"""Import of hand-made capsules: each field right and wrong, one process per case, every deleter counted.

The cases are in import_cases.py. A refused struct stays its producer's, untouched and still in an unused
capsule, whose destructor then deletes it once; a taken one is deleted once, when the tensor dies.
"""

import itertools
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlpack_abi as abi
import import_cases as cases
import moonferry as mf


@pytest.fixture(scope="module")
def outcomes():
    abi.probe()
    done = subprocess.run([sys.executable, cases.__file__], capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", cases.CASES)
def test_alone(name, outcomes):
    assert outcomes[name] == []


WRONG = {**cases.REFUSED, **cases.REFUSED_VERSIONED}


def test_two_faults_are_no_better_than_one():
    for first, second in itertools.combinations(WRONG.values(), 2):
        producer = abi.Producer()
        first[0](producer)
        second[0](producer)
        capsule = producer.capsule()
        try:
            # A later change can undo an earlier one, but nothing here may be lost or called twice.
            mf.from_dlpack(capsule)
        except mf.ExchangeError:
            assert producer.deletes == 0 and abi.capsule_name(capsule) == abi.VERSIONED
        del capsule
        assert producer.deletes == 1


NUMBERS = st.one_of(
    st.integers(-3, 70), st.sampled_from([2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63), 2**61 + 1])
)
INT32 = NUMBERS.filter(lambda n: -(2**31) <= n < 2**31)
BYTE = st.integers(0, 255)


@settings(max_examples=400)
@given(
    st.booleans(),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5),
    st.tuples(BYTE, BYTE, st.integers(0, 65535))
    | st.tuples(st.integers(0, 17), st.sampled_from([4, 6, 8, 32]), st.just(1)),
    st.tuples(st.one_of(st.just(1), INT32), st.one_of(st.just(0), INT32)),
    st.tuples(st.one_of(st.none(), INT32), st.booleans(), st.one_of(st.just(0), st.integers(0, 2**64 - 1))),
    st.integers(0, 2**64 - 1),
)
def test_no_struct_is_lost_or_deleted_twice(versioned, axes, dtype, device, shape_of_it, flags):
    ndim, has_strides, offset = shape_of_it
    producer = abi.Producer(
        [n for n, _ in axes], [s for _, s in axes] if has_strides else None, dtype, versioned=versioned, flags=flags
    )
    producer.dl.device, producer.dl.byte_offset = abi.DLDevice(*device), offset
    if ndim is not None and not 0 <= ndim <= 64:
        producer.dl.ndim = ndim
    image, capsule = producer.image(), producer.capsule()
    try:
        t = mf.from_dlpack(capsule)
    except mf.ExchangeError:
        t = None
    assert producer.deletes == 0
    del capsule
    assert producer.deletes == (t is None) and producer.image() == image
    if t is not None:
        is_bool = not versioned and dtype == (1, 1, 1)  # what the struct before 1.0 calls uint1
        is_packed = dtype[1] < 8 and not is_bool and not (versioned and flags & abi.SUBBYTE_PADDED)
        bits, size, nbytes = dtype[1] * dtype[2], t.size, t.nbytes
        shape, ndim, strides = t.shape, t.ndim, t.strides  # a failed assertion would show `t`, whose memory is nowhere
        assert nbytes == (-(-size * bits // 8) if is_packed else size * -(-bits // 8))
        assert shape == tuple(n for n, _ in axes) and ndim == len(strides)
        view = t.__dlpack__(max_version=(1, 3))
        del t, view
    assert producer.deletes == 1


def test_a_taken_tensor_reads_and_writes_the_producers_memory():
    producer = abi.Producer((2, 2), (2, 1), (0, 32, 1))
    t = mf.from_dlpack(producer.capsule())
    t[1, 0] = 77
    assert producer.memory[8] == 77
    producer.memory[0] = 5
    assert t.tolist() == [[5, 0], [77, 0]]
    del t
    assert producer.deletes == 1


def test_read_only_memory_is_not_written():
    producer = abi.Producer(flags=abi.READ_ONLY)
    t = mf.from_dlpack(producer.capsule())
    with pytest.raises(ValueError):
        t[...] = 1
    with pytest.raises(ValueError):
        t.fill(1)
    with pytest.raises(ValueError):
        t.copy(mf.ones((2, 3)))
    assert not any(producer.memory)
    del t


def test_views_and_exports_hold_the_producers_struct():
    producer = abi.Producer()
    t = mf.from_dlpack(producer.capsule())
    view, capsule, look = t.T[1:], t.__dlpack__(), memoryview(t)
    del t
    assert producer.deletes == 0
    del view
    assert producer.deletes == 0
    del capsule
    assert producer.deletes == 0
    look.release()
    assert producer.deletes == 1


def test_a_destructor_that_deletes_whatever_the_name_is_does_no_harm():
    producer = abi.Producer()
    capsule = producer.capsule(destructor="probe_destroy_always")
    t = mf.from_dlpack(capsule)
    del capsule
    assert producer.deletes == 0
    del t
    assert producer.deletes == 1


def test_a_copy_needs_the_producer_no_longer():
    producer = abi.Producer()
    t = mf.from_dlpack(producer.capsule(), copy=True)
    assert producer.deletes == 1 and t.tolist() == [[0.0] * 3] * 2
    assert t.data_ptr != abi.c.addressof(producer.memory)


@pytest.mark.parametrize("source", [None, 3, "text", b"bytes", [1, 2], {}, object(), float, lambda: None], ids=repr)
def test_what_is_no_tensor_is_an_attribute_error(source):
    with pytest.raises(AttributeError, match="has no __dlpack__ method"):
        mf.from_dlpack(source)


def test_messages_name_field_value_and_rule():
    producer = abi.Producer()
    producer.dl.ndim = 65
    with pytest.raises(mf.ExchangeError, match=r"ndim.*65.*64"):
        mf.from_dlpack(producer.capsule())
    producer = abi.Producer()
    producer.dl.dtype = abi.DLDataType(18, 32, 1)
    with pytest.raises(mf.ExchangeError, match=r"code.*18.*17"):
        mf.from_dlpack(producer.capsule())


def test_a_refused_struct_whose_deleter_is_python_code_leaves_the_refusal_alone():
    lender = abi.Lender()
    lender.producer.dl.ndim = 65
    with pytest.raises(mf.ExchangeError, match="ndim"):
        mf.from_dlpack(lender)
    assert lender.deletes == 1
