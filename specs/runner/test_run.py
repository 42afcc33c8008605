"""specs/run: what does not run is a failure, whichever way it came to be absent."""

import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

SPECS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SPECS))
import checks  # noqa: E402
import devices  # noqa: E402
import expected  # noqa: E402
import programs  # noqa: E402
import shares  # noqa: E402
from mutation import runtime  # noqa: E402

BUILD = os.environ.get("MOONFERRY_BUILD", str(SPECS.parent / "build" / "dev"))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """specs/run as a module, whose logs and builds lie elsewhere and whose list of skips is empty."""
    loader = importlib.machinery.SourceFileLoader("specs_run", str(SPECS / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("specs_run", loader))
    loader.exec_module(module)
    monkeypatch.setattr(programs, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(programs, "_done", {})
    monkeypatch.setattr(module, "SKIPS", skips(tmp_path))
    return module


def skips(folder, *lines):
    path = folder / "skips.txt"
    path.write_text("# a comment\n\n" + "".join(f"{line}\n" for line in lines))
    return expected.Skips(path)


def program(folder, text):
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def result_of(run, *, passed=0, skipped=()):
    result = run.Result()
    result.passed = passed
    result.skips = list(skipped)
    return result


def test_another_system_may_skip_more(tmp_path):
    more = tmp_path / "more.txt"
    more.write_text("? lua *: *is not installed\n")
    skips(tmp_path, "lua dev: no network")
    both = expected.Skips(tmp_path / "skips.txt", more)
    assert both.allows("lua dev", "no network")
    assert both.allows("lua dev", "torch is not installed")
    assert not both.allows("c dev", "torch is not installed")


@pytest.mark.parametrize("prefix", ["gpu", "lua", "python"])
@pytest.mark.parametrize("driver", devices.REAL)
def test_what_a_real_gpu_runs_has_programs(driver, prefix):
    tests = devices.gpu_tests("dev", driver, prefix)
    assert [test.name for test in tests if "no such program" in str(test.command[0])] == []
    assert tests and all(not set(test.env) & {"SIM_EXIT", "SIM_LEDGER"} for test in tests)


def test_every_build_that_is_configured_can_be_built():
    presets = json.loads((SPECS.parent / "CMakePresets.json").read_text())
    configured = {preset["name"] for preset in presets["configurePresets"] if not preset.get("hidden")}
    assert configured == {preset["name"] for preset in presets["buildPresets"]}


def test_two_halves_are_all_but_what_is_long(monkeypatch):
    tests = [programs.Test(f"lua.{name}", [], {}, set(), 1) for name in "daecb"]
    tests.append(programs.Test("lua.python_environment", [], {}, set(), 1))
    halves = []
    for seed in (3, 11):
        monkeypatch.setenv("MOONFERRY_SPEC_SEED", str(seed))
        halves.append([test.name[-1] for test in shares.half_under_asan("asan", tests)])
    assert halves == [["a", "c", "e"], ["b", "d"]]
    assert shares.half_under_asan("dev", tests) == tests
    monkeypatch.setenv("MOONFERRY_SPEC_WHOLE", "1")
    assert shares.half_under_asan("asan", tests) == tests


CASE = '<testsuite><testcase name="a_spec">{}</testcase></testsuite>'


def test_a_suite_of_which_nothing_passed_has_failed(run):
    assert run.run_suite("empty", "", run.Result).failures == [("empty", "nothing of it passed")]
    assert not run.run_suite("one", "", lambda: result_of(run, passed=1)).failures


def test_a_suite_that_only_skips_has_failed_although_the_skip_is_listed(run, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SKIPS", skips(tmp_path, "gpu: no GPU"))
    result = run.run_suite("gpu", "", lambda: result_of(run, skipped=[("t", "no GPU")]))
    assert result.failures == [("gpu", "nothing of it passed")]


def test_a_suite_begins_when_all_its_builds_are_there(run, monkeypatch):
    there = []
    monkeypatch.setattr(run, "need_build", there.append)
    assert run.run_suite("two", "dev tsan", lambda: result_of(run, passed=len(there))).passed == 2
    builds = {name: presets.split() for name, presets, *_ in run.suites(1)}
    assert builds["mutants"] == [*runtime.BUILDS] and builds["headers"] == []


def test_a_skip_that_is_not_listed_fails(run, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SKIPS", skips(tmp_path, "other: no network", "suite: it is *day"))
    made = result_of(run, passed=1, skipped=[("a", "no network"), ("b", "no\nnetwork "), ("c", "it is Sunday")])
    result = run.run_suite("suite", "", lambda: made)
    assert [name for name, _ in result.failures] == ["a", "b"]
    assert "suite: no network" in result.failures[0][1]


def test_a_listed_skip_that_does_not_occur_is_told_of_the_suites_that_ran(tmp_path):
    allowed = skips(tmp_path, "a: x", "a*: y", "b: z", "? a: w")
    assert allowed.allows("a", "x") and not allowed.allows("a", "z") and not allowed.allows("b", "x")
    assert allowed.allows("a", "w") and allowed.vanished(["a"]) == ["a*: y"]
    assert allowed.vanished(["a", "b"]) == ["a*: y", "b: z"]


def test_brackets_in_a_reason_are_themselves(tmp_path):
    assert skips(tmp_path, "a: [b]? *").allows("a", "[b]? c") and not skips(tmp_path, "a: [b]?").allows("a", "bc")


@pytest.mark.parametrize(
    "text, why",
    [
        ("exit 0", "no test of it was counted"),
        ("echo there is no driver; exit 77", "there is no driver"),
        ("kill -11 $$", "it died of signal 11"),
    ],
)
def test_a_program_that_reports_no_test_has_failed(run, tmp_path, text, why):
    [(name, said)] = programs.cmocka("name", program(tmp_path, text), {}).failures
    assert name == "name" and why in said


def test_a_program_whose_tests_pass_and_that_ends_badly_has_failed(run, tmp_path):
    report = f"echo '{CASE.format('')}' >$CMOCKA_XML_FILE"
    assert programs.cmocka("name", program(tmp_path, report), {}).passed == 1
    assert programs.cmocka("name", program(tmp_path, f"{report}; exit 3"), {}).failures


def test_a_program_is_called_with_the_words_of_its_test(run, tmp_path):
    text = f"[ \"$*\" != 'two words' ] || echo '{CASE.format('')}' >$CMOCKA_XML_FILE"
    assert programs.cmocka("name", program(tmp_path, text), {}, ["two", "words"]).passed == 1
    assert programs.cmocka("name", program(tmp_path, text), {}).failures


def test_the_reason_of_a_skip_in_c_is_the_line_that_says_so(run, tmp_path):
    report = f"echo '{CASE.format('<skipped/>')}' >$CMOCKA_XML_FILE"
    for line, reason in (
        ("skip a_spec: one GPU", "one GPU"),
        ("skipped: one GPU", "one GPU"),
        ("chatter", "it gives no reason"),
    ):
        assert programs.cmocka("n", program(tmp_path, f"echo {line}; {report}"), {}).skips == [("a_spec", reason)]


def test_a_registered_program_that_is_not_there_has_failed(run, tmp_path):
    [(name, said)] = programs.cmocka("name", tmp_path / "no such program", {}).failures
    assert name == "name" and "registered with CTest" in said


def test_every_source_of_a_spec_is_registered():
    build = subprocess.run(["ctest", "--test-dir", BUILD, "-N"], check=True, capture_output=True, text=True).stdout
    names = re.findall(r"^ +Test +#\d+: (\S+)$", build, re.MULTILINE)
    assert len(names) > 300 and not list(expected.unregistered(names))
    assert "specs/c/view_spec.c" in expected.unregistered([n for n in names if n != "c.view"])
    there = ["sim_order_spec", "sim_hip_stream_spec", "sim_forward_memory_spec", "sim_cudart12_ipc_spec"]
    missing = expected.sim_missing(there)
    assert {"sim_memory_spec", "sim_region_spec", "sim_forward_forward_spec", "sim_forward_cupy"} <= set(missing)
    assert "sim_cudart13_ipc_spec" in missing
    assert not {*there, "sim_hip_stream_spec or sim_forward_stream_spec"} & set(missing)


def test_a_name_finds_the_specs_of_every_language_and_nothing_else():
    found = subprocess.run(
        ["ctest", "--test-dir", BUILD, "-N", "-R", "order"], check=True, capture_output=True, text=True
    ).stdout
    names = set(re.findall(r"^ +Test +#\d+: (\S+)$", found, re.MULTILINE))
    assert {"gpu.cuda.order", "gpu.rocm.order_gone", "lua.cuda.gpu_order", "python.rocm.test_order"} <= names
    assert all("order" in name or name in ("make_venv", "make_hip-venv") for name in names)


def test_a_file_without_tests_and_a_folder_without_files_have_failed(run, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    [(_, said)] = run.pytest("name", sys.executable, [str(folder)], {}).failures
    assert "no test of it was counted" in said
    (folder / "test_one.py").write_text("def test_it():\n    pass\n")
    assert run.pytest("name", sys.executable, [str(folder)], {}).passed == 1
    (folder / "test_none.py").write_text("def tset_it():\n    pass\n")
    [(name, said)] = run.pytest("name", sys.executable, [str(folder)], {}).failures
    assert name.endswith("test_none.py") and "no test of it was counted" in said


def test_tests_that_are_deselected_without_a_word_have_failed(run, tmp_path):
    (tmp_path / "test_two.py").write_text("def test_a():\n    pass\n\n\ndef test_b():\n    pass\n")
    [(_, said)] = run.pytest("name", sys.executable, [str(tmp_path), "-k", "test_a"], {}).failures
    assert "1 deselected" in said


class Clock:
    """A clock that moves as a program's output is read, and that output: a part after each number of seconds."""

    def __init__(self, *pauses):
        self.now, self.pauses = 0, list(pauses)

    def monotonic(self):
        return self.now

    def read1(self, size):
        if not self.pauses:
            return b""
        self.now += self.pauses.pop(0)
        if self.now > 1000:
            threading.Event().wait()  # for ever
        return b"x"

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


@pytest.mark.parametrize("pauses, ends", [((9,) * 50, True), ((9, 9, 2000), False)])
def test_a_program_may_run_for_long_but_not_in_silence(monkeypatch, pauses, ends):
    clock = Clock(*pauses)
    monkeypatch.setattr(programs, "time", clock)
    listener = programs.Listener(SimpleNamespace(stdout=clock))
    assert listener.ends(10) is ends
    assert listener.text() == "x" * (len(pauses) - (not ends))


def test_a_program_that_is_silent_for_long_is_ended(run):
    code, text = run.run_program(["sh", "-c", "echo begun; exec sleep 99"], {}, 5)
    assert code is None and text == "begun\n\n[stopped: it had printed nothing for 5 s]"


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "not of one mind"),
        ("2 passed, 1 failed, 0 skipped\n", "not of one mind"),
        ("0 passed, 0 failed, 0 skipped\n", "no cell of it passed"),
        ("not ok host: A -> B: a fault\n1 passed, 1 failed, 0 skipped\n", "a fault"),
    ],
)
def test_a_matrix_without_its_last_line_has_failed(run, monkeypatch, text, why):
    monkeypatch.setattr(run, "run_program", lambda *_: (0, text))
    assert why in run.matrix("name", {}).failures[0][1]


def test_a_lua_file_without_tests_has_failed(run, monkeypatch):
    monkeypatch.setattr(programs, "run_program", lambda *_: (0, "1..0\n"))
    test = programs.Test("lua.x", [], {}, set(), 1)
    assert programs.busted("dev", test).failures == [("x", "there is no test in it")]


def test_peers_that_cannot_be_installed_fail_the_suite(run, tmp_path, monkeypatch):
    script = program(tmp_path, "echo no network; exit 1")
    monkeypatch.setattr(checks, "PEERS", (script,))
    [(_, said)] = run.run_suite("gpu", "", checks.install_peers).failures
    assert "no network" in said and "it ended with 1" in said


ASKED = {"c dev": True, "c asan": True, "cli": True, "rare": False}
EVERY = [(name, None, None, asked) for name, asked in ASKED.items()]


def test_suites_are_chosen_by_name_or_by_whole_words(run):
    def names(*words):
        return [name for name, *_ in run.choose(EVERY, words)]

    assert names() == ["c dev", "c asan", "cli"]
    assert names("c") == ["c dev", "c asan"] and names("c dev") == ["c dev"] and names("rare") == ["rare"]
    assert names("cli", "c") == ["cli", "c dev", "c asan"]
    with pytest.raises(ValueError, match="'cl'"):
        names("cl")


def test_the_committed_list_names_suites_that_there_are(run):
    names = [name for name, *_ in run.suites(1)]
    for suite, _ in expected.Skips().allowed:
        assert any(expected.matches(name, suite) for name in names), suite


def test_the_seed_is_the_commits(run):
    assert expected.seed().isdigit() and expected.seed() == expected.seed()
