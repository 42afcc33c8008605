"""Programs that a seed draws, of functions that call each other: whichever of these are in Lua and whichever in Python,
a program does the same.

Responsible for drawing a program, for writing it in both languages, and for telling what it noted when it ran, each
function in the language that is asked for. A line is the same text in both; what it calls is in either_helpers.py and
either_helpers.lua, under the same names. either_hosted.lua runs this where Lua is the host. Must not know what those
do.

    MOONFERRY_PROGRAM=7 specs/run --only "seams host"     the program of seed 7
"""

import faulthandler
import functools
import gc
import itertools
import random
import sys
import textwrap
import threading
from pathlib import Path

import either_helpers

import moonferry as mf

HELPERS = Path(__file__).with_name("either_helpers.lua").read_text()
FUNCTIONS = 8
DEEPEST = 2
NO_END = 300  # seconds, each of which has room for several programs
# The values of a function are its parameters a and b and its own v0 to v2; it has two callables, two containers and two
# tensors. {x} is one of the values, {v} one that is set, {k} a small number, {f} the number of a later function.
OFTEN = 4
ARGUMENTS = "{x}, {y}, {c}, {d}, {t}"
ALONE = [
    "{v} = {literal}",
    "{v} = add({x}, {y})",
    "{v} = text({x}, {y})",
    "d1 = pair({x}, {y})",
    "{v} = item({d}, {k} % 2)",
    "put({d}, {k} % 2, {x})",
    "fail({x}, {k}, {number})",
    "collect({k} % 3)",
    "{v} = read({t}, {k} % 4)",
    "write({t}, {k} % 4, {x})",
    "t1 = seen({t}, {k} % 3)",
    "{v} = called({c}, {x})",
    "{v} = mourned({k})",
    "{v} = attribute({x})",
    "note('value', number({x}))",
    "note('same', keeps_its_error({k} % 2))",
    "{v} = deep({k} * 9)",
]
OF_ANOTHER = [
    *["{v} = F{f}(ARGUMENTS)"] * OFTEN,
    *["{v} = guarded(F{f}, ARGUMENTS)"] * (OFTEN + 1),
    *["c1 = bound(F{f}, ARGUMENTS)"] * 2,
    *["{v} = stepped(G{f}({k}, ARGUMENTS), {n})"] * 2,
    "{v} = thrown_into(H{f}({k}, ARGUMENTS), {n})",
    "{v} = sent_into(S{f}({k}, ARGUMENTS), {n})",
    "{v} = in_a_thread(F{f}, ARGUMENTS)",
    "{v} = in_a_coroutine(F{f}, ARGUMENTS)",
    "{v} = sorted_by(F{f}, ARGUMENTS)",
    "{v} = replaced_by(F{f}, ARGUMENTS)",
    "{v} = indexed(F{f}, ARGUMENTS)",
    "{v} = assigned(F{f}, ARGUMENTS)",
    "{v} = compared(F{f}, ARGUMENTS)",
    "{v} = entered(F{f}, ARGUMENTS)",
]
LITERALS = ["0", "1", "2", "3", "7", "12", "996", "'x'", "'longer'", "nothing", "yes", "no"]
BLOCKS = ["repeat", "if"]


def draw_line(rng, function, depth=0):
    """A line's text, or a block: what begins it, a number, a value's name, and its lines."""
    lines = ALONE + OF_ANOTHER if function + 1 < FUNCTIONS else ALONE
    shape = rng.choice(lines + BLOCKS if depth < DEEPEST else lines)
    value = rng.choice(["a", "b", "v0", "v1", "v2"])
    if shape in BLOCKS:
        return shape, rng.randint(2, 3), value, [draw_line(rng, function, depth + 1) for _ in range(2)]
    return shape.replace("ARGUMENTS", ARGUMENTS).format(
        v=rng.choice(["v0", "v1", "v2"]), x=value, y=rng.choice(["a", "b", "v0", "v1", "v2"]),
        c=rng.choice(["c", "c1"]), d=rng.choice(["d", "d1"]), t=rng.choice(["t", "t1"]),
        k=rng.randint(0, 4), n=rng.randint(1, 5), number=rng.randint(0, 99), literal=rng.choice(LITERALS),
        f=rng.randint(min(function + 1, FUNCTIONS - 1), FUNCTIONS - 1),
    )  # fmt: skip


def draw_program(rng):
    """The lines of each function, which calls later ones alone."""
    return [[draw_line(rng, function) for _ in range(rng.randint(2, 6))] for function in range(FUNCTIONS)]


def python_lines(lines):
    for line in lines:
        if isinstance(line, str):
            yield line
            continue
        kind, number, value, body = line
        yield f"for _ in range({number}):" if kind == "repeat" else f"if number({value}) % {number} == 0:"
        yield textwrap.indent("\n".join(python_lines(body)), "    ")


def lua_lines(lines):
    for line in lines:
        if isinstance(line, str):
            yield line
            continue
        kind, number, value, body = line
        yield f"for _ = 1, {number} do" if kind == "repeat" else f"if number({value}) % {number} == 0 then"
        yield from lua_lines(body)
        yield "end"


IN_PYTHON = """
def f{0}(a, b, c, d, t):
    if not may_go_on(): return 0
    note("f{0}", number(a), number(b))
    v0 = v1 = v2 = nothing
    c1, d1, t1 = c, d, t
{1}
    return v0
def g{0}(n, *rest): return each(f{0}, n, *rest)
def h{0}(n, *rest): return each_guarded(f{0}, n, *rest)
def s{0}(n, *rest): return each_sent(f{0}, n, *rest)
"""
IN_LUA = """
function f{0}(a, b, c, d, t)
  if not may_go_on() then return 0 end
  note("f{0}", number(a), number(b))
  local v0, v1, v2
  local c1, d1, t1 = c, d, t
{1}
  return v0
end
function g{0}(n, ...) return each(f{0}, n, ...) end
function h{0}(n, ...) return each_guarded(f{0}, n, ...) end
function s{0}(n, ...) return each_sent(f{0}, n, ...) end
"""


LOAD = """
local names, of, text = ...
local environment = setmetatable({ iterate = python.iter }, { __index = _G })
for name in python.iter(names) do
  environment[name], environment["python_" .. name] = of(name), of(name)
end
setfenv(assert(loadstring(text, "=drawn")), environment)()
return environment
"""
OPTIONS = [{}, {"interruptible": True}, {"max_memory": 20_000_000}, {"unpack_returned_tuples": True}]


class PythonHost:
    """A state that Python hosts, as the seed has it: with LuaJIT's compiler at once, or as it is."""

    def __init__(self, seed):
        state = mf.Lua(**OPTIONS[seed % len(OPTIONS)])
        if seed // len(OPTIONS) % 2:
            state.execute("require('jit.opt').start('hotloop=1', 'hotexit=1')")
        self.environment = functools.partial(state.execute, LOAD)
        self.tostring = state.globals().tostring
        self.eval = state.eval


class Written:
    """A program in both languages."""

    def __init__(self, program):
        self.python, self.lua = "", HELPERS
        for number, lines in enumerate(program):
            self.python += IN_PYTHON.format(number, textwrap.indent("\n".join(python_lines(lines)), "    "))
            self.lua += IN_LUA.format(number, "\n".join(lua_lines(lines)))

    def run(self, host, languages):
        """What it notes, with each function in the language that its letter names, P or L. ${host} makes what is Lua's:
        an environment, and in it the functions of a text."""
        helpers = either_helpers.Helpers(host)
        python = helpers.names()
        helpers.lua = lua = host.environment(list(python), python.get, self.lua)
        exec(compile(self.python, "<drawn>", "exec"), python)
        for number, language in enumerate(languages):
            for name in "fghs":
                chosen = lua[f"{name}{number}"] if language == "L" else python[f"{name}{number}"]
                python[f"{name.upper()}{number}"] = lua[f"{name.upper()}{number}"] = chosen
        either_helpers.begin(helpers, python["F0"])
        helpers.lua = None
        python.clear()  # it is in a cycle through both languages, which neither collects
        return helpers.notes


def assignments(rng, count):
    """All functions in Lua, then as the seed has them."""
    yield "L" * FUNCTIONS
    for _ in range(count - 1):
        yield "".join(rng.choice("LP") for _ in range(FUNCTIONS))


def difference(expected, notes):
    """Where they part, and what stands there; None where they are equal."""
    for at, (one, other) in enumerate(itertools.zip_longest(expected, notes)):
        if one != other:
            return f"note {at}: all in Python: {one}, here: {other}"
    return None


def at_once(runs):
    """What each of them notes, each on a thread of its own."""
    results = [None] * len(runs)

    def go(at):
        results[at] = runs[at]()

    threads = [threading.Thread(target=go, args=(at,)) for at in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def first_fault(seed, host_of=PythonHost):
    """What is wrong with the seed's program, None if nothing is: it runs with three assignments, one by one in a state
    for each, then all at once in one state, each on a thread of its own."""
    rng = random.Random(seed)
    written = Written(draw_program(rng))
    all_in_python = written.run(host_of(seed), "P" * FUNCTIONS)
    chosen = list(assignments(rng, 3))
    one_by_one = [written.run(host_of(seed), languages) for languages in chosen]
    host = host_of(seed)
    together = at_once([functools.partial(written.run, host, languages) for languages in chosen])
    for languages, notes in zip(chosen * 2, one_by_one + together):
        if wrong := difference(all_in_python, notes or []):
            return f"{languages}, {wrong}"
    return None


def main(first, count, host_of=PythonHost):
    """Prints each seed and what is wrong with its program, and how many there were. Whether anything is wrong. Ends the
    process, with each thread's stack, where a program does not end."""
    faulty = False
    gc.freeze()  # what was imported by now: a program collects hundreds of times, and need not look there each time
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        faulthandler.dump_traceback_later(NO_END, exit=True)
        fault = first_fault(seed, host_of)
        faulty = faulty or fault is not None
        if fault is not None:
            print(f'{fault}\nnot ok MOONFERRY_PROGRAM={seed} specs/run --only "seams host"', flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(f"{count} programs")
    return faulty


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
