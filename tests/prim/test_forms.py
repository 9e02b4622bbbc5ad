"""Forms: what a primitive tells the compiler to write is what its kernel computes, loop by loop in plain Python."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from shardwise import ReduceOp, Tensor, asarray
from shardwise.prim import forms
from shardwise.prim.arithmetic.elementwise import less
from shardwise.prim.forms import Form, Formula, Loops, as_form, by_element, convert, full, place, reduce, take_slice
from tests.prim.steps import steps_of_all

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
WORDS = "sqrt exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh ceil floor trunc copysign abs inf where".split()
FUNCTIONS: dict[str, Any] = {word: getattr(np, word) for word in WORDS} | {
    "max": np.maximum, "min": np.minimum, "roundeven": np.rint,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
REDUCERS: dict[ReduceOp, Any] = {
    ReduceOp.SUM: np.sum, ReduceOp.PROD: np.prod, ReduceOp.MAX: np.max, ReduceOp.MIN: np.min,
    ReduceOp.BOR: np.any, ReduceOp.BAND: np.all,
}  # fmt: skip


def value(form: Form) -> np.ndarray:
    """What a form is, by NumPy and by loops."""
    match form:
        case forms.Operand(tensor=x):
            return x.numpy()
        case forms.Full(shape=shape, dtype=dtype, number=number):
            return np.full(shape, number, dtype)
        case forms.Reshape(shape=shape, form=x):
            return value(x).reshape(shape)
        case forms.Broadcast(shape=shape, form=x):
            return np.broadcast_to(value(x), shape)
        case forms.Transpose(form=x, order=order):
            return value(x).transpose(order)
        case forms.Slice(form=x) | forms.Place(into=x):
            whole = value(x).copy()
            sizes = form.shape if isinstance(form, forms.Slice) else form.form.shape
            spots = zip(form.starts, sizes, form.steps, strict=True)
            at = np.ix_(*[np.arange(n) * step + start for start, n, step in spots])
            if isinstance(form, forms.Slice):
                return whole[at]
            whole[at] = value(form.form)
            return whole
        case forms.Concat(parts=parts, dim=dim):
            return np.concatenate([value(part) for part in parts], axis=dim)
        case forms.Reduce(form=x, dims=dims, op=op, dtype=dtype):
            return REDUCERS[op](value(x), axis=dims).astype(dtype)
        case Loops():
            return by_loops(form)
    raise AssertionError(form)


def by_loops(form: Loops) -> np.ndarray:
    arrays = [value(read.form) if isinstance(read.form, Form) else None for read in form.reads]
    sizes = dict(zip(form.names, form.shape, strict=False))
    for array, read in zip(arrays, form.reads, strict=True):
        sizes |= {
            at: n for at, n in zip(read.at, () if array is None else array.shape, strict=False) if at in form.names
        }
    scope: dict[str, Any] = {**FUNCTIONS, "table": None if form.table is None else value(form.table)}
    body = compile(form.body, "body", "eval")
    places = [[compile(at, "index", "eval") for at in read.at] for read in form.reads]
    total = np.full(form.shape, form.start, form.dtype)
    for steps in product(*(range(sizes[name]) for name in form.names)):
        loops = dict(zip(form.names, steps, strict=True))
        at = steps[: len(form.shape)]
        names: dict[str, Any] = {}
        for name, array, read, index in zip("xyzuvw", arrays, form.reads, places, strict=False):
            element = read.form if array is None else array[tuple(eval(code, {}, loops) for code in index)]
            names[name] = np.asarray(element).astype(read.dtype)[()]
        total[at] = eval(body, scope | loops | names | {"total": total[at]})
    return total


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_every_form_is_what_the_primitive_gives(dtype: str) -> None:
    names, seen = set(), set()
    for row, operands, params, out in steps_of_all(dtype):
        if row.lower is None or not isinstance(out, Tensor) or not out.engine.has_values or out.dtype.kind == "c":
            continue
        key = (row, tuple(str(x) for x in operands), str(params))
        if key in seen:
            continue
        seen.add(key)
        found = value(row.form(out, *operands, **params))
        assert (found.shape, found.dtype) == (out.shape, out.dtype), row
        np.testing.assert_allclose(found.astype(float), out.numpy().astype(float), rtol=1e-6, err_msg=str(key))
        names.add(row.name)
    assert len(names) > 60, sorted(names)


def test_what_is_alike_is_made_once() -> None:
    x = asarray(np.ones((2, 3), "float32"))
    assert convert(x, x.dtype).__class__ is forms.Operand
    assert reduce(x, (), ReduceOp.SUM).__class__ is forms.Operand
    assert as_form(full((2,), 1, x.dtype)).dtype == x.dtype


def test_shapes_and_dtypes_follow() -> None:
    x = asarray(np.ones((2, 3), "float16"))
    assert reduce(x, (1,), ReduceOp.AVG).dtype == "float16"
    assert take_slice(x, (0, 1), (2, 1)).shape == (2, 1)
    assert place(x, full((4, 3), 0, x.dtype), (1, 0)).shape == (4, 3)
    row = asarray(np.ones((3,), "float16"))
    form = by_element(x, "x + y", (x, row), [x.dtype] * 2)
    assert isinstance(form, Loops)
    assert [read.at for read in form.reads] == [("d0", "d1"), ("d1",)]


def test_what_compares_is_computed_in_the_dtype_that_holds_both() -> None:
    x = asarray(np.ones((2,), "int8"))
    kinds = [Formula("x < y").form(less(x, y), x, y) for y in (2, 2.5, asarray(np.ones(2, "int32")))]
    assert [{str(read.dtype) for read in form.reads} for form in kinds if isinstance(form, Loops)] == [
        {"int8"}, {"float64"}, {"int32"},
    ]  # fmt: skip
