"""A race between PyTorch and another GPU library, and the right exchange, for `moonferry sim`:

    moonferry sim --seeds 20 -- python torch_race.py            reports the race, under every seed
    moonferry sim --seeds 20 -- python torch_race.py --wait     has nothing to report

It needs PyTorch for CUDA and cuda-core, and no GPU. docs/sim-torch.md goes through it.
"""

import sys

import torch
from cuda.core import Buffer, Device
from cuda.core.utils import StridedMemoryView

N = 1024


def main(wait):
    torch.cuda.init()
    device = Device(0)
    device.set_current()
    consumer = device.create_stream()
    sevens = torch.full((N,), 7, dtype=torch.uint8).pin_memory()
    out = torch.zeros(N, dtype=torch.uint8).pin_memory()

    # PyTorch fills a tensor on a stream of its own ...
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.empty(N, dtype=torch.uint8, device="cuda")
        x.copy_(sevens, non_blocking=True)
        # ... and hands it to cuda.core through DLPack. -1 says: I shall see to the order myself.
        view = StridedMemoryView.from_dlpack(x, stream_ptr=int(consumer.handle) if wait else -1)

    # Nobody does, and cuda.core copies the bytes out on another stream.
    source, target = Buffer.from_handle(view.ptr, N, owner=view), Buffer.from_handle(out.data_ptr(), N, owner=out)
    source.copy_to(target, stream=consumer)
    consumer.sync()
    print("all bytes are 7" if (out == 7).all() else f"wrong bytes: {out[:4].tolist()} ...")
    torch.cuda.synchronize()


main(wait="--wait" in sys.argv[1:])
