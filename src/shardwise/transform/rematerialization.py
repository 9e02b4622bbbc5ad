"""Rematerialization: what a function computed inside is not kept for its derivative but computed again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

import optree

from shardwise.errors import DerivativeError, checked_function
from shardwise.prim.bind import Bundle, Node, Traced
from shardwise.prim.parts import zeros_like
from shardwise.prim.row import Row
from shardwise.prim.tensor import Tensor
from shardwise.transform.derivatives import vjp


def checkpoint(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, of which reverse derivatives keep the arguments only and compute the rest again.

    Less memory for one more run. Tensors that are differentiated must be arguments (trees are fine).

    >>> from shardwise import asarray, exp, grad, sum
    >>> layer = checkpoint(lambda x: exp(exp(x)))
    >>> grad(lambda x: sum(layer(x)))(asarray([0.0])).item() == 2.718281828459045
    True
    """
    checked_function(fn, "checkpoint")

    @wraps(fn)
    def kept(*args: Any) -> Any:
        leaves, tree = optree.tree_flatten(cast(Any, args))
        level = max((leaf.level for leaf in leaves if isinstance(leaf, Tensor)), default=0)
        watched = [isinstance(leaf, Traced) and leaf.level == level and leaf.node is not None for leaf in leaves]
        if not any(watched) or any(leaf.is_recorded for leaf, w in zip(leaves, watched, strict=True) if w):
            return fn(*args)  # plain values, forward mode, which keeps nothing, or a program that is written down
        below = [leaf.value if w else leaf for leaf, w in zip(leaves, watched, strict=True)]
        ends, out_tree = optree.tree_flatten(kept(*cast(Any, optree.tree_unflatten(tree, below))))
        if any(isinstance(end, Tensor) and end.level >= level for end in ends):
            raise DerivativeError(
                f"{_name(fn)}, which is checkpointed, uses a tensor that is being differentiated and is no argument of "
                "it.\n  pass it as an argument."
            )
        nodes = tuple(leaf.node if w else None for leaf, w in zip(leaves, watched, strict=True))
        how = {"fn": fn, "tree": tree, "chosen": tuple(i for i, w in enumerate(watched) if w), "ends": tuple(ends)}
        whole = Node(_whole, tuple(below), how, None, nodes)
        made = [
            Traced(level, end, node=Node(_part, (), {"index": i, "count": len(ends)}, end, (whole,)))
            if isinstance(end, Tensor)
            else end
            for i, end in enumerate(ends)
        ]
        return optree.tree_unflatten(out_tree, made)

    return kept


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", "the function")


def _whole_vjp(
    ct: Bundle, out: None, *leaves: Any, fn: Any, tree: Any, chosen: tuple[int, ...], ends: tuple[Any, ...]
) -> tuple[Tensor | None, ...]:
    # The function is run again, this time with everything kept, and then backwards.
    def partly(*some: Any) -> Any:
        full = list(leaves)
        for i, value in zip(chosen, some, strict=True):
            full[i] = value
        made = optree.tree_leaves(fn(*optree.tree_unflatten(tree, full)))
        return [value for value in made if isinstance(value, Tensor)]

    _, back = vjp(partly, *(leaves[i] for i in chosen))
    tensors = [(end, part) for end, part in zip(ends, ct.parts, strict=True) if isinstance(end, Tensor)]
    given = [zeros_like(e, e.shape, e.layout.resolved()) if part is None else part for e, part in tensors]
    found: list[Tensor | None] = [None] * len(leaves)
    for i, cotangent in zip(chosen, back(given), strict=True):
        found[i] = cotangent
    return tuple(found)


def _part_vjp(ct: Tensor, out: Tensor, *, index: int, count: int) -> tuple[Bundle]:
    return (Bundle(tuple(ct if i == index else None for i in range(count))),)


def _never(*_: Any, **__: Any) -> Tensor:
    raise AssertionError("only found on tapes")


# On a tape: the run of a checkpointed function as a whole, and one of its results.
_whole = Row("checkpoint", _never, cast(Any, _whole_vjp))
_part = Row("checkpoint", _never, cast(Any, _part_vjp))
