"""Factor rules: which dims of the operands and the result of an op belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, Protocol

import numpy as np

from shardwise.caches import cache
from shardwise.errors import BindingError, seal
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Shape
from shardwise.layout.placement import ReduceOp, kind_of

Factor = str
Linear = Literal["joint", "each", "first"] | None
Dims = tuple[Factor | None, ...]  # None is a dim of size one that is broadcast


Cuts = Sequence[Cut]


class Reach(Protocol):
    """How an op reaches over the ends of shards: the cut, with a halo, that a dim needs for the cut of another."""

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        ...

    @property
    def places(self) -> int:
        """How many combinations of places of the operands and the result there are."""
        ...

    def cuts(self, operands: Sequence[Cuts], out: Cuts) -> tuple[Sequence[Cuts], Cuts] | None:
        """Return the cuts that operands and result really have, or None if there is no such way."""
        ...


@seal
@dataclass(frozen=True, slots=True)
class Rule:
    """One op on tensors of known rank: a factor per dim, those that are reduced, those that must be whole.

    `linear` says how pending sums pass through: "joint", if all operands have them alike (as in addition), or
    "each", if one operand at a time may have them (as in multiplication), or "first", if the first may. With "each"
    an infinite factor can make NaN of a sum that is infinite, so a solver may do without. `monotone` ops let a
    pending max or min through. `offered` are cuts that a factor may have besides those of the operands.

    >>> matmul = Rule((("m", "k"), ("k", "n")), ("m", "n"), (("k", ReduceOp.SUM),), linear="each")
    >>> matmul.sizes(((2, 3), (3, 4)))
    {'m': 2, 'k': 3, 'n': 4}
    """

    operands: tuple[Dims, ...]
    out: Dims
    reduced: tuple[tuple[Factor, ReduceOp], ...] = ()
    whole: frozenset[Factor] = frozenset()
    linear: Linear = None
    monotone: bool = False
    offered: tuple[tuple[Factor, Cut, int], ...] = ()  # with the size of the factor, which no operand may tell
    dense: bool = False  # if the work is that of all combinations of factors, as in a product of matrices
    reach: Reach | None = None  # if dims share the axes that split them, but not where

    def shape(self, shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape of the result."""
        if self.reach is not None:
            return self.reach.shape
        sizes = self.sizes(shapes)
        return tuple(1 if factor is None else sizes[factor] for factor in self.out)

    def places(self, shapes: tuple[Shape, ...]) -> int:
        """Return how many combinations of factors there are.

        >>> Rule((("m", "k"), ("k", "n")), ("m", "n"), (("k", ReduceOp.SUM),)).places(((2, 3), (3, 4)))
        24
        """
        return self.reach.places if self.reach is not None else prod(self.sizes(shapes).values())

    def sizes(self, shapes: tuple[Shape, ...]) -> dict[Factor, int]:
        """Return the size of every factor, after checking that the operands agree."""
        out: dict[Factor, int] = {factor: size for factor, _, size in self.offered}
        for dims, shape in zip(self.operands, shapes, strict=True):
            for factor, size in zip(dims, shape, strict=True):
                if factor is not None and out.setdefault(factor, size) != size:
                    raise BindingError(f"operands of shapes {', '.join(map(str, shapes))} do not fit together.")
        return out


def is_integer(dtype: np.dtype) -> bool:
    """Whether numbers are whole, so that their sums wrap around.

    >>> is_integer(np.dtype("int8")), is_integer(np.dtype("bfloat16"))
    (True, False)
    """
    return kind_of(dtype) in "biu"


@cache()
def elementwise_rule(shapes: tuple[Shape, ...], linear: Linear = None, monotone: bool = False) -> Rule:
    """Return the rule of an elementwise op on operands that broadcast.

    >>> elementwise_rule(((4, 3), (3,))).operands
    (('d0', 'd1'), ('d1',))
    """
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        raise BindingError(f"shapes {' and '.join(map(str, shapes))} do not broadcast.") from None
    rank = max(map(len, shapes), default=0)
    sizes = [max((s[k - rank] for s in shapes if len(s) >= rank - k), default=1) for k in range(rank)]
    zeros = [any(len(s) >= rank - k and s[k - rank] == 0 for s in shapes) for k in range(rank)]
    out = tuple(f"d{k}" for k in range(rank))

    def dims(shape: Shape) -> Dims:
        lead = rank - len(shape)
        return tuple(
            None if size == 1 and (sizes[lead + k] != 1 or zeros[lead + k]) else out[lead + k]
            for k, size in enumerate(shape)
        )

    return Rule(tuple(map(dims, shapes)), out, linear=linear, monotone=monotone)
