"""What a function does on a thread whose C stack is small, where what nests too deeply shows at once.

Must not know what a spec is.
"""

import threading
from concurrent.futures import ThreadPoolExecutor


def call(nbytes, function):
    """What it returns, or raises, on a thread whose stack has so many bytes."""
    before = threading.stack_size(nbytes)
    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function).result()
    finally:
        threading.stack_size(before)
