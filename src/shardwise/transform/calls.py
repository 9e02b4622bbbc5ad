"""Calls: a function on a tape as one entry, with a derivative of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import optree

from shardwise.errors import DerivativeError
from shardwise.layout.layout import Layout, Shape
from shardwise.prim.bind import Bundle, Node, Traced
from shardwise.prim.movement.parts import zeros_like
from shardwise.prim.primitive import Primitive
from shardwise.prim.tensor import Tensor


class Call(NamedTuple):
    """The arguments of a function as leaves, and which of them a tape watches at the highest level that there is."""

    leaves: list[Any]
    tree: optree.PyTreeSpec
    level: int
    watched: list[bool]

    @property
    def below(self) -> list[Any]:
        """The leaves, as the values below where they are watched."""
        return [leaf.value if w else leaf for leaf, w in zip(self.leaves, self.watched, strict=True)]

    @property
    def taped(self) -> list[bool]:
        """Which of the leaves are watched for a reverse derivative."""
        return [w and leaf.node is not None for leaf, w in zip(self.leaves, self.watched, strict=True)]

    def args(self, leaves: Sequence[Any]) -> Any:
        """The arguments that have these leaves."""
        return optree.tree_unflatten(self.tree, leaves)


def call_of(args: tuple[Any, ...]) -> Call:
    """Return the arguments of a function taken apart."""
    leaves, tree = optree.tree_flatten(cast(Any, args))
    level = max((leaf.level for leaf in leaves if isinstance(leaf, Tensor)), default=0)
    watched = [bool(level) and isinstance(leaf, Traced) and leaf.level == level for leaf in leaves]
    return Call(leaves, tree, level, watched)


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return a tree with a function applied to all of its tensors."""

    def each(leaf: Any) -> Any:
        return function(leaf) if isinstance(leaf, Tensor) else leaf

    return optree.tree_map(each, tree)


def replace_at(places: Sequence[int], values: Sequence[Any], new: Iterable[Any]) -> list[Any]:
    """Return values with new ones at some places.

    >>> replace_at([0, 2], "abc", "xy")
    ['x', 'b', 'y']
    """
    out = list(values)
    for i, value in zip(places, new, strict=True):
        out[i] = value
    return out


# From cotangents of the tensors of a result to one, or None, for each leaf of the arguments.
Backward = Callable[[list[Tensor]], Sequence[Any]]


def write_call(name: str, call: Call, out: Any, backward: Backward) -> Any:
    """Return the result of a function, run on the values below, as one that a tape knows how to go back from."""
    ends, out_tree = optree.tree_flatten(out)
    if any(isinstance(end, Tensor) and end.level >= call.level for end in ends):
        raise DerivativeError(
            f"{name} uses a tensor that is being differentiated and is no argument of it.\n  pass it as an argument."
        )
    nodes = tuple(leaf.node if w else None for leaf, w in zip(call.leaves, call.watched, strict=True))
    # Nothing but what the way back needs is kept: of results only what zeros are made like.
    blanks = tuple([_Blank.of(end) if isinstance(end, Tensor) else None for end in ends])
    whole = Node(_whole, (), {"blanks": blanks, "backward": backward}, None, nodes)
    results = [
        Traced(call.level, end, node=Node(_part, (), {"index": i, "count": len(ends)}, None, (whole,)))
        if isinstance(end, Tensor)
        else end
        for i, end in enumerate(ends)
    ]
    return optree.tree_unflatten(out_tree, results)


class _Blank(NamedTuple):
    """What zeros are made like: the shape and layout of a value, and an array of its library and engine."""

    like: Tensor
    shape: Shape
    layout: Layout

    @staticmethod
    def of(x: Tensor) -> _Blank:
        """Return the blank of a value."""
        return _Blank(zeros_like(x, (0,) * x.ndim, Layout.replicated(x.mesh, x.ndim)), x.shape, x.layout.resolved())


def _whole_vjp(
    ct: Bundle, out: None, *leaves: Any, blanks: tuple[_Blank | None, ...], backward: Backward
) -> tuple[Any, ...]:
    pairs = [(blank, part) for blank, part in zip(blanks, ct.parts, strict=True) if blank is not None]
    return tuple(backward([zeros_like(*blank) if part is None else part for blank, part in pairs]))


def _part_vjp(ct: Tensor, out: Tensor, *, index: int, count: int) -> tuple[Bundle]:
    return (Bundle(tuple(ct if i == index else None for i in range(count))),)


def _never(*_: Any, **__: Any) -> Tensor:
    raise AssertionError("only found on tapes")


# On a tape: the run of a function as a whole, and one of its results.
_whole = Primitive("call", _never, cast(Any, _whole_vjp))
_part = Primitive("call", _never, cast(Any, _part_vjp))
