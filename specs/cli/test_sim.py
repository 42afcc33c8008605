"""`moonferry sim`: what it finds, over seeds and processes, and how it says so."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from programs import HIP, MOONFERRY

RACE = "race()\nend()\n"
RIGHT = "race(order=True)\nend()\n"


def findings(done):
    return [line for line in done.stderr.splitlines() if line.startswith("[")]


def test_a_right_program_has_no_findings(sim):
    done = sim.python(RIGHT)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "moonferry sim: 0 findings; 1 run (seed 0), 1 process on the simulated driver\n"


def test_rules_of_failures_leave_no_simulator_in_the_program_itself(sim):
    done = sim.python(RIGHT, "--fail", "cuArrayCreate_v2:2")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("moonferry sim: 0 findings; 1 run (seed 0), 1 process on the simulated driver\n")


IDLE = [
    (("--fail", "cuNope:2"), "the rule cuNope:2 of --fail matched no call"),
    (("--fail", "cuMemAlloc_v2@99:2:late"), "the rule cuMemAlloc_v2@99:2:late of --fail matched no call"),
    (("--missing", "cuNope,cuMemFree_v2x"), "the name cuNope of --missing is no function"),
]


@pytest.mark.parametrize("words, said", IDLE)
def test_a_rule_that_meets_nothing_is_told(sim, words, said):
    done = sim.python(RIGHT, "--seeds", "2", *words)
    assert done.returncode == 0 and done.stderr.count(said) == 1, done.stderr
    assert f"note: {said}" in done.stderr and "sim: 0 findings" in done.stderr
    strict = sim.python(RIGHT, "--strict", *words)
    assert strict.returncode == 1 and f"warning: {said}" in strict.stderr, strict.stderr


def test_a_rule_that_some_process_meets_is_not_told(sim):
    for rule in ("cuStreamCreate@1:2:late", "#1:3", "*:3"):
        done = sim.python("import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n", "--fail", rule)
        assert rule.startswith("cuStream") == ("matched no call" in done.stderr), done.stderr
    done = sim.python(RIGHT, "--missing", "cuMemAllocManaged")
    assert "of --missing" not in done.stderr


def test_a_race_is_reported_with_both_places_and_what_is_missing(sim):
    done = sim.python(RACE)
    assert done.returncode == 1
    assert len(findings(done)) == 1
    for text in (
        "[1] race: race on 64 bytes",
        "first  written by stream",
        "cuMemsetD8Async",
        "then   read by stream",
        "cuMemcpyDtoDAsync",
        "missing: stream",
        "must wait for stream",
    ):
        assert text in done.stderr, done.stderr


def test_two_races_of_the_same_calls_in_two_lines_are_two(sim):
    program = """
    def racing(a, s, t):
        drv.cuMemsetD8Async(a, ctypes.c_ubyte(1), SIZE(64), s)
        drv.cuMemsetD8Async(a, ctypes.c_ubyte(2), SIZE(64), t)
        ok("cuCtxSynchronize")
        drv.cuMemsetD8Async(a, ctypes.c_ubyte(1), SIZE(64), s)
        drv.cuMemsetD8Async(a, ctypes.c_ubyte(2), SIZE(64), t)
        ok("cuCtxSynchronize")
    a = made("cuMemAlloc_v2", ctypes.c_uint64, SIZE(64))
    for _ in range(3):
        racing(a, made("cuStreamCreate", ctypes.c_void_p, 1), made("cuStreamCreate", ctypes.c_void_p, 1))
    end()
    """
    assert "race 2;" in sim.python(program, "--no-ledger").stderr
    assert "race 1;" in sim.python(program, "--no-ledger", "--lines", "0").stderr, "without lines they look the same"


def test_the_hosts_own_loads_and_stores_have_lines(sim):
    program = """
    import threading
    pinned = made("cuMemAllocHost_v2", ctypes.c_void_p, SIZE(2 << 12))
    a, s = made("cuMemAlloc_v2", ctypes.c_uint64, SIZE(2 << 12)), made("cuStreamCreate", ctypes.c_void_p, 1)
    ok("cuMemcpyDtoHAsync_v2", pinned, a, SIZE(2 << 12), s)
    def reads():
        return ctypes.c_ubyte.from_address(pinned.value).value
    def writes():
        ctypes.c_ubyte.from_address(pinned.value + (1 << 12)).value = 1
    reads()
    thread = threading.Thread(target=writes)
    thread.start()
    thread.join()
    ok("cuStreamSynchronize", s)
    """
    done = sim.python(program, "--no-ledger")
    assert len(findings(done)) == 2, done.stderr
    assert re.search(r"then   read by host: call #\d+ the program, thread 1 at .*:\d+ in reads from", done.stderr)
    assert re.search(r"then   written by host: call #\d+ the program, thread 0 at .*:\d+ in writes from", done.stderr)


def test_lines_of_threads_and_of_a_program_that_uses_faulthandler(sim):
    program = """
    import faulthandler, threading
    faulthandler.enable()
    def work():
        ok("cuCtxPushCurrent_v2", context)
        race()
        ok("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    faulthandler.disable()
    end()
    """
    done = sim.python(program)
    assert " in ok from " in done.stderr
    assert "thread 2 at " in done.stderr


def test_hip(sim):
    for right, status in ((True, 0), (False, 1)):
        program = sim.script("", head=f"RIGHT = {right}\n" + HIP)
        done = sim("--device", "hip", "--", sys.executable, program)
        assert done.returncode == status, done.stderr
    assert "hipMemsetAsync" in done.stderr
    assert " --device hip -- " in done.stderr


@pytest.mark.parametrize("device, name", [("cuda", "libcuda"), ("hip", "libamdhip64")])
def test_the_libraries_of_the_other_device_are_not_there(sim, device, name):
    program = "import os; print(*(n for d in os.environ['LD_LIBRARY_PATH'].split(':') for n in sorted(os.listdir(d))))"
    done = sim("--device", device, "--", sys.executable, "-c", program)
    assert f"{name}.so" in done.stdout
    assert ("libcuda" in done.stdout) == (device == "cuda")
    assert ("libcudart.so.12" in done.stdout) == ("libcudart.so.13" in done.stdout) == (device == "cuda")
    assert ("libamdhip64" in done.stdout) == (device == "hip")


def test_a_leak_is_reported_unless_the_ledger_is_off(sim):
    leak = "made('cuMemAlloc_v2', ctypes.c_uint64, SIZE(96))\n"
    done = sim.python(leak)
    assert done.returncode == 1
    assert "leak: 96 bytes" in done.stderr
    assert "leak 3;" in done.stderr, "the memory, the context that is current, the primary one retained"
    assert sim.python(leak, "--no-ledger").returncode == 0


def test_the_ledger_can_be_of_one_library(sim):
    leak = "made('cuMemAlloc_v2', ctypes.c_uint64, SIZE(96))"  # and a context that stays current
    done = sim.python(leak, "--ledger-of", "libffi")
    assert done.returncode == 1 and "leak 2;" in done.stderr
    assert sim.python(leak, "--ledger-of", "libelsewhere").returncode == 0


def test_failures_can_be_of_one_library(sim):
    asks = "print(drv.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), SIZE(96)))\n" * 2
    for library, answers in (("libelsewhere", ["0", "0"]), ("libffi", ["0", "2"])):
        done = sim.python(asks, "--no-ledger", "--fail", "cuMemAlloc@2:2", "--fail-of", library)
        assert done.stdout.split() == answers, library


def test_misuse_is_reported(sim):
    done = sim.python("assert drv.cuStreamSynchronize(ctypes.c_void_p(0x1234)) != 0\nend()\n")
    assert done.returncode == 1
    assert "misuse" in done.stderr


def test_warnings_count_only_when_strict(sim):
    # A stream destroyed with work pending: allowed, seldom meant.
    warning = """
    a = made("cuMemAlloc_v2", ctypes.c_uint64, SIZE(64))
    s = made("cuStreamCreate", ctypes.c_void_p, 1)
    ok("cuMemsetD8Async", a, ctypes.c_ubyte(1), SIZE(64), s)
    ok("cuStreamDestroy_v2", s)
    ok("cuCtxSynchronize")
    ok("cuMemFree_v2", a)
    end()
    """
    done = sim.python(warning)
    assert done.returncode == 0
    assert "0 findings; 1 warning (--strict shows it)" in done.stderr
    assert not findings(done)
    done = sim.python(warning, "--strict")
    assert done.returncode == 1
    assert findings(done)[0].startswith("[1] warning: ")
    assert sim.python(warning, env={"SIM_STRICT": "1"}).returncode == 1


def test_every_seed_reports_a_race_that_only_some_show(sim):
    done = sim.python("print(race())\nend()\n", "--seeds", "12")
    values = done.stdout.split()
    assert len(values) == 12
    assert 0 < values.count("7") < 12, f"some must be right by chance: {values}"
    assert done.returncode == 1
    assert len(findings(done)) == 1, done.stderr
    assert "seen   under all seeds 0 to 11, by: " in done.stderr
    assert "12 runs (seeds 0 to 11), 12 processes" in done.stderr


def test_the_command_that_it_names_shows_the_finding_again(sim):
    program = sim.script("if os.environ['SIM_SEED'] in '56': race()\nend()\n")
    done = sim(
        "--seed", "3", "--seeds", "5", "--memory", "1G", "--", sys.executable, program, 'an argument\'s "end"', ""
    )
    assert "seen   under seeds 5 to 6, by: " in done.stderr
    (again,) = [line[9:] for line in done.stderr.splitlines() if line.startswith("  again  ")]
    assert again.startswith("moonferry sim --seed 5 --memory 1G -- ")
    assert again.endswith(" ''")
    path = os.path.dirname(MOONFERRY) + ":" + os.environ["PATH"]
    repeated = subprocess.run(again, shell=True, capture_output=True, text=True, env=sim.environment(PATH=path))
    assert repeated.returncode == 1
    assert "seen   under seed 5, by: " in repeated.stderr


def test_seeds_that_saw_it_are_listed_as_ranges(sim):
    done = sim.python("if os.environ['SIM_SEED'] in '1246': race()\nend()\n", "--seeds", "7")
    assert "seen   under seeds 1 to 2, 4, 6, by: " in done.stderr


def test_the_command_that_shows_several_findings_is_said_once(sim):
    program = """
    if os.environ['SIM_SEED'] != '1':
        race()
    drv.cuStreamQuery(ctypes.c_void_p(0x1234))
    drv.cuStreamSynchronize(ctypes.c_void_p(0x1234))
    end()
    """
    done = sim.python(program, "--seed", "1", "--seeds", "2")
    assert len(findings(done)) == 3
    again = [line.split()[4] for line in done.stderr.splitlines() if line.startswith("  again  ")]
    assert again == ["1", "2"]


def test_a_finding_seen_often_is_one_finding(sim):
    done = sim.python("for _ in range(5): drv.cuStreamSynchronize(ctypes.c_void_p(0x1234))\nend()\n", "--seeds", "2")
    assert len(findings(done)) == 1
    assert "seen   10 times, under all seeds 0 to 1" in done.stderr


def test_calls_that_differ_only_in_a_name_are_two_findings(sim):
    done = sim.python(
        """
        drv.cuStreamSynchronize(ctypes.c_void_p(0x1234))
        drv.cuStreamQuery(ctypes.c_void_p(0x1234))
        end()
        """
    )
    assert len(findings(done)) == 2


def test_findings_of_child_processes_are_collected(sim):
    child = sim.script(RACE)
    program = f"""
    import subprocess, sys
    children = [subprocess.Popen([sys.executable, {str(child)!r}]) for _ in range(4)]
    grandchild = "import subprocess, sys; subprocess.run([sys.executable, {str(child)!r}])"
    subprocess.run([sys.executable, "-c", grandchild])
    assert [c.wait() for c in children] == [0] * 4
    """
    done = sim("--", sys.executable, sim.script(program, head=""))
    assert done.returncode == 1
    assert "5 processes on the simulated driver" in done.stderr
    assert "seen   5 times, under seed 0" in done.stderr


def test_a_program_that_replaces_itself_is_collected_twice(sim):
    second = sim.script(RIGHT)
    done = sim.python(f"race()\nos.execv(sys.executable, [sys.executable, {str(second)!r}])\n")
    assert done.returncode == 1
    assert "2 processes" in done.stderr
    assert "race 1" in done.stderr


@pytest.mark.parametrize(
    "end, status",
    [("os._exit(0)", 1), ("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", 137), ("os.abort()", 134)],
)
def test_findings_survive_a_process_that_does_not_end_in_order(sim, end, status):
    done = sim.python(f"race()\n{end}\n")
    assert done.returncode == status
    assert "race on 64 bytes" in done.stderr
    assert "note: a process was killed or left by _exit" in done.stderr


def test_a_process_that_outlives_the_command_is_noted(sim):
    child = sim.script("race()\nprint('ready', flush=True)\nsys.stdin.read()\n")
    program = f"""
    import subprocess, sys
    ends = dict(stdin=0, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    child = subprocess.Popen([sys.executable, {str(child)!r}], start_new_session=True, **ends)
    child.stdout.readline()
    """
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb"), os.fdopen(reading, "rb") as end:
        done = sim("--", sys.executable, sim.script(program, head=""), stdin=end)
    assert "note: a process outlived the command" in done.stderr
    assert "race on 64 bytes" in done.stderr


def test_what_a_program_forgets_is_not_reported(sim):
    assert sim.python("race()\ndrv.sim_reset()\nend()\n").returncode == 0
    assert sim.python("race()\ndrv.sim_reset()\nrace()\nend()\n").returncode == 1


def test_more_findings_than_are_kept(sim):
    done = sim.python("for _ in range(1200): drv.cuStreamSynchronize(ctypes.c_void_p(0x1234))\nend()\n")
    assert "seen   1000 times" in done.stderr
    assert "note: 200 findings more were counted than kept" in done.stderr


def test_nothing_on_the_simulated_driver_is_said(sim):
    done = sim("--", "true")
    assert done.returncode == 0
    assert "0 processes on the simulated driver" in done.stderr
    assert "nothing called the simulated driver cuda, so nothing was checked" in done.stderr


def test_the_report_as_text(sim):
    done = sim.python(RACE, "--seeds", "2", "--report", "report.txt")
    assert (sim.folder / "report.txt").read_text() == done.stderr


def test_the_report_has_the_warnings(sim):
    program = "s = made('cuStreamCreate', ctypes.c_void_p, 1)\nend()\n"
    done = sim.python(program, "--report", "report.txt", "--no-ledger")
    assert "[1] warning: " in (sim.folder / "report.txt").read_text()
    assert "[1]" not in done.stderr


def test_the_report_as_json(sim):
    (sim.folder / "report.json").write_text("what was there before, and is longer" * 1000)
    argument = b"\xff\"\\\n\xe2\x82\xac\xed\xa0\x80\x01'"
    program = sim.script("race()\nend()\nsys.exit(5 if os.environ['SIM_SEED'] == '3' else 0)\n")
    words = ["--seed", "2", "--seeds", "3", "--report", "report.json", "--", sys.executable, program]
    done = subprocess.run(
        [MOONFERRY, "sim", *map(str, words), argument], env=sim.environment(), cwd=sim.folder, capture_output=True
    )
    assert done.returncode == 5
    data = json.loads((sim.folder / "report.json").read_text(encoding="utf-8"))
    assert data["format"] == 1
    assert data["device"] == "cuda"
    assert data["command"] == [sys.executable, str(program), "\ufffd\"\\\n\u20ac\ufffd\ufffd\ufffd\x01'"]
    assert data["runs"] == [{"seed": 2, "status": 0}, {"seed": 3, "status": 5}, {"seed": 4, "status": 0}]
    assert (data["processes"], data["count"], data["notes"]) == (3, 1, [])
    (finding,) = data["findings"]
    assert finding["kind"] == "race"
    assert finding["seeds"] == [2, 3, 4]
    assert finding["counts"] is True
    assert finding["summary"].startswith("race on 64 bytes")
    assert list(finding["details"]) == ["first", "then", "made", "missing"]
    assert "cuMemsetD8Async" in finding["details"]["first"]
    assert finding["again"].startswith("moonferry sim --seed 2 -- ")


def test_json_without_findings(sim):
    sim("--report", "report.json", "--", "true")
    data = json.loads((sim.folder / "report.json").read_text())
    assert (data["findings"], data["processes"], data["runs"]) == ([], 0, [{"seed": 0, "status": 0}])


def test_the_report_is_written_where_nobody_reads_what_is_shown(sim):
    reader, writer = os.pipe()
    os.close(reader)
    words = [MOONFERRY, "sim", "--report", "report.json", sys.executable, sim.script("race()\nend()\n")]
    done = subprocess.run(words, env=sim.environment(), cwd=sim.folder, stderr=writer, timeout=600)
    os.close(writer)
    assert done.returncode == -signal.SIGPIPE
    assert json.loads((sim.folder / "report.json").read_text())["findings"]
    assert not list(sim.temporary.iterdir())


def test_json_has_the_notes(sim):
    sim.python("race()\nos._exit(0)\n", "--report", "report.json")
    (note,) = json.loads((sim.folder / "report.json").read_text())["notes"]
    assert note["seeds"] == [0]
    assert "_exit" in note["summary"]


def test_pytest_as_the_command(sim):
    (sim.folder / "test_exchange.py").write_text(
        sim.script("").read_text() + "\ndef test_right():\n    race(order=True)\n\ndef test_wrong():\n    race()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_exchange.py"]
    done = sim("--no-ledger", "--", *command)
    assert "2 passed" in done.stdout, "the specs themselves see nothing wrong"
    assert done.returncode == 1
    assert len(findings(done)) == 1
    done = sim("--no-ledger", "--", *command, "-k", "right")
    assert done.returncode == 0, done.stderr


LUA = """
local ffi = require "ffi"
ffi.cdef [[
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxPushCurrent_v2(void *);
int cuMemAlloc_v2(uint64_t *, size_t); int cuStreamCreate(void **, unsigned);
int cuMemsetD8Async(uint64_t, unsigned char, size_t, void *); int cuCtxSynchronize(void);
int cuStreamSynchronize(void *);
]]
local cuda = ffi.load(LIBRARY)
local function ok(status) assert(status == 0, status) end
local function made(name, kind, ...)
  local out = ffi.new(kind .. "[1]")
  ok(cuda[name](out, ...))
  return out[0]
end
ok(cuda.cuInit(0))
ok(cuda.cuCtxPushCurrent_v2(made("cuDevicePrimaryCtxRetain", "void *", 0)))
local memory = made("cuMemAlloc_v2", "uint64_t", 64)
local s, t = made("cuStreamCreate", "void *", 1), made("cuStreamCreate", "void *", 1)
ok(cuda.cuMemsetD8Async(memory, 1, 64, s))
if arg[1] == "right" then ok(cuda.cuStreamSynchronize(s)) end
ok(cuda.cuMemsetD8Async(memory, 2, 64, t))
ok(cuda.cuCtxSynchronize())
"""


@pytest.mark.parametrize("library", ["libcuda.so.1", "cuda"])
def test_a_lua_script_as_the_command(sim, library):
    script = sim.folder / "script.lua"
    script.write_text(LUA.replace("LIBRARY", repr(library)))
    assert sim("--no-ledger", "--", "luajit", script, "right").returncode == 0
    done = sim("--no-ledger", "--", "luajit", script, "wrong")
    assert done.returncode == 1
    assert "race on 64 bytes" in done.stderr


def test_a_journal_that_is_none_does_no_harm(sim):
    program = r"""
    import os, random
    folder = os.environ["SIM_JOURNAL"]
    draw = random.Random(1)
    words = [b"sim: ", b"process ", b"seed ", b"reset", b"race: ", b": ", b"\n"]
    words += [b"\0", b"\xff", b"9" * 40, b"#", b"  then "]
    for i in range(300):
        with open(f"{folder}/{i}", "wb") as file:
            file.write(b"".join(draw.choice(words) for _ in range(draw.randrange(60))))
    """
    done = sim("--report", "report.json", "--", sys.executable, sim.script(program, head=""))
    assert done.returncode in (0, 1), done.stderr
    assert json.loads((sim.folder / "report.json").read_text())["processes"] == 300


def test_a_folder_among_the_journals_is_said(sim):
    done = sim("--", "sh", "-c", "mkdir $SIM_JOURNAL/deep; echo $SIM_JOURNAL")
    folder = done.stdout.strip()
    assert done.returncode == 0
    assert f"moonferry sim: {folder} stays: Directory not empty" in done.stderr
    os.rmdir(folder + "/deep")
    os.rmdir(folder)


def test_a_forked_child_reports_nothing_of_its_parents(sim):
    program = """
    race()
    if os.fork() == 0:
        sys.exit()
    os.wait()
    end()
    """
    done = sim.python(program)
    assert "1 finding: race 1; 1 run (seed 0), 1 process on" in done.stderr
    assert "note" not in done.stderr
