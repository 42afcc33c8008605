"""examples/shared without a window, on Mesa's Vulkan and OpenGL: what NumPy paints, Vulkan mirrors and OpenGL draws, in
one memory; the script compares each byte itself, Vulkan's validation layers say nothing, and nothing is left."""

import glob
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MOONFERRY_BUILD", ROOT / "build" / "dev"))

pytestmark = [
    pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer stands before OpenGL's driver"),
    pytest.mark.skipif(not (BUILD / "examples" / "shared").exists(), reason="examples/shared is not built here"),
]


def run(script, frames, picture):
    environment = {
        **os.environ,
        "SDL_VIDEODRIVER": "offscreen",
        "LIBGL_ALWAYS_SOFTWARE": "1",
        "VK_DRIVER_FILES": ":".join(glob.glob("/usr/share/vulkan/icd.d/lvp_icd.*.json")),
        "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
    }
    command = [BUILD / "examples" / "shared", script, str(frames), picture]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900)


def test_three_hundred_frames(tmp_path):
    told = run(ROOT / "examples" / "shared" / "shared.lua", 300, tmp_path / "picture.ppm")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == [
        "300 frames: NumPy, Vulkan and OpenGL agree on each of 262144 pixels",
        "alive at the end: 0 tensors",
    ]
    kind, size, most, pixels = (tmp_path / "picture.ppm").read_bytes().split(b"\n", 3)
    assert (kind, size, most, len(pixels)) == (b"P6", b"512 512", b"255", 512 * 512 * 3)
    assert len({pixels[i : i + 3] for i in range(0, len(pixels), 3)}) > 1000


def test_it_sees_a_difference(tmp_path):
    """That the comparison can fail: a script that paints once more after Vulkan has mirrored."""
    text = (ROOT / "examples" / "shared" / "shared.lua").read_text()
    late = text.replace("function compare(pixels)\n", "function compare(pixels)\n  paint(99)\n")
    assert late != text
    (tmp_path / "late.lua").write_text(late)
    told = run(tmp_path / "late.lua", 10, tmp_path / "picture.ppm")
    assert told.returncode == 1
    assert "Vulkan has not mirrored what NumPy painted" in told.stderr
