"""The mutants of a C file: each a change of one place in one function.

Responsible for: finding the places, in whatever form they are written: every call (as a statement, an operand, an
initialiser, what is returned), every comparison, every && || and !, every constant that a condition compares with or
that says which stream, space or use is meant, every true and false, and every store but the first to a variable; on
request each memory order.
Invariant: a mutant's place is the function, what is mutated there, and which occurrence of it in the function this is,
so that a change elsewhere in the file leaves it as it was.
Must not know: what any of it means.
"""

import re
from dataclasses import dataclass
from pathlib import Path

SWAPS = {">": ">=", "<": "<=", "==": "!=", "!=": "==", ">=": ">", "<=": "<", "&&": "||", "||": "&&"}
# What else could have been meant.
NAMES = {
    "true": "false", "false": "true",
    "MF_STREAM_CURRENT": "MF_STREAM_DEFAULT", "MF_STREAM_DEFAULT": "MF_STREAM_PER_THREAD",
    "MF_STREAM_PER_THREAD": "MF_STREAM_DEFAULT", "MF_STREAM_NO_ORDER": "MF_STREAM_HOST",
    "MF_STREAM_HOST": "MF_STREAM_NO_ORDER", "MF__DEVICE": "MF__PINNED", "MF__PINNED": "MF__DEVICE",
    "MF__MANAGED": "MF__PINNED", "MF_READ": "MF_WRITE", "MF_WRITE": "MF_READ",
}  # fmt: skip
# The orders that promise less. One of two promises is broken at a time.
ORDERS = {
    "memory_order_acquire": ["memory_order_relaxed"],
    "memory_order_release": ["memory_order_relaxed"],
    "memory_order_acq_rel": ["memory_order_acquire", "memory_order_release"],
}
# A status that is compared with one of these is ignored instead.
GOOD = {"MF_OK", "CUDA_SUCCESS", "hipSuccess"}
# Calls that only make or look at words, and what looks like a call and is none.
# Each is asked for by specs/lua/null_spec.lua, which is none of the specs that judge here.
NULL_CHECKS = {"MF__NEED", "MF__NEED_OUT"}
WORDS = re.compile(
    r"snprintf|vsnprintf|fprintf|va_\w+|str\w+|sizeof|offsetof|mf__end|mf_device_format|mf__\w*_name|if|for|while"
    r"|switch|return|assert|_Static_assert|lua_\w*string\w*|luaL_check\w+|_Alignof|Py_(?:BEGIN|END)_\w+"
)
DEFINED = {"_WIN32": False, "__APPLE__": False, "__linux__": True, "Py_GIL_DISABLED": False}  # where mutants are judged
KEYWORDS = {"if", "for", "while", "switch", "return", "else", "do", "case", "default", "break", "continue", "goto"}
# Functions of the system whose answer is no status.
TRUTHS = ("atomic_compare_exchange_strong", "atomic_compare_exchange_strong_explicit")
TOKEN = re.compile(r"[A-Za-z_]\w*|\d\w*|->|\+\+|--|&&|\|\||[-+*/%&|^]=|==|!=|<=|>=|<<|>>|\S")


def listed_as(path):
    """The file's name in the list. Files of the bindings have the names of others, and are called by their folders."""
    parts = path.parts
    return "/".join(parts[parts.index("bindings") + 1 :]) if "bindings" in parts else path.name


def as_file(path):
    """A name for what is made of a file."""
    return listed_as(path).replace("/", "-")


@dataclass
class Mutant:
    """One change of one file."""

    path: Path
    function: str
    what: str  # the call, operator, constant or variable
    number: int  # which of its occurrences in the function
    line: int
    old: str  # the line as it is
    new: str
    start: int  # of what is replaced in the file's text
    end: int
    to: str
    index: int = 0  # among the file's, from 1

    @property
    def place(self):
        return f"{listed_as(self.path)} {self.function} {self.what} {self.number}"

    def __str__(self):
        return f"{self.place} (line {self.line}): {self.old}  ->  {self.new}"


class Places:
    """A file's text, and the mutants of it, as a language's own class finds them."""

    def __init__(self, path):
        self.path, self.text, self.seen = path, path.read_text(), {}

    def mutant(self, function, what, start, end, new):
        """The next of its kind. Every line keeps its number."""
        self.seen[function, what] = number = self.seen.get((function, what), 0) + 1
        first, last = self.text.rfind("\n", 0, start) + 1, self.text.find("\n", end)
        lines = self.text[first:last], self.text[first:start] + new + self.text[end:last]
        old, changed = (" ".join(text.split()) for text in lines)
        line = self.text.count("\n", 0, start) + 1
        new += "\n" * self.text.count("\n", start, end)
        return Mutant(self.path, function, what, number, line, old, changed, start, end, new)

    def mutants(self):
        """In the order of their places, numbered."""
        found = sorted(self.all(), key=lambda m: m.start)
        for index, mutant in enumerate(found, 1):
            mutant.index = index
        return found


def of_this_system(text):
    """The text with what `#ifdef` keeps for other systems blanked out, every other character where it was."""
    lines, within = [], []  # (whether DEFINED knows the condition, whether it holds) of each `#if` around the line
    for line in text.split("\n"):
        words = line.split()
        if words and words[0] in ("#if", "#ifdef", "#ifndef"):
            known = words[0] != "#if" and words[1] in DEFINED
            within.append((known, not known or DEFINED[words[1]] == (words[0] == "#ifdef")))
        elif words and words[0] == "#else":
            known, holds = within.pop()
            within.append((known, not (known and holds)))
        elif words and words[0] == "#endif":
            within.pop()
        lines.append(line if all(holds for _, holds in within) else " " * len(line))
    return "\n".join(lines)


def blank(text):
    """The text with comments, strings, characters and directives blanked out, every other character where it was."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|^[ \t]*#(?:[^\n\\]|\\.)*'

    def empty(match):
        return (
            re.sub(r"[^\n]", " ", match[0])
            if match[0][0] not in "\"'"
            else match[0][0] + re.sub(r"[^\n]", " ", match[0][1:-1]) + match[0][-1]
        )

    return re.sub(pattern, empty, text, flags=re.DOTALL | re.MULTILINE)


def matching(tokens, at, step=1):
    """The index of the bracket that closes (or, backwards, opens) the one at ${at}."""
    depth = 0
    opens, closes = ("([{", ")]}") if step > 0 else (")]}", "([{")
    while 0 <= at < len(tokens):
        depth += (tokens[at][0] in opens) - (tokens[at][0] in closes)
        if depth == 0:
            return at
        at += step
    return None


def functions(tokens):
    """(name, index of the opening brace, index of the closing one) of each function but those that take `...`, which
    none can call with the arguments that it was given itself."""
    at = 0
    while at < len(tokens):
        if tokens[at][0] != "{":
            at += 1
            continue
        end = matching(tokens, at)
        if tokens[at - 1][0] == ")":
            open_at = matching(tokens, at - 1, -1)
            if [t[0] for t in tokens[at - 4 : at - 1]] != [".", ".", "."]:
                yield tokens[open_at - 1][0], at, end
        at = end + 1


def declared(paths):
    """What each function that is declared in the files returns: "void", "bool", "pointer", "number" or our type."""
    kinds = dict.fromkeys(TRUTHS, "bool")
    pattern = re.compile(r"(?:^|[;{}])\s*((?:[A-Za-z_]\w*[\s*]+)+?)(?:\(\*(\w+)\)|(\w+))\(", re.MULTILINE)
    for path in paths:
        for match in pattern.finditer(blank(path.read_text())):
            words, name = match[1], match[2] or match[3]
            if KEYWORDS & set(words.split()):
                continue
            kind = "pointer" if "*" in words else "void" if re.search(r"\bvoid\b", words) else "number"
            ours = re.search(r"\b(mf_\w+)\s*$", words)
            kind = ours[1] if ours and kind == "number" else kind
            kinds[name] = "bool" if re.search(r"\bbool\b", words) and kind == "number" else kind
    return kinds


class Finder(Places):
    """The places of one file in C."""

    def __init__(self, path, kinds, has_orders=False):
        super().__init__(path)
        self.kinds, self.has_orders = kinds, has_orders
        self.tokens = [(m[0], m.start(), m.end()) for m in TOKEN.finditer(blank(of_this_system(self.text)))]

    def span(self, first, last):
        return self.tokens[first][1], self.tokens[last][2]

    def chain_start(self, at):
        """The first token of the expression a->b.c that ends at ${at}."""
        while at >= 2 and self.tokens[at - 1][0] in ("->", "."):
            at -= 2
            if self.tokens[at][0] in ")]":
                at = matching(self.tokens, at, -1)
                if self.tokens[at - 1][0].isidentifier() and self.tokens[at - 1][0] not in KEYWORDS:
                    at -= 1
        return at

    def is_statement(self, first, last):
        before = self.tokens[first - 1][0]
        opens = before in (";", "{", "}", "else", "do") or (before == ":" and self.is_label(first - 1))
        if before == ")":
            opens = self.tokens[matching(self.tokens, first - 1, -1) - 1][0] in ("if", "for", "while")
        return opens and self.tokens[last + 1][0] == ";"

    def is_label(self, at):
        """Not the colon of `a ? b : c`."""
        while self.tokens[at][0] not in (";", "{", "}"):
            if self.tokens[at][0] == "?":
                return False
            at -= 1
        return True

    def calls(self, function, first, last):
        for at in range(first, last):
            name = self.tokens[at][0]
            if not name.isidentifier() or self.tokens[at + 1][0] != "(" or WORDS.fullmatch(name):
                continue
            if name in NULL_CHECKS:
                continue
            start, end = self.chain_start(at), matching(self.tokens, at + 1)
            what = name
            if name == "MF__ASK" or name.endswith("_ASK"):
                what = self.tokens[at + 2][0]
            kind = self.kinds.get(name, "number")
            cast = [t[0] for t in self.tokens[start - 3 : start]] == ["(", "void", ")"]
            if self.is_statement(start - 3 if cast else start, end):
                yield self.mutant(function, what, *self.span(start - 3 if cast else start, end), "")
            elif kind == "bool":
                yield self.mutant(function, what + "=true", *self.span(start, end), "true")
                yield self.mutant(function, what + "=false", *self.span(start, end), "false")
            else:
                empty = {"pointer": "NULL", "void": "(void)0", "number": "0"}.get(kind, f"({kind}){{0}}")
                yield self.mutant(function, what, *self.span(start, end), empty)

    def is_ordered_with(self, at):
        """A constant that something is compared with. An equality is mutated by its operator."""
        return bool({self.tokens[at - 1][0], self.tokens[at + 1][0]} & {">", "<", ">=", "<="})

    def is_operator(self, at):
        """Binary, and not part of a declaration such as `_Atomic(mf__pool *)`."""
        return self.tokens[at - 1][0][-1] not in "(,=&|!<>" and self.tokens[at + 1][0] not in (")", ",")

    def counts_up(self, at):
        """The bound of `for (int i = 0; i < n; i++)`, whose other side is a sanitizer's to see."""
        counter = self.tokens[at - 1][0]
        begins = [t[0] for t in self.tokens[at - 5 : at - 1]]
        return begins[0] == counter and begins[1:] == ["=", "0", ";"]

    def operand_start(self, at):
        """The first token of the operand that ends at ${at}: a name, a chain or a call."""
        if self.tokens[at][0] in ")]":
            at = matching(self.tokens, at, -1)
            at -= self.tokens[at - 1][0].isidentifier() and self.tokens[at - 1][0] not in KEYWORDS
        return self.chain_start(at)

    def operator(self, function, at):
        token, start, end = self.tokens[at]
        if token in ("==", "!=") and self.tokens[at + 1][0] in GOOD:
            first = self.operand_start(at - 1)
            operand = self.text[self.tokens[first][1] : self.tokens[at - 1][2]]
            what = f"{token} {self.tokens[at + 1][0]}"
            return self.mutant(function, what, *self.span(first, at + 1), f"({operand}, {int(token == '==')})")
        return self.mutant(function, token, start, end, SWAPS[token])

    def negates_truth(self, at):
        """A call that is mutated into both answers."""
        while self.tokens[at + 2][0] in ("->", "."):
            at += 2
        return self.tokens[at + 2][0] == "(" and self.kinds.get(self.tokens[at + 1][0]) == "bool"

    def operators(self, function, first, last):
        for at in range(first, last):
            token, start, end = self.tokens[at]
            if token in SWAPS and self.is_operator(at) and not (token == "<" and self.counts_up(at)):
                yield self.operator(function, at)
            elif token == "!" and not self.negates_truth(at):
                yield self.mutant(function, token, start, end, "")
            elif token in NAMES:
                yield self.mutant(function, token, start, end, NAMES[token])
            elif self.is_ordered_with(at) and (token.isdigit() or (token.isupper() and token.isidentifier())):
                yield self.mutant(function, token, start, end, f"({token} + 1)")

    def stores(self, function, first, last):
        """`a = b;`, `a += b;`, `a++;` and `++a;` that stand alone, and are no declaration."""
        for at in range(first, last):
            token = self.tokens[at][0]
            if not (token == "=" or re.fullmatch(r"[-+*/%&|^]=|\+\+|--", token)):
                continue
            end = at
            while self.tokens[end][0] != ";":
                end = matching(self.tokens, end) + 1 if self.tokens[end][0] in "([{" else end + 1
                if end >= last or self.tokens[end][0] in ")]}":
                    break
            if end >= last or self.tokens[end][0] != ";":
                continue
            start = at - 1
            if self.tokens[start][0] in ")]":
                start = matching(self.tokens, start, -1) - 1
            start = self.chain_start(start)
            what = "".join(t[0] for t in self.tokens[start:at]) + " ="
            while self.tokens[start - 1][0] == "*" and self.tokens[start - 2][0] in (";", "{", "}", ")", "else"):
                start -= 1
            if self.is_statement(start, end - 1) and not self.is_call(at + 1, end - 1):
                yield self.mutant(function, what, *self.span(start, end - 1), "")

    def is_call(self, first, last):
        """`rc = f(...)`, which is mutated as a call."""
        while self.tokens[first][0].isidentifier() and self.tokens[first + 1][0] in ("->", "."):
            first += 2
        return self.tokens[first + 1][0] == "(" and matching(self.tokens, first + 1) == last

    def orders(self, function, first, last):
        for token, start, end in self.tokens[first:last]:
            for less in ORDERS.get(token, []) if self.has_orders else []:
                yield self.mutant(function, token, start, end, less)

    def all(self):
        for function, first, last in functions(self.tokens):
            for find in (self.calls, self.operators, self.stores, self.orders):
                yield from find(function, first, last)


def finder_of(path, kinds, has_orders=False):
    """A static function of the file may have the name of another file's."""
    return Finder(path, {**kinds, **declared([path])}, has_orders)


def mutants_of(path, kinds):
    return finder_of(path, kinds).mutants()
