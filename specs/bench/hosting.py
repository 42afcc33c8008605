"""The rows of `make bench` where one language calls the other: moonferry.Lua beside lupa's LuaRuntime.

Both get the same source. Each case is timed in rounds in which the two take turns, and the least counts. Loops of the
side that calls are part of the time, the same for both. The floors are lua_pcall and PyObject_Vectorcall alone, from C.
In the rows of a tensor lupa hands over the Python object as it is, which Lua can only ask Python about; moonferry.Lua
makes of it a tensor of Lua's own, and of that a moonferry.Tensor again.
Prints JSON: a list of rows as bench.py has them.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"
sys.path[:0] = [str(BUILD / "python"), str(BUILD / "bench")]

import bench_hosting as floor  # noqa: E402
import lupa.luajit21 as lupa  # noqa: E402
from turns import least  # noqa: E402

import moonferry as mf  # noqa: E402

ITEMS = 100_000
CALLS = 1000
LONG = 100_000_000
TEXT = "x" * 1024


class Thing:
    value = 7


def add(a, b):
    return a + b


# operation: (Lua function, Python statement, how many of the operation the statement does). The statement sees f, the
# Lua function, and the names of `given`.
CASES = {
    "Python calls a Lua function of two numbers": ("function(a, b) return a + b end", "f(1, 2)", 1),
    "Lua calls a Python function of two numbers": (
        "function(g, n) for i = 1, n do g(1, 2) end end",
        "f(add, CALLS)",
        CALLS,
    ),
    "Lua gets an attribute of a Python object": (
        "function(o, n) for i = 1, n do local v = o.value end end",
        "f(thing, CALLS)",
        CALLS,
    ),
    "Python gets a field of a Lua table": ("function() return {key = 1} end", "t['key']", 1),
    "Python sets a field of a Lua table": ("function() return {key = 1} end", "t['key'] = 2", 1),
    "Python gets an element of a Lua table": ("function() return {1, 2, 3} end", "t[2]", 1),
    "a tensor to Lua": ("function(x) end", "f(tensor)", 1),
    "a tensor to Python": ("function(x) if x then held = x end return held end", "f()", 1),
    "a string of 1 KiB to Lua": ("function(x) end", "f(TEXT)", 1),
    "a string of 1 KiB to Python": ("function(x) if x then held = x end return held end", "f()", 1),
    "Lua iterates a Python list": (
        "function(x) local n = 0 for v in python.iter(x) do n = n + 1 end return n end",
        "f(numbers)",
        ITEMS,
    ),
    "Python iterates a Lua table": (
        "function() local t = {} for i = 1, " + str(ITEMS) + " do t[i] = i end return t end",
        "for k, v in t.items(): pass",
        ITEMS,
    ),
}
GOALS = {"Python calls a Lua function of two numbers": 0.6, "Lua calls a Python function of two numbers": 0.8}


def given(runtime, operation, source):
    """What the statement of one case sees."""
    f = runtime.eval(source)
    names = {"f": f, "add": add, "thing": Thing(), "CALLS": CALLS, "TEXT": TEXT}
    names["tensor"] = mf.zeros((4, 4), "float32")
    names["numbers"] = list(range(ITEMS))
    if " t" in source or "return {" in source:
        names["t"] = f()
    if "held" in source:
        f(names["tensor"] if "tensor" in operation else TEXT)
    return names


def row(operation, rounds):
    source, statement, times = CASES[operation]
    runtimes = {"moonferry": mf.Lua(), "lupa": lupa.LuaRuntime()}
    sides = {name: given(runtime, operation, source) for name, runtime in runtimes.items()}
    for names in sides.values():
        exec(statement, names)  # what only the first crossing does, such as loading Lua files, is not timed
    statements = {name: (statement, names) for name, names in sides.items()}
    ns = {name: spent / times for name, spent in least(statements, rounds, fewest=1).items()}
    ratio = ns["moonferry"] / ns["lupa"]
    goal = GOALS.get(operation, 1.0)
    if operation == "Python calls a Lua function of two numbers":
        ns["lua_pcall"] = min(floor.lua_pcalls(100_000) for _ in range(rounds))
    elif operation == "Lua calls a Python function of two numbers":
        ns["PyObject_Vectorcall"] = min(floor.vectorcalls(add, 100_000) for _ in range(rounds))
    goals = [{"goal": f"<= {goal:g} of lupa", "value": ratio, "limit": goal}]
    return {"operation": operation, "ns": ns, "goals": goals}


def spent_by(loop, blocked):
    """Runs the loop and says for which share of the time its thread neither ran nor waited for a core."""
    counts = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    before, started = counts.read_text().split(), time.perf_counter_ns()
    loop(LONG)
    spent, after = time.perf_counter_ns() - started, counts.read_text().split()
    blocked.append(1 - sum(int(after[i]) - int(before[i]) for i in range(2)) / spent)


def in_threads(make, count, rounds):
    """(the least seconds, the share of them for which the worst thread was blocked): `count` runtimes at once."""
    source = "function(n) local s = 0 for i = 1, n do s = s + i * i end return s end"
    loops = [make().eval(source) for _ in range(count)]
    least_seconds, least_blocked = float("inf"), 1.0
    for _ in range(rounds):
        blocked = []
        threads = [threading.Thread(target=spent_by, args=(loop, blocked)) for loop in loops]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        least_seconds = min(least_seconds, time.perf_counter() - started)
        least_blocked = min(least_blocked, max(blocked))
    return least_seconds, least_blocked


def threads_rows(rounds):
    """Twice the work in two threads beside the work in one. Beside other programs the first row says little; the second
    one says as much as ever, because a thread that waits for a core is not blocked."""
    makers = {"moonferry": mf.Lua, "lupa": lupa.LuaRuntime}
    two = {name: in_threads(make, 2, rounds) for name, make in makers.items()}
    one = {name: in_threads(make, 1, rounds) for name, make in makers.items()}
    gain = {name: 2 * one[name][0] / two[name][0] for name in makers}
    words = f"two threads, each with its Lua state: {gain['moonferry']:.2f}x of one (lupa {gain['lupa']:.2f}x)"
    goals = [{"goal": ">= 1.8x: time of two <= 2/1.8 of one", "value": 2 / gain["moonferry"], "limit": 2 / 1.8}]
    yield {"operation": words, "ns": {name: times[0] * 1e9 for name, times in two.items()}, "goals": goals}
    goals = [{"goal": "<= 0.02", "value": two["moonferry"][1], "limit": 0.02}]
    shares = {name: share for name, (_, share) in two.items()}
    yield {"operation": "share of that time in which they were blocked", "ns": shares, "goals": goals}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    rows = []
    for operation in CASES:
        rows.append(row(operation, options.rounds))
        print(f"bench: {operation}", file=sys.stderr, flush=True)
    middle = statistics.median(r["goals"][0]["value"] for r in rows if r["operation"] not in GOALS)
    words = "median of the rows between Lua and Python, without calls"
    rows.append({"operation": words, "ns": {}, "goals": [{"goal": "<= 0.6 of lupa", "value": middle, "limit": 0.6}]})
    rows += threads_rows(options.rounds)
    json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
