"""Draws: every choice of a case is a number below a bound, kept in a list, so that a case can be replayed and made
smaller. Zero is always the simplest choice."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Option = TypeVar("Option")


class Draws:
    """Choices, from a seed or from a list of earlier ones; past the end of the list each is the simplest."""

    def __init__(self, seed: int | str | None = None, choices: Sequence[int] = ()) -> None:
        self._random = None if seed is None else Random(seed)
        self._given = tuple(choices)
        self.made: list[int] = []

    def below(self, bound: int) -> int:
        """A number of 0 or more and below `bound`."""
        if self._random is not None:
            number = self._random.randrange(bound)
        else:
            at = len(self.made)
            number = min(self._given[at], bound - 1) if at < len(self._given) else 0
        self.made.append(number)
        return number

    def between(self, low: int, high: int) -> int:
        """A number from `low`, the simplest, to `high`."""
        return low + self.below(high - low + 1)

    def choice(self, options: Sequence[Option]) -> Option:
        """One of several, of which the first is the simplest."""
        return options[self.below(len(options))]

    def rarely(self, odds: int) -> bool:
        """Whether something happens that does so once in `odds` times."""
        return self.below(odds) == odds - 1

    def order(self, count: int) -> list[int]:
        """The numbers below `count` in some order; the simplest is the usual one."""
        left = list(range(count))
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def some(self, options: Sequence[Option]) -> list[Option]:
        """Some of several, in their order; none is the simplest."""
        return [option for option in options if self.below(2)]
