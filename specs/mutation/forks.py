"""A pytest plugin: pytest collects its specs once and runs some of them for each mutant, in a child of its own.

Responsible for: a process that has imported whatever the specs import, and forks for each mutant that it is asked
about. The child chooses the mutant (schemata.py reads MUTANT again after a fork), runs the specs, tells what it does
and ends as pytest does. Invariant: the process that forks has one thread, and runs no spec.
Must not know: which mutants and specs there are, how long one may take, or what is made of the answers.
"""

import gc
import mmap
import os
import time
from multiprocessing.connection import Connection

import numpy  # noqa: F401
import pytest
import torch  # noqa: F401
import tvm_ffi  # noqa: F401

import moonferry.luajit  # noqa: F401

from . import schemata

judge = Connection(int(os.environ["MUTANT_JUDGE"]))
with open(os.environ["MUTANT_REACHED"], "r+b") as file:
    marks = mmap.mmap(file.fileno(), schemata.MARKS_NBYTES)
reached_by_import = bytes(marks)


class Telling:
    """Tells when each spec begins, and what it has reached when it and its fixtures are through."""

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        marks[:] = bytes(len(marks))
        judge.send(("begins", item.nodeid))
        began = time.monotonic()
        yield
        gc.collect()  # what it has dropped ends here, not in the next one
        judge.send(("reached", item.nodeid, time.monotonic() - began, bytes(marks)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    items = {item.nodeid: item for item in session.items}
    gc.collect()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a process that forks has one thread"
    judge.send((list(items), reached_by_import))
    while True:
        try:
            number, wanted = judge.recv()
        except EOFError:
            return True
        os.environ["MUTANT"] = str(number)
        child = os.fork()
        if child == 0:
            os.setsid()
            session.items[:] = [items[name] for name in wanted]
            session.config.pluginmanager.register(Telling())
            return None
        judge.send(("child", child))
        _, status = os.waitpid(child, 0)
        judge.send(("ended", os.waitstatus_to_exitcode(status)))
