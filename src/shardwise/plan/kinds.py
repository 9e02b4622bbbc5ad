"""Kinds: which collective a transition without pending reductions is, judged by axes and cuts alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from shardwise.errors import seal
from shardwise.layout.axis import Axis, is_disjoint, merge, without
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.tiling import DimTiling

Kind = Literal[
    "slice",
    "all_gather",
    "all_to_all",
    "reduce_scatter",
    "all_reduce",
    "permute",
    "halo_exchange",
    "halo_accumulate",
    "fill",
    "exchange",
]


Dims = tuple[DimTiling, ...]


@seal
@dataclass(frozen=True, slots=True)
class Change:
    """What a transition does: the kind of its communication, over which axes, and what is sliced first."""

    kind: Kind | None
    axes: tuple[Axis, ...] = ()
    sliced: tuple[Cut, ...] | None = None

    def start(self, src: Layout) -> Layout:
        """Return the layout after what can be sliced has been."""
        return src if self.sliced is None else Layout(src.mesh, self.sliced, src.partial, src.reduce_op or "sum")


def change_of(src: Layout, dst: Layout, shape: Shape) -> Change:
    """Return what a transition between layouts on one mesh does, leaving partial axes aside.

    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> a, b = P("dp", None).to_layout(2, mesh), P(None, "dp").to_layout(2, mesh)
    >>> change_of(a, b, (8, 8)).kind
    'all_to_all'
    """
    if src.has_halo or dst.has_halo:
        return _halo_change(src, dst, shape)
    before, after = src.tiling(shape).dims, dst.tiling(shape).dims
    gathered: list[Axis] = []
    sliced: list[Axis] = []
    middle: list[Cut] = []
    for old, new, s, d in zip(src.dims, dst.dims, before, after, strict=True):
        if old is new or (old.axes == new.axes and old == new):
            middle.append(new)
            continue
        added_axes = remainder(new.axes, old.axes)
        if added_axes is not None and is_nested(d, s):
            sliced += added_axes
            middle.append(new)
            continue
        lost_axes = remainder(old.axes, new.axes)
        if lost_axes is not None and is_nested(s, d):
            gathered += lost_axes
            middle.append(old)
            continue
        kind = "permute" if all(map(is_same_cut, before, after)) else "exchange"
        return Change(kind, _moving_axes(src, dst, before, after))
    if not gathered:
        return Change("slice" if sliced else None, tuple(sliced))
    if is_disjoint(gathered, sliced):
        return Change("all_gather", tuple(gathered), tuple(middle) if sliced else None)
    if sorted(gathered) == sorted(sliced) or _canonical(gathered) == _canonical(sliced):
        return Change("all_to_all", tuple(gathered))
    early = _slice_early(src, dst, after, gathered)
    if early is None:
        return Change("exchange", _moving_axes(src, dst, before, after))
    return Change("all_to_all", tuple(gathered), early)


def _slice_early(src: Layout, dst: Layout, after: Dims, gathered: Sequence[Axis]) -> tuple[Cut, ...] | None:
    # The cuts after slicing by the axes that are not gathered elsewhere, if an all-to-all does the rest.
    cuts: list[Cut] = []
    rest: list[Axis] = []
    for old, new, fine in zip(src.dims, dst.dims, after, strict=True):
        added_axes = remainder(new.axes, old.axes)
        if not added_axes:
            cuts.append(old)
            continue
        early = without(added_axes, gathered)
        late = remainder(added_axes, early)
        if late is None:
            return None
        if early and late:
            axes = merge([*old.axes, *early])
            offsets = new.offsets and new.offsets[:: prod(a.size for a in late)]
            cut = Cut(axes, split=new.split, offsets=offsets)
            if not is_nested(fine, DimTiling(fine.size, prod(a.size for a in axes), cut.split, offsets)):
                return None
        else:
            cut = new if early else old
        cuts.append(cut)
        rest += late
    return tuple(cuts) if _canonical(rest) == _canonical(gathered) else None


def _halo_change(src: Layout, dst: Layout, shape: Shape) -> Change:
    before, after = src.tiling(shape).dims, dst.tiling(shape).dims
    same = all(
        old.axes == new.axes and is_same_cut(s, d)
        for old, new, s, d in zip(src.dims, dst.dims, before, after, strict=True)
    )
    if not same:
        inner = change_of(src.without_halo(), dst.without_halo(), shape)
        local = inner.kind in (None, "slice") and not any(d.parts > 1 and max(d.halo) for d in after)
        return Change("slice" if local else "exchange", () if local else _moving_axes(src, dst, before, after))
    if any(
        d.parts > 1 and (d.halo[0] > s.halo[0] or d.halo[1] > s.halo[1]) for s, d in zip(before, after, strict=True)
    ):
        # The corners between two halos come from across both.
        return Change("halo_exchange", tuple(a for cut in dst.dims if max(cut.halo) for a in cut.axes))
    padded = any((d.edge == "pad" and d.halo != s.halo) or d.edge != s.edge for s, d in zip(before, after, strict=True))
    if padded and any(d.edge == "pad" for d in after):
        return Change("fill")
    return Change("slice" if before != after else None)


def _moving_axes(src: Layout, dst: Layout, before: Dims, after: Dims) -> tuple[Axis, ...]:
    # Whole axes that between them hold all who may talk: those of each dim whose cut changes, less the major
    # ones that stay, if all parts are equal and nothing reaches over their boundaries.
    names: set[str] = set()
    for old, new, s, d in zip(src.dims, dst.dims, before, after, strict=True):
        is_plain = old.halo == new.halo == (0, 0)
        if is_plain and (old is new or (old.axes == new.axes and old == new)):
            continue
        same = _count_same(old.axes, new.axes) if is_plain and s.is_even and d.is_even else 0
        for axis in (*old.axes[same:], *new.axes[same:]):
            names.add(axis.name)
    return tuple([axis for axis in src.mesh.whole_axes if axis.name in names])


def _count_same(a: Sequence[Axis], b: Sequence[Axis]) -> int:
    # How many axes two cuts begin with alike.
    same = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        same += 1
    return same


def remainder(longer: Sequence[Axis], shorter: Sequence[Axis]) -> list[Axis] | None:
    """Return the axes of `longer` after its prefix `shorter`, or None if that is no prefix.

    >>> x = Axis("x", 1, 8, 8)
    >>> remainder([x], [Axis("x", 1, 2, 8)]), remainder([x], [Axis("x", 2, 4, 8)])
    ([x:(2)4], None)
    """
    rest, count = list(longer), len(shorter)
    if not rest or not count:
        return None if count else rest
    if rest[:count] == list(shorter):
        return rest[count:]
    for axis in shorter:
        if not rest or rest[0].name != axis.name or rest[0].pre != axis.pre or rest[0].size % axis.size:
            return None
        whole = rest.pop(0)
        if whole.size > axis.size:
            rest.insert(0, Axis(whole.name, whole.pre * axis.size, whole.size // axis.size, whole.of))
    return rest


def _canonical(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    return merge(sorted(axes))


def is_nested(fine: DimTiling, coarse: DimTiling) -> bool:
    """Whether each part of `coarse` is exactly a run of equally many parts of `fine`.

    >>> is_nested(DimTiling(12, 4), DimTiling(12, 2)), is_nested(DimTiling(10, 4), DimTiling(10, 2))
    (True, False)
    """
    ratio, excess = divmod(fine.parts, coarse.parts)
    if excess:
        return False
    is_formula = fine.offsets is None and coarse.offsets is None
    if fine.size == coarse.size and (coarse.parts == 1 or (is_formula and fine.is_even)):
        return True  # where the parts of the fine one are equal, so are those of the coarse one
    points: Iterable[int] = range(coarse.parts + 1)
    if is_formula:
        # The boundaries of a cut without offsets are, part by part, the lower of two straight lines: one through the
        # first two, one through the last two. Cuts that agree there agree everywhere.
        points = {0, 1, coarse.parts - 1, coarse.parts}
    return all(_boundary(coarse, i) == _boundary(fine, i * ratio) for i in points)


def is_same_cut(a: DimTiling, b: DimTiling) -> bool:
    """Whether two cuts have the same boundaries."""
    return a.parts == b.parts and is_nested(a, b)


def _boundary(tiling: DimTiling, i: int) -> int:
    return tiling.size if i == tiling.parts else tiling.interval(i)[0]
