"""What the device layer costs, beside CuPy and PyTorch: `make bench-gpu`.

Responsible for: running gpu_cost (the rows in C) on the machine's driver, the same from Python for every library that
is here and finds the GPU, and the exchange of device tensors between them; all in one run, so that only ratios within
it are compared. Writes build/bench-gpu.json, with the date, the device and the versions.
Must not know: what any library does inside.
"""

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
BUILD = Path(os.environ.get("MOONFERRY_BUILD", ROOT / "build" / "dev"))
NBYTES = 1 << 20


def native_rows():
    done = subprocess.run([BUILD / "bench" / "gpu_cost"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"gpu_cost: {(done.stdout + done.stderr).strip() or done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def least(statement, names, number=2000, repeats=15):
    """Nanoseconds of one execution: the least of the repeats."""
    return min(timeit.repeat(statement, globals=names, number=number, repeat=repeats)) / number * 1e9


def library(name):
    """A module that is installed and finds a GPU, or None with the reason printed."""
    try:
        module = importlib.import_module(name)
        {"torch": lambda: module.zeros(1, device="cuda"), "cupy": lambda: module.zeros(1)}.get(name, lambda: None)()
    except Exception as why:
        print(f"bench: no {name}: {type(why).__name__}: {why}", file=sys.stderr)
        return None
    return module


def statements(mf, cupy, torch):
    """(operation, library, statement, names)."""
    a, b = mf.Stream("cuda:0"), mf.Stream("cuda:0")
    yield "a stream waits for another", "moonferry", "a.wait(b)", {"a": a, "b": b}
    yield "1 MiB allocated and freed", "moonferry", "f(n, 'uint8', device='cuda:0')", {"f": mf.empty, "n": NBYTES}
    t = mf.zeros(NBYTES, "uint8", device="cuda:0")
    if cupy:
        s, u = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
        x = cupy.zeros(NBYTES, "uint8")
        yield "a stream waits for another", "cupy", "s.wait_event(u.record())", {"s": s, "u": u}
        yield "1 MiB allocated and freed", "cupy", "f(n, 'uint8')", {"f": cupy.empty, "n": NBYTES}
        yield "from_dlpack(CuPy array)", "cupy", "f(x)", {"f": cupy.from_dlpack, "x": x}
        yield "from_dlpack(CuPy array)", "moonferry", "f(x)", {"f": mf.from_dlpack, "x": x}
        yield "cupy.from_dlpack(x)", "moonferry", "f(t)", {"f": cupy.from_dlpack, "t": t}
    if torch:
        s, u = torch.cuda.Stream(), torch.cuda.Stream()
        x = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda")
        names = {"f": torch.empty, "n": NBYTES, "d": torch.uint8}
        yield "a stream waits for another", "torch", "s.wait_stream(u)", {"s": s, "u": u}
        yield "1 MiB allocated and freed", "torch", "f(n, dtype=d, device='cuda')", names
        yield "from_dlpack(PyTorch tensor)", "torch", "f(x)", {"f": torch.from_dlpack, "x": x}
        yield "from_dlpack(PyTorch tensor)", "moonferry", "f(x)", {"f": mf.from_dlpack, "x": x}
        yield "torch.from_dlpack(x)", "moonferry", "f(t)", {"f": torch.from_dlpack, "t": t}


def main():
    rows = native_rows()
    import moonferry as mf

    mf.device_count("cuda")
    peers = {name: library(name) for name in ("cupy", "torch")}
    for operation, who, statement, names in statements(mf, peers["cupy"], peers["torch"]):
        rows.append({"operation": operation, "library": who, "value": least(statement, names), "unit": "ns"})
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: module.__version__ for name, module in peers.items() if module},
        "rows": rows,
    }
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "bench-gpu.json").write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        who, goal = row.get("library", "C"), row.get("goal", "")
        print(f"{row['operation']:40} {who:10} {row['value']:10.4g} {row['unit']:6} {goal}")


if __name__ == "__main__":
    main()
