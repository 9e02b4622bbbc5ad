"""Conventions that hold in every module: dataclasses are frozen, and rows are called what they are bound to."""

import importlib
import pkgutil
from types import ModuleType

from shardwise.names import origin
from shardwise.prim.primitive import Primitive

ROOMS = ["layout", "plan", "pictures", "engine", "prim", "ops", "transform"]
GROWING = {
    "shardwise.engine.boxes.PlacedBox",
    "shardwise.engine.counters.Counters",
    "shardwise.engine.counters.SharedCounters",
    "shardwise.engine.execute._StageBuilder",
    "shardwise.engine.farewell.Notes",
    "shardwise.engine.launch.process.Process",
    "shardwise.engine.log.CommunicationLog",
    "shardwise.engine.launch.output.Stream",
    "shardwise.engine.routes.route_builder._LegBuilder",
    "shardwise.engine.guard.stragglers.Wait",
    "shardwise.engine.guard.watchdog.Peer",
    "shardwise.plan.crowd.Assignment",
    "shardwise.prim.bind.Node",
}


# Rows that people know by another name than the code does.
KNOWN_AS = {"contract": "einsum", "cumulate": "cumulative_sum", "gather": "take", "permute": "permute_dims"}


def modules() -> list[ModuleType]:
    rooms = [importlib.import_module(f"shardwise.{name}") for name in ROOMS]
    found = [info for room in rooms for info in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")]
    return [importlib.import_module(info.name) for info in found]


def test_dataclasses_are_frozen():
    growing = set()
    for module in modules():
        for name, value in vars(module).items():
            own = isinstance(value, type) and origin(value) == module.__name__
            settings = getattr(value, "__dataclass_params__", None)
            if own and settings is not None and not settings.frozen:
                growing.add(f"{module.__name__}.{name}")
    assert growing == GROWING


def test_rows_are_called_what_they_are_bound_to():
    names: dict[Primitive, set[str]] = {}
    for module in modules():
        if module.__name__.startswith("shardwise.prim."):
            for name, value in vars(module).items():
                if isinstance(value, Primitive):
                    names.setdefault(value, set()).add(KNOWN_AS.get(name, name))
    assert {row.name: bound for row, bound in names.items() if row.name not in bound} == {}
    assert len({row.name for row in names}) == len(names)
