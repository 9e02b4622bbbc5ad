"""Every application of a primitive that right calls of all public functions come to, and their derivatives."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

from shardwise import Tensor, grad, sum
from shardwise.errors import ShardwiseError
from shardwise.prim.primitive import Primitive
from tests.ops.calls import Call, calls


class Step(NamedTuple):
    """A primitive, what it was applied to, and what it gave."""

    row: Primitive
    operands: tuple[Any, ...]
    params: dict[str, Any]
    out: Any


@contextmanager
def watch() -> Iterator[list[Step]]:
    """Collect what is run, interpreters being gone."""
    steps: list[Step] = []
    plain = Primitive.__call__

    def call(row: Primitive, *operands: Any, **params: Any) -> Any:
        out = plain(row, *operands, **params)
        if not any(isinstance(x, Tensor) and x.level for x in operands):
            steps.append(Step(row, operands, params, out))
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Primitive, "__call__", call)
        yield steps


def steps_of_all(dtype: Any = "float64") -> list[Step]:
    """What all calls do, and the derivatives of those that have one by their first tensor."""
    with watch() as steps, np.errstate(all="ignore"):
        for call in calls(dtype):
            try:
                call()
                _derive(call)
            except (ShardwiseError, TypeError):
                continue
    return steps


def _derive(call: Call) -> None:
    at = next((i for i, x in enumerate(call.args) if isinstance(x, Tensor) and x.dtype.kind == "f"), None)
    if at is not None:
        grad(lambda x: sum(call.with_(at, x)()))(call.args[at])
