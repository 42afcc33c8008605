"""Two ranks that send each other Moonferry's tensors: mpiexec -n 2 python mpi_ranks.py

Run by test_mpi.py. Each rank prints `ok NAME` for what held; an exception ends both. mpi4py takes the tensors as they
are, by DLPack; a view goes by a derived datatype, which moonferry.mpi makes of its strides.
"""

import gc

from mpi4py import MPI

import moonferry as mf
from moonferry import mpi

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


LAYOUTS = {
    "compact": lambda t: t,
    "transposed": lambda t: t.T,
    "columns": lambda t: t[:, 1::2],
    "reversed": lambda t: t[::-1, ::-2],
    "rows": lambda t: t[1:3],
    "turned": lambda t: t.T[::-1],
    "three axes": lambda t: t.reshape(2, 2, 6)[:, ::-1, 2:4],
    "no axes": lambda t: t[2:3, 3:4].reshape(()),
    "empty": lambda t: t[:, 6:],
}


def strided():
    """Each layout into each of as many elements: no copy, and what the view leaves out stays as it was."""
    for dtype in (*ITEM, "bool", "float16", "bfloat16", "float8_e4m3fn"):
        for take in LAYOUTS.values():
            for put in LAYOUTS.values():
                source, target = ramp(dtype), mf.zeros((4, 6), dtype)
                sent, got = take(source), put(target)
                if sent.size == got.size:
                    world.Sendrecv(mpi.message(sent), other, recvbuf=mpi.message(got), source=other)
                    assert mf.equal(got.copy().reshape(-1), sent.copy().reshape(-1)), dtype
                    wanted = mf.zeros((4, 6), dtype)
                    put(wanted)[...] = got
                    assert mf.equal(target, wanted), dtype
    done("strided, by a derived datatype")


def a_datatype_of_its_own():
    """The caller's own datatype, relative to the first element; freed while the message is under way."""
    whole, got = ramp(), mf.zeros((4, 3))
    view = whole[:, ::2]
    kind = mpi.datatype(view)
    assert kind.Get_size() == 48 and kind.Get_extent() == (0, 92)
    request = world.Isend([whole.reshape(-1), 1, kind], other)
    kind.Free()
    world.Recv(got, source=other)
    request.Wait()
    assert mf.equal(got, view)
    done("a datatype of one's own")


def a_request_keeps_the_memory():
    request = world.Isend(mpi.message(ramp()[:, ::2]), other)
    gc.collect()
    held = [mf.ones((4, 6)) for _ in range(64)]
    world.Recv(got := mf.zeros((4, 3)), source=other)
    request.Wait()
    assert mf.equal(got, ramp()[:, ::2]) and len(held) == 64
    done("a request keeps the memory")


def messages_that_reductions_take():
    total = mf.zeros((4, 6))
    world.Allreduce(mpi.message(ramp()), mpi.message(total))
    assert total[3, 5] == 46
    try:
        world.Allreduce(mpi.message(ramp()[:, ::2]), mf.zeros((4, 3)))
        raise AssertionError("a reduction took a derived datatype")
    except (MPI.Exception, ValueError):
        done("a reduction takes a compact message")


def what_cannot_be_received_into():
    for view in (ramp().as_readonly()[:, ::2], ramp()[:, :1].broadcast_to((4, 6))):
        try:
            world.Irecv(mpi.message(view), source=other)
            raise AssertionError("received into what must not be written")
        except (BufferError, ValueError):
            pass
    world.Sendrecv(
        mpi.message(ramp()[:, :1].broadcast_to((4, 6))), other, recvbuf=(got := mf.zeros((4, 6))), source=other
    )
    assert mf.equal(got, ramp()[:, :1].broadcast_to((4, 6)))
    done("read-only and broadcast views: sent, and not received into")


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
        view = mf.ones((4, 8))[:, ::2]
        world.Sendrecv(mpi.message(view), other, recvbuf=mpi.message(view.T), source=other)
    del view
    gc.collect()
    assert mf.ledger()[:3] == (0, 0, 0), mf.ledger()
    done("2000 messages, nothing left")


for check in (
    send_and_receive,
    dtypes_that_mpi_has_not,
    all_reduce,
    scatter_and_gather,
    strided,
    a_datatype_of_its_own,
    a_request_keeps_the_memory,
    messages_that_reductions_take,
    what_cannot_be_received_into,
    strided_without_a_datatype,
    read_only,
    one_memory_for_both,
    nothing_left,
):
    check()
