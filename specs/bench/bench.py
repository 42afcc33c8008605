"""The table of `make bench`: Moonferry beside NumPy, PyTorch, tvm-ffi, nanobind and JAX, all timed in this run.

Every cell is the minimum over rounds in which all contenders of a row take turns, so that a slow spell of
the machine meets all of them. C rows have the cost of their loop taken off; Python rows carry the loop of
`timeit`, the same for everyone. Writes build/bench/bench.json, .md and .png; with --publish also
docs/bench.md, and some rows of it in the README.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
sys.path[:0] = [str(BUILD / "python"), str(BUILD / "bench"), str(Path(__file__).parent)]

import bench_nanobind as nb  # noqa: E402
import bench_native as native  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import report  # noqa: E402
import torch  # noqa: E402
import tvm_ffi  # noqa: E402
from turns import least  # noqa: E402

import moonferry as mf  # noqa: E402

OURS = "moonferry"
SHAPE = (64, 64)
EXPORT = "x.__dlpack__(max_version=(1, 3))"


class Row:
    """One operation: what each library took, in nanoseconds, and the goals as (words, value, limit)."""

    def __init__(self, operation, cells, goals):
        self.operation = operation
        self.cells = cells
        self.goals = goals

    def as_dict(self):
        goals = [{"goal": text, "value": value, "limit": limit} for text, value, limit in self.goals]
        return {"operation": self.operation, "ns": self.cells, "goals": goals}


def tensors():
    """One float32 tensor of each library."""
    ours = mf.zeros(SHAPE, "float32")
    theirs = np.zeros(SHAPE, np.float32)
    return {
        OURS: ours,
        "numpy": theirs,
        "torch": torch.zeros(SHAPE),
        "tvm-ffi": tvm_ffi.from_dlpack(np.zeros(SHAPE, np.float32)),
        "nanobind": nb.make(*SHAPE),
        "jax": jnp.zeros(SHAPE, np.float32),
    }


IMPORTS = {
    OURS: mf.from_dlpack,
    "numpy": np.from_dlpack,
    "torch": torch.from_dlpack,
    "tvm-ffi": tvm_ffi.from_dlpack,
    "nanobind": nb.from_dlpack,
    "jax": jax.dlpack.from_dlpack,
}


def table_rows(own, rounds):
    """The exchange table, called from C as a consumer in C calls it. The unit, an empty call, takes its turn with the
    rest. tvm-ffi's Tensor offers no table; a wrapper that it has for tests does, without the slot that lends."""
    n = 200_000
    tvm = tvm_ffi.core.DLTensorTestWrapper(own["tvm-ffi"])
    cases = (
        ("table from C: borrowed", native.borrowed, 5, {OURS: own[OURS], "torch": own["torch"]}),
        ("table from C: owned + delete", native.owned, 12, {OURS: own[OURS], "torch": own["torch"], "tvm-ffi": tvm}),
    )
    for words, call, goal, sides in cases:
        calls = {"empty": lambda: native.empty_call(n)}
        calls |= {name: lambda side=side, call=call: call(side, n) for name, side in sides.items()}
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(rounds):
            for name, timed in calls.items():
                best[name] = min(best[name], timed())
        empty = best.pop("empty")
        text = f"<= {goal} ns where an empty call is 1 ns ({empty:.2f} here)"
        yield Row(words, best, [(text, best[OURS] / max(1.0, empty), goal), fastest(best)])


def python_rows(own, rounds):
    def timed(statement, cases):
        return least({name: (statement, names) for name, names in cases.items()}, rounds)

    everyone = {name: {"x": x, "f": IMPORTS[name]} for name, x in own.items()}
    yield from_ratio("t.__dlpack__(max_version=(1, 3))", timed(EXPORT, everyone), ("numpy", 0.65))

    own_own = timed("f(x)", everyone)
    yield from_ratio("from_dlpack(own tensor)", own_own, ("numpy", 0.4))

    # What np.from_dlpack takes for NumPy's own array is the yardstick of the goal, so it is in the row.
    of_numpy = timed("f(x)", {name: {"x": own["numpy"], "f": f} for name, f in IMPORTS.items()})
    yield from_ratio("from_dlpack(NumPy array)", of_numpy, ("numpy", 0.75), ("tvm-ffi", 0.6))

    of_torch = timed("f(x)", {name: {"x": own["torch"], "f": f} for name, f in IMPORTS.items()})
    yield from_ratio("from_dlpack(PyTorch tensor)", of_torch, ("numpy", 0.15), ("tvm-ffi", 1.0))

    views = {name: everyone[name] for name in (OURS, "numpy", "nanobind")}
    yield from_ratio("memoryview(t)", timed("memoryview(x)", views))

    for name, words in (("numpy", "np.from_dlpack(t)"), ("torch", "torch.from_dlpack(t)")):
        producers = {producer: {"x": x, "f": IMPORTS[name]} for producer, x in own.items()}
        yield from_ratio(words, timed("f(x)", producers))


def fastest(cells):
    """The goal of every row that has peers, whichever of them is the fastest."""
    return "<= 1 of the fastest peer", cells[OURS] / min(ns for name, ns in cells.items() if name != OURS), 1.0


def from_ratio(operation, cells, *goals):
    stated = [(f"<= {g:g} of {peer}", cells[OURS] / cells[peer], g) for peer, g in goals]
    return Row(operation, cells, [*stated, fastest(cells)])


def lua_rows():
    env = {
        **os.environ,
        "LUA_PATH": f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;;",
        "MOONFERRY_LIBRARY": str(BUILD / "python" / "moonferry" / "libmoonferry.so.0"),
        "MOONFERRY_BENCH_LOOPS": str(BUILD / "bench" / "bench_loops.so"),
    }
    done = subprocess.run(
        ["luajit", ROOT / "specs" / "bench" / "bench.lua"], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    ns = {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
    export = {OURS: ns["export_delete"]}
    yield Row("Lua: export + delete, compiled loop", export, [("<= 25 ns", export[OURS], 25)])
    cells = {OURS: ns["sum_rows"], "gcc -O2": ns["sum_rows_in_c"]}
    ratio = cells[OURS] / cells["gcc -O2"]
    yield Row("Lua: sum of a 1000 x 1000 float32 matrix by rows", cells, [("<= 1.1 of gcc -O2", ratio, 1.1)])


def hosting_rows(rounds):
    """In a process of its own: lupa brings a LuaJIT of its own."""
    script = ROOT / "specs" / "bench" / "hosting.py"
    command = [sys.executable, script, "--rounds", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def copy_row(rounds):
    ours, libc = native.copies(256 << 20, rounds)
    return Row(
        "contiguous copy of 256 MiB",
        {OURS: ours, "memcpy": libc},
        [(">= 0.95 of memcpy's speed: time <= 1/0.95", ours / libc, 1 / 0.95)],
    )


def memory_rows(exchanges):
    script = ROOT / "specs" / "bench" / "memory.py"
    env = {**os.environ, "PYTHONMALLOC": "malloc", "PYTHONPATH": str(BUILD / "python")}
    held = subprocess.run([sys.executable, script, "live"], env=env, stdout=subprocess.PIPE, text=True, check=True)
    nbytes = float(held.stdout)
    yield Row("memory of a live import, bytes", {OURS: nbytes}, [("<= 256 bytes", nbytes, 256)])
    env.pop("PYTHONMALLOC")
    command = [sys.executable, script, "resident", str(exchanges)]
    grown = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    kib = float(grown.stdout)
    words = f"resident size after {exchanges:.0e} exchanges minus that after 1e+05, KiB"
    yield Row(words, {OURS: kib}, [("<= 64 KiB", kib, 64)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--exchanges", type=int, default=10_000_000)
    parser.add_argument("--publish", action="store_true", help="also write docs/bench.md and the README's rows")
    options = parser.parse_args()

    own = tensors()
    rows = []

    def done(row):
        rows.append(row.as_dict())
        print(f"bench: {row.operation}", file=sys.stderr, flush=True)

    for row in table_rows(own, options.rounds):
        done(row)
    for row in python_rows(own, options.rounds):
        done(row)
    for row in lua_rows():
        done(row)
    done(copy_row(12))
    for row in memory_rows(options.exchanges):
        done(row)

    rows += hosting_rows(max(5, options.rounds // 3))

    result = {"machine": report.machine(), "rows": rows}
    (BUILD / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    print(report.text(result))
    (BUILD / "bench.md").write_text(report.markdown(result))
    report.picture(result, BUILD / "bench.png")
    if options.publish:
        report.publish(result, ROOT)


if __name__ == "__main__":
    main()
