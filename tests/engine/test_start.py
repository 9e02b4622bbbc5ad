"""Which engine a process uses, and what is said where it cannot."""

import os
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import shardwise
from shardwise import ArgumentError, DeviceMesh, EngineError, MeshError, current_engine, init
from shardwise.engine import start
from shardwise.engine.guard import channel, rendezvous
from shardwise.engine.guard import guard as guarding
from shardwise.engine.process import wire as wiring
from shardwise.engine.settings import Settings

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


# -- what is asked of torch and of the guard, without processes ----------------------------------------------


class Guarding:
    """What stands in for a guard."""

    def __init__(self) -> None:
        self.is_here, self.closed, self.why = True, list[Any](), list[Any]()

    def start_failure(self, error: Exception, size: int) -> Exception:
        self.why.append((str(error), size))
        return EngineError("nobody came")

    def close(self, error: BaseException | None = None) -> None:
        self.closed.append(error)


class Wiring:
    def __init__(self, abandoned: bool = False) -> None:
        self.settled = self.closed = 0
        self.groups = SimpleNamespace(abandoned=abandoned)

    def settle(self) -> None:
        self.settled += 1

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []
    for name, value in (WORLD | {"RANK": "1", "WORLD_SIZE": "3"}).items():
        monkeypatch.setenv(name, value)
    for name in start.NCCL_OFF:
        monkeypatch.setenv(name, "kept")
        monkeypatch.delenv(name)  # so that it is taken back after the test
    monkeypatch.setattr(dist, "init_process_group", lambda *names, **options: asked.append((names, options)))
    return asked


@pytest.mark.parametrize(("cuda", "nccl"), [(True, True), (True, False), (False, True)])
def test_nccl_is_used_where_both_are_there(
    joining: list[Any], monkeypatch: pytest.MonkeyPatch, cuda: bool, nccl: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: nccl)
    start._join(HashStore(), 1, 3, Settings(timeout=7.0), None)
    (((name,), options),) = joining
    assert name == ("cpu:gloo,cuda:nccl" if cuda and nccl else "gloo")
    assert (options["rank"], options["world_size"], options["timeout"]) == (1, 3, timedelta(seconds=7))
    options["store"].set("a", "b")
    assert not any(name in os.environ for name in start.NCCL_OFF)


def test_with_a_guard_torch_does_not_end_the_process(joining: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    store, guard = HashStore(), cast(Any, Guarding())
    monkeypatch.setenv(start.NCCL_OFF[1], "5")
    start._join(store, 1, 3, Settings(), guard)
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert os.environ["TORCH_FR_BUFFER_SIZE"] == "5"  # as the user says
    joining[0][1]["store"].set("a", "b")
    assert store.check(["torch/a"]) or store.check(["/torch/a"])
    assert guard.closed == []


def test_what_torch_cannot_start_is_explained_by_the_guard(joining: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*names: Any, **options: Any) -> None:
        raise RuntimeError("no route")

    monkeypatch.setattr(dist, "init_process_group", fail)
    with pytest.raises(RuntimeError, match="no route"):
        start._join(HashStore(), 1, 3, Settings(), None)
    guard: Any = Guarding()
    with pytest.raises(EngineError, match="nobody came") as found:
        start._join(HashStore(), 1, 3, Settings(), guard)
    assert guard.why == [("no route", 3)]
    assert guard.closed == [found.value]


def test_goodbyes_tell_the_error_that_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    guard, wire = cast(Any, Guarding()), cast(Any, Wiring())
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    start._say_goodbye(guard, wire)
    assert (guard.closed, wire.settled) == ([None], 1)  # others still wait for what is under way
    guard.is_here = False
    start._say_goodbye(guard, wire)
    assert (guard.closed, wire.settled) == ([None, None], 1)
    guard.is_here, error = True, ValueError("bad")
    monkeypatch.setattr(sys, "last_value", error)
    start._say_goodbye(guard, wire)
    assert (guard.closed, wire.settled) == ([None, None, error], 1)


@pytest.mark.parametrize(
    ("fork", "abandoned", "started", "there", "does"),
    [
        (True, False, False, True, (0, 0, 0)),
        (False, False, False, True, (1, 0, 1)),
        (False, False, True, True, (1, 0, 0)),  # the user sees to its end
        (False, False, False, False, (1, 0, 0)),
        (False, True, False, True, (1, 2, 0)),
    ],
)
def test_leaving_ends_what_was_started(
    monkeypatch: pytest.MonkeyPatch, fork: bool, abandoned: bool, started: bool, there: bool, does: tuple[int, ...]
) -> None:
    disowned, destroyed, wire = list[Any](), list[int](), cast(Any, Wiring(abandoned))
    monkeypatch.setattr(start, "_disown", lambda *held: disowned.extend(held))
    monkeypatch.setattr(dist, "is_initialized", lambda: there)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: destroyed.append(1))
    start._leave(wire, os.getpid() + fork, started)
    assert (wire.closed, len(disowned), len(destroyed)) == does


def test_what_is_disowned_is_never_deleted() -> None:
    value = object()
    before = sys.getrefcount(value)
    start._disown(value, value)
    assert sys.getrefcount(value) == before + 2


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
    init("torch")
    assert len(asked) == 2


def test_the_card_says_who_this_is_and_a_mesh_must_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    cards: list[Any] = []
    monkeypatch.setattr(rendezvous, "meet", lambda store, card, seconds: cards.append((card, seconds)) or {})
    monkeypatch.setattr(rendezvous, "shared_token", lambda store, rank: pytest.fail("nobody connects without a guard"))
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    mesh = DeviceMesh((2,), ("x",))
    for given, drawn in [(None, ""), (mesh, "DeviceMesh(x=2) of [0, 1]")]:
        assert start._meet_others(HashStore(), 1, 2, Settings(start=9.0, guard=False), given) is None
        card, seconds = cards.pop()
        assert (card.rank, card.size, card.guard, card.mesh, seconds) == (1, 2, False, drawn, 9.0)
        assert (card.shardwise, card.torch) == (shardwise.__version__, str(torch.__version__))
        assert card.who.endswith(f":{os.getpid()}")
        assert card.port > 0
        assert card.host in ("127.0.0.1", "::1")
    with pytest.raises(MeshError, match=r"init: DeviceMesh\(x=2\) has 2 devices, but there are 1 processes"):
        start._meet_others(HashStore(), 0, 1, Settings(guard=False), mesh)


def test_with_a_guard_all_who_met_are_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    mine = rendezvous.Card(1, 2, "", "", True, "", "here", 5, "")
    other = rendezvous.Card(0, 2, "", "", True, "", "there", 7, "")

    def connected(rank: int, listener: Any, addresses: Any, token: bytes, seconds: float) -> str:
        asked.append((rank, listener.fileno() > 0, addresses, token, seconds))
        return "channels"

    cards = {0: other, 1: mine}
    monkeypatch.setattr(rendezvous, "meet", lambda store, card, seconds: asked.append(card.guard) or cards)
    monkeypatch.setattr(rendezvous, "shared_token", lambda store, rank: f"{store} {rank}".encode())
    monkeypatch.setattr(channel, "connect", connected)
    monkeypatch.setattr(guarding, "CollectiveGuard", lambda *given: given)
    chosen = Settings(start=9.0)
    assert cast(Any, start._meet_others(cast(Any, "store"), 1, 2, chosen, None)) == (1, "channels", chosen)
    assert asked == [True, (1, True, {0: ("there", 7)}, b"store 1", 9.0)]


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_the_engine_is_put_together_and_taken_apart_in_order(
    monkeypatch: pytest.MonkeyPatch, begun: bool, guarded: bool
) -> None:
    done, at_exit, at_fork = list[Any](), list[Any](), list[Any]()
    groups = SimpleNamespace(abandon=lambda lost: None)
    wire = SimpleNamespace(rank=1, size=2, guard="unset", groups=groups)
    guard = SimpleNamespace(watchdog=SimpleNamespace(on_loss=None)) if guarded else None
    monkeypatch.setattr(dist, "is_initialized", lambda: begun)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: "theirs")
    monkeypatch.setattr(dist.distributed_c10d, "PrefixStore", lambda name, store: f"{name} in {store}")
    monkeypatch.setattr(rendezvous, "open_start_store", lambda seconds: f"opened in {seconds:g} s")
    monkeypatch.setattr(wiring, "Wire", lambda seconds: done.append(("wire", seconds)) or wire)
    monkeypatch.setattr(start, "_meet_others", lambda *said: done.append(said) or guard)
    monkeypatch.setattr(start, "_join", lambda *said: done.append(("join", *said)))
    monkeypatch.setattr(start.atexit, "register", lambda *said: at_exit.append(said))
    monkeypatch.setattr(os, "register_at_fork", lambda **said: at_fork.append(said))
    for name, value in (WORLD | {"RANK": "1", "WORLD_SIZE": "2"}).items():
        monkeypatch.setenv(name, value)
    chosen = Settings(timeout=3.0, start=9.0)
    engine: Any = start._torch_engine(chosen, None)
    store = "shardwise/start in theirs" if begun else "opened in 9 s"
    joined = [] if begun else [("join", store, 1, 2, chosen, guard)]  # who began it sees to its end
    assert done == [(store, 1, 2, chosen, None), *joined, ("wire", 3.0)]
    assert (engine.name, engine.wire, wire.guard) == ("torch", wire, guard)
    goodbye = [(start._say_goodbye, guard, wire)] if guarded else []
    assert at_exit == [(start._leave, wire, os.getpid(), begun), *goodbye]
    assert guard is None or guard.watchdog.on_loss is groups.abandon
    assert [list(said) for said in at_fork] == [["after_in_child"]]


def test_an_address_may_have_more_than_a_host_and_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    cards, asked = list[Any](), list[Any]()

    class Listens:
        def getsockname(self) -> tuple[Any, ...]:
            return "::1", 9, 0, 0  # as IPv6 has it

        def __enter__(self) -> "Listens":
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(channel, "listen", lambda *where: asked.append(where) or Listens())
    monkeypatch.setattr(rendezvous, "meet", lambda store, card, seconds: cards.append(card) or {})
    monkeypatch.setenv("MASTER_ADDR", "fe80::1")
    start._meet_others(HashStore(), 0, 2, Settings(guard=False), None)
    assert (cards[0].host, cards[0].port) == ("::1", 9)
    assert asked == [("fe80::1", 2)]
