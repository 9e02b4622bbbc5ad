"""Transitions: pairs of placements on a mesh, and the layouts that they are."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import Any

from shardwise import DeviceMesh, Layout, Partial, PlacementMapping, Replicated, Sharded

Roles = tuple[str | int, ...]  # per mesh axis: R, P, or the dim that it splits


@dataclass(frozen=True, slots=True)
class Transition:
    """One placement per mesh axis, before and after.

    >>> [str(layout) for layout in layouts(Transition((2, 4), (0, "R"), ("R", 1), (8, 8)))]
    ['[a|-]', '[-|b]']
    """

    mesh: tuple[int, ...]
    src: Roles
    dst: Roles
    shape: tuple[int, ...]


def named(sizes: tuple[int, ...]) -> str:
    """Return a mesh as text.

    >>> named((2, 4))
    '2x4'
    """
    return "x".join(map(str, sizes))


def drawn(mesh: tuple[int, ...], count: int, ranks: int, size: int) -> list[Transition]:
    """Return distinct transitions of tensors of some ranks, from any placements to any without partial values."""
    rng, found = random.Random(0), {}
    for _ in range(50 * count):
        rank = rng.randint(1, ranks)
        src = tuple(rng.choice(["R", "P", *range(rank)]) for _ in mesh)
        dst = tuple(rng.choice(["R", *range(rank)]) for _ in mesh)
        if src != dst:
            found[src, dst, rank] = None
        if len(found) == count:
            break
    return [Transition(mesh, src, dst, (size,) * rank) for src, dst, rank in found]


def every(mesh: tuple[int, ...], partial: bool, shape: tuple[int, int]) -> list[Transition]:
    """Return every transition of a tensor of rank 2; with `partial` those that reduce something, or those that do not.

    >>> len(every((2, 2), False, (8, 8))), len(every((2, 2), True, (8, 8)))
    (72, 63)
    """
    roles: list[str | int] = ["R", 0, 1]
    before = product([*roles, "P"], repeat=len(mesh))
    found = [(src, dst) for src in before for dst in product(roles, repeat=len(mesh))]
    return [Transition(mesh, s, d, shape) for s, d in found if s != d and ("P" in s) == partial]


def layouts(case: Transition) -> tuple[Layout, Layout]:
    """Return the layouts before and after."""
    mesh = DeviceMesh(case.mesh, tuple("abcde"[: len(case.mesh)]))
    kinds: dict[str | int, Any] = {"R": Replicated(), "P": Partial(), **{k: Sharded(k) for k in range(5)}}
    a, b = (PlacementMapping(mesh, [kinds[p] for p in side]) for side in (case.src, case.dst))
    return a.to_layout(len(case.shape)), b.to_layout(len(case.shape))
