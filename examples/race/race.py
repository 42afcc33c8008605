"""A wrong exchange between two GPU libraries, and the right one, for `moonferry sim`:

    moonferry sim --seeds 20 -- python race.py            reports the race, under every seed
    moonferry sim --seeds 20 -- python race.py --wait     has nothing to report

It needs cuda-core and numba-cuda, and no GPU. docs/sim.md goes through it.
"""

import sys

import numpy as np
from cuda.core import Device
from numba import cuda

NBYTES = 1024


class Shared:
    """A cuda.core buffer, as other libraries may take it: the CUDA array interface, version 3."""

    def __init__(self, buffer, written_on):
        self.__cuda_array_interface__ = {
            "shape": (NBYTES,),
            "typestr": "|u1",
            "data": (int(buffer.handle), False),
            "version": 3,
            # Whoever takes the array waits for this stream. None says: no need to wait, the bytes are there.
            "stream": None if written_on is None else int(written_on.handle),
        }


def main(wait):
    cuda.current_context()
    device = Device(0)
    device.set_current()

    # cuda.core allocates and fills the buffer on one stream ...
    producer = device.create_stream()
    buffer = device.allocate(NBYTES, stream=producer)
    buffer.fill(b"\x07", stream=producer)

    # ... and Numba takes it, and copies it out on another.
    array = cuda.as_cuda_array(Shared(buffer, written_on=producer if wait else None))
    consumer = cuda.stream()
    host = cuda.pinned_array(NBYTES, np.uint8)
    array.copy_to_host(host, stream=consumer)
    consumer.synchronize()
    print("all bytes are 7" if (host == 7).all() else f"wrong bytes: {host[:4]} ...")

    producer.sync()
    buffer.close(producer)
    producer.sync()


main(wait="--wait" in sys.argv[1:])
