"""Inference: the type and the cost of what a primitive gives, from those of its operands, without computing it."""

from __future__ import annotations

from typing import Any, NamedTuple

from shardwise.engine.abstract import AbstractEngine
from shardwise.engine.current import engine_context
from shardwise.layout.types import DistributedType
from shardwise.prim.primitive import Primitive
from shardwise.prim.tensor import Tensor
from shardwise.prim.work import Work


class Cost(NamedTuple):
    """What a primitive costs all devices together, where none does work of another: operations, and bytes touched."""

    operations: float
    touched: int


def infer(row: Primitive, *operands: Any, **params: Any) -> Tensor:
    """Return shape, dtype and layout of what a primitive gives, as a tensor without values.

    Operands are tensors, types of them, and numbers. The devices of the rule: a kernel is asked for the dtype with
    single elements, the rule for the shape, and the current solver for the layout.

    >>> from shardwise import DeviceMesh, DistributedTensorType, P
    >>> from shardwise.prim.arithmetic.elementwise import exp
    >>> x = DistributedTensorType("float32", (1 << 20, 64), DeviceMesh((1024,), ("x",)), P("x"))
    >>> infer(exp, x)
    Tensor(float32[1048576@x, 64] on x=1024, abstract)
    """
    engine = AbstractEngine()
    with engine_context(engine):
        return row(*[abstract(x, engine) for x in operands], **params)


def cost_of(row: Primitive, *operands: Any, **params: Any) -> Cost:
    """Return what a primitive costs on operands as `infer` takes them.

    One that devices do not run each by itself has no operations: it moves what it touches.

    >>> from shardwise import DeviceMesh, DistributedTensorType, P
    >>> from shardwise.prim.arithmetic.contract import contract
    >>> x = DistributedTensorType("float32", (64, 64), DeviceMesh((4,), ("x",)), P("x"))
    >>> cost_of(contract, x, x, terms=("ij", "jk"), out="ik")
    Cost(operations=524288, touched=49152)
    """
    engine = AbstractEngine()
    with engine_context(engine):
        tensors = [abstract(x, engine) for x in operands]
        out = row(*tensors, **params)
        work = row.work(*tensors, **params) if row.work is not None else None
    touched = sum(x.nbytes for x in (*tensors, out) if isinstance(x, Tensor))
    if not isinstance(work, Work):
        return Cost(0, touched)
    return Cost(row.effort * work.rule.places(tuple([x.shape for x in work.operands])), touched)


def abstract(leaf: Any, engine: AbstractEngine) -> Any:
    """Return a tensor without values in the place of a tensor or a type; anything else, arrays too, as it is."""
    if not isinstance(leaf, DistributedType | Tensor):
        return leaf
    shape = tuple([int(size) for size in leaf.shape])
    return Tensor(engine.blank(leaf.layout, shape, leaf.dtype), leaf.layout, shape, leaf.dtype, engine)
