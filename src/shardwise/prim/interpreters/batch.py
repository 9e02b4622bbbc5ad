"""Batching: primitives on values with leading dims that the program does not see.

`vmap` and `shard_map` run a function of what stands at one place of such dims: all values at once, each primitive by
its own rule or, where that is enough, by giving all operands the dims and shifting the parameters that speak of dims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from shardwise.caches import cache
from shardwise.errors import ArgumentError, ShardwiseError
from shardwise.layout.axis import is_disjoint
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.prim.arithmetic.broadcast import broadcast
from shardwise.prim.arithmetic.reduce import reduce
from shardwise.prim.bind import Traced, new_level
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import cut_as, relayout
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.shapes import expand, permute
from shardwise.prim.views.spans import Span, Stretch


@dataclass(frozen=True, slots=True)
class Lead:
    """The leading dims of values that are mapped over: their sizes, and how they are cut.

    >>> lead = Lead((2, 3), (Cut("x"), Cut()), DeviceMesh((2,), ("x",)))
    >>> lead.shift({"dims": (0,), "shape": (4,), "order": (1, 0), "op": "sum"})
    {'dims': (2,), 'shape': (2, 3, 4), 'order': (0, 1, 3, 2), 'op': 'sum'}
    """

    sizes: Shape
    cuts: tuple[Cut, ...]
    mesh: DeviceMesh

    @property
    def count(self) -> int:
        """How many dims there are."""
        return len(self.sizes)

    def layout(self, layout: Layout) -> Layout:
        """Return the layout of a value with these dims in front of those that a layout speaks of."""
        return _with_lead(self, layout)

    def shift(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of a primitive for values with these dims in front."""
        return {name: SHIFTS[name](value, self) for name, value in params.items()}

    def align(self, x: Tensor, rank: int) -> Tensor:
        """Return a value that has these dims, with dims of size one after them until the rest has `rank` dims."""
        missing = self.count + rank - x.ndim
        return expand(x, at=tuple(range(self.count, self.count + missing))) if missing else x

    def whole(self) -> Lead:
        """Return the same dims, not cut."""
        return replace(self, cuts=(Cut(),) * self.count)

    def spread(self, x: Any) -> Tensor:
        """Return a value without these dims repeated along them."""
        wide = expand(x, at=tuple(range(self.count)))
        layout = self.layout(x.layout.resolved().without_halo())
        return broadcast(wide, layout=layout, shape=(*self.sizes, *x.shape))

    def spread_all(self, mapped: Sequence[bool], operands: Sequence[Any]) -> list[Any]:
        """Return operands that all have these dims."""
        return [x if m else self.spread(x) for x, m in zip(operands, mapped, strict=True)]

    def sum_shared(self, mapped: Sequence[bool], values: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Return what comes back to operands from all places: those that all places share get the sum of it."""
        dims = tuple(range(self.count))
        pairs = zip(values, mapped, strict=True)
        return tuple(v if v is None or m else reduce(v, dims=dims, op=ReduceOp.SUM) for v, m in pairs)

    def unsplit(self, x: Tensor) -> Tensor:
        """Return a value that has these dims with each device having them whole."""
        if not any(cut.axes for cut in x.layout.dims[: self.count]):
            return x
        return relayout(x, layout=cut_as(x.layout, (*[Cut()] * self.count, *x.layout.dims[self.count :])))

    def behind(self, x: Tensor, dims: int) -> Tensor:
        """Return a value that has these dims with them after its next `dims` dims."""
        n = self.count
        return permute(x, order=(*range(n, n + dims), *range(n), *range(n + dims, x.ndim)))

    def in_front(self, x: Tensor, dims: int) -> Tensor:
        """Return a value that has these dims after its first `dims` dims with them in front."""
        n = self.count
        return permute(x, order=(*range(dims, dims + n), *range(dims), *range(dims + n, x.ndim)))

    # -- values that are mapped over these dims ------------------------------------------------------

    def open(self) -> AbstractContextManager[int]:
        """Map over these dims, at the level that is returned, above all that are open."""
        return new_level()

    def wrap(self, value: Tensor, level: int) -> Tensor:
        """Return a value that has these dims as one that is mapped over them."""
        return Batched(level, value, self.count)

    def below(self, x: Tensor, level: int) -> Tensor:
        """Return a value that is mapped over these dims as it is below; any other one repeated along them."""
        return x.value if isinstance(x, Batched) and x.level == level else self.spread(x)


@cache()
def _with_lead(lead: Lead, layout: Layout) -> Layout:
    used = (*layout.sharded_axes, *layout.partial)
    cuts = [cut if layout.mesh is lead.mesh and is_disjoint(cut.axes, used) else Cut() for cut in lead.cuts]
    return Layout(layout.mesh, [*cuts, *layout.dims], layout.partial, layout.reduce_op or "sum")


def _same(value: Any, lead: Lead) -> Any:
    return value


def _places(value: Any, lead: Lead) -> tuple[int, ...]:
    return tuple([k + lead.count for k in value])


# How each parameter of a primitive changes when there are dims in front: one meaning for each name.
SHIFTS: dict[str, Callable[[Any, Lead], Any]] = {
    **dict.fromkeys(("dim", "split", "concat", "home"), lambda dim, lead: dim + lead.count),
    **dict.fromkeys(("dims", "at"), _places),
    "order": lambda order, lead: (*range(lead.count), *_places(order, lead)),
    "shape": lambda shape, lead: (*lead.sizes, *shape),
    **dict.fromkeys(("layout", "back_to"), lambda layout, lead: layout and lead.layout(layout)),
    "index": lambda index, lead: (*[Span(0, size) for size in lead.sizes], *index),
    "widths": lambda widths, lead: (*[(0, 0)] * lead.count, *widths),
    "stretches": lambda stretches, lead: (*[(Stretch(size, 0, 1),) for size in lead.sizes], *stretches),
    # These speak of no dims, or of the last ones.
    **dict.fromkeys(("axes", "axis", "count", "dtype", "k", "op", "part", "position", "reverse", "size"), _same),
    **dict.fromkeys(("halo", "root", "sources", "tiled", "value", "wide"), _same),
}


class Batched(Traced):
    """A value at one place of the leading dims of another, which has the values of all places."""

    __slots__ = ("lead",)

    def __init__(self, level: int, value: Tensor, lead: int) -> None:
        """Map over the first `lead` dims of a value."""
        self.level, self.value, self.tangent, self.node, self.lead = level, value, None, None, lead
        self._shape, self._dtype, self._engine = value.shape[lead:], value.dtype, value.engine
        self._layout, self._arrays = _without_lead(value.layout, lead), ()

    def _hidden_dims(self) -> Lead:
        # The leading dims that the program does not see.
        layout = self.value.layout
        return Lead(self.value.shape[: self.lead], layout.without_halo().dims[: self.lead], layout.mesh)

    def beside(self, value: Tensor) -> Tensor:
        """Return another value with the same dims in front as one that is mapped alike."""
        return Batched(self.level, value, self.lead)

    def _interpret(self, row: Primitive, operands: tuple[Any, ...], params: dict[str, Any]) -> Tensor:
        """Apply a primitive to all values at once."""
        level = self.level
        mapped = tuple([isinstance(x, Batched) and x.level == level for x in operands])
        values = [x.value if m else x for x, m in zip(operands, mapped, strict=True)]
        return self.beside(run_batched(row, self._hidden_dims(), mapped, values, params))

    def _constant(self) -> Tensor:
        """Return the same values, each a constant."""
        return self.beside(self.value._constant())

    def _real(self) -> Sequence[Any]:
        raise ArgumentError(
            f"the values of {self.type_text} were read inside vmap, where they are those of all places at once.\n"
            "  keep to functions of tensors: where(c, x, y) instead of `if c`, and nothing that prints."
        )

    def __repr__(self) -> str:
        return f"Tensor({self.type_text} on {self.mesh}, one of {self.value.shape[: self.lead]})"


@cache(entries=8192)
def _without_lead(layout: Layout, lead: int) -> Layout:
    return Layout(layout.mesh, layout.dims[lead:], layout.partial, layout.reduce_op or "sum")


def run_batched(
    row: Primitive, lead: Lead, mapped: tuple[bool, ...], operands: list[Any], params: dict[str, Any]
) -> Tensor:
    """Apply a primitive to operands of which the mapped ones have leading dims."""
    if row.batch is not None:
        return row.batch(row, lead, mapped, operands, params)
    if not params.keys() <= SHIFTS.keys():
        raise refusal(row.name)
    return row(*lead.spread_all(mapped, operands), **lead.shift(params))


def refusal(function: str) -> ShardwiseError:
    """Return the error of a function that cannot be mapped."""
    return ArgumentError(
        f"{function} cannot be mapped over: what it makes of one value is not known for many.\n"
        "  call it outside vmap, before the values go in or on what comes out."
    )
