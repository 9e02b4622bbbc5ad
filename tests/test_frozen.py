"""Values do not change: every public class that is frozen refuses to, in words."""

import dataclasses
import inspect
from collections.abc import Iterator

import pytest

import shardwise
from shardwise import (
    CPU,
    Cut,
    DeviceMesh,
    DimSpec,
    Layout,
    Link,
    NamedMapping,
    P,
    PlacementMapping,
    Sharded,
    ShardingSpec,
)
from shardwise.errors import seal

MESH = DeviceMesh((2,), ("x",))
VALUES = [
    MESH,
    CPU(0),
    Sharded(0),
    Cut("x"),
    P("x"),
    DimSpec(["x"]),
    ShardingSpec(MESH, [DimSpec(["x"])]),
    PlacementMapping(MESH, [Sharded(0)]),
    NamedMapping(MESH, ["x"]),
    Layout(MESH, ["x"]),
    Link(),
    shardwise.Links(),
    shardwise.plan_reshard(P("x"), P(), (4,), "int8", mesh=MESH),
    shardwise.plan_reshard(P("x"), P(), (4,), "int8", mesh=MESH).explain(),
    shardwise.plan_reshard(P("x"), P(), (4,), "int8", mesh=MESH).steps[0],
    shardwise.shard([1.0, 2.0], MESH, P("x")).shards[0],
]


def frozen_classes() -> Iterator[type]:
    """Every public dataclass that is frozen."""
    for name in shardwise.__all__:
        found = getattr(shardwise, name)
        if inspect.isclass(found) and dataclasses.is_dataclass(found) and getattr(found, "__dataclass_params__").frozen:  # noqa: B009
            yield found


@pytest.mark.parametrize("kind", list(frozen_classes()), ids=lambda kind: kind.__name__)
def test_no_name_of_a_frozen_class_can_be_set_or_deleted(kind):
    value = object.__new__(kind)
    names = [*(field.name for field in dataclasses.fields(kind)), "anything", "__doc__"]
    for name in names:
        with pytest.raises(AttributeError):
            setattr(value, name, 1)
        with pytest.raises(AttributeError):
            delattr(value, name)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_stay_as_they_are(value):
    before, names = repr(value), [n for n in (*getattr(value, "__slots__", ()), "anything") if not n.startswith("_")]
    for name in names:
        with pytest.raises(AttributeError, match=name):
            setattr(value, name, 1)
        with pytest.raises(AttributeError, match=name):
            delattr(value, name)
    assert repr(value) == before


def test_the_refusal_says_what_to_do():
    with pytest.raises(dataclasses.FrozenInstanceError) as caught:
        Link().speed = 3  # type: ignore[attr-defined]
    assert str(caught.value) == "a Link does not change; make a new one instead of setting 'speed'."
    with pytest.raises(dataclasses.FrozenInstanceError) as caught:
        del Link().latency  # type: ignore[misc]
    assert str(caught.value) == "a Link does not change; 'latency' cannot be deleted."
    with pytest.raises(AttributeError, match="a Layout does not change; 'mesh' cannot be deleted"):
        del Layout(MESH, ["x"]).mesh


def test_a_subclass_is_sealed_too():
    @seal
    @dataclasses.dataclass(frozen=True, slots=True)
    class Wide(Link):
        lanes: int = 1

    assert Wide(lanes=2).lanes == 2
    with pytest.raises(AttributeError, match="a Wide does not change"):
        Wide().other = 1  # type: ignore[attr-defined]
