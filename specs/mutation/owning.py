"""Which functions own, order or share something, and where; and which only make numbers of numbers.

Responsible for: what is an ordering or lifetime step, by its words. A function has one if it gets or gives back memory
or references, waits, shares work or has somebody wait; if it calls a driver, or a function through a pointer, of which
nobody knows what it does; if it uses a variable that threads share; or if it calls a function that does any of this,
through however many others. What a function does from its first step to its last counts as well, and so do the
conditions of the blocks that hold a step. Must not know: which files there are, or what is judged of them.
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


# The tables of loops that a processor has.
LOOPS = re.compile(r"\(\*(\w+)\)\((?:unsigned char|char|const void) ")


class Source:
    """A file's functions, (name, first token, last token, parameters), and the names of its variables. ${loops}: the
    names of functions that are called through a pointer and only make numbers."""

    def __init__(self, path, loops=()):
        self.finder, self.name, self.loops = find.finder_of(path, {}), path.name, set(loops)
        self.tokens = self.finder.tokens
        text, at, rest = find.blank(find.of_this_system(self.finder.text)), 0, []
        self.functions = []
        for name, first, last in find.functions(self.tokens):
            self.functions.append((name, first, last, set(Function(self.finder, name, first, last).arguments)))
            rest.append(text[at : self.tokens[first][1]])
            at = self.tokens[last][2]
        declared = VARIABLES.findall("".join([*rest, text[at:]]))
        self.variables = {name for names in declared for name in NAME.findall(names)}

    def is_step(self, at, arguments, callees):
        """${callees}: which functions have steps."""
        word = self.tokens[at][0]
        if word in self.variables:
            return True
        if WORDS.fullmatch(word):
            return True
        if self.tokens[at + 1][0] != "(":
            return False
        through = self.tokens[at - 1][0] in ("->", ".") or word in arguments
        return word in callees or word.endswith("ASK") or (through and word not in self.loops)

    def steps(self, function, callees):
        _, first, last, arguments = function
        return [at for at in range(first, last) if self.is_step(at, arguments, callees)]

    def statement(self, at):
        """The first and the last token of the statement, or of the head of the block, in which a token is."""
        first, last = at, at
        while self.tokens[first - 1][0] not in (";", "{", "}"):
            first -= 1
            if self.tokens[first][0] in ")]":
                first = find.matching(self.tokens, first, -1)
        while self.tokens[last][0] not in (";", "{", "}"):
            last = find.matching(self.tokens, last) + 1 if self.tokens[last][0] in "([" else last + 1
        return first, last

    def heads(self, at, begin):
        """Of each block around a token, from the function's own on, which has none."""
        depth = 0
        for i in range(at - 1, begin, -1):
            depth += (self.tokens[i][0] == "}") - (self.tokens[i][0] == "{")
            if depth < 0:
                depth = 0
                yield self.statement(i - 1)

    def spans(self, function, callees):
        """Where the function's text counts: (begin, end) each."""
        steps = self.steps(function, callees)
        parts = [self.statement(at) for at in steps]
        if parts:
            yield self.tokens[parts[0][0]][1], self.tokens[parts[-1][1]][2]
        for first, last in {head for at in steps for head in self.heads(at, function[1])}:
            yield self.tokens[first][1], self.tokens[last][2]


def sources(paths, headers):
    """${headers}: those with tables of loops."""
    loops = {name for path in headers for name in LOOPS.findall(find.blank(path.read_text()))}
    return [Source(path, loops) for path in paths]


class Owners:
    """The functions that have a step, of all files together."""

    def __init__(self, of):
        self.of = {source.name: source for source in of}
        calls = {(s.name, function[0]): (s, function) for s in of for function in s.functions}
        self.shared = {name: (file, name) for file, name in calls if name.startswith("mf_")}
        self.found = set()
        while new := {at for at in calls.keys() - self.found if self.has_step(*calls[at])}:
            self.found |= new

    def callees(self, source):
        """The names by which a file calls functions that have steps."""
        own = {name for file, name in self.found if file == source.name}
        static = {function[0] for function in source.functions}
        return own | {name for name, at in self.shared.items() if at in self.found and name not in static}

    def has_step(self, source, function):
        return bool(source.steps(function, self.callees(source)))

    def spans(self, name):
        """Of a file: (function, begin, end) each."""
        source = self.of[name]
        callees = self.callees(source)
        return [(f[0], *span) for f in source.functions for span in source.spans(f, callees)]
