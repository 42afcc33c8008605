"""What the device layer costs, beside CuPy and PyTorch: `make bench-gpu`.

Responsible for: running gpu_cost (the rows in C) on the machine's driver, the same from Python for every library that
is here and finds the GPU, and the exchange of device tensors between them; all in one run, so that only ratios within
it are compared. Writes build/bench-gpu.json, with the date, the device and the versions.
Must not know: what any library does inside.
"""

import ctypes
import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
import timeit
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("MOONFERRY_BUILD", ROOT / "build" / "timed"))
sys.path.insert(0, str(BUILD / "python"))
NBYTES = 1 << 20


def native_rows():
    environment = {"MOONFERRY_SPEC_DEVICE": "cuda", **os.environ}
    done = subprocess.run([BUILD / "bench" / "gpu_cost"], capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"gpu_cost: {(done.stdout + done.stderr).strip() or done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def driver():
    """The first GPU's name, the driver's version, and whether it is a simulated one, whose figures mean nothing."""
    lib, name, version = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(100), ctypes.c_int()
    lib.cuDeviceGetName(name, 100, 0)
    lib.cuDriverGetVersion(ctypes.byref(version))
    return name.value.decode(), version.value, hasattr(lib, "sim_calls")


def least(statement, names, number, repeats):
    """Nanoseconds of one execution: the least of the repeats."""
    return min(timeit.repeat(statement, globals=names, number=number, repeat=repeats)) / number * 1e9


def library(name):
    """A module that is installed and finds the GPU, with None; or None, with the reason."""
    try:
        module = importlib.import_module(name)
        module.zeros(1, device="cuda") if name == "torch" else module.zeros(1)
    except Exception as why:
        return None, f"{type(why).__name__}: {str(why).splitlines()[0] if str(why) else 'no reason given'}"
    return module, None


def permutes(mf, simulated):
    """A copy within the GPU, and permutes of as many bytes; on a GPU of 4096 x 4096 elements."""
    n = 64 if simulated else 4096
    for dtype in ("uint8", "float16", "float32", "float64"):
        src, dst = (mf.zeros((n, n), dtype, device="cuda:0") for _ in range(2))
        boxes = (16, n // 16, n)
        names = {"dst": dst, "src": src, "wait": lambda: mf.synchronize("cuda:0")}
        yield f"{n} x {n} {dtype}: copied", "moonferry", "dst.copy(src); wait()", names
        yield f"{n} x {n} {dtype}: transposed", "moonferry", "dst.copy(src.T); wait()", names
        swapped = {**names, "dst": dst.reshape((boxes[0], boxes[2], boxes[1])), "src": src.reshape(boxes)}
        yield (
            f"{boxes[0]} x {boxes[1]} x {boxes[2]} {dtype}: the last two swapped",
            "moonferry",
            "dst.copy(src.permute_dims((0, 2, 1))); wait()",
            swapped,
        )


def conversions(mf, simulated):
    """Casts and comparisons within the GPU; what they move, and the copy of as many bytes, is in permutes."""
    n = 1 << (12 if simulated else 24)
    wait = {"wait": lambda: mf.synchronize("cuda:0")}
    for source, target in (
        ("uint8", "float32"), ("float32", "uint8"), ("float32", "float16"), ("float16", "float32"),
        ("float32", "float8_e4m3fn"), ("float8_e4m3fn", "float32"), ("float64", "float32"), ("int64", "int32"),
    ):  # fmt: skip
        src, dst = (mf.zeros((n,), dtype, device="cuda:0") for dtype in (source, target))
        yield (
            f"{n} elements, {source} to {target}",
            "moonferry",
            "dst.copy(src); wait()",
            {"dst": dst, "src": src, **wait},
        )
    for dtype in ("uint8", "float16", "float32", "float64"):
        a, b = (mf.zeros((n,), dtype, device="cuda:0") for _ in range(2))
        yield f"{n} elements of {dtype} are equal", "moonferry", "equal(a, b)", {"equal": mf.equal, "a": a, "b": b}


WAIT, POOL = "a stream waits for another", "1 MiB allocated and freed"


def ours(mf, t):
    a, b = mf.Stream("cuda:0"), mf.Stream("cuda:0")
    yield WAIT, "moonferry", "a.wait(b)", {"a": a, "b": b}
    yield POOL, "moonferry", "f(n, 'uint8', device='cuda:0')", {"f": mf.empty, "n": NBYTES}
    yield (
        "t.__dlpack__(stream=...), same stream",
        "moonferry",
        "f(stream=1, max_version=v)",
        {
            "f": t.__dlpack__,
            "v": (1, 3),
        },
    )


def beside_cupy(mf, t, cupy):
    s, u = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(NBYTES, "uint8")
    yield WAIT, "cupy", "s.wait_event(u.record())", {"s": s, "u": u}
    yield POOL, "cupy", "f(n, 'uint8')", {"f": cupy.empty, "n": NBYTES}
    yield "from_dlpack(CuPy array)", "cupy", "f(x)", {"f": cupy.from_dlpack, "x": x}
    yield "from_dlpack(CuPy array)", "moonferry", "f(x)", {"f": mf.from_dlpack, "x": x}
    yield "cupy.from_dlpack(Moonferry tensor)", "cupy", "f(t)", {"f": cupy.from_dlpack, "t": t}


def beside_torch(mf, t, torch):
    s, u = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda")
    yield WAIT, "torch", "s.wait_stream(u)", {"s": s, "u": u}
    yield POOL, "torch", "f(n, dtype=d, device='cuda')", {"f": torch.empty, "n": NBYTES, "d": torch.uint8}
    yield "from_dlpack(PyTorch tensor)", "torch", "f(x)", {"f": torch.from_dlpack, "x": x}
    yield "from_dlpack(PyTorch tensor)", "moonferry", "f(x)", {"f": mf.from_dlpack, "x": x}
    yield "torch.from_dlpack(Moonferry tensor)", "torch", "f(t)", {"f": torch.from_dlpack, "t": t}


def rows_of(statements, simulated, number=2000):
    effort = (2, 1) if simulated else (number, 15)
    for operation, who, statement, names in statements:
        value = least(statement, names, *effort)
        yield {"operation": operation, "library": who, "value": value, "unit": "(simulated)" if simulated else "ns"}


def main():
    rows = native_rows()
    import moonferry as mf

    mf.device_count("cuda")
    gpu, version, simulated = driver()
    t = mf.zeros(NBYTES, "uint8", device="cuda:0")
    rows += rows_of(ours(mf, t), simulated)
    rows += rows_of(permutes(mf, simulated), simulated, 100)
    rows += rows_of(conversions(mf, simulated), simulated, 100)
    versions = {}
    for name, beside in (("cupy", beside_cupy), ("torch", beside_torch)):
        module, why = library(name)
        if module is None:
            rows.append({"operation": "all that is compared with it", "library": name, "absent": why})
        else:
            versions[name] = module.__version__
            rows += rows_of(beside(mf, t, module), simulated)
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": platform.platform(),
        "device": gpu,
        "driver": f"simulated, so these are no figures ({version})" if simulated else str(version),
        "python": platform.python_version(),
        "versions": versions,
        "rows": rows,
    }
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "bench-gpu.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['date']}, {result['machine']}, {gpu}, driver {result['driver']}")
    for row in rows:
        who = row.get("library", "C")
        if "absent" in row:
            print(f"{row['operation']:40} {who:10}     absent: {row['absent']}")
        else:
            print(f"{row['operation']:40} {who:10} {row['value']:10.4g} {row['unit']:12} {row.get('goal', '')}")


if __name__ == "__main__":
    main()
