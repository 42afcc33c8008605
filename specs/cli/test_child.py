"""How the program runs commands: with an end in time, with nothing of them left behind, and with their own status."""

import contextlib
import json
import os
import signal
import subprocess
import time

import pytest
from programs import MOONFERRY, compiled

# run SECONDS COMMAND ...: the status, or "late", in the first line, and then what the command printed.
RUN = r"""
#include "cli.h"
#include <stdlib.h>
int main(int argc, char **argv) {
  cli_text out = {0};
  const int status = argc > 2 ? cli_capture(argv + 2, (unsigned)atoi(argv[1]), &out) : CLI_USAGE;
  printf(status < 0 ? "late\n" : "%d\n", status);
  fwrite(out.at, 1, out.size, stdout);
  return 0;
}
"""


# A command that is sent a signal before it is what it shall be; this program sends itself one at the end.
EARLY = r"""
#include "cli.h"
#include <signal.h>
#include <unistd.h>
int execvp(const char *file, char *const *words) {
  (void)file, (void)words;
  raise(SIGTERM);
  _exit(0);
}
int main(int argc, char **argv) {
  printf("%d\n", cli_run(argv + (argc > 0)).status);
  fflush(stdout);
  raise(SIGTERM);
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("child"), RUN, "child.c", "text.c")


def captured(program, seconds, script, folder):
    """The status, or "late"; what was printed."""
    words = [program, str(seconds), "sh", "-c", script]
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=60, check=True, input=b"not for the command")
    status, _, text = done.stdout.partition(b"\n")
    return status.decode(), text


def is_alive(pid):
    """A process that has ended and waits for its parent is none."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def ends(pid, seconds=10):
    until = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not is_alive(pid)


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        ("echo out; echo err >&2; exit 3", "3", b"out\nerr\n"),
        ("kill -SEGV $$", "139", b""),
        ("cat; echo behind", "0", b"behind\n"),
        (r"printf 'a\0b\nc\0'", "0", b"a\0b\nc\0"),
    ],
)
def test_a_command_that_ends(program, tmp_path, script, status, text):
    assert captured(program, 30, script, tmp_path) == (status, text)


def test_a_command_that_is_not_there(program):
    done = subprocess.run([program, "30", "/no/such/command"], capture_output=True, text=True, check=True)
    assert done.stdout == "127\ncannot run /no/such/command\n"


def test_a_command_that_prints_much_is_heard_to_its_end_and_kept_in_part(program, tmp_path):
    status, text = captured(program, 30, "yes 123456789 | head -c 3000000; exit 4", tmp_path)
    assert status == "4"
    assert 1 << 20 <= len(text) < (1 << 20) + 4096 and text == (b"123456789\n" * 300000)[: len(text)]


@pytest.mark.parametrize("closes", ["", "exec >&- 2>&-; "])
def test_what_takes_too_long_goes_with_all_that_it_started(program, tmp_path, closes):
    """Also where nobody holds the other end of the pipe any more."""
    begun = time.monotonic()
    script = f"echo before; {closes}sleep 300 & echo $! >started; sleep 300"
    assert captured(program, 1, script, tmp_path) == ("late", b"before\n")
    assert time.monotonic() - begun < 30
    assert ends(int((tmp_path / "started").read_text())), "it was killed"


def test_what_a_command_leaves_behind_it_goes_with_it(program, tmp_path):
    script = "sleep 300 >/dev/null 2>&1 & echo $! >started; exit 5"
    assert captured(program, 30, script, tmp_path) == ("5", b"")
    assert ends(int((tmp_path / "started").read_text()))


def test_a_command_ends_with_the_program_that_runs_it(program, tmp_path):
    """Ctrl-C on the terminal reaches the program alone."""
    child = subprocess.Popen([program, "300", "sh", "-c", "echo $$ >started; exec sleep 300"], cwd=tmp_path)
    started = tmp_path / "started"
    while not started.exists() or not started.read_text():
        time.sleep(0.01)
    pid = int(started.read_text())
    assert os.getpgid(pid) == pid != os.getpgid(child.pid)
    child.kill()
    child.wait()
    assert ends(pid)


def test_the_status_of_a_command_under_who_ignores_children_that_end(sim):
    def ignore():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    assert sim("--", "sh", "-c", "exit 3", preexec_fn=ignore).returncode == 3
    lua = [MOONFERRY, "-e", "print(os.execute 'exit 3')"]
    assert subprocess.run(lua, capture_output=True, text=True, preexec_fn=ignore).stdout == f"{3 << 8}\n"
    done = subprocess.run([MOONFERRY, "doctor", "--json", "missing"], capture_output=True, text=True, preexec_fn=ignore)
    assert '"executable"' in done.stdout and "ended with 125" not in done.stdout


def test_a_signal_does_what_it_did_before_a_command_begins_and_after_it_has_ended(tmp_path):
    words = [compiled(tmp_path, EARLY, "process.c"), "a command"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("143\n", -signal.SIGTERM)


def test_a_report_waits_for_room_in_a_pipe_that_does_not_block(tmp_path):
    """As a command leaves its standard error that has made it so."""
    from_it, to_us = os.pipe()
    os.set_blocking(to_us, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(to_us, b"x" * 512)
    words = [MOONFERRY, "sim", "--", "sh", "-c", "echo $$ >ran"]
    child = subprocess.Popen(words, cwd=tmp_path, stderr=to_us)
    os.close(to_us)

    def is_behind_the_command():
        ran = tmp_path / "ran"
        pid = ran.read_text() if ran.exists() else ""
        if not pid.endswith("\n") or os.path.exists(f"/proc/{pid.strip()}"):
            return False
        with open(f"/proc/{child.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "SZ"

    until = time.monotonic() + 60
    while not is_behind_the_command():
        assert time.monotonic() < until
        time.sleep(0.01)
    with open(from_it, "rb") as pipe:
        said = pipe.read()[filled:]
    assert said.startswith(b"moonferry sim: 0 findings; 1 run (seed 0)"), said
    assert child.wait(timeout=60) == 0


def test_a_signal_between_two_runs_ends_neither_the_report_nor_the_folder(tmp_path):
    """A pipe among what a run has left keeps the program there until somebody writes into it."""
    told, report, folders = tmp_path / "told", tmp_path / "report.json", tmp_path / "tmp"
    folders.mkdir()
    script = 'mkfifo "$SIM_JOURNAL/0" && printf %s "$SIM_JOURNAL/0" >new && mv new told'
    words = [MOONFERRY, "sim", "--seeds", "3", "--report", report, "--", "sh", "-c", script]
    with subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "TMPDIR": str(folders)}) as child:
        until = time.monotonic() + 60
        while not told.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        with open(told.read_text(), "wb"):
            child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=60) == 128 + signal.SIGTERM
    assert json.loads(report.read_text())["runs"] == [{"seed": 0, "status": 0}]
    assert not list(folders.iterdir())


def test_a_report_is_alone_in_its_file_where_a_standard_stream_is_closed(tmp_path):
    words = f"{MOONFERRY} sim --report r.json -- true"
    for closed in ("2>&-", "1>&- 2>&-", "<&- >&- 2>&-"):
        assert subprocess.run(["sh", "-c", f"{words} {closed}"], cwd=tmp_path).returncode == 0
        assert json.loads((tmp_path / "r.json").read_text())["count"] == 0


WRITES = """
local ffi = require "ffi"
ffi.cdef "int cuInit(unsigned); long write(int, const void *, unsigned long);"
ffi.load "libcuda.so.1".cuInit(0)
local text = "sim: race: a line of the program's own\\n"
ffi.C.write(2, text, #text)
"""


def test_what_a_program_writes_to_a_closed_stream_is_no_finding(tmp_path):
    (tmp_path / "writes.lua").write_text(WRITES)
    words = f"{MOONFERRY} sim --report r.json -- luajit writes.lua 2>&-"
    assert subprocess.run(["sh", "-c", words], cwd=tmp_path).returncode == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["processes"], report["count"]) == (1, 0)
