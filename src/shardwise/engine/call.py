"""Calls: what a round of communication is, in words that processes compare before any data moves."""

from __future__ import annotations

from typing import NamedTuple

from shardwise.layout.layout import Shape
from shardwise.layout.mesh import DeviceMesh


class Call(NamedTuple):
    """What a round of communication is: all processes of its group must say the same."""

    step: str
    ranks: tuple[int, ...]  # of the group, in order
    shape: Shape
    dtype: str
    before: str
    after: str
    reduction: str | None
    root: int | None  # the rank of the only device that gives, or takes
    plan: str
    meshes: str = ""  # that of the source, and that of the target if it is another


def meshes_text(src: DeviceMesh, dst: DeviceMesh) -> str:
    """Return the mesh of a call, or both.

    >>> one = DeviceMesh((2, 2), ("a", "b"))
    >>> meshes_text(one, one), meshes_text(one, DeviceMesh((4,), ("x",)))
    ('DeviceMesh(a=2, b=2)', 'DeviceMesh(a=2, b=2) -> DeviceMesh(x=4)')
    """
    return repr(src) if src == dst else f"{src!r} -> {dst!r}"
