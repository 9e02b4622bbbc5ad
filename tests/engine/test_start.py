"""Which engine a process uses, and what is said where it cannot."""

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import shardwise
from shardwise import CPU, ArgumentError, DeviceMesh, EngineError, MeshError, current_engine, init
from shardwise.engine import start
from shardwise.engine.meeting import guest, host
from shardwise.engine.process import connection
from shardwise.engine.settings import Settings
from tests.engines.pool import port_of, reserve_port

WORLD = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WORLD:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(start, "_started", [])


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


def test_a_torch_that_cannot_talk_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_available", lambda: False)
    with pytest.raises(EngineError, match=r"^this build of torch has no torch\.distributed\.$"):
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
for _ in range(2):  # processes meet once, and an engine in between changes nothing of that
    assert shardwise.init("local").name == "local"
    assert shardwise.init("torch") is shardwise.init(timeout=60, guard=True) is engine is shardwise.current_engine()
mesh = DeviceMesh((1,), ("x",))
for more in ({"timeout": 5}, {"guard": False, "heartbeat": 5.0}, {"mesh": mesh}):
    try:
        shardwise.init(**more)
    except shardwise.EngineError as error:
        print(error)
assert shardwise.current_engine() is engine
print(x.gather())
"""


def test_under_torchrun_it_is_the_torch_engine() -> None:
    with reserve_port() as reserved:
        env = os.environ | WORLD | {"MASTER_PORT": str(port_of(reserved)), "GLOO_SOCKET_IFNAME": "lo"}
        env["PYTHONPATH"] = os.path.dirname(os.path.dirname(shardwise.__file__))
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second, *rest = done.stdout.splitlines()
    assert first == "Tensor([1., 2.], float64[2] on x=1) torch"
    assert second == (
        "DeviceMesh(x=2) has CPU(1), but there are 1 processes, ranks 0 to 0, and the device with number r belongs to "
        "rank r."
    )
    head = "init: this process has met the others already, with other settings."
    fix = "  processes agree about them once: give them to the first init."
    assert rest == [
        "  start as many processes as the mesh has devices.",
        *(head, "  timeout: 60.0 before, 5 now", fix),
        *(head, "  guard: True before, False now", fix),
        *(head, "  mesh: none given before, DeviceMesh(x=1) of [0] now", fix),
        "Tensor([1., 2.], float64[2] on x=1)",
    ]


def test_settings_that_were_agreed_on_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not asked for again is left as it is; the first start that works counts, and not one that failed."""
    for name, value in WORLD.items():
        monkeypatch.setenv(name, value)
    mesh, other = DeviceMesh((1,), ("x",)), DeviceMesh((1,), ("y",))
    engines: list[Any] = [EngineError("nobody came"), current_engine()]

    def make(*said: Any) -> Any:
        engine = engines.pop(0)
        if isinstance(engine, EngineError):
            raise engine
        return engine

    monkeypatch.setattr(start, "_torch_engine", make)
    with pytest.raises(EngineError, match="nobody came"):
        init(timeout=9.0)
    engine = init(timeout=5.0, heartbeat=2, guard=False, mesh=mesh)
    monkeypatch.setenv("SHARDWISE_TIMEOUT", "7")  # is what an init asks for that says nothing
    assert init() is init(timeout=5, heartbeat=2.0, guard=False) is init("torch", mesh=mesh) is engine
    with pytest.raises(EngineError) as caught:
        init(timeout=6, heartbeat=2, guard=True, mesh=other)
    assert str(caught.value).splitlines()[1:4] == [
        "  timeout: 5.0 before, 6 now",
        "  guard: False before, True now",
        "  mesh: DeviceMesh(x=1) of [0] before, DeviceMesh(y=1) of [0] now",
    ]
    assert engines == []


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"WORLD_SIZE": "-1"}, "WORLD_SIZE is a whole number, got '-1'"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT is a whole number, got 'http'"),
        ({"RANK": "1"}, "RANK is 1, but WORLD_SIZE is 1: ranks are 0 to 0"),
        ({}, None),
    ],
)
def test_numbers_are_checked(monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], text: str | None) -> None:
    for name, value in (WORLD | changed).items():
        monkeypatch.setenv(name, value)
    if text is None:
        start._check_environment()
        return
    with pytest.raises(EngineError, match=text):
        start._check_environment()


def test_three_variables_are_a_launch_and_two_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    local = current_engine()
    monkeypatch.setattr(start, "_torch_engine", lambda *said: asked.append(said) or local)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, WORLD[name])
    init()
    assert asked == []
    monkeypatch.setenv("MASTER_ADDR", "host")
    init(timeout=3.0, heartbeat=2.0, guard=False)
    assert asked == [(Settings(3.0, 2.0, guard=False), None)]
    init("local")
    assert len(asked) == 1
    monkeypatch.delenv("RANK")
    start._started.clear()
    init("torch")
    assert len(asked) == 2


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a process leaves where others meet, instead of meeting them."""
    left: list[Any] = []
    monkeypatch.setattr(host, "receive_others", lambda card, listener, *rest: left.append((card, listener, *rest)))
    monkeypatch.setattr(guest, "visit", lambda *told: left.append(told))
    return left


def meet(rank: int, size: int, mesh: DeviceMesh | None = None, is_of_user: bool = False) -> None:
    start._meet_others(rank, size, Settings(start=9.0, guard=False), mesh, is_of_user)


def test_the_card_says_who_this_is_and_a_mesh_must_have_room(cards: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WORLD.items():
        monkeypatch.setenv(name, value)
    mesh = DeviceMesh((2,), ("x",))
    for given, drawn in [(None, ""), (mesh, "DeviceMesh(x=2) of [0, 1]")]:
        meet(0, 2, given)
        card, listener, credentials, seconds = cards.pop()
        assert (card.rank, card.size, card.guard, card.mesh, seconds) == (0, 2, False, drawn, 9.0)
        assert (card.shardwise, card.torch) == (shardwise.__version__, str(torch.__version__))
        assert card.who.endswith(f":{os.getpid()}")
        assert listener.getsockname()[0] == "127.0.0.1"  # and nowhere else
        assert credentials.secret == b""
        listener.close()
    with pytest.raises(MeshError, match=r"init: DeviceMesh\(x=2\) has 2 devices, but there are 1 processes"):
        meet(0, 1, mesh)


@pytest.mark.parametrize(
    ("bind", "secret", "warns"), [("0.0.0.0", "", True), ("0.0.0.0", "s" * 20, False), ("", "", False)]
)
def test_a_job_that_others_can_reach_is_warned_when_it_has_no_secret(
    cards: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    bind: str,
    secret: str,
    warns: bool,
) -> None:
    for name, value in (WORLD | {"SHARDWISE_BIND": bind, "SHARDWISE_SECRET": secret}).items():
        monkeypatch.setenv(name, value)
    meet(0, 2)
    ((_, listener, *_),) = cards
    port = listener.getsockname()[1]
    text = f"SHARDWISE_SECRET is not set: whoever reaches 0.0.0.0:{port} can take part in this job."
    assert caplog.messages == ([text] if warns else [])
    listener.close()


def test_where_a_store_tells_where_rank_0_listens_it_is_an_address_that_others_can_call(
    cards: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HashStore()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("SHARDWISE_BIND", "0.0.0.0")
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    meet(0, 2, is_of_user=True)
    meet(1, 2, is_of_user=True)
    (_, listener, *_), (_, master, *_) = cards
    assert listener.getsockname()[0] == "0.0.0.0"
    assert master == ("127.0.0.1", listener.getsockname()[1])
    listener.close()


def test_a_mesh_of_thousands_is_in_the_card_in_short(cards: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """And two that differ at their end still differ."""
    drawn = {start._draw(DeviceMesh((5000,), ("x",), [CPU(i) for i in (*range(4999), last)])) for last in (4999, 5000)}
    assert len(drawn) == 2
    assert all(len(text) < 1200 and text.startswith("DeviceMesh(x=5000") for text in drawn)


def test_others_visit_rank_0_where_the_environment_says_with_their_secret(
    cards: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (WORLD | {"MASTER_ADDR": "there", "MASTER_PORT": "7", "SHARDWISE_SECRET": "s" * 20}).items():
        monkeypatch.setenv(name, value)
    meet(1, 2)
    ((card, master, credentials, seconds),) = cards
    assert (card.rank, master, credentials.secret, seconds) == (1, ("there", 7), b"s" * 20, 9.0)


@pytest.mark.parametrize("secret", ["", "s" * 20])
def test_a_store_that_others_keep_tells_where_to_meet(
    cards: list[Any], monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """That of the user, say: a job without a secret in its environment has one for all who read the store."""
    store = HashStore()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("SHARDWISE_SECRET", secret)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    meet(0, 2, is_of_user=True)
    meet(1, 2, is_of_user=True)
    (_, listener, first, _), (_, master, second, _) = cards
    assert master == listener.getsockname()
    assert first.secret == second.secret
    assert first.secret == secret.encode() if secret else len(first.secret) == 64
    listener.close()


def test_the_engine_is_put_together_and_taken_apart_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    done, at_exit, at_fork = list[Any](), list[Any](), list[Any]()
    wire = SimpleNamespace(rank=1, size=2)
    link = SimpleNamespace(wire=wire, leave="leave", say_goodbye="say goodbye", forget="forget")
    monkeypatch.setattr(start, "_meet_others", lambda *said: done.append(said) or "meeting")
    monkeypatch.setattr(connection, "connect", lambda *said: done.append(said) or link)
    monkeypatch.setattr(start.atexit, "register", at_exit.append)
    monkeypatch.setattr(os, "register_at_fork", lambda **said: at_fork.append(said))
    for name, value in (WORLD | {"RANK": "1", "WORLD_SIZE": "2"}).items():
        monkeypatch.setenv(name, value)
    chosen = Settings(timeout=3.0, start=9.0)
    engine: Any = start._torch_engine(chosen, None)
    assert done == [(1, 2, chosen, None, False), (1, 2, chosen, "meeting", False)]
    assert (engine.name, engine.wire) == ("torch", wire)
    assert at_exit == ["leave", "say goodbye"]  # what is registered last is called first
    assert at_fork == [{"after_in_child": "forget"}]
