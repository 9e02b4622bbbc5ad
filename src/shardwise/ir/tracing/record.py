"""Recordings: what a function did to its tensors, primitive by primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import optree

from shardwise.prim.bind import Node, Recorded, new_level
from shardwise.prim.tensor import Tensor, asarray


@dataclass(frozen=True)
class Recording:
    """The inputs of a function, every primitive that its results need, in an order that can be run, and the results."""

    inputs: tuple[Node, ...]
    steps: tuple[Node, ...]
    outputs: tuple[Node | Tensor, ...]  # a tensor where a result does not depend on the inputs


def record(fn: Callable[..., Any], *args: Any) -> Recording:
    """Run a function once on its arguments, trees of tensors or arrays, and return what it did.

    The level of recording is below those of derivatives, so what is recorded of them is what they compute.

    >>> found = record(lambda x: x * x + 1.0, asarray([1.0, 2.0]))
    >>> [step.row.name for step in found.steps]
    ['multiply', 'add']
    """
    leaves, tree = optree.tree_flatten(cast(Any, args))
    values = [asarray(leaf) for leaf in leaves]
    with new_level() as level:
        starts = [Node(out=value) for value in values]
        watched = [Recorded(level, value, node=node) for value, node in zip(values, starts, strict=True)]
        out = fn(*optree.tree_unflatten(tree, watched))
    ends = [_end(leaf, level) for leaf in optree.tree_leaves(out)]
    steps = _order([end for end in ends if isinstance(end, Node)])
    return Recording(tuple(starts), tuple(node for node in steps if node.row is not None), tuple(ends))


def _end(leaf: Any, level: int) -> Node | Tensor:
    if isinstance(leaf, Recorded) and leaf.level == level and leaf.node is not None:
        return leaf.node
    return asarray(leaf)


def _order(ends: Sequence[Node]) -> list[Node]:
    # Every entry after those it was made from.
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(end, False) for end in reversed(ends)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(parent, False) for parent in reversed(node.parents) if parent is not None]
    return order
