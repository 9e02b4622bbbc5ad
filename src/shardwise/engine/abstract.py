"""The abstract engine: moves nothing, and accounts for everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from shardwise.engine.counters import Counters
from shardwise.engine.execute import Moved, Program, Stage
from shardwise.engine.log import Record, active_logs, user_line


@dataclass(frozen=True, slots=True)
class AbstractArray:
    """The shape and dtype of an array that is not there."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        """How many dims it has."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes it would take."""
        return prod(self.shape) * self.dtype.itemsize


class AbstractEngine:
    """Knows layouts, plans, bytes and memory, on meshes of any size; a tensor on it has no values."""

    name = "abstract"

    def __init__(self) -> None:
        """Start with all counters at zero."""
        self.counters = Counters()

    def empty(self, shape: Sequence[int], dtype: np.dtype, like: Any = None) -> AbstractArray:
        """Return an array that is not there."""
        out = AbstractArray(tuple(shape), dtype)
        self.counters.bytes_allocated += out.nbytes
        return out

    def apply(self, kernel: Callable[..., Any], arrays: Sequence[Any], shape: Sequence[int]) -> AbstractArray:
        """Return the shape and dtype of what a kernel would make; the dtype by asking it about single elements."""
        self.counters.kernel_calls += 1
        small = [np.ones((1,) * a.ndim, a.dtype) if isinstance(a, AbstractArray) else a for a in arrays]
        return AbstractArray(tuple(shape), np.asarray(kernel(*small)).dtype)

    def run(self, program: Program, arrays: Sequence[Any]) -> tuple[AbstractArray, ...]:
        """Return the arrays of the target layout, and count what moving them would take."""
        for stage in program.stages:
            moved: dict[str, int] = {}
            for out, size in _sizes(stage):
                for kind, times in out:
                    moved[kind] = moved.get(kind, 0) + size * times * program.dtype.itemsize
            for kind, size in moved.items():
                self.counters.moved(kind, size)
            for note in stage.steps if active_logs() else ():
                for log in active_logs():
                    log.records.append(Record(*note, moved.get(note.kind, 0), 0.0, user_line()))
        return tuple(AbstractArray(shape, program.dtype) for shape in program.target.shapes)


def _sizes(stage: Stage) -> Iterator[tuple[Moved, int]]:
    for take in stage.takes:
        yield take.moved, prod(stage.after.shapes[take.out])
    for part in (*stage.copies, *stage.reduces, *stage.shared):
        yield part.moved, prod(where.stop - where.start for where in part.at[:-1])
