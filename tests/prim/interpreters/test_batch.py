"""Leading dims that a program does not see: every parameter of every primitive has its shift, or the row a rule."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise
from shardwise import ArgumentError, Cut, DeviceMesh, Layout, P, shard, vmap
from shardwise.prim.interpreters.batch import SHIFTS, Batched, Lead
from shardwise.prim.primitive import Primitive
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.spans import Span, Stretch

MESH = DeviceMesh((2, 3), ("x", "y"))
LEAD = Lead((4, 2), (Cut(MESH.axis("x")), Cut()), MESH)


def rows() -> dict[str, Primitive]:
    out: dict[str, Primitive] = {}
    for room in ("prim", "ops", "transform"):
        for path in sorted((Path(shardwise.__file__).parent / room).glob("*.py")):
            module = import_module(f"shardwise.{room}.{path.stem}")
            out |= {f"{path.stem}.{k}": v for k, v in vars(module).items() if isinstance(v, Primitive)}
    return out


ROWS = rows()
NEVER_CALLED = {"rematerialization._whole", "rematerialization._part"}  # entries of tapes


@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_parameter_of_a_row_has_a_shift_or_the_row_a_rule_of_its_own(name: str) -> None:
    row = ROWS[name]
    if row.batch is not None or name in NEVER_CALLED:
        return
    function: Any = row.local or row.run
    params = inspect.signature(function).parameters.values()
    named = {p.name for p in params if p.kind is p.KEYWORD_ONLY}
    assert named <= SHIFTS.keys(), f"{name}: {named - SHIFTS.keys()} have no shift; give the row a `batch`"


def test_parameters_are_shifted_by_what_they_mean() -> None:
    layout = Layout(MESH, ["y", None])
    wide = Layout(MESH, ["x", None, "y", None])
    assert LEAD.shift({"dim": 1, "dims": (0, 1), "at": (2,), "order": (1, 0), "shape": (3,)}) == {
        "dim": 3,
        "dims": (2, 3),
        "at": (4,),
        "order": (0, 1, 3, 2),
        "shape": (4, 2, 3),
    }
    assert LEAD.shift({"layout": layout, "back_to": None, "op": "max"}) == {
        "layout": wide,
        "back_to": None,
        "op": "max",
    }
    assert LEAD.shift({"index": (Span(1, 2),), "widths": ((1, 0),)}) == {
        "index": (Span(0, 4), Span(0, 2), Span(1, 2)),
        "widths": ((0, 0), (0, 0), (1, 0)),
    }
    stretches = ((Stretch(1, 0, 0), Stretch(3, 0, 1)),)
    assert LEAD.shift({"stretches": stretches})["stretches"] == ((Stretch(4, 0, 1),), (Stretch(2, 0, 1),), *stretches)


def test_the_cut_of_a_leading_dim_gives_way_to_what_an_op_needs() -> None:
    assert LEAD.layout(Layout(MESH, ["x"])) == Layout(MESH, [None, None, "x"])
    assert LEAD.layout(Layout(MESH, ["y"], ["x"])) == Layout(MESH, [None, None, "y"], ["x"])
    other = DeviceMesh((6,), ("z",))
    assert LEAD.layout(Layout(other, ["z"])) == Layout(other, [None, None, "z"])
    assert LEAD.whole().layout(Layout(MESH, ["y"])) == Layout(MESH, [None, None, "y"])


def test_dims_go_behind_others_and_to_the_front_again() -> None:
    x = shard(np.arange(4 * 2 * 3 * 5).reshape(4, 2, 3, 5), MESH, P("x"))
    behind = LEAD.behind(x, 1)
    np.testing.assert_array_equal(behind.numpy(), np.moveaxis(x.numpy(), 2, 0))
    np.testing.assert_array_equal(LEAD.in_front(behind, 1).numpy(), x.numpy())
    assert LEAD.align(x, 3).shape == (4, 2, 1, 3, 5)
    assert LEAD.align(x, 2) is x
    wide = LEAD.spread(shard(np.ones(3), MESH, P("y")))
    assert (wide.shape, str(wide.layout)) == ((4, 2, 3), "[x|-|y]")
    assert str(LEAD.unsplit(x).layout) == "[-|-|-|-]"


def test_a_primitive_without_a_rule_is_refused_by_name() -> None:
    odd = Primitive("odd", lambda x, *, strange: x)
    with pytest.raises(ArgumentError, match="odd cannot be mapped over"):
        vmap(lambda x: odd(x, strange=1))(np.ones(2))


def test_pending_sums_stay_pending_under_a_map() -> None:
    x = shard(np.arange(6.0).reshape(2, 3), MESH, P(None, None, unreduced=["x"]))
    seen: list[Tensor] = []
    y = vmap(lambda row: seen.append(row) or row * 2.0)(x)
    assert isinstance(seen[0], Batched)
    assert str(seen[0].layout) == "[-] sum(x)"
    assert y.layout.partial
    np.testing.assert_array_equal(y.numpy(), 2.0 * np.arange(6.0).reshape(2, 3))
