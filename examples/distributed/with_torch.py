"""torch.distributed: two processes add their tensors, in the memory where they lie.

python examples/distributed/with_torch.py
"""

import multiprocessing
import os
import tempfile

import torch
import torch.distributed as dist

import moonferry


def train(rank, meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    gradient = moonferry.full((2, 3), rank + 1, "float32")
    shared = moonferry.into(torch.Tensor, gradient)
    dist.all_reduce(shared)  # 1 + 2, written where Moonferry's tensor lies
    where = "not copied" if shared.data_ptr() == gradient.data_ptr and gradient[1, 2] == 3 else "copied"

    # gloo takes a strided tensor for a compact one, without a word: elements between are added, and the last are not.
    whole = moonferry.full((4, 6), rank + 1, "float32")
    columns = whole[:, ::2]
    compact = columns.copy()
    dist.all_reduce(moonferry.into(torch.Tensor, compact))
    columns[...] = compact
    right = columns.tolist() == [[3.0] * 3] * 4 and whole[0, 1] == rank + 1
    if rank == 0:
        print("all_reduce of a compact tensor:", where)
        print("all_reduce of a view, by t.copy():", "copied" if right else "wrong")
    dist.barrier()
    dist.destroy_process_group()
    del gradient, shared, whole, columns, compact
    print(f"rank {rank}, at its end: {moonferry.ledger()}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        fork = multiprocessing.get_context("fork")
        ranks = [fork.Process(target=train, args=(rank, meeting)) for rank in range(2)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        raise SystemExit(any(process.exitcode for process in ranks))
