"""Which engine a process uses, and what is said where it cannot."""

import os
import subprocess
import sys
from typing import Any

import pytest

import shardwise
from shardwise import ArgumentError, EngineError, current_engine, init
from shardwise.engine import start

WORLD = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WORLD:
        monkeypatch.delenv(name, raising=False)


def test_without_torchrun_it_is_the_local_engine() -> None:
    assert init() is init("local") is current_engine()
    assert current_engine().name == "local"


@pytest.mark.parametrize("name", ["tourch", "abstract"])
def test_unknown_engines_are_named(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"there is no engine '{name}'; engines: 'local', 'torch'"):
        init(name)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match=r"(?s)not set: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.*torchrun"):
        init("torch")
    for name in ("RANK", "MASTER_ADDR"):
        monkeypatch.setenv(name, WORLD[name])
    with pytest.raises(EngineError, match="not set: WORLD_SIZE, MASTER_PORT"):
        init("torch")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"RANK": "first"}, "RANK is a whole number, got 'first'"),
        ({"RANK": "4"}, "RANK is 4, but WORLD_SIZE is 1: ranks are 0 to 0"),
    ],
)
def test_what_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], text: str) -> None:
    for name, value in (WORLD | changed).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EngineError, match=text):
        init()


def test_without_torch_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = lambda name: None  # noqa: E731
    monkeypatch.setattr(start, "find_spec", nothing)
    with pytest.raises(EngineError, match=r"pip install 'shardwise\[torch\]'"):
        init("torch")


PROGRAM = """
import shardwise
engine = shardwise.init()
assert shardwise.init("torch") is engine is shardwise.current_engine(), engine
assert repr(engine) == "DistributedEngine(rank 0 of 1)"
from shardwise import *
x = shard([1.0, 2.0], DeviceMesh((1,), ("x",)), P("x"))
print(x, x.engine.name)
try:
    shard([1.0, 2.0], DeviceMesh((2,), ("x",)), P("x"))
except shardwise.MeshError as error:
    print(error)
assert shardwise.init("local").name == "local"
"""


def test_under_torchrun_it_is_the_torch_engine() -> None:
    from tests.engines.pool import free_port

    env = os.environ | WORLD | {"MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    env["PYTHONPATH"] = os.path.dirname(os.path.dirname(shardwise.__file__))
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second, *rest = done.stdout.splitlines()
    assert first == "Tensor([1., 2.], float64[2] on x=1) torch"
    assert second == (
        "DeviceMesh(x=2) has CPU(1), but there are 1 processes, ranks 0 to 0, and the device with number r belongs to "
        "rank r."
    )
    assert rest == ["  start as many processes as the mesh has devices."]
