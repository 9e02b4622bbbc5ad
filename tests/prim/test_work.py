"""Work: kernels are pure, write where they are told, and take a leading dim where they say so."""

from typing import Any

import numpy as np
import pytest

from shardwise import Tensor, asarray
from shardwise.engine.arrays import FLOAT64
from shardwise.engine.job import RESULT
from shardwise.prim.arithmetic.contract import contract
from shardwise.prim.arithmetic.elementwise import add, exp
from shardwise.prim.primitive import Primitive
from shardwise.prim.work import Work
from tests.prim.steps import Step, steps_of_all

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of logarithms of zero and the like
STEPS: dict[str, list[Step]] = {}


def steps_with_work(dtype: str) -> list[tuple[Step, Work]]:
    found = []
    for step in STEPS.setdefault(dtype, steps_of_all(dtype)):
        work = step.row.work(*step.operands, **step.params) if step.row.work is not None else None
        if isinstance(work, Work) and work.operands[0].engine.has_values:  # what `explain` does has none
            found.append((step, work))
    return found


def work_of(row: Primitive, *operands: Any, **params: Any) -> Work:
    assert row.work is not None
    return row.work(*operands, **params)


def whole(x: Tensor) -> tuple[tuple[int, int], ...]:
    return tuple((0, size) for size in x.shape)


def arrays_of(step: Step, work: Work) -> list[Any]:
    boxes = [whole(step.out if i == RESULT else work.operands[i]) for i in work.located]
    return [*boxes, *[x.numpy() for x in work.operands]]


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_a_kernel_on_whole_arrays_gives_the_whole_result_and_changes_nothing(dtype: str) -> None:
    names = set()
    for step, work in steps_with_work(dtype):
        arrays = arrays_of(step, work)
        before = [np.copy(a) for a in arrays]
        out = np.asarray(work.run(*arrays))
        expected = step.out.numpy()
        assert (out.shape, out.dtype) == (expected.shape, expected.dtype), step.row
        np.testing.assert_allclose(out.astype(FLOAT64), expected.astype(FLOAT64), rtol=1e-2, atol=1e-2)
        memory = np.full(out.shape, 7).astype(out.dtype)
        assert work.run(*arrays, out=memory) is memory
        np.testing.assert_array_equal(memory, out, step.row.name)
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, map(np.asarray, arrays), strict=True))
        names.add(step.row.name)
    assert len(names) > 50


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_a_kernel_that_takes_a_leading_dim_does_each_place_of_it_alike(dtype: str) -> None:
    names = set()
    for step, work in steps_with_work(dtype):
        if not work.takes_lead or any(x.shape != step.out.shape for x in work.operands):
            continue
        arrays = [x.numpy() for x in work.operands]
        out = np.asarray(work.run(*[np.stack([a, a[::-1]]) if a.ndim else np.stack([a, a]) for a in arrays]))
        first, second = (work.run(*[a[::turn] if a.ndim else a for a in arrays]) for turn in (1, -1))
        np.testing.assert_array_equal(out, np.stack([first, second]), step.row.name)
        names.add(step.row.name)
    assert len(names) > 40


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_the_rule_gives_the_shape(dtype: str) -> None:
    for step, work in steps_with_work(dtype):
        assert work.rule.shape(tuple(x.shape for x in work.operands)) == step.out.shape, step.row
        assert work.dtype in (None, step.out.dtype), step.row


def test_the_kernels_of_numpys_ufuncs_write_where_they_are_told() -> None:
    x = asarray(np.ones((3, 2)))
    assert work_of(exp, x).takes_out
    assert work_of(add, x, 2.0).takes_out
    assert not work_of(contract, x, x, terms=("ij", "ik"), out="jk").takes_out
