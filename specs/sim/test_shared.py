"""cuda.core and Numba, unmodified: memory in two processes, and memory that is mapped at reserved addresses."""

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest
from programs import FOUND, LIBRARY_PATH, Programs

programs = Programs("import cuda.core as cc\nfrom cuda.core import Device\n", seeds=[0, 1])


def in_two(tmp_path, program, seed):
    """A program of which multiprocessing starts another: that one imports it, so it is a file."""
    path, report = tmp_path / "program.py", tmp_path / f"report-{seed}"
    path.write_text(textwrap.dedent(program))
    settings = {"SIM_SEED": str(seed), "SIM_REPORT": str(report), "SIM_EXIT": str(FOUND), "SIM_LEDGER": "off"}
    environment = dict(os.environ, LD_LIBRARY_PATH=LIBRARY_PATH, SIM_DRIVER_VERSION="13050", **settings)
    done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + (report.read_text() if report.exists() else "")
    return done.stdout


CORE = """
    import ctypes, multiprocessing as mp
    import cuda.core as cc

    def started():
        device = cc.Device(0)
        device.set_current()
        return device, device.create_stream()

    def second(buffer, queue):
        device, s = started()
        out = cc.LegacyPinnedMemoryResource().allocate(4096, stream=s)
        buffer.copy_to(out, stream=s)
        s.sync()
        queue.put(bytes((ctypes.c_ubyte * 4096).from_address(int(out.handle))))
        buffer.fill(9, stream=s)
        s.sync()
        buffer.close(s)
        out.close()

    if __name__ == "__main__":
        mp.set_start_method("spawn")
        device, s = started()
        options = cc.DeviceMemoryResourceOptions(max_size=1 << 21, ipc_enabled=True)
        pool = cc.DeviceMemoryResource(device, options=options)
        buffer = pool.allocate(4096, stream=s)
        buffer.fill(5, stream=s)
        s.sync()
        queue = mp.Queue()
        other = mp.Process(target=second, args=(buffer, queue))
        other.start()
        assert queue.get(timeout=60) == b"\\5" * 4096
        other.join()
        out = cc.LegacyPinnedMemoryResource().allocate(4096, stream=s)
        buffer.copy_to(out, stream=s)
        s.sync()
        assert bytes((ctypes.c_ubyte * 4096).from_address(int(out.handle))) == b"\\t" * 4096
        out.close()
        buffer.close(s)
        s.sync()
        print(other.exitcode)
"""


@pytest.mark.parametrize("seed", [0, 1])
def test_a_buffer_of_cuda_core_in_two_processes(tmp_path, seed):
    assert in_two(tmp_path, CORE, seed) == "0\n"


# Numba's own pickling of a handle asks cuda.bindings for a member that it no longer has, so its bytes go by hand.
NUMBA = """
    import ctypes, multiprocessing as mp
    import numpy as np
    from cuda.bindings import driver
    from numba import cuda
    from numba.cuda.cudadrv.driver import IpcHandle

    def second(handle, nbytes, queue):
        opened = driver.CUipcMemHandle()
        ctypes.memmove(opened.getPtr(), handle, 64)
        memory = IpcHandle(None, opened, nbytes)
        a = cuda.cudadrv.devicearray.DeviceNDArray((64,), (4,), np.int32, gpu_data=memory.open(cuda.current_context()))
        queue.put(a.copy_to_host().tolist())
        a.copy_to_device(np.full(64, 9, np.int32))
        cuda.synchronize()
        del a
        memory.close()

    if __name__ == "__main__":
        mp.set_start_method("spawn")
        a = cuda.to_device(np.arange(64, dtype=np.int32))
        cuda.synchronize()
        handle = a.get_ipc_handle()._ipc_handle
        queue = mp.Queue()
        text = ctypes.string_at(handle.handle.getPtr(), 64)
        other = mp.Process(target=second, args=(text, handle.size, queue))
        other.start()
        assert queue.get(timeout=60) == list(range(64))
        other.join()
        assert (a.copy_to_host() == 9).all()
        print(other.exitcode)
"""


@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
@pytest.mark.parametrize("seed", [0, 1])
def test_an_array_of_numba_in_two_processes(tmp_path, seed):
    assert in_two(tmp_path, NUMBA, seed) == "0\n"


VIRTUAL = """
    device = Device(0)
    device.set_current()
    s, t = device.create_stream(), device.create_stream()
    config = cc.VirtualMemoryResourceOptions(gpu_direct_rdma=False)
    memory = cc.VirtualMemoryResource(device, config=config)
    a, out = memory.allocate(3 << 20), cc.LegacyPinnedMemoryResource().allocate(4096, stream=s)
    a.fill(7, stream=s)
    """


def test_virtual_memory_of_cuda_core(tmp_path):
    programs.right(tmp_path, VIRTUAL + "s.sync()\n    a.close()\n    out.close()")


def test_virtual_memory_of_cuda_core_is_checked(tmp_path):
    part = "part = cc.Buffer.from_handle(int(a.handle) + (2 << 20), 4096, owner=a)\n    part.copy_to(out, stream=t)\n"
    programs.wrong(tmp_path, VIRTUAL + part + "    s.sync()\n    t.sync()\n    a.close()", "race on 4096 bytes")
