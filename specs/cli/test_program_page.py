"""docs/program.md: what it shows is what happens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import MOONFERRY, ROOT
from terminal import Terminal

PAGE = (ROOT / "docs" / "program.md").read_text()


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def environment(folder):
    drop = ("LUA_", "MOONFERRY_", "PYTHON", "VIRTUAL_ENV", "XDG_", "LD_LIBRARY", "SIM_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    path = f"{os.path.dirname(MOONFERRY)}:{clean['PATH']}"
    return {**clean, "PATH": path, "HOME": str(folder), "TERM": "xterm", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def here(tmp_path):
    (tmp_path / ".venv").symlink_to(os.path.dirname(os.path.dirname(sys.executable)))
    return tmp_path


def matches(expected, seen):
    """Whether a text is as shown, where ... stands for anything, by whichever CPython."""
    expected, seen = (re.sub(r"CPython \d+(\.\d+)+", "CPython X", text) for text in (expected, seen))
    parts = [re.escape(part) for part in expected.replace("\n...\n", "\n\0\n").replace(" ...\n", " \1\n").split("\0")]
    pattern = r"(?:.*\n)?".join(p.removeprefix("\\\n") for p in parts).replace(re.escape("\1"), ".*")
    return re.fullmatch(pattern, seen, re.DOTALL)


def commands(block):
    """(command, what it prints) pairs; what cat shows is written to a file instead."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.parametrize("block", blocks("console"))
def test_commands(here, block):
    for command, output in commands(block):
        if match := re.fullmatch(r"cat ([\w.]+)", command):
            Path(here, match[1]).write_text(output)
            continue
        done = subprocess.run(["sh", "-c", f"({command}) 2>&1"], env=environment(here), cwd=here, capture_output=True,
                              text=True, timeout=600, stdin=subprocess.DEVNULL)  # fmt: skip
        assert matches(output, done.stdout), f"$ {command}\n{done.stdout}"


@pytest.mark.parametrize("block", blocks("prompt"))
def test_prompt(here, block):
    terminal = Terminal([MOONFERRY], environment(here), here)
    try:
        terminal.expect("\n> ")
        steps = re.split(r"^(>>?) ", block, flags=re.MULTILINE)[1:]
        for i in range(1, len(steps), 2):
            typed, _, output = steps[i].partition("\n")
            follows = steps[i + 1] if i + 1 < len(steps) else ">"
            seen = terminal.line(typed, prompt=f"\n{follows} ")
            assert matches(output, seen + "\n" if seen else ""), f"> {typed}\n{seen}"
        assert terminal.end() == 0
    finally:
        terminal.close()


def test_the_page_has_every_option_and_variable():
    done = subprocess.run([MOONFERRY, "check", "--help"], env=environment("/"), capture_output=True, text=True)
    for option in set(re.findall(r"--[a-z-]+[a-z]", done.stdout)) - {"--help"}:
        assert option in PAGE, option
    for variable in ("MOONFERRY_HISTORY", "MOONFERRY_LIBEDIT"):
        assert variable in PAGE
