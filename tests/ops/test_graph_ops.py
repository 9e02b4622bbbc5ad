"""The list-of-arrays collectives: documented results, every documented error, and derivatives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import CPU, ArgumentError, DeviceMesh, EngineError, P, Tensor, jvp, vjp
from shardwise.ops.graph_ops import SignalBuffer, allgather, distributed_broadcast, shard_and_stack, transfer_to
from tests.prim.cases import DTYPES, same, values


class Exporter:
    """Has nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def buffers(*ids: int) -> list[SignalBuffer]:
    return [SignalBuffer(CPU(i)) for i in ids]


def assert_apart(tensors: list[Tensor]) -> None:
    """No two tensors share memory."""
    arrays = [np.asarray(x.local(0)) for x in tensors]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


INPUTS: dict[str, Any] = {
    "array": np.arange(6.0).reshape(2, 3),
    "list": [[1.0, 2.0]],
    "int": 3,
    "float": 2.5,
    "numpy int": np.int8(3),
    "numpy float": np.float32(2.5),
    "dlpack": Exporter(np.arange(4, dtype="int16")),
    "tensor": transfer_to(np.arange(3.0), CPU(0)),
    "bool": np.array([True]),
    "empty": np.zeros((0, 2), "float16"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_distributed_broadcast_copies_to_each_device(name: str) -> None:
    given = INPUTS[name]
    want = np.asarray(given.array if isinstance(given, Exporter) else given)
    out = distributed_broadcast(given, iter(buffers(2, 0, 1)))
    assert [x.device for x in out] == [CPU(2), CPU(0), CPU(1)]
    assert all(same(x.numpy(), want) for x in out)
    assert_apart(out)


def test_distributed_broadcast_starts_where_the_input_is() -> None:
    out = distributed_broadcast(transfer_to([1.0], CPU(5)), buffers(4, 5))
    assert [x.device for x in out] == [CPU(4), CPU(5)]


@pytest.mark.parametrize(
    ("given", "ids", "text"),
    [
        (transfer_to([1.0], CPU(7)), (0, 1), r"the input is on CPU\(7\), which is not among the devices of the signal"),
        ([1.0], (0, 0), r"needs signal buffers on unique devices, got \[CPU\(0\), CPU\(0\)\]"),
        ([1.0], (0,), "needs at least 2 signal buffers, got 1"),
        ([1.0], (), "needs at least 2 signal buffers, got 0"),
        (sw.shard(np.zeros(2), DeviceMesh((2,), ("x",)), P("x")), (0, 1), "the input is on None"),
    ],
)
def test_distributed_broadcast_raises(given: Any, ids: tuple[int, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        distributed_broadcast(given, buffers(*ids))


def test_signal_buffers_name_devices() -> None:
    with pytest.raises(ArgumentError, match=r"SignalBuffer needs a Device such as CPU\(0\), got 0"):
        SignalBuffer(0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="distributed_broadcast needs SignalBuffer values, got 1"):
        distributed_broadcast([1.0], [1, 2])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match=r"allgather needs SignalBuffer values, got CPU\(0\)"):
        allgather([[1.0]], [CPU(0)])  # type: ignore[list-item]


@given(st.data())
def test_allgather_joins_inputs_on_every_device(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    rank = data.draw(st.integers(1, 3))
    axis = data.draw(st.integers(-rank, rank - 1))
    dtype = data.draw(st.sampled_from(DTYPES))
    shapes = [[data.draw(st.integers(0, 4)) if k == axis % rank else 2 for k in range(rank)] for _ in range(count)]
    parts = [values(shape, dtype, i) for i, shape in enumerate(shapes)]
    where = data.draw(st.permutations(range(count)))
    inputs = [transfer_to(part, CPU(i)) for part, i in zip(parts, where, strict=True)]
    out = allgather(iter(inputs), iter(buffers(*where)), axis)
    assert [x.device for x in out] == [CPU(i) for i in where]
    assert all(same(x.numpy(), np.concatenate(parts, axis)) for x in out)
    assert_apart(out)


def test_allgather_of_nothing_is_nothing() -> None:
    assert allgather([], []) == []
    assert allgather(iter(()), iter(()), axis=3) == []


def test_allgather_takes_what_it_is_given() -> None:
    out = allgather([Exporter(np.ones(1)), [2.0], np.array([3.0])], buffers(0, 1, 2))
    assert all(same(x.numpy(), np.array([1.0, 2.0, 3.0])) for x in out)


@pytest.mark.parametrize(
    ("inputs", "ids", "axis", "error", "text"),
    [
        ([], (0,), 0, ValueError, "one signal buffer per input, got 1 for 0 inputs"),
        ([[1.0]], (0, 1), 0, ValueError, "one signal buffer per input, got 2 for 1 inputs"),
        ([[1.0], [2.0]], (0, 0), 0, ValueError, "signal buffers on unique devices"),
        ([[1.0], [2.0]], (0, 1), 1, ValueError, "allgather: axis 1 is out of bounds for tensors with 1 dims"),
        ([1.0, 2.0], (0, 1), 0, ValueError, "allgather: axis 0 is out of bounds for tensors with 0 dims"),
        ([[[1.0]], [[1.0, 2.0]]], (0, 1), 0, ValueError, r"other dims must agree; got shapes \[\(1, 1\), \(1, 2\)\]"),
        ([[1.0], [[1.0]]], (0, 1), 0, ValueError, "other dims must agree"),
        ([[1.0], [1]], (0, 1), 0, ValueError, r"one dtype, got \['float64', 'int64'\]"),
        ([[1.0]], (0,), "x", TypeError, "allgather: axis is an int, got 'x'"),
    ],
)
def test_allgather_raises(inputs: Any, ids: Any, axis: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        allgather(inputs, buffers(*ids), axis)


@given(st.data())
def test_shard_and_stack_is_what_the_reference_says(data: st.DataObject) -> None:
    count, rank = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    axis = data.draw(st.integers(-rank, rank - 1))
    shape = [data.draw(st.integers(0, 3)) * (count if k == axis % rank else 1) for k in range(rank)]
    parts = [values(shape, data.draw(st.sampled_from(DTYPES)), i) for i in range(1)]
    parts += [values(shape, parts[0].dtype, 7 + i) for i in range(data.draw(st.integers(0, 2)))]
    devices = [CPU(i) for i in data.draw(st.permutations(range(count)))]
    out = shard_and_stack(parts, devices, np.int64(axis))  # type: ignore[arg-type]
    assert [x.device for x in out] == devices
    chunks = [np.split(p, count, axis) for p in parts]
    assert all(same(x.numpy(), np.stack([c[i] for c in chunks])) for i, x in enumerate(out))
    assert_apart(out)


def test_shard_and_stack_example_of_the_reference() -> None:
    a, b = np.arange(30.0).reshape(10, 3), np.arange(30.0, 60).reshape(10, 3)
    first, second = shard_and_stack([a, b], [CPU(0), CPU(1)])
    assert (first.shape, second.shape) == ((2, 5, 3), (2, 5, 3))
    assert same(second.numpy(), np.stack([a[5:], b[5:]]))
    assert [x.shape for x in shard_and_stack([a.T, b.T], [CPU(0), CPU(1)], axis=-1)] == [(2, 3, 5)] * 2


@pytest.mark.parametrize(
    ("inputs", "devices", "axis", "text"),
    [
        ([], [CPU(0)], 0, "at least one input, got none"),
        ([np.ones(2)], [], 0, "at least one device, got none"),
        ([np.ones(2), np.ones(4)], [CPU(0)], 0, r"inputs of one shape, got \(2,\) and \(4,\)"),
        ([np.ones(3)], [CPU(0), CPU(1)], 0, "dim 0 of size 3 is not evenly divisible by 2 devices"),
        ([np.ones(2)], [CPU(0)], 1, "shard_and_stack: axis 1 is out of bounds for tensors with 1 dims"),
        ([np.ones(2)], [CPU(0)], -2, "axis -2 is out of bounds"),
        ([1.0], [CPU(0)], 0, "axis 0 is out of bounds for tensors with 0 dims"),
        ([np.ones(2), np.ones(2, "int8")], [CPU(0)], 0, "inputs of one dtype, got float64 and int8"),
        ([np.ones(2), transfer_to(np.ones(2), CPU(1))], [CPU(0)], 0, r"on one device, got CPU\(0\) and CPU\(1\)"),
    ],
)
def test_shard_and_stack_raises(inputs: Any, devices: Any, axis: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        shard_and_stack(inputs, devices, axis)


def test_transfer_to_moves_between_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    x = transfer_to(np.arange(3.0), CPU(1))
    assert x.device == CPU(1)
    assert same(transfer_to(x, CPU(2)).numpy(), np.arange(3.0))
    with pytest.raises(ArgumentError, match=r"transfer_to needs a Device such as CPU\(0\), got None"):
        transfer_to(x, None)  # type: ignore[arg-type]
    monkeypatch.setattr("shardwise.engine.arrays.accelerator_count", lambda: 0)
    for call in (
        lambda: transfer_to(x, sw.Accelerator(0)),
        lambda: distributed_broadcast([1.0], [SignalBuffer(CPU(0)), SignalBuffer(sw.Accelerator(0))]),
        lambda: shard_and_stack([[1.0]], [sw.Accelerator(0)]),
    ):
        with pytest.raises(EngineError, match=r"Accelerator\(0\) is not there"):
            call()


# -- derivatives -----------------------------------------------------------------------------------------

LISTS: dict[str, tuple[Callable[..., list[Tensor]], int]] = {
    "broadcast": (lambda a: distributed_broadcast(a, buffers(0, 1, 2)), 1),
    "allgather": (lambda a, b: allgather([a, transfer_to(b, CPU(1))], buffers(0, 1), 1), 2),
    "allgather one": (lambda a: allgather([a], buffers(0)), 1),
    "shard_and_stack": (lambda a, b: shard_and_stack([a, b], [CPU(0), CPU(1)], 1), 2),
    "shard_and_stack squares": (lambda a, b: shard_and_stack([a * b, b], [CPU(1), CPU(1)]), 2),
    "transfer": (lambda a: [transfer_to(a, CPU(3)), transfer_to(a, CPU(0))], 1),
}


@pytest.mark.parametrize("name", LISTS)
def test_list_collectives_are_differentiable(name: str) -> None:
    f, count = LISTS[name]
    rng = np.random.default_rng(0)
    args, tangents = ([rng.standard_normal((2, 4)) for _ in range(count)] for _ in range(2))
    outs, back = vjp(f, *args)
    weights = [rng.standard_normal(x.shape) for x in outs]
    gradients = back(weights)
    assert all(g.device == CPU(0) for g in gradients)
    _, forward = jvp(f, args, tangents)
    assert [t.device for t in forward] == [x.device for x in outs]
    inner = sum((t.numpy() * w).sum() for t, w in zip(forward, weights, strict=True))
    assert np.isclose(inner, sum((g.numpy() * t).sum() for g, t in zip(gradients, tangents, strict=True)))
    ahead, behind = (f(*(a + sign * 1e-6 * t for a, t in zip(args, tangents, strict=True))) for sign in (1, -1))
    numeric = sum(((p.numpy() - q.numpy()) * w).sum() for p, q, w in zip(ahead, behind, weights, strict=True)) / 2e-6
    assert np.isclose(inner, numeric, rtol=1e-6)
    # Only the last argument: the others have no tangent.
    _, one = jvp(lambda last: f(*args[:-1], last), (args[-1],), (tangents[-1],))
    zeros = [np.zeros((2, 4))] * (count - 1)
    _, full = jvp(f, args, [*zeros, tangents[-1]])
    assert all(np.allclose(a.numpy(), b.numpy()) for a, b in zip(one, full, strict=True))
