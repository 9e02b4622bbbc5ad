"""Functions that pick, place and order elements, and convolutions: traced and run, they give what eager gives.

Of the functions listed, those are tested that this version of shardwise has.
"""

from typing import Any

import numpy as np
import pytest

import shardwise
from shardwise import grad
from shardwise.ir import execute, trace
from tests.ir.tracing.test_tracer import same, spread

sw: Any = shardwise

X = spread((8, 6), "x", "y")
ROWS = spread((8, 6), "x", None)
PICKS = np.array([[3, 0, -1], [5, 3, 3]])
IMAGE, KERNEL = spread((2, 4, 9, 8), "x", None, "y"), spread((6, 2, 3, 2))


def stencil(u: Any) -> Any:
    inner = u[1:-1, 1:-1]
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return sw.pad(inner + 0.1 * (around - 4.0 * inner), 1)


# The function that a case needs, and the case.
CASES: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "rows in blocks": ("reshape", lambda x: sw.sum(sw.reshape(x, (4, 2, 6)), axis=1), (X,)),
    "slices": ("take", lambda x: x[1:7:2, -3:] * 2.0, (X,)),
    "one row": ("take", lambda x: x[3], (X,)),
    "backwards": ("flip", lambda x: x[::-1, ::2], (X,)),
    "flip": ("flip", lambda x: sw.flip(x, axis=(0, 1)), (X,)),
    "roll": ("roll", lambda x: sw.roll(x, 3, axis=0) - sw.roll(x, -1, axis=1), (X,)),
    "concat": ("concat", lambda x, y: sw.concat([x, y, x], axis=0), (X, ROWS)),
    "stack": ("stack", lambda x, y: sw.stack([x, y], axis=1), (X, ROWS)),
    "pad": ("pad", lambda x: sw.pad(x, ((1, 2), (0, 3)), constant_values=4.0), (X,)),
    "pad with edges": ("pad", lambda x: sw.pad(x, 1, mode="edge"), (X,)),
    "take": ("take", lambda x: sw.take(x, PICKS, axis=0), (X,)),
    "take along": ("take_along_axis", lambda x: sw.take_along_axis(x, PICKS[:, :1].repeat(6, 1), axis=0), (X,)),
    "running sums": ("cumulative_sum", lambda x: sw.cumulative_sum(x, axis=0), (X,)),
    "triangles": ("tril", lambda x: sw.tril(x, k=-1) + sw.triu(x, k=2), (X,)),
    "norm": ("layer_norm", lambda x: sw.layer_norm(x), (X,)),
    "conv": ("conv", lambda x, w: sw.conv(x, w, stride=2, padding=((1, 1), (0, 1)), groups=2), (IMAGE, KERNEL)),
    "stencil": ("pad", lambda u: stencil(stencil(u)), (X,)),
    "dilated": ("conv", lambda x, w: sw.conv(x, w, dilation=2, padding=((2, 2), (1, 0)), groups=2), (IMAGE, KERNEL)),
}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if hasattr(sw, case[0])])
def test_traced_functions_and_their_gradients(name):
    _, fn, args = CASES[name]
    same(fn, *args)
    same(grad(lambda *args: sw.sum(fn(*args) ** 2), argnums=tuple(range(len(args)))), *args)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_running_sum_of_negative_zeros_is_one(reverse):
    x = np.array([-0.0, -0.0, 1.0, -1.0, -0.0])[:: -1 if reverse else 1].copy()
    got = execute(trace(lambda x: sw.cumulative_sum(x), sw.asarray(x)), x)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(sw.cumulative_sum(sw.asarray(x)).numpy()))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(np.cumulative_sum(x)))
