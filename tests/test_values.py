"""Values do not change: every dataclass is frozen, but for those that keep a record."""

import importlib
import pkgutil
from types import ModuleType

ROOMS = ["layout", "plan", "pictures", "engine", "prim", "ops", "autodiff"]
GROWING = {
    "shardwise.engine.boxes.Placed",
    "shardwise.engine.counters.Counters",
    "shardwise.engine.log.CommunicationLog",
    "shardwise.engine.output.Stream",
    "shardwise.engine.watchdog.Peer",
    "shardwise.prim.bind.Node",
}


def modules() -> list[ModuleType]:
    rooms = [importlib.import_module(f"shardwise.{name}") for name in ROOMS]
    found = [info for room in rooms for info in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")]
    return [importlib.import_module(info.name) for info in found]


def test_dataclasses_are_frozen():
    growing = set()
    for module in modules():
        for name, value in vars(module).items():
            own = isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
            settings = getattr(value, "__dataclass_params__", None)
            if own and settings is not None and not settings.frozen:
                growing.add(f"{module.__name__}.{name}")
    assert growing == GROWING
