"""Where an op was written."""

from typing import NamedTuple, cast

from xdsl.dialects.builtin import ArrayAttr, CallSiteLoc, FileLineColLoc, FusedLoc, NameLoc
from xdsl.ir import Attribute, Operation


class Place(NamedTuple):
    """A file, a line and a column; the line is 0 where nothing is known.

    >>> str(Place("m.mlir", 3, 7))
    'm.mlir:3:7'
    """

    name: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.name}:{self.line}:{self.column}"


UNKNOWN = Place("<unknown>", 0, 0)


def place_of(op: Operation) -> Place:
    """Return the place of an op, or of the nearest op around it that has one."""
    at: Operation | None = op
    while at is not None:
        if (place := _place(at.location)) is not None:
            return place
        at = at.parent_op()
    return UNKNOWN


def _place(location: Attribute) -> Place | None:
    if isinstance(location, FileLineColLoc):
        return Place(location.filename.data, location.line.data, location.column.data)
    if isinstance(location, CallSiteLoc):
        return _place(location.callee)
    if isinstance(location, NameLoc):
        return _place(location.location)
    if isinstance(location, FusedLoc):
        return next(filter(None, map(_place, cast("ArrayAttr[Attribute]", location.locations))), None)
    return None
