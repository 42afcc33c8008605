"""docs/python-hosts-lua.md shows what is so: its examples are run, in order."""

import doctest
import pathlib
import re

import moonferry as mf

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python-hosts-lua.md"


def test_the_examples_of_the_page():
    text = PAGE.read_text(encoding="utf-8")
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    names = {}
    test = doctest.DocTestParser().get_doctest(examples, names, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 40
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
    result = runner.run(test, out=report.append, clear_globs=False)
    names = test.globs
    for name in ("lua", "stoppable", "small", "box"):
        for _ in range(3):
            names[name].gccollect()
    assert result.failed == 0, "".join(report)


def test_the_page_lists_every_name_of_the_module():
    from moonferry import luajit

    text = PAGE.read_text(encoding="utf-8")
    for name in ("LuaTable", "LuaFunction", "LuaThread", "LuaObject", "LuaSyntaxError", "LuaMemoryError"):
        assert name in luajit.__all__ and name in text and hasattr(mf, name)
