"""The prompt where something fails around it: finalizers, metamethods, lines and files that are odd."""

import subprocess

from programs import MOONFERRY
from terminal import edited, plain_environment


def test_a_finalizer_that_fails_takes_neither_the_error_nor_the_prompt(prompt):
    t = prompt()
    t.line("function fails() local p = newproxy(true) getmetatable(p).__gc = function() error('gone') end end")
    said = t.line("fails() error('x')")
    assert said.startswith("stdin:1: gone\n") and "\nstdin:1: x\nstack traceback:" in said
    # From here on a finalizer fails at any step of the prompt's own.
    t.line("collectgarbage('setpause', 1) collectgarbage('setstepmul', 1e5)")
    t.line("function again() local p = newproxy(true) getmetatable(p).__gc = function() again() error('gone') end end")
    t.line("again()")
    for _ in range(20):
        t.line("{}")
    t.type("os.exit(9)\r")
    t.type("os.exit(9)\r" * 20)  # a line may be lost to an error
    assert t.wait() == 9


def test_a_prompt_that_can_read_no_lines_ends(tmp_path):
    text = "1\npackage.loaded['moonferry.program.repl'].line = nil\n2"
    env = plain_environment(tmp_path)
    done = subprocess.run([MOONFERRY, "-i"], input=text, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.splitlines()[2:]) == (1, ["> 1", "> "])
    assert done.stderr.count("attempt to call field 'line'") == 2


def test_globals_that_refuse_unknown_names(prompt):
    t = prompt()
    t.line("setmetatable(_G, { __index = function(_, name) error('no ' .. name, 2) end })")
    assert t.line("1") == "1"
    assert t.line("unknown").startswith("stdin:1: no unknown")
    assert "py.import" in t.line("help")
    t.type("quit\r")
    assert t.wait() == 0


def test_ctrl_c_stops_what_shows_an_error(prompt):
    """A __tostring is called when the error is raised, and again when it is shown, if it gave no text."""
    t = prompt()
    t.line("calls = 0")
    t.line("e = setmetatable({}, { __tostring = function() calls = calls + 1 return calls > 1 and loop() end })")
    t.line("function loop() print('look' .. 'ing') while true do end end")
    t.type("error(e)\r")
    t.expect("looking\n")
    t.interrupt()
    t.expect("\n> ")
    assert t.line("5") == "5"
    assert t.end() == 0


def test_lines_with_nuls(tmp_path):
    env = plain_environment(tmp_path)
    done = subprocess.run([MOONFERRY, "-i"], input=b"#'a\0b'\n'c\0d'\n", env=env, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines()[2:4] == ["> 3", '> "c\\000d"']


@edited
def test_what_is_no_character_takes_no_key_with_it(prompt):
    t = prompt()
    t.type(b"'\xc3\xff\xe5\xad'\r")
    assert t.expect("\n> ").endswith('"???"')
    t.type(b"--\xc3\r")
    t.expect("--?\n> ")


@edited
def test_a_history_that_is_no_file_of_ours(prompt, tmp_path):
    """A file that is there keeps its mode: it may be /dev/null."""
    path = tmp_path / "mine"
    path.write_text("x = 1\n")
    path.chmod(0o644)
    t = prompt(MOONFERRY_HISTORY=str(path))
    t.line("y = 2")
    assert t.end() == 0
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("x = 1\ny = 2\n", 0o644)
    t = prompt(MOONFERRY_HISTORY=str(tmp_path))
    assert f"(no history: {tmp_path}: " in t.shown
    assert t.line("2") == "2"
    assert t.end() == 0


@edited
def test_a_history_with_bytes_that_are_no_characters(prompt, tmp_path):
    """As another encoding leaves them, or a disk that was full in the middle of one."""
    path = tmp_path / "mine"
    path.write_bytes(b"print 'old'\n" + "print '\xe9'".encode("latin1") + b"\nprint '\xc3\xa9'--\xe2\x82\n")
    t = prompt(MOONFERRY_HISTORY=str(path))
    t.type("\x1b[A\r")
    t.expect("\n\xe9\n> ")
    t.type("\x1b[A\x1b[A\r")
    t.expect("\n?\n> ")
    t.type("\x1b[A" * 4 + "\r")
    t.expect("\nold\n> ")
    assert t.end() == 0
