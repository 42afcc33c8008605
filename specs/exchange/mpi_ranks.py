"""Two ranks that send each other Moonferry's tensors: mpiexec -n 2 python mpi_ranks.py

Run by test_mpi.py. Each rank prints `ok NAME` for what held; an exception ends both. mpi4py takes the tensors as they
are, by DLPack; a view goes with a derived datatype over the memory that it is a view of.
"""

import gc

from mpi4py import MPI

import moonferry as mf

world = MPI.COMM_WORLD
rank, other = world.rank, 1 - world.rank
ITEM = {"float32": MPI.FLOAT, "int64": MPI.INT64_T, "complex128": MPI.C_DOUBLE_COMPLEX, "uint8": MPI.UINT8_T}


def done(name):
    world.Barrier()
    print(f"ok {name}" if rank == 0 else "", flush=True)


def ramp(dtype="float32", shape=(4, 6)):
    count = shape[0] * shape[1]
    return mf.asarray(list(range(count))).astype(dtype).reshape(shape)


def send_and_receive():
    for dtype in ITEM:
        t = ramp(dtype)
        if rank == 0:
            world.Send(t, dest=1)
            world.Recv(back := mf.zeros((4, 6), dtype), source=1)
            assert mf.equal(back, t), dtype
        else:
            world.Recv(got := mf.zeros((4, 6), dtype), source=0)
            assert mf.equal(got, t), dtype
            world.Send(got, dest=0)
    done("send, receive")


def dtypes_that_mpi_has_not():
    """bfloat16 and its like go as the bytes that they are."""
    t = mf.ones((8,), "bfloat16")
    got = mf.zeros((8,), "bfloat16")
    world.Sendrecv(t.reinterpret("uint8"), other, recvbuf=got.reinterpret("uint8"), source=other)
    assert got.tolist() == [1.0] * 8
    done("dtypes that MPI has not")


def all_reduce():
    t = ramp()
    total = mf.zeros((4, 6))
    world.Allreduce(t, total)
    assert total.tolist() == [[2.0 * v for v in row] for row in t.tolist()]
    world.Allreduce(MPI.IN_PLACE, t)
    assert mf.equal(t, total)
    done("all-reduce")


def scatter_and_gather():
    whole = ramp(shape=(4, 6)) if rank == 0 else None
    part = mf.zeros((2, 6))
    world.Scatter(whole, part)
    assert part.tolist() == ramp().tolist()[2 * rank : 2 * rank + 2]
    back = mf.zeros((4, 6)) if rank == 0 else None
    world.Gather(part, back)
    assert rank or mf.equal(back, whole)
    done("scatter, gather")


def strided():
    """Every second column: no copy, a vector datatype that begins at the view's first element."""
    t = ramp() if rank == 0 else mf.zeros((4, 6))
    view = t[:, ::2]
    columns = ITEM["float32"].Create_vector(view.size, 1, view.strides[1]).Commit()
    memory = t.reshape(-1)
    if rank == 0:
        world.Send([memory, 1, columns], dest=1)
    else:
        world.Recv([memory, 1, columns], source=0)
        wanted = [[float(v) if i % 2 == 0 else 0.0 for i, v in enumerate(row)] for row in ramp().tolist()]
        assert t.tolist() == wanted
    columns.Free()
    done("strided, by a derived datatype")


def strided_without_a_datatype():
    """mpi4py refuses a view that is not contiguous; Moonferry's copy is sent."""
    view = ramp()[:, ::2]
    try:
        world.Sendrecv(view, other, recvbuf=mf.zeros((4, 3)), source=other)
    except (BufferError, ValueError):
        got = mf.zeros((4, 3))
        world.Sendrecv(view.copy(), other, recvbuf=got, source=other)
        assert mf.equal(got, view)
        done("strided: refused, and its copy sent")


def read_only():
    t = ramp().as_readonly()
    got = mf.zeros((4, 6))
    if rank == 0:
        world.Send(t, dest=1)
    else:
        try:
            world.Recv(t, source=0)
            raise AssertionError("received into read-only memory")
        except (BufferError, ValueError):
            world.Recv(got, source=0)
            assert mf.equal(got, t)
    done("read-only: sent, and not received into")


def one_memory_for_both():
    """A window that both ranks map: Moonferry wraps it in each, and a write in one is seen in the other."""
    window = MPI.Win.Allocate_shared(96 if rank == 0 else 0, 4, comm=world)
    memory, _ = window.Shared_query(0)
    t = mf.frombuffer(memory, "float32").reshape(4, 6)
    if rank == 0:
        t.fill(3)
    world.Barrier()
    assert t.tolist() == [[3.0] * 6] * 4
    del t
    gc.collect()
    window.Free()
    done("one memory for both ranks")


def nothing_left():
    for _ in range(1000):
        world.Sendrecv(mf.ones((16,)), other, recvbuf=mf.zeros((16,)), source=other)
    gc.collect()
    assert mf.ledger()[:3] == (0, 0, 0), mf.ledger()
    done("1000 messages, nothing left")


for check in (
    send_and_receive,
    dtypes_that_mpi_has_not,
    all_reduce,
    scatter_and_gather,
    strided,
    strided_without_a_datatype,
    read_only,
    one_memory_for_both,
    nothing_left,
):
    check()
