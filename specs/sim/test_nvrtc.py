"""Kernels in CUDA C++, compiled by NVRTC and launched with cuda.core, on the simulated CUDA driver: against NumPy."""

import glob
import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest
from programs import Programs

BEGINNING = """
import numpy as np
import cuda.bindings.driver as drv
from cuda.core import Device, LaunchConfig, ObjectCode, launch

device = Device(0)
device.set_current()
s = device.create_stream()
arrays = np.load(ARRAYS)
code = ObjectCode.from_ptx(open(PTX, "rb").read())
sizes, buffers = {}, {}
for name in arrays.files:
    a = arrays[name]
    if a.ndim == 0:
        buffers[name] = a[()]
        continue
    buffer = device.allocate(a.nbytes, stream=s)
    assert int(drv.cuMemcpyHtoDAsync(int(buffer.handle), a.ctypes.data, a.nbytes, s.handle)[0]) == 0
    buffers[name], sizes[name] = buffer, a.nbytes
s.sync()
"""
END = """
arguments = [b if np.isscalar(b) else int(b.handle) for b in buffers.values()]
launch(s, LaunchConfig(grid=GRID, block=BLOCK, shmem_size=SHARED), code.get_kernel(KERNEL), *arguments)
s.sync()
out = {}
for name, nbytes in sizes.items():
    out[name] = np.empty_like(arrays[name])
    assert int(drv.cuMemcpyDtoHAsync(out[name].ctypes.data, int(buffers[name].handle), nbytes, s.handle)[0]) == 0
s.sync()
np.savez(OUT, **out)
for buffer in buffers.values():
    if not np.isscalar(buffer):
        buffer.close(s)
s.sync()
"""
programs = Programs(BEGINNING, seeds=[0, 1])
rng = np.random.default_rng(1)
N = 1000
X = rng.random(N, dtype=np.float32)
WIDE = X.astype(np.float64)


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    from cuda.bindings import nvrtc

    folders = glob.glob(f"{sys.prefix}/lib/python*/site-packages/nvidia/cu13/include")
    options = [b"--gpu-architecture=compute_80", *(b"-I" + f.encode() for f in folders)]
    source = (pathlib.Path(__file__).parent / "kernels.cu").read_bytes()
    error, program = nvrtc.nvrtcCreateProgram(source, b"kernels.cu", 0, [], [])
    assert int(error) == 0
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    # One byte more than they take: b" " * 1 would be the b" " that the whole process has, and NVRTC writes to it.
    log = b" " * (nvrtc.nvrtcGetProgramLogSize(program)[1] + 1)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert int(error) == 0, log.decode()
    text = b" " * (nvrtc.nvrtcGetPTXSize(program)[1] + 1)
    nvrtc.nvrtcGetPTX(program, text)
    path = tmp_path_factory.mktemp("nvrtc") / "kernels.ptx"
    path.write_bytes(text.partition(b"\0")[0])
    return path


def described(ptx, tmp_path, kernel, grid, block, shared, arrays):
    np.savez(tmp_path / "in.npz", **arrays)
    values = {"ARRAYS": str(tmp_path / "in.npz"), "PTX": str(ptx), "OUT": str(tmp_path / "out.npz"), "KERNEL": kernel}
    values |= {"GRID": grid, "BLOCK": block, "SHARED": shared}
    return Programs("".join(f"{k} = {v!r}\n" for k, v in values.items()) + BEGINNING, programs.seeds)


def run(ptx, tmp_path, kernel, grid, block, shared=0, **arrays):
    """What the arrays are when the kernel has run; in the order in which it takes them."""
    described(ptx, tmp_path, kernel, grid, block, shared, arrays).right(tmp_path, END)
    return np.load(tmp_path / "out.npz")


def i32(n):
    return np.int32(n)


def test_saxpy(ptx, tmp_path):
    out = run(ptx, tmp_path, "saxpy", 4, 256, a=np.float32(2), x=X, y=X, n=i32(N))
    assert np.allclose(out["y"], 3 * X)


@pytest.mark.parametrize("kernel", ["reduce", "reduce_by_warps"])
def test_reduction(ptx, tmp_path, kernel):
    out = run(ptx, tmp_path, kernel, 4, 256, x=X, out=np.zeros(1, np.float32), n=i32(N))
    assert np.allclose(out["out"], X.sum())


def test_transpose(ptx, tmp_path):
    x = rng.random((70, 50), dtype=np.float32)
    out = run(ptx, tmp_path, "transpose", (2, 3), (32, 8), x=x, y=np.zeros((50, 70), np.float32), w=i32(50), h=i32(70))
    assert (out["y"] == x.T).all()


def test_stencil(ptx, tmp_path):
    out = run(ptx, tmp_path, "stencil", 8, 128, 130 * 4, x=X, y=np.zeros_like(X), n=i32(N))
    around = np.pad(X, 1)
    assert np.allclose(out["y"], (around[:-2] + 2 * around[1:-1] + around[2:]) / 4)


def test_histogram(ptx, tmp_path):
    x = rng.integers(0, 256, 5000, dtype=np.uint8)
    out = run(ptx, tmp_path, "histogram", 4, 256, x=x, out=np.zeros(256, np.uint32), n=i32(5000))
    assert (out["out"] == np.bincount(x, minlength=256)).all()


def test_matmul(ptx, tmp_path):
    a, b = rng.random((64, 64), dtype=np.float32), rng.random((64, 64), dtype=np.float32)
    out = run(ptx, tmp_path, "matmul", (4, 4), (16, 16), a=a, b=b, c=np.zeros_like(a), n=i32(64))
    assert np.allclose(out["c"], a @ b, rtol=1e-5)


def test_functions(ptx, tmp_path):
    z = WIDE
    out = run(ptx, tmp_path, "functions", 4, 256, x=X, y=np.zeros_like(X), n=i32(N))
    own = np.stack([z, np.full(N, 1), np.full(N, 2), np.full(N, 3)], 1)[np.arange(N), (X * 4).astype(int)]
    want = np.sin((X * np.float32(1e6)).astype(np.float64)) + np.cos(z) + np.exp2(z) + np.log2(z + 2) + np.sqrt(z)
    want += 1 / np.sqrt(z + 1) + z**1.5 + np.tanh(z) + ((z + 2) * z + 3) * z + 4 + own
    assert np.allclose(out["y"], want, atol=1e-5)


def test_halves(ptx, tmp_path):
    x, b = X.astype(np.float16), rng.random(N).astype(ml_dtypes.bfloat16)
    some = {"x": x, "b": b.view(np.uint16), "sum": np.zeros_like(X), "fused": np.zeros_like(x), "n": i32(N)}
    out = run(ptx, tmp_path, "halves", 4, 256, **some)
    total = x.astype(np.float32) + b.astype(np.float32)
    assert (out["sum"] == total).all()
    fused = x.astype(np.float64) ** 2 + total.astype(np.float16).astype(np.float64)
    assert (out["fused"] == fused.astype(np.float16)).all()


def test_a_loop_around_compare_and_swap(ptx, tmp_path):
    out = run(ptx, tmp_path, "largest", 4, 256, x=X, out=np.zeros(1, np.int32), n=i32(N))
    assert out["out"].view(np.float32)[0] == X.max()


def test_votes(ptx, tmp_path):
    x = rng.integers(-1, 2, 64).astype(np.int32)
    out = run(ptx, tmp_path, "positive", 1, 64, x=x, out=np.zeros(2, np.uint32))
    assert (np.unpackbits(out["out"].view(np.uint8), bitorder="little") == (x > 0)).all()


def operated(x, which):
    return np.choose(which, [x + 3, x * 3, np.maximum(x, 3)]).astype(np.float32)


def test_calls_through_pointers(ptx, tmp_path):
    out = run(ptx, tmp_path, "chosen", 4, 256, x=4 * X, y=np.zeros_like(X), n=i32(N))
    assert np.allclose(out["y"], operated(4 * X, np.arange(N) % 3))


def test_a_pointer_that_depends_on_memory(ptx, tmp_path):
    which = rng.integers(0, 3, N).astype(np.int32)
    out = run(ptx, tmp_path, "chosen_by_memory", 4, 256, which=which, x=4 * X, y=np.zeros_like(X), n=i32(N))
    assert np.allclose(out["y"], operated(4 * X, which))


def test_virtual_functions(ptx, tmp_path):
    out = run(ptx, tmp_path, "areas", 10, 100, x=X, y=np.zeros_like(X), n=i32(N))
    assert np.allclose(out["y"], 2 * X * np.where(np.arange(N) % 2, X, 5))


def test_what_a_kernel_prints_comes_out_when_it_runs(ptx, tmp_path):
    """In order of the threads; on a device that is open."""
    told = tmp_path / "told"
    caught = f"import os; os.dup2(os.open({str(told)!r}, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 1)\n"
    where = "print(hex(int(buffers['x'].handle)), file=open(OUT + '.at', 'w'))\n"
    tell = described(ptx, tmp_path, "tell", 1, 8, 0, {"x": X, "n": i32(4)})
    tell.right(tmp_path, caught + where + END)
    at = (tmp_path / "out.npz.at").read_text().strip()
    names = ["even", "odd", "even", "odd"]
    lines = [f"{i} of {4 << 33}: {names[i]} {X[i]:5.2f} {at} 100% {'abcd'[i]} {i + 255:#x} {i:<4}|\n" for i in range(4)]
    assert told.read_text() == "".join(lines)


def test_a_barrier_that_is_missing_is_found(ptx, tmp_path):
    wrong = described(ptx, tmp_path, "turned", 1, 64, 0, {"x": X[:64]})
    wrong.wrong(tmp_path, END, "two threads of one block of turned", "and no barrier is between")


def test_nvrtc_compiles_in_a_process_that_has_the_driver(tmp_path):
    """It asks the driver for a table that is documented nowhere."""
    Programs("", seeds=[0]).right(
        tmp_path,
        """
        import numpy as np
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
        device = Device(0)
        device.set_current()
        s = device.create_stream()
        text = 'extern "C" __global__ void seven(int *x) { x[threadIdx.x] = 7; }'
        code = Program(text, "c++", options=ProgramOptions(arch="sm_90")).compile("ptx")
        x = device.allocate(256, stream=s)
        launch(s, LaunchConfig(grid=1, block=64), code.get_kernel("seven"), int(x.handle))
        import cuda.bindings.driver as drv
        out = np.zeros(64, np.int32)
        drv.cuMemcpyDtoHAsync(out.ctypes.data, int(x.handle), 256, s.handle)
        s.sync()
        assert (out == 7).all(), out
        x.close(s)
        s.sync()
        """,
    )
