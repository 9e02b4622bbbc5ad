"""Halos: the borders of shards, filled from what other shards of a group own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import Operation

from shardwise.errors import ProgramError
from shardwise.ir.module.program import op_text
from shardwise.ir.module.values import Value, move


def fill_halos(op: Operation, values: Sequence[Value], dim: int, low: int, high: int) -> list[Value]:
    """Return the shards of a group with the halos of one dim filled; those beyond the first and last stay.

    A halo may be wider than the next shard: it is then filled from further ones too.
    """
    lead = (slice(None),) * dim
    cores = []
    for x in values:
        if x.shape[dim] < low + high:
            raise ProgramError(f"{op_text(op)}: a shard of {x.shape[dim]} elements in dim {dim} has no room for halos.")
        inside = (*lead, slice(low, x.shape[dim] - high))
        cores.append(move(lambda a, inside=inside: a[inside], x))
    line = move(lambda parts: np.concatenate(parts, axis=dim), cores)
    filled, start = [], 0
    for x, core in zip(values, cores, strict=True):
        stop = start + core.shape[dim]
        below, above = min(low, start), min(high, line.shape[dim] - stop)

        def put(
            own: Any, all_: Any, start: int = start, stop: int = stop, below: int = below, above: int = above
        ) -> Any:
            out = own.copy()
            out[(*lead, slice(low - below, low))] = all_[(*lead, slice(start - below, start))]
            end = low + stop - start
            out[(*lead, slice(end, end + above))] = all_[(*lead, slice(stop, stop + above))]
            return out

        filled.append(move(put, x, line))
        start = stop
    return filled
