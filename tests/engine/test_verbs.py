"""Verbs: every engine has all of them, called in the same way, and whoever has them is an engine."""

import inspect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import CPU, AbstractEngine, Cut, DeviceMesh, LocalEngine, P, Tensor, engine_context, shard
from shardwise.engine.counters import Counters
from shardwise.engine.execute import Program
from shardwise.engine.job import Job
from shardwise.engine.process.engine import DistributedEngine
from shardwise.engine.storage import Storage
from shardwise.engine.verbs import Engine
from shardwise.layout.device import Device

VERBS = [name for name, value in vars(Engine).items() if inspect.isfunction(value) and not name.startswith("_")]
WIRE: Any = SimpleNamespace(rank=0, size=1)
ENGINES = {"local": LocalEngine(), "abstract": AbstractEngine(), "torch": DistributedEngine(WIRE)}


def test_these_are_the_verbs() -> None:
    assert VERBS == ["addressable", "process", "read", "place", "empty", "run_kernel", "each", "apply", "run"]


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_has_every_verb_and_is_known_by_name(name: str) -> None:
    engine: Any = ENGINES[name]
    assert isinstance(engine, Engine)
    assert engine.name == name
    assert isinstance(engine.counters, Counters)
    for verb in VERBS:
        want = list(inspect.signature(getattr(Engine, verb)).parameters.values())[1:]
        got = list(inspect.signature(getattr(engine, verb)).parameters.values())
        assert [(p.name, p.default) for p in got[: len(want)]] == [(p.name, p.default) for p in want], verb
        assert all(p.default is not inspect.Parameter.empty for p in got[len(want) :])


def test_what_lacks_a_verb_is_no_engine() -> None:
    class Half:
        name = "half"
        counters = Counters()

        def run(self) -> None: ...

    assert not isinstance(Half(), Engine)
    assert not isinstance(object(), Engine)


# -- an engine of one's own ------------------------------------------------------------------------------


class OwnEngine:
    """An engine that has what the protocol says and nothing else, and lets a local one do the work."""

    name = "own"
    has_values = True
    talks_through_torch = False

    def __init__(self, holds_all: bool) -> None:
        self.holds_all, self._inner, self.calls = holds_all, LocalEngine(), set[str]()
        self.counters = self._inner.counters

    def addressable(self, mesh: DeviceMesh) -> Sequence[int]:
        self.calls.add("addressable")
        return self._inner.addressable(mesh)

    def process(self, mesh: DeviceMesh, suffices: Callable[[Sequence[int]], bool]) -> tuple[int, Sequence[int]]:
        self.calls.add("process")
        return self._inner.process(mesh, suffices)

    def read(self, storage: Storage, arrays: Sequence[Any], index: int | None = None) -> Sequence[Any]:
        self.calls.add("read")
        return self._inner.read(storage, arrays, index)

    def place(self, array: Any, device: Device) -> Any:
        self.calls.add("place")
        return self._inner.place(array, device)

    def empty(self, shape: Sequence[int], dtype: np.dtype, like: Any = None) -> Any:
        self.calls.add("empty")
        return self._inner.empty(shape, dtype, like)

    def run_kernel(
        self, kernel: Callable[..., Any], operands: Sequence[Sequence[Any]], job: Job, dtype: np.dtype | None = None
    ) -> Sequence[Any]:
        self.calls.add("run_kernel")
        return self._inner.run_kernel(kernel, operands, job, dtype)

    def each(
        self,
        storage: Storage,
        dtype: np.dtype,
        make: Callable[[int, int], Any],
        base: Sequence[Any] | None = None,
        like: Any = None,
    ) -> Sequence[Any]:
        self.calls.add("each")
        return self._inner.each(storage, dtype, make, base, like)

    def apply(self, kernel: Callable[..., Any], arrays: Sequence[Any], shape: Sequence[int]) -> Any:
        self.calls.add("apply")
        return self._inner.apply(kernel, arrays, shape)

    def run(self, program: Program, arrays: Sequence[Any]) -> Sequence[Any]:
        self.calls.add("run")
        return self._inner.run(program, arrays)


MESH = DeviceMesh((2, 3), ("x", "y"))
TWICE = DeviceMesh((2, 2), ("x", "y"), [CPU(0), CPU(1), CPU(0), CPU(1)])
VALUE = np.random.default_rng(0).normal(size=(6, 12))
LAYOUTS = [P("x", "y"), P("y"), P(None, ("x", "y")), P()]

# Functions of one tensor of 6 x 12, each with what NumPy makes of the value.
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Any], Callable[[np.ndarray], Any]]] = {
    "tanh": (sw.tanh, np.tanh),
    "arithmetic": (lambda x: 2 * x + x * x - 1, lambda a: 2 * a + a * a - 1),
    "sum": (lambda x: sw.sum(x, axis=0), lambda a: a.sum(0)),
    "mean": (sw.mean, np.mean),
    "argmax": (lambda x: sw.argmax(x, axis=1), lambda a: a.argmax(1)),
    "softmax": (lambda x: sw.softmax(x, axis=1), lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True)),
    "matmul": (lambda x: x @ sw.permute_dims(x, (1, 0)), lambda a: a @ a.T),
    "reshape": (lambda x: sw.reshape(x, (12, 6)), lambda a: a.reshape(12, 6)),
    "concat": (lambda x: sw.concat([x, x], axis=1), lambda a: np.concatenate([a, a], 1)),
    "flip": (lambda x: sw.flip(x, axis=1), lambda a: a[:, ::-1]),
    "roll": (lambda x: sw.roll(x, 2, axis=0), lambda a: np.roll(a, 2, 0)),
    "cumulative_sum": (lambda x: sw.cumulative_sum(x, axis=1), lambda a: a.cumsum(1)),
    "where": (lambda x: sw.where(x > 0, x, -x), np.abs),
    "window": (lambda x: x[1:5, 2:9], lambda a: a[1:5, 2:9]),
    "strided": (lambda x: x[::-2, 3], lambda a: a[::-2, 3]),
    "take": (lambda x: sw.take(x, sw.asarray(np.array([3, 0])), axis=1), lambda a: a[:, [3, 0]]),
    "mask": (lambda x: x[sw.asarray(np.array([4, 1]))], lambda a: a[[4, 1]]),
    "grad": (sw.grad(lambda x: sw.sum(sw.tanh(x) ** 2)), lambda a: 2 * np.tanh(a) / np.cosh(a) ** 2),
    "grad of matmul": (sw.grad(lambda x: sw.sum(x @ sw.permute_dims(x, (1, 0)))), lambda a: 2 * a.sum(0) + 0 * a),
    "vmap": (sw.vmap(lambda row: row * sw.sum(row)), lambda a: a * a.sum(1, keepdims=True)),
    "gather": (lambda x: x.gather(), lambda a: a),
}


@pytest.mark.parametrize("holds_all", [True, False])
@pytest.mark.parametrize("mesh", [MESH, TWICE], ids=["each device once", "each device twice"])
def test_an_engine_of_ones_own_runs_everything(mesh: DeviceMesh, holds_all: bool) -> None:
    engine = OwnEngine(holds_all)
    with engine_context(engine):
        for name, (function, oracle) in FUNCTIONS.items():
            for layout in LAYOUTS:
                out = function(shard(VALUE, mesh, layout))
                assert out.engine is engine
                np.testing.assert_allclose(out.numpy(), oracle(VALUE), atol=1e-12, err_msg=f"{name} of {layout}")
        x = shard(VALUE, mesh, LAYOUTS[0])
        halo = sw.Layout(mesh, [Cut("x", halo=(1, 1)), None])
        for layout in (*LAYOUTS, halo, P(None, "y", unreduced=["x"]), *LAYOUTS[::-1]):
            x = shard(x, mesh, layout)
            np.testing.assert_allclose(x.numpy(), VALUE, atol=1e-12)
        kernel = sw.shard_map(lambda a: sw.all_reduce(a, reduce_axes="x"), mesh, P("x"), P())
        np.testing.assert_allclose(kernel(x).numpy(), VALUE[:3] + VALUE[3:])
        assert "own" not in repr(x)
    assert engine.calls >= {"addressable", "read", "place", "run_kernel", "each", "run"}
    assert engine.counters.total > 0
