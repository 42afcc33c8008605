"""examples/neovim in a Neovim without a window: its map and its picture say where the text is, character by character.

Not part of `make test`, whose set-up installs no Neovim: `make test-neovim`.
"""

import os
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "neovim" / "minimap.lua"
TEXT = "local x = 1\n\n  y7 = 'ä'\n" + "z" * 130 + "\nlast\n"
COLOURS = np.array([[24, 26, 33], [122, 162, 247], [255, 158, 100], [158, 206, 106]], "uint8")
SHOWS = (
    "lua local b = vim.api.nvim_list_bufs() "
    "io.stdout:write(table.concat(vim.api.nvim_buf_get_lines(b[#b], 0, -1, false), '\\n'), '\\n')"
)


def kinds(text):
    lines = text.encode().splitlines()
    out = np.zeros((-(-len(lines) // 4) * 4, 120), "uint8")
    for y, line in enumerate(lines):
        for x, byte in enumerate(line[:120]):
            letter = chr(byte).isalpha() or byte >= 128
            out[y, x] = 0 if byte <= 32 else 1 if letter else 2 if chr(byte).isdigit() else 3
    return out


def run(folder, *commands):
    (folder / "text").write_text(TEXT)
    words = ["nvim", "--headless", "-u", "NONE", "-i", "NONE", "-c", f"luafile {EXAMPLE}"]
    words += [word for command in (*commands, "qa!") for word in ("-c", command)]
    done = subprocess.run([*words, folder / "text"], capture_output=True, text=True, timeout=120, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_picture(tmp_path):
    run(tmp_path, f"MinimapWrite {tmp_path / 'map.ppm'}")
    expected = COLOURS[kinds(TEXT)]
    assert (tmp_path / "map.ppm").read_bytes() == b"P6\n120 8\n255\n" + expected.tobytes()


def test_the_map(tmp_path):
    lines = run(tmp_path, "Minimap", "Minimap", SHOWS).split("\n")[:-1]
    ink, drawn = kinds(TEXT) > 0, np.zeros((8, 120), bool)
    places = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (3, 1)]
    for i, line in enumerate(lines):
        assert len(line) == 60
        for j, character in enumerate(line):
            for bit, (y, x) in enumerate(places):
                drawn[4 * i + y, 2 * j + x] = (ord(character) - 0x2800) >> bit & 1
    assert np.array_equal(drawn, ink)


def test_nothing_is_left_alive(tmp_path):
    alive = "lua io.stdout:write(tostring(require('moonferry').ledger().tensors), '\\n')"
    told = run(tmp_path, "Minimap", f"MinimapWrite {tmp_path / 'map.ppm'}", "lua collectgarbage()", alive)
    assert told == "0\n"
