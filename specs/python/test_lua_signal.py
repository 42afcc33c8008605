"""Signals whose handlers raise, while a script runs: where the exception comes, and with which contexts."""

import ctypes
import gc
import signal
import sys
import weakref

import pytest

import moonferry


class Struck(Exception):
    """What a signal's handler raises."""


@pytest.fixture
def strike():
    """A function that raises a signal on this thread, and no Python code runs after it."""

    def fail():
        raise Struck

    def begin(action=fail):
        signal.signal(signal.SIGUSR1, lambda *which: action())
        return ctypes.CDLL(None)["raise"]

    before = signal.getsignal(signal.SIGUSR1)
    yield begin
    signal.signal(signal.SIGUSR1, before)


# What is ready before the signal comes, and what calls Python after it: C code of Python's alone, which looks for none.
CALLS = {
    "a call": ("", "python.builtins.abs(1)"),
    "a call with arguments in a table": ("local f, args = python.builtins.abs, python.args{1}", "f(args)"),
    "the arguments": ("", "python.args{1}"),
    "an item": ("", "local x = list[0]"),
    "setting an item": ("", "list[0] = 5"),
    "an attribute": ("", "local x = one.real"),
    "an attribute whose name is known": ("local x = one.real", "x = one.real"),
    "a length": ("", "local x = #list"),
    "an operator": ("", "local x = one + 1"),
    "a loop": ("", "python.iter(list)"),
    "a step of a loop": ("local step, iterator = python.iter(list)", "step(iterator)"),
    "a step of a loop that counts": ("local step, iterator, at = python.enumerate(list)", "step(iterator, at)"),
    "a view": ("", "python.as_attrgetter(list)"),
}


@pytest.mark.parametrize("interruptible", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_signal_is_an_error_of_the_next_call_of_python(strike, name, interruptible):
    ready, call = CALLS[name]
    items = [1]
    with moonferry.Lua(interruptible=interruptible) as lua:
        lua.globals().came = "early"
        code = f"local strike, list, one = ... {ready} strike({int(signal.SIGUSR1)}) {call} came = 'late'"
        with pytest.raises(Struck):
            lua.execute(code, strike(), items, 1j)
        assert (lua.globals().came, items) == ("early", [1])


def test_a_script_that_catches_what_a_signal_raised_goes_on(strike):
    with moonferry.Lua() as lua:
        code = "local strike, number = ... strike(number) return pcall(python.args, {1}), #python.builtins.list{1}"
        assert lua.execute(code, strike(), int(signal.SIGUSR1)) == (False, 1)


def late(strike, action, error):
    """What py.with raises where a signal comes after the body's last call, and the body fails then."""
    with moonferry.Lua() as lua, pytest.raises((Struck, ValueError)) as raised:
        code = (
            "local strike, number, e = ... local py = require 'moonferry.python' "
            "py.with(py.import 'threading'.Lock(), function() strike(number) error(e, 0) end)"
        )
        lua.execute(code, strike(action), int(signal.SIGUSR1), error)
    return raised.value


def handled(call, *arguments):
    """What a call raises around which an exception is handled."""
    try:
        raise KeyError("handled")
    except KeyError as error:
        return call(*arguments, error)


def contexts(error):
    """The names of an exception's type and of its contexts'; 9 of a ring."""
    names = []
    while error is not None and len(names) < 9:
        names.append(type(error).__name__)
        error = error.__context__
    return " ".join(names)


def caught():
    """A handler of a signal that fails after another failure."""
    try:
        raise OSError
    finally:
        raise Struck


def fails_with(error):
    def action():
        raise error

    return action


def test_the_error_of_a_body_stays_among_the_contexts_of_what_a_signal_raised(strike):
    assert contexts(late(strike, fails_with(Struck()), ValueError())) == "Struck ValueError"
    assert contexts(late(strike, caught, ValueError())) == "Struck OSError ValueError"
    within = ValueError()
    within.__context__ = IndexError()
    assert contexts(late(strike, caught, within)) == "Struck OSError ValueError IndexError"
    assert handled(lambda _: contexts(late(strike, fails_with(Struck()), ValueError()))) == "Struck ValueError KeyError"
    assert handled(lambda _: contexts(late(strike, caught, ValueError()))) == "Struck OSError ValueError KeyError"


def test_contexts_that_are_there_already_become_no_ring(strike):
    error, struck, first, second = ValueError(), Struck(), Struck(), OSError()
    assert contexts(late(strike, fails_with(error), error)) == "ValueError"
    assert handled(lambda e: contexts(late(strike, fails_with(Struck()), e))) == "Struck KeyError"
    error.__context__ = struck
    assert contexts(late(strike, fails_with(struck), error)) == "Struck"
    first.__context__, second.__context__ = second, first
    assert contexts(late(strike, fails_with(first), error)) == "Struck" + " OSError Struck" * 4
    first.__context__ = None


def test_contexts_go_with_their_exceptions(strike):
    made = []

    class Watched(ValueError):
        def __init__(self):
            made.append(weakref.ref(self))

    def fail():
        within, struck = Watched(), Watched()
        within.__context__ = Watched()
        late(strike, fails_with(struck), within)
        strike()  # its handler has the exception no more

    try:
        raise Watched
    except Watched:
        fail()
    gc.collect()
    assert [ref() for ref in made] == [None] * 4


def test_a_context_is_held_once(strike):
    error = ValueError()
    before = sys.getrefcount(error)
    raised = late(strike, fails_with(Struck()), error).with_traceback(None)
    gc.collect()
    assert raised.__context__ is error
    assert sys.getrefcount(error) == before + 1
