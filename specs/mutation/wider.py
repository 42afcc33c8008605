"""Mutants of what a C file calculates, beside those of its steps (find.py): what somebody would try by hand.

Responsible for: arithmetic, constants, what a conditional chooses, jumps, and arguments and steps that follow one
another. Many of them are no change at all, such as the capacity of an array or how much work is worth a thread, so that
no list of them is kept: a draw of them shows which specs look too little, and somebody reads what survives.
"""

from . import find

OTHER = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&": "|", "|": "&", "<<": ">>", ">>": "<<"}


# What begins a statement that is no step, or one that only its place makes what it is.
NO_STEPS = set("break continue goto else do for while switch case default static const { } ;".split())


class Wider(find.Finder):
    """The places of one file. Their names begin with "any", so that none is that of a step."""

    def any(self, function, what, first, last, new):
        return self.mutant(function, f"any {what}", *self.span(first, last), new)

    def is_binary(self, at):
        """The operator, not a cast's operand, a pointer's star or an address."""
        before, after = self.tokens[at - 1][0], self.tokens[at + 1][0]
        operand = before == "]" or before[0].isdigit() or (before.isidentifier() and before not in find.KEYWORDS)
        if before == ")":
            opens = find.matching(self.tokens, at - 1, -1)
            operand = not any(t[0] in "*" or t[0].endswith("_t") for t in self.tokens[opens + 1 : at - 1])
        spaced = self.text[self.tokens[at][1] - 1] == self.text[self.tokens[at][2]] == " "
        return operand and spaced and after not in (")", ",", "=")

    def number(self, function, at):
        """One more and, where that is no constant that means nothing, one less."""
        token = self.tokens[at][0]
        yield self.any(function, f"{token}+1", at, at, f"({token} + 1)")
        if token != "0":
            yield self.any(function, f"{token}-1", at, at, f"({token} - 1)")

    def words(self, function, first, last):
        for at in range(first + 1, last):
            token, after = self.tokens[at][0], self.tokens[at + 1][0]
            if token in OTHER and self.is_binary(at):
                yield self.any(function, token, at, at, OTHER[token])
            elif token.isdigit() and not self.is_ordered_with(at):
                yield from self.number(function, at)
            elif token in ("break", "continue") and after == ";":
                yield self.any(function, token, at, at, "")
            elif token == "?":
                yield self.any(function, "?no", at, at, "&& 0 ?")
                yield self.any(function, "?yes", at, at, "|| 1 ?")

    def commas(self, opens, closes):
        """Of the call's own arguments, with its brackets around them."""
        found, at = [opens], opens + 1
        while at < closes:
            if self.tokens[at][0] in ("(", "[", "{"):
                at = find.matching(self.tokens, at)
            elif self.tokens[at][0] == ",":
                found.append(at)
            at += 1
        return [*found, closes]

    def arguments(self, function, first, last):
        """Two that follow one another, of one kind as far as can be seen."""
        for at in range(first + 1, last):
            name = self.tokens[at - 1][0]
            if self.tokens[at][0] != "(" or not name.isidentifier() or find.WORDS.fullmatch(name):
                continue
            commas = self.commas(at, find.matching(self.tokens, at))
            for number, (a, b, c) in enumerate(zip(commas, commas[1:], commas[2:], strict=False)):
                one, two = (self.text[self.tokens[i + 1][1] : self.tokens[j - 1][2]] for i, j in ((a, b), (b, c)))
                if not any(text[0] in "&\"'" or text in ("err", "out", "NULL", "L") for text in (one, two)):
                    yield self.any(function, f"{name}({number}", a + 1, c - 1, f"{two}, {one}")

    def end_of(self, at, last):
        """The semicolon of the step that begins at ${at}, which may have a condition; None where none begins."""
        if self.tokens[at][0] == "if":
            at = find.matching(self.tokens, at + 1) + 1
            if self.tokens[at][0] in ("if", "{"):
                return None
        if self.tokens[at][0] in NO_STEPS or self.is_declaration(at):
            return None
        while at < last and self.tokens[at][0] != ";":
            at = find.matching(self.tokens, at) if self.tokens[at][0] in ("(", "[", "{") else at
            at += 1
        return None if at >= last or self.tokens[at + 1][0] == "else" else at

    def is_declaration(self, at):
        """`name name`, `name *name` or `name (*name)(...)`, where a step has a call, a store or `*name`."""
        words = [token[0] for token in self.tokens[at : at + 3]]
        return words[0].isidentifier() and (words[1].isidentifier() or (words[1] == "*" and words[2].isidentifier()))

    def steps(self, function, first, last):
        """Two in the wrong order, of which none is the end of a block and one calls somebody: where two things are only
        stored the order seldom matters."""
        at = first + 1
        while at < last:
            if self.tokens[at][0] == "for":
                at = find.matching(self.tokens, at + 1)
            elif self.tokens[at - 1][0] in (";", "{", "}"):
                one = self.end_of(at, last)
                two = self.end_of(one + 1, last) if one is not None else None
                if two is not None and self.may_matter(at, one, two):
                    yield self.swapped(function, at, one, two)
            at += 1

    def may_matter(self, at, one, two):
        words = {self.tokens[at][0], self.tokens[one + 1][0]}
        return "return" not in words and not words <= find.NULL_CHECKS and self.has_call(at, two)

    def has_call(self, first, last):
        """Of what is no cast, condition or word."""
        names = (self.tokens[at - 1][0] for at in range(first + 1, last) if self.tokens[at][0] == "(")
        return any(name.isidentifier() and not find.WORDS.fullmatch(name) for name in names)

    def swapped(self, function, at, one, two):
        texts = (self.text[self.tokens[i][1] : self.tokens[j][2]] for i, j in ((one + 1, two), (at, one)))
        return self.any(function, f"step {self.tokens[at][0]}", at, two, " ".join(texts))

    def all(self):
        for function, first, last in find.functions(self.tokens):
            for kind in (self.words, self.arguments, self.steps):
                yield from kind(function, first, last)


def finder_of(path, kinds):
    return Wider(path, kinds)
