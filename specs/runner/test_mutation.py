"""specs/mutation: which files are judged, and what of a file is made a mutant."""

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

SPECS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SPECS))
from mutation import find, find_lua, judge, judged, owning, runtime, schemata, wider  # noqa: E402


@pytest.fixture
def sources(tmp_path):
    """A folder with the files of NUMBERS, which own nothing, and one more."""
    for name in (*runtime.NUMBERS, "new.c"):
        (tmp_path / name).write_text("static int f(int a) { return a + 1; }\n")
    return tmp_path


def test_a_new_file_is_judged_by_itself(sources):
    paths, wrong = runtime.judged(sources)
    assert ([path.name for path in paths], wrong) == (["new.c"], [])


@pytest.mark.parametrize(
    "what", ["mf__alloc(8)", "mf_tensor_release(t)", "pthread_mutex_lock(&lock)", "atomic_load(&word)", "free(t)",
             "mf__order_use(on, use, err)", "mf__fences_settle(t, true, err)", "mf__tensor_host_use(t, false, err)",
             "mf__share(3, part, ctx)"])  # fmt: skip
def test_what_owns_or_orders_is_no_file_of_numbers(sources, what):
    (sources / "walk.c").write_text(f"/* mf__free is only named here */\nint f(void) {{ return {what}; }}\n")
    (sources / "tile.c").write_text("/* mf__free is only named here */\n")
    assert runtime.judged(sources)[1] == [f"NUMBERS has walk.c, in which {what.partition('(')[0]} is"]


def test_what_is_not_there_is_no_file_of_numbers(sources):
    (sources / "walk.c").unlink()
    assert runtime.judged(sources)[1] == ["NUMBERS has walk.c, and there is no such file"]


def test_the_runtime_has_all_of_them():
    paths, wrong = runtime.judged(runtime.SOURCES)
    assert wrong == []
    assert {path.name for path in paths} >= {"order.c", "workers.c", "gl.c", "hip_graphics.c"}


STEPS = """
static int count, counts[2];
static const int sizes[] = {1, 2};
static const char *const names[] = {"a"};
static const char *_Atomic last;
int sum(int a) { return a + sizes[0]; }
int named(int a) { return names[a] == NULL; }
int twice(int a) { return 2 * sum(a); }
void *get(int a) { return mf__alloc(a); }
void *get_two(int a) { return get(2 * a); }
static int counted(int a) { return a + count; }
int by_another_file(int a) { return mf_count(a); }
int of_pointer(const struct calls *c) { return c->run(1); }
int of_parameter(int (*run)(int)) { return run(1); }
const char *what(void) { return last; }
int asked(void) { return MF__ASK(cuInit, (0)); }
void looped(const struct loops *l, char *out) { l->row(out, 1); }
"""


def test_what_has_a_step(tmp_path):
    (tmp_path / "a.c").write_text(STEPS)
    (tmp_path / "b.c").write_text("int mf_count(int a) { counted(a); free(here); }\n"
                                  "int counted(int a) { return a; }\n")  # fmt: skip
    (tmp_path / "loops.h").write_text(
        "typedef struct loops { void (*row)(char *out, int n); int (*run)(int n); } loops;\n"
    )
    files = [tmp_path / "a.c", tmp_path / "b.c"]
    found = owning.Owners(owning.sources(files, [tmp_path / "loops.h"])).found
    assert found == {("a.c", name) for name in (
        "get", "get_two", "counted", "by_another_file", "of_pointer", "of_parameter", "what", "asked")
    } | {("b.c", "mf_count")}  # fmt: skip


AROUND = """
int f(int a) {
  if (a == 1) return 0;
  int b = a != 2;
  if (a > 3) {
    b += a == 4;
    free(here);
    b += a == 5;
  }
  for (int i = 0; i < b; i++) b += i == 6;
  while (b != 7) {
    if (b == 8) b += b == 9;
    mf__lock(b == 10);
  }
  return b == 11;
}
int g(int a) { return a == 12; }
"""


def test_what_has_to_do_with_a_step(tmp_path):
    """The condition of its block, and all from a function's first step to its last."""
    path = tmp_path / "a.c"
    path.write_text(AROUND)
    spans = owning.Owners(owning.sources([path], [])).spans("a.c")
    found = find.mutants_of(path, {})
    within = [m for m in found if any(begin <= m.start < end for _, begin, end in spans)]
    numbers = {int(n) for m in within for n in re.findall(r"[!=>]=? ([1-9]\d*)", m.old)}
    assert numbers == {3, 5, 6, 7, 8, 9, 10} and {name for name, _, _ in spans} == {"f"}


def test_of_a_file_with_both_a_part_is_judged():
    of_runtime = runtime.Runtime()
    for name in runtime.MIXED:
        [path] = of_runtime.paths([name])
        assert 0 < len(of_runtime.mutants_of(path)) < len(find.mutants_of(path, of_runtime.kinds)), name


def test_only_chosen_specs_are_asked(tmp_path):
    """Nor a build without any of them, which would be made first."""
    chosen = judge.Judge({})
    chosen.specs = {"dev": [judge.Spec(name, [], {}) for name in ("copy_spec", "order_spec")], "tsan": []}
    chosen.builds_for = lambda mutant: chosen.specs
    path = tmp_path / "order.c"
    path.write_text("int f(int a) { return a == 1; }\n")
    [mutant, *_] = find.mutants_of(path, {})
    assert [spec.name for spec in chosen.in_order("dev", mutant, None)] == ["order_spec", "copy_spec"]
    chosen.only = re.compile("copy")
    assert [spec.name for spec in chosen.in_order("dev", mutant, None)] == ["copy_spec"]
    assert [chosen.has_specs(kind) for kind in chosen.specs] == [True, False]


def test_what_survives_in_a_sample_is_asked_once_more_alone(tmp_path, monkeypatch):
    """Where the other one of the two at a time took the processor, a race may not have come about."""
    loader = importlib.machinery.SourceFileLoader("mutants", str(SPECS / "mutants"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "MEMORY", tmp_path / "caught.json")
    path = tmp_path / "race.c"
    path.write_text("int f(int a, int b) { return a == 1 && b < 2; }\n")
    found = find.mutants_of(path, {})[:2]
    asked = []

    class Lucky(judge.Judge):
        def judge(self, mutant, last):
            asked.append(mutant)
            return "" if mutant is found[1] and asked.count(mutant) == 1 else "race_spec"

        def remember(self):
            pass

    for sample, again in [(2, [found[1]]), (None, [])]:
        asked.clear()
        options = types.SimpleNamespace(sample=sample, jobs=1, within=None, ask=None, wider=None)
        run = module.Run(Lucky({}), found, {}, options)
        run.all()
        assert asked == found + again
        assert [run.faults_of(m) == "" for m in found] == [True, bool(again)]


def test_a_function_whose_mutants_are_all_caught_needs_no_run_until_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(judged, "FILE", tmp_path / "judged")
    path = tmp_path / "two.c"
    one = "int f(int a) { return a == 1; }\n"
    path.write_text(one + "int g(int a) { return a < 2; }\n")
    every = find.mutants_of(path, {})
    assert judged.left(every, every) == every
    judged.update(every, lambda m: m.function == "f")
    assert {m.function for m in judged.left(every, every)} == {"g"}
    assert judged.read().keys() == {("two.c", "f")}
    path.write_text(one.replace("1", "2") + "int g(int a) { return a < 2; }\n")
    changed = find.mutants_of(path, {})
    assert judged.left(changed, changed) == changed
    judged.update(changed, lambda m: m.function == "g")
    assert judged.read().keys() == {("two.c", "g")}


def functions_of(path, text):
    path.write_text(text)
    return {mutant.function for mutant in find.mutants_of(path, {})}


def test_what_is_for_another_system_is_no_mutant(tmp_path):
    text = """
#ifdef _WIN32
int there(int a) { return a == 1; }
#if SOMETHING
int there_too(int a) { return a == 1; }
#endif
#else
#ifdef __linux__
int here(int a) { return a == 1; }
#else
int elsewhere(int a) { return a == 1; }
#endif
#endif
#ifndef __linux__
int nowhere(int a) { return a == 1; }
#endif
#if SOMETHING
int perhaps(int a) { return a == 1; }
#endif
"""
    assert functions_of(tmp_path / "a.c", text) == {"here", "perhaps"}


def test_the_loader_calls_one_copy(tmp_path):
    path = tmp_path / "a.c"
    path.write_text("__attribute__((constructor)) static void f(void) { g(); }\n"
                    "MF__AT_END static void e(void) { g(); }\n")  # fmt: skip
    finder = find.finder_of(path, {})
    text = schemata.write(finder, finder.mutants())[0]
    heads = [line for line in text.splitlines() if "(void)" in line]
    names = {True: [], False: []}  # called by the loader, or not
    for head in heads:
        names[bool(re.search(r"constructor|MF__AT_END", head))].append(re.search(r"(\w+)\(void\)", head)[1])
    assert names[True] == ["mutant__begin", "f", "f", "e", "e"]  # declared and defined
    assert {"f__m0", "f__m1", "e__m0", "e__m2"} <= set(names[False])


def test_the_loader_calls_the_chosen_copy(tmp_path):
    """The other file's constructor comes first, by the order in which the files are linked."""
    early, path, output = tmp_path / "early.c", tmp_path / "a.c", tmp_path / "program"
    early.write_text("#include <stdio.h>\nint f(void);\nstatic int seen;\n"
                     "__attribute__((constructor)) static void begin(void) { seen = f(); }\n"
                     'int main(void) { printf("%d", seen); }\n')  # fmt: skip
    path.write_text("int f(void) { int a = 0; a++; return a; }\n")
    finder = find.finder_of(path, {})
    text, _, _ = schemata.write(finder, finder.mutants())
    (tmp_path / "mutants.c").write_text(text)
    subprocess.run(["cc", "-D_GNU_SOURCE", "-o", output, early, tmp_path / "mutants.c", "-lpthread"], check=True)
    said = [subprocess.run([output], env={"MUTANT": number}, capture_output=True).stdout for number in "01"]
    assert said == [b"1", b"0"]


LUA = """
local M = {}

local function keep(t) -- not a call(t)
  if t == nil or t.closed then
    return ffi.gc(t, free)
  end
  M.last = t
  t:close()
  local text = "if a then b() end"
  return text
end

M.each = function(list)
  for _, t in ipairs(list) do
    if keep(t) then t.open = true end
    while busy() do
      wait(function() M.waits = M.waits + 1 end)
    end
  end
end
"""


def test_the_mutants_of_a_lua_file(tmp_path):
    path = tmp_path / "a.lua"
    path.write_text(LUA)
    assert [(m.function, m.what, m.new) for m in find_lua.Finder(path).mutants()] == [
        ("keep", "==", "if t ~= nil or t.closed then"),
        ("keep", "or", "if t == nil and t.closed then"),
        ("keep", "ffi.gc", "return (t)"),
        ("keep", "M.last =", ""),
        ("keep", "t:close", ""),
        ("M.each", "keep(t)=false", "if false then t.open = true end"),
        ("M.each", "keep(t)=true", "if true then t.open = true end"),
        ("M.each", "t.open =", "if keep(t) then end"),
        ("M.each", "true", "if keep(t) then t.open = false end"),
        ("M.each", "busy()=false", "while false do"),
        ("M.each", "wait", ""),
        ("M.each", "M.waits =", "wait(function() end)"),
    ]


def test_a_mutant_of_a_lua_file_leaves_every_line_where_it_was(tmp_path):
    path = tmp_path / "a.lua"
    path.write_text("function f(a)\n  g(a,\n    a)\n  h(a)\nend\n")
    finder = find_lua.Finder(path)
    first = finder.mutants()[0]
    assert first.what == "g"
    assert (finder.text[: first.start] + first.to + finder.text[first.end :]).split("\n")[3] == "  h(a)"


CALCULATES = """
static int f(const int *p, int n, int64_t at) {
  const int first = (int)*p + n * 8;
  for (int i = 0; i < n; i++) {
    if (g(n, i) > 3) break;
  }
  MF__NEED(p);
  MF__NEED(n);
  if (n == at) at = n;
  *p = x();
  n = at;
  at = n;
  const int second = at;
  s.v = x();
  return at ? first >> 1 : h(&n, n, at);
}
"""


def test_what_a_file_calculates(tmp_path):
    path = tmp_path / "a.c"
    path.write_text(CALCULATES)
    found = {f"{m.what} {m.number}": m.new for m in wider.finder_of(path, {}).mutants()}
    assert found == {
        "any + 1": "const int first = (int)*p - n * 8;",
        "any * 1": "const int first = (int)*p + n + 8;",
        "any 8+1 1": "const int first = (int)*p + n * (8 + 1);",
        "any 8-1 1": "const int first = (int)*p + n * (8 - 1);",
        "any 0+1 1": "for (int i = (0 + 1); i < n; i++) {",
        "any g(0 1": "if (g(i, n) > 3) break;",
        "any break 1": "if (g(n, i) > 3) ;",
        "any step MF__NEED 1": "if (n == at) at = n; MF__NEED(n);",
        "any step if 1": "*p = x(); if (n == at) at = n;",
        "any step * 1": "n = at; *p = x();",
        "any ?no 1": "return at && 0 ? first >> 1 : h(&n, n, at);",
        "any ?yes 1": "return at || 1 ? first >> 1 : h(&n, n, at);",
        "any >> 1": "return at ? first << 1 : h(&n, n, at);",
        "any 1+1 1": "return at ? first >> (1 + 1) : h(&n, n, at);",
        "any 1-1 1": "return at ? first >> (1 - 1) : h(&n, n, at);",
        "any h(1 1": "return at ? first >> 1 : h(&n, at, n);",
    }
