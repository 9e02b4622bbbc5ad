"""How the reference is made of docstrings: examples are code, and functions made from a table are functions."""

import ast
import re
from importlib import import_module
from typing import Any

griffe: Any = import_module("griffe")  # comes with the documentation tools alone

TABLE = {"_one": ["x"], "_two": ["x1", "x2"]}  # makers of elementwise functions, and the parameters of what they make


def fenced(text: str) -> str:
    """Return a docstring with its examples, each of which ends at a blank line, in fences."""
    return re.sub(r"^>>> .*(?:\n.+)*", lambda found: f"```pycon\n{found[0]}\n```", text, flags=re.M)


def described(row: str) -> str:
    """Return the docstring of what a row such as `_one(rows.sin, "the sine", "sin(0) -> 0")` makes."""
    call = ast.parse(row, mode="eval").body
    assert isinstance(call, ast.Call)
    what, example = (ast.literal_eval(argument) for argument in call.args[1:])
    shown, result = example.split(" -> ")
    return f"Return, element by element, {what}.\n\n>>> {shown}\n{result}"


class Examples(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Fence those of one object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


class Table(griffe.Extension):
    """Shows what a row of a table makes as a function, with its docstring."""

    def on_module_members(self, *, mod: Any, **kwargs: Any) -> None:
        """Put functions in the place of the attributes that a maker has made."""
        for name, member in list(mod.members.items()):
            row = str(member.value) if isinstance(member, griffe.Attribute) else ""
            parameters = TABLE.get(row.partition("(")[0])
            if parameters is not None:
                kind = griffe.ParameterKind.positional_only
                taken = griffe.Parameters(*(griffe.Parameter(p, kind=kind) for p in parameters))
                made = griffe.Function(name, lineno=member.lineno, parameters=taken, returns="Tensor", parent=mod)
                made.docstring = griffe.Docstring(described(row), parent=made)
                mod.set_member(name, made)
