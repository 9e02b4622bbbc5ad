"""Functions of plain arrays on what devices hold: run once for each, types checked, nothing looked into."""

from typing import Any

import numpy as np
import pytest
import torch

import shardwise as sw
from shardwise import (
    AbstractEngine,
    ArgumentError,
    BindingError,
    DerivativeError,
    DeviceMesh,
    EngineError,
    P,
    ProgramError,
    engine_context,
    local_call,
    shard_map,
    stop_gradient,
)
from shardwise.ir import trace

MESH = DeviceMesh((2, 2), ("x", "y"))
X = np.random.default_rng(0).standard_normal((4, 6))


def inside(program: Any) -> Any:
    return shard_map(program, MESH, P("x", "y"), P("x", "y"))


def blocks(x: np.ndarray) -> list[np.ndarray]:
    return [part for half in np.split(x, 2) for part in np.split(half, 2, axis=1)]


def test_a_function_is_run_once_for_each_device_on_its_own_array() -> None:
    seen: list[np.ndarray] = []

    def sort(a: np.ndarray) -> np.ndarray:
        assert type(a) is np.ndarray
        assert not a.flags.writeable
        seen.append(a)
        return np.sort(a, axis=0)[::-1]

    got = inside(lambda x: local_call(sort, x) * 2.0)(X)
    assert [a.tolist() for a in seen] == [b.tolist() for b in blocks(X)]
    want = [2.0 * np.sort(b, axis=0)[::-1] for b in blocks(X)]
    np.testing.assert_array_equal(got.numpy(), np.block([want[:2], want[2:]]))


def test_trees_of_results_of_any_dtype_come_back() -> None:
    def both(a: np.ndarray, b: np.ndarray) -> Any:
        return {"order": np.argsort(a, axis=1), "sum": (a + b, np.float32(1.5))}

    def program(x: Any) -> Any:
        out = local_call(both, x, np.ones(3))
        assert out["sum"][1].shape == ()
        return out["order"], out["sum"][0] + out["sum"][1]

    order, total = inside(program)(X)
    assert order.dtype == np.int64
    found = [np.argsort(b, axis=1) for b in blocks(X)]
    np.testing.assert_array_equal(order.numpy(), np.block([found[:2], found[2:]]))
    np.testing.assert_allclose(total.numpy(), X + 2.5)


def test_torch_shards_are_given_as_torch_tensors() -> None:
    def double(a: Any) -> Any:
        assert isinstance(a, torch.Tensor)
        return a * 2.0

    got = inside(lambda x: local_call(double, x))(sw.shard(torch.tensor(X), MESH, P("x", "y")))
    np.testing.assert_array_equal(got.numpy(), X * 2.0)


def test_without_values_the_types_must_be_given() -> None:
    def program(x: Any) -> Any:
        return local_call(np.sort, x, out=x)

    with engine_context(AbstractEngine()):
        x = sw.zeros((4, 6), mesh=MESH, layout=P("x", "y"))
        assert inside(program)(x).type_text == "float64[4@x, 6@y]"
        with pytest.raises(EngineError, match=r"runs sort on values, and there are none here.\n  give the types"):
            inside(lambda x: local_call(np.sort, x))(x)
    assert sw.explain(inside(program), sw.shard(X, MESH, P("x", "y"))).bytes == 0


def test_nothing_need_be_given_to_it() -> None:
    got = inside(lambda x: x + local_call(lambda: np.full(3, 7.0)))(X)
    np.testing.assert_array_equal(got.numpy(), X + 7.0)


def test_what_it_makes_has_one_type_on_all_devices() -> None:
    sizes = iter((2, 2, 3, 2))
    with pytest.raises(BindingError, match=r"made float64\[3\] on device 2, and float64\[2\] was expected"):
        inside(lambda x: local_call(lambda a: np.ones(next(sizes)), x))(X)
    with pytest.raises(BindingError, match=r"local_call: ones made float64\[2\] on device 0, and float32\[2\] was"):
        inside(lambda x: local_call(_ones, x, out=np.ones(2, "float32")))(X)
    with pytest.raises(BindingError, match=r"made 2 arrays on device 0|made float64\[2\] on device 0"):
        inside(lambda x: local_call(lambda a: (np.ones(2), np.ones(2)), x, out=np.ones(2)))(X)
    with pytest.raises(ArgumentError, match="out is made of things with a shape and a dtype, got 3"):
        inside(lambda x: local_call(np.sort, x, out=3))(X)


def _ones(a: np.ndarray) -> np.ndarray:
    return np.ones(2)


_ones.__name__ = "ones"


def test_it_is_for_the_inside_of_shard_map_and_has_no_derivative() -> None:
    with pytest.raises(ArgumentError, match="local_call acts on what one device holds: call it inside shard_map"):
        local_call(np.sort, X)
    with pytest.raises(ArgumentError, match="local_call"):
        inside(lambda x: local_call(3, x))(X)  # type: ignore[arg-type]
    sort = inside(lambda x: local_call(np.sort, x))
    for program in (
        lambda: sw.grad(lambda x: sw.sum(sort(x)))(X),
        lambda: inside(lambda x: sw.grad(lambda a: sw.sum(local_call(np.sort, a)))(x))(X),
        lambda: inside(lambda x: sw.vmap(lambda a: local_call(np.sort, a))(x))(X),
    ):
        with pytest.raises(DerivativeError, match=r"local_call has no derivative.*\n  give it one with custom_vjp"):
            program()
    stopped = inside(lambda x: x * local_call(np.sign, stop_gradient(x)))
    np.testing.assert_array_equal(sw.grad(lambda x: sw.sum(stopped(x)))(X).numpy(), np.sign(X))
    with pytest.raises(ProgramError, match="cannot be traced into a program"):
        trace(sort, sw.shard(X, MESH, P("x", "y")))
