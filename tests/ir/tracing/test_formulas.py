"""Formulas: what the compiler computes is what NumPy computes of the same text, of every kind of number."""

import ast

import numpy as np
import pytest
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region

from shardwise.errors import ProgramError
from shardwise.ir import execute
from shardwise.ir.tracing.emitter import Emitter, element_of
from shardwise.ir.tracing.formulas import OPS, ROUNDINGS, Scalar, Scope, compute, convert, is_single, parse
from shardwise.prim.arithmetic import elementwise
from shardwise.prim.forms import BOOL, Formula
from shardwise.prim.primitive import Primitive

FORMULAS = {
    n: row.lower
    for n, row in vars(elementwise).items()
    if isinstance(row, Primitive) and isinstance(row.lower, Formula)
}
NAMES = {name: getattr(np, name) for name in (*OPS, *ROUNDINGS) if hasattr(np, name)} | {
    "max": np.maximum, "min": np.minimum, "where": np.where, "roundeven": np.rint, "inf": np.inf,
}  # fmt: skip


def computed(formula: Formula, dtype: str, *values: float) -> object:
    """What the interpreter makes of a function of scalars that holds the formula alone."""
    kind = np.dtype(dtype)
    element = element_of(kind)
    block = Block(arg_types=[element] * len(values))
    e = Emitter(block)
    scalars = {name: Scalar(arg, kind) for name, arg in zip("xy", block.args, strict=False)}
    text = formula.ints if formula.ints is not None and kind.kind in "iub" else formula.text
    out = compute(e, text, Scope(scalars), kind).value
    block.add_op(func.ReturnOp(out))
    function = func.FuncOp("main", ([element] * len(values), [out.type]), Region(block))
    return execute(ModuleOp([function]), *(np.array(v, kind) for v in values))


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_a_formula_is_what_numpy_makes_of_its_text(name: str, dtype: str) -> None:
    formula = FORMULAS[name]
    if formula.of == "bool":
        dtype = "bool"
    text = formula.ints if formula.ints is not None and np.dtype(dtype).kind in "iub" else formula.text
    used = {node.id for node in ast.walk(parse(text)) if isinstance(node, ast.Name)} & {"x", "y"}
    values = [np.array(v, dtype) for v in ((3, 2) if dtype == "int32" else (1, 0) if dtype == "bool" else (0.75, 0.5))][
        : max(1, len(used))
    ]
    if name == "acosh":
        values = [np.array(2, dtype)]
    scope = NAMES | dict(zip("xy", values, strict=False))
    names = {node.func.id for node in ast.walk(parse(text)) if isinstance(node, ast.Call)}  # type: ignore[union-attr]
    names |= {type(node.op).__name__ for node in ast.walk(parse(text)) if isinstance(node, ast.BinOp)}
    if any(OPS[n][np.dtype(dtype).kind in "iub"] is None for n in names & {*OPS}):
        with pytest.raises(ProgramError, match=f"has no counterpart for {dtype}"):
            computed(formula, dtype, *[v.item() for v in values])
        return
    got = computed(formula, dtype, *[v.item() for v in values])
    want = eval(compile(ast.Expression(parse(text)), "formula", "eval"), {}, scope)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want, "bool" if dtype == "bool" else None), rtol=1e-5)


def test_what_compares_and_what_is_one_op() -> None:
    assert Formula("abs(x) < inf").compares
    assert not Formula("x & y").compares
    assert [is_single(t) for t in ("x + y", "y + x", "tanh(x)", "x", "max(x, 0)")] == [
        True, False, True, False, False,
    ]  # fmt: skip


def test_what_no_formula_may_hold_is_said() -> None:
    with pytest.raises(AssertionError, match="a formula has no"):
        computed(Formula("[x]"), "float64", 1.0)


@pytest.mark.parametrize(
    ("src", "dst"), [("float32", "int32"), ("int32", "bool"), ("bool", "float64"), ("int8", "int64")]
)
def test_scalars_are_converted(src: str, dst: str) -> None:
    block = Block(arg_types=[element_of(np.dtype(src))])
    e = Emitter(block)
    out = convert(e, block.args[0], np.dtype(src), np.dtype(dst))
    block.add_op(func.ReturnOp(out))
    function = func.FuncOp("main", ([block.args[0].type], [out.type]), Region(block))
    module = ModuleOp([function])
    for value in (0, 1):
        got = execute(module, np.array(value, src))
        assert np.asarray(got) == np.array(value, src).astype(dst)
    assert np.dtype("bool") == BOOL
