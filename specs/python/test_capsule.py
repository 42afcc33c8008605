"""How long a capsule's memory lives: dropped, taken, taken twice, renamed, and who may delete it."""

import ctypes as c
import gc
import mmap
import threading

import numpy as np
import pytest

import dlpack_abi as abi
import moonferry as mf
import small_stack

KINDS = pytest.mark.parametrize("version", [None, (1, 3)], ids=["legacy", "versioned"])


@KINDS
@pytest.mark.parametrize("copy", [None, True])
def test_a_dropped_capsule_gives_everything_back(version, copy):
    capsule = mf.zeros((100,)).__dlpack__(max_version=version, copy=copy)
    assert mf.ledger().storages == 1
    del capsule
    assert tuple(mf.ledger()) == (0, 0, 0, 0)


@KINDS
def test_the_memory_outlives_the_tensor(version):
    t = mf.tensor([1, 2, 3])
    capsule = t.__dlpack__(max_version=version)
    del t
    gc.collect()
    back = mf.from_dlpack(capsule)
    assert abi.capsule_name(capsule) == b"used_" + (abi.LEGACY if version is None else abi.VERSIONED)
    del capsule
    assert back.tolist() == [1, 2, 3]


@KINDS
def test_a_capsule_is_taken_once(version):
    capsule = mf.tensor([1, 2]).__dlpack__(max_version=version)
    first = mf.from_dlpack(capsule)
    for _ in range(2):
        with pytest.raises(ValueError, match="used_dltensor"):
            mf.from_dlpack(capsule)
    del capsule
    assert first.tolist() == [1, 2]


@KINDS
def test_a_capsule_that_numpy_took_is_refused(version):
    class Once:
        def __init__(self, capsule):
            self.capsule = capsule

        def __dlpack__(self, **kwargs):
            return self.capsule

        def __dlpack_device__(self):
            return (1, 0)

    capsule = mf.tensor([1, 2]).__dlpack__(max_version=version)
    try:
        taken = np.from_dlpack(Once(capsule))
    except ValueError:
        pytest.skip(f"NumPy {np.__version__} does not know this capsule")
    with pytest.raises(ValueError, match="used_dltensor"):
        mf.from_dlpack(capsule)
    assert taken.tolist() == [1, 2]


@KINDS
def test_a_consumer_deletes_when_it_is_done(version):
    capsule = mf.tensor([1, 2]).__dlpack__(max_version=version)
    struct = abi.consume(capsule)
    del capsule
    assert mf.ledger().storages == 1
    abi.call_deleter(struct)
    assert tuple(mf.ledger()) == (0, 0, 0, 0)


@KINDS
def test_a_capsule_renamed_by_hand_is_no_longer_ours_to_delete(version):
    capsule = mf.zeros((4,)).__dlpack__(max_version=version)
    struct = abi.managed(capsule)
    abi.capsule_rename(capsule, b"something_else")
    with pytest.raises(ValueError, match="something_else"):
        mf.from_dlpack(capsule)
    del capsule
    gc.collect()
    assert mf.ledger().storages == 1
    abi.call_deleter(struct)


@KINDS
def test_a_capsule_dropped_while_an_exception_is_in_flight_leaves_it_alone(version):
    # numpy: test_dlpack_destructor_exception
    with pytest.raises(RuntimeError, match="mine"):
        capsule = mf.zeros((4,)).__dlpack__(max_version=version)
        held = [capsule]
        del capsule
        assert held
        raise_and_drop(held)


def raise_and_drop(held):
    capsule = held.pop()
    assert capsule is not None
    raise RuntimeError("mine")


@KINDS
def test_a_capsule_in_a_frame_that_unwinds_is_given_back(version):
    def unwinds():
        capsule = mf.zeros((4,)).__dlpack__(max_version=version)
        assert capsule is not None
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        unwinds()


def test_the_deleter_runs_on_a_thread_that_python_never_saw():
    capsule = mf.zeros((4,)).__dlpack__(max_version=(1, 3))
    struct = abi.consume(capsule)
    assert abi.probe().probe_delete_on_thread(c.addressof(struct)) == 0
    assert tuple(mf.ledger()) == (0, 0, 0, 0)


def test_the_deleter_of_imported_numpy_memory_runs_on_a_foreign_thread():
    a = np.arange(4.0)
    t = mf.from_dlpack(a)
    struct = abi.consume(t.__dlpack__(max_version=(1, 3)))
    del t
    assert abi.probe().probe_delete_on_thread(c.addressof(struct)) == 0
    assert a.tolist() == [0, 1, 2, 3]


def test_the_deleter_of_a_python_buffer_runs_on_a_foreign_thread():
    data = bytearray(8)
    t = mf.frombuffer(data)
    struct = abi.consume(t.__dlpack__(max_version=(1, 3)))
    del t
    with pytest.raises(BufferError):
        data.append(1)
    assert abi.probe().probe_delete_on_thread(c.addressof(struct)) == 0
    # Only Python may release a buffer: it happens now or at Moonferry's next turn with the GIL.
    mf.zeros((1,))
    gc.collect()
    data.append(1)
    assert len(data) == 9


def test_many_threads_export_import_and_drop():
    t = mf.asarray(np.arange(64.0))
    wrong = []

    def work():
        for _ in range(300):
            capsule = t.__dlpack__(max_version=(1, 3))
            back = mf.from_dlpack(capsule)
            if back[63] != 63.0:
                wrong.append(back)
            del capsule
            t.__dlpack__()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_that_race_for_one_capsule_get_it_once():
    for _ in range(50):
        capsule = mf.zeros((4,)).__dlpack__(max_version=(1, 3))
        won, gate = [], threading.Barrier(4)

        def take(capsule=capsule, won=won, gate=gate):
            gate.wait()
            try:
                won.append(mf.from_dlpack(capsule))
            except ValueError:
                pass

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        del take, won, capsule, threads, thread


@pytest.mark.parametrize("value", [b"not_a_tensor", b"dltensor_version", b"DLTENSOR", b"", None], ids=repr)
def test_capsules_of_other_names_are_refused(value):
    producer = abi.Producer()
    shown = "NULL" if value is None else f"'{value.decode()}'"
    with pytest.raises(ValueError, match=f"the capsule's name must be .*, not {shown}$"):
        mf.from_dlpack(abi.capsule_new(c.addressof(producer.struct), value))
    assert producer.deletes == 0


def test_of_a_version_that_nobody_knows_only_the_beginning_is_read():
    """Behind the deleter it may hold something else, or nothing: here the memory ends."""
    producer, nbytes = abi.Producer(), abi.DLManagedTensorVersioned.flags.offset
    producer.struct.version.major = 2
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = c.addressof(c.c_char.from_buffer(pages)) + mmap.PAGESIZE
    assert c.CDLL(None).mprotect(c.c_void_p(address), mmap.PAGESIZE, 0) == 0
    c.memmove(address - nbytes, c.addressof(producer.struct), nbytes)
    capsule = abi.capsule_new(address - nbytes, abi.VERSIONED, abi.address_of(abi.probe().probe_destroy_capsule))
    with pytest.raises(mf.ExchangeError, match="version"):
        mf.from_dlpack(capsule)
    assert producer.deletes == 0
    del capsule
    assert producer.deletes == 1


def test_a_capsule_that_says_that_it_holds_a_copy_is_copied_all_the_same():
    producer = abi.Producer(flags=abi.IS_COPIED)
    t = mf.from_dlpack(producer.capsule(), copy=True)
    assert t.data_ptr != producer.dl.data and t.shape == (2, 3) and producer.deletes == 1


def test_imports_chain_through_any_number_of_hands():
    a = np.arange(3.0)
    t = mf.from_dlpack(a)
    for _ in range(20):
        t = mf.from_dlpack(t.__dlpack__(max_version=(1, 3)))
        t = mf.asarray(memoryview(t))
        t = mf.from_dlpack(np.asarray(t))
    assert t.data_ptr == a.ctypes.data and t.tolist() == [0, 1, 2]


class Passes:
    """Another library's array, which hands on what it has."""

    def __init__(self, t):
        self.__dlpack__, self.__dlpack_device__ = t.__dlpack__, t.__dlpack_device__


HOPS = {
    "through NumPy and a buffer": lambda t: mf.asarray(memoryview(mf.from_dlpack(np.asarray(t)))),
    "a capsule": lambda t: mf.from_dlpack(t.__dlpack__(max_version=(1, 3))),
    "a legacy capsule": lambda t: mf.from_dlpack(t.__dlpack__()),
    "an object that hands it on": lambda t: mf.from_dlpack(Passes(t)),
}


@pytest.mark.parametrize("hop", HOPS)
def test_a_long_chain_goes_on_a_small_stack(hop):
    """A loop that passes an array to another library and takes it back makes such a chain."""

    def work():
        t = mf.zeros((3,))
        for _ in range(5000):
            t = HOPS[hop](t)
        del t
        return tuple(mf.ledger())

    assert small_stack.call(128 * 1024, work) == (0, 0, 0, 0)


@KINDS
def test_a_name_is_what_it_says_wherever_it_lies(version):
    capsule = mf.zeros((100,)).__dlpack__(max_version=version)
    abi.capsule_rename(capsule, abi.LEGACY if version is None else abi.VERSIONED)
    del capsule
    assert tuple(mf.ledger()) == (0, 0, 0, 0)
