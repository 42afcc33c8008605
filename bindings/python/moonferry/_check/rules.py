"""The list of rules, filled by the modules that hold them.

A rule is a function of a Library: it returns None or a note if it holds, raises Broken or NotOffered if not. Its level
is "must" or "should", as the standard's words are; "may" is what is only told. Must not know: how a rule is run.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple


class Rule(NamedTuple):
    name: str
    level: str
    standard: str
    text: str  # the rule in a sentence
    run: Callable[[Any], str | None]


RULES: dict[str, Rule] = {}

API = "array API 2025.12, "
HEADER = "DLPack 1.3 dlpack.h, "
PYTHON = "DLPack 1.3 Python specification, "


def rule(name: str, level: str, standard: str) -> Callable[[Callable[[Any], str | None]], Any]:
    def add(run: Callable[[Any], str | None]) -> Any:
        RULES[name] = Rule(name, level, standard, (run.__doc__ or "").strip().partition("\n")[0], run)
        return run

    return add
