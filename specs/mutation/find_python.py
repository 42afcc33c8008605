"""The mutants of a Python file, as find.py has those of a C file: each a change of one place in one function.

Responsible for: finding the places: every call that is a statement, every comparison, `and`, `or` and `not`, every
condition that is a name or a call, every true and false, every store but a local variable's first, every `del`, every
lock that a `with` holds, and every handler of exceptions; and one tree that has them all, of which a process runs the
one that it chooses.
Must not know: what any of it means.
"""

import ast
import copy

from .find import Places

SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
CALLS = ast.Call, ast.Await, ast.Yield, ast.YieldFrom
NAMES = ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.NamedExpr
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
# Of these, what is evaluated where the function is made.
NOT_INSIDE = "decorator_list", "returns", "args"
NOTHING = "mutant__.nothing"  # a context that holds nothing
MARK = "mutant__.marks[{}] = 1"


class Finder(Places):
    """The places of one file in Python."""

    def __init__(self, path):
        super().__init__(path)
        self.tree = ast.parse(self.text)
        self.begins = [0]
        for line in self.text.splitlines(keepends=True):
            self.begins.append(self.begins[-1] + len(line))
        self.functions = []  # (name, node)
        self.changes = {}  # of each place's node: the mutants and what stands there instead, None for no statement

    def at(self, line, column):
        """The character's place in the text, whose columns Python counts in bytes."""
        begin = self.begins[line - 1]
        text = self.text[begin : self.begins[line]]
        return begin + len(text.encode()[:column].decode())

    def change(self, function, what, node, new):
        """The mutant that has another node in the place of this one."""
        start, end = self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)
        text = "pass" if new is None else ast.unparse(new)
        mutant = self.mutant(function, "".join(what.split()), start, end, text)
        self.changes.setdefault(node, []).append((mutant, new))
        return mutant

    def all(self):
        yield from self.within(self.tree, "", None)

    def within(self, node, prefix, function):
        """All places below the node. ${function}: the one that it is in; outside of all functions there are none."""
        if function:
            yield from self.places(node, function)
        if isinstance(node, ast.JoinedStr):
            return  # only words
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or name in ("annotation", "type_comment"):
                    continue
                if isinstance(node, FUNCTIONS) and name not in NOT_INSIDE:
                    yield from self.within(child, f"{prefix}{node.name}.", f"{prefix}{node.name}")
                else:
                    inner = f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
                    yield from self.within(child, inner, function)

    def places(self, node, function):
        for find in (self.calls, self.operators, self.conditions, self.stores, self.blocks):
            for what, at, new in find(node, function):
                yield self.change(function, what, at, new)

    def calls(self, node, function):
        if isinstance(node, ast.Expr) and isinstance(node.value, CALLS):
            called = node.value.func if isinstance(node.value, ast.Call) else node.value
            yield ast.unparse(called), node.value, ast.Constant(None)

    def operators(self, node, function):
        if isinstance(node, ast.Compare):
            for number, op in enumerate(node.ops):
                new = copy.deepcopy(node)
                new.ops[number] = SWAPS[type(op)]()
                yield type(op).__name__, node, new
        elif isinstance(node, ast.BoolOp):
            new = copy.deepcopy(node)
            new.op = SWAPS[type(node.op)]()
            yield type(node.op).__name__, node, new
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield "Not", node, copy.deepcopy(node.operand)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield str(node.value), node, ast.Constant(not node.value)

    def conditions(self, node, function):
        """The one of an if, a while or a comprehension that has no operator of its own."""
        tests = [node.test] if isinstance(node, (ast.If, ast.While, ast.IfExp)) else getattr(node, "ifs", [])
        for test in tests:
            if isinstance(test, NAMES):
                yield f"not({ast.unparse(test)})", test, ast.UnaryOp(ast.Not(), copy.deepcopy(test))

    def stores(self, node, function):
        """`a = b` of a local variable that has a value, `a.b = c`, `a[b] = c`, `a += b`, `del`."""
        if isinstance(node, ast.Delete):
            yield ast.unparse(node), node, None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, (ast.Assign, ast.AugAssign)) and not self.is_first(function, targets[0], node):
            yield f"{ast.unparse(targets[0])}=", node, None

    def is_first(self, function, target, node):
        """Whether the statement gives a local variable its first value."""
        if not isinstance(target, ast.Name) or isinstance(node, ast.AugAssign):
            return isinstance(target, ast.Tuple)
        first = (function, "first", target.id) not in self.seen
        self.seen[function, "first", target.id] = 1
        return first

    def blocks(self, node, function):
        for item in getattr(node, "items", []) if isinstance(node, (ast.With, ast.AsyncWith)) else []:
            if item.optional_vars is None:
                yield f"with({ast.unparse(item)})", item.context_expr, ast.parse(NOTHING, mode="eval").body
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            yield f"except({ast.unparse(node.type)})", node.type, ast.Tuple([], ast.Load())

    def everything(self):
        """The tree that has all mutants, every line where it was."""
        self.mutants()
        return ast.fix_missing_locations(Chosen(self.changes).visit(self.tree))

    def marked(self, first):
        """The tree whose functions each leave a mark, and their names. ${first}: the number of the first mark."""
        names = []
        for name, node in functions_of(self.tree):
            where = 1 if ast.get_docstring(node, clean=False) is not None else 0
            mark = ast.parse(MARK.format(first + len(names))).body[0]
            for part in ast.walk(mark):
                ast.copy_location(part, node.body[min(where, len(node.body) - 1)])
            node.body.insert(where, mark)
            names.append(name)
        return self.tree, names


def functions_of(node, prefix=""):
    """(name, node) of each function below that."""
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, (*FUNCTIONS, ast.ClassDef))
        inner = f"{prefix}{child.name}" if named else prefix
        if isinstance(child, FUNCTIONS):
            yield inner, child
        yield from functions_of(child, f"{inner}." if named else prefix)


class Chosen(ast.NodeTransformer):
    """Puts a choice between what is there and its mutants in the place of each node that has some."""

    def __init__(self, changes):
        self.changes = changes

    def visit(self, node):
        changes = self.changes.get(node, [])
        here = self.generic_visit(node)
        for mutant, new in changes:
            asked = ast.parse(f"mutant__.number == {mutant.index}", mode="eval").body
            if new is None:
                new = ast.If(ast.UnaryOp(ast.Not(), asked), [here], [])
            else:
                new = ast.IfExp(asked, new, here)
            for part in ast.walk(asked):
                ast.copy_location(part, node)
            here = ast.copy_location(new, node)
        return here
