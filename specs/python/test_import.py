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


def test_a_copy_needs_the_producer_no_longer():
    producer = abi.Producer()
    t = mf.from_dlpack(producer.capsule(), copy=True)
    assert producer.deletes == 1 and t.tolist() == [[0.0] * 3] * 2
    assert t.data_ptr != abi.c.addressof(producer.memory)


@pytest.mark.parametrize("source", [None, 3, "text", b"bytes", [1, 2], {}, object(), float, lambda: None], ids=repr)
def test_what_is_no_tensor_is_an_attribute_error(source):
    with pytest.raises((AttributeError, TypeError)):
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
