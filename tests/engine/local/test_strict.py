"""The strict local engine: one process that reads no more than the least of many could."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardwise
from shardwise import (
    ArgumentError,
    DeviceMesh,
    EngineError,
    LocalEngine,
    P,
    asarray,
    current_engine,
    engine_context,
    grad,
    init,
    matmul,
    shard,
    value_and_grad,
    zeros,
)
from shardwise.engine.local.strict import StrictEngine

MESH = DeviceMesh((4,), ("x",))
TEXT = (
    r"holds a part of float64\[8@x\] on \(x=4\) only, and reading never communicates.\n  x.gather\(\).numpy\(\) in all"
)


@pytest.fixture
def restored():
    """The engine of the process as it was."""
    yield
    init("local", strict=False)


def test_what_is_spread_is_refused_and_what_is_gathered_is_not() -> None:
    with engine_context(StrictEngine()):
        x = shard(np.arange(8.0), MESH, P("x"))
        loss, slope = value_and_grad(lambda x: (x * x).sum())(x)
        for read in (lambda: x.numpy(), lambda: np.asarray(x), lambda: (x * 1.0).numpy()):
            with pytest.raises(EngineError, match=TEXT):
                read()
        with pytest.raises(EngineError, match=r"device 0 of \(x=4\) is CPU\(0\), in another process; here are devices"):
            x.local(0)
        with pytest.raises(EngineError, match=r"part of float64\[\] sum\(x\) on"):
            float(x.sum())
        with pytest.raises(EngineError, match=r"part of bool\[\] "):
            bool((x > 0).all())
        assert float(loss) == 140.0
        assert slope.gather().numpy().tolist() == (2 * np.arange(8.0)).tolist()
        assert repr(x) == "Tensor(float64[8@x] on x=4, of which device 0 is here)"
        assert [part.array.tolist() for part in x.shards] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_what_is_on_one_device_is_read_until_there_are_others() -> None:
    with engine_context(StrictEngine()):
        x = asarray([1.0, 2.0])
        assert x.numpy().tolist() == [1.0, 2.0]
        zeros((4,), mesh=MESH, layout=P("x"))
        with pytest.raises(EngineError, match=r"part of float64\[2\] on \(cpu:0\) only"):
            x.numpy()
        assert shard(x, MESH, P()).numpy().tolist() == [1.0, 2.0]


def test_all_else_is_as_on_the_local_engine() -> None:
    def program() -> list[str]:
        x, w = shard(np.arange(32.0).reshape(8, 4), MESH, P("x")), shard(np.ones((4, 4)), MESH, P(None, "x"))
        y = matmul(x, w)
        return [y.gather().numpy().tolist(), grad(lambda w: matmul(x, w).sum())(w).gather().numpy().tolist()]

    strict, plain = StrictEngine(), LocalEngine()
    with engine_context(plain):
        want = program()
    with engine_context(strict):
        assert program() == want
    assert strict.counters.bytes_moved == plain.counters.bytes_moved
    assert strict.name == "local"


@pytest.mark.usefixtures("restored")
def test_it_is_asked_for_by_argument_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDWISE_STRICT", raising=False)
    strict = init("local", strict=True)
    assert isinstance(strict, StrictEngine)
    assert strict is init("local", strict=True) is current_engine()
    assert not isinstance(init("local"), StrictEngine)
    monkeypatch.setenv("SHARDWISE_STRICT", "1")
    assert isinstance(init(), StrictEngine)
    assert not isinstance(init(strict=False), StrictEngine)
    monkeypatch.setenv("SHARDWISE_STRICT", "very")
    with pytest.raises(
        ArgumentError, match="SHARDWISE_STRICT is one of 1, true, yes, on, 0, false, no, off, got 'very'"
    ):
        init()


def test_a_program_that_does_not_call_init_is_strict_by_the_environment() -> None:
    text = "import shardwise; print(type(shardwise.current_engine()).__name__)"
    source = str(Path(shardwise.__file__).parent.parent)
    env = os.environ | {"SHARDWISE_STRICT": "on", "PYTHONPATH": source}
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "StrictEngine"
