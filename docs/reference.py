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

# The parts of Lua's page: the prefix of a call in each, and the table in the source that holds the methods.
CLASSES = [
    ("Tensors", "t:", "Tensor"),
    ("Streams", "s:", "Stream"),
    ("Scopes", "s:", "Scope"),
    ("Rings", "ring:", "Ring"),
]

# Tables that functions of Lua take or return, and where each is described.
TABLES = [
    ("create", "Options"),
    ("create", "WrapOptions"),
    ("transfer", "ToOptions"),
    ("exchange", "ExportOptions"),
    ("exchange", "ImportOptions"),
    ("device", "Pool"),
]


def entries_of(text):
    """(name, arguments, comment lines) of each documented function of a Lua file, a returned one as `return`."""
    found, comment = {}, []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("---"):
            comment.append(line[3:].removeprefix(" ") if not line.startswith("---@") else line[3:])
            continue
        named = re.match(r"(?:function ([\w.:]+)\((.*)\)|return function\((.*)\)|((?:Tensor|py)\.\w+) = )", line)
        if named and comment:
            name = named[1] or ("return" if named[3] is not None else named[4].replace("Tensor.", "Tensor:"))
            arguments = named[2] or named[3] or ""
            if not any(words.startswith("@param ...") for words in comment):  # taken to be refused
                arguments = arguments.removesuffix(", ...")
            found[name] = (arguments, comment)
        comment = []
    return found


def lua_source():
    """Per module: its documented functions."""
    return {path.stem: entries_of(path.read_text()) for path in sorted(LUA.glob("*.lua"))}


def typed(text):
    """A type of LuaCATS, and the words behind it."""
    depth, i = 0, 0
    while i < len(text) and (depth > 0 or text[i] != " " or text[i - 1] in ":,"):
        depth += {"(": 1, "{": 1, "<": 1, "[": 1, ")": -1, "}": -1, ">": -1, "]": -1}.get(text[i], 0)
        i += 1
    return text[:i], text[i:].strip()


def item(name, kind, words):
    optional = " (optional)" if name.endswith("?") else ""
    return f"* `{name.rstrip('?')}`{optional}: `{kind}`" + (f", {words}" if words else "")


def lua_words(arguments, comment):
    """The arguments, and the comment as paragraphs with a list of what goes in and comes out."""
    words = [line for line in comment if not line.startswith("@")]
    parts = []
    for line in comment:
        param = re.match(r"@param (\S+) (.*)", line)
        result = re.match(r"@return (.*)", line)
        kind = re.match(r"@type fun\((.*?)\)(?:: (.*))?$", line)
        if param:
            parts.append(item(param[1], *typed(param[2])))
        elif result:
            parts.append(f"* returns `{result[1]}`")
        elif kind:
            arguments = re.sub(r"self: [\w.]+,? ?", "", kind[1])
            parts += [f"* returns `{kind[2]}`"] if kind[2] else []
    return arguments, shown("\n".join(words).strip(), "lua") + ("\n\n" + "\n".join(parts) if parts else "")


def shown(text, language):
    """Paragraphs, of which an indented one is code."""
    parts = text.split("\n\n")
    code = [f"```{language}\n{textwrap.dedent(part)}\n```" if part.startswith("    ") else part for part in parts]
    return "\n\n".join(code)


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
    """The list of a class's fields; the words of one may go on in the next lines."""
    block = text[text.index(f"---@class {kind}\n") :].split("\n")[1:]
    fields = []
    for line in block:
        field = re.match(r"---@field (\w+\??) (.+)", line)
        if field:
            fields.append([field[1], *typed(field[2])])
        elif line.startswith("--- ") and fields:
            fields[-1][2] += " " + line[3:].strip()
        else:
            break
    return fields


def field_list(text, kind, prefix=""):
    return "\n".join(item(prefix + name, *rest) for name, *rest in fields_of(text, kind)) + "\n"


def lua_page():
    source = lua_source()
    texts = {name: (LUA / f"{name}.lua").read_text() for name in source}
    parts = [HEAD + "# Lua\n"]
    lines = texts["init"].splitlines()
    about = [line[3:].removeprefix(" ") for line in lines if line.startswith("---")]
    parts.append(shown("\n".join(about[: about.index("@class moonferry")]).strip(), "lua") + "\n")
    parts.append('## `mf = require "moonferry"`\n')
    parts += [lua_entry("mf.", name, entry) for name, entry in sorted(public_of_mf(source)) if entry]
    parts.append("### Values\n\n" + field_list(texts["init"], "moonferry", "mf."))
    for title, prefix, kind in CLASSES:
        parts.append(f"## {title}\n")
        fields = field_list(texts[kind.lower()], f"moonferry.{kind}", {"Scope": ""}.get(kind, prefix[:-1] + "."))
        parts += [re.sub(r"^\* `t.handle.*\n", "", fields, flags=re.MULTILINE)] if fields.strip() else []
        documented = [item for module in source.values() for item in module.items()]
        methods = {name.split(":")[1]: entry for name, entry in documented if name.startswith(kind + ":")}
        parts += [lua_entry(prefix, name, entry) for name, entry in sorted(methods.items())]
    parts.append("## Tables of options and results\n")
    parts += [f"### `moonferry.{kind}`\n\n" + field_list(texts[file], f"moonferry.{kind}") for file, kind in TABLES]
    parts.append('## `py = require "moonferry.python"`\n\n[lua-hosts-python.md](lua-hosts-python.md) is the guide.\n')
    entries = {**source["python"], **source["borrowed"], **source["life"]}
    parts += [lua_entry("py.", k[3:], v) for k, v in sorted(entries.items()) if k.startswith("py.")]
    return "\n".join(parts)


def python_words(doc, names=()):
    """A docstring: tables and examples as they stand, and each line that begins with a parameter's name in a list."""
    parts = []
    for paragraph in inspect.cleandoc(doc).split("\n\n"):
        indented = [line.startswith("    ") for line in paragraph.splitlines()]
        if all(indented):
            parts.append("```python\n" + textwrap.dedent(paragraph) + "\n```")
        elif any(indented):
            parts.append("```text\n" + textwrap.dedent(paragraph) + "\n```")
        else:
            parts.append(re.sub(r"(__\w+__)", r"`\1`", in_lists(paragraph, names)))
    return "\n\n".join(parts)


def in_lists(paragraph, names):
    lines, listed = [], False
    for line in paragraph.splitlines():
        named = re.match(r"(\w+(?:, \w+)*): ", line)
        if named and set(named[1].split(", ")) <= set(names):
            lines += [] if listed or not lines else [""]
            lines.append("* " + ", ".join(f"`{name}`" for name in named[1].split(", ")) + line[named.end() - 2 :])
            listed = True
        elif re.match("Raises |Standard: ", line):
            lines += ["", line]
            listed = False
        else:
            lines.append("  " + line if listed else line)
    return "\n".join(lines).strip()


def parameters_of(obj):
    try:
        return [name for name in inspect.signature(obj).parameters if name != "self"]
    except (TypeError, ValueError):
        return ()


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


def words_of(function):
    return python_words(function.__doc__ or "", parameters_of(function))


def members_of(kind):
    """Its public names, and the protocols that it has beside those of every object."""
    for name, value in sorted(vars(kind).items()):
        special = name.startswith("__") and name not in vars(object) and re.search("arrow|dlpack|array|cuda", name)
        if value is None or type(value).__name__ in ("_tuplegetter", "PyCapsule"):
            continue
        if (special or not name.startswith("_")) and getattr(value, "__doc__", None):
            yield name, value


def python_class(prefix, kind):
    parts = [f"## `{prefix}{kind.__name__}`\n", python_words(kind.__doc__ or "", parameters_of(kind)) + "\n"]
    for name, value in members_of(kind):
        value = getattr(value, "__func__", value)
        if callable(value):
            parts.append(f"### `{kind.__name__}.{name}{signature_of(value)}`\n\n{words_of(value)}\n")
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
        parts.append(f"### `moonferry.{name}{signature_of(public[name])}`\n\n{words_of(public[name])}\n")
    parts.append("## Dtypes\n\n" + ", ".join(f"`{name}`" for name in sorted(dtypes)) + "\n")
    for kind in sorted(classes, key=lambda kind: kind.__name__):
        parts += python_class("moonferry.", kind)
    about = python_words(mpi.__doc__).split("Responsible")[0].strip()
    parts.append(f"# MPI\n\n{about}\n\n[distributed.md](distributed.md) is the guide.\n")
    for name in sorted(mpi.__all__):
        value = getattr(mpi, name)
        parts.append(f"## `moonferry.mpi.{name}{signature_of(value)}`\n\n{words_of(value)}\n")
    parts.append("# Lua in Python\n\n[python-hosts-lua.md](python-hosts-lua.md) is the guide.\n")
    for name in sorted(luajit.__all__):
        value = getattr(luajit, name)
        if isinstance(value, type) and name == value.__name__:
            parts += python_class("moonferry.luajit.", value)
        elif callable(value) and not isinstance(value, type):
            parts.append(f"## `moonferry.luajit.{name}{signature_of(value)}`\n\n{words_of(value)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "lua.md").write_text(lua_page())
    (ROOT / "docs" / "python.md").write_text(python_page())
