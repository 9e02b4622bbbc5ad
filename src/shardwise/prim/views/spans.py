"""Spans and stretches: runs of elements of a dim."""

from __future__ import annotations

from typing import NamedTuple

from shardwise.layout.layout import Shape


class Span(NamedTuple):
    """The elements of a dim from `start` on, every `step`-th, `length` of them.

    >>> Span(1, 3, 2).inside(2, 6)
    (1, 3)
    """

    start: int
    length: int
    step: int = 1

    def inside(self, low: int, high: int) -> tuple[int, int]:
        """Return which of the elements lie in [low, high)."""
        return self.below(low), self.below(high)

    def below(self, position: int) -> int:
        """Return how many of the elements lie before a position."""
        return min(self.length, max(0, -((self.start - position) // self.step)))


Index = tuple[Span, ...]  # one per dim


def between(start: int, stop: int) -> Span:
    """Return the elements from `start` to `stop`."""
    return Span(start, max(0, stop - start))


def whole_but(shape: Shape, dim: int, span: Span) -> Index:
    """Return the index of a window that is whole but along one dim."""
    return tuple(span if k == dim else Span(0, size) for k, size in enumerate(shape))


class Stretch(NamedTuple):
    """A run of elements of a dim: `length` of them from `first` on, forwards (1), backwards (-1) or one of them (0)."""

    length: int
    first: int
    step: int

    @property
    def span(self) -> Span:
        """The elements that it runs over, in order.

        >>> Stretch(3, 5, -1).span
        Span(start=3, length=3, step=1)
        """
        return Span(min(self.first, self.first + (self.length - 1) * self.step), self.length if self.step else 1)


Stretches = tuple[Stretch, ...]
