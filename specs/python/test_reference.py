"""The reference pages: each public name is there with its words, the pages are as the source says, and the table of
names says what exists."""

import importlib.util
import re
from pathlib import Path

import pytest

import moonferry as mf
from moonferry import luajit, mpi

ROOT = Path(__file__).resolve().parent.parent.parent
spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)


def page(name):
    return (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize("name", ["lua.md", "python.md"])
def test_the_pages_are_what_the_source_says(name):
    made = reference.lua_page() if name == "lua.md" else reference.python_page()
    assert page(name) == made, f"docs/{name} is not up to date: docs/reference.py writes it"


def keys(lua, code):
    return sorted(lua.execute(f"local t = {{}} for k in pairs({code}) do t[#t + 1] = k end return t").values())


def headings(text, prefix):
    return {m[1] for m in re.finditer(rf"^##+ `{prefix}(\w+)", text, re.MULTILINE)}


def test_every_name_of_lua_is_there(lua):
    text = page("lua.md")
    said = headings(text, r"mf\.") | set(re.findall(r"^\* `mf\.(\w+)`", text, re.MULTILINE))
    assert set(keys(lua, 'require "moonferry"')) - said == set()
    assert set(keys(lua, 'require("moonferry.tensor").Tensor')) - headings(text, "t:") == set()
    assert set(keys(lua, 'require "moonferry.python"')) - headings(text, r"py\.") == set()
    tables = set(re.findall(r"moonferry\.\w*Options|moonferry\.Pool", text))
    assert tables - set(re.findall(r"^### `(.*)`", text, re.MULTILINE)) == set()
    fields = set(re.findall(r"^\* `t\.(\w+)`", text, re.MULTILINE))
    t = lua.execute('return require("moonferry").zeros(2)')
    for name in fields:
        assert lua.eval("(...)[1][(...)[2]] ~= nil", lua.table(t, name)), name


def test_every_name_of_python_is_there():
    text = page("python.md")
    for name in mf.__all__:
        assert re.search(rf"`(moonferry\.)?{name}[`(]", text), name
    for name in luajit.__all__:
        value = getattr(luajit, name)
        if callable(value) and getattr(value, "__name__", "") == name:
            assert re.search(rf"`moonferry\.luajit\.{name}[`(]", text), name
    for name in mpi.__all__:
        assert f"`moonferry.mpi.{name}(" in text, name
    for kind in (mf.Tensor, mf.Stream, mf.Lua):
        for name in vars(kind):
            if not name.startswith("_"):
                assert re.search(rf"### `{kind.__name__}\.{name}[`(]", text), name


def test_an_editor_knows_every_method_of_lua_and_its_arguments():
    """In each file that adds methods the class is named again, for lua-language-server, and arguments have types."""
    for path in sorted(reference.LUA.glob("*.lua")):
        text = path.read_text()
        if "function Tensor:" in text or "\nTensor." in text:
            assert "---@class moonferry.Tensor\n" in text, path
        for name, (arguments, comment) in reference.entries_of(text).items():
            typed = {m[1] for line in comment for m in re.finditer(r"^@param ([\w.]+)", line)}
            if name.startswith("Tensor:") and not any(line.startswith("@type") for line in comment):
                missing = {a.strip() for a in arguments.split(",") if a.strip()} - typed
                missing -= {"..."} if typed else set()  # what stands for several arguments, each of which has its line
                assert not missing or path.stem == "checked", (path, name, missing)


def test_no_entry_is_without_words():
    for name in ("lua.md", "python.md"):
        entries = re.split(r"^##+ ", page(name), flags=re.MULTILINE)[1:]
        called = [e.split("\n", 1) for e in entries if "(" in e.partition("\n")[0]]
        bare = [heading for heading, words in called if len(words.strip().partition("* ")[0]) < 10]
        assert bare == []


def test_what_others_call_it_is_what_the_error_says():
    part = page("names.md").partition("## What other libraries call it")[2].partition("\n## ")[0]
    pairs = [line.strip("| ").replace("`", "").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    t = mf.zeros((2, 3))
    assert {here: names.replace(", ", " ") for names, here in pairs[:-3]} == mf._hint.TENSOR
    for _, here in pairs:
        for name in re.findall(r"\bt\.(\w+)", here):
            assert hasattr(t, name), name


def rows():
    """The table of docs/names.md: what each operation is, and its names in C, Lua and Python."""
    for line in page("names.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] != "what" and not set(cells[0]) <= {"-", " "}:
            yield cells


def test_the_table_of_names_says_what_exists(lua):
    header = (ROOT / "runtime" / "include" / "moonferry.h").read_text()
    mf_names, methods = keys(lua, 'require "moonferry"'), keys(lua, 'require("moonferry.tensor").Tensor')
    t = lua.execute('return require("moonferry").zeros(2)')
    for what, in_c, in_lua, in_python in rows():
        for name in re.findall(r"`(mf_\w+)", in_c):
            assert re.search(rf"\b{name}\(", header), (what, name)
        for prefix, name in re.findall(r"`(mf\.|t:|t\.)(\w+)", in_lua):
            known = {"mf.": mf_names, "t:": methods}.get(prefix)
            assert name in known if known else lua.eval("(...)[1][(...)[2]] ~= nil", lua.table(t, name)), (what, name)
        for prefix, name in re.findall(r"`(moonferry\.|t\.)(\w+)", in_python):
            assert hasattr(mf if prefix == "moonferry." else mf.Tensor, name), (what, name)


def test_the_names_of_opengl_are_there(lua):
    from moonferry import gl

    contexts = keys(lua, 'require("moonferry.gl") and require("moonferry.gl_picture").Context')
    for what, _, in_lua, in_python in rows():
        for name in re.findall(r"`gl:(\w+)", in_lua):
            assert name in contexts, (what, name)
        for name in re.findall(r"`gl\.(\w+)", in_python):
            assert hasattr(gl.Context, name) or hasattr(gl, name), (what, name)


def test_what_python_and_lua_both_have_is_in_the_table(lua):
    text = "\n".join("|".join(row) for row in rows())
    both = set(keys(lua, 'require("moonferry.tensor").Tensor')) & set(vars(mf.Tensor))
    both |= set(keys(lua, 'require "moonferry"')) & set(mf.__all__)
    missing = sorted(name for name in both if not re.search(rf"[.:]{name}\b", text))
    assert missing == []


def test_one_operation_has_one_name():
    """In a row, the last words of the names are the same, or the row says in what they differ."""
    for what, in_c, in_lua, in_python in rows():
        prefixes = r"`(?:mf_tensor_|mf\.|t:|t\.|moonferry\.|mf_)(\w+)"
        names = [re.findall(prefixes, cell)[:1] for cell in (in_c, in_lua, in_python)]
        different = {name[0] for name in names if name}
        assert len(different) <= 1 or "(" in what, (what, different)
