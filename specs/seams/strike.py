"""Points inside of a call where something else can happen, counted, and what is to happen at one of them.

Responsible for the places: foreign code that a call runs (`point("foreign")`, which the objects of bench.py say), each
call of Python or return from it (a profile function), each collection that an allocation begins (gc.callbacks), each
instruction of interpreted Lua (a hook), each finalizer that Lua runs. Invariant: the same call has the same points
each time. Must not know which events and operations there are.
"""

import gc
import os
import sys
import threading

import moonferry as mf

KINDS = ("foreign", "call", "gc", "lua", "lua-gc")
# Lua has many instructions, each of which would be a call of Python.
EVERY_INSTRUCTION = 3
# Calls in these files are the campaign's own; foreign objects say for themselves that they are asked.
HERE = os.path.dirname(os.path.abspath(__file__))
OURS = tuple(os.path.join(HERE, name) for name in ("strike.py", "events.py", "campaign.py", "bench.py"))


class Plan:
    """Something that happens at the nth point of a kind, once."""

    def __init__(self, kind, nth, act):
        self.kind, self.nth, self.act = kind, nth, act
        self.happened = False


class Strike:
    """The points of one call, while it is a context. Points of other threads are none; nor are those inside of an
    event, but where a second event waits for one."""

    current = None

    def __init__(self, bench, kinds, plans=()):
        self.bench, self.kinds, self.plans = bench, kinds, list(plans)
        self.counts = dict.fromkeys(KINDS, 0)
        self.thread = threading.get_ident()
        self.inside = 0
        self.thresholds = None

    def __enter__(self):
        Strike.current = self
        self.in_lua(True)
        if "gc" in self.kinds:
            self.thresholds = gc.get_threshold()
            gc.callbacks.append(collecting)
            gc.set_threshold(1, 10000, 10000)
        if "call" in self.kinds:
            sys.setprofile(profile)
        return self

    def __exit__(self, *exc):
        sys.setprofile(None)
        if "gc" in self.kinds:
            gc.set_threshold(*self.thresholds)
            gc.callbacks.remove(collecting)
        Strike.current = None
        self.in_lua(False)

    def in_lua(self, on):
        """No reference to the state is kept, which may be gone when the call is over, or be closed at any time."""
        helpers = self.bench.helpers
        try:
            if helpers is not None and "lua" in self.kinds:
                helpers["hook"](EVERY_INSTRUCTION if on else 0)
            if helpers is not None and "lua-gc" in self.kinds:
                helpers["collect_always"](on)
        except RuntimeError as error:
            if "this Lua state was closed" not in str(error):
                raise

    def reach(self, kind):
        waiting = [plan for plan in self.plans if not plan.happened]
        if self.inside and not waiting:
            return
        self.counts[kind] += 1
        for plan in waiting:
            if plan.kind == kind and plan.nth == self.counts[kind]:
                plan.happened = True
                self.inside += 1
                try:
                    plan.act()
                finally:
                    self.inside -= 1
                return


def point(kind="foreign"):
    now = Strike.current
    if now is not None and kind in now.kinds and threading.get_ident() == now.thread:
        now.reach(kind)


# Errors that are texts in Lua: the bridge's own and LuaJIT's.
TEXTS = {"interrupted": mf.LuaInterrupt, "not enough memory": mf.LuaMemoryError}


def tell(error):
    """An error in a finalizer of Lua's, which nobody gets."""
    if not isinstance(error, BaseException):
        text = str(error)
        error = TEXTS.get(text, mf.LuaError)(text)
    told.append(error)


told = []


def profile(frame, event, arg):
    """What an event calls is its own business: it may have a lock of `threading`."""
    now = Strike.current
    if now is not None and not now.inside and not frame.f_code.co_filename.startswith(OURS):
        point("call")


def is_in_threading():
    """`threading` holds a lock while it makes a thread. A finalizer that makes another thread there, and waits for it,
    waits for ever."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != threading.__file__:
        frame = frame.f_back
    return frame is not None


def collecting(phase, info):
    if phase == "start" and not is_in_threading():
        point("gc")
