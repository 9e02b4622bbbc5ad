"""Rows: what one primitive does, and its derivatives in terms of other primitives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from shardwise.prim.tensor import Tensor

Cotangents = tuple[Tensor | Callable[[], Tensor] | None, ...]


@dataclass(frozen=True)
class Formula:
    """An elementwise op in the arithmetic of scalars, as Python writes it, of its operands x and y.

    `ints` is what it is of integers, where that differs. It is computed in the dtype of the result, or in bool; what
    compares is computed in the dtype of the operands.

    >>> Formula("abs(x) < inf", ints="True")
    Formula(text='abs(x) < inf', ints='True', of='result')
    """

    text: str
    ints: str | None = None
    of: Literal["result", "bool"] = "result"


@dataclass(frozen=True, eq=False)
class Row:
    """One primitive of the table.

    `run(*tensors, **params)` computes it. `vjp(cotangent, out, *tensors, **params)` returns a cotangent per tensor:
    None where there is none, or a function that makes it where that is work which is only done if somebody asks.
    `jvp(tangents, out, *tensors, **params)` returns the tangent of the result; tangents that are None are zero. A
    `linear` primitive of one tensor is its own tangent map.

    `batch(row, lead, mapped, operands, params)` computes it on operands of which some, the `mapped` ones, have leading
    dims that the program does not see. Without it all operands are given those dims, and the parameters are shifted
    by their names (see `Lead`). `local` is a primitive of what devices hold inside `shard_map`, and of nothing else.

    `lower` is how the compiler writes it. An elementwise primitive has a `kernel`, a function of arrays, which may have
    leading dims for devices. `function` is the public function that it is, if it is one.
    """

    name: str
    run: Callable[..., Tensor]
    vjp: Callable[..., Cotangents] | None = None
    jvp: Callable[..., Tensor | None] | None = None
    linear: bool = False
    batch: Callable[..., Tensor] | None = None
    local: Callable[..., Tensor] | None = None
    lower: Formula | None = None
    kernel: Callable[..., Any] | None = None
    function: Callable[..., Any] | None = None

    @staticmethod
    def constant(name: str, run: Callable[..., Tensor]) -> Row:
        """Return the row of a primitive that is constant wherever it has a derivative."""
        return Row(name, run, lambda ct, out, *operands, **params: (None,) * len(operands), lambda *_, **params: None)

    def __repr__(self) -> str:
        return f"Row({self.name})"

    def __call__(self, *tensors: Any, **params: Any) -> Tensor:
        """Apply the primitive under whatever interpreters its operands carry: the one of the highest level first."""
        level, top = 0, None
        for x in tensors:
            if isinstance(x, Tensor) and x.level > level:
                level, top = x.level, x
        return self.run(*tensors, **params) if top is None else top._interpret(self, tensors, params)
