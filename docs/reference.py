#!/usr/bin/env python3
"""Writes docs/lua.md and docs/python.md: every public name, from the annotations and the docstrings beside the code.

    PYTHONPATH=build/dev/python .venv/bin/python docs/reference.py

Responsible for the pages alone. Invariant: what has no words of its own beside the code has no entry, which the spec
(specs/python/test_reference.py) refuses. Must not know what the names do.
"""

import inspect
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LUA = ROOT / "lua" / "moonferry"
HEAD = "<!-- Written by docs/reference.py from the source; edit that. -->\n\n"

# What a page's parts are called, and which of Lua's names each has: the prefix of a call, and the table in the source.
CLASSES = [
    ("Tensors", "t:", "Tensor"),
    ("Streams", "s:", "Stream"),
    ("Scopes", "s:", "Scope"),
    ("Rings", "ring:", "Ring"),
]


def entries_of(text):
    """(name, arguments, comment lines) of each documented function of a Lua file, a returned one as `return`."""
    found, comment = {}, []
    for line in text.splitlines():
        if line.startswith("---"):
            comment.append(line[3:].removeprefix(" ") if not line.startswith("---@") else line[3:])
            continue
        named = re.match(r"(?:function ([\w.:]+)\((.*)\)|return function\((.*)\)|(Tensor\.\w+) = )", line)
        if named and comment:
            name = named[1] or ("return" if named[3] is not None else named[4].replace(".", ":"))
            found[name] = (named[2] or named[3] or "", comment)
        if line.strip():
            comment = []
    return found


def lua_source():
    """Per module: its documented functions."""
    return {path.stem: entries_of(path.read_text()) for path in sorted(LUA.glob("*.lua"))}


def lua_words(arguments, comment):
    """The arguments as they are typed, and the comment as a paragraph with a list of what goes in and comes out."""
    words = [line for line in comment if not line.startswith("@")]
    parts = []
    for line in comment:
        param = re.match(r"@param (\S+) (.*)", line)
        result = re.match(r"@return (.*)", line)
        kind = re.match(r"@type fun\((.*?)\)(?:: (.*))?$", line)
        if param:
            parts.append(f"* `{param[1].rstrip('?')}`{' (optional)' if param[1].endswith('?') else ''}: `{param[2]}`")
        elif result:
            parts.append(f"* gives `{result[1]}`")
        elif kind:
            arguments = re.sub(r"self: [\w.]+,? ?", "", kind[1])
            parts.append(f"* gives `{kind[2]}`")
    return arguments, "\n".join(words).strip() + ("\n\n" + "\n".join(parts) if parts else "")


def lua_entry(prefix, name, entry):
    arguments, words = lua_words(*entry)
    return f"### `{prefix}{name}({arguments})`\n\n{words}\n"


def public_of_mf(source):
    """The names of init.lua's table and where each comes from; constants have none."""
    text = (LUA / "init.lua").read_text()
    table = text[text.index("local mf = {") : text.index("\n}\n")]
    for name, value in re.findall(r"^  (\w+) = (.+?),$", table, re.MULTILINE):
        module = re.match(r'require "moonferry\.(\w+)"$', value)
        owner = re.match(r"(\w+)\.(\w+)$", value)
        if module:
            yield name, source[module[1]].get("return")
        elif owner and owner[1] != "C" and owner[1] != "sentinels":
            functions = source.get(owner[1], {})
            yield name, functions.get(value)
    for key, entry in source["init"].items():
        yield key.removeprefix("mf."), entry


def fields_of(text, kind):
    block = text[text.index(f"---@class {kind}\n") :]
    return re.findall(r"---@field (\w+)\?? (.+)", block[: block.index("\nlocal ")])


def lua_page():
    source = lua_source()
    parts = [HEAD + "# Lua\n"]
    lines = (LUA / "init.lua").read_text().splitlines()
    about = [line[3:].removeprefix(" ") for line in lines if line.startswith("---")]
    parts.append("\n".join(about[: about.index("@class moonferry")]).strip() + "\n")
    parts.append('## `mf = require "moonferry"`\n')
    parts += [lua_entry("mf.", name, entry) for name, entry in sorted(public_of_mf(source)) if entry]
    constants = fields_of((LUA / "init.lua").read_text(), "moonferry")
    parts.append("### Values\n\n" + "\n".join(f"* `mf.{name}`: {words}" for name, words in constants) + "\n")
    for title, prefix, kind in CLASSES:
        parts.append(f"## {title}\n")
        if kind == "Tensor":
            fields = fields_of((LUA / "tensor.lua").read_text(), "moonferry.Tensor")
            parts.append("\n".join(f"* `t.{name}`: {words}" for name, words in fields if name != "handle") + "\n")
        documented = [item for module in source.values() for item in module.items()]
        methods = {name.split(":")[1]: entry for name, entry in documented if name.startswith(kind + ":")}
        parts += [lua_entry(prefix, name, entry) for name, entry in sorted(methods.items())]
    parts.append('## `py = require "moonferry.python"`\n\n[lua-hosts-python.md](lua-hosts-python.md) is the guide.\n')
    parts += [lua_entry("py.", k[3:], v) for k, v in sorted(source["python"].items()) if k.startswith("py.")]
    return "\n".join(parts)


def python_words(doc):
    """A docstring, with its tables and examples as they stand."""
    shown = []
    for paragraph in inspect.cleandoc(doc).split("\n\n"):
        indented = [line.startswith("    ") for line in paragraph.splitlines()]
        if all(indented):
            shown.append("```python\n" + textwrap.dedent(paragraph) + "\n```")
        elif any(indented):
            shown.append("```text\n" + paragraph + "\n```")
        else:
            shown.append(re.sub(r"(__\w+__)", r"`\1`", paragraph))
    return "\n\n".join(shown)


def signature_of(obj):
    if getattr(obj, "__text_signature__", "") == "($self, object, /)":
        return "()"  # what CPython says from 3.13 on where the docstring says nothing
    try:
        text = str(inspect.signature(obj))
    except (TypeError, ValueError):
        return "()"
    text = re.sub(r"\(self, /, ", "(", re.sub(r"\(self(, /)?\)", "()", text)).replace("(self, ", "(")
    text = text.replace(" = ", "=").replace("(type, ", "(")
    return re.sub(r": '[^']*'|: [\w.\[\], |]+?(?=[=,)])| -> .*$", "", text).replace("$module, /, ", "")


def members_of(kind):
    """Its public names, and the protocols that it has beside those of every object."""
    for name, value in sorted(vars(kind).items()):
        special = name.startswith("__") and name not in vars(object) and re.search("arrow|dlpack|array|cuda", name)
        if value is None or type(value).__name__ in ("_tuplegetter", "PyCapsule"):
            continue
        if (special or not name.startswith("_")) and getattr(value, "__doc__", None):
            yield name, value


def python_class(prefix, kind):
    parts = [f"## `{prefix}{kind.__name__}`\n", python_words(kind.__doc__ or "") + "\n"]
    for name, value in members_of(kind):
        value = getattr(value, "__func__", value)
        if callable(value):
            parts.append(f"### `{kind.__name__}.{name}{signature_of(value)}`\n\n{python_words(value.__doc__)}\n")
        elif type(value).__name__ != "member_descriptor":
            parts.append(f"### `{kind.__name__}.{name}`\n\n{python_words(value.__doc__)}\n")
    return parts


def python_page():
    import moonferry
    from moonferry import luajit, mpi

    parts = [HEAD + "# Python\n", python_words(moonferry.__doc__) + "\n", "## Functions\n"]
    public = {name: getattr(moonferry, name) for name in moonferry.__all__}
    dtypes = [name for name, value in public.items() if isinstance(value, moonferry.DType)]
    classes = [value for value in public.values() if isinstance(value, type)]
    for name in sorted(n for n, v in public.items() if callable(v) and v not in classes and n not in dtypes):
        words = python_words(public[name].__doc__ or "")
        parts.append(f"### `moonferry.{name}{signature_of(public[name])}`\n\n{words}\n")
    parts.append("## Dtypes\n\n" + ", ".join(f"`{name}`" for name in sorted(dtypes)) + "\n")
    for kind in sorted(classes, key=lambda kind: kind.__name__):
        parts += python_class("moonferry.", kind)
    about = mpi.__doc__.split("Responsible")[0]
    parts.append(f"# MPI\n\n{python_words(about)}\n\n[distributed.md](distributed.md) is the guide.\n")
    for name in sorted(mpi.__all__):
        value = getattr(mpi, name)
        parts.append(f"## `moonferry.mpi.{name}{signature_of(value)}`\n\n{python_words(value.__doc__)}\n")
    parts.append("# Lua in Python\n\n[python-hosts-lua.md](python-hosts-lua.md) is the guide.\n")
    for name in sorted(luajit.__all__):
        value = getattr(luajit, name)
        if isinstance(value, type) and name == value.__name__:
            parts += python_class("moonferry.luajit.", value)
        elif callable(value) and not isinstance(value, type):
            parts.append(f"## `moonferry.luajit.{name}{signature_of(value)}`\n\n{python_words(value.__doc__)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "lua.md").write_text(lua_page())
    (ROOT / "docs" / "python.md").write_text(python_page())
