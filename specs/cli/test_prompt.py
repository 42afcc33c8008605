"""The prompt, used through a pseudo-terminal as a person uses it."""

import shutil
import subprocess
from pathlib import Path

import pytest
from programs import MOONFERRY, ROOT
from terminal import edited, plain_environment

HISTEDIT = Path("/usr/include/histedit.h")


def test_it_starts_and_ends(prompt):
    t = prompt()
    assert "LuaJIT 2.1" in t.shown
    assert t.end() == 0
    assert "Traceback" not in t.shown and "traceback" not in t.shown


@pytest.mark.parametrize(
    "typed, shown",
    [
        ("1 + 1", "2"),
        ("=1, nil, 'a'", '1\tnil\t"a"'),
        ("x = 3", ""),
        ("print('no quotes')", "no quotes"),
        ("'two\\nlines'", '"two\\nlines"'),
        ("{ 3, 2, b = { c = true }, ['d e'] = 1LL }", '{ 3, 2, b = { c = true }, ["d e"] = 1LL }'),
        ("{}", "{}"),
        ("'\\27[31m' .. 'ü字' .. '\\255\\195x'", '"\\027[31mü字\\255\\195x"'),
        ("{ [true] = 1, [2.5] = 'x', z = 2 }", '{ [2.5] = "x", z = 2, [true] = 1 }'),
        ("mf.tensor({ { 1, 2 }, { 3, 4 } }, 'int32')", "mf.tensor<int32[2,2] cpu>\n[[1, 2],\n [3, 4]]"),
        ("py.builtins", "<module 'builtins' (built-in)>"),
        ("py.builtins.Exception('why')", "Exception('why')"),
        ("py.eval('{1: (2, None)}')", "{1: (2, None)}"),
        ("setmetatable({}, { __tostring = function() error('no') end })", "<__tostring failed: stdin:1: no>"),
        ("{ py.import('numpy').eye(2) }", "{\n  array([[1., 0.],\n         [0., 1.]])\n}"),
        ("function end", "stdin:1: '<name>' expected near 'end'"),
        ("(function() end)()", ""),
    ],
)
def test_values_are_shown(prompt, typed, shown):
    t = prompt()
    said = t.line(typed)
    assert said == shown
    assert t.end() == 0


def test_large_values_are_cut(prompt):
    t = prompt()
    t.line("t = {} for i = 1, 1000 do t[i] = i end")
    assert "... (940 more)" in t.line("t")
    t.line("t = {} for i = 1, 3e5 do t['k' .. i] = i end")
    assert "... (299940 more)" in t.line("t")
    t.line("deep = { { { { { 1 } } } } }; deep.self = deep")
    said = t.line("deep")
    assert "{ ... }" in said and "again>" in said
    assert "... (6000 more bytes)" in t.line("('x'):rep(10000)")
    assert 'xé" ... (5 more bytes)' in t.line("('x'):rep(3998) .. 'é€é'")
    assert 'x" ... (4 more bytes)' in t.line("('x'):rep(3999) .. '€x'")


def test_several_lines_are_one_chunk(prompt):
    t = prompt()
    t.line("function twice(x)", prompt="\n>> ")
    t.line("  return 2 * x", prompt="\n>> ")
    t.line("end")
    assert t.line("twice(21)") == "42"
    t.line("s = [[a", prompt="\n>> ")
    t.line("b]]")
    assert t.line("s") == '"a\\nb"'


def test_what_is_local_stays(prompt):
    t = prompt()
    t.line("local a, print_count = 4, 0")
    t.line("function more() print_count = print_count + 1 return a end")
    t.line("more() more()")
    assert t.line("a, print_count, rawget(_G, 'a')") == "4\t2\tnil"
    t.line("b = 5")
    assert t.line("_G.b") == "5"


def test_errors_leave_the_prompt(prompt):
    t = prompt()
    said = t.line("error('boo')")
    assert said.startswith("stdin:1: boo\nstack traceback:\n") and "stdin:1: in main chunk" in said
    assert "unexpected symbol near '*'" in t.line("x =* 2")
    assert t.line("error({})") == "(error object is {})"
    assert "ZeroDivisionError" in t.line("py.eval('1/0')")
    assert t.line("1") == "1"


def test_what_a_failed_line_held_is_collected(prompt):
    t = prompt()
    said = t.line("do local held = newproxy(true) getmetatable(held).__gc = function() print 'gone' end error('x') end")
    assert said.startswith("gone\nstdin:1: x\n")
    assert t.end() == 0


@edited
def test_completion(prompt):
    t = prompt()
    t.type("string.for\t")
    t.expect("string.format")
    t.type("('%d', 7)\r")
    assert t.expect("\n> ") == "('%d', 7)\n\"7\""
    t.type("coroutine.\t")
    said = t.expect("wrap")
    assert "resume" in said and "status" in said
    t.expect("\n> coroutine.")
    t.type("status\x15")
    t.type("undefined_name.x\t\x15")
    t.line("field = { inner = { value_of_it = 11 } }")
    t.type("field.inn\t.val\t\r")
    assert t.expect("\n> ").endswith("\n11")
    t.type("whi\t true do break end\r")
    t.expect("while true do break end\n> ")
    t.type("mf.zer\t({ 2 }):nb\t\x15")
    t.line("local t = mf.zeros { 2 }")
    t.type("t.nby\t\r")
    t.expect("t.nbytes\n8\n> ")
    assert t.end() == 0


@edited
def test_ctrl_c_ends_a_completion_that_does_not_come_to_its_end(prompt):
    t = prompt()
    t.line("slow = setmetatable({}, { __index = function() print('look' .. 'ing') while true do end end })")
    t.type("slow.name.\t")
    t.expect("looking\n")
    t.interrupt()
    t.expect("\n> slow.name.")  # the line is still there
    t.type("\x15")
    assert t.line("5") == "5"
    t.type("4")
    t.interrupt()
    t.expect("^C\n> ")
    assert t.end() == 0


@edited
def test_completion_of_python(prompt):
    t = prompt()
    t.line("local text = py.object 'abc'")
    t.type("text:upp\t()\r")
    assert t.expect("\n> ").endswith('text:upper()\n"ABC"')
    t.line("py.exec 'class C:\\n  first_thing = second_thing = 1\\n  _hidden = 2'")
    t.line("c = py.main.C()")
    t.type("c.\t")
    assert "_hidden" not in t.expect("second_thing")
    t.type("_h\t\r")
    t.expect("c._hidden\n2\n> ")
    t.type("py.buil\t.sor\t({ 2, 1 })[0]\r")
    t.expect("py.builtins.sorted({ 2, 1 })[0]\n1\n> ")
    t.type("py.main.C.fi\t\r")
    t.expect("first_thing\n1\n> ")


@edited
def test_completion_of_modules(prompt):
    t = prompt()
    t.type("require 'moonferry.inter\t'.choose\r")
    t.expect("require 'moonferry.interpreter'.choose\nfunction")
    t.expect("\n> ")
    t.type("py.import 'collecti\t'.__name__\r")
    t.expect("py.import 'collections'.__name__\n\"collections\"\n> ")


@edited
def test_a_tab_before_any_word_is_space(prompt):
    t = prompt()
    t.type("\t7\r")
    t.expect("  7\n7\n> ")


@edited
def test_history(prompt, tmp_path):
    t = prompt()
    t.line("first = 'one'")
    t.line("second = 'two'")
    t.type("\x1b[A\x1b[A\r")
    t.expect("first = 'one'\n> ")
    assert t.end() == 0
    path = tmp_path / ".local" / "state" / "moonferry" / "history"
    assert path.read_text() == "first = 'one'\nsecond = 'two'\nfirst = 'one'\n"
    assert path.stat().st_mode & 0o777 == 0o600
    t = prompt()
    t.type("\x1b[A\x1b[A\r")
    t.expect("second = 'two'\n> ")
    t.type("\x12one")
    t.expect("first = 'one'")
    assert t.end("\r\x04") == 0


@edited
def test_where_the_history_lies(prompt, tmp_path):
    state = tmp_path / "state"
    t = prompt(XDG_STATE_HOME=str(state))
    t.line("a = 1")
    assert t.end() == 0
    assert (state / "moonferry" / "history").read_text() == "a = 1\n"
    t = prompt(MOONFERRY_HISTORY=str(tmp_path / "other"))
    t.line("b = 1")
    assert t.end() == 0
    assert (tmp_path / "other").read_text() == "b = 1\n"
    t = prompt(MOONFERRY_HISTORY="", XDG_STATE_HOME=str(tmp_path / "none"))
    t.line("c = 1")
    assert t.end() == 0
    assert not (tmp_path / "none").exists()


@edited
def test_a_long_history_is_trimmed(prompt, tmp_path):
    path = tmp_path / "long"
    path.write_text("".join(f"x = {i}\n" for i in range(2500)))
    t = prompt(MOONFERRY_HISTORY=str(path))
    t.type("\x1b[A\r")
    t.expect("x = 2499\n> ")
    assert t.end() == 0
    lines = path.read_text().splitlines()
    assert len(lines) == 1001 and lines[0] == "x = 1500"


@edited
def test_ctrl_c_clears_the_line(prompt):
    t = prompt()
    t.type("this is nothing")
    t.expect("nothing")
    t.interrupt()
    t.expect("^C\n> ")
    t.line("function f()", prompt="\n>> ")
    t.interrupt()
    t.expect("^C\n> ")
    assert t.line("2") == "2"
    assert t.end() == 0


@pytest.mark.parametrize(
    "loop",
    [
        "while true do end",
        "for i = 1, 1e18 do local x = i * 2 end",
        "local function f() return f() end f()",
        "coroutine.wrap(function() while true do end end)()",
    ],
)
def test_ctrl_c_stops_what_runs(prompt, loop):
    t = prompt()
    t.run(loop)
    t.interrupt()
    assert "interrupted!" in t.expect("\n> ")
    assert t.line("3") == "3"
    assert t.end() == 0


def test_a_second_ctrl_c_stops_what_catches_the_first(prompt):
    t = prompt()
    t.line("n = 0 function endless() print('in', n) while true do end end")
    t.type("while true do if not pcall(endless) then n = n + 1 print('got', n) end end\r")
    t.expect("\nin\t0\n")
    t.interrupt()
    t.expect("got\t1\nin\t1\n")
    t.interrupt()
    assert "interrupted!" in t.expect("\n> ")
    assert "has not stopped" not in t.shown
    assert t.line("n < 3") == "true"
    assert t.line("local n = 0 for i = 1, 1000 do n = n + 1 end print(n)") == "1000"
    t.type("pcall(endless) for i = 1, 1000 do n = n + 1 end print('went on')\r")  # the first one of this line
    t.expect("\nin\t")
    t.interrupt()
    assert t.expect("\n> ").endswith("\nwent on")


@pytest.mark.parametrize("code", ["py.exec 'print(flush=True)\\nwhile True: pass'", "py.import 'time'.sleep(100)"])
def test_ctrl_c_stops_python(prompt, code):
    t = prompt()
    t.line("py.builtins")
    t.run(code)
    if "sleep" in code:
        t.sleep()
    else:
        t.expect("\n")  # it is Python code that runs
    t.interrupt()
    assert "KeyboardInterrupt" in t.expect("\n> ")
    t.run("while true do end")
    t.interrupt()
    assert "\ninterrupted!" in t.expect("\n> ")
    assert t.end() == 0


def test_ctrl_c_and_compiled_loops(prompt):
    """With -jon the loop is machine code, which looks for nothing; the third Ctrl-C ends the program."""
    t = prompt("-jon")
    t.line("require('jit').attach(function(what) if what == 'stop' then print 'compiled' end end, 'trace')")
    t.type("while true do end\r")
    t.expect("\ncompiled\n")
    t.interrupt()
    t.expect("^C\n")  # the line feed is the handler's
    t.interrupt()
    t.expect("Ctrl-C again ends the program")
    t.interrupt()
    assert t.wait() == -2


@edited
def test_wide_characters(prompt):
    t = prompt()
    said = t.line("'Wörter 字' .. ''")
    assert said == '"Wörter 字"'
    t.type("'äö\x7f'\r")
    assert t.expect("\n> ").endswith('"ä"')


@pytest.mark.parametrize(
    "settings",
    [
        {"TERM": "dumb"},
        {"shell": "unset TERM; exec $0"},
        {"MOONFERRY_LIBEDIT": ""},
        {"MOONFERRY_LIBEDIT": "/none.so"},
        {"MOONFERRY_LIBEDIT": "libm.so.6"},
    ],
    ids=str,
)
def test_without_an_editor(prompt, settings):
    t = prompt(**settings)
    assert t.takes_lines()
    assert t.line("1 + 1") == "2"
    assert t.line("") == ""
    t.run("while true do end")
    t.interrupt()
    assert "interrupted!" in t.expect("\n> ")
    t.type("half a line")
    t.expect("half a line")
    t.interrupt()
    t.expect("\n> ")
    assert t.line("4") == "4"
    assert t.end() == 0


def test_a_prompt_whose_output_is_no_terminal(prompt):
    t = prompt(shell="$0 | cat")
    assert t.takes_lines()
    assert t.line("1 + 1") == "2"
    assert t.end() == 0


def test_after_other_things(prompt, tmp_path):
    (tmp_path / "script.lua").write_text("value = ... print('ran')")
    t = prompt("-e", "early = 1", "-i", "script.lua", "seven")
    assert "ran" in t.shown
    assert t.line("early, value, arg[1]") == '1\t"seven"\t"seven"'


def test_os_exit_at_the_prompt(prompt):
    t = prompt()
    t.type("os.exit(7)\r")
    assert t.wait() == 7


def test_input_that_is_no_terminal(tmp_path):
    env = plain_environment(tmp_path)
    done = subprocess.run([MOONFERRY, "-i"], input="1+1\nerror('x')\n2+2", env=env, capture_output=True, text=True)
    assert (done.returncode, "> 2\n" in done.stdout, "> 4\n" in done.stdout) == (0, True, True)
    assert "stdin:1: x" in done.stderr
    assert not (tmp_path / ".local").exists(), "what is piped in is no history"


def test_what_is_declared_of_libedit(tmp_path):
    if not HISTEDIT.exists():
        pytest.skip("libedit's header is not installed (Debian: libedit-dev)")
    ours = (ROOT / "bindings" / "cli" / "histedit.h").read_text()
    names = [part.split(" = ") for line in ours.splitlines() if line.startswith("enum {")
             for part in line[line.index("{") + 1 : line.index("}")].strip().split(", ")]  # fmt: skip
    assert len(names) == 16
    checks = "".join(f'_Static_assert({name} == {value}, "{name}");\n' for name, value in names)
    checks += '_Static_assert(sizeof(LineInfo) == 24 && sizeof(HistEvent) == 16, "structs");\n'
    checks += '_Static_assert(__builtin_offsetof(LineInfo, cursor) == 8, "cursor");\n'
    source = tmp_path / "check.c"
    source.write_text(f"#include <stdio.h>\n#include <histedit.h>\n{checks}")
    compiler = shutil.which("cc") or shutil.which("gcc")
    subprocess.run([compiler, "-fsyntax-only", source], check=True)


@pytest.mark.parametrize("word", ["help", "?", "help()"])
def test_help_is_there(prompt, word):
    t = prompt()
    said = t.line(word)
    assert 'py.import "numpy"' in said and "quit" in said
    assert t.line("help = 5") == "" and t.line("help") == "5"
    assert t.end() == 0


@pytest.mark.parametrize("word", ["quit", "exit", "quit()", " exit "])
def test_quit_ends_it(prompt, word):
    t = prompt()
    t.type(word + "\r")
    assert t.wait() == 0


@pytest.mark.parametrize(
    "lines, shown",
    [(["1 +", "2"], "3"), (["'a' ..", "'b'"], '"ab"'), (["not", "nil"], "true"), (["x = 1 +", "2"], "")],
)
def test_an_expression_goes_on(prompt, lines, shown):
    t = prompt()
    t.line(lines[0], prompt="\n>> ")
    assert t.line(lines[1]) == shown
    assert t.end() == 0


def test_a_traceback_has_the_users_frames_alone(prompt):
    t = prompt()
    t.line("function f(n) local a = mf.zeros(2) local v = a:get(n) return v end")
    said = t.line("local _ = f(9)")
    assert said.splitlines()[0] == "stdin:1: get: index 9 is out of range for axis 0 of extent 2"
    assert "stdin:1: in function 'f'" in said and "stdin:1: in main chunk" in said
    assert ".lua" not in said and "[C]" not in said
    assert t.line("error('x')").splitlines()[0] == "stdin:1: x"
    assert t.line("mf.zeros(2).T").startswith("stdin:1:")
    assert t.line("7 -- )") == "7" and t.line("7, 8 -- a comment") == "7\t8"
    assert t.end() == 0


@pytest.mark.parametrize(
    "typed, shown",
    [
        ("error({ a = 1 })", "(error object is { a = 1 })"),
        ("error(nil)", "(error object is nil)"),
        ("error(true)", "(error object is true)"),
    ],
)
def test_an_error_that_is_no_text_is_shown(prompt, typed, shown):
    t = prompt()
    assert t.line(typed) == shown
    assert t.end() == 0
