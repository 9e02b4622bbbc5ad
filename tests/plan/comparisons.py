"""What plans move beside the least that there is, over the transitions with pending values."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, NamedTuple

from shardwise import CPU, DeviceMesh, Layout, plan_reshard
from tests.plan.cases import Transition, all_layouts, factored, mesh_of
from tests.plan.messages import least_elements

CLAIM = "(the least possible)"


class Comparison(NamedTuple):
    """A transition with the elements that its plan moves, those that the plan says are needed, and the least."""

    transition: Transition
    received: int
    bound: int
    least: int
    is_claimed: bool  # whether the plan, as text, says of more than the least that it is the least possible


def compare(transitions: Iterable[Transition], dtype: Any) -> Iterator[Comparison]:
    """Yield what the plans of some transitions move beside the least."""
    for transition in transitions:
        plan = plan_reshard(*transition, dtype)
        size = plan.dtype.itemsize
        received, bound = plan.received.total // size, plan.lower_bound.total // size
        least = least_elements(*transition)
        is_claimed = received > least and CLAIM in str(plan).split("in all")[-1]
        yield Comparison(transition, received, bound, least, is_claimed)


def pending_transitions(
    sizes: tuple[int, ...], shape: tuple[int, ...], op: str = "sum", other: str | None = None
) -> list[Transition]:
    """Every transition of a mesh where a side is pending: of `op` before and of `other` (or `op` again) after."""
    mesh = mesh_of(*sizes)
    before, after = (all_layouts(mesh, len(shape), True, name) for name in (op, other or op))
    return [Transition(src, dst, shape) for src in before for dst in after if src.partial or dst.partial]


def small_mesh(rng: Random, names: str, devices: list[CPU]) -> DeviceMesh:
    """A mesh of some of these devices, twelve at most, in any order."""
    while True:
        sizes, count = [rng.choice([1, 2, 2, 3, 4]) for _ in range(rng.randint(1, 3))], 1
        for size in sizes:
            count *= size
        if count <= min(12, len(devices)):
            return DeviceMesh(sizes, tuple(names[: len(sizes)]), rng.sample(devices, count))


def other_mesh(rng: Random, mesh: DeviceMesh) -> DeviceMesh:
    """A mesh of the same devices in another order or shape, of some of them, of others too, or of none of them."""
    ours = list(mesh.devices)
    new = [CPU(100 + i) for i in range(12)]
    kind = rng.choice(["shuffled", "turned", "flat", "subset", "overlapping", "disjoint"])
    if kind == "shuffled":
        return DeviceMesh(mesh.mesh_shape, tuple("uvw"[: mesh.ndim]), rng.sample(ours, len(ours)))
    if kind == "turned":
        return mesh.transpose(*rng.sample(mesh.axis_names, mesh.ndim))
    if kind == "flat":
        return mesh.flatten()
    return small_mesh(rng, "uvw", {"subset": ours, "overlapping": ours + new[: len(ours)], "disjoint": new}[kind])


def pending_layout(rng: Random, mesh: DeviceMesh, rank: int, op: str) -> Layout:
    """A layout of sub-axes, many of them pending."""
    homes: dict[int, list[Any]] = {}
    axes = rng.choice(list(factored(mesh)))
    for axis in rng.sample(axes, len(axes)):
        homes.setdefault(rng.choice([-2, -2, -1, *range(rank)]), []).append(axis)
    return Layout(mesh, [homes.get(dim, []) for dim in range(rank)], homes.get(-2, []), op)


def pending_transitions_between_meshes(
    rng: Random, count: int, op: str = "sum", other: str | None = None
) -> Iterator[Transition]:
    """Some transitions between two meshes where a side is pending."""
    while count:
        mesh = small_mesh(rng, "xyz", [CPU(i) for i in range(rng.choice([6, 8, 12]))])
        shape = tuple(rng.choice([1, 4, 6, 7]) for _ in range(rng.randint(0, 2)))
        src = pending_layout(rng, mesh, len(shape), op)
        dst = pending_layout(rng, other_mesh(rng, mesh), len(shape), other or op)
        if src.partial or dst.partial:
            count -= 1
            yield Transition(src, dst, shape)
