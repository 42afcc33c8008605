"""Which functions own, order or share something, and which only make numbers of numbers.

Responsible for: what is an ordering or lifetime step, by its words. A function has one if it gets or gives back memory
or references, waits, shares work or has somebody wait; if it calls a driver, or a function through a pointer, of which
nobody knows what it does; if it uses a variable that threads share; or if it calls a function that does any of this,
through however many others. Must not know: which files there are, or what is judged of them.
"""

import re

from . import find
from .schemata import Function

WORDS = re.compile(
    r"\b(?:mf__\w*(?:alloc|free|retain|release|refs|lock|wait|settle|order|fence|use|share|drop)\w*|mf_tensor_\w*re\w+"
    r"|malloc|calloc|realloc|free|pthread_\w+|atomic_\w+|_Atomic|_Thread_local)\b"
)
THROUGH_POINTERS = re.compile(r"\b\w*ASK\(|(?:->|\.)\w+\(")
CALL = re.compile(r"\b([A-Za-z_]\w*)\(")
# `static` in front of variables that can change.
VARIABLES = re.compile(r"^static (?!const [^*\n]*[=;])(?!.*\*const )([^=;(){}]*)(?: =|;)", re.MULTILINE)
NAME = re.compile(r"(\w+)(?:\[[^\]]*\])*(?:,|$)")


class Source:
    """A file's functions: (name, text, parameters), and the names of its variables."""

    def __init__(self, path):
        finder = find.finder_of(path, {})
        text, at, rest = find.blank(find.of_this_system(finder.text)), 0, []
        self.name, self.functions = path.name, []
        for name, first, last in find.functions(finder.tokens):
            function = Function(finder, name, first, last)
            start, end = finder.tokens[first][1], finder.tokens[last][2]
            self.functions.append((name, text[start:end], function.arguments))
            rest.append(text[at:start])
            at = end
        declared = VARIABLES.findall("".join([*rest, text[at:]]))
        self.variables = {name for names in declared for name in NAME.findall(names)}

    def is_step(self, text, arguments):
        words = set(re.findall(r"\w+", text))
        through = THROUGH_POINTERS.search(text) or set(CALL.findall(text)) & set(arguments)
        return bool(WORDS.search(text) or through or words & self.variables)


def owners(paths):
    """(file, function) of all that have such a step."""
    calls, found = {}, set()
    for source in map(Source, paths):
        for name, text, arguments in source.functions:
            calls[source.name, name] = set(CALL.findall(text))
            if source.is_step(text, arguments):
                found.add((source.name, name))
    shared = {name: (file, name) for file, name in calls if name.startswith("mf_")}

    def callees(file, names):
        return {(file, name) if (file, name) in calls else shared.get(name) for name in names}

    while new := {at for at, names in calls.items() if at not in found and callees(at[0], names) & found}:
        found |= new
    return found
