"""Uses: which values the derivative of an elementwise primitive is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.layout.device import default_device
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh
from shardwise.prim.primitive import OUT
from shardwise.prim.tensor import Tensor


class _Probe(Tensor):
    """A stand-in for an operand, that notes when a primitive is applied to it."""

    __slots__ = ("place", "used")
    level = 1 << 30  # above all interpreters

    def __init__(self, place: int | None, used: set[int]) -> None:
        """Stand for the operand at a place, the result (`OUT`), or what was made of others (None)."""
        layout = Layout.replicated(DeviceMesh.single(default_device()), 0)
        super().__init__((), layout, (), np.dtype("float64"))
        self.place, self.used = place, used

    def note(self) -> None:
        """Note that the value is needed."""
        if self.place is not None:
            self.used.add(self.place)

    def _interpret(self, row: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> Tensor:
        """Note which operands are needed; what comes out stands for none."""
        for x in operands:
            if isinstance(x, _Probe):
                x.note()
        return _Probe(None, self.used)


@cache(entries=1024)
def values_used(derivative: Callable[..., Any], are_tensors: tuple[bool, ...]) -> frozenset[int]:
    """Return the places of the operands whose values a derivative uses, `OUT` for the result; numbers do not count.

    >>> sorted(values_used(lambda x, y, out: y * out, (True, True)))
    [-1, 1]
    """
    used: set[int] = set()
    operands = [_Probe(i, used) if is_tensor else 2.0 for i, is_tensor in enumerate(are_tensors)]
    slope = derivative(*operands, _Probe(OUT, used))
    if isinstance(slope, _Probe):
        slope.note()
    return frozenset(used)
