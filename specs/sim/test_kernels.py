"""Numba's kernels, unmodified, on the simulated CUDA driver."""

from programs import Programs

# NVVM writes the PTX of its own version, which the driver must know. Numba's linker is the driver's.
SETTINGS = {"SIM_DRIVER_VERSION": "13050"}
NUMBA = """
import math, warnings
import numpy as np
warnings.simplefilter("ignore")
from numba import cuda, float32, int32

n = 1000
rng = np.random.default_rng(1)
x = rng.random(n, dtype=np.float32)
stream = cuda.stream()

def there(a):
    d = cuda.to_device(a, stream=stream)
    stream.synchronize()
    return d

def back(d):
    host = d.copy_to_host(stream=stream)
    stream.synchronize()
    return host
"""
numba = Programs(NUMBA, seeds=[1])


def numba_right(tmp_path, program):
    numba.right(tmp_path, program, **SETTINGS)


def test_numba_saxpy_and_stencil(tmp_path):
    numba_right(
        tmp_path,
        """
        @cuda.jit
        def saxpy(a, x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] = a * x[i] + y[i]

        @cuda.jit
        def stencil(x, y):
            i, j = cuda.grid(2)
            if 0 < i < x.shape[0] - 1 and 0 < j < x.shape[1] - 1:
                y[i, j] = (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]) * float32(0.25)

        d, e = there(x), there(x)
        saxpy[4, 256, stream](np.float32(2), d, e)
        assert np.allclose(back(e), 3 * x)
        m = rng.random((20, 30), dtype=np.float32)
        d, e = there(m), there(np.zeros_like(m))
        stencil[(3, 4), (8, 8), stream](d, e)
        want = np.zeros_like(m)
        want[1:-1, 1:-1] = (m[:-2, 1:-1] + m[2:, 1:-1] + m[1:-1, :-2] + m[1:-1, 2:]) / 4
        assert np.allclose(back(e), want)
        """,
    )


def test_numba_reduction_and_histogram(tmp_path):
    numba_right(
        tmp_path,
        """
        @cuda.jit
        def total(x, out):
            part = cuda.shared.array(128, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            part[t] = x[i] if i < x.size else float32(0)
            cuda.syncthreads()
            half = 64
            while half > 0:
                if t < half:
                    part[t] += part[t + half]
                cuda.syncthreads()
                half //= 2
            if t == 0:
                cuda.atomic.add(out, 0, part[0])

        @cuda.jit
        def histogram(x, out):
            i = cuda.grid(1)
            if i < x.size and x[i] >= 0:
                cuda.atomic.add(out, x[i], 1)

        out = there(np.zeros(1, np.float32))
        total[8, 128, stream](there(x), out)
        assert np.allclose(back(out), x.sum())
        bins = rng.integers(-3, 10, n).astype(np.int32)
        out = there(np.zeros(10, np.int32))
        histogram[8, 128, stream](there(bins), out)
        assert (back(out) == np.bincount(bins[bins >= 0], minlength=10)).all()
        """,
    )


def test_numba_transpose_and_matmul(tmp_path):
    numba_right(
        tmp_path,
        """
        @cuda.jit
        def transpose(x, y):
            tile = cuda.shared.array((16, 17), float32)
            i, j = cuda.blockIdx.y * 16 + cuda.threadIdx.y, cuda.blockIdx.x * 16 + cuda.threadIdx.x
            if i < x.shape[0] and j < x.shape[1]:
                tile[cuda.threadIdx.y, cuda.threadIdx.x] = x[i, j]
            cuda.syncthreads()
            i, j = cuda.blockIdx.x * 16 + cuda.threadIdx.y, cuda.blockIdx.y * 16 + cuda.threadIdx.x
            if i < y.shape[0] and j < y.shape[1]:
                y[i, j] = tile[cuda.threadIdx.x, cuda.threadIdx.y]

        @cuda.jit
        def matmul(a, b, c):
            left, right = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
            j, i = cuda.grid(2)
            tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
            v = float32(0)
            for k in range(a.shape[1] // 16):
                left[ty, tx] = a[i, tx + k * 16]
                right[ty, tx] = b[ty + k * 16, j]
                cuda.syncthreads()
                for t in range(16):
                    v += left[ty, t] * right[t, tx]
                cuda.syncthreads()
            c[i, j] = v

        m = rng.random((40, 50), dtype=np.float32)
        d, e = there(m), there(np.zeros((50, 40), np.float32))
        transpose[(4, 3), (16, 16), stream](d, e)
        assert (back(e) == m.T).all()
        a, b = rng.random((32, 48), dtype=np.float32), rng.random((48, 16), dtype=np.float32)
        c = there(np.zeros((32, 16), np.float32))
        matmul[(1, 2), (16, 16), stream](there(a), there(b), c)
        assert np.allclose(back(c), a @ b, rtol=1e-5)
        """,
    )


def test_numba_links_a_function_written_in_ptx(tmp_path):
    numba_right(
        tmp_path,
        """
        text = (
            ".version 7.0\\n.target sm_70\\n.address_size 64\\n"
            ".visible .func (.param .b32 status) thrice(.param .b64 result, .param .b32 x)\\n{\\n"
            ".reg .b32 %r<3>;\\n.reg .b64 %d;\\n"
            "ld.param.u64 %d, [result];\\nld.param.u32 %r1, [x];\\nmul.lo.s32 %r2, %r1, 3;\\n"
            "st.u32 [%d], %r2;\\nmov.u32 %r0, 0;\\nst.param.b32 [status], %r0;\\nret;\\n}\\n"
        )
        thrice = cuda.declare_device("thrice", "int32(int32)", link=cuda.PTXSource(text.encode()))

        @cuda.jit
        def k(x):
            i = cuda.grid(1)
            if i < x.size:
                x[i] = thrice(x[i])

        a = np.arange(n, dtype=np.int32)
        d = there(a)
        k[4, 256, stream](d)
        assert (back(d) == 3 * a).all()
        """,
    )


def test_numba_prints(tmp_path):
    told = tmp_path / "told"
    numba_right(
        tmp_path,
        f"""
        import os
        out = os.dup(1)
        os.dup2(os.open({str(told)!r}, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 1)

        @cuda.jit
        def tell(x):
            i = cuda.grid(1)
            print("number", i, "is", x[i], "and half", x[i] / 2)

        tell[1, 3, stream](there(np.array([5, 7, -9])))
        stream.synchronize()
        """,
    )
    lines = [f"number {i} is {v} and half {v / 2:f}" for i, v in enumerate([5, 7, -9])]
    assert told.read_text().splitlines() == lines


def test_numba_mathematics(tmp_path):
    numba_right(
        tmp_path,
        """
        @cuda.jit
        def functions(x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] = math.sin(x[i] * 1e6) + math.exp(x[i]) + math.sqrt(x[i]) + math.log(x[i] + 1) + math.tanh(x[i])

        d, e = there(x), there(x)
        functions[4, 256, stream](d, e)
        z = x.astype(np.float64)
        want = np.sin(z * 1e6) + np.exp(z) + np.sqrt(z) + np.log(z + 1) + np.tanh(z)
        assert np.allclose(back(e), want, atol=1e-4)
        """,
    )


def test_numba_threads_without_a_barrier_race(tmp_path):
    program = """
        @cuda.jit
        def turn(x):
            part = cuda.shared.array(64, float32)
            t = cuda.threadIdx.x
            part[t] = x[t]
            BARRIER
            x[t] = part[63 - t]

        d = there(x[:64])
        turn[1, 64, stream](d)
        host = back(d)
        assert not BARRIERS or (host == x[63::-1]).all()
        """
    numba_right(tmp_path, program.replace("BARRIERS", "True").replace("BARRIER", "cuda.syncthreads()"))
    numba.wrong(
        tmp_path,
        program.replace("BARRIERS", "False").replace("BARRIER", "pass"),
        "of its shared memory, one of them writes, and no barrier is between",
        **SETTINGS,
    )


def test_numba_kernel_and_copy_race(tmp_path):
    numba.wrong(
        tmp_path,
        """
        @cuda.jit
        def twice(x):
            i = cuda.grid(1)
            if i < x.size:
                x[i] *= 2

        d, other = there(x), cuda.stream()
        twice[4, 256, stream](d)
        d.copy_to_host(stream=other)
        cuda.synchronize()
        """,
        "race on 4000 bytes",
        "must wait for stream",
        **SETTINGS,
    )
