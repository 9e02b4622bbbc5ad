"""Every public function has a row, or a reason why it has none."""

import inspect
from typing import Any

import shardwise
from shardwise import LocalTensor, Tensor, graph_ops, random
from shardwise.ops import local_collectives, rooted
from shardwise.table import METHODS
from tests.every.rows import NAMES, REASONS

PYTHONS = ("abs", "all", "any", "max", "min", "pow", "round", "sum")  # public, though not in __all__


def _functions(room: Any, names: Any, prefix: str = "") -> set[str]:
    found = {name: getattr(room, name) for name in names}
    return {prefix + name for name, thing in found.items() if callable(thing) and not inspect.isclass(thing)}


def _own(room: Any) -> list[str]:
    # The public names that a room defines itself.
    found = [name for name, thing in vars(room).items() if getattr(thing, "__module__", "") == room.__name__]
    return [name for name in found if not name.startswith("_")]


def test_every_public_function_has_a_row_or_a_reason() -> None:
    wanted = _functions(shardwise, (*shardwise.__all__, *PYTHONS))
    wanted |= _functions(random, random.__all__, "random.")
    wanted |= _functions(graph_ops, _own(graph_ops), "graph_ops.")
    known = {*NAMES, *REASONS, "send_recv"}  # which is only inside shard_map
    assert wanted - known == set(), "give each a row in tests/every, or a reason in tests/every/rows.py"


def test_every_collective_inside_shard_map_has_a_row() -> None:
    public = {*shardwise.__all__, *PYTHONS}
    wanted = {name for room in (local_collectives, rooted) for name in _own(room) if name in public}
    wanted |= {"pmean", "shift"}
    assert wanted - {name.removeprefix("shard_map.") for name in NAMES} == set()
    assert {f"shard_map.{name}" for name in wanted if name in NAMES} - {*NAMES} <= {
        f"shard_map.{name}" for name in _own(rooted)
    }


def test_what_tensors_have_is_a_function_or_has_a_row_or_a_reason() -> None:
    members = {name for cls in (Tensor, LocalTensor) for name in dir(cls) if not hasattr(object, name)}
    members = {name for name in members if name.startswith("__") or not name.startswith("_")}
    operators = {name for name in METHODS if name.startswith("__") and name != "__getitem__"}  # rows spell them, too
    left = {f"Tensor.{name}" for name in members - operators - {name for name in NAMES if "." not in name}}
    hidden = {f"Tensor.__{name}__" for name in ("slots", "module", "annotations", "static_attributes")}
    assert left - hidden - {*NAMES, *REASONS} == set()


def test_no_row_and_no_reason_is_left_of_what_is_gone() -> None:
    rooms: dict[str, Any] = {"": shardwise, "random": random, "graph_ops": graph_ops, "Tensor": Tensor}
    for name in (*NAMES, *REASONS):
        room, _, own = name.rpartition(".")
        assert hasattr(rooms.get(room, shardwise), own) or (room == "Tensor" and hasattr(LocalTensor, own)), name


def test_no_function_has_both_a_row_and_a_reason() -> None:
    assert set(NAMES) & set(REASONS) == set()
