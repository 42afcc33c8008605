"""Dask: an array goes to two worker processes; what is sent is its own memory, and its size is counted right.

python examples/distributed/with_dask.py        (pip install distributed)
"""

import asyncio
import gc
import os
import time

from dask.distributed import Client, LocalCluster
from dask.sizeof import sizeof
from distributed.protocol import deserialize, serialize

import moonferry


def half(t, begin, end):
    return os.getpid(), float(t[begin:end].numpy().sum())


async def at_its_end():
    """Dask drops what nobody asks for any more a moment later."""
    patience = time.monotonic() + 10
    while any(moonferry.ledger()) and time.monotonic() < patience:
        gc.collect()
        await asyncio.sleep(0.05)
    return moonferry.ledger()


def main():
    t = moonferry.asarray(range(1_000_000), "float32").reshape(1000, 1000)
    header, frames = serialize(t)
    back = deserialize(header, frames)
    print("sent:", "not copied" if moonferry.asarray(frames[-1]).data_ptr == t.data_ptr else "copied")
    print("received:", "not copied" if back.data_ptr == t.data_ptr else "copied")
    print("sent, of a view:", "copied" if serialize(t[:, ::2])[1][-1].nbytes == t.nbytes // 2 else "refused")
    print("sizeof:", sizeof(t), "for", t.nbytes, "bytes of elements")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        there = client.scatter(t, broadcast=True)
        workers = list(client.scheduler_info()["workers"])
        halves = [client.submit(half, there, 500 * i, 500 * (i + 1), workers=w) for i, w in enumerate(workers)]
        for process, total in client.gather(halves):
            print(f"process {process}: sum {total:.6g}")
        del there, halves
        print("workers, at their end:", *client.run(at_its_end).values())
    del t, back, frames
    print("client, at its end:", asyncio.run(at_its_end()))


if __name__ == "__main__":
    main()
