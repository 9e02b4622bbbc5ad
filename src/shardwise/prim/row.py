"""Rows: what one primitive does, and its derivatives in terms of other primitives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardwise.prim.tensor import Tensor

Cotangents = tuple[Tensor | Callable[[], Tensor] | None, ...]


@dataclass(frozen=True, eq=False)
class Row:
    """One primitive of the table.

    `run(*tensors, **params)` computes it. `vjp(cotangent, out, *tensors, **params)` returns a cotangent per tensor:
    None where there is none, or a function that makes it where that is work which is only done if somebody asks.
    `jvp(tangents, out, *tensors, **params)` returns the tangent of the result; tangents that are None are zero. A
    `linear` primitive of one tensor is its own tangent map.
    """

    name: str
    run: Callable[..., Tensor]
    vjp: Callable[..., Cotangents] | None = None
    jvp: Callable[..., Tensor | None] | None = None
    linear: bool = False

    @staticmethod
    def constant(name: str, run: Callable[..., Tensor]) -> Row:
        """Return the row of a primitive that is constant wherever it has a derivative."""
        return Row(name, run, lambda ct, out, *operands, **params: (None,) * len(operands), lambda *_, **params: None)

    def __repr__(self) -> str:
        return f"Row({self.name})"

    def __call__(self, *tensors: Any, **params: Any) -> Tensor:
        """Apply the primitive under whatever interpreters its operands carry."""
        for x in tensors:
            if isinstance(x, Tensor) and x.level:
                from shardwise.prim.bind import bind

                return bind(self, *tensors, **params)
        return self.run(*tensors, **params)
