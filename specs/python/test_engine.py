"""examples/engine without a window: the script moves the swarm in the engine's vertex buffer, each pixel is lit where a
vertex is and nowhere else (the program compares them itself and ends with 1 where they differ), a reload in the middle
goes on with the same swarm, and nothing is left."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MOONFERRY_BUILD", ROOT / "build" / "dev"))

pytestmark = pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer stands before OpenGL's driver")


def test_two_hundred_frames(torch):
    environment = {**os.environ, "SDL_VIDEODRIVER": "offscreen", "LIBGL_ALWAYS_SOFTWARE": "1", "OMP_NUM_THREADS": "1"}
    command = [BUILD / "examples" / "engine", ROOT / "examples" / "engine" / "swarm.lua", "200"]
    told = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0].startswith("200 frames of 100000 particles: ")
    assert int(lines[0].split()[5]) > 10000
    assert lines[1].endswith(" 0 new blocks of Moonferry's")
    assert float(lines[1].split()[2]) <= 1, lines[1]
    assert lines[2] == "alive at the end: 0 tensors"
