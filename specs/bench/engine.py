"""`make bench-engine`: what a frame of an engine costs, in one run: docs/engine-bench.md and its picture.

Responsible for running the parts (engine_costs.lua, engine_frames.lua, engine_transfer.lua, examples/worker in LÖVE
with a clock around it, and a program of LÖVE's that quits) and for the page. All times but those of quitting are CPU
time of the engine's thread, so that a busy machine changes them little. Ends with 1 where a figure misses its goal.
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from report import machine

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PACKAGE = ROOT / "build" / "bench" / "python"
ENVIRONMENT = {
    **os.environ,
    "MOONFERRY_PYTHON": sys.executable,
    "MOONFERRY_LIBRARY": str(PACKAGE / "moonferry" / "libmoonferry.so.0"),
    "PYTHONPATH": str(PACKAGE),
    "LUA_PATH": f"{ROOT}/lua/?.lua;{ROOT}/lua/?/init.lua;{ROOT}/specs/lua/?.lua;;",
    "SDL_VIDEODRIVER": "offscreen",
    "LIBGL_ALWAYS_SOFTWARE": "1",
    "OMP_NUM_THREADS": "1",
}
MS = 1e6

# A clock around what the game does in a frame.
CLOCKED = """
local ffi = require "ffi"
ffi.cdef "typedef struct { long s, ns; } bench_timespec; int clock_gettime(int clock, bench_timespec *out);"
local clock, times = ffi.new "bench_timespec", {}
local function now()
  ffi.C.clock_gettime(3, clock) -- CLOCK_THREAD_CPUTIME_ID
  return tonumber(clock.s) * 1e9 + tonumber(clock.ns)
end
require "game"
local update, draw, quit, before = love.update, love.draw, love.quit, nil
function love.update(dt)
  before = now()
  update(dt)
end
function love.draw()
  draw()
  times[#times + 1] = now() - before
end
function love.quit()
  for _, took in ipairs(times) do
    print(("took %d"):format(took))
  end
  quit()
end
"""
QUITS = """
function love.load()
  love.thread.newThread([=[
    local py = require "moonferry.python"
    py.main.ready = function() love.thread.getChannel("said"):push "ready" end
    %s
  ]=]):start()
end
function love.update()
  love.thread.getChannel("said"):demand()
  print "quits"
  io.stdout:flush()
  love.event.quit()
end
"""
USED = 'py.exec "import threading; ready()"'
# In the middle of the library that takes longest.
LOADING = """py.exec [[
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._C": ready()
sys.meta_path.insert(0, Finder())
import torch
]]"""
NO_WINDOW = """
function love.conf(t)
  for name in pairs(t.modules) do t.modules[name] = false end
  t.modules.event, t.modules.thread, t.modules.data = true, true, true
end
"""


def run(*command):
    """What a program prints, which must end well."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{words} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def figures(text):
    return {name: float(value) for name, value in re.findall(r"(\w+)=(-?[\d.]+)", text)}


def percentile(values, share):
    return sorted(values)[max(0, int(len(values) * share + 0.5) - 1)]


def frames(count, folder):
    """What engine_frames.lua says, and the nanoseconds of each frame by the script and by Python alone."""
    told = figures(run("luajit", HERE / "engine_frames.lua", count, folder / "times"))
    rows = [line.split() for line in (folder / "times").read_text().splitlines()]
    return told, [int(a) for a, _ in rows], [int(b) for _, b in rows]


# What the worker's model does, with a picture of its own; it says when it has begun.
PAINTS = """
import painter, torch
model, picture, number = painter.Painter(256, 256), torch.zeros(256, 256, 4, dtype=torch.uint8), 0
while True:
    number += 1
    model.paint(picture, number)
    print(number, flush=True)
"""


@contextlib.contextmanager
def painting(folder):
    with subprocess.Popen([sys.executable, "-c", PAINTS], cwd=folder, stdout=subprocess.PIPE) as program:
        program.stdout.readline()
        drain = threading.Thread(target=program.stdout.read)
        drain.start()
        try:
            yield
        finally:
            program.kill()
            drain.join()


HOWS = ("busy", "idle", "beside")


def renderer(count, folder):
    """The 99th percentile of the renderer's frames in each of HOWS: the median of rounds that take turns, because one
    of a thousand frames says little on a machine with other things to do."""
    rounds = [[percentile(worker(count, folder, how), 0.99) for how in HOWS] for _ in range(7)]
    return [statistics.median(shares) for shares in zip(*rounds)]


def worker(count, folder, how):
    """The renderer's time of each frame: while the worker paints with PyTorch ("busy"), or sleeps as long instead
    ("idle"), or sleeps while a process of its own paints as much ("beside"), which has nothing of ours."""
    game = Path(tempfile.mkdtemp(dir=folder)) / how
    shutil.copytree(ROOT / "examples" / "worker", game)
    (game / "main.lua").rename(game / "game.lua")
    (game / "main.lua").write_text(CLOCKED)
    if how != "busy":
        text = (game / "worker.lua").read_text()
        idle = text.replace("painter:paint(views[i], number)", 'require("love.timer").sleep(0.02)')
        if idle == text:
            raise RuntimeError("examples/worker/worker.lua paints in another way than this knows")
        (game / "worker.lua").write_text(idle)
    with painting(game) if how == "beside" else contextlib.nullcontext():
        told = run("love", game, count, folder / "picture")
    return [int(ns) for ns in re.findall(r"took (\d+)", told)][count // 10 :]


def quit_seconds(count, folder, work):
    """How long LÖVE takes to end from when a thread of its own, which does some work in Python, calls ready."""
    game = Path(tempfile.mkdtemp(dir=folder))
    (game / "conf.lua").write_text(NO_WINDOW)
    (game / "main.lua").write_text(QUITS % work)
    seconds = []
    for _ in range(count):
        with subprocess.Popen(["love", str(game)], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as program:
            program.stdout.readline()
            before = time.monotonic()
            if program.wait(60):
                raise RuntimeError(f"LÖVE ended with {program.returncode}")
            seconds.append(time.monotonic() - before)
    return seconds


def rows_of(told, count, transfer, shares, quits):
    """The table: what, the figure, its goal, whether it is met."""
    added, tail = (told["p50"] - told["alone"]) / MS, told["p999"] / told["p50"]
    ratio = transfer["mapped"] / transfer["copied"]
    of_idle, of_other, slow = shares[0] / shares[1], shares[0] / shares[2], sum(s > 1 for s in quits)
    return [
        ("what the script adds to the array work of a frame", f"{added:.4f} ms of {told['p50'] / MS:.3f}", "0.1 ms",
         added <= 0.1),
        ("p99.9 of a frame divided by its p50, after `py.settle`", f"{tail:.2f}", "3", tail <= 3),
        (f"growth in {count} frames: resident memory", f"{told['grown_kib']:.0f} KiB", "1024 KiB",
         told["grown_kib"] <= 1024),
        ("growth: Moonferry's blocks", f"{told['blocks']:.0f}", "0", told["blocks"] == 0),
        ("Lua garbage in a frame", f"{told['garbage_kib']:.2f} KiB", "1 KiB", told["garbage_kib"] <= 1),
        ("4k picture passed to OpenGL and drawn: mapped buffer divided by `glBufferSubData`",
         f"{ratio:.3f} ({transfer['mapped'] / MS:.2f} / {transfer['copied'] / MS:.2f} ms)", "0.1", ratio <= 0.1),
        ("renderer's p99: PyTorch on a worker thread divided by an idle worker",
         f"{of_idle:.2f} ({shares[0] / MS:.2f} / {shares[1] / MS:.2f} ms)", "1.2", of_idle <= 1.2),
        ("renderer's p99: PyTorch on a worker thread divided by PyTorch in another process",
         f"{of_other:.2f} ({shares[0] / MS:.2f} / {shares[2] / MS:.2f} ms)", "1.2", of_other <= 1.2),
        (f"LÖVE quits within a second, of {len(quits)} times", f"{len(quits) - slow} (slowest {max(quits):.2f} s)",
         str(len(quits)), slow == 0),
    ]  # fmt: skip


def markdown(rows, costs, load):
    lines = [
        "# A frame in an engine, measured",
        "",
        "`make bench-engine` writes this page. Times are CPU time of the engine's thread. Each frame passes three",
        "tensors (20,000 vertices, their colours, 512 x 512 heights) to PyTorch and back, in rings of three slots,",
        'and calls PyTorch six times. "The array work" is the same calls in one Python function. The 4k picture is',
        "a storage buffer that a shader reads. The renderer is LÖVE in `examples/worker`: the median of seven",
        "rounds that take turns. The frames are those of the median of three rounds. OpenGL is Mesa's llvmpipe.",
        "",
        "| | measured | goal | |",
        "| --- | ---: | ---: | --- |",
    ]
    lines += [f"| {what} | {value} | {goal} | {'' if met else 'missed'} |" for what, value, goal, met in rows]
    lines += ["", "Single operations, the shortest of the rounds:", "", "| | µs |", "| --- | ---: |"]
    lines += [f"| {what} | {ns / 1000:.2f} |" for what, ns in costs]
    lines += ["", "![The times of the frames](engine-frames.png)", "", f"Measured on: {machine()}. {load}", ""]
    return "\n".join(lines)


def picture(scripted, alone, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), width_ratios=(2, 1))
    left.plot([ns / MS for ns in scripted], ".", markersize=1.5, color="#2b6cb0", rasterized=True)
    left.set_xlabel("frame")
    left.set_ylabel("ms of the thread's CPU time")
    left.set_ylim(0)
    shares = [i / len(scripted) for i in range(len(scripted))]
    for values, name, color in ((scripted, "from Lua", "#2b6cb0"), (alone, "array work alone", "#e0a458")):
        right.plot(sorted(ns / MS for ns in values), shares, label=name, color=color)
    right.set_xlim(0, 4 * statistics.median(scripted) / MS)
    right.set_xlabel("ms")
    right.set_ylabel("share of the frames")
    right.legend(loc="lower right")
    figure.savefig(path, dpi=100, bbox_inches="tight")
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=10000)
    parser.add_argument("--quits", type=int, default=100)
    parser.add_argument("--publish", action="store_true", help="writes docs/engine-bench.md and its picture")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = [line.split("\t") for line in run("luajit", HERE / "engine_costs.lua").splitlines()]
        rounds = [frames(options.frames, folder) for _ in range(3)]
        told, scripted, alone = sorted(rounds, key=lambda r: r[0]["p999"] / r[0]["p50"])[1]
        transfer = figures(run("luajit", HERE / "engine_transfer.lua", 15))
        shares = renderer(options.frames // 10, folder)
        quits = quit_seconds(options.quits, folder, USED)
        loading = quit_seconds(max(options.quits // 10, 1), folder, LOADING)
    rows = rows_of(told, options.frames, transfer, shares, quits)
    rows.append(("LÖVE quits while a thread loads PyTorch, slowest", f"{max(loading):.2f} s", "", True))
    for what, value, goal, met in rows:
        print(f"{what:<72} {value:>28}  {goal:>8}  {'' if met else 'missed'}")
    if options.publish:
        load = f"Load of the machine meanwhile: {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores."
        (ROOT / "docs" / "engine-bench.md").write_text(markdown(rows, [(what, float(ns)) for what, ns in costs], load))
        picture(scripted, alone, ROOT / "docs" / "engine-frames.png")
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
