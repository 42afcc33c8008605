"""Errors of Lua that are pickled and copied."""

import copy
import pickle
import subprocess
import sys
import threading

import pytest

import moonferry as mf

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


class More(mf.LuaError):
    def __init__(self, text, code):
        super().__init__(text, code)
        self.code = code


class Own(mf.LuaError):
    """Is made of something else than its text."""

    def __init__(self, code):
        super().__init__(f"error {code}")
        self.code = code

    def __reduce__(self):
        return Own, (self.code,)


class Constant(mf.LuaError):
    def __reduce__(self):
        return "CONSTANT"


class Mixed(mf.LuaError, OSError):
    pass


CONSTANT = Constant("the only one")


def caught(lua, code, *arguments):
    with pytest.raises(mf.LuaError) as error:
        lua.execute(code, *arguments, name="=chunk")
    return error.value


def parts(error):
    return type(error), error.args, str(error), error.message, error.traceback


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("value", ["text", "'\\255'", "42", "2.5", "true", "nil", "1LL"])
def test_a_pickle_has_text_stack_and_value(lua, value, protocol):
    error = caught(lua, "local function inner() error('text') end inner()" if value == "text" else f"error({value})")
    back = pickle.loads(pickle.dumps(error, protocol))
    assert parts(back) == parts(error)
    assert (type(back.value), back.value) == (type(error.value), error.value)
    assert back._state is None
    assert "stack traceback:" in back.traceback


@pytest.mark.parametrize("value", ["{code = 7}", "print", "io.stdout", "coroutine.create(print)"])
def test_a_value_that_is_luas_stays_behind(lua, value):
    error = caught(lua, f"value = {value} error(value)")
    assert error.value == lua.globals().value
    back = pickle.loads(pickle.dumps(error))
    assert parts(back) == parts(error)
    assert back.value is None
    assert error.value == lua.globals().value


def test_an_object_that_was_thrown_goes_along(lua):
    error = caught(lua, "error(...)", [1, "two"])
    assert pickle.loads(pickle.dumps(error)).value == [1, "two"]


def test_every_kind_stays_what_it_is(lua):
    with pytest.raises(mf.LuaSyntaxError) as syntax:
        lua.execute("x =")
    kinds = [syntax.value, caught(lua, "error('not enough memory', 0)"), mf.LuaError("a", 1), mf.LuaInterrupt("b")]
    assert [type(one) for one in kinds] == [mf.LuaSyntaxError, mf.LuaMemoryError, mf.LuaError, mf.LuaInterrupt]
    for error in kinds:
        for back in pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error):
            assert (type(back), back.args, str(back)) == (type(error), error.args, str(error))
            assert back is not error


def test_subclasses_of_a_program(lua):
    table = lua.table(1)
    for error in More("text", 3), Own(4):
        error.value = table
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), back.args, back.code, back.value) == (type(error), error.args, error.code, None)
        for back in copy.copy(error), copy.deepcopy(error):
            assert (type(back), back.args, back.code) == (type(error), error.args, error.code)
            assert back.value is table
    for back in pickle.loads(pickle.dumps(CONSTANT)), copy.copy(CONSTANT), copy.deepcopy(CONSTANT):
        assert back is CONSTANT


def test_the_other_bases_of_a_subclass_have_their_part():
    error = Mixed(2, "no such file", "name")
    error.note = "kept"
    for back in pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error):
        assert (type(back), back.errno, back.filename, back.note) == (Mixed, 2, "name", "kept")


def test_notes_and_attributes_go_along(lua):
    error = caught(lua, "error({})")
    error.__notes__ = ["a note"]
    error.mine = {"list": [1]}
    back = pickle.loads(pickle.dumps(error))
    assert (back.__notes__, back.mine) == (["a note"], {"list": [1]})
    shallow = copy.copy(error)
    assert shallow.__notes__ is error.__notes__ and shallow.mine is error.mine
    deep = copy.deepcopy(error)
    assert (deep.__notes__, deep.mine) == (["a note"], {"list": [1]})
    assert deep.__notes__ is not error.__notes__ and deep.mine["list"] is not error.mine["list"]


def test_an_attribute_that_cannot_be_pickled_says_so(lua):
    error = caught(lua, "error({})")
    error.mine = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        pickle.dumps(error)
    with pytest.raises(TypeError, match="lock"):
        copy.deepcopy(error)
    assert copy.copy(error).mine is error.mine
    error.mine = lua.table()
    with pytest.raises(TypeError, match="LuaTable"):
        pickle.dumps(error)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("value", ["{}", "print"])
def test_a_copy_is_the_same_error_in_its_state(lua, value, copied):
    error = copied(caught(lua, f"value = {value} error(value, 0)"))

    def throw():
        raise error

    code = "local ok, thrown = pcall(...) return ok, thrown == value"
    assert lua.execute(code, throw) == (False, True)


def test_a_pickled_error_that_was_a_value_of_luas_is_an_exception_there(lua):
    error = pickle.loads(pickle.dumps(caught(lua, "error({})")))

    def throw():
        raise error

    assert lua.execute("return pcall(...)", throw) == (False, error)
    with pytest.raises(mf.LuaError) as again:
        lua.eval("(...)()", throw)
    assert again.value is error


def test_a_deep_copy_copies_a_value_of_pythons_and_keeps_cycles(lua):
    error = caught(lua, "error(...)", [1])
    error.itself = [error]
    deep = copy.deepcopy(error)
    assert deep.value == [1] and deep.value is not error.value
    assert deep.itself[0] is deep
    both = copy.deepcopy([error, error])
    assert both[0] is both[1] and both[0] is not error
    assert copy.copy(error).value is error.value
    assert pickle.loads(pickle.dumps(error)).itself[0].value == [1]


def test_what_was_copied_keeps_nothing_alive():
    lua = mf.Lua()
    error = caught(lua, "error({})")
    copies = [copy.copy(error), copy.deepcopy(error)]
    lua.close()
    for one in copies:
        assert parts(one) == parts(error) and one.value is error.value
    assert pickle.loads(pickle.dumps(copies[0])).value is None


WORKER = """
import concurrent.futures, multiprocessing, sys
import moonferry as mf

def work(code):
    mf.Lua().execute(code, name="=work")

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        for code in "error('bad', 0)", "error({code = 7})", "error(42, 0)", "x =", "error('not enough memory', 0)":
            error = pool.submit(work, code).exception(100)
            print(type(error).__name__, error.message, error.value, error.traceback is not None, sep=";")
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_errors_of_a_worker_process_arrive(tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(WORKER)
    told = subprocess.run([sys.executable, program, method], capture_output=True, text=True, timeout=120)
    syntax = "work:1: unexpected symbol near '<eof>'"
    assert told.stdout.splitlines() == [
        "LuaError;bad;bad;True",
        "LuaError;the error object is a Lua table;None;True",
        "LuaError;42;42;True",
        f"LuaSyntaxError;{syntax};{syntax};False",
        "LuaMemoryError;not enough memory;not enough memory;False",
    ], told.stderr
    assert (told.returncode, told.stderr) == (0, "")
