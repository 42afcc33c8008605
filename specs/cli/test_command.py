"""`moonferry` and `moonferry sim` as commands: words, statuses, the environment, signals."""

import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys

import pytest
from programs import MOONFERRY, PACKAGE, ROOT


def moonferry(*words, **rest):
    return subprocess.run([MOONFERRY, *words], capture_output=True, text=True, timeout=600, **rest)


def test_help_and_version():
    assert moonferry("--version").stdout.startswith("moonferry 0.")
    for word in ("--help", "-h"):
        done = moonferry(word)
        assert (done.returncode, done.stderr) == (0, "")
        assert "  sim " in done.stdout
    done = moonferry("sim", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("--device", "--seeds", "--report", "--ledger-of", "Exit status"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    assert done.stdout == moonferry("sim", "-h", "--", "true").stdout


def test_the_page_has_every_option_and_the_example_as_it_is():
    page = (ROOT / "docs" / "sim.md").read_text()
    options = re.findall(r"^  (--[a-z-]+(?: \S+)?)  ", moonferry("sim", "--help").stdout, re.MULTILINE)
    assert len(options) == 17
    for option in options:
        shown = option.replace("|", "\\|")
        assert option == "--help" or f"| `{shown}` |" in page, option
    (shown,) = re.findall(r"```python\n(    # cuda.core.*?)```", page, re.DOTALL)
    example = (ROOT / "examples" / "race" / "race.py").read_text()
    assert shown in example
    lines = example.splitlines()
    assert "buffer.fill" in lines[39] and "copy_to_host" in lines[45], "the lines that the page names"


@pytest.mark.parametrize(
    ("word", "meant"),
    [("doctro", "doctor"), ("docto", "doctor"), ("doctoor", "doctor"), ("chock", "check"), ("sm", "sim")],
)
def test_what_is_nearly_a_subcommand_is_told_so(word, meant, tmp_path):
    done = moonferry(word, cwd=tmp_path)
    said = f"moonferry: no file is called {word}; 'moonferry {meant}' is a subcommand\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    (tmp_path / word).write_text("print 'a script'")
    assert moonferry(word, cwd=tmp_path).stdout == "a script\n"


def test_help_is_a_word_too(tmp_path):
    assert moonferry("help", cwd=tmp_path).stdout == moonferry("--help").stdout != ""
    assert "cannot open doctrine" in moonferry("doctrine", cwd=tmp_path).stderr


def test_what_is_no_subcommand_is_a_script():
    done = moonferry("simulate")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("moonferry: cannot open simulate")
    done = moonferry("--simulate")
    assert done.returncode == 2
    assert "there is no option '--simulate'" in done.stderr


def test_built_where_there_is_no_luajit(tmp_path):
    """Then it simulates GPUs, and says so of the rest."""
    source = ROOT / "bindings" / "cli"
    lua = {"lua.c", "state.c", "interrupt.c", "repl.c", "edit.c", "tool.c", "child.c"}
    files = [p for p in sorted(source.glob("*.c")) if p.name not in lua]
    program = tmp_path / "moonferry"
    subprocess.run(["gcc", "-std=c11", '-DMOONFERRY_VERSION="0.0"', *files, "-o", program, "-ldl"], check=True)

    def run(*words):
        return subprocess.run([program, *words], capture_output=True, text=True)

    assert run("--version").stdout == "moonferry 0.0 -- built without LuaJIT\n"
    assert run("--help").returncode == run("sim", "--help").returncode == 0
    for words in (("-e", "print(1)"), ("script.lua",), ("check", "numpy"), ("doctor",)):
        done = run(*words)
        assert done.returncode == 2 and "built without LuaJIT" in done.stderr


def test_python_m_moonferry():
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    module = [sys.executable, str(PACKAGE / "__main__.py")]
    done = subprocess.run([*module, "sim", "--", "sh", "-c", "exit 9"], capture_output=True, text=True, env=env)
    assert done.returncode == 9, done.stderr
    done = subprocess.run([*module, "--version"], capture_output=True, text=True, env=env)
    assert done.stdout.startswith("moonferry 0.")


def test_python_m_moonferry_without_the_program(tmp_path):
    shutil.copy(PACKAGE / "__main__.py", tmp_path)
    done = subprocess.run([sys.executable, str(tmp_path / "__main__.py")], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"this installation has no program ({tmp_path}/bin/moonferry: " in done.stderr


@pytest.mark.parametrize(
    "script, status", [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)]
)
def test_the_commands_own_status(sim, script, status):
    assert sim("--", "sh", "-c", script).returncode == status


def test_the_commands_own_status_goes_before_findings(sim):
    done = sim.python("race()\nsys.exit(5)\n", "--no-ledger")
    assert done.returncode == 5
    assert "race 1" in done.stderr


def test_the_first_failure_of_several_seeds_is_the_status(sim):
    done = sim("--seeds", "4", "--", "sh", "-c", "echo $SIM_SEED; exit $((SIM_SEED * 3 % 8))")
    assert done.stdout.split() == ["0", "1", "2", "3"], "every seed runs"
    assert done.returncode == 3


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "there is no command to run"),
        (["--seeds", "2", "--"], "there is no command to run"),
        (["--sedes", "2", "--", "true"], "there is no option '--sedes'"),
        (["-x", "true"], "there is no option '-x'"),
        (["--seed"], "--seed needs a value: --seed N"),
        (["--seed", "--", "true"], "--seed is '--'; expected: a whole number from 0"),
        (["--seed=-1", "--", "true"], "--seed is '-1'; expected: a whole number from 0"),
        (["--seed= 1", "true"], "--seed is ' 1'"),
        (["--seed", "1x", "true"], "--seed is '1x'"),
        (["--seed", "1K", "true"], "--seed is '1K'"),
        (["--seed", "99999999999999999999", "true"], "--seed is '99999999999999999999'"),
        (["--seed", "18446744073709551615", "--seeds", "2", "true"], "go past the largest number"),
        (["--seeds", "0", "true"], "--seeds is '0'; expected: a whole number from 1"),
        (["--device", "metal", "true"], "--device is 'metal'; expected: cuda or hip"),
        (["--kernels", "run", "true"], "--kernels is 'run'; expected: refuse or opaque"),
        (["--devices", "17", "true"], "--devices is '17'; expected: a whole number from 0 to 16"),
        (["--memory", "4T", "true"], "--memory is '4T'"),
        (["--memory", "99999999999G", "true"], "--memory is '99999999999G'"),
        (["--memory", "0", "true"], "--memory is '0'"),
        (["--driver-version", "12.4", "true"], "--driver-version is '12.4'"),
        (["--strict=1", "true"], "--strict takes no value, and was given '1'"),
        (["--fail", "cuInit", "true"], "--fail is 'cuInit'; expected: rules CALL:STATUS"),
        (["--missing", "--", "true"], "--missing needs a value: --missing NAMES"),
        (["--fail", "cuInit:1:often", "true"], "--fail is 'cuInit:1:often'"),
        (["--report", "no/such/folder/report", "true"], "cannot write the report 'no/such/folder/report': No such"),
    ],
)
def test_wrong_words(sim, words, said):
    done = sim(*words)
    assert done.returncode == 125
    assert said in done.stderr
    assert "finding" not in done.stderr, "nothing ran"


def test_a_wrong_seed_in_the_environment(sim):
    done = sim("true", env={"SIM_SEED": "some"})
    assert done.returncode == 125
    assert "SIM_SEED is 'some'; expected: a whole number" in done.stderr


def test_a_command_that_is_not_there(sim):
    (sim.folder / "plain").write_text("not to be run")
    done = sim("--seeds", "3", "--report", "r", "--", "no-such-command")
    assert done.returncode == 127
    assert done.stderr == "moonferry sim: cannot run 'no-such-command': No such file or directory\n", "said once"
    done = sim("--", "./plain")
    assert done.returncode == 126
    assert "cannot run './plain': Permission denied" in done.stderr
    assert sim("--", sim.folder).returncode == 126
    assert sim("--", "").returncode == 127


def test_a_simulator_that_is_not_there(sim):
    done = sim("--", "true", env={"MOONFERRY_SIM": "/no/such/folder"})
    assert done.returncode == 125
    assert "the simulated driver libcuda.so.1 was not found; looked in:\n  /no/such/folder/cuda\n" in done.stderr
    copy = sim.folder / "bin" / "moonferry"
    copy.parent.mkdir()
    shutil.copy(MOONFERRY, copy)
    done = subprocess.run([copy, "sim", "--device", "hip", "true"], capture_output=True, text=True)
    assert done.returncode == 125
    assert f"looked in:\n  {sim.folder}/bin/../sim/hip\n" in done.stderr
    assert f"\n  {sim.folder}/bin/../lib*/python3*/site-packages/moonferry/sim/hip\n" in done.stderr
    done = sim("--", "true", env={"MOONFERRY_SIM": str(PACKAGE / "sim")})
    assert done.returncode == 0


@pytest.mark.parametrize("package", ["lib/python3.9/site-packages", "lib/python3.14/dist-packages", "."])
def test_the_simulators_of_a_program_that_pip_installed(sim, package):
    """With pip's layouts: a virtual environment, Debian's Python, --target."""
    home = sim.folder / "it's [all] *here?"
    copy = home / "bin" / "moonferry"
    copy.parent.mkdir(parents=True)
    shutil.copy(MOONFERRY, copy)
    there = home / package / "moonferry" / "sim"
    shutil.copytree(PACKAGE / "sim", there, symlinks=True)
    done = subprocess.run([copy, "sim", "printenv", "LD_LIBRARY_PATH"], capture_output=True, text=True)
    assert done.stdout == f"{os.path.realpath(there)}/cuda:{os.path.realpath(there)}/cudart\n", done.stderr


def test_a_folder_that_no_library_path_can_name(sim):
    (sim.folder / "a:b").symlink_to(PACKAGE / "sim")
    shutil.copytree(PACKAGE / "sim", sim.folder / "c:d")
    done = sim("--", "true", env={"MOONFERRY_SIM": str(sim.folder / "c:d")})
    assert done.returncode == 125
    assert "a folder that LD_LIBRARY_PATH cannot name" in done.stderr
    assert sim("--", "true", env={"MOONFERRY_SIM": str(sim.folder / "a:b")}).returncode == 0, "the link is resolved"


def test_a_file_that_is_no_simulator(sim):
    folder = sim.folder / "cuda"
    folder.mkdir()
    (folder / "libcuda.so.1").write_text("nothing of the sort")
    done = sim("--fail", "cuInit:1", "--", "true", env={"MOONFERRY_SIM": str(sim.folder)})
    assert done.returncode == 125
    assert "is no simulated driver" in done.stderr


def test_nowhere_for_what_processes_find(sim):
    done = sim("--", "true", env={"TMPDIR": "/no/such/folder"})
    assert done.returncode == 125
    assert "cannot make a folder in '/no/such/folder' (TMPDIR)" in done.stderr


def environment_of(sim, *options, status=0, **settings):
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    done = sim(*options, "--", sys.executable, "-c", program, env=settings)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_the_environment_without_options(sim):
    got = environment_of(sim)
    assert {k for k in got if k.startswith("SIM_")} == {"SIM_SEED", "SIM_JOURNAL", "SIM_LINES"}
    assert (got["SIM_SEED"], got["SIM_LINES"]) == ("0", "5000")
    assert got["LD_LIBRARY_PATH"].split(":") == [os.path.realpath(PACKAGE / "sim" / n) for n in ("cuda", "cudart")]


def test_what_the_user_has_set_stays(sim):
    mine = {"SIM_DEVICES": "3", "SIM_REPORT": "mine", "SIM_SEED": "9", "SIM_LEDGER": "off", "SIM_LINES": "7"}
    got = environment_of(sim, **mine, LD_LIBRARY_PATH="/a:/b")
    assert {k: got[k] for k in mine} == mine
    assert got["LD_LIBRARY_PATH"].endswith("/sim/cuda:" + os.path.realpath(PACKAGE / "sim" / "cudart") + ":/a:/b")


# Those of CUDA 12 and of 13.
RUNTIMES = ["libcudart.so.12", "libcudart.so.13"]


def test_the_runtimes_are_preloaded_behind_what_the_user_preloads(sim):
    before = os.environ.get("LD_PRELOAD", "")
    assert environment_of(sim)["LD_PRELOAD"].split(":") == [*filter(None, [before]), *RUNTIMES]
    mine = ":".join(filter(None, [before, "libm.so.6"]))
    assert environment_of(sim, LD_PRELOAD=mine)["LD_PRELOAD"] == ":".join([mine, *RUNTIMES])
    assert environment_of(sim, "--device", "hip").get("LD_PRELOAD", "") == before


def test_the_runtime_is_left_out_where_there_is_none(sim):
    shutil.copytree(PACKAGE / "sim" / "cuda", sim.folder / "cuda")
    got = environment_of(sim, MOONFERRY_SIM=str(sim.folder))
    assert got["LD_LIBRARY_PATH"] == os.path.realpath(sim.folder / "cuda")
    assert "libcudart" not in got.get("LD_PRELOAD", "")


# A program that has the real runtime in a folder of its own, as PyTorch does, and is on the simulated one all the same.
RUNTIME = """
import ctypes
cudart = ctypes.CDLL("libcudart.so.MAJOR")
def ok(name, *args):
    status = getattr(cudart, name)(*args)
    assert status == 0, (name, status)
p, s, t = (ctypes.c_void_p() for _ in "pst")
ok("cudaMalloc", ctypes.byref(p), ctypes.c_size_t(64))
ok("cudaStreamCreateWithFlags", ctypes.byref(s), 1)
ok("cudaStreamCreateWithFlags", ctypes.byref(t), 1)
ok("cudaMemsetAsync", p, 7, ctypes.c_size_t(64), s)
ok("cudaMemsetAsync", p, 8, ctypes.c_size_t(64), t)
ok("cudaDeviceSynchronize")
for stream in (s, t):
    ok("cudaStreamDestroy", stream)
ok("cudaFree", p)
"""


@pytest.mark.parametrize("major", ["12", "13"])
def test_a_program_of_the_runtime_is_checked(sim, major):
    done = sim("--", sys.executable, sim.script("", head=RUNTIME.replace("MAJOR", major)))
    assert done.returncode == 1
    assert done.stderr.count("cudaMemsetAsync") == 2
    assert "moonferry sim: 1 finding: race 1; 1 run (seed 0), 1 process on the simulated driver" in done.stderr


def test_set_up_is_for_what_is_known(sim):
    done = sim("--setup", "cupy")
    assert done.returncode == 125
    assert "--setup is 'cupy'; expected: torch or jax" in done.stderr
    done = sim("--setup", "torch", "here", "there")
    assert done.returncode == 125
    assert "--setup takes one folder" in done.stderr
    shutil.copytree(PACKAGE / "sim" / "cuda", sim.folder / "cuda")
    done = sim("--setup", "torch", env={"MOONFERRY_SIM": str(sim.folder)})
    assert done.returncode == 125
    assert "cannot run the script cudart/setup-torch.sh" in done.stderr


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("words, folder", [(["mine"], "mine"), ([], "{}-venv")])
def test_set_up_makes_the_folder_that_it_is_given(sim, library, words, folder):
    """The interpreter stands for pip here: nothing is fetched, and where it fails set-up fails."""
    fake = sim.folder / "python"
    fake.write_text('#!/bin/sh\necho "$@" >>"$LOG"\nexit 3\n')
    fake.chmod(0o755)
    log = sim.folder / "log"
    done = sim("--setup", library, *words, env={"PYTHON": str(fake), "LOG": str(log)})
    assert done.returncode == 3
    assert log.read_text() == f"-m venv {folder.format(library)}\n"


def test_the_report_that_the_user_has_set_is_written_too(sim):
    done = sim.python("race()\nend()\n", env={"SIM_REPORT": "mine"})
    assert done.returncode == 1
    assert "race on 64 bytes" in done.stderr
    assert "race on 64 bytes" in (sim.folder / "mine").read_text()


def test_several_seeds_begin_at_the_one_that_the_user_has_set(sim):
    done = sim("--seeds", "2", "--", "sh", "-c", "echo $SIM_SEED", env={"SIM_SEED": "9"})
    assert done.stdout.split() == ["9", "10"]


def test_options_become_settings_and_go_before_them(sim):
    got = environment_of(  # rules that meet nothing are findings under --strict
        sim, "--seed=0x10", "--devices", "5", "--memory", "2M", "--fail", "cuMemAlloc@2:2:on", "--missing=cuA,cuB",
        "--driver-version", "12040", "--log", "log", "--strict", "--no-ledger", "--ledger-of", "mine", "--lines", "0",
        "--fail-of", "mine",
        SIM_DEVICES="3", SIM_SEED="1", status=1,
    )  # fmt: skip
    assert {k: v for k, v in got.items() if k.startswith("SIM_") and k != "SIM_JOURNAL"} == {
        "SIM_SEED": "16",
        "SIM_DEVICES": "5",
        "SIM_MEMORY": "2097152",
        "SIM_FAIL": "cuMemAlloc@2:2:on",
        "SIM_FAIL_OF": "mine",
        "SIM_MISSING": "cuA,cuB",
        "SIM_DRIVER_VERSION": "12040",
        "SIM_LOG": os.path.realpath(sim.folder) + "/log",
        "SIM_STRICT": "1",
        "SIM_LEDGER": "off",
        "SIM_LEDGER_OF": "mine",
        "SIM_LINES": "0",
    }
    assert environment_of(sim, "--seed", "1", "--seed", "2")["SIM_SEED"] == "2", "the last wins"


def test_settings_reach_the_driver(sim):
    program = """
    assert made("cuDeviceGetCount", ctypes.c_int).value == 5
    assert drv.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), SIZE(64)) == 2
    end()
    """
    log = sim.folder / "log"
    done = sim.python(program, "--devices", "5", "--fail", "cuMemAlloc:2", "--log", log)
    assert done.returncode == 0, done.stderr
    assert "cuMemAlloc" in log.read_text()


def test_standard_streams_are_the_commands(sim):
    done = sim("--", "cat", input="some\nlines\n", stdin=None)
    assert done.stdout == "some\nlines\n"
    done = sim("sh", "-c", "echo out; echo err >&2")
    assert done.stdout == "out\n"
    assert done.stderr.startswith("err\nmoonferry sim: ")


def test_arguments_are_passed_as_they_are(sim):
    done = sim("--seed", "1", "--", "printf", "%s|", "--seed", "a b", "", "--", "*")
    assert done.stdout == "--seed|a b||--|*|"


WAITS = """
import signal, sys, time
race()
count = 0
def handler(number, frame):
    global count
    count += 1
signal.signal(signal.SIGNUMBER, handler)
print("ready", flush=True)
end = time.monotonic() + 30
while not count and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.2)
print(count, flush=True)
sys.exit(STATUS)
"""


def hear_hangups():
    """Whoever runs these specs under nohup ignores SIGHUP, and so would all that they start."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def started(sim, program, *options, **rest):
    child = subprocess.Popen(
        [MOONFERRY, "sim", *options, "--", sys.executable, str(program)], env=sim.environment(), cwd=sim.folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **{"preexec_fn": hear_hangups, **rest},
    )  # fmt: skip
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("name, status, ends", [("INT", 4, 4), ("TERM", 0, 143), ("HUP", 0, 129), ("USR1", 0, 1)])
def test_a_signal_is_passed_on_and_the_report_still_written(sim, name, status, ends):
    program = sim.script(WAITS.replace("NUMBER", name).replace("STATUS", str(status)))
    child = started(sim, program, "--seeds", "3" if name != "USR1" else "1", "--no-ledger", start_new_session=True)
    child.send_signal(getattr(signal, "SIG" + name))
    out, err = child.communicate(timeout=600)
    assert out == "1\n", "the command got it once"
    assert child.returncode == ends, err
    assert "race 1; 1 run (seed 0)" in err, "no other seed ran"
    assert not list(sim.temporary.iterdir())


def test_a_signal_that_ends_the_command(sim):
    program = sim.script("race()\nprint('ready', flush=True)\nimport time\ntime.sleep(60)\n")
    child = started(sim, program, "--seeds", "3")
    child.terminate()
    _, err = child.communicate(timeout=600)
    assert child.returncode == 143
    assert "race on 64 bytes" in err


@pytest.mark.parametrize("group, count", [("", 1), ("os.setpgid(0, 0)\n", 0)])
def test_ctrl_c_reaches_the_command_from_the_terminal_alone(sim, group, count):
    """Two that come at once look like one; a command that has left the terminal's group shows what we send."""
    waits = WAITS.replace("+ 30", "+ 1") if group else WAITS
    program = sim.script(group + waits.replace("NUMBER", "INT").replace("STATUS", "4"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(sim.folder)
        words = [MOONFERRY, "sim", "--seeds", "2", "--", sys.executable, str(program)]
        os.execve(MOONFERRY, words, sim.environment())
    said = b""
    while b"ready" not in said:
        said += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while part := os.read(terminal, 4096):
            said += part
    except OSError:
        pass  # the terminal's other end is closed
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4, said
    assert b"%d\r\n[1] race: " % count in said
    assert b"race on 64 bytes" in said


def test_a_signal_that_was_ignored_stays_ignored(sim):
    program = sim.script("print('ready', flush=True)\ninput()\nprint('end')\nend()\n")
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN), "stdin": subprocess.PIPE}
    child = started(sim, program, **ignore)
    child.send_signal(signal.SIGHUP)
    out, err = child.communicate("\n", timeout=600)
    assert (child.returncode, out) == (0, "end\n"), err


def test_many_runs_need_no_more_files_than_one(sim):
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))}
    done = sim("--seeds", 40, "--", "true", **few)
    assert done.returncode == 0 and "40 runs" in done.stderr


def test_one_inside_another(sim):
    program = sim.script("race()\nend()\n")
    done = sim("--", MOONFERRY, "sim", "--", sys.executable, program)
    assert done.returncode == 1
    assert done.stderr.count("[1] race") == 1, "the inner one takes the findings"
