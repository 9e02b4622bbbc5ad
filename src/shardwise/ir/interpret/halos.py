"""Halos: the borders of shards, filled from what other shards of a group own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
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

    def crop(x: Any) -> Any:
        return x[(*lead, slice(low, x.shape[dim] - high))]

    def fill(own: Any, line: Any, start: int, stop: int) -> Any:
        below, above = min(low, start), min(high, line.shape[dim] - stop)
        out, end = own.copy(), low + stop - start
        out[(*lead, slice(low - below, low))] = line[(*lead, slice(start - below, start))]
        out[(*lead, slice(end, end + above))] = line[(*lead, slice(stop, stop + above))]
        return out

    for x in values:
        if x.shape[dim] < low + high:
            raise ProgramError(f"{op_text(op)}: a shard of {x.shape[dim]} elements in dim {dim} has no room for halos.")
    cores: list[Value] = [move(crop, x) for x in values]
    line = move(lambda parts: np.concatenate(parts, axis=dim), cores)
    bounds = pairwise(accumulate((core.shape[dim] for core in cores), initial=0))
    return [move(partial(fill, start=a, stop=b), x, line) for x, (a, b) in zip(values, bounds, strict=True)]
