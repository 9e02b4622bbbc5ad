"""What every function sends along a sharded dim, to the byte; and that solvers see it and say how to avoid it."""

import re
import warnings
from collections.abc import Callable
from inspect import isfunction
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

import shardwise as sw
from shardwise import DeviceMesh, GreedyReshard, LayoutError, NoReshard, P, ReshardWarning, Tensor, mode, shard
from tests.ops.cases import sent
from tests.prim.arithmetic.declared import BITS_OF_TWO, ONE, TWO
from tests.prim.test_methods import NO_METHOD

MESH = DeviceMesh((4,), ("x",))
ROW = 4 * 8  # bytes of a row of VALUE, of which every device has two
REDUCED = 6 * ROW  # to sum up a row of four contributions for four devices: three are sent to be added, and three back
VALUE = np.arange(1.0, 33.0).reshape(8, 4) / 32
INDEX = np.array([[0, 5, 2, 7]])


class Case(NamedTuple):
    """A function, its operands, each cut along dim 0 unless it says otherwise, and the bytes that it sends."""

    call: Callable[..., Any]
    bytes: int = 0
    operands: tuple[Any, ...] = (VALUE,)
    specs: tuple[P, ...] = (P("x"), P("x"), P("x"))

    def tensors(self) -> list[Tensor]:
        return [shard(value, MESH, spec) for value, spec in zip(self.operands, self.specs, strict=False)]


ACROSS = (
    P("x"),
    P(None, "x"),
)  # the second operand is cut the other way: of its new shard a device lacks three quarters
WHOLE = np.arange(32).reshape(8, 4)

CASES: dict[str, list[Case]] = {
    **{name: [Case(getattr(sw, name))] for name in (*ONE, "gelu", "sigmoid", "silu", "softplus")},
    **{name: [Case(getattr(sw, name), 0, (VALUE, VALUE)), Case(getattr(sw, name), 6 * ROW, (VALUE, VALUE), ACROSS)]
       for name in TWO},
    **{name: [Case(getattr(sw, name), 0, (WHOLE, WHOLE)), Case(getattr(sw, name), 6 * ROW, (WHOLE, WHOLE), ACROSS)]
       for name in BITS_OF_TWO},
    "acosh": [Case(sw.acosh, 0, (VALUE + 1,))],
    "atanh": [Case(sw.atanh, 0, (VALUE / 2,))],
    "bitwise_invert": [Case(sw.bitwise_invert, 0, (WHOLE,))],
    "astype": [Case(lambda x: sw.astype(x, "float32"))],
    "clip": [Case(lambda x: sw.clip(x, 0.2, 0.5))],
    "where": [Case(sw.where, 6 * ROW, (VALUE > 0.5, VALUE, VALUE), (P("x"), *ACROSS))],
    # -- products: over a dim that both are cut along, the result is a sum that is pending
    "einsum": [Case(lambda x, y: sw.einsum("ij,ik->jk", x, y), 0, (VALUE, VALUE))],
    "matmul": [Case(lambda x, y: sw.matmul(x.T, y), 0, (VALUE, VALUE))],
    "tensordot": [Case(lambda x, y: sw.tensordot(x, y, axes=((0,), (0,))), 0, (VALUE, VALUE))],
    # -- convolution: one element over each of three boundaries, both ways
    "conv": [Case(lambda x: sw.conv(x, np.ones((1, 1, 3)), padding="SAME"), 8 * 6, (np.ones((1, 1, 32)),),
                  (P(None, None, "x"),))],
    # -- reductions: a number per column
    **{name: [Case(lambda x, name=name: getattr(sw, name)(x, axis=0))]
       for name in ("sum", "prod", "max", "min", "any", "all")},
    "mean": [Case(lambda x: sw.mean(x, axis=0), REDUCED)],
    "var": [Case(lambda x: sw.var(x, axis=0), 2 * REDUCED)],
    "std": [Case(lambda x: sw.std(x, axis=0), 2 * REDUCED)],
    "norm": [Case(lambda x: sw.norm(x, axis=0), REDUCED)],
    "logsumexp": [Case(lambda x: sw.logsumexp(x, axis=0), 2 * REDUCED)],
    "log_softmax": [Case(lambda x: sw.log_softmax(x, axis=0), 2 * REDUCED)],
    "softmax": [Case(lambda x: sw.softmax(x, axis=0), 2 * REDUCED)],
    "argmax": [Case(lambda x: sw.argmax(x, axis=0), REDUCED)],
    "argmin": [Case(lambda x: sw.argmin(x, axis=0), REDUCED)],
    "layer_norm": [Case(lambda x: sw.layer_norm(x, axis=0), 2 * REDUCED)],
    "rms_norm": [Case(lambda x: sw.rms_norm(x, axis=0), REDUCED)],
    "cross_entropy": [Case(lambda x: sw.cross_entropy(x, INDEX[0], axis=0, reduction="none"), 3 * REDUCED)],
    "cumulative_sum": [Case(lambda x: sw.cumulative_sum(x, axis=0), 4 * 3 * ROW)],  # the totals of the others
    "topk": [Case(lambda x: sw.topk(x, 2, axis=0), 4 * 3 * 2 * 2 * ROW)],  # two of the others, and where they are
    # -- shapes
    "reshape": [
        Case(lambda x: sw.reshape(x, (2, 4, 4))),
        Case(lambda x: sw.reshape(x, (4, 2)), 8 * (1 + 2 + 2 + 1), (VALUE[:2],), (P(None, "x"),)),  # columns to runs
        Case(lambda x: sw.reshape(x, (5, 7)), 8 * (5 + 3 + 1), (np.ones(35),))],  # 9, 9, 9, 8 to 14, 7, 7, 7
    **{name: [Case(lambda x, name=name, a=a: getattr(sw, name)(x, *a))] for name, a in (
        ("permute_dims", ((1, 0),)), ("matrix_transpose", ()), ("moveaxis", (0, 1)), ("broadcast_to", ((3, 8, 4),)))},
    "expand_dims": [Case(lambda x: sw.expand_dims(x, axis=1))],
    "squeeze": [Case(lambda x: sw.squeeze(x, 0), 3 * ROW, (VALUE[:1],))],  # one device has the only row
    # -- joined, cut apart, moved along
    "concat": [
        Case(lambda x, y: sw.concat([x, y]), 12 * ROW, (VALUE, VALUE)),  # of its four rows a device has two, or none
        Case(lambda x: sw.concat([x, x], axis=1)),
        Case(lambda x, y: sw.concat([x, y], axis=None), 12 * ROW, (VALUE, VALUE))],
    "stack": [
        Case(lambda x, y: sw.stack([x, y]), 6 * ROW, (VALUE, VALUE), ACROSS),
        Case(lambda x, y: sw.stack([x, y]), 0, (VALUE, VALUE))],
    "split": [Case(lambda x: sw.split(x, 2), (3 + 3) * ROW)],
    "unstack": [Case(lambda x: sw.unstack(x), 8 * 3 * ROW)],  # every row goes to the three others
    "flip": [Case(lambda x: sw.flip(x, axis=0), 8 * ROW)],
    "roll": [Case(lambda x: sw.roll(x, 1, axis=0), 4 * ROW)],
    # Three rows before: 3, 3, 3 and 2, of which the value's 0 to 2, 3 to 5 and 6 to 7 lack two, one and none.
    "pad": [Case(lambda x, m=m: sw.pad(x, ((3, 0), (0, 0)), mode=cast(Any, m)), (3 + more) * ROW)
            for m, more in (("constant", 0), ("edge", 0), ("reflect", 2), ("wrap", 3))],
    # -- indices
    "take": [Case(lambda x: sw.take(x, INDEX[0], axis=0))],
    "take_along_axis": [Case(lambda x: sw.take_along_axis(x, INDEX, axis=0))],
    "embedding": [Case(lambda x: sw.embedding(INDEX, x))],
    "one_hot": [Case(lambda x: sw.one_hot(x, 9), 0, (WHOLE,))],
    "x[...]": [Case(lambda x: x[1:], 3 * ROW), Case(lambda x: x[3], 3 * ROW), Case(lambda x: x[::-1], 8 * ROW)],
    "x.at[...].set": [Case(lambda x, y: x.at[2:4].set(y), ROW, (VALUE, VALUE[:2])), Case(lambda x: x.at[1:3].set(0.0))],
    "x.at[...].add": [Case(lambda x, y: x.at[2:4].add(y), ROW, (VALUE, VALUE[:2])), Case(lambda x: x.at[1:3].add(1.0))],
    # -- triangles and keys
    "tril": [Case(sw.tril)],
    "triu": [Case(sw.triu)],
    "dropout": [Case(lambda x: sw.random.dropout(sw.random.key(0), x, 0.5))],
}  # fmt: skip
EACH = [pytest.param(case, id=f"{name}-{i}") for name, cases in CASES.items() for i, case in enumerate(cases)]


def test_every_function_of_tensors_is_in_the_table():
    shadows = ["abs", "all", "any", "max", "min", "pow", "round", "sum"]
    public = {name for name in {*sw.__all__, *shadows} if isfunction(getattr(sw, name))}
    operators = {name for name, reason in NO_METHOD.items() if reason == "is an operator"}
    takes = {"concat", "stack", "einsum", "where", "embedding"}
    assert public - (set(NO_METHOD) - operators - takes) - set(CASES) == set()


@pytest.mark.parametrize("case", EACH)
def test_it_sends_so_many_bytes(case):
    given = case.tensors()
    assert sent(lambda: case.call(*given))[1] == case.bytes


@pytest.mark.parametrize("case", EACH)
def test_what_is_sent_is_reported_to_the_byte(case):
    given = case.tensors()
    with warnings.catch_warnings(record=True, action="always") as found, mode(GreedyReshard(on_reshard="warn")):
        case.call(*given)
    texts = [str(warning.message) for warning in found]
    assert {warning.category for warning in found} <= {ReshardWarning}
    assert sum(int(re.search(r"\((\d+) bytes in all\)", text)[1]) for text in texts) == case.bytes  # type: ignore[index]
    for text, warning in zip(texts, found, strict=True):
        assert __file__ in text
        assert warning.filename == __file__
        assert re.search(r"\n    fix: x\d = shard\(x\d, mesh, P\(", text)


@pytest.mark.parametrize("case", EACH)
def test_what_sends_is_refused_and_the_fix_can_be_pasted(case):
    given = case.tensors()
    want = case.call(*given)
    names: dict[str, Any] = {"shard": shard, "mesh": MESH, "P": P} | {f"x{i}": x for i, x in enumerate(given)}
    refused = 0
    with mode(NoReshard()):
        while True:
            try:
                got = case.call(*(names[f"x{i}"] for i in range(len(given))))
                break
            except LayoutError as error:
                refused += 1
                if refused > 3:  # the advice does not help
                    raise
                for line in re.findall(r"fix: (.*)", str(error)):
                    exec(line, names)
    assert bool(refused) == bool(case.bytes)
    for a, b in zip(*((y if isinstance(y, list | tuple) else [y]) for y in (got, want)), strict=True):
        assert np.allclose(a.numpy(), b.numpy())
