"""Changes: the small ways in which a source file can be made wrong, one at a time."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

Place = tuple[int, int]  # line and column of the statement, or of the body of a lambda, that runs the changed code

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}
KEY = re.compile(r"[A-Za-z_][\w.:-]*")  # texts with spaces are for people; those are tested as errors, not as keys
UNTRIED_NAMES = {"__all__", "__slots__", "__match_args__"}
# Speed and memory, what is printed, and `strict`, which asserts what the code around it makes true.
UNTRIED_KEYWORDS = {"maxsize", "slots", "weakref_slot", "stacklevel", "repr", "strict"}
UNTRIED_CALLS = {"TypeVar", "ParamSpec", "NewType", "TypeVarTuple", "getLogger"}
UNTRIED_DECORATORS = {"cache", "lru_cache", "overload"}
TYPES = {"Literal", "Union", "Optional", "Callable", "Annotated"}


@dataclass(eq=False)
class Change:
    """One node of a file, and what to put in its stead."""

    path: str
    line: int
    before: str
    after: str
    place: Place | None  # None: it runs when the module is imported
    text: str  # the line, as it is in the file
    tree: ast.Module = field(repr=False)
    parent: ast.AST = field(repr=False)
    name: str = field(repr=False)
    index: int | None = field(repr=False)
    new: ast.AST = field(repr=False)

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells a change from others, whatever is written above it in the file."""
        return self.path, self.text, f"{self.before} -> {self.after}"

    def compile(self, place: str | None = None) -> CodeType:
        """Return the code of the file with this change, which lies at this place."""
        old = self._put(self.new)
        try:
            return compile_tree(self.tree, self.path if place is None else place)
        finally:
            self._put(old)

    def is_idle(self, original: CodeType) -> bool:
        """Whether the change is none: the compiled code stays the same."""
        return _essence(self.compile()) == _essence(original)

    def _put(self, node: Any) -> Any:
        old = getattr(self.parent, self.name)
        if self.index is None:
            setattr(self.parent, self.name, node)
            return old
        old[self.index], node = node, old[self.index]
        return node


def compile_tree(tree: ast.Module, path: str) -> CodeType:
    """Compile a file that was parsed, and perhaps changed."""
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def changes_of(path: str, source: str) -> Iterator[Change]:
    """Yield every change of a file, in the order of its lines."""
    tree, lines = ast.parse(source), source.splitlines()
    for parent, name, index, node, place in _walk(tree, None):
        for new in _alternatives(node, parent):
            ast.fix_missing_locations(ast.copy_location(new, node))
            line = getattr(node, "lineno", 1)
            text = lines[line - 1].strip()
            yield Change(path, line, show(node), show(new), place, text, tree, parent, name, index, new)


def show(node: ast.AST) -> str:
    """Return a node as one line of source."""
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}: ..."
    return " ".join(ast.unparse(node).split())


def _essence(code: CodeType) -> tuple[Any, ...]:
    # Constants by their repr too: 0, 0.0 and False are equal, and are not the same program.
    parts = tuple(_essence(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, parts


# -- where --------------------------------------------------------------------------------------------


def places_of(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the lists of statements that run in functions, and the lambdas, as a node and the name of its field."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, "body"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (found for statement in node.body for found in _blocks(statement))


def _blocks(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, _SCOPES):
        return
    for name in ("body", "orelse", "finalbody"):
        if isinstance(getattr(node, name, None), list) and getattr(node, name):
            yield node, name
    for child in ast.iter_child_nodes(node):
        yield from _blocks(child)


_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def start_of(node: ast.stmt | ast.expr) -> Place:
    """Return where a node begins."""
    return node.lineno, node.col_offset


def _walk(
    node: ast.AST, place: Place | None
) -> Iterator[tuple[ast.AST, str, int | None, ast.expr | ast.stmt | ast.comprehension, Place | None]]:
    # Every node that may be changed, with its parent and the place that runs it.
    for name, value in ast.iter_fields(node):
        if _is_untried(node, name):
            continue
        several = isinstance(value, list)
        for index, child in enumerate(value if several else [value]):
            if not isinstance(child, ast.AST) or _is_text(child, node):
                continue
            at = _place(node, name, child, place)
            if isinstance(child, ast.expr | ast.stmt | ast.comprehension):
                yield node, name, index if several else None, child, at
            yield from _walk(child, at)


def _place(node: ast.AST, name: str, child: ast.AST, place: Place | None) -> Place | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        # Defaults and decorators are seen at work where the function is.
        first = node.body[1] if len(node.body) > 1 and is_docstring(node.body[0]) else node.body[0]
        return start_of(child) if name == "body" and isinstance(child, ast.stmt) else start_of(first)
    if isinstance(node, ast.Lambda) and name == "body":
        return start_of(node.body)
    if place is None or isinstance(node, ast.ClassDef):
        return place
    return start_of(child) if isinstance(child, ast.stmt) else place


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is nothing but a text, or an ellipsis."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_untried(node: ast.AST, name: str) -> bool:
    # Whether nothing below this field is changed: annotations, texts of errors, and what only the type checker reads.
    if name in ("annotation", "returns", "format_spec", "exc", "msg", "type_params"):
        return True
    if isinstance(node, ast.Assert):
        return True
    if isinstance(node, ast.If):
        return _name(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == "__repr__" or any(_name(d) == "overload" for d in node.decorator_list)
    if isinstance(node, ast.Assign):
        return any(_name(t) in UNTRIED_NAMES or "CACHE" in _name(t) for t in node.targets)
    if isinstance(node, ast.keyword):
        return node.arg in UNTRIED_KEYWORDS
    if isinstance(node, ast.Subscript):
        return name == "slice" and _name(node.value) in TYPES
    return isinstance(node, ast.Call) and _name(node) in UNTRIED_CALLS


def _is_text(node: ast.AST, parent: ast.AST) -> bool:
    if is_docstring(node):
        return True
    if isinstance(node, ast.Call) and _name(node) in UNTRIED_DECORATORS:
        return True
    if isinstance(parent, ast.Call) and _name(parent) == "cast":
        return node is parent.args[0]
    return isinstance(parent, ast.JoinedStr) and isinstance(node, ast.Constant)


# -- what ---------------------------------------------------------------------------------------------


def _alternatives(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            for k, op in enumerate(node.ops):
                new = deepcopy(node)
                new.ops[k] = COMPARISONS[type(op)]()
                yield new
        case ast.BinOp(op=op, left=left, right=right) if (
            type(op) in ARITHMETIC and not any(map(_is_string, (left, right))) and not _is_type(node)
        ):
            yield ast.BinOp(node.left, ARITHMETIC[type(op)](), node.right)
        case ast.BoolOp(op=op):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.Constant(value=value):
            yield from map(ast.Constant, _values(value))
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            args = node.args[:1] if CALLS[name] == "list" else node.args
            keywords = [] if CALLS[name] == "list" else node.keywords
            yield ast.Call(ast.Name(CALLS[name], ast.Load()), args, keywords)
        case ast.Slice(lower=lower, upper=upper, step=step):
            if lower is not None:
                yield ast.Slice(None, upper, step)
            if upper is not None:
                yield ast.Slice(lower, None, step)
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, node.ifs[1:], node.is_async)
        case ast.stmt():
            yield from _statements(node, parent)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_type(node: ast.expr) -> bool:
    # Whether it names a type, or a union of some: any change of those is an error at once, and says nothing.
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _is_type(node.left) or _is_type(node.right)
    name = _name(node.value if isinstance(node, ast.Subscript) else node)
    return isinstance(getattr(builtins, name, None), type) or (name[:1].isupper() and not name.isupper())


def _values(value: object) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
        if value == 1:
            yield value - 1
    elif isinstance(value, str) and KEY.fullmatch(value):
        yield value + "_"


def _statements(node: ast.stmt, parent: ast.AST) -> Iterator[ast.stmt]:
    match node:
        case ast.If(orelse=[_, *_]):
            yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.If():
            yield ast.Pass()
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Raise() if isinstance(parent, ast.If) and len(parent.body) == 1:
            return  # the same as without the guard around it
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case _:
            return
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
