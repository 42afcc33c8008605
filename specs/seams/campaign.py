"""The seams' campaign: each event inside of each operation, and two events inside of one, in a process for each case.

What the seed draws of the pairs, each at one point, and some triples; one case, with the words that a failing one
prints; an hour under each host, each pair at each kind of point in each mode, then triples for the rest:

    specs/run --only "seams host"
    MOONFERRY_SEAM="python compiled Tensor.T raises call 3" specs/run --only "seams host"
    MOONFERRY_SEAMS_SECONDS=3600 specs/run --only "seams host"

Responsible for which cases there are, for one process for each of them, forked from a warm interpreter, for its verdict
and for the report. A case: the operation runs; then again with the event inside; then again, with the same objects.
Invariant: what the seed says decides all that is drawn. Must not know operations and events.
"""

import contextlib
import faulthandler
import gc
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
import bench as benches  # noqa: E402
import events  # noqa: E402
import idle  # noqa: E402
import operations  # noqa: E402
import strike  # noqa: E402

# A case takes milliseconds of the processor. The clock's limit is for a machine that is busy with other work; what none
# of its threads wants the processor for waits for what never comes.
CPU_SECONDS_OF_A_CASE = 20
IDLE_SECONDS_OF_A_CASE = 15
SECONDS_OF_A_CASE = 300
# As many as make test has time for: half a minute of the processor under each host.
PAIRS = 600
TRIPLES = 60
# More failures than this say nothing new, and each may take its whole time.
MOST_FAILURES = 40
# Of an operation of Lua's, so that it is compiled.
TURNS = {"compiled": 8, "interpreted": 1, "interruptible": 1}


LIMITS = {"the_state_reaches_its_limit", "the_state_comes_near_its_limit"}


def known(event, kind, name, mode, in_lua, several):
    """Why this is left out: what is known to go wrong, and is not right yet, or what is refused; or None. Of several
    events, one may make another raise what that only allows, or miss what it has taken."""
    if event.name == "interrupts" and kind == "lua-gc" and mode == "compiled":
        return "an interrupt that takes effect in a finalizer at the exit of compiled code crashes LuaJIT 2.1.0-beta3"
    raises = event.raises is not None or event.name == "interrupts" or (several and (event.allows or event.takes))
    if name in operations.OWE and (raises or event.name in LIMITS):
        return "an error between two calls loses a struct that is nobody's yet, as it may"
    ends = name in ("LuaThread-throw", "LuaThread-close", "LuaThread-delegated")
    if ends and kind == "lua" and event.name == "repeats_the_operation":
        return "inside of a debug hook the end of a coroutine is refused, as test_lua_coroutine has it"
    if (in_lua or name in operations.LUA_HAS_TENSORS) and kind == "lua" and raises:
        return "an error of a program's own debug hook, inside of the library where a new tensor is nobody's yet"
    return None


class Case:
    """`strikes`: (event, kind of point, which of them) each."""

    def __init__(self, host, mode, operation, strikes):
        self.host, self.mode, self.operation, self.strikes = host, mode, operation, strikes

    @classmethod
    def of(cls, text):
        host, mode, operation, *rest = text.split()
        return cls(host, mode, operation, [(rest[i], rest[i + 1], int(rest[i + 2])) for i in range(0, len(rest), 3)])

    def __str__(self):
        return " ".join([self.host, self.mode, self.operation, *(str(word) for s in self.strikes for word in s)])


# In the process of the case


def plain(value):
    """Something to compare; tensors by their elements."""
    if hasattr(value, "__dlpack__") and hasattr(value, "shape"):
        value = value.to("cpu") if hasattr(value, "to") else value
        return [list(value.shape), value.tolist()]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (int, float, str, bytes, bool, complex, type(None))):
        return value
    return type(value).__name__


def perform(b, name):
    if name in operations.PYTHON_ON_DEVICE:
        return plain(operations.PYTHON_ON_DEVICE[name](b))
    return plain(b.helpers["run"](name, TURNS[b.mode]))


def empty(value):
    """Whether it is made of nothing."""
    return all(map(empty, value)) if isinstance(value, (list, tuple)) else value in (None, "None")


def chain(error):
    """The error and what it came from."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        value = getattr(error, "value", None)
        error = value if isinstance(value, BaseException) else error.__cause__ or error.__context__
    return seen


def is_one_of(error, allowed):
    """Whether the error is of one of these types, or has one of these texts."""
    return any(what in str(error) if isinstance(what, str) else isinstance(error, what) for what in allowed)


class Trial:
    """One case, run; `fault` says what was wrong."""

    def __init__(self, b, case):
        self.b, self.case = b, case
        self.events = [events.EVENTS[name] for name, _, _ in case.strikes]
        self.unraisable = []
        self.fault = None
        b.operation = lambda b: perform(b, case.operation)

    def hear(self, told):
        self.unraisable.append(told.exc_value if told.exc_value is not None else told.exc_type())

    def run(self):
        sys.unraisablehook = self.hear
        self.b.open()
        expected = perform(self.b, self.case.operation)
        perform(self.b, self.case.operation)
        gc.collect()
        plans = [
            strike.Plan(kind, n, lambda e=e: self.act(e)) for e, (_, kind, n) in zip(self.events, self.case.strikes)
        ]
        self.attempt(expected, plans)
        for e in self.events:
            if e.after is not None:
                e.after(self.b)
        if any(e.takes for e in self.events):
            self.b.mend()
        again = perform(self.b, self.case.operation)
        if again != expected:
            self.fault = f"done again it gives {again!r}, not {expected!r}"
        return [plan.happened for plan in plans]

    def act(self, e):
        """Beside another event, one may find that what it wanted to use is gone or fails, too."""
        try:
            e.act(self.b)
        except (AssertionError, AttributeError, TypeError) as error:
            if len(self.events) == 1:
                self.fault = f"the event failed\n{''.join(traceback.format_exception(error))}"

    def attempt(self, expected, plans):
        got = error = None
        try:
            with strike.Strike(self.b, {kind for _, kind, _ in self.case.strikes}, plans):
                got = perform(self.b, self.case.operation)
        except BaseException as raised:
            error = raised
        happened = [e for e, plan in zip(self.events, plans) if plan.happened]
        self.unraisable += strike.told
        strike.told.clear()
        self.judge(expected, got, error, happened)
        if error is not None:
            traceback.clear_frames(error.__traceback__)
        self.unraisable.clear()

    def judge(self, expected, got, error, happened):
        catches = self.case.operation in operations.CATCHES
        asks = self.case.operation in operations.ASK_WHETHER and any(e.takes for e in happened)
        wanted = [e.raises for e in happened if e.raises is not None]
        allowed = tuple(wanted) + sum((tuple(e.allows) for e in happened), ())
        come = ([] if error is None else chain(error)) + [x for told in self.unraisable for x in chain(told)]
        # The operation may have been about to look for what was taken, and finds None.
        takes = any(e.takes for e in happened)
        gone = takes and any(isinstance(x, TypeError) or "NoneType" in str(x) or " nil" in str(x) for x in come)
        if error is not None and not gone and not any(is_one_of(x, allowed) for x in chain(error)):
            self.fault = f"it raises {error!r}\n{''.join(traceback.format_exception(error))}"
        for told in self.unraisable:
            if not gone and not any(is_one_of(x, allowed) for x in chain(told)):
                self.fault = f"unraisable: {told!r}\n{''.join(traceback.format_exception(told))}"
        for kind in wanted:
            if not catches and len(happened) == 1 and not any(isinstance(x, kind) for x in come):
                self.fault = f"the {kind.__name__} that was raised is lost; it gives {got!r}, {error!r}"
        free = any(e.changes for e in happened) or asks or (catches and allowed) or (takes and empty(got))
        if error is None and got != expected and not free:
            self.fault = f"it gives {got!r}, not {expected!r}"


def run_trial(b, case):
    trial = Trial(b, case)
    happened = trial.run()
    device = b.device
    trial.b = None
    fault, trial = trial.fault, None
    return fault or b.close() or findings(device), happened


def count_points(b, operation, kinds):
    """How many points of each kind an operation has."""
    b.open()
    for _ in range(2):
        perform(b, operation)
    counts = {}
    for kind in kinds:
        gc.collect()
        with strike.Strike(b, {kind}) as s:
            perform(b, operation)
        counts[kind] = s.counts[kind]
    return counts


def findings(device):
    """What the simulated driver has to say."""
    if device == "cpu":
        return ""
    from driver_abi import Driver

    return "\n".join(Driver(device.partition(":")[0]).findings())


# The processes


def status_of(pid):
    """With which the process ends, which is made to end where it idles."""
    process, watch = os.pidfd_open(pid), idle.Watch(pid, IDLE_SECONDS_OF_A_CASE)
    while not select.select([process], [], [], 1)[0]:
        if watch.is_idle():
            os.kill(pid, signal.SIGALRM)
    os.close(process)
    return os.waitpid(pid, 0)[1]


class Pool:
    """Forks a process for each case, one after the other."""

    def __init__(self, make):
        self.benches = {}
        self.make = make
        self.said = tempfile.TemporaryFile()

    def bench(self, mode):
        """Made before the fork, so that each case need not; a host has one state, and it is made anew."""
        if mode not in self.benches:
            self.benches[mode] = self.make(mode)
        return self.benches[mode]

    def within(self, mode, function):
        """What the function of a bench gave in a process of its own, or {"fault": text}."""
        b = self.bench(mode)
        reader, writer = os.pipe()
        self.said.seek(0)
        self.said.truncate()
        pid = os.fork()
        if pid == 0:
            self.child(b, function, writer)
        os.close(writer)
        status = status_of(pid)
        with contextlib.suppress(ProcessLookupError):  # what it forked itself and did not wait for
            os.killpg(pid, signal.SIGKILL)
        with os.fdopen(reader, "rb") as pipe:
            told = pipe.read()

        if status == 0 and told:
            return json.loads(told)
        self.said.seek(0)
        late = status in (signal.SIGALRM, signal.SIGPROF)
        how = "it ran too long" if late else f"it ended with status {status:#x}"
        return {"fault": f"{how}\n{self.said.read()[-6000:].decode(errors='replace')}"}

    def child(self, b, function, writer):
        status = 1
        os.setpgid(0, 0)
        try:
            for number in (1, 2):
                os.dup2(self.said.fileno(), number)
            faulthandler.enable(self.said, all_threads=True)
            for number in (signal.SIGALRM, signal.SIGPROF):
                signal.signal(number, signal.SIG_DFL)
                faulthandler.register(number, self.said, all_threads=True, chain=True)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.alarm(SECONDS_OF_A_CASE)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_OF_A_CASE)
            benches.Bench.only(b)
            os.write(writer, json.dumps(function(b)).encode())
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)


class Campaign:
    def __init__(self, host, make):
        self.host, self.pool = host, Pool(make)
        self.seed = os.environ.get("MOONFERRY_SPEC_SEED", "0")
        self.device = make.device
        self.in_lua = list(self.pool.bench("interpreted").helpers["names"]())
        self.names = self.choose()
        self.counted = {}
        self.tally = Counter()
        self.failed = []
        self.left_out = Counter()

    def choose(self):
        """All of them under Python and without a driver; under Lua those that have to do with Lua, and on a driver
        those that have to do with it."""
        if self.device != "cpu":
            in_python = operations.TENSORS | operations.DEVICE
            in_lua = [name for name in self.in_lua if name[:3] != "py." or name in operations.TENSORS_IN_LUA]
            return sorted(in_python) + in_lua
        return sorted(operations.LUA if self.host == "lua" else operations.PYTHON) + self.in_lua

    def kinds(self, mode):
        return [kind for kind in strike.KINDS if kind != "lua" or mode == "interpreted"]

    def modes(self, name):
        modes = benches.MODES if self.host == "python" else benches.MODES[:2]
        return modes if name in self.in_lua or operations.uses_lua(name) else modes[:1]

    def points(self, mode, name):
        """How many points of each kind; those with none are left out."""
        if (mode, name) not in self.counted:
            told = self.pool.within(mode, lambda b: count_points(b, name, self.kinds(mode)))
            if "fault" in told:
                self.fail(f"{self.host} {mode} {name}", told["fault"])
                told = {}
            self.counted[mode, name] = {kind: count for kind, count in told.items() if count}
        return self.counted[mode, name]

    def fail(self, case, text):
        self.failed.append(str(case))
        print(f'not ok MOONFERRY_SEAM="{case}" specs/run --only "{suite()}"', flush=True)
        print("".join(f"  {line}\n" for line in text.strip().splitlines()), end="", flush=True)

    def run(self, case):
        def trial(b):
            fault, happened = run_trial(b, case)
            return {"fault": fault, "happened": happened} if fault else {"happened": happened}

        told = self.pool.within(case.mode, trial)
        self.tally["cases"] += 1
        if "happened" in told and not all(told["happened"]):
            self.tally["not reached"] += 1
        if told.get("fault"):
            self.fail(case, told["fault"])

    def draw(self, what):
        return random.Random(f"{self.seed} {self.host} {self.device} {what}")

    def is_known(self, strikes, name, mode):
        """Each event is asked about each kind, because one may strike inside of another."""
        kinds, facts = [kind for _, kind, _ in strikes], (name, mode, name in self.in_lua, len(strikes) > 1)
        why = {known(events.EVENTS[e], kind, *facts) for e, _, _ in strikes for kind in kinds} - {None}
        self.left_out.update(why)
        return bool(why)

    def places(self, name, event):
        """Where an event can strike an operation: each mode and kind of point."""
        return [
            (mode, kind)
            for mode in self.modes(name)
            if event.applies(self.pool.bench(mode))
            for kind in self.points(mode, name)
            if not self.is_known([(event.name, kind, 0)], name, mode)
        ]

    def strike(self, name, event, rnd, mode, kind):
        n = rnd.randint(1, self.points(mode, name)[kind])
        self.run(Case(self.host, mode, name, [(event.name, kind, n)]))

    def shuffled(self):
        """Each operation with each event."""
        every = [(name, event) for name in self.names for event in events.EVENTS.values()]
        self.draw("pairs").shuffle(every)
        return every

    def some_pairs(self, count):
        """So many of the pairs, each at one point."""
        for name, event in self.shuffled():
            if self.tally["pairs"] == count or self.is_enough():
                break
            rnd = self.draw(f"{name} {event.name}")
            if places := self.places(name, event):
                self.strike(name, event, rnd, *rnd.choice(places))
                self.tally["pairs"] += 1

    def all_pairs(self, until):
        """Each pair at each kind of point in each mode, as far as the time goes."""
        every = self.shuffled()
        for number, (name, event) in enumerate(every):
            if time.monotonic() > until or self.is_enough():
                print(f"only {number} of {len(every)} pairs: there was no time for more", flush=True)
                break
            rnd = self.draw(f"{name} {event.name}")
            for mode, kind in self.places(name, event):
                self.strike(name, event, rnd, mode, kind)
            self.tally["pairs"] += 1

    def triples(self, count, until):
        """Two events in one operation, drawn, so many and until then."""
        rnd = self.draw("triples")
        while (self.tally["triples"] < count or time.monotonic() < until) and not self.is_enough():
            name = rnd.choice(self.names)
            mode = rnd.choice(self.modes(name))
            points = self.points(mode, name)
            able = [e.name for e in events.EVENTS.values() if e.applies(self.pool.bench(mode))]
            if not points:
                continue
            strikes = []
            for event in rnd.sample(able, 2):
                kind = rnd.choice(list(points))
                strikes.append((event, kind, rnd.randint(1, points[kind])))
            if self.is_known(strikes, name, mode):
                continue
            self.run(Case(self.host, mode, name, strikes))
            self.tally["triples"] += 1

    def is_enough(self):
        return len(self.failed) >= MOST_FAILURES

    def report(self):
        counts = ", ".join(f"{count} {what}" for what, count in self.tally.items())
        print(f"seams {self.host} {self.device}: seed {self.seed}; {len(self.names)} operations, "
              f"{len(events.EVENTS)} events; {counts}; {len(self.failed)} failed", flush=True)  # fmt: skip
        for why, count in self.left_out.items():
            print(f"  left out {count} times: {why}", flush=True)
        return 1 if self.failed else 0


def suite():
    return {"cuda": "seams cuda", "rocm": "seams rocm"}.get(os.environ.get("MOONFERRY_SPEC_DEVICE"), "seams host")


def main(host, hosted=None):
    """hosted: helpers and operations of the Lua state that hosts this Python."""
    kind = os.environ.get("MOONFERRY_SPEC_DEVICE")
    device = f"{kind}:0" if kind else "cpu"

    def make(mode):
        return benches.Bench(mode, device, hosted)

    make.device = device
    if kind:
        import driver_abi  # noqa: F401  once, and not in each case
    gc.collect()
    gc.freeze()
    campaign = Campaign(host, make)
    if chosen := os.environ.get("MOONFERRY_SEAM"):
        if chosen.split()[0] == host:
            campaign.run(Case.of(chosen))
        return campaign.report()
    seconds = float(os.environ.get("MOONFERRY_SEAMS_SECONDS") or 0)
    until = time.monotonic() + seconds
    if seconds:
        campaign.all_pairs(until)
    else:
        campaign.some_pairs(PAIRS)
    campaign.triples(TRIPLES, until)
    return campaign.report()


if __name__ == "__main__":
    sys.exit(main("python"))
