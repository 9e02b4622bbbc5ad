"""Caches are seen, cleared and bounded together, and nothing that is computed depends on what they hold."""

import ast
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import DeviceMesh, Layout, P, Tensor, caches
from shardwise.caches import cache, intern
from shardwise.engine.storage import storage_of

SOURCES = Path(caches.__file__).parent
MESH = DeviceMesh((2, 2), ("x", "y"))
CALLS: list[int] = []


@cache(entries=2)
def square(number: int) -> int:
    CALLS.append(number)
    return number * number


@cache(entries=1000)
def block(size: int) -> bytes:
    return bytes(size)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    CALLS.clear()
    sw.clear_caches()
    yield
    sw.clear_caches()


def row(name: str) -> caches.CacheRow:
    return next(row for row in sw.cache_info().caches if row.name.endswith(f".{name}"))


def test_a_cache_remembers_its_latest_results() -> None:
    assert [square(n) for n in (1, 2, 1, 3, 1, 2)] == [1, 4, 1, 9, 1, 4]
    assert CALLS == [1, 2, 3, 2]
    assert (row("square").entries, row("square").most_entries) == (2, 2)
    assert (row("square").hits, row("square").misses) == (2, 4)


def test_a_warm_call_runs_no_python() -> None:
    # The object that is called is functools' own, written in C; our part runs on a miss only.
    assert type(square).__module__ == "functools"
    assert type(square).__name__ == "_lru_cache_wrapper"


def test_a_cache_belongs_to_a_module() -> None:
    def local(number: int) -> int:
        return number

    with pytest.raises(TypeError, match="no function of a module"):
        cache()(local)


def test_what_is_cleared_is_worked_out_again() -> None:
    square(3)
    sw.clear_caches()
    assert sw.cache_info().entries == sw.cache_info().bytes == 0
    assert square(3) == 9
    assert CALLS == [3, 3]


def test_bytes_are_those_of_the_values() -> None:
    for size in range(100_000, 100_050):
        block(size)
    assert row("block").bytes == pytest.approx(50 * 100_000, rel=0.02)
    assert sw.cache_info().caches[0] == row("block")
    first, *_, last = str(sw.cache_info()).splitlines()
    assert first.split() == ["cache", "entries", "bytes", "hits", "misses"]
    assert last.startswith(f"all, of {caches.BUDGET}")


def test_all_caches_are_cleared_when_they_are_over_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "BUDGET", 1_000_000)
    monkeypatch.setattr(caches, "CHECKED_EVERY", 5)
    square(2)
    for size in range(100_000, 100_100):
        block(size)
        assert sw.cache_info().bytes <= 1_000_000 + 6 * 101_000
    assert row("square").entries == 0


# What keeps a cache of its own, and why.
KEPT_ELSEWHERE = {"ops/dtensors.py": "meshes of torch are made by all processes together"}


def test_every_cache_is_made_here() -> None:
    elsewhere = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
            if isinstance(node, ast.ImportFrom) and node.module == "functools" and names & {"cache", "lru_cache"}:
                elsewhere.add(str(path.relative_to(SOURCES)))
            # A cache in the `__dict__` of somebody else's object is one that nobody sees.
            if path.name != "face.py":  # which marks functions of ours, and remembers nothing
                assert not (isinstance(node, ast.Attribute) and node.attr == "__dict__"), path
    assert elsewhere == set(KEPT_ELSEWHERE)


# -- values of which equal ones are one object ----------------------------------------------------------


def test_interned_values_outlive_a_clearing() -> None:
    layout, storage = Layout(MESH, ["x"]), storage_of(Layout(MESH, ["x"]), (4,))
    sw.clear_caches()
    assert DeviceMesh((2, 2), ("x", "y")) is MESH
    assert Layout(MESH, ["x"]) is P("x").to_layout(1, MESH) is layout
    assert storage_of(layout, (4,)) is storage


def test_interned_values_go_with_those_who_use_them() -> None:
    class Value:
        pass

    first = intern(Value, number=1)
    assert intern(Value, number=1) is first
    seen = ref(first)
    del first
    gc.collect()
    assert seen() is None
    assert vars(intern(Value, number=1)) == {"number": 1}


# -- memory ---------------------------------------------------------------------------------------------


def use(step: int) -> None:
    """Shard, reshard, add and sum a tensor whose shape no other step has."""
    array = np.ones((2 + step % 150, 2 + step // 150), "float32")
    x = sw.shard(array, MESH, P("x"))
    total = sw.sum(x + sw.shard(x, MESH, P(None, "y")))
    assert total.item() == 2 * array.size


def measured(steps: int, every: int) -> list[int]:
    """The bytes that are traced after each `every` steps, above those before the first."""
    use(0)
    gc.collect()
    tracemalloc.start()
    try:
        out = []
        for step in range(1, steps + 1):
            use(step)
            if step % every == 0:
                gc.collect()
                out.append(tracemalloc.get_traced_memory()[0])
        sw.clear_caches()
        gc.collect()
        return [*out, tracemalloc.get_traced_memory()[0]]
    finally:
        tracemalloc.stop()


def test_memory_of_many_shapes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "BUDGET", 2**20)
    monkeypatch.setattr(caches, "CHECKED_EVERY", 256)
    *during, after = measured(steps=300, every=20)
    assert max(during) < 1.5 * 2**20  # up and down below the budget; without one it would be 10 MiB by now
    assert after < 2**20 // 4


@pytest.mark.long
def test_memory_of_twenty_thousand_shapes_is_bounded() -> None:
    *during, after = measured(steps=20_000, every=1000)
    assert max(during) < caches.BUDGET // 2
    assert max(during[10:]) < 1.1 * max(during[:10])
    assert after < 2**20


# -- results --------------------------------------------------------------------------------------------

OPS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "rows": (lambda x: sw.shard(x, MESH, P("x")), lambda a: a),
    "columns": (lambda x: sw.shard(x, MESH, P(None, ("y", "x"))), lambda a: a),
    "whole": (lambda x: sw.shard(x, MESH, P()), lambda a: a),
    "double": (lambda x: x + x, lambda a: a + a),
    "mean": (lambda x: x - sw.mean(x, axis=0), lambda a: a - a.mean(axis=0)),
    "product": (lambda x: x @ x.T @ x / 64, lambda a: a @ a.T @ a / 64),
    "slice": (lambda x: sw.concat([x[1:], x[:1]]), lambda a: np.concatenate([a[1:], a[:1]])),
    "softmax": (lambda x: sw.softmax(x, axis=1), lambda a: np.exp(a) / np.exp(a).sum(axis=1, keepdims=True)),
    "reshape": (lambda x: sw.reshape(sw.reshape(x, (-1,)), x.shape), lambda a: a),
    "gradient": (sw.grad(lambda x: sw.sum(x * x * x)), lambda a: 3 * a * a),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(OPS)), st.booleans()), min_size=1, max_size=6))
def test_clearing_at_any_moment_changes_no_result(program: list[tuple[str, bool]]) -> None:
    array = np.linspace(-1, 1, 20).reshape(4, 5)
    x = sw.shard(array, MESH, P("x", "y"))
    for name, clears in program:
        ours, numpys = OPS[name]
        x, array = ours(x), numpys(array)
        if clears:
            sw.clear_caches()
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(x.numpy() / scale, array / scale, atol=1e-12)
        if scale > 1e3:
            x, array = x / scale, array / scale
