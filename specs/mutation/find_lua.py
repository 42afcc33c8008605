"""The mutants of a Lua file, as find.py has those of a C file: each a change of one place in one function.

Responsible for: finding the places: every call that is a statement, every comparison, `and`, `or` and `not`, every
condition that is a name or a call, every true and false, every store but a local variable's first, and every finalizer
that is given to a cdata. The style of this project is relied on: a statement begins a line or follows a keyword.
Must not know: what any of it means.
"""

import re

from .find import Places, matching

SWAPS = {">": ">=", "<": "<=", "==": "~=", "~=": "==", ">=": ">", "<=": "<", "and": "or", "or": "and"}
NAMES = {"true": "false", "false": "true"}
# Calls that only make words, load modules or declare.
WORDS = re.compile(r"error|errors\.\w+|assert|require|setmetatable|print|io\.\w+|ffi\.cdef")
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\.\.\.?|==|~=|<=|>=|\S")
OPENS, CLOSES = {"function", "do", "if", "repeat"}, {"end", "until"}
BEFORE_A_STATEMENT = {"then", "do", "else", "repeat", ";", "end"}
AFTER_A_STATEMENT = {"end", "else", "elseif", "until", ";"}
# What a statement goes on after, and what it goes on with.
GOES_ON = re.compile(r"and|or|not|return|in|\.\.|[-+*/%^=~<>,({\[.:]|==|~=|<=|>=")
GOES_ON_WITH = re.compile(r"and|or|\.\.|[-+*/%^=~<>,(){}\[\].:]|==|~=|<=|>=")
MAIN = "main"


def blank(text):
    """The text with comments and what is in strings blanked out, every other character where it was."""
    comment, string = r"--\[(=*)\[.*?\]\1\]|--[^\n]*", r"\[(=*)\[.*?\]\2\]|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"

    def empty(match):
        spaces = re.sub(r"[^\n]", " ", match[0])
        return spaces if match[0].startswith("--") else f'"{spaces[1:-1]}"'

    return re.sub(f"{comment}|{string}", empty, text, flags=re.DOTALL)


class Finder(Places):
    """The places of one file in Lua."""

    def __init__(self, path):
        super().__init__(path)
        self.tokens = [(m[0], m.start(), m.end()) for m in TOKEN.finditer(blank(self.text))]
        self.words = [token for token, _, _ in self.tokens] + [";"]
        self.functions, self.owner = [], []  # (name, where its body begins); of each token, its function's name
        self.walk()

    def walk(self):
        """Which function each token is of. One without a name belongs to the one around it."""
        blocks = []
        for at, word in enumerate(self.words):
            within = next((name for name in reversed(blocks) if name), MAIN)
            self.owner.append(within)
            if word == "function":
                blocks.append(self.name_of(at, within))
                if blocks[-1]:
                    end = matching(self.tokens, self.words.index("(", at))
                    self.functions.append((blocks[-1], self.tokens[end][2]))
            elif word in OPENS and not (word == "do" and self.is_loop(at)):
                blocks.append(None)
            elif word in CLOSES:
                blocks.pop()
            if word in ("for", "while"):
                blocks.append(None)

    def is_loop(self, at):
        """Whether this `do` is that of a `for` or a `while`, which has counted as the block's beginning."""
        depth = 0
        for word in reversed(self.words[:at]):
            depth += (word in CLOSES) - (word in ("function", "if", "repeat"))
            if depth == 0 and word in ("for", "while", "do", "then", ";", "else"):
                return word in ("for", "while")
            if depth < 0:
                return False
        return False

    def name_of(self, at, within):
        """Of the function whose keyword that is: `function a.b:c(`, `a.b = function(`; None without a name."""
        if self.words[at + 1] != "(":
            name = "".join(self.words[at + 1 : self.words.index("(", at)])
        elif self.words[at - 1] == "=":
            name = "".join(self.words[self.chain_start(at - 2) : at - 1])
        else:
            return None
        return name if within == MAIN else f"{within}/{name}"

    def chain_start(self, at):
        """The first token of a.b:c that ends at ${at}."""
        while at >= 2 and self.words[at - 1] in (".", ":") and (self.words[at - 2].isidentifier()):
            at -= 2
        return at

    def change(self, what, first, last, new):
        """The mutant that has something else in the place of these tokens."""
        return self.mutant(self.owner[first], what, self.tokens[first][1], self.tokens[last][2], new)

    def begins_line(self, at):
        return at >= len(self.tokens) or "\n" in self.text[self.tokens[at - 1][2] : self.tokens[at][1]]

    def begins_statement(self, at):
        before = self.words[at - 1]
        if before == ")" and self.words[matching(self.tokens, at - 1, -1) - 1] == "function":
            return True
        return before in BEFORE_A_STATEMENT or (self.begins_line(at) and not GOES_ON.fullmatch(before))

    def ends_statement(self, at):
        """Whether one ends with the token before that."""
        word = self.words[at]
        return word in AFTER_A_STATEMENT or (self.begins_line(at) and not GOES_ON_WITH.fullmatch(word))

    def call_at(self, at):
        """(the name, its last token) of the call whose first token that is, with all that is called of its result."""
        if not self.words[at].isidentifier() or self.words[at] in BEFORE_A_STATEMENT | {"local", "return", "function"}:
            return None
        end, name, called = at, self.words[at], False
        while True:
            if self.words[end + 1] in (".", ":"):
                end, name, called = end + 2, name + self.words[end + 1] + self.words[end + 2], False
            elif self.words[end + 1] in ("(", "["):
                called, end = self.words[end + 1] == "(", matching(self.tokens, end + 1)
            elif self.words[end + 1] == '"' and not called:
                end, called = end + 2, True
            else:
                return (name, end) if called else None

    def calls(self, at):
        if not self.begins_statement(at) or (call := self.call_at(at)) is None:
            return
        name, end = call
        if self.ends_statement(end + 1) and not WORDS.fullmatch(name):
            yield self.change(name, at, end, "")

    def finalizers(self, at):
        """ffi.gc(x, f) -> (x)"""
        if self.words[at : at + 4] == ["ffi", ".", "gc", "("] and not self.begins_statement(at):
            end = matching(self.tokens, at + 3)
            comma, depth = at + 4, 0
            while depth or self.words[comma] != ",":
                depth += (self.words[comma] in "([{") - (self.words[comma] in ")]}")
                comma += 1
            inner = self.text[self.tokens[at + 4][1] : self.tokens[comma - 1][2]]
            yield self.change("ffi.gc", at, end, f"({inner})")

    def operators(self, at):
        word = self.words[at]
        if word in SWAPS:
            yield self.change(word, at, at, SWAPS[word])
        elif word == "not":
            yield self.change(word, at, at, "")
        elif word in NAMES:
            yield self.change(word, at, at, NAMES[word])

    def conditions(self, at):
        """The condition of an if or while that has no operator of its own."""
        if self.words[at] not in ("if", "elseif", "while"):
            return
        end = self.words.index("do" if self.words[at] == "while" else "then", at) - 1
        condition = self.words[at + 1 : end + 1]
        if not set(condition) & (SWAPS.keys() | NAMES.keys() | {"not", "function"}):
            text = "".join(condition)
            yield self.change(f"{text}=false", at + 1, end, "false")
            if self.words[at] != "while":
                yield self.change(f"{text}=true", at + 1, end, "true")

    def stores(self, at):
        """`a = b`, `a.b[c] = d` as a statement that is no declaration, and no call's, function's or table's."""
        if not self.begins_statement(at) or not self.words[at].isidentifier():
            return
        end = at
        while self.words[end + 1] in (".", "["):
            end = end + 2 if self.words[end + 1] == "." else matching(self.tokens, end + 1)
        if self.words[end + 1] != "=" or self.words[end + 2] in ("function", "{", "require"):
            return
        last = end + 2
        while not self.ends_statement(last + 1) or GOES_ON.fullmatch(self.words[last]):
            last = matching(self.tokens, last + 1) if self.words[last + 1] in "([{" else last + 1
            if self.words[last] == "function":
                return
        yield self.change("".join(self.words[at : end + 1]) + " =", at, last, "")

    def all(self):
        for at in range(1, len(self.tokens)):
            if self.words[at] == '"' or self.is_declared(at):
                continue
            for find in (self.calls, self.finalizers, self.operators, self.conditions, self.stores):
                yield from find(at)

    def is_declared(self, at):
        """Outside of functions a module is made: without any of it nothing works."""
        return self.owner[at] == MAIN
