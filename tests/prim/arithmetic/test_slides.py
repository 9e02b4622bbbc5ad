"""Slides: what a window reaches, and convolutions as loops, against the sum that defines them."""

from random import Random

import numpy as np
import pytest

from shardwise import asarray
from shardwise.prim.arithmetic.convolve import convolve, correlate, deconvolve
from shardwise.prim.arithmetic.slides import Slide
from tests.prim.arithmetic.test_convolve import form_of, oracle, some
from tests.prim.test_forms import value


@pytest.mark.parametrize("seed", range(4))
def test_the_loops_of_each_of_the_three_are_the_sums_that_define_it(seed: int) -> None:
    form = form_of(Random(40 + seed))
    x, w, y = (some(shape, seed + i) for i, shape in enumerate((form.x, form.w, form.y)))
    for row, operands, want in (
        (convolve, (x, w), oracle(form, x=x, w=w)),
        (deconvolve, (w, y), oracle(form, w=w, y=y)),
        (correlate, (x, y), oracle(form, x=x, y=y)),
    ):
        tensors = [asarray(a) for a in operands]
        np.testing.assert_array_equal(value(row.form(asarray(want), *tensors, form=form)), want)


@pytest.mark.parametrize("low", [0, 1, 3])
@pytest.mark.parametrize(("stride", "dilation", "width"), [(1, 1, 3), (2, 1, 2), (3, 2, 2), (1, 3, 1)])
def test_what_parts_reach_is_what_elements_meet(low: int, stride: int, dilation: int, width: int) -> None:
    slide = Slide(12, width, 5, stride, dilation, low)
    met = [(t, t * stride + k * dilation - low) for t in range(5) for k in range(width)]
    for start, stop in ((0, 2), (1, 4), (3, 5)):
        reached = [i for t, i in met if start <= t < stop]
        assert slide.before(start, stop) == (min(reached), max(reached) + 1)
        back = [t for t, i in met if start <= i < stop]
        first, last = slide.after(start, stop)
        assert all(first <= t < last for t in back)
