"""examples/worker without a window: while a thread of LÖVE's paints with PyTorch into LÖVE's own pictures, the renderer
draws more frames than there are pictures; none that it saw was torn (the program checks each), the last one is what
painter.py paints in this process, and nothing is left."""

import importlib.util
import os
import pathlib
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "worker"

pytestmark = pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer stands before OpenGL's driver")


def test_three_hundred_frames(tmp_path, torch):
    environment = {**os.environ, "SDL_VIDEODRIVER": "offscreen", "LIBGL_ALWAYS_SOFTWARE": "1", "OMP_NUM_THREADS": "1"}
    command = ["love", EXAMPLE, "300", tmp_path / "picture"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert told.returncode == 0, told.stderr
    assert told.stdout == "more frames than pictures: true; alive at the end: 0 tensors\n"
    picture = np.fromfile(tmp_path / "picture", "uint8").reshape(256, 256, 4)
    specification = importlib.util.spec_from_file_location("painter", EXAMPLE / "painter.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    painter, expected = module.Painter(256, 256), np.zeros((8, 256, 256, 4), "uint8")
    numbers = [int(picture[0, 0, 3]) + 251 * turn for turn in range(len(expected))]
    for number, one in zip(numbers, expected):
        painter.paint(torch.from_numpy(one), number)
    nearest = min(expected, key=lambda one: abs(picture.astype(int) - one).sum())
    assert abs(picture.astype(int) - nearest).max() <= 1
    assert (picture != nearest).mean() < 0.01
    assert nearest[..., :3].std() > 40
