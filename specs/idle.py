"""Whether programs wait for what never comes: none of their threads runs or wants to, for so long.

Responsible for what /proc says of a group of processes. Invariant: a machine that is busy with other work makes nobody
idle, because a thread that wants the processor is not. Must not know what the programs do.
"""

import contextlib
import time
from pathlib import Path

GONE = (FileNotFoundError, ProcessLookupError)  # between two looks


def fields(stat):
    """Of /proc's `stat` those behind the name, in which there may be anything: the state comes first."""
    return stat.read_text().rpartition(") ")[2].split()


def tasks(group):
    """The threads of all processes of a group."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(*GONE):
            if process.name.isdigit() and fields(process / "stat")[2] == str(group):
                yield from (process / "task").iterdir()


def activity(group):
    """What changes while a thread of the group runs: None if one does at this moment, or wants to."""
    ticks = {}
    for task in tasks(group):
        with contextlib.suppress(*GONE):
            state, *rest = fields(task / "stat")
            if state in "RD":
                return None
            ticks[task.name] = rest[10:12]
    return ticks


class Watch:
    """Looked at about once a second."""

    def __init__(self, group, seconds):
        self.group, self.seconds = group, seconds
        self.last, self.since = None, time.monotonic()

    def is_idle(self):
        now = activity(self.group)
        if now is None or now != self.last:
            self.last, self.since = now, time.monotonic()
        return time.monotonic() - self.since > self.seconds
