"""The exception tree: every error that shardwise raises on purpose.

    ShardwiseError
    ├── LayoutError (ValueError)     a mesh, placement, spec or layout is wrong
    │   ├── MeshError                the mesh itself, or a question put to it
    │   ├── BindingError             a layout does not fit this shape or dtype
    │   └── ConversionError          a conversion would lose information
    ├── PlanError (ValueError)       no plan can be made from what was given
    ├── EngineError (RuntimeError)   an engine cannot do what was asked
    ├── ProgramError (RuntimeError)  a module of the `shard` dialect cannot be made or run, or went wrong while it ran
    ├── DerivativeError (ValueError) something cannot be differentiated
    ├── ModuleError (ValueError)     a module of the `shard` dialect is wrong, at a line and column of its text
    │   ├── ParseError               its text cannot be read
    │   └── VerifyError              it says what cannot be
    └── ArgumentError (TypeError)    a value of the wrong kind was passed

Texts say what was got, what was expected and what is available; further lines are indented.
"""

from collections.abc import Iterable, Mapping, Set
from difflib import get_close_matches
from operator import index
from typing import Any


class ShardwiseError(Exception):
    """Base of all errors that shardwise raises on purpose."""


class LayoutError(ShardwiseError, ValueError):
    """A mesh, placement, spec or layout is wrong."""


class MeshError(LayoutError):
    """A mesh, or a question put to it, is wrong."""


class BindingError(LayoutError):
    """A layout does not fit the shape or dtype it is bound to."""


class ConversionError(LayoutError):
    """A conversion between vocabularies would lose information."""


class PlanError(ShardwiseError, ValueError):
    """No plan can be made from what was given."""


class EngineError(ShardwiseError, RuntimeError):
    """An engine cannot do what was asked."""


class ProgramError(ShardwiseError, RuntimeError):
    """A module of the `shard` dialect cannot be made or run, or went wrong while it ran."""


class DerivativeError(ShardwiseError, ValueError):
    """Something cannot be differentiated."""


class ModuleError(ShardwiseError, ValueError):
    """A module of the `shard` dialect is wrong: `name:line:column: what`.

    >>> str(ModuleError("m.mlir", 3, 7, "no such grid"))
    'm.mlir:3:7: no such grid'
    """

    def __init__(self, name: str, line: int, column: int, what: str) -> None:
        self.name = name
        self.line = line
        self.column = column
        super().__init__(f"{name}:{line}:{column}: {what}")


class ParseError(ModuleError):
    """The text of a module cannot be read."""


class VerifyError(ModuleError):
    """A module says what cannot be."""


class ArgumentError(ShardwiseError, TypeError):
    """A value of the wrong kind was passed."""


def did_you_mean(got: object, names: Iterable[str]) -> str:
    """Return a line that suggests the nearest of `names`, or nothing.

    >>> did_you_mean("pt", ["dp", "tp"])
    "\\n  did you mean 'tp'?"
    """
    names = list(names)
    near = get_close_matches(str(got), names, n=1, cutoff=0.5)
    # "pt" for "tp": letters swapped in a short name score too low for difflib.
    near = [name for name in names if sorted(name) == sorted(str(got))][:1] or near
    return f"\n  did you mean {near[0]!r}?" if near else ""


def as_int(value: object) -> int | None:
    """Return an int, NumPy's among them, as a plain int; None for anything else, bools included.

    >>> as_int(3), as_int(True), as_int(3.0)
    (3, None, None)
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:  # an array of several numbers has the method too
        return None


def listed(values: object, wanted: str) -> tuple[Any, ...]:
    """Return an ordered collection as a tuple; `wanted` begins the error for anything else.

    >>> listed("xy", "axis_names is a tuple of names")
    Traceback (most recent call last):
    shardwise.errors.ArgumentError: axis_names is a tuple of names, got 'xy'.
    """
    if isinstance(values, str | bytes | Set | Mapping) or not isinstance(values, Iterable):
        raise ArgumentError(f"{wanted}, got {values!r}.")
    return tuple(values)
