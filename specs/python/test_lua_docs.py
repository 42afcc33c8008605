"""docs/python-hosts-lua.md and the README show what is so: their examples are run, in order."""

import doctest
import pathlib
import re

import moonferry as mf

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python-hosts-lua.md"


def run_examples(path, names):
    """How many examples there were; `names` is what they begin with."""
    blocks = re.findall(r"^```python\n(>>> .*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), names, path.name, str(path), 0)
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
    result = runner.run(test, out=report.append, clear_globs=False)
    for name in ("lua", "stoppable", "small", "box"):
        for _ in range(3 if name in test.globs else 0):
            test.globs[name].gccollect()
    assert result.failed == 0, "".join(report)
    return len(test.examples)


def test_the_examples_of_the_page():
    assert run_examples(PAGE, {}) > 40


def test_the_examples_of_the_readme():
    assert run_examples(ROOT / "README.md", {"moonferry": mf}) >= 3


def test_the_page_lists_every_name_of_the_module():
    from moonferry import luajit

    text = PAGE.read_text(encoding="utf-8")
    for name in ("LuaTable", "LuaFunction", "LuaThread", "LuaObject", "LuaSyntaxError", "LuaMemoryError"):
        assert name in luajit.__all__ and name in text and hasattr(mf, name)
