"""moonferry.mpi without MPI: what it refuses, and that mpi4py is not asked for before it is needed. Between two ranks
specs/exchange/mpi_ranks.py tries it."""

import subprocess
import sys

import numpy as np
import pytest

import moonferry as mf
from moonferry import mpi


def test_mpi4py_is_imported_when_a_message_is_made():
    code = "import sys; sys.modules['mpi4py'] = None; from moonferry import mpi\n"
    code += "import moonferry\ntry: mpi.message(moonferry.ones(3))\n"
    code += "except ImportError as error: print('mpi4py' in str(error))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("make", [mpi.message, mpi.datatype])
def test_what_has_no_message(make):
    with pytest.raises(mf.ExchangeError, match="elements of int4 share bytes; reinterpret"):
        make(mf.zeros((4,), "int4"))
    with pytest.raises(mf.ExchangeError, match="must be copied"):
        make([1.0, 2.0])


def test_the_memory_of_a_message_is_the_arrays_own():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed for this Python")
    a = np.arange(24, dtype="float32").reshape(4, 6)
    memory, count, kind = mpi.message(a[::-1, 1::2])
    assert memory.data_ptr == a.ctypes.data + 4 and memory.nbytes == 92 and count == 1
    assert kind.Get_size() == 48 and kind.Get_extent()[1] == 92
    memory, count, kind = mpi.message(a)
    assert memory.data_ptr == a.ctypes.data and memory.nbytes == 96 and count == 24 and kind.is_predefined


class Kind:
    """A datatype of an MPI whose nth call fails."""

    alive = calls = fails_at = 0

    def step(self):
        Kind.calls += 1
        if Kind.calls == Kind.fails_at:
            raise RuntimeError("no datatypes are left")

    def create(self, *args):
        self.step()
        Kind.alive += 1
        return Kind()

    Create_contiguous = Create_hvector = Create_hindexed_block = create

    def Commit(self):
        self.step()
        return self

    def Get_size(self):
        return 4

    def Free(self):
        Kind.alive -= 1


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_call_of_mpis_that_fails_leaves_no_datatype(monkeypatch, nth):
    monkeypatch.setattr(mpi, "_item", lambda t: (Kind(), 1))
    Kind.alive, Kind.calls, Kind.fails_at = 0, 0, nth
    with pytest.raises(RuntimeError, match="no datatypes are left"):
        mpi.message(np.zeros((4, 6), "float32")[::-1, ::2])
    assert Kind.alive == 0
    assert nth == Kind.calls
