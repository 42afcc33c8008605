"""examples/love without a window: after 300 frames the picture's bytes are those that pond.py paints in this process,
each pixel of the screen beside the leaf, the ring and the text shows its cell, and the leaf is where the same waves
carry it."""

import importlib.util
import math
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GAME = ROOT / "examples" / "love"
FRAMES, CELL = 300, 4

pytestmark = pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer stands before OpenGL's driver")


def play(folder):
    """What the game printed, the screen and the picture."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    environment = {**os.environ, "SDL_VIDEODRIVER": "offscreen", "LIBGL_ALWAYS_SOFTWARE": "1", "OMP_NUM_THREADS": "1"}
    screen, picture = folder / "screen.png", folder / "picture"
    command = ["love", GAME, str(FRAMES), screen, picture]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    return told.stdout, np.asarray(image.open(screen))[..., :3], np.fromfile(picture, "uint8").reshape(150, 200, 4)


def slope(height, leaf):
    x, y = math.floor(leaf[0]), math.floor(leaf[1])
    return float(height[y, x + 1]) - float(height[y, x - 1]), float(height[y + 1, x]) - float(height[y - 1, x])


def simulate():
    """The same in this process: the picture, and where the leaf is."""
    specification = importlib.util.spec_from_file_location("pond", GAME / "pond.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    pond = module.Pond(np.zeros((150, 200, 4), "uint8"))
    leaf, speed = [100.0, 75.0], [0.0, 0.0]
    for frame in range(1, FRAMES + 1):
        pond.push(100 + 60 * math.cos(frame / 20), 75 + 40 * math.sin(frame / 13), 0.5)
        for _ in range(2):
            pond.step()
            for axis, steep in enumerate(slope(pond.height, leaf)):
                speed[axis] = 0.97 * speed[axis] - 0.25 * steep
            for axis, most in enumerate((198, 148)):
                leaf[axis] = min(max(leaf[axis] + speed[axis], 1), most)
        pond.paint()
    return pond.picture, leaf


def test_three_hundred_frames(tmp_path):
    told, screen, picture = play(tmp_path)
    expected, leaf = simulate()
    assert (picture == expected).all()
    assert picture[..., 1].std() > 5
    numbers = [float(n) for n in re.findall(r"[-\d.]+", told)]
    assert numbers[:1] + numbers[2:4] == pytest.approx([FRAMES, *leaf], abs=1e-5)

    y, x = np.mgrid[: screen.shape[0], : screen.shape[1]]
    from_ring = np.hypot(x + 0.5 - CELL * numbers[4], y + 0.5 - CELL * numbers[5])
    from_leaf = np.hypot(x + 0.5 - CELL * leaf[0], y + 0.5 - CELL * leaf[1])
    water = (abs(from_ring - 36) > 4) & (from_leaf > 18) & ~((x < 260) & (y < 32))
    assert water.mean() > 0.95
    cells = expected[..., :3].repeat(CELL, 0).repeat(CELL, 1)
    assert (screen[water] == cells[water]).all()
    assert screen[round(CELL * leaf[1]), round(CELL * leaf[0])] == pytest.approx([76, 191, 64], abs=1)
