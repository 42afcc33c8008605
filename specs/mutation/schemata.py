"""One file that holds all of its mutants: which of them a process runs, the environment variable MUTANT says where the
file is loaded, and again after each fork.

Responsible for: writing a copy of each function for each of its mutants, and in the function's place one that calls the
copy that is asked for and notes that it was called. So a file is compiled and linked once, not once for each mutant.
Must not know: how a mutant is found or judged.
"""

import re

from . import find

MARKS_NBYTES = 1 << 14  # one mark for each function
# The constructor comes before those of the sources, which may call the file's functions.
BEGIN = """
#ifndef MUTANT__BEGIN /* a file may include headers that have this, too */
#define MUTANT__BEGIN
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static int mutant__number;
static unsigned char *mutant__reached;
static void mutant__choose(void) {
  const char *number = getenv("MUTANT");
  if (number != NULL) mutant__number = atoi(number);
}
__attribute__((constructor(101))) static void mutant__begin(void) {
  const char *path = getenv("MUTANT_REACHED");
  mutant__choose();
  pthread_atfork(NULL, NULL, mutant__choose);
  if (path == NULL) return;
  int file = open(path, O_RDWR);
  if (file < 0) return;
  void *map = mmap(NULL, MARKS_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map != MAP_FAILED) mutant__reached = map;
}
#endif
""".replace("MARKS_NBYTES", str(MARKS_NBYTES))


# The copies are called by the function alone.
CALLED_BY_THE_LOADER = re.compile(r"__attribute__\s*\(\((?:con|de)structor\)\)|\bMF__AT_END\b")


def behind_macros(tokens, at):
    """The token behind macros that make other functions, static ones or with attributes."""
    start = at
    while tokens[at][0] in ("static", "__attribute__"):
        at = at + 1 if tokens[at][0] == "static" else find.matching(tokens, at + 1) + 1
    if tokens[at][0].isupper() and tokens[at + 1][0] == "(":
        return behind_macros(tokens, find.matching(tokens, at + 1) + 1)
    return start


class Function:
    """Where a function of the file begins, and its parameters' names."""

    def __init__(self, finder, name, first, last):
        tokens = finder.tokens
        open_at = find.matching(tokens, first - 1, -1)
        at = open_at - 1
        while at > 0 and tokens[at - 1][0] not in (";", "}"):
            at -= 1
        at = behind_macros(tokens, at)
        self.name = name
        self.start, self.name_at = tokens[at][1], tokens[open_at - 1][1]
        self.brace, self.end = tokens[first][1], tokens[last][2]
        words = [t[0] for t in tokens[at : open_at - 1]]
        self.gives = "void" not in words or "*" in words
        self.arguments = list(self.parameters(tokens, open_at, first - 1))

    @staticmethod
    def parameters(tokens, open_at, close_at):
        """The last name of each parameter: `int (*f)(void)` has its own before the list."""
        name, depth, done = None, 0, False
        for at in range(open_at + 1, close_at + 1):
            token = tokens[at][0]
            if depth == 0 and token in (",", ")") or at == close_at:
                if name not in (None, "void"):
                    yield name
                name, done = None, False
                continue
            depth += (token in "([") - (token in ")]")
            if token == "(" and tokens[at + 1][0] == "*":
                name, done = tokens[at + 2][0], True
            elif not done and depth == 0 and token.isidentifier():
                name = token


def copy_of(text, function, number, start=None, end=None, new=""):
    """The function under another name, with its mutation."""
    body = text[function.name_at + len(function.name) : function.end]
    if start is not None:
        shift = function.name_at + len(function.name)
        body = body[: start - shift] + new + body[end - shift :]
    body = body.replace("__func__", f'"{function.name}"')  # the errors tell the function's own name
    head = CALLED_BY_THE_LOADER.sub("", text[function.start : function.name_at])
    return f"{head}{function.name}__m{number}{body}\n"


UNSEEN = '__attribute__((no_sanitize("thread")))'  # TSan would take three times as long


def dispatcher(text, function, numbers, index):
    head = text[function.start : function.brace]
    call = ", ".join(function.arguments)
    mark = f"  if (mutant__reached != NULL) __atomic_store_n(&mutant__reached[{index}], 1, __ATOMIC_RELAXED);"
    lines = [f"{UNSEEN} {head}{{", mark, "  switch (mutant__number) {"]
    for number in [*numbers, "default"]:
        label, of = ("default", 0) if number == "default" else (f"case {number}", number)
        give = f"return {function.name}__m{of}({call});"
        lines.append(f"    {label}: {give if function.gives else f'{function.name}__m{of}({call}); return;'}")
    return "\n".join([*lines, "  }", "}\n"])


def write(finder, mutants, left_out=(), mark=0):
    """The text, and the names of the functions in the order of their marks, which begin at ${mark}. The mutants are
    numbered from 1; those left out are no code. Each mutant's lines come with their number: (first line, number)."""
    text, parts, at, lines, names = finder.text, [], 0, [], []
    total = 0

    def add(part):
        nonlocal total
        parts.append(part)
        total += part.count("\n")

    for name, first, last in find.functions(finder.tokens):
        mine = [(n, m) for n, m in enumerate(mutants, 1) if m.function == name and n not in left_out]
        function = Function(finder, name, first, last)
        add(text[at : function.start])
        if not names:
            add(BEGIN)
        add(f"{text[function.start : function.brace]};\n")
        lines.append((total, 0))
        add(copy_of(text, function, 0))
        for number, mutant in mine:
            lines.append((total, number))
            add(copy_of(text, function, number, mutant.start, mutant.end, mutant.to))
        lines.append((total, 0))
        add(dispatcher(text, function, [n for n, _ in mine], mark + len(names)))
        names.append(name)
        at = function.end
    add(text[at:])
    return "".join(parts), names, lines
