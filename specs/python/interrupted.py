"""Ctrl-C at each place of a call where CPython looks for signals, in Moonferry's own Python code: behind each call, at
the beginning of each function and at the end of each turn of a loop.

Invariant: an exception comes at one place only in each call. Must not know what is called.
"""

import dis
import functools
import sys
from pathlib import Path

import moonferry as mf

OURS = str(Path(mf.__file__).parent)
# So many calls in a row go without an interrupt at the end: CPython 3.12 and later do not tell of a function's
# instructions in the first call with a trace function, and 3.13 in some calls after an exception.
QUIET = 3


@functools.cache
def places_of(code):
    """The offsets of its instructions before which signals are looked for: of the first one, too, by a CPython before
    3.11, whose functions do not begin with RESUME."""
    found, before = set(), "" if "RESUME" in dis.opmap else "RESUME"
    for instruction in dis.get_instructions(code):
        if before.startswith(("CALL", "RESUME")) or instruction.opname.startswith(("JUMP_BACKWARD", "JUMP_ABSOLUTE")):
            found.add(instruction.offset)
        before = instruction.opname
    return found


class Interrupt:
    """A trace function. `place`: where it has interrupted, which joins those that have `been` struck."""

    def __init__(self, been):
        self.been, self.place = been, None

    def enter(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes = True
        return self.step

    def step(self, frame, event, arg):
        code, caller = frame.f_code, frame.f_back
        called_from = caller and (caller.f_code, caller.f_lasti)
        place = (code.co_filename, code.co_name, frame.f_lineno, frame.f_lasti, called_from)
        if frame.f_lineno is None:  # a generator is being dropped: CPython prints the exception, and the call goes on
            return self.step
        if event == "opcode" and self.place is None and place not in self.been and frame.f_lasti in places_of(code):
            self.been.add(place)
            self.place = place[:4]
            sys.settrace(None)
            raise KeyboardInterrupt
        return self.step


def at_each_place(call):
    """Calls it again and again, until it has been interrupted everywhere; after each time it gives the place."""
    been, quiet = set(), 0
    while quiet < QUIET:
        interrupt = Interrupt(been)
        sys.settrace(interrupt.enter)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        quiet = quiet + 1 if interrupt.place is None else 0
        if interrupt.place is not None:
            yield interrupt.place
