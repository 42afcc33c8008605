"""What an editor knows of the Lua module: lua-language-server, where it is installed, says nothing of a program that is
right, and something of each line that is not. That program runs, too."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import moonferry as mf

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "specs" / "lua" / "typed_sample.lua"
SERVER = os.environ.get("MOONFERRY_LUA_LANGUAGE_SERVER") or shutil.which("lua-language-server")


def test_the_sample_runs(lua):
    lua.globals().print = lambda *values: None
    sample = lua.execute(SAMPLE.read_text())
    assert sample.mistakes is not None
    with pytest.raises(mf.LuaError, match="permute_dims"):
        sample.mistakes()


@pytest.mark.skipif(not SERVER, reason="lua-language-server is not installed")
def test_lua_language_server_finds_the_mistakes_and_nothing_else(tmp_path):
    page = (ROOT / "docs" / "program.md").read_text()
    settings = json.loads(re.search(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1])
    settings["workspace.library"] = [str(ROOT / "lua")]
    program = tmp_path / "program"
    program.mkdir()
    (program / ".luarc.json").write_text(json.dumps(settings))
    (program / SAMPLE.name).write_text(SAMPLE.read_text())
    places = [f"--{name}path={tmp_path / name}" for name in ("log", "meta")]
    found = tmp_path / "found.json"
    checks = [f"--check={program}", "--checklevel=Warning", "--check_format=json", f"--check_out_path={found}"]
    done = subprocess.run([SERVER, *checks, *places], cwd=program, capture_output=True, text=True, timeout=300)
    assert found.exists(), done.stdout + done.stderr
    lines = {message["range"]["start"]["line"]: message["message"]
             for messages in json.loads(found.read_text()).values() for message in messages}  # fmt: skip
    typed = SAMPLE.read_text().splitlines()
    wrong = {number for number, line in enumerate(typed) if line.endswith("-- wrong")}
    assert {typed[number]: lines[number] for number in lines.keys() - wrong} == {}
    assert [typed[number] for number in sorted(wrong - lines.keys())] == [] and len(wrong) > 10
