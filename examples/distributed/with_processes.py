"""Two processes of one machine: a tensor over shared memory, which both see.

python examples/distributed/with_processes.py
"""

import gc
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory

import moonferry


def double(name):
    """In the other process: the same bytes by their name, and nothing travels."""
    memory = SharedMemory(name)
    t = moonferry.frombuffer(memory.buf, "float32", 6).reshape(2, 3)
    t.numpy()[...] *= 2
    del t
    gc.collect()
    memory.close()  # refused while a tensor is alive
    print("process 2, at its end:", moonferry.ledger())


if __name__ == "__main__":
    memory = SharedMemory(create=True, size=24)
    t = moonferry.frombuffer(memory.buf, "float32", 6).reshape(2, 3)
    t[...] = [[1, 2, 3], [4, 5, 6]]
    other = get_context("spawn").Process(target=double, args=[memory.name])
    other.start()
    other.join()
    print("shared memory:", "not copied" if t[1, 2] == 12 else "copied", t.tolist())
    del t
    gc.collect()
    memory.close()
    memory.unlink()
    print("process 1, at its end:", moonferry.ledger())
