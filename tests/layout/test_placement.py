"""Placements, reductions and the checks of how a dim is cut."""

import copy
import pickle
from dataclasses import fields
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardwise import (
    ArgumentError,
    BindingError,
    Cut,
    LayoutError,
    Partial,
    Placement,
    ReduceOp,
    Replicated,
    Sharded,
)

shard: Any = Sharded  # lets the type checker pass wrong arguments
partial: Any = Partial
cut: Any = Cut
OPS = "sum, avg, min, max, prod, band, bor, bxor"
EXAMPLES: list[Any] = [
    Replicated(),
    Partial(),
    Partial("max"),
    Sharded(0),
    Sharded(-1, split="chunk"),
    Sharded(2, offsets=(0, 2, 2, 5), halo=(1, 0), edge="pad"),
]


@pytest.mark.parametrize("placement", EXAMPLES, ids=repr)
def test_a_placement_is_a_value(placement: Any):
    same = eval(repr(placement))
    for other in (
        same,
        copy.copy(placement),
        copy.deepcopy(placement),
        pickle.loads(pickle.dumps(placement)),
    ):
        assert other == placement
        assert hash(other) == hash(placement)
    assert [other for other in EXAMPLES if other == placement] == [placement]
    for field in fields(placement):
        with pytest.raises(AttributeError):
            setattr(placement, field.name, None)
    assert isinstance(placement, Placement)


def test_spellings_of_one_placement_are_equal():
    assert Partial("SUM") == Partial(ReduceOp.SUM) == Partial()
    assert Sharded(0, halo=1) == Sharded(0, halo=(1, 1)) == shard(0, halo=[np.int64(1), 1])
    assert Sharded(0, offsets=[0, 3]) == Sharded(0, split="offsets", offsets=(0, 3))
    assert shard(np.int64(1), offsets=np.array([0, 3])) == shard(1, offsets=(n for n in (0, 3)))
    assert type(shard(np.int64(1)).axis) is int
    assert {type(bound) for bound in shard(1, offsets=np.array([0, 3])).offsets} == {int}


@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        ("float32", "sum avg min max prod"),
        (ml_dtypes.bfloat16, "sum avg min max prod"),
        ("bfloat16", "sum avg min max prod"),
        (ml_dtypes.float8_e4m3fn, "sum avg min max prod"),
        (ml_dtypes.int4, "sum min max prod band bor bxor"),
        ("int8", "sum min max prod band bor bxor"),
        (np.uint64, "sum min max prod band bor bxor"),
        ("complex64", "sum avg prod"),
        (bool, "min max band bor bxor"),
        ("U4", ""),
        (object, ""),
    ],
)
def test_reductions_stay_inside_the_dtype(dtype, names):
    name, allowed = np.dtype(dtype), names.split()
    for op in ReduceOp:
        if op.value in allowed:
            op.check_dtype(dtype)
            continue
        with pytest.raises(BindingError) as caught:
            op.check_dtype(dtype)
        assert str(caught.value) == (
            f"reduction {op.value!r} is not defined for {name}.\n  reductions of {name}: {', '.join(allowed) or 'none'}"
        )


@pytest.mark.parametrize("op", ReduceOp)
def test_idempotent_reductions_give_equal_copies_back(op):
    reduce = {
        "sum": np.sum, "avg": np.mean, "min": np.min, "max": np.max, "prod": np.prod,
        "band": np.bitwise_and.reduce, "bor": np.bitwise_or.reduce, "bxor": np.bitwise_xor.reduce,
    }[op.value]  # fmt: skip
    values = np.array([5, 6, 7])
    assert op.is_idempotent == bool(np.all(reduce(np.stack([values, values]), axis=0) == values))


ERRORS = [
    (
        lambda: partial("mex"),
        LayoutError,
        f"unknown reduction 'mex'.\n  reductions: {OPS}\n  did you mean 'max'?",
    ),
    (lambda: partial("zzz"), LayoutError, f"unknown reduction 'zzz'.\n  reductions: {OPS}"),
    (
        lambda: partial(3),
        ArgumentError,
        f"a reduction is a ReduceOp or its name, got 3.\n  reductions: {OPS}",
    ),
    (lambda: shard(True), LayoutError, "Sharded needs a tensor dim as an int, got True."),
    (lambda: shard("x"), LayoutError, "Sharded needs a tensor dim as an int, got 'x'."),
    (lambda: shard(1.0), LayoutError, "Sharded needs a tensor dim as an int, got 1.0."),
    (
        lambda: shard(0, split="chunks"),
        LayoutError,
        "unknown split 'chunks' in Sharded.\n  splits: balanced, chunk, offsets\n  did you mean 'chunk'?",
    ),
    (
        lambda: cut("x", edge="clp"),
        LayoutError,
        "unknown edge policy 'clp' in Cut.\n  edges: clip, pad\n  did you mean 'clip'?",
    ),
    (lambda: cut("x", halo=-1), LayoutError, "a halo is a pair of widths of 0 or more, got -1 in Cut."),
    (
        lambda: cut("x", halo=(1, True)),
        LayoutError,
        "a halo is a pair of widths of 0 or more, got (1, True) in Cut.",
    ),
    (
        lambda: cut("x", halo=(1, 2, 3)),
        LayoutError,
        "a halo is a pair of widths of 0 or more, got (1, 2, 3) in Cut.",
    ),
    (lambda: cut("x", halo=1.5), LayoutError, "a halo is a pair of widths of 0 or more, got 1.5 in Cut."),
    (lambda: cut("x", halo=None), LayoutError, "a halo is a pair of widths of 0 or more, got None in Cut."),
    (
        lambda: shard(0, split="offsets"),
        LayoutError,
        "split='offsets' in Sharded needs the offsets, such as offsets=(0, 3, 10).",
    ),
    (
        lambda: shard(0, split="chunk", offsets=(0, 1)),
        LayoutError,
        "Sharded got both split='chunk' and offsets; give one of them.",
    ),
    (lambda: shard(0, offsets=(1, 2)), LayoutError, "offsets start at 0, got (1, 2) in Sharded."),
    (lambda: shard(0, offsets=()), LayoutError, "offsets start at 0, got () in Sharded."),
    (lambda: shard(0, offsets=(0, 3, 2)), LayoutError, "offsets may not decrease, got (0, 3, 2) in Sharded."),
    (lambda: shard(0, offsets=(0, 1.5)), LayoutError, "offsets are ints, got (0, 1.5) in Sharded."),
    (lambda: shard(0, offsets=(False, 1)), LayoutError, "offsets are ints, got (False, 1) in Sharded."),
    (
        lambda: shard(0, offsets=4),
        ArgumentError,
        "offsets in Sharded are a tuple of boundaries such as (0, 3, 10), got 4.",
    ),
    (lambda: cut(3), ArgumentError, "the axes of a Cut are one axis or a tuple of axes, got 3."),
    (lambda: cut(None), ArgumentError, "the axes of a Cut are one axis or a tuple of axes, got None."),
    (
        lambda: ReduceOp.SUM.check_dtype("float31"),
        ArgumentError,
        "a dtype such as 'float32' was expected, got 'float31'.",
    ),
    (
        lambda: ReduceOp.SUM.check_dtype(None),
        ArgumentError,
        "a dtype such as 'float32' was expected, got None.",
    ),
]


@pytest.mark.parametrize(("action", "kind", "text"), ERRORS)
def test_errors_say_what_was_got_and_what_there_is(action, kind, text):
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    assert str(caught.value) == text


def test_a_reduction_is_equal_to_its_name_and_prints_as_it():
    for op in ReduceOp:
        assert op == op.value == str(op) == f"{op}" == "%s" % op  # noqa: UP031
        assert isinstance(op, str)
        assert ReduceOp(op.value) is ReduceOp.of(op.value.upper()) is op
        assert repr(op) == f"ReduceOp.{op.name}"
        assert hash(op) == hash(op.value)
    assert ReduceOp.SUM != "max"
