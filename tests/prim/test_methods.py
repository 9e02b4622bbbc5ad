"""Operators and methods of tensors: each gives what the same operator of NumPy's arrays gives."""

import operator
from collections.abc import Callable
from inspect import isfunction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise
import shardwise as sw
import shardwise.ops
from shardwise import DeviceMesh, P, Tensor, shard
from shardwise.prim.methods import Methods
from tests.ops.cases import agrees, sent, tensors

MESH = DeviceMesh((2, 4), ("x", "y"))
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


def name_of(function: Callable[..., Any]) -> str:
    return function.__name__


@pytest.mark.parametrize("op", [*ARITHMETIC, *COMPARISONS, *BITS], ids=name_of)
def test_operators_between_tensors_arrays_and_numbers(op: Callable[..., Any]) -> None:
    a, b = np.array([5, 7, 9, 12, 3]), np.array([2, 2, 4, 5, 3])
    if op in ARITHMETIC:
        a, b = a.astype("float64"), b.astype("float64")
    x, y = shard(a, MESH, P("y")), shard(b, MESH, P("x"))
    for got, want in (
        (op(x, y), op(a, b)),
        (op(x, b), op(a, b)),
        (op(a, y), op(a, b)),
        (op(x, 2), op(a, 2)),
        (op(2, y), op(2, b)),
        (op(x, np.int64(2)), op(a, np.int64(2))),
    ):
        assert isinstance(got, Tensor)
        assert got.dtype == want.dtype
        assert np.array_equal(got.numpy(), want)


@pytest.mark.parametrize("op", [operator.neg, operator.pos, operator.abs, operator.invert], ids=name_of)
def test_operators_of_one_tensor(op: Callable[..., Any]) -> None:
    value = np.array([3, -4, 0, 7, -1])
    assert np.array_equal(op(shard(value, MESH, P("y"))).numpy(), op(value))


def test_the_matrix_product_from_either_side() -> None:
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    x, y = shard(a, MESH, P("x", "y")), shard(b, MESH, P("y"))
    for got in (x @ y, x @ b, a @ y):
        assert isinstance(got, Tensor)
        assert np.array_equal(got.numpy(), a @ b)


def test_augmented_assignment_makes_a_new_tensor() -> None:
    x = before = shard(np.arange(4.0), MESH, P("y"))
    x += 1
    x *= 2
    assert x.numpy().tolist() == [2.0, 4.0, 6.0, 8.0]
    assert before.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]


REDUCTIONS = ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax", "argmin"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_methods(name: str) -> None:
    value = np.random.default_rng(0).permutation(30).reshape(5, 6) / 8.0
    x = shard(value, MESH, P("x", "y"))
    for axis in (None, 0, -1):
        for keepdims in (False, True):
            got = getattr(x, name)(axis, keepdims=keepdims)
            want = getattr(value, name)(axis, keepdims=keepdims)
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            assert np.allclose(got.numpy(), want)
            assert np.array_equal(got.numpy(), getattr(shardwise, name)(x, axis=axis, keepdims=keepdims).numpy())


def test_methods_take_what_the_functions_take() -> None:
    value = np.arange(10, dtype="int8")
    x = shard(value, MESH, P("y"))
    assert x.sum(dtype="float32").dtype == np.float32
    assert x.prod(dtype="int8").item() == value.prod(dtype="int8")
    assert np.isclose(x.var(correction=1).item(), value.var(ddof=1))
    assert np.isclose(x.std(correction=1).item(), value.std(ddof=1))
    assert x.astype("bool").any().item() is True


@given(st.data(), tensors(SHAPES))
def test_shapes_and_dtypes(data: st.DataObject, x: Tensor) -> None:
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    agrees(lambda x: x.T, lambda v: v.T, x)
    agrees(lambda x: x.transpose(), lambda v: v.transpose(), x, torch=False)
    agrees(lambda x: x.transpose(*order), lambda v: v.transpose(order), x, torch=False)
    agrees(lambda x: x.transpose(order), lambda v: v.transpose(order), x, torch=False)
    agrees(lambda x: x.reshape(-1), lambda v: v.reshape(-1), x, torch=False)
    agrees(lambda x: x.reshape((1, x.size)), lambda v: v.reshape(1, v.size), x, torch=False)
    agrees(lambda x: x.reshape(x.size, 1), lambda v: v.reshape(v.size, 1), x, torch=False)
    agrees(lambda x: x.reshape(1, -1).squeeze(0), lambda v: v.reshape(-1), x, torch=False)
    if x.ndim > 1:
        agrees(lambda x: x.mT, lambda v: v.mT, x)
    if x.dtype.kind != "c":
        agrees(lambda x: x.astype("float32"), lambda v: v.astype("float32"), x)


def test_getting_and_updating_elements() -> None:
    value = np.arange(12.0).reshape(3, 4)
    x = shard(value, MESH, P("x", "y"))
    assert np.array_equal(x[1:, ::-1].numpy(), value[1:, ::-1])
    assert x.at[0, 0].set(5.0)[0, 0].item() == 5.0
    assert x.at[0].add(1.0)[0].numpy().tolist() == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(TypeError, match="a Tensor does not change"):
        x[0] = 1.0


def test_transposing_sends_nothing() -> None:
    x = shard(np.ones((4, 5, 6)), MESH, P("x", None, "y"))
    for call in (lambda: x.T, lambda: x.mT, lambda: x.transpose(1, 0, 2)):
        assert sent(call)[1] == 0


def test_what_is_no_operand_says_so() -> None:
    x = shard(np.ones(4), MESH, P("y"))
    for op in (operator.add, operator.mul, operator.matmul, operator.lt):
        with pytest.raises(shardwise.ArgumentError, match=r"numbers were expected"):
            op(x, "a")


# -- the table -----------------------------------------------------------------------------------------------

# What each method is called with, beside the tensor, where that is anything.
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "astype": (("float32",), {}), "atan2": ((2.0,), {}), "broadcast_to": (((3, 2, 4),), {}), "clip": ((2.0, 5.0), {}),
    "conv": ((np.ones((2, 4, 1)),), {"padding": "SAME"}), "copysign": ((-1.0,), {}), "hypot": ((3.0,), {}),
    "cross_entropy": ((np.array([0, 3]),), {"reduction": "none"}), "cumulative_sum": ((), {"axis": 0}),
    "expand_dims": ((), {"axis": 1}), "layer_norm": ((np.arange(4.0),), {"eps": 0.5}), "logaddexp": ((2.0,), {}),
    "logical_and": ((True,), {}), "logical_or": ((False,), {}), "logical_xor": ((True,), {}),
    "matmul": ((np.ones((4, 2)),), {}), "maximum": ((4.0,), {}), "minimum": ((4.0,), {}), "moveaxis": ((0, 1), {}),
    "nextafter": ((9.0,), {}), "norm": ((), {"axis": 0, "ord": 1}), "one_hot": ((9,), {"dtype": "int8"}),
    "pad": (((1, 2),), {"mode": "edge"}), "permute_dims": (((1, 0),), {}), "reshape": (((4, 2),), {}),
    "rms_norm": ((np.arange(4.0),), {"eps": 0.5}), "roll": ((1,), {"axis": 0}), "split": ((2,), {"axis": 1}),
    "squeeze": (((),), {}), "take": (([1, 0],), {"axis": 0}), "take_along_axis": ((np.array([[1], [0]]),), {}),
    "tensordot": ((np.ones((4, 3)),), {"axes": 1}), "topk": ((2,), {}), "unstack": ((), {"axis": 1}),
}  # fmt: skip
INTEGERS = ("one_hot",)
LARGE = ("acosh",)  # defined from 1 on, where the others are tried below 1
PROPERTIES = ("real", "imag")
SENDING = "says where data goes: a function, so that what sends is seen"
MADE = "makes a tensor: it has none to be a method of"
MANY = "takes several tensors alike, in a list"
NO_METHOD = {
    **dict.fromkeys(["add", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "divide", "equal", "floor_divide", "greater", "greater_equal", "less", "less_equal", "multiply",
    "negative", "not_equal", "positive", "pow", "remainder", "subtract"], "is an operator"),
    **dict.fromkeys(["accelerator", "all_gather", "all_reduce", "all_slice", "all_to_all", "broadcast", "cpu",
    "distributed_broadcast", "gpu", "halo_exchange", "pmean", "ppermute", "reduce", "reduce_scatter", "reshard",
    "scatter", "send_recv", "shard", "shift", "to_device", "transfer_to"], SENDING),
    "gather": "is a function of local values; the method of this name brings a tensor to every device",
    **dict.fromkeys(["arange", "empty", "empty_like", "eye", "full", "full_like", "linspace", "ones", "ones_like",
    "zeros", "zeros_like", "asarray", "from_shards", "from_dtensor", "from_torch", "meshgrid"], MADE),
    **dict.fromkeys(["concat", "stack"], MANY),
    "einsum": "takes a text first",
    "where": "takes a condition first",
    "embedding": "takes indices first; of a table, take is the method",
    **dict.fromkeys(["to_dtensor", "to_torch"], "leaves for another library"),
    **dict.fromkeys(["custom_op", "hessian", "jacfwd", "jacrev", "local_call", "vmap"], "takes a function"),
    **dict.fromkeys(["checkpoint", "grad", "jvp", "shard_map", "stop_gradient", "value_and_grad", "vjp", "explain"],
    "is a transform of functions, or a part of one"),
    **dict.fromkeys(["accelerator_count", "as_layout", "axis_index", "cache_info", "clear_caches", "current_engine",
    "current_mesh", "default_device",
    "engine_context", "global_shape_from_local", "init", "local_shard_shape_from_global", "mesh_context",
    "picture", "plan_reshard", "shard_shape", "step", "trace_communication"], "is not of tensors"),
}  # fmt: skip


def public_functions() -> list[str]:
    shadows = ["abs", "all", "any", "max", "min", "pow", "round", "sum"]  # of Python's own, which `import *` leaves
    names = {*shardwise.__all__, *shardwise.ops.__all__, *shadows}
    return sorted(name for name in names if isfunction(getattr(shardwise, name)))


@pytest.mark.parametrize("name", public_functions())
def test_a_function_is_a_method_or_there_is_a_reason(name: str) -> None:
    if name in NO_METHOD:
        assert name == "gather" or not hasattr(Tensor, name), "it is a method: take it out of the list"
        return
    args, how = CALLS.get(name, ((), {}))
    value = np.arange(1, 9) if name in INTEGERS else np.arange(1.0, 9.0) / (1 if name in LARGE else 10)
    x = shard(value.reshape((1, 4, 2) if name == "conv" else (2, 4)), DeviceMesh((2,), ("x",)), P())
    got = getattr(x, name) if name in PROPERTIES else getattr(x, name)(*args, **how)
    want = getattr(shardwise, name)(x, *args, **how)
    for a, b in zip(*((y if isinstance(y, list | tuple) else [y]) for y in (got, want)), strict=True):
        assert a.layout is b.layout
        assert a.dtype == b.dtype
        assert np.array_equal(a.numpy(), b.numpy())


def test_methods_along_a_dim():
    values = np.arange(8.0).reshape(2, 4)
    x = shard(values, DeviceMesh((2,), ("x",)), P("x"))
    assert np.array_equal(x.cumulative_sum(1).numpy(), values.cumsum(1))
    assert np.array_equal(x.take([3, 0], axis=1).numpy(), values[:, [3, 0]])
    assert np.array_equal(x.roll(1, axis=0).numpy(), np.roll(values, 1, 0))
    assert np.array_equal(x.clip(2.0, 5.0).numpy(), values.clip(2.0, 5.0))


def test_a_method_is_its_function() -> None:
    same = [name for name, method in vars(Methods).items() if method is getattr(sw, name, None)]
    assert len(same) > 60


def test_softmax_is_along_the_last_dim_unless_another_is_named() -> None:
    value = np.arange(24.0).reshape(2, 3, 4)
    x = shard(value, DeviceMesh((2,), ("x",)), P("x"))
    for axis, got in ((-1, x.softmax()), (1, x.softmax(axis=1))):
        parts = np.exp(value - value.max(axis=axis, keepdims=True))
        np.testing.assert_allclose(got.numpy(), parts / parts.sum(axis=axis, keepdims=True), rtol=1e-12)
