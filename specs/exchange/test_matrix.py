"""The matrix's tools: what follows from two entries, that a cell which says otherwise is noticed, and that the pages
say what is expected."""

import copy
import json
import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import entries
import environments
import kept
import libraries
import others
import published
import pytest
import report
import rule
import simulated
import verdict
from environments import HERE, ROOT

ENTRIES = [entry for table in entries.TABLES for entry in entries.libraries(table)]
BY_NAME = {(entry["table"], entry["name"]): entry for entry in ENTRIES}
PAIRS = [(a, b) for a in ENTRIES for b in ENTRIES if a["table"] == b["table"]]
# Those that are tried with Moonferry alone, which is the first.
OURS, *MORE = entries.libraries(entries.ALONE)
ALONE = [pair for entry in MORE for pair in ((OURS, entry), (entry, OURS))]
# Chance put all arrays at multiples of 64, or none.
ALIGNED, UNALIGNED = {}, {"sharing": ["first", "second"], "dtypes": rule.DTYPES, "layouts": rule.LAYOUTS}


def library(name, **odd):
    """An entry of which nothing is odd but what is named."""
    plain = {"table": "host", "env": "", "module": name, "note": "", "host": False, "writes": True, "falls_back": False}
    return {**plain, "name": name, "lacks": [], "gives": {}, "takes": {}, "brings": {}, "limits": {}, "grows": {}} | odd


# What a run finds between two libraries of which nothing is odd, as checks.lua says it.
CELL = {
    "table": "host",
    "from": "A",
    "to": "B",
    "kind": "zero-copy",
    "faults": [],
    "died": {},
    "unaligned": {"sharing": ["second"]},
    "checks": {
        "sharing": {"kind": "zero-copy", "written": "A, Moonferry, Moonferry, B"},
        "dtypes": dict.fromkeys(rule.DTYPES, "same bits"),
        "layouts": {**dict.fromkeys(rule.LAYOUTS, "zero-copy"), "empty": "taken"},
        "readonly": {"word": "kept", "why": "it is read-only"},
        "lifetime": {"word": "nothing left", "rounds": 10000},
        "time": {"python": 300},
    },
}


def changed(**changes):
    cell = copy.deepcopy(CELL)
    for path, value in changes.items():
        *folders, name = path.split("__")
        place = cell
        for folder in folders:
            place = place[folder]
        place[name] = value
    return cell


def differences(cell, a=None, b=None):
    return list(verdict.differences(cell, a or library("A"), b or library("B")))


def test_nothing_odd_is_what_is_expected_of_an_entry_that_says_nothing():
    assert differences(CELL) == []
    assert differences(changed(checks__time={"python": 10**9})) == []


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"checks__sharing__kind": "copied"}, "sharing: found 'copied', expected 'zero-copy' by takes of B, which"),
        ({"checks__sharing__written": "A"}, "written: found 'A', expected 'A, Moonferry, Moonferry, B' by write of"),
        ({"unaligned": {}}, "alignment: found '64', expected 'any' by gives of A, which says nothing of 'unaligned'"),
        ({"checks__dtypes__bool": "other bits"}, "dtype bool: found 'other bits', expected 'same bits' by takes of B"),
        ({"checks__dtypes__bool": "Moonferry -> B: no"}, "dtype bool: found 'refused by B' (no), expected 'same bits'"),
        ({"checks__dtypes__float7": "same bits"}, "dtype float7: found 'same bits', expected 'nothing' by rule.py"),
        ({"checks__layouts__c": "teleported"}, "layout c: found 'teleported', expected 'zero-copy' by takes of B"),
        ({"checks__layouts__heap": "zero-copy"}, "layout heap: found 'zero-copy', expected 'nothing' by rule.py"),
        ({"checks__readonly__word": "lost by B"}, "read-only: found 'lost by B' (it is read-only), expected 'kept'"),
        ({"checks__lifetime__word": "it leaks"}, "lifetime: found 'it leaks', expected 'nothing left' by grows of A"),
    ],
)
def test_another_word_is_noticed(changes, said):
    [found] = differences(changed(**changes))
    assert found.startswith(said)


def test_a_dtype_that_was_not_tried_is_noticed():
    cell = changed()
    del cell["checks"]["dtypes"]["int8"]
    [found] = differences(cell)
    assert found.startswith("dtype int8: found 'not tried', expected 'same bits'")


@pytest.mark.parametrize(
    "odd, said",
    [
        (
            {"takes": {"sliced": "copied"}},
            ["layout sliced: found 'zero-copy', expected 'copied by B' by takes['sliced']"],
        ),
        ({"takes": {"c": "copied"}}, ["layout c:", "read-only:", "sharing:", "written:"]),
        ({"takes": {"float8": "refused"}}, [f"dtype {name}:" for name in sorted(rule.GROUPS["float8"])]),
        (
            {"takes": {"readonly": "lost"}},
            ["read-only: found 'kept' (it is read-only), expected 'lost by B' by takes["],
        ),
        ({"takes": {"readonly": "refused"}}, ["layout zero:", "read-only: found 'kept'"]),
        (
            {"takes": {"writable": "locked"}},
            ["written: found 'A, Moonferry, Moonferry, B', expected 'A, Moonferry, Mo"],
        ),
        ({"takes": {"unaligned": "copied"}}, ["sharing, unaligned: found 'the same', expected 'copied by B' by takes"]),
        ({"lacks": ["int8"]}, ["dtype int8: found 'same bits', expected 'not tried' by lacks of B"]),
        (
            {"limits": {"fortran": "no axes"}},
            ["layout fortran: found 'zero-copy', expected 'refused by B, copy taken'"],
        ),
        ({"writes": False}, ["read-only: found 'kept'", "written:"]),
    ],
)
def test_a_cell_that_is_better_than_a_wrong_trait_is_noticed(odd, said):
    found = differences(CELL, b=library("B", **odd))
    assert len(found) == len(said)
    assert all(text.startswith(beginning) for text, beginning in zip(found, said))


def test_the_reason_of_a_refusal_is_asked_for():
    cell = changed(checks__layouts__sliced="refused: it is Sunday; Moonferry's copy: taken")
    strict, loose = (library("B", takes={"sliced": word}) for word in ("refused: no strides", "refused"))
    [said] = differences(cell, b=strict)
    assert said.startswith(
        "layout sliced: found 'refused by B, copy taken' with the reason 'it is Sunday', expected 'no"
    )
    assert differences(cell, b=loose) == []
    assert "copy refused" in differences(changed(checks__layouts__sliced="refused: no"), b=loose)[0]


def test_a_source_that_is_read_only_is_copied_on_request_where_the_sink_refuses_that():
    words = rule.expected(library("A", gives={"readonly": "always"}), library("B", takes={"readonly": "refused"}), {})
    assert words["sharing"].word == "copied on request by B" and words["read-only"].word == "a copy"
    assert {words[f"layout {name}"].word for name in rule.LAYOUTS} == {"copied by Moonferry", "taken"}


def test_a_copy_on_request_may_be_refused_as_well():
    """What stands in its way is then not that it is read-only."""
    b = library("B", takes={"readonly": "refused", "rank 12": "refused: too many", "sliced": "refused"})
    words = rule.expected(library("A", gives={"readonly": "always"}), b, {})
    assert words["layout rank 12"][:2] == ("refused by B, copy refused", "too many")
    assert words["layout sliced"].word == words["layout c"].word == "copied by Moonferry"


def test_on_a_device_two_environments_are_one_process():
    a, b = (library(name, table="cuda", env=name) for name in "AB")
    assert rule.expected(a, b, {})["sharing"].word == "zero-copy"
    locked = library("A", table="cuda", env="A", gives={"readonly": "always"})
    words = rule.expected(locked, library("B", table="cuda", env="B", takes={"readonly": "refused"}), {})
    assert words["sharing"].word == "copied on request by B" and words["layout zero"].word == "copied by Moonferry"


def test_of_two_processes_each_word_is_of_shared_memory():
    a, b = library("A", env="one", gives={"bool": "refused"}), library("B", env="two", lacks=["complex"])
    words = rule.expected(a, b, {})
    assert words["sharing"].word == "second process" and words["layout negative"].word == "copied into shared memory"
    assert words["dtype complex64"].word == "refused by B" and words["dtype bool"].word == "not tried"


def test_an_address_that_no_sink_can_take_changes_what_is_expected():
    b = library("B", takes={"unaligned": "refused: not aligned"})
    words = rule.expected(library("A"), b, {"dtypes": ["int8"], "layouts": ["scalar", "empty"]})
    assert words["dtype int8"].word == "refused by B" and words["dtype int16"].word == "same bits"
    assert words["layout scalar"][:2] == ("refused by B, copy taken", "not aligned")
    assert words["layout empty"].word == "taken"


@pytest.mark.parametrize(
    "odd, said",
    [
        ({"takes": {"slicd": "copied"}}, "A: takes: nothing is called 'slicd'; a dtype, a layout or one of ["),
        (
            {"takes": {"sliced": "copies"}},
            "A: takes['sliced'] is 'copies'; one of ['copied', 'kept', 'refused'] expected",
        ),
        ({"gives": {"readonly": "lost"}}, "A: gives['readonly'] is 'lost'; one of ['always', 'kept'] expected"),
        ({"takes": {"dtype": "kept"}}, "A: takes: nothing is called 'dtype'"),
        ({"brings": {"B": {"bool": "yes"}}}, "A: brings['B']['bool'] is 'yes'; one of"),
        ({"lacks": ["float9"]}, "A: lacks 'float9', which is no dtype"),
        ({"falls_back": "yes"}, "A: falls_back is 'yes'; true or false expected"),
    ],
)
def test_an_entry_with_a_word_that_has_no_meaning_is_refused(odd, said):
    with pytest.raises(ValueError) as error:
        rule.check([library("A", **odd)])
    assert str(error.value).startswith(said)


def words_of(a, b, unaligned):
    return [(word, text) for word, text, _ in rule.expected(a, b, unaligned).values()]


def matters(entry, traits):
    """Whether a cell of a library would be another if its entry had these traits."""
    changed = {**entry, **traits}
    return any(
        words_of(*pair, where) != words_of(*(changed if e is entry else e for e in pair), where)
        for pair in [*PAIRS, *ALONE]
        if entry in pair
        for where in (ALIGNED, UNALIGNED)
    )


def without(said, name):
    """A field of an entry that does not say this."""
    if isinstance(said, dict):
        return {other: word for other, word in said.items() if other != name}
    return [other for other in said if other != name]


@pytest.mark.parametrize("entry", [*ENTRIES, *MORE], ids=lambda entry: f"{entry['table']}-{entry['name']}")
def test_each_trait_of_an_entry_changes_a_word_of_a_cell(entry):
    rule.check([entry])
    for field in ("lacks", "gives", "takes", "brings", "limits", "grows"):
        for name in entry[field]:
            assert matters(entry, {field: without(entry[field], name)}), f"{field}[{name!r}] of {entry['name']}"
    assert not entry["falls_back"] or matters(entry, {"falls_back": False}), f"falls_back of {entry['name']}"


def test_a_cell_that_is_otherwise_is_named(capsys):
    assert verdict.judge([changed(checks__sharing__kind="copied")], [library("A"), library("B")], {}) == 1
    said = capsys.readouterr().out
    assert "not ok host: A -> B: sharing: found 'copied', expected 'zero-copy' by takes of B" in said
    assert "0 passed, 1 failed, 0 skipped" in said


def test_a_fault_and_an_ended_process_are_failures(capsys):
    cells = [changed(kind="fault", faults=["other bytes"]), changed(kind="crash", died={"layouts": "SIGSEGV"})]
    assert verdict.judge(cells, [library("A"), library("B")], {}) == 1
    said = capsys.readouterr().out
    assert "not ok host: A -> B: fault: other bytes" in said and "not ok host: A -> B: crash: layouts: SIGSEGV" in said


def test_a_cell_that_is_missing_is_a_skip_with_its_reason(capsys):
    cells = [changed(kind="missing", missing="no network"), CELL]
    assert verdict.judge(cells, [library("A"), library("B")], {}) == 0
    said = capsys.readouterr().out
    assert "skip 1 cells (A -> B): no network" in said and "1 passed, 0 failed, 1 skipped" in said


def test_a_run_of_which_every_cell_is_missing_has_failed(capsys):
    assert verdict.judge([changed(kind="missing", missing="no network")], [], {}) == 1
    assert "0 passed, 0 failed, 1 skipped" in capsys.readouterr().out


def test_a_cell_that_is_missing_is_a_failure_of_a_strict_run(capsys):
    assert verdict.judge([changed(kind="missing", missing="no network")], [], {}, strict=True) == 1
    said = capsys.readouterr().out
    assert "not ok host: A -> B: missing: no network" in said and "0 passed, 1 failed, 0 skipped" in said


def test_an_optional_environment_that_is_not_there_fails_no_run(capsys):
    absent = simulated.Large("torch")
    absent.python = ROOT / "nowhere"
    absent.make()
    a, b = library("A", table="cuda"), library("B", table="cuda", env="torch")
    places = {"cuda": environments.Environment("cuda"), "torch": absent}
    [cell] = the_program().run_all([(a, b)], [a, b], places, 1, None)
    assert (cell["kind"], cell["optional"]) == ("missing", True) and "make test-sim-torch makes it" in cell["missing"]
    assert verdict.judge([cell, CELL], [a, library("A"), library("B"), b], {}, strict=True) == 0
    assert "skip 1 cells (A -> B): build/sim/torch-venv is not there" in capsys.readouterr().out
    page = report.table_in_words({"libraries": [a, b], "cells": [cell]}, "cuda")
    assert f"* A -> B: missing: {cell['missing']}" in page


def test_two_that_are_made_apart_are_one_environment_on_a_device(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated, "ROOT", tmp_path)
    monkeypatch.setattr(simulated, "BUILD", tmp_path)
    jax, both, torch = simulated.large({"torch", "jax"})[0::2] + simulated.large({"torch"})
    assert [each.name for each in (jax, both, torch)] == ["jax", "jax+torch", "torch"]
    packages = [each.here / "lib" / "python3" / "site-packages" for each in (jax, torch, simulated.Simulated("cuda"))]
    for folder in packages[:2]:
        folder.mkdir(parents=True)
    for each in (jax, torch):
        each.python.parent.mkdir()
        each.python.touch()
    both.make()
    assert both.reason == "build/sim/venv is not there: specs/sim/setup.sh makes it"
    both.reason = None
    packages[2].mkdir(parents=True)
    (simulated.Simulated("cuda").here / "bin").mkdir()
    simulated.Simulated("cuda").python.touch()
    both.make()
    started = (tmp_path / "jax+torch" / "sitecustomize.py").read_text()
    assert both.reason is None and both.python == jax.python and str(packages[0]) not in started
    assert started.index(str(packages[1])) < started.index(str(packages[2]))
    a, b = (library(name, table="cuda", env=name) for name in ("torch", "jax"))
    variables, reason = the_program().variables_of(a, b, {"jax+torch": both})
    assert reason is None and variables["MOONFERRY_PYTHON"] == str(jax.python)


# Three libraries; of the run of their nine cells A -> B was finished well, and B -> A ended its process.
ABC = [library(name) for name in "ABC"]
NINE = [(a, b) for a in ABC for b in ABC]


def ended_run(folder):
    begun = kept.Begun(NINE, folder)
    begun.add(changed())
    begun.add(changed(**{"from": "B", "to": "A", "kind": "crash", "died": {"time": "SIGTERM"}}))
    with begun.path.open("a") as file:
        file.write('{"table": "host", "fr')
    return begun


def test_a_run_that_was_ended_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    ended_run(tmp_path)
    again, program, ran = kept.Begun(NINE, tmp_path), the_program(), []
    assert again.cells == {("host", "A", "B"): CELL} and "1 of 9 cells are those" in capsys.readouterr().out
    monkeypatch.setattr(program, "missing_library", lambda entry, _: None)
    monkeypatch.setattr(program, "variables_of", lambda *_: ({}, None))
    monkeypatch.setattr(program, "run_cell", lambda a, b, *_: ran.append((a, b)) or changed(**{"from": a, "to": b}))
    cells = program.run_all(NINE, ABC, {}, 1, again)
    assert len(cells) == 9 and len(ran) == 8 and ("A", "B") not in ran
    assert len(kept.Begun(NINE, tmp_path).cells) == 9
    again.end()
    assert kept.Begun(NINE, tmp_path).cells == {} and list(tmp_path.iterdir()) == []


def test_other_cells_and_other_code_are_another_run(tmp_path, monkeypatch):
    ended_run(tmp_path)
    assert kept.Begun(NINE[:3], tmp_path).cells == {} and len(kept.Begun(NINE, tmp_path).cells) == 1
    monkeypatch.setenv("MATRIX_ROUNDS", "12")
    assert kept.Begun(NINE, tmp_path).cells == {} and list(tmp_path.iterdir()) == []


def test_a_part_goes_into_the_last_whole_result(tmp_path):
    path = tmp_path / "matrix.json"
    part = {"libraries": ABC, "cells": [changed(kind="copied")], "ranks": []}
    assert kept.merged(part, ABC, path)[1][:2] == [("host", "A", "A"), ("host", "A", "C")]
    gone = changed(**{"from": "D"})
    cells = [changed(**{"from": a["name"], "to": b["name"]}) for a, b in NINE]
    path.write_text(json.dumps({"libraries": [], "cells": [*cells, gone], "ranks": ["sent"]}))
    whole, lacking = kept.merged(part, ABC, path)
    assert (lacking, whole["ranks"], whole["libraries"]) == ([], ["sent"], ABC)
    assert [cell["kind"] for cell in whole["cells"]] == ["zero-copy", "copied", *["zero-copy"] * 7]


def of_table(table, names, **changes):
    entries = [library(name, table=table) for name in names]
    cells = [changed(table=table, versions={}, **{"from": a, "to": b}, **changes) for a in names for b in names]
    return {"libraries": entries, "cells": cells, "ranks": []}


def test_a_run_of_one_table_is_published_beside_the_others_as_the_page_has_them():
    host, cuda = of_table("host", "ABC"), of_table("cuda", "AB", kind="copied")
    host["cells"][1] |= {"kind": "copied on request"}
    host["cells"][2]["checks"]["sharing"]["unaligned"] = {"kind": "copied", "why": "it is odd"}
    entries = host["libraries"] + cuda["libraries"]
    page = report.markdown(
        {"libraries": entries, "cells": host["cells"] + cuda["cells"], "ranks": ["sent", "received"]}
    )
    anew = of_table("cuda", "AB", kind="refused")
    made, lacking = published.completed(anew, entries, page)
    assert lacking == [] and report.counts(made["cells"]) == "13 cells: 8 zero-copy, 1 copied on request, 4 refused"
    assert [bool(cell["checks"]["sharing"].get("unaligned")) for cell in made["cells"][:3]] == [False, False, True]
    assert report.markdown(made) == report.markdown(
        {"libraries": entries, "cells": host["cells"] + anew["cells"], "ranks": ["sent", "received"]}
    )
    more = [*entries, library("D")]
    assert published.completed(anew, more, page)[1][0] == ("host", "A", "D")
    anew["cells"].pop()
    assert published.completed(anew, entries, page)[1] == [("cuda", "B", "B")]


def test_the_page_in_docs_can_be_read_back():
    made, lacking = published.completed({"cells": [], "ranks": []}, ENTRIES, (ROOT / "docs" / "matrix.md").read_text())
    assert lacking == [] and len(made["cells"]) == len(PAIRS) and made["ranks"]
    assert any(cell["checks"]["sharing"].get("unaligned") for cell in made["cells"])


def test_each_build_has_a_whole_result_of_its_own():
    dev, timed = (kept.folder_of(ROOT / "build" / name) for name in ("dev", "timed"))
    assert dev == environments.BUILD / "whole" and timed == environments.BUILD / "whole-timed"


def test_two_ranks_that_fail_are_a_failure(capsys):
    assert verdict.judge([CELL], [library("A"), library("B")], {"mpi4py, two ranks": "it ended with 1"}) == 1
    said = capsys.readouterr().out
    assert "not ok mpi4py, two ranks: it ended with 1\n1 passed, 1 failed, 0 skipped\n" in said


def the_program():
    loader = SourceFileLoader("matrix_program", str(HERE / "matrix"))
    program = module_from_spec(spec_from_loader("matrix_program", loader))
    loader.exec_module(program)
    return program


def drawn(monkeypatch, seed, share):
    monkeypatch.setenv("MOONFERRY_SPEC_SEED", seed)
    return [(a["table"], a["name"], b["name"]) for a, b in the_program().drawn(ENTRIES, share)]


def test_a_share_has_all_cells_of_moonferry_and_others_in_each_commit(monkeypatch, capsys):
    ours = {(a["table"], a["name"], b["name"]) for a, b in PAIRS if "Moonferry" in (a["name"], b["name"])}
    one, other = (drawn(monkeypatch, seed, 0.15) for seed in ("2", "4"))
    assert drawn(monkeypatch, "2", 0.15) == one and set(one) != set(other) and len(set(one)) == len(one)
    assert ours == set(one) & set(drawn(monkeypatch, "2", 0)) and len(one) == len(ours) + round(
        0.15 * (len(PAIRS) - len(ours))
    )
    assert "seed 2 draws " in capsys.readouterr().out
    assert len(drawn(monkeypatch, "2", 1)) == len(drawn(monkeypatch, "2", None)) == len(PAIRS)


def test_a_name_that_no_library_has_is_a_failure(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["matrix", "--venv", "--table", "host", "--only", "NumPy", "Nmpy"])
    with pytest.raises(SystemExit, match="^matrix: no library of host is called Nmpy; Moonferry, NumPy, PyTorch, "):
        the_program().main()


def test_the_pages_say_what_is_expected():
    cells = [{"kind": rule.expected(a, b, ALIGNED)["sharing"].word.split(" by ")[0]} for a, b in PAIRS]
    readme, page = report.README.read_text(), (ROOT / "docs" / "matrix.md").read_text()
    assert report.with_counts(readme, cells) == readme
    assert f"\n{report.counts(cells)}.\n" in page
    assert report.entry_text("ONNX Runtime") in page


def test_the_page_of_those_that_are_tried_alone_says_what_is_expected():
    page = (ROOT / "docs" / "libraries.md").read_text()
    for entry in MORE:
        words = [
            rule.expected(*pair, ALIGNED)["sharing"].word.split(" by ")[0] for pair in ((entry, OURS), (OURS, entry))
        ]
        assert re.search(rf"^\| {re.escape(entry['name'])} \| {words[0]} .*?\| {words[1]} ", page, re.MULTILINE), entry
    for other in others.OTHERS:
        assert f"| {other.name} | {other.words} |\n" in page
    assert libraries.OTHERS.split("{")[0] in page


def test_a_program_that_says_something_else_is_noticed():
    here = environments.Environment("host")
    here.here, here.python = ROOT, ROOT / ".venv" / "bin" / "python"
    assert others.run(others.Other("NumPy", "", "assert moonferry.asarray(t) is t"), here) is None
    assert others.run(others.Other("NumPy", "", "assert t[0, 0] == 1"), here) == "AssertionError"


@pytest.mark.parametrize("path", sorted(HERE.glob("environments/*.txt")), ids=lambda path: path.stem)
def test_every_requirement_is_pinned(path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert lines and all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
