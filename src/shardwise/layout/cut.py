"""Cuts: how one tensor dim is cut, and by which axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise.errors import as_tuple, seal
from shardwise.layout.axis import Axis
from shardwise.layout.placement import Edge, Split, check_cut, cut_text

AxisLike = str | Axis


@seal
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cut:
    """How one tensor dim is cut: by which axes, major to minor, and where.

    >>> Cut("dp"), Cut(("tp", "dp"), split="chunk")
    (Cut('dp'), Cut(('tp', 'dp'), split='chunk'))
    >>> Cut("dp").is_plain, Cut("dp", halo=1).is_plain
    (True, False)
    >>> Cut("dp", halo=1).details
    ', halo=(1, 1)'
    """

    axes: tuple[Axis, ...]  # names until a layout looks them up in its mesh
    split: Split
    offsets: tuple[int, ...] | None
    halo: tuple[int, int]
    edge: Edge

    def __init__(
        self,
        axes: AxisLike | Sequence[AxisLike] = (),
        *,
        split: Split = "balanced",
        offsets: Sequence[int] | None = None,
        halo: tuple[int, int] | int = (0, 0),
        edge: Edge = "clip",
    ) -> None:
        """Cut by `axes`; the other arguments are those of `Sharded`."""
        single = isinstance(axes, str | Axis)
        names = (axes,) if single else as_tuple(axes, "the axes of a Cut are one axis or a tuple of axes")
        for slot, value in zip(self.__slots__, (names, *check_cut("Cut", split, offsets, halo, edge)), strict=True):
            object.__setattr__(self, slot, value)

    @property
    def is_plain(self) -> bool:
        """Whether the dim is cut the default way, so that its axes say it all."""
        return self.split == "balanced" and self.halo == (0, 0)

    def __repr__(self) -> str:
        names = tuple(map(str, self.axes))
        return f"Cut({(names[0] if len(names) == 1 else names)!r}{self.details})"

    @property
    def details(self) -> str:
        """What differs from the default cut, as arguments."""
        return cut_text(self.split, self.offsets, self.halo, self.edge)


WHOLE = Cut()  # what a dim that nothing splits has


def cut_of(axes: Sequence[AxisLike], split: Split, offsets: Any, halo: tuple[int, int], edge: Edge) -> Cut:
    """Return a cut from its fields in order."""
    return Cut(axes, split=split, offsets=offsets, halo=halo, edge=edge)
