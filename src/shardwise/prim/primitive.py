"""Primitives: what one does, and its derivatives in terms of other primitives."""

# `_interpret` is for interpreters, and no method that users of a tensor are to see.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Signature, signature
from typing import Any

from shardwise.prim.forms import Form, Formula
from shardwise.prim.tensor import Tensor

Cotangents = tuple[Tensor | Callable[[], Tensor] | None, ...]
OUT = -1  # the result, where operands are numbered
# How the compiler writes a primitive: a formula of its operands, or a function of result, operands and parameters.
Lowering = Formula | Callable[..., Form]
# Whether the cotangent of operand i is made of the elements of operand j, or of the result.
Needs = Callable[[int, int, tuple[Any, ...], dict[str, Any]], bool]


def needs_nothing(i: int, j: int, operands: tuple[Any, ...], params: dict[str, Any]) -> bool:
    """Say that cotangents are made of no elements: shapes, layouts and dtypes are enough."""
    return False


def needs_others(i: int, j: int, operands: tuple[Any, ...], params: dict[str, Any]) -> bool:
    """Say that a cotangent is made of the other operands, as that of a product is."""
    return j not in (i, OUT)


def needs_out(i: int, j: int, operands: tuple[Any, ...], params: dict[str, Any]) -> bool:
    """Say that a cotangent is made of the result."""
    return j == OUT


def _no_cotangents(ct: Tensor, out: Tensor, *operands: Tensor, **params: Any) -> Cotangents:
    return (None,) * len(operands)


def _no_tangent(*_: Any, **params: Any) -> None:
    return None


# The names of the primitives that the compiler can write.
WRITTEN: set[str] = set()
# What the row of a primitive says that is constant wherever it has a derivative.
CONSTANT: dict[str, Any] = {"vjp": _no_cotangents, "jvp": _no_tangent, "needs": needs_nothing}


@dataclass(frozen=True, eq=False)
class Primitive:
    """One primitive of the table.

    `run(*tensors, **params)` computes it. `vjp(cotangent, out, *tensors, **params)` returns a cotangent per tensor:
    None where there is none, or a function that makes it where that is work which is only done if somebody asks.
    `jvp(tangents, out, *tensors, **params)` returns the tangent of the result; tangents that are None are zero. A
    `linear` primitive of one tensor is its own tangent map.

    `batch(row, lead, mapped, operands, params)` computes it on operands of which some, the `mapped` ones, have leading
    dims that the program does not see. Without it all operands are given those dims, and the parameters are shifted
    by their names (see `Lead`). `local` is a primitive of what devices hold inside `shard_map`, and of nothing else.

    `work(*tensors, **params)` tells, of those that devices run each by itself, the `Work` that they do: kernel, factor
    rule and operands; where it takes several steps, it returns their result. `effort` is how many operations each
    combination of factors takes. `lower` is how the compiler writes it. `function` is the public function that it is,
    if it is one.

    `needs(i, j, operands, params)` says whether the cotangent of operand i is made of the elements of operand j, or of
    the result, `OUT`: a tape keeps no others, and gives the `vjp` their outlines. Without it a linear primitive needs
    none, and any other one needs all.
    """

    name: str
    run: Callable[..., Tensor]
    vjp: Callable[..., Cotangents] | None = None
    jvp: Callable[..., Tensor | None] | None = None
    linear: bool = False
    batch: Callable[..., Tensor] | None = None
    local: Callable[..., Tensor] | None = None
    lower: Lowering | None = None
    work: Callable[..., Any] | None = None
    effort: float = 1
    function: Callable[..., Any] | None = None
    needs: Needs | None = None

    def __post_init__(self) -> None:
        if self.lower is not None:
            WRITTEN.add(self.name)

    @property
    def signature(self) -> Signature:
        """The parameters of the primitive: its operands, and by name what else it is told.

        >>> from shardwise.prim.arithmetic.elementwise import astype
        >>> list(astype.signature.parameters)
        ['x', 'dtype']
        """
        return signature(self.work or self.run)

    def form(self, out: Tensor, /, *operands: Any, **params: Any) -> Form:
        """Return how the compiler writes the primitive of operands, given the type of its result.

        >>> from shardwise import asarray
        >>> from shardwise.prim.arithmetic.elementwise import sqrt
        >>> x = asarray([4.0])
        >>> sqrt.form(x, x).body
        'sqrt(x)'
        """
        if isinstance(self.lower, Formula):
            return self.lower.form(out, *operands)
        assert self.lower is not None, f"the compiler cannot write {self.name}"
        return self.lower(out, *operands, **params)

    def __repr__(self) -> str:
        return f"Primitive({self.name})"

    def __call__(self, *tensors: Any, **params: Any) -> Tensor:
        """Apply the primitive under whatever interpreters its operands carry: the one of the highest level first."""
        level, top = 0, None
        for x in tensors:
            if isinstance(x, Tensor) and x.level > level:
                level, top = x.level, x
        return self.run(*tensors, **params) if top is None else top._interpret(self, tensors, params)
