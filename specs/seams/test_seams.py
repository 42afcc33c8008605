"""Something happens inside of a call, in Python and in Lua, under either host: campaign.py's cases, with no failure.
And programs of both languages, which are the same in either: either_language.py's.

The driver is that of MOONFERRY_SPEC_DEVICE, none without it. How many cases there were is printed.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
HOSTS = {"python": [sys.executable, HERE / "campaign.py"], "lua": ["luajit", HERE / "hosted.lua"]}
# A program of Lua's and its arguments, in a state that Python hosts.
IN_PYTHON = """
import sys, moonferry
lua = moonferry.Lua(c_modules=True)
lua.execute("arg = { [0] = ..., select(2, ...) }", *sys.argv[1:])
lua.execute(open(sys.argv[1]).read())
"""
PROGRAMS = {"python": [sys.executable, "-c", IN_PYTHON], "lua": ["luajit"]}
EITHER = {"python": [sys.executable, HERE / "either_language.py"], "lua": ["luajit", HERE / "either_hosted.lua"]}
CROWD = {"python": [sys.executable, HERE / "crowd.py"], "lua": ["luajit", HERE / "crowd_hosted.lua"]}
DEVICE = os.environ.get("MOONFERRY_SPEC_DEVICE")
CHOSEN = os.environ.get("MOONFERRY_SEAM", "").split()[:1] or HOSTS
SECONDS = 1800 + 3 * float(os.environ.get("MOONFERRY_SEAMS_SECONDS") or 0)


def run(command, **more):
    folders = [os.environ["PYTHONPATH"], HERE, HERE.parent / "python", HERE.parent / "python" / "gpu"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONHASHSEED": "0", **more}
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS
    )
    print(done.stdout)
    return done


def said_by(host, program, *arguments):
    done = run([*PROGRAMS[host], HERE / program, f"{DEVICE}:0" if DEVICE else "cpu", *arguments])
    return done.returncode, [line for line in done.stdout.splitlines() if not line.startswith("sim: ")]


def test_every_public_name_has_an_operation():
    """Those of Python and of Lua; what none stands for is told in operations.py and operations.lua."""
    program = "import bench, operations; b = bench.Bench('compiled', 'cpu')\n"
    program += "print(sorted(operations.without_operation()), sorted(b.helpers.without_operation()))"
    assert run([sys.executable, "-c", program]).stdout == "[] []\n"


@pytest.mark.parametrize("host", CHOSEN)
def test_whatever_happens_inside_of_a_call(host):
    done = run(HOSTS[host])
    assert done.returncode == 0, done.stdout[-20000:]
    assert "cases" in done.stdout


@pytest.mark.parametrize("host", CROWD)
def test_many_threads_do_anything_at_once(host):
    """With the same tensors and Lua states, crowd.py's way; what the simulator finds is a failure, too."""
    seed = os.environ.get("MOONFERRY_SPEC_SEED", "0")
    seconds = 6 + float(os.environ.get("MOONFERRY_SEAMS_SECONDS") or 0) / 20
    done = run([*CROWD[host], seed, str(seconds)], SIM_EXIT="3", SIM_SEED=seed)
    assert done.returncode == 0, done.stdout[-20000:]
    assert "operations of" in done.stdout


def test_a_collection_behind_each_instruction_takes_nothing_that_is_used():
    """Of Lua's operations, one in a few instructions, another number of them with each seed."""
    stride = 2 + int(os.environ.get("MOONFERRY_SPEC_SEED", 0)) % 3
    assert said_by("lua", "collected.lua", str(stride)) == (0, ["138 operations"])


@pytest.mark.parametrize("host", PROGRAMS)
def test_a_state_is_left_to_other_threads_inside_of_calls_into_python_alone(host):
    assert said_by(host, "alone.lua") == (0, ["139 operations"])


@pytest.mark.parametrize("host", EITHER)
def test_a_program_does_the_same_in_either_language(host):
    """Programs of three seeds; and others that each commit draws, as many as there is time for."""
    drawn = 10 + int(float(os.environ.get("MOONFERRY_SEAMS_SECONDS") or 0)) // 2
    programs = [(1, 3), (1000 + 1000 * int(os.environ.get("MOONFERRY_SPEC_SEED", 0)), drawn)]
    if one := os.environ.get("MOONFERRY_PROGRAM"):
        programs = [(int(one), 1)]
    for first, count in programs:
        done = run([*EITHER[host], str(first), str(count)])
        assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [f"{count} programs"])
