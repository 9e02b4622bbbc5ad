"""Axes: mesh axes and the sub-axes that are their contiguous factors."""

import re
from collections.abc import Iterable
from math import gcd, lcm
from typing import NamedTuple

from shardwise.errors import LayoutError, printable

SUB_AXIS = re.compile(r"(?P<name>[^:()\s,]+):\((?P<pre>[0-9]{1,18})\)(?P<size>[0-9]{1,18})")


class Axis(NamedTuple):
    """A mesh axis, or the factor `size` of it that has `pre` positions above it.

    An axis of size 8 seen as 2 x 2 x 2 has the sub-axes `x:(1)2`, `x:(2)2` and `x:(4)2`, major to minor.

    >>> str(Axis("x", 2, 4, of=8)), str(Axis("x", 1, 8, of=8))
    ('x:(2)4', 'x')
    >>> half = Axis("x", 2, 4, of=8)  # the minor one of 2 x 4
    >>> half.post, half.is_whole, half.digit(5)
    (1, False, 1)
    """

    name: str
    pre: int
    size: int
    of: int

    @property
    def post(self) -> int:
        """How many positions of the mesh axis lie below one position of this factor."""
        return self.of // (self.pre * self.size)

    @property
    def is_whole(self) -> bool:
        """Whether this is a mesh axis rather than a factor of one."""
        return self.size == self.of

    def digit(self, coord: int) -> int:
        """Return the position along this axis of a device at `coord` along the mesh axis."""
        return coord // self.post % self.size

    def __str__(self) -> str:
        return self.name if self.is_whole else f"{self.name}:({self.pre}){self.size}"

    def __repr__(self) -> str:
        return printable(str(self), keep="")


def merge(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """Return the canonical form: no axis of size one, neighbouring factors of one axis joined.

    >>> merge([Axis("x", 1, 2, 8), Axis("y", 1, 1, 1), Axis("x", 2, 4, 8)])
    (x,)
    """
    out: list[Axis] = []
    last = None
    for axis in axes:
        if axis.size == 1:
            continue
        if last is not None and last.name == axis.name and last.pre * last.size == axis.pre:
            out[-1] = last = Axis(axis.name, last.pre, last.size * axis.size, axis.of)
        else:
            out.append(axis)
            last = axis
    return tuple(out)


def overlap(a: Axis, b: Axis) -> bool:
    """Whether two axes share a factor, so that they cannot be used side by side.

    >>> overlap(Axis("x", 1, 4, 8), Axis("x", 2, 2, 8)), overlap(Axis("x", 1, 2, 8), Axis("x", 2, 4, 8))
    (True, False)
    """
    if a.name != b.name or a.size == 1 or b.size == 1:
        return False
    first, second = (a, b) if a.pre <= b.pre else (b, a)
    return second.pre % (first.pre * first.size) != 0


def check_disjoint(axes: Iterable[Axis], where: str) -> None:
    """Raise a LayoutError if two of the axes are equal or share a factor."""
    seen: dict[str, list[Axis]] = {}
    for axis in axes:
        for other in seen.setdefault(axis.name, []):
            if axis == other:
                raise LayoutError(
                    f"mesh axis {str(axis)!r} is used twice in {where}.\n"
                    "  each mesh axis may split one dim, or be partial, once."
                )
            if not overlap(axis, other):
                continue
            if axis.is_whole or other.is_whole:
                raise LayoutError(
                    f"mesh axis {axis.name!r} is used beside its own sub-axis in {where}: {other}, {axis}."
                )
            raise LayoutError(
                f"sub-axes {other} and {axis} overlap in {where}.\n"
                f"  {axis.name!r} has {axis.of} positions; sub-axes used together must be disjoint factors "
                "of it."
            )
        seen[axis.name].append(axis)


def gaps(whole: Axis, used: Iterable[Axis]) -> list[Axis]:
    """Return the factors of an axis that disjoint sub-axes of it leave over, major to minor.

    >>> gaps(Axis("x", 1, 8, 8), [Axis("x", 2, 2, 8)])
    [x:(1)2, x:(4)2]
    """
    out, pre = list[Axis](), whole.pre
    for axis in sorted((a for a in used if a.name == whole.name and a.size > 1), key=lambda a: a.pre):
        if axis.pre > pre:
            out.append(Axis(whole.name, pre, axis.pre // pre, whole.of))
        pre = axis.pre * axis.size
    end = whole.pre * whole.size
    if end > pre:
        out.append(Axis(whole.name, pre, end // pre, whole.of))
    return out


def is_disjoint(a: Iterable[Axis], b: Iterable[Axis]) -> bool:
    """Whether no axis of one set overlaps one of the other, so that both can be used side by side.

    Axes may overlap though they have no factor in `common`: 6 positions seen as 3 x 2 and as 2 x 3.

    >>> three, two = Axis("x", 1, 3, 6), Axis("x", 1, 2, 6)
    >>> is_disjoint([three], [two]), common([three], [two]), is_disjoint([three], [Axis("x", 3, 2, 6)])
    (False, (), True)
    """
    others = list(b)
    for one in a:
        for other in others:
            if one.name == other.name and overlap(one, other):
                return False
    return True


def has_crossing(a: Iterable[Axis], b: Iterable[Axis]) -> bool:
    """Whether some axis of one set overlaps one of the other beyond the factors that they have in common.

    >>> has_crossing([Axis("x", 1, 4, 12)], [Axis("x", 1, 6, 12)])
    True
    >>> has_crossing([Axis("x", 1, 4, 8)], [Axis("x", 2, 2, 8)])
    False
    """
    others = list(b)
    return not is_disjoint(without(a, others), others)


def common(a: Iterable[Axis], b: Iterable[Axis]) -> tuple[Axis, ...]:
    """Return the factors that two sets of axes share; axes without one may overlap all the same (`is_disjoint`).

    >>> common([Axis("x", 1, 8, 8)], [Axis("x", 2, 2, 8), Axis("y", 1, 2, 2)])
    (x:(2)2,)
    >>> common([Axis("x", 1, 4, 12)], [Axis("x", 1, 6, 12)])
    (x:(1)2,)
    """
    out: list[Axis] = []
    others = list(b)
    for one in a if others else ():
        for other in others:
            if one == other and one.size > 1:
                out.append(one)
            elif one.name == other.name:
                low, high = lcm(one.pre, other.pre), gcd(one.pre * one.size, other.pre * other.size)
                if low < high and high % low == 0:
                    out.append(Axis(one.name, low, high // low, one.of))
    return tuple(out)


def without(axes: Iterable[Axis], removed: Iterable[Axis]) -> tuple[Axis, ...]:
    """Return axes less the factors that they have in common with others: the two make up the axes again.

    What is left may still overlap what was removed, where that does not nest (`has_crossing`).

    >>> without([Axis("x", 1, 8, 8), Axis("y", 1, 2, 2)], [Axis("x", 1, 2, 8)])
    (x:(2)4, y)
    >>> without([Axis("x", 1, 6, 12)], [Axis("x", 1, 4, 12)])
    (x:(2)3,)
    """
    out = [axis for axis in axes if axis.size > 1]
    for gone in removed:
        if gone.name in [axis.name for axis in out]:
            out = [gap for axis in out for gap in gaps(axis, common((axis,), (gone,)))]
    return tuple(out)


def cover(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """Return the smallest disjoint axes of which all these are factors, in canonical order.

    >>> cover([Axis("x", 1, 3, 6), Axis("y", 1, 2, 2), Axis("x", 1, 2, 6)]), cover([Axis("x", 2, 2, 8)])
    ((x, y), (x:(2)2,))
    """
    parts, out = list(axes), list[Axis]()
    if [axis.size for axis in parts] == [axis.of for axis in parts]:  # mesh axes overlap nothing but themselves
        return tuple(sorted({axis for axis in parts if axis.size > 1}))
    for axis in parts:
        while overlapping := next((other for other in out if overlap(axis, other)), None):
            out.remove(overlapping)
            low = gcd(axis.pre, overlapping.pre)
            axis = Axis(axis.name, low, lcm(axis.pre * axis.size, overlapping.pre * overlapping.size) // low, axis.of)
        out.append(axis)
    return merge(sorted(out))
