"""Where an op was written: its own place, or that of the nearest op around it."""

import pytest
from xdsl.dialects import test
from xdsl.dialects.builtin import (
    ArrayAttr,
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Block, Region

from shardwise.ir.place import UNKNOWN, Place, place_of


def at(line: int, name: str = "m.mlir") -> FileLineColLoc:
    return FileLineColLoc(StringAttr(name), IntAttr(line), IntAttr(7))


def op_at(location: Attribute) -> test.TestOp:
    op = test.TestOp()
    op.location = location  # type: ignore[assignment]
    return op


NOWHERE = UnknownLoc()


@pytest.mark.parametrize(
    ("location", "line"),
    [
        (at(3), 3),
        (CallSiteLoc(at(4), at(9)), 4),
        (NameLoc(StringAttr("n"), at(5)), 5),
        (FusedLoc(ArrayAttr([NOWHERE, at(6), at(8)]), NoneAttr()), 6),
        (CallSiteLoc(NameLoc(StringAttr("n"), at(2)), NOWHERE), 2),
    ],
    ids=["file", "call", "name", "fused", "nested"],
)
def test_every_kind_of_location_has_a_place(location: Attribute, line: int) -> None:
    assert place_of(op_at(location)) == Place("m.mlir", line, 7)
    assert str(place_of(op_at(location))) == f"m.mlir:{line}:7"


@pytest.mark.parametrize("location", [NOWHERE, FusedLoc(ArrayAttr([NOWHERE]), NoneAttr()), CallSiteLoc(NOWHERE, at(3))])
def test_without_a_place_that_of_the_op_around_it_counts(location: Attribute) -> None:
    inner = op_at(location)
    assert place_of(inner) is UNKNOWN
    outer = test.TestOp(regions=[Region(Block([inner]))])
    module = ModuleOp([outer])
    assert place_of(inner) is UNKNOWN
    module.location = at(1)
    assert place_of(inner).line == 1
    outer.location = at(2)
    assert place_of(inner).line == 2
    assert (UNKNOWN.line, UNKNOWN.column, UNKNOWN.name) == (0, 0, "<unknown>")
