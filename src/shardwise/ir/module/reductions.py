"""Reductions: what the dialect, arith and NumPy call each of those that layouts can have pending."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Operation

from shardwise.errors import seal
from shardwise.layout.placement import ReduceOp


@seal
@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction: its word in the dialect, the op that combines two floats and that for ints, and NumPy's function."""

    op: ReduceOp
    word: str
    floats: type[Operation] | None
    ints: type[Operation] | None
    combine: np.ufunc


REDUCTIONS = (
    Reduction(ReduceOp.SUM, "sum", arith.AddfOp, arith.AddiOp, np.add),
    Reduction(ReduceOp.PROD, "product", arith.MulfOp, arith.MuliOp, np.multiply),
    Reduction(ReduceOp.MAX, "max", arith.MaximumfOp, arith.MaxSIOp, np.maximum),
    Reduction(ReduceOp.MIN, "min", arith.MinimumfOp, arith.MinSIOp, np.minimum),
    Reduction(ReduceOp.AVG, "average", None, None, np.add),
    Reduction(ReduceOp.BAND, "bitwise_and", None, arith.AndIOp, np.bitwise_and),
    Reduction(ReduceOp.BOR, "bitwise_or", None, arith.OrIOp, np.bitwise_or),
    Reduction(ReduceOp.BXOR, "bitwise_xor", None, arith.XOrIOp, np.bitwise_xor),
)
BY_OP = {row.op: row for row in REDUCTIONS}
BY_WORD = {row.word: row for row in REDUCTIONS}
BY_COMBINER = {op.name: row for row in REDUCTIONS for op in (row.floats, row.ints) if op is not None}
