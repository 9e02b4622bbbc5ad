"""Steps: the derivatives of a primitive that is computed in one go, by the steps that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.layout.placement import kind_of
from shardwise.prim.arithmetic.elementwise import add
from shardwise.prim.bind import Node, Traced, new_level, pull_back
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.primitive import Primitive
from shardwise.prim.tensor import Tensor
from shardwise.prim.work import Work

Steps = Callable[..., Tensor]


def pull(steps: Steps, ct: Tensor, operands: Sequence[Any], params: dict[str, Any]) -> tuple[Tensor | None, ...]:
    """Return the cotangents of the operands of some steps, given that of their result.

    >>> from shardwise import asarray
    >>> pull(lambda x, y: x * y, asarray([1.0]), [asarray([2.0]), asarray([3.0])], {})
    (Tensor([3.], float64[1] on cpu:0), Tensor([2.], float64[1] on cpu:0))
    """
    smooth = [isinstance(x, Tensor) and kind_of(x.dtype) in "fc" for x in operands]
    nodes = [Node() for _ in operands]
    with new_level() as level:
        triples = zip(operands, smooth, nodes, strict=True)
        out = steps(*[Traced(level, x, node=node) if s else x for x, s, node in triples], **params)
    if not isinstance(out, Traced) or out.level != level or out.node is None:
        return (None,) * len(nodes)
    return tuple(pull_back([(out.node, ct)], nodes, add, once=True))


def push(steps: Steps, tangents: Sequence[Tensor | None], operands: Sequence[Any], params: dict[str, Any]) -> Any:
    """Return the tangent of the result of some steps, given those of the operands; None if it is zero.

    >>> from shardwise import asarray
    >>> push(lambda x: x * x, [asarray([1.0])], [asarray([3.0])], {})
    Tensor([6.], float64[1] on cpu:0)
    """
    with new_level() as level:
        pairs = zip(operands, tangents, strict=True)
        out = steps(*[x if t is None else Traced(level, x, tangent=t) for x, t in pairs], **params)
    return out.tangent if isinstance(out, Traced) and out.level == level else None


def row_of_steps(name: str, work: Callable[..., Work | Tensor], steps: Steps, **more: Any) -> Primitive:
    """Return the row of a primitive that is computed in one go and differentiated, unless `more` says how, by steps.

    >>> from shardwise import asarray, grad, sum
    >>> cube = row_of_steps("cube", lambda x: asarray(x.numpy() ** 3), lambda x: x * x * x)
    >>> grad(lambda x: sum(cube(x)))(asarray([2.0])).numpy()
    array([12.])
    """

    def vjp(ct: Tensor, out: Tensor, *operands: Any, **params: Any) -> tuple[Tensor | None, ...]:
        return pull(steps, ct, operands, params)

    def jvp(tangents: Sequence[Tensor | None], out: Tensor, *operands: Any, **params: Any) -> Any:
        return push(steps, tangents, operands, params)

    rules: dict[str, Any] = {"vjp": vjp, "jvp": jvp}
    return row_of_work(name, work, **(rules | more))
