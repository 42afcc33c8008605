"""`moonferry` as an interpreter of Lua: options, arguments, errors and statuses, beside luajit's own."""

import os
import signal
import subprocess
import sys

import pytest
from programs import MOONFERRY, PACKAGE


def environment(folder, **settings):
    """Nothing that could help it: no variable of Lua, Python or Moonferry."""
    drop = ("LUA_", "MOONFERRY_", "PYTHON", "VIRTUAL_ENV", "SIM_", "LD_LIBRARY")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    return {**clean, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **settings}


@pytest.fixture
def moonferry(tmp_path):
    def run(*words, program=MOONFERRY, settings=None, **rest):
        options = {"stdin": subprocess.DEVNULL} if "input" not in rest else {}
        return subprocess.run([program, *map(str, words)], env=environment(tmp_path, **(settings or {})), cwd=tmp_path,
                              capture_output=True, text=True, timeout=600, **options, **rest)  # fmt: skip

    return run


def script(folder, text, name="script.lua"):
    (folder / name).write_text(text)
    return name


def same_as_luajit(moonferry, *words, **rest):
    ours, theirs = moonferry(*words, **rest), moonferry(*words, program="luajit", **rest)

    def plain(text):
        lines = text.replace("luajit:", "moonferry:").splitlines()
        return [line for line in lines if not line.startswith("\t[C]: at 0x")]

    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)
    assert plain(ours.stderr) == plain(theirs.stderr)
    return ours


SHOW = "local n = -9 while not arg[n] do n = n + 1 end for i = n + 1, #arg do print(i, arg[i]) end print(...)"


@pytest.mark.parametrize("words", [(), ("a",), ("a b", "", "-i", "--")])
def test_arguments_of_a_script(moonferry, tmp_path, words):
    done = same_as_luajit(moonferry, script(tmp_path, SHOW), *words)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("-e", "print(1)"),
        ("-eprint(1)",),
        ("-e", "x = 1", "-e", "print(x)"),
        ("-l", "bit", "-e", "print(bit.bor(1, 2))"),
        ("-lbit", "-e", "print(bit)~=nil"),
        ("-e", "print(arg[0], #arg)"),
        ("-joff", "-e", "print(jit.status())"),
        ("-j", "on", "-e", "print((jit.status()))"),
        ("-O1", "-e", "print(jit.status())"),
        ("-Ohotloop=10", "-e", "print(1)"),
        ("-Ononsense", "-e", "print(1)"),
        ("-e", "error 'x'"),
        ("-e", "local function f() error('deep', 2) end f()"),
        ("-e", "syntax error"),
        ("-e", "os.exit(3)"),
        ("-e", "os.exit(true)"),
        ("-e", "os.exit(false)"),
        ("nofile.lua",),
        ("--", "nofile.lua"),
        ("-e", "print(1)", "nofile.lua"),
        ("-e", "error 'first'", "nofile.lua"),
    ],
)
def test_as_luajit(moonferry, words):
    same_as_luajit(moonferry, *words)


def test_an_error_object_that_can_be_printed(moonferry):
    code = "error(setmetatable({}, { __tostring = function() return 'spoken' end }))"
    done = same_as_luajit(moonferry, "-e", code)
    assert done.returncode == 1 and "spoken" in done.stderr


def test_a_script_from_the_standard_input(moonferry):
    assert same_as_luajit(moonferry, "-", "a", input="print(arg[0], ...)").stdout == "-\ta\n"
    assert same_as_luajit(moonferry, input="print(arg[0], ...)").returncode == 0
    assert moonferry(input="error('in')").returncode == 1, "luajit ends with 0 here"


def test_a_traceback_of_a_script(moonferry, tmp_path):
    done = same_as_luajit(moonferry, script(tmp_path, "local function inner()\n  error('boo')\nend\ninner()\n"))
    assert done.returncode == 1
    assert done.stderr.startswith("moonferry: script.lua:2: boo\nstack traceback:\n")
    assert "script.lua:4: in main chunk" in done.stderr


def test_lua_init(moonferry, tmp_path):
    assert same_as_luajit(moonferry, "-e", "print(x)", settings={"LUA_INIT": "x = 4"}).stdout == "4\n"
    assert same_as_luajit(moonferry, "-E", "-e", "print(x)", settings={"LUA_INIT": "x = 4"}).stdout == "nil\n"
    assert same_as_luajit(moonferry, "-e", "print(x)", settings={"LUA_INIT": "error 'x'"}).returncode == 1
    name = script(tmp_path, "x = 5")
    assert same_as_luajit(moonferry, "-e", "print(x)", settings={"LUA_INIT": f"@{name}"}).stdout == "5\n"


def test_errors_that_are_clearer_than_luajits(moonferry):
    done = moonferry("-e", "error()")
    assert (done.returncode, done.stderr) == (1, "moonferry: (error object is nil)\n")
    done = moonferry("-e", "error { why = 'x' }")
    assert (done.returncode, done.stderr) == (1, 'moonferry: (error object is { why = "x" })\n')
    done = moonferry("-e", "error(newproxy())")
    assert done.returncode == 1 and done.stderr.startswith("moonferry: (error object is userdata: 0x")
    done = moonferry("-l", "no.such.module")
    assert (done.returncode, done.stdout) == (1, "")
    assert "moonferry: module 'no.such.module' not found:" in done.stderr


def test_modules_of_the_compiler_get_the_words_behind_their_name(moonferry, tmp_path):
    (tmp_path / "jit").mkdir()
    (tmp_path / "jit" / "own.lua").write_text("return { start = function(...) print('own', ...) end }\n")
    (tmp_path / "jit" / "bad.lua").write_text("return { start = function(word) error(word, 0) end }\n")
    path = {"LUA_PATH": f"{tmp_path}/?.lua;;"}
    assert moonferry("-jown", "-e", "print(1)", settings=path).stdout == "own\n1\n"
    assert moonferry("-j", "own=a,b", "-e", "print(1)", settings=path).stdout == "own\ta\tb\n1\n"
    done = moonferry("-jbad=why", "-e", "print(1)", settings=path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "moonferry: why\n")


@pytest.mark.parametrize("command", ["nonsense", "", "=", "=x", ",", "util"])
def test_what_the_compiler_does_not_know(moonferry, command):
    """jit.util is a module, but nothing that can be started."""
    done = moonferry("-j", command, "-e", "print(1)")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"moonferry: -j: {command} is neither on, off or flush nor a module jit.*\n"


@pytest.mark.parametrize("words", [("-x",), ("--nothing",), ("-e",), ("-l",), ("-j",), ("-ix",), ("-i", "-l")])
def test_wrong_options(moonferry, words):
    done = moonferry(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert words[-1] in done.stderr and "moonferry --help" in done.stderr


def test_version(moonferry):
    for word in ("-v", "--version"):
        done = moonferry(word)
        assert done.returncode == 0
        assert done.stdout.startswith("moonferry 0.") and "LuaJIT 2.1" in done.stdout


def test_moonferry_is_found_without_a_variable(moonferry):
    code = "local mf = require 'moonferry' print(mf.tensor({ 1, 2 }, 'int8'):get(1), package.loaded['moonferry'] == mf)"
    assert moonferry("-e", code).stdout == "2\ttrue\n"
    assert moonferry("-E", "-l", "moonferry").returncode == 0
    other = moonferry("-e", code, settings={"LUA_PATH": "/nowhere/?.lua"})
    assert other.stdout == "2\ttrue\n"


def test_python_is_hosted_without_a_variable(moonferry, tmp_path):
    """The environment that is found in the working folder, as a person works."""
    (tmp_path / ".venv").symlink_to(os.path.dirname(os.path.dirname(sys.executable)))
    code = """
    local py = require "moonferry.python"
    local mf = require "moonferry"
    local t = mf.tensor({ 1, 2, 3 }, "float32")
    local a = py.import "numpy".from_dlpack(t)
    a:__setitem__(0, 9)
    print(t:get(0), py.import "moonferry".__file__)
    """
    done = moonferry("-e", code)
    assert done.stdout == f"9\t{PACKAGE}/__init__.py\n", done.stderr


@pytest.mark.parametrize(
    "code, status, said",
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit(True)", 1, ""),
        ("sys.exit(False)", 0, ""),
        ("sys.exit(2.5)", 1, "2.5\n"),
        ("sys.exit([7])", 1, "[7]\n"),
        ("sys.exit('why')", 1, "why\n"),
        ("raise type('Quit', (SystemExit,), {})(4)", 4, ""),
    ],
)
def test_sys_exit_that_nobody_catches_is_the_programs(moonferry, tmp_path, code, status, said):
    (tmp_path / ".venv").symlink_to(os.path.dirname(os.path.dirname(sys.executable)))
    chunk = f"""
    local py = require "moonferry.python"
    py.exec "import sys, atexit; atexit.register(print, 'end')"
    print(pcall(py.exec, "sys.exit(5)"))
    coroutine.wrap(function() py.exec "{code}" end)()
    print "not reached"
    """
    done = moonferry("-e", chunk)
    assert (done.returncode, done.stderr) == (status, said)
    assert "false\tSystemExit: 5" in done.stdout and "end\n" in done.stdout
    assert "not reached" not in done.stdout


def test_only_system_exit_has_a_status(moonferry, tmp_path):
    """urllib's HTTPError has a code, too, and ends no program with it."""
    (tmp_path / ".venv").symlink_to(os.path.dirname(os.path.dirname(sys.executable)))
    chunk = """require "moonferry.python".exec [[class Failed(Exception): code = 4\nraise Failed('why')]]"""
    done = moonferry("-e", chunk)
    assert done.returncode == 1 and "Failed: why" in done.stderr


def test_lua_c_modules_find_lua_here(moonferry):
    """What Debian's lua-filesystem is linked with is not this program, so its functions must be exported."""
    done = moonferry("-e", "print(pcall(require, 'lfs'))", settings={"LUA_CPATH": ";;"})
    assert "undefined symbol" not in done.stdout + done.stderr


@pytest.mark.parametrize("name, text", [("INT", "interrupted!"), ("TERM", "")])
def test_signals_to_a_script(tmp_path, name, text):
    code = "io.stdout:write('ready\\n') io.stdout:flush() jit.off() while true do end"
    child = subprocess.Popen([MOONFERRY, "-joff", "-e", code], env=environment(tmp_path), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert child.stdout.readline() == "ready\n"
    child.send_signal(getattr(signal, f"SIG{name}"))
    _, err = child.communicate(timeout=600)
    assert text in err
    assert child.returncode == (1 if name == "INT" else -signal.SIGTERM)


def listening(folder, code, **rest):
    """A script that is interpreted, once it has said that it is ready."""
    child = subprocess.Popen([MOONFERRY, "-joff", "-e", code], env=environment(folder), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **rest)  # fmt: skip
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_second_ctrl_c_stops_a_script_that_has_caught_the_first(tmp_path):
    """By an error, and not at once as where the first one stopped nothing."""
    code = """
    io.stdout:setvbuf 'no'
    for _, word in ipairs { 'ready', 'again' } do
      print(pcall(function() print(word) while true do end end))
    end
    """
    child = listening(tmp_path, code)
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline().startswith("false\t") and child.stdout.readline() == "again\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=600)
    assert child.returncode == 1 and err.startswith("moonferry: ") and "interrupted!" in err


def test_a_script_that_was_started_with_ctrl_c_ignored_goes_on(tmp_path):
    """As nohup does it with another signal, and a shell with what it starts in the background."""
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    child = listening(tmp_path, "print 'ready' io.stdout:flush() print(io.read())", **ignore)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate("line\n", timeout=600)
    assert (child.returncode, out, err) == (0, "line\n", "")


def test_ctrl_c_ends_a_script_at_whose_end_a_finalizer_does_not_return(tmp_path):
    endless = "function() print 'ready' io.stdout:flush() while true do end end"
    child = listening(tmp_path, f"p = newproxy(true) getmetatable(p).__gc = {endless}")
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) == -signal.SIGINT


def test_finalizers_of_a_script_that_close_tensors_at_its_end(moonferry, tmp_path):
    """LuaJIT calls the finalizers of FFI objects in any order, so that a tensor's own may come after or before."""
    closers = """
local mf, ffi = require "moonferry", require "ffi"
closers, left = {}, 200
for i = 1, left do
  local t = mf.full({ 1000 }, i)
  closers[i] = ffi.gc(ffi.new "char[1]", function()
    t:close()
    left = left - 1
    if left == 0 then print "closed" end
  end)
end
"""
    for words in (["-e", closers], [script(tmp_path, closers)]):
        done = moonferry(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


def test_what_was_printed_comes_before_the_error(moonferry):
    done = subprocess.run([MOONFERRY, "-e", "print 'first' error('then', 0)"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)  # fmt: skip
    assert done.stdout.startswith("first\nmoonferry: then\n")


def test_ctrl_c_in_python_of_a_script(tmp_path):
    """Also where Python was started by an earlier chunk."""
    (tmp_path / ".venv").symlink_to(os.path.dirname(os.path.dirname(sys.executable)))
    loop = "io.stdout:flush() py.exec [[print('in Python', flush=True)\nwhile 1: pass]]"
    words = ["-e", "py = require 'moonferry.python' print(py.None)", "-e", loop]
    child = subprocess.Popen([MOONFERRY, *words], env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert [child.stdout.readline() for _ in range(2)] == ["None\n", "in Python\n"]
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=600)
    assert child.returncode == 1 and "KeyboardInterrupt" in err


def test_a_script_with_the_name_of_a_subcommand(moonferry, tmp_path):
    script(tmp_path, "print('ran')", "check")
    assert moonferry("./check").stdout == "ran\n"
    assert moonferry("--", "check").stdout == "ran\n"


def test_a_finalizer_that_fails_does_not_take_the_errors_place(moonferry):
    code = "do local p = newproxy(true) getmetatable(p).__gc = function() error('gone', 0) end end error('why', 0)"
    done = moonferry("-e", code)
    assert (done.returncode, done.stderr.splitlines()[:2]) == (1, ["moonferry: gone", "moonferry: why"])
