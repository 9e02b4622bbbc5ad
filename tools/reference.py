"""How the reference is made of docstrings: examples are code, and functions made from a table are functions."""

import ast
import re
from importlib import import_module
from typing import Any

from shardwise.names import origin
from shardwise.prim.arithmetic.by_element import describe

griffe: Any = import_module("griffe")  # comes with the documentation tools alone

HOME = "shardwise.prim.arithmetic.elementwise"
TABLE = {"unary": ["x"], "binary": ["x1", "x2"]}  # what declares elementwise functions, and their parameters


def fenced(text: str) -> str:
    """Return a docstring with its examples, each of which ends at a blank line, in fences."""
    return re.sub(r"^>>> .*(?:\n.+)*", lambda found: f"```pycon\n{found[0]}\n```", text, flags=re.M)


def described(row: str) -> str:
    """Return the docstring of what a row such as `unary("sin", "the sine", "[0.0] -> [0.0]")` declares."""
    call = ast.parse(row, mode="eval").body
    assert isinstance(call, ast.Call)
    return describe(*(ast.literal_eval(argument) for argument in call.args[:3]))


class Examples(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Fence those of one object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


class Table(griffe.Extension):
    """Shows what a row of a table declares as a function, with its docstring, and nothing else of its module."""

    def on_module_members(self, *, mod: Any, **kwargs: Any) -> None:
        """Put functions in the place of the attributes that are declared."""
        for name, member in list(mod.members.items()):
            row = str(member.value) if isinstance(member, griffe.Attribute) else ""
            parameters = TABLE.get(row.partition("(")[0])
            if parameters is not None:
                kind = griffe.ParameterKind.positional_only
                taken = griffe.Parameters(*(griffe.Parameter(p, kind=kind) for p in parameters))
                made = griffe.Function(name, lineno=member.lineno, parameters=taken, returns="Tensor", parent=mod)
                made.docstring = griffe.Docstring(described(row), parent=made)
                mod.set_member(name, made)
            elif mod.path == HOME:
                mod.del_member(name)


class Names(griffe.Extension):
    """Finds public functions that the stubs write as overloads alone where they are defined."""

    def on_module_members(self, *, mod: Any, **kwargs: Any) -> None:
        """Add those that a package lacks."""
        if mod.path != "shardwise":
            return
        package = import_module("shardwise")
        for name in package.__all__:
            value = getattr(package, name)
            home = origin(value)
            if name not in mod.members and callable(value) and home != mod.path:
                mod.set_member(name, griffe.Alias(name, f"{home}.{value.__name__}", parent=mod))
