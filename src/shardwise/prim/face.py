"""Faces: how a function of the table is reached: by its name, as a method, as an attribute or by an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

from shardwise.prim.fixed import Fixed

Function = TypeVar("Function", bound=Callable[..., Any])

# The names that Python gives operators of one operand and of two.
UNARY = {"-": "neg", "+": "pos", "~": "invert", "abs": "abs"}
OTHERS = {"@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift"}
BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", **OTHERS}
COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
REFLECTED = {f"__r{word}__": sign for sign, word in BINARY.items()}
SIGNS = {f"__{word}__": sign for sign, word in (BINARY | COMPARISONS).items()} | REFLECTED


@dataclass(frozen=True)
class Face:
    """What a function is called: its public name, its name as a method and as an attribute of tensors, its operator."""

    name: str | None = None
    method: str | None = None
    attribute: str | None = None
    operator: str | None = None


def public(
    *, name: str | None = "", method: str | bool = False, attribute: str | bool = False, operator: str | None = None
) -> Callable[[Function], Function]:
    """Mark a function as one of the table: public by its own name, and whatever else is said.

    >>> @public(method=True)
    ... def twice(x):
    ...     return x + x
    >>> face_of(twice)
    Face(name='twice', method='twice', attribute=None, operator=None)
    """

    def mark(function: Function) -> Function:
        own = function.__name__

        def word_for(word: str | bool) -> str | None:
            return own if word is True else word or None

        shown = name if name is None else name or own
        function.face = Face(shown, word_for(method), word_for(attribute), operator)  # type: ignore[attr-defined]
        return function

    return mark


def face_of(function: Any) -> Face | None:
    """Return how a function is reached, or None if it is not of the table."""
    return getattr(function, "face", None) if isinstance(function, FunctionType) else None


def attributes_of(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a function is to a class of tensors: the names of attributes, and what they hold.

    An operator is a copy of the function under its own name, which errors and tracebacks say.

    >>> from shardwise import subtract
    >>> dict(attributes_of(subtract)).keys()
    dict_keys(['__sub__', '__rsub__'])
    """
    face = face_of(function)
    assert isinstance(function, FunctionType)
    assert face is not None
    if face.method:
        yield face.method, _rename_method(function, face.method) if face.method.startswith("__") else function
    if face.attribute:
        yield face.attribute, Fixed(function)
    if face.operator is None:
        return
    takes_one = function.__code__.co_argcount == 1
    name = f"__{(UNARY if takes_one else BINARY | COMPARISONS)[face.operator]}__"
    yield name, _rename_method(function, name)
    if face.operator in BINARY and not takes_one:
        name = f"__r{BINARY[face.operator]}__"
        yield name, _rename_method(_reflection(function), name)


def _reflection(function: Callable[..., Any]) -> Callable[..., Any]:
    def reflect(self: Any, other: Any, /) -> Any:
        return function(other, self)

    reflect.__doc__ = function.__doc__
    return reflect


def _rename_method(function: Callable[..., Any], name: str) -> FunctionType:
    return rename(function, name, f"Tensor.{name}")


def rename(function: Callable[..., Any], name: str, qualified: str = "") -> FunctionType:
    """Return a copy of a function under another name, which tracebacks say too."""
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_name=name, co_qualname=qualified or name)
    copy = FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    copy.__doc__, copy.__module__, copy.__qualname__ = function.__doc__, function.__module__, qualified or name
    return copy
