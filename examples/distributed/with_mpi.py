"""MPI: heat flows over a plate that two ranks share; they exchange columns, which a derived datatype picks out.

mpiexec -n 2 python examples/distributed/with_mpi.py
"""

from mpi4py import MPI

import moonferry
from moonferry import mpi

world = MPI.COMM_WORLD
rank, other = world.rank, 1 - world.rank

# Each rank has 8 columns, and one more that belongs to the other: rank 0 at its right end, rank 1 at its left.
plate = moonferry.zeros((16, 9))
if rank == 0:
    plate[4:12, 3] = 100

edge, ghost = (plate[:, 7:8], plate[:, 8:9]) if rank == 0 else (plate[:, 1:2], plate[:, 0:1])
message = mpi.message(edge)  # 16 floats with a stride of 9: made once, sent often
into = mpi.message(ghost)
a = plate.numpy()
for _ in range(50):
    world.Sendrecv(message, other, recvbuf=into, source=other)
    inner = a[1:-1, 1:-1]
    inner += 0.2 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4 * inner)

mine = float(a[:, :8].sum() if rank == 0 else a[:, 1:].sum())
total = world.allreduce(mine)
if rank == 0:
    where = "not copied" if message[0].data_ptr == edge.data_ptr else "copied"
    print(f"Sendrecv of a column, by its message: {where}")
    print(f"heat on the left {mine:.1f}, on the right {total - mine:.1f}")
del plate, edge, ghost, message, into, a, inner
print(f"rank {rank}, at its end: {moonferry.ledger()}", flush=True)
