"""Ray: an array is put into the object store once; two actors read it there, and nothing is copied again.

python examples/distributed/with_ray.py        (pip install ray)
"""

import gc
import os

import ray

import moonferry


def place(t):
    """The file and the offset that a tensor's memory is: the same in two processes, it is one memory."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, _, offset, _, _, *path = line.split()
            begin, end = (int(number, 16) for number in span.split("-"))
            if begin <= t.data_ptr < end:
                return (path[0] if path else "private memory"), t.data_ptr - begin + int(offset, 16)
    raise LookupError(f"nothing is mapped at {t.data_ptr:#x}")


@ray.remote
class Reader:
    def sum(self, t, begin, end):
        return os.getpid(), place(t), t.readonly, float(t[begin:end].numpy().sum())

    def ledger(self):
        gc.collect()
        return moonferry.ledger()


ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
t = moonferry.asarray(range(1_000_000), "float32").reshape(1000, 1000)
stored = ray.put(t)
seen = ray.get(stored)
print("put:", "not copied" if place(seen) == place(t) else "copied", "into", place(seen)[0])
print("get:", "not copied" if seen.data_ptr == ray.get(stored).data_ptr else "copied")
readers = [Reader.remote() for _ in range(2)]
answers = ray.get([r.sum.remote(stored, 500 * i, 500 * (i + 1)) for i, r in enumerate(readers)])
for process, where, readonly, total in answers:
    word = "not copied" if where == place(seen) else "copied"
    print(f"actor: {word}, {'read-only' if readonly else 'writable'}; process {process}, sum {total:.6g}")
columns = ray.get(ray.put(t[:, ::2]))
print("put of a view:", "copied twice" if columns.is_contiguous else "copied")
print("actors, at their end:", *ray.get([r.ledger.remote() for r in readers]))
del t, seen, columns
gc.collect()
print("driver, at its end:", moonferry.ledger())
ray.shutdown()
