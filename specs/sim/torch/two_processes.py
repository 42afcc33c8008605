"""A CUDA tensor of PyTorch's in two processes, by torch.multiprocessing, and one that Moonferry sees in the second.

`right`: the second process reads what the first wrote on a stream, writes, and tells when that is done. `early`: it
tells before, and the first one writes meanwhile. Must not know: how anything is checked.
"""

import sys

import torch
import torch.multiprocessing as mp

import moonferry

N = 1 << 10


def second(take, give, early):
    x = take.get()
    stream = moonferry.Stream("cuda:0")
    with stream:
        t = moonferry.from_dlpack(x)
        assert t.device == "cuda:0" and t.data_ptr == x.data_ptr()
        assert t.to("cpu").tolist() == list(range(N))
        t.fill(9)
    if early:
        give.put("not done yet")
        take.get()
    stream.synchronize()
    t.close()
    del x
    torch.cuda.synchronize()
    give.put("done")


def first(early):
    take, give = mp.Queue(), mp.Queue()
    other = mp.Process(target=second, args=(give, take, early))
    other.start()
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        x = torch.empty(N, dtype=torch.int32, device="cuda")
        x.copy_(torch.arange(N, dtype=torch.int32).pin_memory(), non_blocking=True)
        s.synchronize()  # the queue's own thread records an event, on a stream of its own
        give.put(x)
        if early:
            take.get()
            x.copy_(torch.zeros(N, dtype=torch.int32).pin_memory(), non_blocking=True)
            s.synchronize()
            give.put("go on")
        take.get()
        print(x.cpu().tolist()[:2])
    other.join()
    sys.exit(other.exitcode)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    first(sys.argv[1] == "early")
