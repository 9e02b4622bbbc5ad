"""Rematerialization: what a function computed inside is not kept for its derivative but computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import optree

from shardwise.errors import check_function
from shardwise.prim.face import public
from shardwise.prim.tensor import Tensor
from shardwise.transform.calls import call_of, replace_at, write_call
from shardwise.transform.derivatives import differentiate

Args = ParamSpec("Args")
Result = TypeVar("Result")


@public()
def checkpoint(fn: Callable[Args, Result]) -> Callable[Args, Result]:
    """Return the same function, of which reverse derivatives keep the arguments only and compute the rest again.

    Less memory for one more run. Tensors that are differentiated must be arguments (trees are fine).

    >>> from shardwise import asarray, exp, grad, sum
    >>> layer = checkpoint(lambda x: exp(exp(x)))
    >>> grad(lambda x: sum(layer(x)))(asarray([0.0])).item() == 2.718281828459045
    True
    """
    check_function(fn, "checkpoint")
    body = cast(Callable[..., Any], fn)

    @wraps(fn)
    def run(*args: Any) -> Any:
        call = call_of(args)
        taped = [i for i, w in enumerate(call.taped) if w]
        if not taped or any(call.leaves[i].is_recorded for i in taped):
            return body(*args)  # plain values, forward mode, which keeps nothing, or a program that is written down
        below = call.below

        def partly(*some: Any) -> Any:
            out = body(*call.args(replace_at(taped, below, some)))
            return [value for value in optree.tree_leaves(out) if isinstance(value, Tensor)]

        def backward(cotangents: list[Tensor]) -> Sequence[Tensor | None]:
            # The function is run again, this time with everything kept, and then backwards.
            _, back = differentiate(partly, tuple([below[i] for i in taped]), once=True)
            return replace_at(taped, [None] * len(below), back(cotangents))

        name = f"{getattr(fn, '__name__', 'the function')}, which is checkpointed,"
        return write_call(name, call, run(*call.args(below)), backward)

    return cast(Any, run)
