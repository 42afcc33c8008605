"""Faults of other libraries that our specs go around, shown without Moonferry.

When a library mends one, its spec here fails, and the way around it in the specs named can go.
"""

import importlib.util
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dlpack_abi as abi

DELETES = """
    import signal
    import threading
    import time
    import dlpack_abi as abi
    import {module}

    inside = threading.Event()


    def slow(struct):  # as NumPy's deleter it needs the GIL, and gives it to others while it runs
        inside.set()
        time.sleep(1)


    deleter = abi.c.CFUNCTYPE(None, abi.c.c_void_p)(slow)
    first, second = abi.Producer(), abi.Producer()
    first.struct.deleter = abi.address_of(deleter)
    struct = abi.consume({module}.from_dlpack(first.capsule()).__dlpack__())
    thread = threading.Thread(target=abi.call_deleter, args=(struct,))
    thread.start()
    inside.wait()
    signal.alarm(10)  # ends a process that waits for itself
    {module}.from_dlpack(second.capsule())
    thread.join()
"""


@pytest.mark.parametrize("module, waits", [("torch", False), ("paddle", True)])
def test_paddlepaddle_calls_a_deleter_under_its_lock_and_takes_that_lock_with_the_gil(module, waits):
    """Two threads wait for each other: one has the lock and wants the GIL, the other has the GIL and wants the lock.
    test_chains.py goes around it: what PaddlePaddle takes there is memory that is released without the GIL, and not
    PaddlePaddle's, whose release would want the lock again."""
    if not importlib.util.find_spec(module):
        pytest.skip(f"{module} is not installed for this Python")
    beside = Path(__file__).resolve().parent.parent / "python"
    program = f"import sys; sys.path.insert(0, {str(beside)!r})\n{textwrap.dedent(DELETES).format(module=module)}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.returncode == (-signal.SIGALRM if waits else 0), done.stderr


def test_paddlepaddle_knows_a_deleter_by_the_address_of_the_memory_alone():
    """Of two structs over one memory it deletes the second when the first goes, and the first never."""
    paddle = pytest.importorskip("paddle", reason="PaddlePaddle is not installed for this Python")
    first, second = abi.Producer(), abi.Producer()
    second.dl.data = first.dl.data
    a, b = paddle.from_dlpack(first.capsule()), paddle.from_dlpack(second.capsule())
    del a
    assert (first.deletes, second.deletes) == (0, 1)
    del b
    assert (first.deletes, second.deletes) == (0, 1)
