"""What a plan must do, worked out element by element from the definitions alone."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from shardwise import Layout, Plan, ReduceOp, Step, Transfer
from shardwise.layout.axis import Axis, common
from shardwise.layout.tiling import Box
from shardwise.plan.movement import Movement
from shardwise.plan.transfer import DeviceName
from tests.layout.oracle import digit, held_box, owned_box
from tests.plan.messages import least_elements

Shape = tuple[int, ...]

IDENTITY = {"sum": 0, "prod": 1, "max": -(2**62), "min": 2**62, "bor": 0, "bxor": 0, "band": -1}
UFUNC: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "band": np.bitwise_and,
    "avg": np.add,
}


def region(box: Box) -> tuple[slice, ...]:
    """A box as an index of an array of the whole tensor: what lies outside of it is left out."""
    return tuple(slice(max(0, start), max(0, stop)) for start, stop in box)


@lru_cache(maxsize=4096)
def masks(layout: Layout, shape: Shape, held: bool = True) -> np.ndarray:
    """One boolean array per device of the mesh: the elements it holds (or owns)."""
    out = np.zeros((layout.mesh.num_devices, *shape), dtype=bool)
    for device in range(layout.mesh.num_devices):
        out[(device, *region((held_box if held else owned_box)(layout, shape, device)))] = True
    out.flags.writeable = False
    return out


@lru_cache(maxsize=4096)
def positions(layout: Layout, axes: Sequence[Axis]) -> list[tuple[int, ...]]:
    """The position of every device of the mesh along some axes."""
    return [tuple(digit(layout.mesh, a, d) for a in axes) for d in range(layout.mesh.num_devices)]


# -- who takes part ----------------------------------------------------------------------------------


def names(plan: Plan) -> list[DeviceName]:
    """How the plan calls its devices: by index on one mesh, as devices where two meshes meet."""
    if plan.src.mesh is plan.dst.mesh:
        return list(range(plan.src.mesh.num_devices))
    return list(dict.fromkeys((*plan.src.mesh.devices, *plan.dst.mesh.devices)))


def members(plan: Plan, layout: Layout) -> list[int]:
    """The place in `names` of every device of a layout's mesh."""
    if plan.src.mesh is plan.dst.mesh:
        return list(range(layout.mesh.num_devices))
    where = {name: i for i, name in enumerate(names(plan))}
    return [where[device] for device in layout.mesh.devices]


def spread_masks(plan: Plan, layout: Layout, held: bool = True) -> np.ndarray:
    """One boolean array per device that takes part: the elements it holds (or owns) under a layout."""
    out = np.zeros((len(names(plan)), *plan.shape), dtype=bool)
    out[members(plan, layout)] = masks(layout, plan.shape, held)
    return out


# -- the bounds ----------------------------------------------------------------------------------------


def missing_bytes(plan: Plan) -> list[int]:
    """The bytes each device lacks: what is in its new box and not in its old one."""
    lacking = spread_masks(plan, plan.dst) & ~spread_masks(plan, plan.src)
    return [int(mask.sum()) * plan.dtype.itemsize for mask in lacking]


def least_total(plan: Plan) -> int:
    """The least bytes in all with partial values, element by element, halos left out.

    A pending average is one that is made by replicating.
    """
    src, dst = plan.src, plan.dst
    if dst.reduce_op is not ReduceOp.AVG:
        return least_elements(src, dst, plan.shape) * plan.dtype.itemsize
    kept = common(src.partial, dst.partial) if src.mesh is dst.mesh and src.reduce_op is ReduceOp.AVG else ()
    return min(_least(plan, axes) for axes in {(), kept}) * plan.dtype.itemsize


def _least(plan: Plan, kept: tuple[Axis, ...]) -> int:
    # c + t - 2 messages, + 1 if no contributor is a target, each position along the axes that are kept by itself.
    gives, takes = spread_masks(plan, plan.src, False), spread_masks(plan, plan.dst, False)
    giving, total = _by_position(plan, plan.src, plan.src.partial), 0
    for group in _by_position(plan, plan.src, kept) if kept else [range(len(gives))]:
        inside = np.isin(np.arange(len(gives)), group)
        contributions = np.sum([gives[[i for i in at if inside[i]]].any(axis=0) for at in giving], axis=0)
        chosen = np.flatnonzero(inside)
        lacking = (takes[chosen] & ~gives[chosen]).sum(axis=0)
        apart = ~(takes[chosen] & gives[chosen]).any(axis=0)
        reduced = contributions + takes[chosen].sum(axis=0) - 2 + apart
        total += int(np.where(contributions == 1, lacking, reduced).sum())
    return total


def _by_position(plan: Plan, layout: Layout, axes: tuple[Axis, ...]) -> list[list[int]]:
    out: dict[tuple[int, ...], list[int]] = {}
    for slot, at in zip(members(plan, layout), positions(layout, axes), strict=True):
        out.setdefault(at, []).append(slot)
    return list(out.values())


# -- running a plan ------------------------------------------------------------------------------------


class Devices:
    """The arrays of all devices: values, which elements are there, how many contributions are in each."""

    def __init__(self, plan: Plan, seed: int = 0) -> None:
        """Give every device its shard of the source layout; with partial axes, its contribution."""
        rng, src = np.random.default_rng(seed), plan.src
        at = positions(src, src.partial)
        self.op = UFUNC[str(src.reduce_op or "sum")]
        self.plan, self.names = plan, names(plan)
        self.place = {name: i for i, name in enumerate(self.names)}
        self.values = {c: rng.integers(-5, 6, size=plan.shape) for c in sorted(set(at))}
        self.have = spread_masks(plan, src)
        self.data = np.zeros((len(self.names), *plan.shape), dtype=np.int64)
        for slot, coordinates in zip(members(plan, src), at, strict=True):
            self.data[slot] = self.values[coordinates]
        self.data[~self.have] = -99
        self.weight = self.have.astype(int)

    def apply(self, step: Step) -> None:
        """Do one step, round by round, from its transfers alone."""
        listed = [list(step.rounds(slot)) for slot in range(len(self.names))]
        for at, move in enumerate(step.moves):
            transfers = pair_up([rounds[at] for rounds in listed], self.names)
            if move.reduces:
                self._reduce(move, transfers)
            else:
                self._round(transfers)
        if isinstance(step.after, Layout):
            if step.is_local:
                self._fill(step, step.after)
            held = spread_masks(self.plan, step.after)
            assert self.have[held].all(), f"after {step}, a device lacks part of its shard"
            self.have &= held

    def _reduce(self, move: Movement, transfers: list[Transfer]) -> None:
        """Make of what each device has, and of what is sent to it, the reductions that the move lists."""
        data, have, weight = self.data.copy(), self.have.copy(), self.weight.copy()
        sources, targets = (members(self.plan, holders.layout) for holders in move.holders)
        left = [(self.place[t.source], self.place[t.target], t.box) for t in transfers]
        for index, target in enumerate(targets):
            for reduction in move.reductions(index):
                here, terms = region(reduction.box), [sources[source] for source in reduction.sources]
                for term in terms:
                    assert self.have[(term, *here)].all(), "a source sends what it does not hold"
                    if term != target:
                        left.remove((term, target, reduction.box))
                data[(target, *here)] = self.op.reduce([self.data[(term, *here)] for term in terms])
                weight[(target, *here)] = sum(self.weight[(term, *here)] for term in terms)
                have[(target, *here)] = True
        assert left == [], "what is sent is not reduced"
        self.data, self.have, self.weight = data, have, weight

    def _round(self, transfers: list[Transfer]) -> None:
        data, have, weight = self.data.copy(), self.have.copy(), self.weight.copy()
        fresh = np.zeros_like(have)
        for source, target, box in transfers:
            here, there = (self.place[target], *region(box)), (self.place[source], *region(box))
            assert self.have[there].all(), "a source sends what it does not hold"
            assert not fresh[here].any(), "an element is received twice"
            assert not self.have[here].any() or self.plan.src.partial, "an element was there already"
            data[here], weight[here] = self.data[there], self.weight[there]
            have[here] = fresh[here] = True
        self.data, self.have, self.weight = data, have, weight

    def _fill(self, step: Step, layout: Layout) -> None:
        """Put identities where a fill says so."""
        for slot, held in zip(members(self.plan, layout), masks(layout, self.plan.shape), strict=True):
            boxes = step.kept(self.names[slot])
            if boxes is None:
                continue
            keeps = np.zeros(self.plan.shape, dtype=bool)
            for box in boxes:
                keeps[region(box)] = True
            assert self.have[slot][keeps].all(), f"{self.names[slot]} keeps what it does not hold"
            self.data[slot] = np.where(keeps, self.data[slot], IDENTITY[str(layout.reduce_op)])
            self.weight[slot] = np.where(keeps, self.weight[slot], 0)
            self.have[slot] = held

    def check(self) -> None:
        """Check that every device has its shard of the target layout."""
        dst, held = self.plan.dst, spread_masks(self.plan, self.plan.dst)
        total, op = self.op.reduce(list(self.values.values())), str(dst.reduce_op or "sum")
        data, average = self.data, ReduceOp.AVG in (self.plan.src.reduce_op, dst.reduce_op)
        if self.plan.src.reduce_op is ReduceOp.AVG:
            data, total = data / np.maximum(self.weight, 1), total / len(self.values)
        assert self.have[held].all(), "a device lacks part of its shard"
        for group in _by_position(self.plan, dst, tuple(dst.mesh.rest(dst.partial))):
            mask, result = held[group[0]], UFUNC[op].reduce(list(data[group]))
            if op == "avg":
                result = result / len(group)
            else:
                weight = self.weight[group].sum(axis=0)
                assert (weight == len(self.values))[mask].all(), "a contribution does not count once"
            same = np.isclose(result, total) if average else result == total
            assert same[mask].all(), f"devices {group} have wrong values"


def pair_up(lists: Sequence[Sequence[Transfer]], devices: list[DeviceName]) -> list[Transfer]:
    """All transfers of one round, after checking that both ends of each list it."""
    received = [t for name, found in zip(devices, lists, strict=True) for t in found if t.target == name]
    sent = [t for name, found in zip(devices, lists, strict=True) for t in found if t.source == name]
    assert sorted(map(repr, received)) == sorted(map(repr, sent)), "the two ends disagree"
    assert sum(map(len, lists)) == len(received) + len(sent), "a device lists what does not concern it"
    assert all(t.source != t.target and t.size for t in received)
    return received


def run(plan: Plan, seed: int = 0) -> None:
    """Apply the transfers of a plan to real arrays and check what every device ends up with."""
    devices = Devices(plan, seed)
    for step in plan.steps:
        devices.apply(step)
    devices.check()
