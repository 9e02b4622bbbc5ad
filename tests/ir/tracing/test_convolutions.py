"""Convolution and its adjoints, traced: the ops that are written give the sums of the form they come from."""

from random import Random

import numpy as np
import pytest

from shardwise import asarray
from shardwise.ir import execute, parse_module, print_module, trace, verify
from shardwise.prim.arithmetic.convolve import convolve, correlate, deconvolve
from tests.prim.arithmetic.test_convolve import form_of, oracle, some


@pytest.mark.parametrize("seed", range(6))
def test_each_of_the_three_is_one_structured_op(seed: int) -> None:
    form = form_of(Random(300 + seed))
    x, w, y = (some(shape, seed + i) for i, shape in enumerate((form.x, form.w, form.y)))
    if 0 in form.y:
        return
    for row, operands, want in (
        (convolve, (x, w), oracle(form, x=x, w=w)),
        (deconvolve, (w, y), oracle(form, w=w, y=y)),
        (correlate, (x, y), oracle(form, x=x, y=y)),
    ):
        text = print_module(trace(lambda a, b, row=row: row(a, b, form=form), *map(asarray, operands)))
        assert text.count("linalg.generic") == 1
        module = parse_module(text)
        verify(module)
        np.testing.assert_array_equal(execute(module, *operands), want)
